"""Calling a batch off at the provider when nobody waits for it any more, so that no more of it is paid for.

What the provider had done by then is billed, and is written down as what it is: an answer that was paid. What it had
not is written down as called off, and costs nothing.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from datetime import UTC, datetime
from time import monotonic

import structlog

from activities.batch_book import Announced, BatchBook
from activities.counting import counted
from activities.ledger import Entry, Ledger, custom_id
from activities.model import BatchNotSent, Completion, LanguageModel, ModelError
from books import Books
from domain.models import TaskError, Try
from entries import Intent, Setback
from store import Store

PATIENCE = 20.0
"""Seconds for which the end of a batch is awaited that was called off. After that its requests count at their worst."""

LOOK_FIRST, LOOK_LAST = 0.25, 4.0

KEPT = 4
"""Batches whose end is kept in memory: of a run that is cancelled all tasks ask at the same time."""

Results = Mapping[str, Completion | ModelError]

log = structlog.get_logger()


class CallingOff:
    """One per worker process."""

    def __init__(self, model: LanguageModel, store: Store) -> None:
        self._model, self._books = model, Books(store)
        self._book, self._ledger = BatchBook(store), Ledger(store)
        self._ends: OrderedDict[str, asyncio.Task[Results | None]] = OrderedDict()

    async def give_up_all(self, run: str, name: str, id: str) -> bool:
        """Call off a batch of a run that is over and cannot ask; whether all is written down that will be known of it.

        The run is closed first: whoever is on its way to a call in it makes none.
        """
        await self._books.close_run(run)
        await self._book.made(run, name, id)
        if (ending := self._ends.get(id)) is not None and ending.done():
            del self._ends[id]  # nobody knew its end then
        if await self._end(id) is None:
            return await self._model.batch(id) is None
        for member in (await self._book.announced(run, name)).members:
            await self.give_up(run, member.task, member.step, over=True)
        return True

    async def give_up(self, run: str, task: str, step: int, *, over: bool) -> None:
        """Call off what of a step is in a batch, whose account is closed, and write down what came of it.

        A batch is shared by tasks of one run. It is called off when all of them are given up, or the run is `over`.
        """
        for entry, number, intent in await self._ledger.open_batches(run, task, step):
            results = await self._results(run, intent.batch or "", over=over)
            if results is not None:
                await self._write_down(entry, number, intent, results)

    async def close(self) -> None:
        """Wait for no end any more."""
        for ending in self._ends.values():
            ending.cancel()
        await asyncio.gather(*self._ends.values(), return_exceptions=True)

    async def _results(self, run: str, name: str, *, over: bool) -> Results | None:
        """What came of the requests of a batch after it was called off; None while it is wanted or nobody can say."""
        announced = await (self._book.announced(run, name) if over else self._book.known(run, name))
        if announced is None:
            return None
        if announced.is_void:
            return {}
        if not (over or await self._is_unwanted(run, announced)):
            return None
        id = await self._book.id(run, name)
        return None if id is None else await self._end(id)

    async def _is_unwanted(self, run: str, announced: Announced) -> bool:
        """Each closes its own account before it looks at the others: the last of them sees all closed."""
        if not announced.members:
            return False  # of an older release: nobody knows whose it is
        closed = [await self._books.is_closed(run, member.task, member.step) for member in announced.members]
        return all(closed)

    async def _end(self, id: str) -> Results | None:
        ending = self._ends.get(id)
        if ending is None or (ending.done() and (ending.cancelled() or ending.exception() is not None)):
            ending = self._ends[id] = asyncio.create_task(self._call_off(id))
            while len(self._ends) > KEPT:
                self._ends.popitem(last=False)
        return await asyncio.shield(ending)

    async def _call_off(self, id: str) -> Results | None:
        await self._model.cancel_batch(id)
        asked, pause = monotonic(), LOOK_FIRST
        while (standing := await self._model.batch(id)) is not None:
            if standing.ended:
                log.info("batch_called_off", requests=standing.requests)
                return await self._model.batch_results(id)
            if monotonic() - asked > PATIENCE:
                break
            await asyncio.sleep(pause)
            pause = min(2 * pause, LOOK_LAST)
        log.warning("batch_end_unknown")
        return None

    async def _write_down(self, entry: Entry, number: int, intent: Intent, results: Results) -> None:
        """Keep what a request came to. Of one that may be billed and brought nothing, the worst case stays."""
        match results.get(custom_id(entry, number)):
            case Completion() as paid:
                await self._ledger.complete(entry, counted(paid, intent.worst), number)
            case ModelError() as error if error.may_be_billed:
                return
            case None if results:
                return
            case _:
                await self._ledger.fail(entry, number, _called_off(intent) if results else _not_sent(intent))


def _called_off(intent: Intent) -> Setback:
    return _unpaid(intent, "CalledOff", "it was called off before the provider had come to it")


def _not_sent(intent: Intent) -> Setback:
    return _unpaid(intent, BatchNotSent.__name__, "its batch was called off before it was sent")


def _unpaid(intent: Intent, type: str, message: str) -> Setback:
    """It cost nothing, and used no attempt."""
    error = TaskError(type=type, message=message, attempt=intent.attempt)
    told = Try(attempt=intent.attempt, error=error, at=datetime.now(UTC), model=intent.model if intent.aside else None)
    return Setback(told=told, start=intent.start, used=False)
