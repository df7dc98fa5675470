"""What the supervisor has written down: its events in batches, and the report at the end."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import structlog
from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

import plan_changes
from activities.batch_calling_off import CallingOff
from activities.contract import (
    APPEND_EVENTS,
    CLOSE_RUN,
    SETTLE,
    CloseReply,
    CloseRequest,
    EventsReply,
    EventsRequest,
    SettleReply,
    SettleRequest,
)
from activities.model import LanguageModel, ModelError
from activities.pin import OtherStore, Pin, forget_the_oldest
from activities.pulse import Pulse, beating
from audit_trail import AuditTrail
from books import Books
from domain.catalog import entry_of
from domain.events import timestamp
from domain.merit import record_of
from domain.models import Plan
from domain.picture import Picture
from domain.prices import money
from store import Store

CALL_OFF_ATTEMPTS = 4
"""How often a batch is called off at a provider that does not answer, until its requests count at their worst case."""

log = structlog.get_logger()


class RecordActivities:
    """Writes to the store. Safe to run again: every segment and report is named by what is in it."""

    def __init__(self, store: Store, model: LanguageModel) -> None:
        self._store = store
        self._books = Books(store)
        self._trail = AuditTrail(store)
        self._calling_off = CallingOff(model, store)
        self._pin = Pin(store)
        self._families: dict[str, str] = {}

    @activity.defn(name=APPEND_EVENTS)
    async def append_events(self, request: EventsRequest) -> EventsReply:
        """Append a segment to the audit trail and the event log of a run.

        To the trail first: nothing is shown that does not stand there. What was cut short between is done again.
        """
        async with beating(Pulse(step="events")):
            await self._check(request.run)
            head = await self._trail.append(request.run, request.head, request.events)
            await self._store.append_events(request.run, request.events, await self._family(request.run))
            return EventsReply(head=head)

    @activity.defn(name=SETTLE)
    async def settle(self, request: SettleRequest) -> SettleReply:
        """What the calls of a task have cost that could not tell. Those that nobody told of count at their worst.

        The account is closed before what of it is in a batch is called off, and is read after that.
        """
        await self._check(request.run)
        await self._books.close(request.run, request.task, request.step)
        await self._call_off(request)
        return SettleReply(account=await self._books.account(request.run, request.task, request.step))

    @activity.defn(name=CLOSE_RUN)
    async def close_run(self, request: CloseRequest) -> CloseReply:
        """Keep the report that the plan and all its events make."""
        async with beating(Pulse(step="report")):
            await self._check(request.run)
            return await self._close_run(request)

    async def _call_off(self, request: SettleRequest) -> None:
        """Stop paying for what nobody waits for. A provider that does not answer is asked a few times, not for ever."""
        try:
            await self._calling_off.give_up(request.run, request.task, request.step, over=request.over)
        except ModelError as error:
            if activity.info().attempt < CALL_OFF_ATTEMPTS:
                raise ApplicationError(str(error), type=type(error).__name__) from None
            log.warning("batch_not_called_off", error=type(error).__name__)

    async def _family(self, run: str) -> str:
        """The first of a run and its retries: what their events have in common. Asked for once a run."""
        if run not in self._families:
            manifest = await self._store.manifest(run) or {}
            self._families[run] = str(manifest.get("family") or run)
            forget_the_oldest(self._families)
        return self._families[run]

    async def _check(self, run: str) -> None:
        """Refuse a run of another store: events written there would be a hole in the log where it is read."""
        try:
            await self._pin.check(run)
        except OtherStore as other:
            raise ApplicationError(str(other), type="OtherStore", category=ApplicationErrorCategory.BENIGN) from None

    async def _close_run(self, request: CloseRequest) -> CloseReply:
        manifest = await self._store.manifest(request.run) or {}
        first = str(manifest.get("plan_ref") or request.plan_ref)  # it may have been changed since
        plan = Plan.model_validate_json(await self._store.artifact(first))
        estimate = await self._store.estimate(request.run)
        before = Decimal(manifest.get("before_usd", 0))
        picture = Picture(request.run, plan, simulated=request.simulated, estimate=estimate, before=before)
        async for event in self._store.events(request.run):  # one by one: those of 10,000 tasks are 200 MB
            await plan_changes.tell(self._store, picture, [event])
        report, document = picture.closing(picture.finished or datetime.now(UTC))
        ref = await self._store.put_artifact(document)
        await self._store.put_report(request.run, ref)
        finished = timestamp(picture.finished) if picture.finished else None
        await self._store.put_record(request.run, record_of(picture, finished).model_dump(mode="json"))
        await self._store.put_end(request.run, entry_of(picture, report).model_dump(mode="json"))
        cost = report.cost.actual_usd
        return CloseReply(report_ref=ref, cost_usd=money(cost) if cost is not None else None)
