"""Looking at runs: what the event log says, and what Temporal says where the log is behind.

Watchers cost a run nothing: they read the event log and the boards in the store, and once in a while ask Temporal
whether the run was ended from outside. Who looks once also asks the supervisor for the last second, which is not
written yet.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from temporalio.client import (
    Client,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowHandle,
    WorkflowHistoryEventFilterType,
    WorkflowQueryFailedError,
)
from temporalio.service import RPCError

import plan_changes
from absence import is_unknown
from boards import Boards
from bookmarks import Bookmark, all_places
from books import Books
from domain.audit import Anchor, Head
from domain.briefing import Brief, brief_for, readable
from domain.event_filter import EVERYTHING, Wanted
from domain.events import Event, Logged, timestamp
from domain.models import Account, Plan, RunStatus
from domain.offsets import Offsets, ReaderPlace
from domain.picture import Picture
from domain.report import INLINE_LIMIT, Report
from domain.runs import RunSummary, RunView
from event_log import NOWHERE, Batch, EventLog
from stalls import find_stall, is_quiet
from store import Store, StoreError, StoreUnavailable
from workflows.supervisor import SupervisorWorkflow

LOOK_FIRST, LOOK_LAST = 0.5, 2.0
"""Seconds between two looks of a watcher at the store: the first while things happen, the last when nothing does."""

LOOK_SLOWER = 1.2
"""The factor from one look in vain to the next."""

ASK_TEMPORAL = 5.0
"""Seconds, more or less, without an event after which a watcher asks whether the run was ended from outside."""

QUERY_TIMEOUT = timedelta(seconds=3)
"""A query needs a worker; without one the store tells what is known."""

JUST_SUBMITTED = timedelta(seconds=20)
"""How long a start may be on its way from whoever submits to Temporal."""

ENDED_FROM_OUTSIDE = {
    WorkflowExecutionStatus.TERMINATED: (RunStatus.CANCELLED, "the run was terminated"),
    WorkflowExecutionStatus.CANCELED: (RunStatus.CANCELLED, "the run was cancelled"),
    WorkflowExecutionStatus.FAILED: (RunStatus.FAILED, "the run failed"),
    WorkflowExecutionStatus.TIMED_OUT: (RunStatus.FAILED, "the run timed out"),
}

TOLD_ITS_END = frozenset(
    {WorkflowExecutionStatus.COMPLETED, WorkflowExecutionStatus.FAILED, WorkflowExecutionStatus.CANCELED}
)
"""How a run closes that has written its last event itself."""

SERVER_ITSELF = "history-service"
"""Who terminates a workflow that has come to a limit of the server."""

REASON_LIMIT = 200
"""Characters of what somebody gave as a reason."""


@dataclass(frozen=True)
class Anchorage:
    """What Temporal has of an audit trail, or why it has nothing to say."""

    anchor: Anchor | None
    why_none: str = ""
    answered: bool = True
    """Whether Temporal was asked, and answered."""
    closed: bool = False
    """Whether the run is over, or not known any more: nothing comes to its trail."""


class UnknownRun(ValueError):
    """There is no such run here, or the words fit several."""


class RunReader:
    """Runs of one store. Without a server it still tells what the store knows."""

    def __init__(self, client: Client | None, store: Store) -> None:
        self._client = client
        self._store = store
        self._unanswered: set[str] = set()

    @property
    def books(self) -> Books:
        """What the calls of runs have cost, as the ledger has it."""
        return Books(self._store)

    @property
    def online(self) -> bool:
        """Whether there is a server to ask."""
        return self._client is not None

    @property
    def silent(self) -> str | None:
        """Who did not answer the last question of a watcher, in a sentence."""
        return " ".join(f"{who} does not answer." for who in sorted(self._unanswered)) or None

    async def resolve(self, words: str) -> str:
        """The run that is meant: an id, a unique prefix, or `latest`."""
        runs = await self._store.runs()
        if words in runs:
            return words
        manifests = (
            [manifest for run in runs if (manifest := await self._store.manifest(run))] if words == "latest" else []
        )
        if manifests:
            return str(max(manifests, key=lambda manifest: str(manifest["submitted"]))["run"])
        fitting = [run for run in runs if run.startswith(words)]
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            raise UnknownRun(f"{words!r} fits {len(fitting)} runs: {', '.join(fitting[:5])}")
        there = f"; there are {', '.join(runs[-3:])}{' and others' if len(runs) > 3 else ''}" if runs else ""
        raise UnknownRun(f"there is no run {words!r} here{there}")

    async def runs(self) -> list[str]:
        """The ids of all runs of this store."""
        return await self._store.runs()

    async def manifest(self, run: str) -> dict[str, Any] | None:
        """What was submitted as this run."""
        return await self._store.manifest(run)

    async def end(self, run: str) -> dict[str, Any] | None:
        """How the run ended, as it told itself."""
        return await self._store.end(run)

    async def glance(self, run: str) -> Picture:
        """The run as its event log tells it, at most a second old: no worker is asked."""
        picture = await self._begin_picture(run)
        await self._catch_up(picture)
        if not picture.ended:
            await self._notice_an_outside_end(picture)
        return picture

    async def picture(self, run: str) -> Picture:
        """The run as it is now: what the store has, and what the supervisor has not written yet."""
        picture = await self._begin_picture(run)
        await self._catch_up(picture)
        if not picture.ended:
            await self._add_unwritten(picture)
            await self._notice_an_outside_end(picture)
            await Boards(self._store).tell(picture)
        return picture

    async def watch(self, run: str) -> AsyncIterator[Picture]:
        """The run again and again, until it has ended: at least every two seconds, four times as often while it moves.

        Makes no query while the run goes on, so that watchers cost its workers nothing.
        """
        picture = await self._begin_picture(run)
        boards = Boards(self._store)
        clock = asyncio.get_running_loop().time
        look, ask_at = LOOK_FIRST, clock()
        while True:
            seen = picture.last
            asks = clock() >= ask_at
            await self._look(picture, boards, ask_temporal=asks)
            yield picture
            if picture.ended:
                return
            moves = picture.last > seen
            if asks or moves:
                ask_at = clock() + ASK_TEMPORAL * random.uniform(0.8, 1.2)  # noqa: S311  so that 50 do not ask at once
            look = LOOK_FIRST if moves else min(look * LOOK_SLOWER, LOOK_LAST)
            await asyncio.sleep(look)

    async def report(self, picture: Picture) -> Report:
        """The report of a picture, with every output that is small enough to show in place.

        One that is damaged in the store has its reference alone: it hides no other, and who asks for it is told.
        """
        tasks = picture.tasks.values()
        small = [task.output_ref for task in tasks if task.output_bytes <= INLINE_LIMIT]
        texts = {}
        for ref in sorted({ref for ref in (*small, *(task.summary_ref for task in tasks)) if ref}):
            with suppress(StoreError):
                texts[ref] = await self.text(ref)
        return picture.report(texts, datetime.now(UTC))

    async def brief(self, picture: Picture, id: str) -> str:
        """What the agent of a task was told, or would be told now, as a person reads it."""
        return readable(await self.request(picture, id))

    async def request(self, picture: Picture, id: str) -> Brief:
        """The same as it was asked, or would be."""
        task, inputs = picture.planned[id], picture.inputs(id)
        refs = {*(file.ref for file in task.files), *(input.ref for input in inputs if input.ref is not None)}
        texts = {ref: await self.text(ref) for ref in sorted(refs)}
        decision = picture.tasks[id].approval
        note = decision.note if decision is not None and decision.answer == "approved" else None
        return brief_for(picture.plan, task, inputs, texts, note)

    async def text(self, ref: str) -> str:
        """A text in the store."""
        return (await self._store.artifact(ref)).decode()

    async def holds(self, ref: str) -> bool:
        """Whether the store has this content, unchanged. Whoever asks means to use it: prune leaves it now."""
        return await self._store.take_over(ref)

    async def keep(self, text: str) -> str:
        """Keep a text that is to be taken over; its reference."""
        return await self._store.put_artifact(text.encode())

    async def events(self, run: str, *, follow: bool = False) -> AsyncIterator[Event]:
        """The events of a run in order; with `follow` until it has ended."""
        async for logged in self.log(run, follow=follow):
            yield logged.event

    async def log(self, run: str, *, follow: bool = False) -> AsyncIterator[Logged]:
        """The same as its log has them. Who does not follow hears also what is not written yet."""
        seen = 0
        async for picture in self.watch(run):
            # Asked before the store is read: what the run has no more by then is there.
            unwritten = () if follow or picture.ended else await self._unwritten(run)
            while segment := await self._store.segment(run, after=seen):
                for logged in segment:
                    seen = logged.event.number
                    yield logged
            if not follow:
                manifest = await self._store.manifest(run) or {}
                for event in unwritten:
                    if event.number > seen:
                        yield Logged(run, event, correlation=str(manifest.get("family") or run))
                return

    def all_events(
        self, wanted: Wanted = EVERYTHING, after: Offsets = NOWHERE, *, follow: bool = False
    ) -> AsyncGenerator[Batch, None]:
        """The events of all runs, as they are written, from where somebody was; with `follow` for as long as wanted."""
        return EventLog(self._store, wanted, after).batches(follow=follow)

    async def bookmark(self, name: str) -> Bookmark:
        """The place of a reader with a name, who reads from now on in this process."""
        return await Bookmark.take(self._store, name)

    async def readers(self) -> list[ReaderPlace]:
        """All readers with a name, and how far each has come."""
        return await all_places(self._store)

    async def forget_reader(self, name: str) -> bool:
        """Let a reader begin anew, if there ever is one of this name again; whether there was."""
        there = name in await self._store.readers()
        if there:
            await self._store.remove_reader(name)
        return there

    async def until_closed(self, run: str, patience: timedelta) -> None:
        """Wait until Temporal has closed the run, too: its last word in the event log comes a moment before."""
        with suppress(WorkflowFailureError, TimeoutError, RPCError):
            async with asyncio.timeout(patience.total_seconds()):
                await self._handle(run).result()

    async def anchorage(self, run: str) -> Anchorage:
        """The head of the audit trail as Temporal has it. A run that goes on is asked itself: its memo is behind."""
        if self._client is None:
            return Anchorage(None, "no server answers", answered=False)
        try:
            found = await self._handle(run).describe(rpc_timeout=QUERY_TIMEOUT)
        except RPCError as error:
            if is_unknown(error):
                return Anchorage(None, "Temporal does not have this run any more", closed=True)
            return Anchorage(None, "no server answers", answered=False)
        going = found.status is WorkflowExecutionStatus.RUNNING
        view = await self._view(run) if going else None
        head: Head | None = view.audit if view is not None else None
        if head is None:
            head = await found.memo_value("audit", None, type_hint=Head)
        if head is None:
            return Anchorage(None, "Temporal has no head of it (yet)", closed=not going)
        return Anchorage(Anchor(head, final=found.status in TOLD_ITS_END), closed=not going)

    # How it is done

    @property
    def _temporal(self) -> Client:
        if self._client is None:
            raise RuntimeError("this needs a server")
        return self._client

    def _handle(self, run: str) -> WorkflowHandle[SupervisorWorkflow, RunSummary]:
        return self._temporal.get_workflow_handle_for(SupervisorWorkflow.run, run)

    async def _begin_picture(self, run: str) -> Picture:
        manifest = await self._store.manifest(run)
        if manifest is None:
            raise UnknownRun(f"there is no run {run!r} here")
        plan = Plan.model_validate_json(await self._store.artifact(manifest["plan_ref"]))
        estimate = await self._store.estimate(run)
        before = Decimal(manifest.get("before_usd", 0))
        simulated = bool(manifest["simulated"])
        picture = Picture(
            run, plan, simulated=simulated, provider=manifest.get("provider"), estimate=estimate, before=before
        )
        picture.plan_ref = str(manifest["plan_ref"])
        return picture

    async def _is_just_submitted(self, run: str) -> bool:
        """Whether Temporal may not have heard of the run yet: it is written down before it is started."""
        manifest = await self._store.manifest(run)
        return manifest is not None and manifest["submitted"] > timestamp(datetime.now(UTC) - JUST_SUBMITTED)

    async def _catch_up(self, picture: Picture) -> None:
        """Take in what is written. A run that a bug of ours ended has not told what the calls it cut have cost."""
        async for event in self._store.events(picture.run, after=picture.last):
            await plan_changes.tell(self._store, picture, [event])
        if picture.ended and not picture.settled:
            picture.hear_the_ledger(await self._untold(picture))

    async def _look(self, picture: Picture, boards: Boards, *, ask_temporal: bool) -> None:
        """One look of a watcher. A store that is away for a moment ends no watch."""
        try:
            await self._catch_up(picture)
            if ask_temporal and not picture.ended:
                await self._notice_an_outside_end(picture)
            if not picture.ended:
                await boards.tell(picture)
            self._unanswered.discard("The store")
        except StoreUnavailable:
            self._unanswered.add("The store")

    async def _unwritten(self, run: str) -> tuple[Event, ...]:
        view = await self._view(run)
        return () if view is None else view.events

    async def _view(self, run: str) -> RunView | None:
        """What the supervisor says of itself; None when no worker answers."""
        if self._client is None:
            return None
        try:
            return await self._handle(run).query(SupervisorWorkflow.view, rpc_timeout=QUERY_TIMEOUT)
        except (RPCError, WorkflowQueryFailedError):
            return None

    async def _add_unwritten(self, picture: Picture) -> None:
        unwritten = await self._unwritten(picture.run)
        await self._catch_up(picture)  # what was written meanwhile comes first: numbers have no gaps
        if unwritten and unwritten[0].number <= picture.last + 1:
            await plan_changes.tell(self._store, picture, unwritten)

    async def _notice_an_outside_end(self, picture: Picture) -> None:
        if self._client is None:
            return
        try:
            description = await self._handle(picture.run).describe(rpc_timeout=QUERY_TIMEOUT)
            self._unanswered.discard("Temporal")
        except RPCError as error:
            picture.stall = None  # what cannot be asked for may have been mended
            if not is_unknown(error):
                self._unanswered.add("Temporal")
            elif not await self._is_just_submitted(picture.run):
                reason = (
                    "Temporal does not know this run: it was never started, its history has expired, "
                    "or it was submitted to another Temporal"
                )
                picture.close_from_outside(RunStatus.FAILED, None, reason, await self._untold(picture))
            return
        if description.status is None or description.status is WorkflowExecutionStatus.RUNNING:
            await self._notice_a_stall(picture, description)
            return
        await self._catch_up(picture)  # its own last word, if it had one
        if not picture.ended and description.status in ENDED_FROM_OUTSIDE:
            await self._add_unwritten(picture)  # Temporal still tells what it had not written when it was ended
            status, reason = ENDED_FROM_OUTSIDE[description.status]
            if description.status is WorkflowExecutionStatus.TERMINATED:
                status, reason = await self._terminated(picture.run)
            picture.close_from_outside(status, description.close_time, reason, await self._untold(picture))

    async def _untold(self, picture: Picture) -> dict[str, Account]:
        """What the ledger has of tasks that could not tell it: nobody else knows of calls that were under way."""
        return await self.books.accounts(picture.run, picture.untold)

    async def _terminated(self, run: str) -> tuple[RunStatus, str]:
        """Who terminated a run, and what for: a person may have meant it, the server never does."""
        status, reason = ENDED_FROM_OUTSIDE[WorkflowExecutionStatus.TERMINATED]
        last = WorkflowHistoryEventFilterType.CLOSE_EVENT
        with suppress(RPCError):
            async for event in self._handle(run).fetch_history_events(
                event_filter_type=last, rpc_timeout=QUERY_TIMEOUT
            ):
                told = event.workflow_execution_terminated_event_attributes
                if told.identity == SERVER_ITSELF:
                    status, reason = RunStatus.FAILED, "Temporal itself terminated the run"
                return status, f"{reason}: {told.reason[:REASON_LIMIT]}" if told.reason else reason
        return status, reason

    async def _notice_a_stall(self, picture: Picture, description: WorkflowExecutionDescription) -> None:
        now = datetime.now(UTC)
        if is_quiet(picture, now):
            await Boards(self._store).tell(picture)  # a worker that is heard of is at work
        picture.stall = await find_stall(self._temporal, description, picture, now)
