"""The board: what this process has at work right now, for everybody who watches.

Watchers would cost Temporal a question each; the board costs the store one small object per run and process, however
many watch. It is a courtesy: nothing waits for it, nothing fails of it, and a store that is away is told of once.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from time import monotonic
from types import TracebackType
from typing import Any, Self

import structlog
from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.contract import AgentRequest
from activities.pulse import Pulse
from domain.board import BACKOFF, SILENT_AFTER, Note, Page
from store import Store

EVERY = 2.0
"""Seconds between two writes of a page at least."""

ALIVE = 5.0
"""Seconds after which a page is written again though nothing changed: a call may be silent for long, its worker not."""

GATHER = 0.25
"""Seconds after the first news: a call is past its permission by then, and a task that takes less needs no board."""

PATIENCE = 5.0
"""Seconds for one write."""

MOST = 200
"""Notes on one page: those at work first, then those that wait for their next attempt."""

WHAT_LIMIT = 200
"""Characters of an error."""

REMOVALS = 3
"""Times that a page is removed in vain before it is left to lie: readers see how old it is."""

log = structlog.get_logger()


@dataclass
class _Line:
    """One attempt, as its pulse is now; after a failure that will be retried, the wait for the next one."""

    task: str
    started: datetime
    pulse: Pulse
    backoff: Note | None = None

    def note(self) -> Note:
        return self.backoff or Note(
            task=self.task,
            attempt=self.pulse.attempt,
            step=self.pulse.step,
            started=self.started,
            since=self.pulse.since,
            output=self.pulse.tokens,
            what=self.pulse.what,
            until=self.pulse.until,
        )

    def is_over(self, now: datetime) -> bool:
        """Whether the next attempt should long be at work, here or elsewhere."""
        if self.backoff is None:
            return False
        return now > (self.backoff.until or self.backoff.since + timedelta(minutes=1)) + SILENT_AFTER


@dataclass
class _Run:
    """What is at work of one run, and what of it is in the store."""

    lines: dict[str, _Line] = field(default_factory=dict)
    written: tuple[Note, ...] = ()
    written_at: float | None = None
    removals: int = 0


class Board:
    """One per worker process, open while its workers are."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._worker = secrets.token_hex(8)
        self._runs: dict[str, _Run] = {}
        self._news = asyncio.Event()
        self._writer: asyncio.Task[None] | None = None
        self._fails = False

    async def __aenter__(self) -> Self:
        self._writer = asyncio.create_task(self._write_forever())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take down every page: this process has nothing more to say."""
        if self._writer is not None:
            self._writer.cancel()
            await asyncio.gather(self._writer, return_exceptions=True)
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                for id, run in self._runs.items():
                    if run.written_at is not None:
                        await self._tried(self._store.remove_page(id, self._worker))
        self._runs.clear()

    @asynccontextmanager
    async def attempt(self, request: AgentRequest, pulse: Pulse) -> AsyncIterator[None]:
        """Show an attempt while the block runs; after a failure that Temporal will retry, the wait for the next one."""
        line = _Line(request.task, activity.info().started_time, pulse)
        self._runs.setdefault(request.run, _Run()).lines[request.task] = line
        self._news.set()
        try:
            yield
        except Exception as error:
            line.backoff = _backoff(line, error)
            raise
        finally:
            lines = self._runs[request.run].lines if request.run in self._runs else {}
            if line.backoff is None and lines.get(request.task) is line:
                del lines[request.task]

    # How it is written

    async def _write_forever(self) -> None:
        while True:
            await self._news.wait()
            await asyncio.sleep(GATHER)
            while self._runs:
                await self._write_what_is_new()
                await asyncio.sleep(EVERY)
            self._news.clear()

    async def _write_what_is_new(self) -> None:
        now = datetime.now(UTC)
        for id, run in [*self._runs.items()]:
            for line in [line for line in run.lines.values() if line.is_over(now)]:
                del run.lines[line.task]
            if not run.lines:
                await self._take_down(id, run)
            else:
                await self._write(id, run)

    async def _write(self, id: str, run: _Run) -> None:
        notes = _first(run.lines.values())
        works = any(line.backoff is None for line in run.lines.values())
        due = run.written_at is None or (works and monotonic() - run.written_at >= ALIVE)
        if notes == run.written and not due:
            return
        page = Page(at=datetime.now(UTC), notes=notes, omitted=len(run.lines) - len(notes))
        content = page.model_dump_json(by_alias=True, exclude_none=True).encode()
        if await self._tried(self._put(id, run, content)):
            run.written, run.written_at, run.removals = notes, monotonic(), 0

    async def _put(self, id: str, run: _Run, content: bytes) -> None:
        """A page goes where its run is: the first one is written only when this store is the run's own."""
        if run.written_at is not None or await self._store.has_run(id):
            await self._store.put_page(id, self._worker, content)

    async def _take_down(self, id: str, run: _Run) -> None:
        run.removals += 1
        if run.written_at is None or run.removals > REMOVALS:
            del self._runs[id]
        elif await self._tried(self._store.remove_page(id, self._worker)):
            run.written, run.written_at = (), None  # a task may have come meanwhile: the next round sees
            if not run.lines:
                del self._runs[id]

    async def _tried(self, writing: Coroutine[Any, Any, None]) -> bool:
        """Whether the store took it. The first refusal in a row is logged."""
        try:
            async with asyncio.timeout(PATIENCE):
                await writing
        except Exception as error:  # noqa: BLE001  whatever it is: the writer must live as long as its process
            if not self._fails:
                log.warning("board_not_written", error=type(error).__name__)
            self._fails = True
            return False
        self._fails = False
        return True


def _first(lines: Iterable[_Line]) -> tuple[Note, ...]:
    at_work_first = sorted(lines, key=lambda line: line.backoff is not None)
    return tuple(line.note() for line in at_work_first[:MOST])


def _backoff(line: _Line, error: Exception) -> Note | None:
    """The wait for the next attempt, when there will be one. Of an error that is not ours only the type is told."""
    if isinstance(error, ApplicationError) and error.non_retryable:
        return None
    now = datetime.now(UTC)
    delay = error.next_retry_delay if isinstance(error, ApplicationError) else None
    what = f"{error.type}: {error.message}" if isinstance(error, ApplicationError) else type(error).__name__
    return line.note().model_copy(
        update={
            "step": BACKOFF,
            "since": now,
            "what": what[:WHAT_LIMIT],
            "until": now + delay if delay is not None else None,
        }
    )
