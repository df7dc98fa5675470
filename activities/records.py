"""What the supervisor has written down: its events in batches, and the report at the end."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from activities.books import Books
from activities.contract import (
    APPEND_EVENTS,
    CLOSE_RUN,
    SETTLE,
    CloseReply,
    CloseRequest,
    EventsRequest,
    SettleReply,
    SettleRequest,
)
from activities.pin import OtherStore, Pin
from activities.pulse import Pulse, beating
from domain.catalog import entry_of
from domain.models import Plan
from domain.picture import Picture
from domain.prices import money
from store import Store


class RecordActivities:
    """Writes to the store. Safe to run again: every segment and report is named by what is in it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._books = Books(store)
        self._pin = Pin(store)

    @activity.defn(name=APPEND_EVENTS)
    async def append_events(self, request: EventsRequest) -> None:
        """Append a segment to the event log of a run."""
        await self._check(request.run)
        await self._store.append_events(request.run, request.events)

    @activity.defn(name=SETTLE)
    async def settle(self, request: SettleRequest) -> SettleReply:
        """What the calls of a task have cost that could not tell. Those that nobody told of count at their worst."""
        await self._check(request.run)
        return SettleReply(account=await self._books.account(request.run, request.task, request.step))

    @activity.defn(name=CLOSE_RUN)
    async def close_run(self, request: CloseRequest) -> CloseReply:
        """Keep the report that the plan and all its events make."""
        async with beating(Pulse(step="report")):
            await self._check(request.run)
            return await self._close_run(request)

    async def _check(self, run: str) -> None:
        """Refuse a run of another store: events written there would be a hole in the log where it is read."""
        try:
            await self._pin.check(run)
        except OtherStore as other:
            raise ApplicationError(str(other), type="OtherStore", category=ApplicationErrorCategory.BENIGN) from None

    async def _close_run(self, request: CloseRequest) -> CloseReply:
        plan = Plan.model_validate_json(await self._store.artifact(request.plan_ref))
        estimate = await self._store.estimate(request.run)
        manifest = await self._store.manifest(request.run) or {}
        before = Decimal(manifest.get("before_usd", 0))
        picture = Picture(request.run, plan, simulated=request.simulated, estimate=estimate, before=before)
        picture.add([event async for event in self._store.events(request.run)])
        report = picture.report({}, now=picture.finished or datetime.now(UTC))
        ref = await self._store.put_artifact(report.model_dump_json(by_alias=True).encode())
        await self._store.put_end(request.run, entry_of(picture, report).model_dump(mode="json"))
        cost = report.cost.actual_usd
        return CloseReply(report_ref=ref, cost_usd=money(cost) if cost is not None else None)
