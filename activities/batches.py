"""Calls that may take a day: sent in a batch, and looked after until it has ended.

Nothing here waits for a batch. Whoever comes too early is given back with the time to come again, and its run keeps
that time. Whoever comes after a crash finds in the store which batch its request is in, or looks for it at the
provider.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import TypeVar

from activities.attempts import Attempt
from activities.batch_book import BatchBook
from activities.batch_book import Member as Whose
from activities.batch_collecting import Collector, Member, NeverSent
from activities.batch_lookout import Lookout
from activities.keeping import Keeper
from activities.ledger import Landed, custom_id
from activities.meter import GivenBack, Hold
from activities.model import BatchLost, BatchNotSent, BatchStanding, Completion, LanguageModel, ModelError, Overloaded
from domain.models import Parked
from entries import Intent
from store import Store

LOOK_FIRST, LOOK_LAST = timedelta(seconds=5), timedelta(minutes=15)
"""A batch is looked at after 5 s, then whenever it has become a third older, and every 15 minutes at least."""

LOOK_AFTER_AN_ERROR = timedelta(minutes=1)

CLOCKS = timedelta(minutes=5)
"""How far our clock and the provider's may differ, where a batch is looked for by the time at which it was made."""

ON_ITS_WAY = timedelta(seconds=30)
"""How long after its announcement a batch may still appear in the provider's list."""

FRESH = 2.0
"""Seconds for which all tasks of a batch go by one look at it."""

KEPT = 4
"""Batches whose results are kept in memory: all of their tasks come for them at about the same time."""


T = TypeVar("T")
Pay = Callable[[], AbstractAsyncContextManager[Hold]]
Permit = Callable[[], Awaitable[None]]


class BatchFailed(Exception):
    """A request in a batch that brought no answer: why, and which of the call's requests it was."""

    def __init__(self, number: int, why: ModelError) -> None:
        super().__init__(str(why))
        self.number, self.why = number, why


class Batches:
    """One per worker process."""

    def __init__(self, model: LanguageModel, store: Store, keeper: Keeper, lookout: Lookout) -> None:
        self._model, self._keeper = model, keeper
        self._lookout = lookout
        self._book = BatchBook(store)
        self._collector = Collector(model, self._book, self._lookout)
        self._looks: OrderedDict[str, tuple[float, asyncio.Task[BatchStanding | None]]] = OrderedDict()
        self._results: OrderedDict[str, asyncio.Task[dict[str, Completion | ModelError]]] = OrderedDict()

    async def landed(self, attempt: Attempt, pay: Pay, permit: Permit) -> Landed:
        """The answer to a call that goes through a batch; `GivenBack` until it is there, `BatchFailed` if none comes.

        `pay` draws the money for a new request, and may wait; `permit` is asked when all that go with it have paid,
        directly before it is written down. What was drawn is spent when the batch is sent, and else goes back.
        """
        found = await self._keeper.open_batch(attempt)
        if found is None:
            attempt.check_left()
            raise GivenBack(_until_later(await self._send(attempt, pay, permit)))
        number, intent = found
        try:
            return await self._collect(attempt, number, intent)
        except ModelError as error:
            # Whatever it is, the batch is not touched by it: nothing is to be done but to come again.
            what = f"its batch cannot be looked at: {error}"
            raise GivenBack(_parked(what, error.retry_after or LOOK_AFTER_AN_ERROR)) from None

    async def _send(self, attempt: Attempt, pay: Pay, permit: Permit) -> BatchStanding:
        number, request = 0, attempt.request

        async def intend(name: str) -> str:
            nonlocal number
            await permit()
            number = await self._keeper.intend(attempt, batch=name)
            return custom_id(attempt.entry, number)

        whose = Whose(task=request.task, step=request.step)
        try:
            return await self._collector.send(request.run, request.chain, Member(whose, attempt.brief, pay, intend))
        except NeverSent:
            raise BatchFailed(number, BatchNotSent("the batch was called off before it was sent")) from None
        except ModelError as error:
            if _is_refusal(error):
                raise BatchFailed(number, error) from None
            # Nobody knows whether it was made: whoever comes next looks for it.
            raise GivenBack(_parked("its batch was sent, and the provider did not confirm it", LOOK_FIRST)) from None

    async def _collect(self, attempt: Attempt, number: int, intent: Intent) -> Landed:
        run, name = attempt.request.run, intent.batch or ""
        id = await self._book.id(run, name) or await self._find(attempt, number, name)
        standing = await self._look(id)
        if standing is None:
            raise BatchFailed(number, BatchLost("the provider does not know its batch any more"))
        if not standing.ended:
            self._lookout.mind(run, attempt.request.chain, name, id)
            raise GivenBack(_until_later(standing))
        self._lookout.forget(id)
        match (await self._read(id)).get(custom_id(attempt.entry, number)):
            case Completion() as completion:
                return Landed(completion=completion, number=number)
            case ModelError() as error:
                raise BatchFailed(number, error)
            case _:
                raise BatchFailed(number, BatchLost("its batch has ended without an answer to it"))

    async def _find(self, attempt: Attempt, number: int, name: str) -> str:
        """The batch of a worker that was lost before it could write down the id.

        The list tells of no request, so a batch that could be ours is waited for: its results tell.
        """
        run = attempt.request.run
        announced = await self._book.announced(run, name)
        if announced.is_void:
            raise BatchFailed(number, BatchNotSent("the worker was lost before it had made the batch"))
        listed = await self._model.batches(announced.at - CLOCKS, announced.at + CLOCKS)
        like_ours = [batch for batch in listed if batch.requests == len(announced.ids)]
        for batch in like_ours:
            if batch.ended and custom_id(attempt.entry, number) in await self._read(batch.id):
                await self._book.made(run, name, batch.id)
                return batch.id
        if going := [batch for batch in like_ours if not batch.ended]:
            raise GivenBack(_until_later(min(going, key=lambda batch: abs(batch.created - announced.at))))
        if datetime.now(UTC) < announced.at + ON_ITS_WAY:
            raise GivenBack(_parked("its batch was sent, and is looked for", LOOK_FIRST))
        raise BatchFailed(number, BatchLost("the worker was lost while it made the batch, and there is none"))

    async def _look(self, id: str) -> BatchStanding | None:
        asked, look = self._looks.get(id, (0.0, None))
        if look is None or monotonic() - asked > FRESH or _failed(look):
            look = asyncio.create_task(self._model.batch(id))
            self._looks[id] = (monotonic(), look)
            _keep_few(self._looks)
        return await asyncio.shield(look)

    async def _read(self, id: str) -> dict[str, Completion | ModelError]:
        read = self._results.get(id)
        if read is None or _failed(read):
            read = self._results[id] = asyncio.create_task(self._model.batch_results(id))
            _keep_few(self._results)
        self._results.move_to_end(id)
        return await asyncio.shield(read)


def _until_later(standing: BatchStanding) -> Parked:
    """Wait for a batch: the older it is, the longer until the next look."""
    age = datetime.now(UTC) - standing.created
    return _parked(f"the batch {standing.id} of the provider", min(max(age / 3, LOOK_FIRST), LOOK_LAST))


def _parked(what: str, after: timedelta) -> Parked:
    return Parked(why="batch", what=what, until=datetime.now(UTC) + after)


def _is_refusal(error: ModelError) -> bool:
    """Whether the provider said no, so that no batch was made. After a fault inside it nobody knows."""
    unsure = error.may_be_billed or (error.retryable and not isinstance(error, Overloaded))
    return error.wall is not None or not unsure


def _failed(task: asyncio.Task[T]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)


def _keep_few(kept: OrderedDict[str, T]) -> None:
    while len(kept) > KEPT:
        kept.popitem(last=False)
