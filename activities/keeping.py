"""Keeping what is paid for, through a cancel and a store that is full or away."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

import structlog
from temporalio import activity

from activities.attempts import Attempt, CallFailed, NoneLeft, TurnedAway
from activities.contract import AgentRequest
from activities.ledger import Landed, Ledger, Setbacks
from books import Books, Line
from domain.models import Call, Stopped
from entries import Intent, Setback
from store import Store, StoreUnavailable

KEEP_PATIENCE = 10.0
"""Seconds that a cancel waits for a paid answer to be written down."""

T = TypeVar("T")
Telling = Callable[[str, str, int, str], Awaitable[tuple[Call, ...]]]

log = structlog.get_logger()


class Keeper:
    """What the door writes down of a call, and reads again."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._ledger = Ledger(store)
        self._books = Books(store)

    async def landed(self, attempt: Attempt) -> Landed | None:
        """What the provider has already said to this call."""
        return await self._ledger.landed(attempt.entry)

    async def attempt_number(self, request: AgentRequest) -> int:
        """Which attempt of its task this activity is, by the calls that were made in vain and not by Temporal's count.

        A worker that was lost before its call, or after its answer, has used no attempt. Earlier starts of the task
        count: a wall gives no attempt back.
        """
        info = activity.info()
        if info.attempt == 1:
            return request.used + 1
        lines = await self._in_vain(request, info.workflow_run_id or "")
        # A request that was counted may have met a wall after all: the numbers that were given stay given.
        return 1 + max([request.used + len(lines), *(line.attempt for line in lines)])

    async def _in_vain(self, request: AgentRequest, start: str) -> list[Line]:
        return await self._books.in_vain(request.run, request.task, request.step, start)

    async def open_batch(self, attempt: Attempt) -> tuple[int, Intent] | None:
        """The request of this call that is in a batch, if one is."""
        return await self._ledger.open_batch(attempt.entry)

    async def intend(self, attempt: Attempt, *, batch: str | None = None) -> int:
        """Write down that a request is about to be made; its number.

        `NotCovered` when there is no money for it, `NoneLeft` when it is one more than the task may make.
        """
        request = attempt.request
        attempt.check_left()

        async def covered() -> None:
            attempt.check_cover(await self._books.calls(request.run, request.task, request.step))

        check = covered if attempt.is_capped else None
        number = await self._ledger.intend(attempt.entry, attempt.intent(batch), check)
        if number > 1 and await self._is_one_too_many(attempt, number):
            await self.note(attempt, number, attempt.not_made())
            raise NoneLeft
        if await self._books.is_closed(request.run, request.task, request.step):
            # The run has given the task up and counted its cost, as after a long cut of the network.
            await self.note(attempt, number, attempt.not_made())
            raise TurnedAway(Stopped(why="the task has ended meanwhile"))
        return number

    async def _is_one_too_many(self, attempt: Attempt, number: int) -> bool:
        """Whether requests that were written down before this one have used all attempts.

        As when a worker was frozen before its request, and another has made it meanwhile: the later one steps back.
        """
        lines = await self._in_vain(attempt.request, attempt.start)
        before = [line for line in lines if line.place != attempt.entry.key or line.number < number]
        return attempt.request.used + len(before) >= attempt.request.attempts

    async def keep(self, attempt: Attempt, landed: Landed) -> Landed:
        """Write down an answer, and give the one that stands. It is tried until it is done: nobody shall pay it again.

        When the answer to another request was first, ours was paid all the same: it is noted as what it cost in vain.
        """

        async def keep() -> Landed:
            complete = self._ledger.complete
            stands = await _until_done(lambda: complete(attempt.entry, landed.completion, landed.number))
            if stands.overtaken:
                await self.note(attempt, landed.number, attempt.overtaken(landed.completion.usage))
            return stands

        keeping = asyncio.create_task(keep())
        try:
            return await asyncio.shield(keeping)
        except asyncio.CancelledError:
            await asyncio.wait([keeping], timeout=KEEP_PATIENCE)
            raise
        finally:
            keeping.cancel()

    async def keep_text(self, text: str) -> str:
        """Keep a part of an answer that is paid for, by itself; its reference."""
        return await _until_done(lambda: self._store.put_artifact(text.encode()))

    async def note(self, attempt: Attempt, number: int, setback: Setback) -> None:
        """Write down what a request came to that brought no answer. Without a word it counts at its worst case."""
        try:
            await self._ledger.fail(attempt.entry, number, setback)
        except StoreUnavailable as error:
            log.warning("setback_not_kept", error=type(error).__name__)

    async def setbacks(self, attempt: Attempt, *, but: int | None = None, over: bool = False) -> Setbacks:
        """The requests before this attempt that brought nothing. What cannot be read now does not change an outcome.

        Those of this attempt, too, when it is `over`.
        """
        try:
            return await self._ledger.setbacks(
                attempt.entry, start=attempt.start, attempt=attempt.number, but=but, worst=attempt.worst, over=over
            )
        except StoreUnavailable as error:
            log.warning("setbacks_not_read", error=type(error).__name__)
            return Setbacks(known=False)

    async def told_in_passing(self, attempt: Attempt) -> tuple[Call, ...] | None:
        """The requests that this start tells of, which is not the last; None when the store cannot say now."""
        return await self._told(self._books.told_in_passing, attempt)

    async def told_at_the_end(self, attempt: Attempt, failed: CallFailed | None = None) -> tuple[Call, ...] | None:
        """The requests that the last start tells of, the one that failed at last too; None when the store is away."""
        calls = await self._told(self._books.told_at_the_end, attempt)
        last = None if failed is None else attempt.in_vain(failed)
        if calls is None or last is None or any(call.key == last.key for call in calls):
            return calls
        return (*calls, last)  # what it came to could not be written down

    async def _told(self, ask: Telling, attempt: Attempt) -> tuple[Call, ...] | None:
        request = attempt.request
        try:
            return await ask(request.run, request.task, request.step, attempt.start)
        except StoreUnavailable as error:
            log.warning("calls_not_read", error=type(error).__name__)
            return None

    async def keep_partial(self, text: str) -> str | None:
        """Keep what came of an answer that does not count, for people to read. It is never an input."""
        if not text:
            return None
        with suppress(StoreUnavailable):
            return await self._store.put_artifact(text.encode())
        return None


async def _until_done(write: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Write something that is paid for, however long the store is full or away."""
    while True:
        try:
            return await write()
        except StoreUnavailable as error:
            log.warning("answer_not_kept_yet", error=type(error).__name__)
            await asyncio.sleep(1)
