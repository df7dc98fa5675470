"""`events`: what happened, line by line, in one run or in all; and who goes on where it was."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from bookmarks import Bookmark
from client import RunClient
from domain.event_filter import WILD, Wanted
from domain.events import Logged
from domain.offsets import Offsets
from event_log import NOWHERE, Batch
from terminal.outcome import Exit, Refusal, one_line_of_json
from terminal.session import Session
from terminal.show_event import event_line

KEEP_EVERY = 1.0
"""Seconds after which the place of a reader is written down at the latest while it reads on: so much it may repeat."""


@dataclass(frozen=True)
class Asked:
    """What somebody wants to be told."""

    run: str | None
    every: bool
    types: Sequence[str]
    sources: Sequence[str]
    runs: Sequence[str]
    subjects: Sequence[str]
    correlations: Sequence[str]
    since: datetime | None
    follow: bool
    reader: str | None

    def wanted(self, runs: Iterable[str]) -> Wanted:
        """The same as the log takes it."""
        return Wanted(self.types, self.sources, tuple(runs), self.subjects, self.correlations, self.since)


async def tell(session: Session, asked: Asked, *, as_json: bool) -> Exit:
    """Tell what happened, and what happens."""
    _check(asked)
    telling = _Telling(as_json=as_json, with_run=asked.run is None)
    if asked.run is not None:
        client = await session.reader()
        run = await client.resolve(asked.run)
        await _tell_of_one(client, run, asked, telling)
        return Exit.DONE
    client = await session.reader(online=False)
    runs = [word if WILD.search(word) else await client.resolve(word) for word in asked.runs]
    await telling.take_up(client, asked.reader)
    async for batch in client.all_events(asked.wanted(runs), telling.offsets, follow=asked.follow):
        await telling.tell(batch)
    return Exit.DONE


async def _tell_of_one(client: RunClient, run: str, asked: Asked, telling: _Telling) -> None:
    """One run, until its end. Who follows hears from Temporal when it was ended from outside.

    A reader is told only what is written: what is not could still come otherwise, and it would have been read.
    """
    wanted = asked.wanted([run])
    follow = asked.follow and client.online
    if asked.reader is None:
        async for logged in client.log(run, follow=follow):
            if wanted.takes(logged):
                telling.write([logged])
        return
    await telling.take_up(client, asked.reader)
    async for _ in client.watch(run):
        async for batch in client.all_events(wanted, telling.offsets):
            await telling.tell(batch)
        if not follow:
            return


class _Telling:
    """Writes events to stdout, and keeps the place of a reader when they have left this process."""

    def __init__(self, *, as_json: bool, with_run: bool) -> None:
        self._as_json, self._with_run = as_json, with_run
        self._bookmark: Bookmark | None = None
        self._kept = 0.0

    async def take_up(self, client: RunClient, name: str | None) -> None:
        """Read under a name, if there is one."""
        self._bookmark = await client.bookmark(name) if name is not None else None

    @property
    def offsets(self) -> Offsets:
        """Where to begin."""
        return NOWHERE if self._bookmark is None else self._bookmark.offsets

    async def tell(self, batch: Batch) -> None:
        """Write a batch; its place counts after that."""
        for trouble in batch.troubles:
            sys.stderr.write(f"{trouble}\n")
        self.write(batch.events)
        clock = asyncio.get_running_loop().time()
        if self._bookmark is not None:
            self._bookmark.pass_over(batch)
            if not batch.more or clock - self._kept >= KEEP_EVERY:
                await self._bookmark.keep()
                self._kept = clock

    def write(self, events: Iterable[Logged]) -> None:
        """Each event in a line, and all of them out of this process."""
        for logged in events:
            run = logged.run if self._with_run else None
            line = one_line_of_json(logged.envelope) if self._as_json else event_line(logged.event, run)
            sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


def _check(asked: Asked) -> None:
    """Whether it is clear which runs are meant."""
    several = asked.every or asked.runs or asked.subjects or asked.correlations
    if asked.run is None and not several:
        message = "Name a run, as in ./starter.py events latest, or say --all."
        raise Refusal(message, code="usage", exit=Exit.WRONG)
    if asked.run is not None and (asked.every or asked.runs):
        message = "Name one run, or say --all or --run: not both."
        raise Refusal(message, code="usage", exit=Exit.WRONG)
