"""What a command needs: the settings of its home, and a client with or without a server."""

from __future__ import annotations

import shlex
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from temporalio.service import RPCError

import embedded
from client import RunClient, UnknownRun
from domain.picture import Picture
from pollers import workers_elsewhere
from runtime import ROOT, CannotDo, Credentials, Mode, Settings, connect, default_home, load_settings, temporal_settings
from store import open_store
from telemetry import exporting
from terminal.lease import Lease
from terminal.outcome import Exit, Refusal


def mode_now(*, simulate: bool) -> Mode:
    """Live when there are credentials, unless the person says otherwise."""
    return Mode.SIMULATED if simulate or Credentials.from_environment() is None else Mode.LIVE


def starter_for(home: Path | None) -> str:
    """How a hint calls a home: as it must be typed from where the person is."""
    try:
        called = "./starter.py" if Path.cwd() == ROOT else str(ROOT / "starter.py")
        place = default_home() if home is None else home.expanduser().resolve()
    except (OSError, RuntimeError):  # a folder that is gone, a user that there is not: the error itself tells of it
        return "./starter.py"
    return called if place == default_home() else f"{called} --home {shlex.quote(str(place))}"


class Session:
    """One command at one home."""

    def __init__(self, home: Path | None) -> None:
        self.settings: Settings = load_settings(home)
        self.starter = starter_for(home)
        """How a hint calls this home."""

    def is_up(self) -> bool:
        """Whether there is a Temporal to ask: a configured one, or this home's own when it runs."""
        return temporal_settings() is not None or embedded.find_server(self.settings.home) is not None

    async def client(self) -> RunClient:
        """A client of a home that is up; what it starts is traced when the environment asks for traces."""
        for problem in exporting.start(exporting.STARTER):
            sys.stderr.write(f"{problem}\n")
        return RunClient(await connect(self.settings), open_store(self.settings.store))

    async def reader(self, *, online: bool = True) -> RunClient:
        """A client for looking: of a home that is down it reads what the store knows. It starts nothing.

        Who needs the store alone does without a server that may not answer.
        """
        if self.settings.home.exists() and not self.settings.home.is_dir():
            raise CannotDo(f"The home {self.settings.home} is not a folder. Choose another by --home.")
        local = "://" not in self.settings.store
        if local and not Path(self.settings.store).is_dir():
            raise UnknownRun(f"there are no runs in this home ({self.settings.home})")
        server = await connect(self.settings) if online and self.is_up() else None
        return RunClient(server, open_store(self.settings.store))

    def check_current(self, client: RunClient, picture: Picture) -> None:
        """A run that had not ended can be told of only by a server."""
        if client.online or picture.ended:
            return
        if trouble := self._being_mended(simulated=picture.simulated):
            raise Refusal(trouble, code="not_up", exit=Exit.CANNOT)
        ended = sum(task.ended is not None for task in picture.tasks.values())
        raise Refusal(
            f"This home is not up. {picture.run} was open, with {ended} of {len(picture.tasks)} tasks ended. "
            f"`{self.starter} up` goes on with it.",
            code="not_up",
            exit=Exit.CANNOT,
        )

    def trouble(self, *, simulated: bool) -> str | None:
        """What this home lacks for its runs to go on, and the remedy. Of a Temporal elsewhere nothing is known here."""
        if being_mended := self._being_mended(simulated=simulated):
            return being_mended
        if temporal_settings() is not None:
            return None
        if embedded.find_server(self.settings.home) is None:
            return f"This home is not up any more; `{self.starter} up` goes on with the run."
        if embedded.Worker(self.settings.home, Mode.SIMULATED if simulated else Mode.LIVE).find() is None:
            how = f"`{self.starter} up`" if simulated else f"`{self.starter} up` where ANTHROPIC_API_KEY is set"
            how = f"`{self.starter} up --simulate`" if simulated and Credentials.from_environment() else how
            kind = "simulated" if simulated else "live"
            return f"No worker for {kind} runs is running in this home; {how} starts one, and the run goes on."
        return None

    def _being_mended(self, *, simulated: bool) -> str | None:
        """What such runs need, is down, and is being started again by a keeper."""
        needed = {"server", "simulator", "worker-simulated"} if simulated else {"server", "worker-live"}
        down = (trouble for trouble in embedded.troubles(self.settings.home) if not trouble.up)
        return next((trouble.sentence(self.starter) for trouble in down if trouble.service in needed), None)

    @asynccontextmanager
    async def up(self, mode: Mode) -> AsyncIterator[None]:
        """The home up for this block. Who leaves last stops what such blocks started, when no run is open any more."""
        embedded.prepare_home(self.settings.home)
        with Lease(self.settings.home) as lease:
            alone = not await workers_elsewhere(self.settings, mode)
            up = await embedded.up(self.settings, mode, worker=alone, simulator=alone)
            lease.add(up.owned)
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
