"""Calls that no trail tells of: those that were at work, or not yet written, when their run ended without asking.

Nobody writes for a run that was terminated, and one that a bug of ours ends asks nobody. But the ledger has every call
from before it was made, and shows them beside the trail. What is shown so is not chained, and has no number. It is kept
there when the ledger goes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from audit_trail import AuditTrail
from books import Books, Line
from domain.audit import Record
from domain.events import EventType
from domain.models import Plan
from domain.prices import Price
from domain.witness import call_data
from store import Store, StoreError

BESIDE = 0
"""The number of what stands in no trail."""


class Untold:
    """The calls of runs of which their trails do not tell, as if they did."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._trail = AuditTrail(store)

    async def calls(self, run: str, records: Sequence[Record]) -> list[Record]:
        """Those of a run with these records. None when they come to its end, which is told last: but after a bug."""
        if any(record.type == EventType.RUN_COMPLETED and "error" not in record.data for record in records):
            return []
        found = await _calls(Books(self._store), run, records, await self._prices(run))
        return found or [_record(each["task"], each["data"]) for each in await self._trail.beside(run)]

    async def keep(self, run: str) -> None:
        """Write them down beside the trail, because the ledger of the run is about to go.

        Not of a run that has told its end and has no trail: it had none, or that was removed on purpose.
        """
        records = await self._trail.records(run)
        if not records and await self._store.end(run) is not None:
            return
        if found := await self.calls(run, records):
            await self._trail.put_beside(run, [{"task": record.task, "data": record.data} for record in found])

    async def _prices(self, run: str) -> Mapping[str, Price]:
        """The prices of the submit. Where they are lost nobody knows what a call cost; that it was made is known."""
        try:
            manifest = await self._store.manifest(run)
            if manifest is None:
                return {}
            prices = Plan.model_validate_json(await self._store.artifact(manifest["plan_ref"])).prices
        except (StoreError, ValueError, KeyError):
            return {}
        return prices.models if prices is not None else {}


async def _calls(books: Books, run: str, records: Sequence[Record], prices: Mapping[str, Price]) -> list[Record]:
    told = {_key(record.task, record.data) for record in records if record.type == EventType.CALL_MADE}
    found = [_of_ledger(line, prices) for line in await books.requests(run)]
    return [record for record in found if _key(record.task, record.data) not in told]


def _of_ledger(line: Line, prices: Mapping[str, Price]) -> Record:
    call = line.call
    if not line.is_settled:  # it may be under way: nobody has given it up
        call = call.model_copy(update={"error": None})
    return _record(line.intent.task, call_data(call, prices, line.intent.step))


def _record(task: str, data: dict[str, Any]) -> Record:
    return Record(
        number=BESIDE,
        type=EventType.CALL_MADE.value,
        time=str(data["at"]),
        task=task,
        data=data,
        hash="",
        supersedes=None,
        body=b"",
    )


def _key(task: str | None, data: Mapping[str, object]) -> tuple[object, ...]:
    return task, data.get("step"), data.get("prompt"), data.get("request")
