"""What a command needs: the settings of its home, and a client with or without a server."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from temporalio.service import RPCError

import embedded
from client import RunClient, UnknownRun
from domain.report import Picture
from runtime import CannotDo, Credentials, Mode, Settings, connect, load_settings, temporal_settings
from store import open_store
from terminal.lease import Lease
from terminal.outcome import Exit, Refusal


def mode_now(*, simulate: bool) -> Mode:
    """Live when there are credentials, unless the person says otherwise."""
    return Mode.SIMULATED if simulate or Credentials.from_environment() is None else Mode.LIVE


class Session:
    """One command at one home."""

    def __init__(self, home: Path | None) -> None:
        self.settings: Settings = load_settings(home)

    @property
    def starter(self) -> str:
        """How a hint calls this home."""
        default = load_settings(None).home
        return "./starter.py" if self.settings.home == default else f"./starter.py --home {self.settings.home}"

    async def client(self) -> RunClient:
        """A client of a home that is up."""
        return RunClient(await connect(self.settings), open_store(self.settings.store))

    async def reader(self) -> RunClient:
        """A client for looking: of a home that is down it reads what the store knows. It starts nothing."""
        local = "://" not in self.settings.store
        if local and not Path(self.settings.store).is_dir():
            raise UnknownRun(f"there are no runs in this home ({self.settings.home})")
        up = temporal_settings() is not None or embedded.find_server(self.settings.home) is not None
        return RunClient(await connect(self.settings) if up else None, open_store(self.settings.store))

    def check_current(self, client: RunClient, picture: Picture) -> None:
        """A run that had not ended can be told of only by a server."""
        if client.online or picture.ended:
            return
        ended = sum(task.ended is not None for task in picture.tasks.values())
        raise Refusal(
            f"This home is not up. {picture.run} was open, with {ended} of {len(picture.tasks)} tasks ended. "
            f"`{self.starter} up` brings it on.",
            code="not_up",
            exit=Exit.CANNOT,
        )

    def trouble(self, *, simulated: bool) -> str | None:
        """What this home lacks for its runs to go on, and the remedy. Of a Temporal elsewhere nothing is known here."""
        if temporal_settings() is not None:
            return None
        if embedded.find_server(self.settings.home) is None:
            return f"This home is not up any more; `{self.starter} up` brings the run on."
        if embedded.Worker(self.settings.home, Mode.SIMULATED if simulated else Mode.LIVE).find() is None:
            return f"No worker is running in this home; `{self.starter} up` starts one, and the run goes on."
        return None

    @asynccontextmanager
    async def up(self, mode: Mode) -> AsyncIterator[None]:
        """The home up for this block. Who leaves last stops what such blocks started, when no run is open any more."""
        embedded.prepare_home(self.settings.home)
        with Lease(self.settings.home) as lease:
            up = await embedded.up(self.settings, mode)
            lease.add(up.started)
            try:
                yield
            finally:
                if lease.is_last() and (started := lease.started()) and not await self._has_open_runs():
                    await embedded.down(self.settings, started)
                    lease.forget()

    async def _has_open_runs(self) -> bool:
        """When it cannot be known, nothing is stopped: a run may be open. The outcome of the block stays what it is."""
        try:
            return bool(await (await self.client()).open_runs())
        except (CannotDo, RPCError) as problem:
            sys.stderr.write(f"Left as it is: {problem}\n")
            return True
