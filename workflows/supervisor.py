"""One run: start what may start, gather what ended, report the truth."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import datetime
from typing import Any

from temporalio import workflow
from temporalio.common import VersioningBehavior
from temporalio.exceptions import ApplicationError, CancelledError, is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    from activities.contract import CLOSE_RUN, MESSAGE_LIMIT, CloseReply, CloseRequest, control_queue
    from domain import carrying, large, purse
    from domain.amendments import Amendment
    from domain.cancelling import canceller
    from domain.course import Course
    from domain.era import Era
    from domain.growths import Growth
    from domain.leaflet import task_details
    from domain.models import Account, Outcome, RunStatus
    from domain.outlook import waits_of
    from domain.progress import Owed, Progress
    from domain.requests import Make, Refused, Requests, once
    from domain.runs import RunInput, RunSummary, RunView, TaskInput
    from domain.steering import Steered
    from domain.step import Step
    from workflows import policies
    from workflows.alarm import Alarm
    from workflows.children import Children
    from workflows.growing import Growths
    from workflows.helm import Helm
    from workflows.journal import Journal
    from workflows.settlements import Settlements
    from workflows.window import Window

SINCE_0_4 = "steps of 0.4.0"
"""The patch since which a retry, a wall and a skip are those of 0.4.0: other steps would give other commands."""

SINCE_0_6 = "steps of 0.6.0"
"""The patch since which the money of a task in a batch is kept through a stop, and parted when its needs change.

And since which a run starts no more tasks than the server keeps up with."""

SINCE_0_7 = "steps of 0.7.0"
"""The patch since which a cancel does not interrupt the writing of events."""

SINCE_0_8 = "steps of 0.8.0"
"""The patch since which a plan inside the plan keeps its places and its money between its steps, until it has ended."""

Fact = Callable[[Progress, datetime], Step]
"""Something that happened, as the step it makes of any progress."""


@workflow.defn(versioning_behavior=VersioningBehavior.PINNED)
class SupervisorWorkflow(Helm):
    """One run of a plan.

    Decisions are pure steps in `domain/course.py`. This class turns facts into steps, and steps into commands: children
    to start, events to write, one alarm to wake up for. Every long wait is here; a child exists only while its task
    works.
    """

    @workflow.init
    def __init__(self, input: RunInput) -> None:
        self._input = input
        self._run = workflow.info().workflow_id
        self._course = Course(
            input.outline,
            plan_ref=input.plan_ref,
            era=Era(
                before_0_4=not workflow.patched(SINCE_0_4),
                before_0_6=not workflow.patched(SINCE_0_6),
                before_0_8=not workflow.patched(SINCE_0_8),
            ),
        )
        self.requests = Requests(self._course.chart)
        self._progress = carrying.unpacked(input.outline, input.progress) or Progress()
        self._ended_before = len(self._progress.ended)
        self._facts: deque[Fact] = deque()
        self._children = Children(self._run, input.in_flight, self._hear)
        self._settlements = Settlements(self._run, self._hear_cost)
        self._growths = Growths(self._run, self._hear_growth)
        self._alarm = Alarm()
        before_0_7 = not workflow.patched(SINCE_0_7)
        self._journal = Journal(self._run, on_written=self._alarm.ring, head=input.audit, before_0_7=before_0_7)
        self._window = Window(self._run, input, self._course, self._progress)
        self._steady = not self._course.chart.era.before_0_6
        self._held_back = False
        self._finished = False

    # The story

    @workflow.run
    async def run(self, input: RunInput) -> RunSummary:
        """Run the plan to its end. A cancel and a bug both stop the children before the run closes."""
        self._children.attach(stopping=self._progress.stopping)
        try:
            summary = await self._story_or_cancel()
        except Exception as bug:  # the one boundary: a plain exception would leave the run RUNNING for ever
            await _to_its_end(self._close_after_bug(bug))
            message = f"bug in workflow code: {bug!r}"[:MESSAGE_LIMIT]
            raise ApplicationError(message, type="WorkflowBug", non_retryable=True) from bug
        match summary.status:
            case RunStatus.CANCELLED:
                raise CancelledError("the run was cancelled")
            case RunStatus.FAILED:
                raise ApplicationError("no final task succeeded", summary, type="RunFailed", non_retryable=True)
        return summary

    async def _story_or_cancel(self) -> RunSummary:
        try:
            return await self._story()
        except (Exception, asyncio.CancelledError) as error:
            dropped = isinstance(error, asyncio.CancelledError) and workflow.cancellation_reason() is None
            if dropped or not is_cancelled_exception(error):
                raise  # a worker that drops the run from its cache cancels what it holds: that is no cancel of the run
            return await self._close_after_cancel()

    async def _story(self) -> RunSummary:
        self._begin()
        while True:
            self._apply_facts()
            self._take(self._course.wake(self._progress, workflow.now()))
            self._settlements.ask(self._progress.owing, over=self._course.is_over(self._progress))
            self._growths.ask(self._course.chart, self._progress)
            if self._course.is_over(self._progress):
                return await self._close()
            if workflow.cancellation_reason() is not None:
                await asyncio.sleep(0)  # the cancel came together with what woke us, and is raised here
            if self._must_continue_as_new():
                await self._continue_as_new_if_nothing_came()
            else:
                self._launch()
            self._write_events()
            await self._wait_for_a_fact_or_a_time()

    def _begin(self) -> None:
        """Take the first step, unless it was taken: an update that came with the start is heard before the story."""
        if self._input.progress is None and self._progress.started is None:
            self._take(self._first_step())

    def _first_step(self) -> Step:
        given = self._input
        return self._course.begin(workflow.now(), given.kept, given.before, given.capped)

    def _apply_facts(self) -> None:
        while self._facts:
            fact = self._facts.popleft()
            self._take(fact(self._progress, workflow.now()))

    def _take(self, step: Step) -> None:
        self._progress = step.progress
        self._journal.note(step.events)
        for id in step.stops:
            self._children.stop_one(id)
        if step.adopts is not None:
            self._adopt(step.adopts)

    def _adopt(self, amendment: Amendment) -> None:
        """Go on with another plan: what is started from now on is started from it, and it goes along to new histories.

        The window looks at the course, which is the same one. A run that has become large gets short histories like one
        that was submitted large.
        """
        self._course.adopt(amendment)
        self.requests = Requests(self._course.chart)
        after = self._input.continue_after or large.history_of(len(amendment.outline.tasks))
        adopted = {"plan_ref": amendment.plan_ref, "outline": amendment.outline, "continue_after": after}
        self._input = self._input.model_copy(update=adopted)

    def _launch(self) -> None:
        """Start what may start; what the server or one message cannot carry yet goes on when starts are confirmed."""
        unconfirmed = self._children.unconfirmed if self._steady else None
        step = self._course.launch(self._progress, workflow.now(), unconfirmed)
        self._take(step)
        self._held_back = step.held_back
        for id in step.starts:
            task = self._course.task(id)
            self._children.start(
                TaskInput(
                    run=self._run,
                    chain=workflow.info().first_execution_run_id,
                    task=id,
                    agent=task.agent,
                    plan_ref=self._input.plan_ref,
                    inputs=self._course.inputs(self._progress, id),
                    timeout=task.timeout,
                    attempts=purse.attempts(self._course.chart, self._progress, id),
                    used=self._progress.used.get(id, 0),
                    step=purse.step_of(self._progress, id),
                    note=self._progress.notes.get(id),
                    priority=task.priority,
                    rank=self._course.rank(self._progress, id),
                    probe=any(wall.probe == id for wall in self._progress.barriers.values()),
                    cap=purse.cap(self._course.chart, self._progress, id),
                    region=self._input.outline.regions.get(task.agent),
                    calls=task.calls,
                ),
                details=task_details(self._run, task, simulated=self._input.simulated),
            )

    def _write_events(self) -> None:
        """Write a batch when it is due, and show how far the run has come."""
        now = workflow.now()
        if self._journal.write_if_due(now):
            self._window.refresh(self._progress, now, self._journal.head)
        else:
            self._window.look(self._progress, now)

    async def _wait_for_a_fact_or_a_time(self) -> None:
        self._alarm.set(
            (self._course.next_wake(self._progress), "until the first wait of a task ends"),
            (self._journal.due, "until the next events are written"),
        )
        confirmed = self._confirmed_enough()
        await workflow.wait_condition(lambda: bool(self._facts) or self._alarm.rings or confirmed())
        self._alarm.rings = False

    def _confirmed_enough(self) -> Callable[[], bool]:
        """Whether what waits for confirmed starts may go on: a new history needs all of them, further starts one."""
        if self._must_continue_as_new() or (self._held_back and not self._steady):
            return lambda: self._children.confirmed
        under_way = self._children.unconfirmed
        return lambda: self._held_back and self._children.unconfirmed < under_way

    def _hear_cost(self, owed: Owed, account: Account) -> None:
        self._facts.append(lambda progress, now: self._course.settled(progress, owed, account, now))

    def _hear_growth(self, task: str, growth: Growth) -> None:
        self._facts.append(lambda progress, now: self._course.grown(progress, task, growth, now))

    def _hear(self, task: str, outcome: Outcome) -> None:
        self._facts.append(lambda progress, now: self._course.result(progress, task, outcome, now))

    # Ends

    def _must_continue_as_new(self) -> bool:
        ended_here = len(self._progress.ended) - self._ended_before
        asked = self._input.continue_after is not None and ended_here >= self._input.continue_after
        return asked or workflow.info().is_continue_as_new_suggested()

    async def _continue_as_new_if_nothing_came(self) -> None:
        """Go on with a fresh history; tasks in flight are attached to by the next run.

        Only when every child is known to the server, every event is written, every handler has finished and no fact
        has come meanwhile: nothing may be lost on the way. Until then nothing new is started.
        """
        if not self._children.confirmed:
            return
        await self._journal.write_all()
        await workflow.wait_condition(workflow.all_handlers_finished)
        if self._facts:
            return
        head, in_flight = self._journal.head, self._children.in_flight
        progress = carrying.packed(self._input.outline, self._progress)
        carried: dict[str, Any] = {"progress": progress, "in_flight": in_flight, "kept": {}, "audit": head}
        workflow.continue_as_new(
            self._input.model_copy(update=carried),
            task_timeout=large.patience_with(len(self._input.outline.tasks)),  # it may have grown
            initial_versioning_behavior=self._next_version(),
            **self._window.carried(self._progress, head),
        )

    def _next_version(self) -> workflow.ContinueAsNewVersioningBehavior | None:
        """Where versions are used, a fresh history may begin on the current one: it has nothing to replay."""
        versioned = workflow.info().get_current_deployment_version() is not None
        return workflow.ContinueAsNewVersioningBehavior.AUTO_UPGRADE if versioned else None

    async def _close(self) -> RunSummary:
        """Write the last events and the report; the summary says where it is. After a cancel it is done again."""
        while self._progress.owing:
            self._settlements.ask(self._progress.owing, over=True)
            await workflow.wait_condition(lambda: bool(self._facts))
            self._apply_facts()
        if not self._finished:
            self._finished = True
            by = canceller(workflow.cancellation_reason())
            self._take(self._course.finish(self._progress, workflow.now(), by))
        self._window.tell(self._progress)
        await self._journal.write_all()
        reply = await workflow.execute_activity(
            CLOSE_RUN,
            CloseRequest(run=self._run, plan_ref=self._input.plan_ref, simulated=self._input.simulated),
            result_type=CloseReply,
            task_queue=control_queue(workflow.info().task_queue),
            start_to_close_timeout=policies.REPORT_TIMEOUT,
            heartbeat_timeout=policies.HEARTBEAT_TIMEOUT,
            retry_policy=policies.CONTROL_RETRY,
            summary="the report",
        )
        summary = RunSummary(
            status=self._course.status(self._progress),
            census=self._course.census(self._progress),
            tokens=self._progress.usage,
            cost_usd=reply.cost_usd,
            report_ref=reply.report_ref,
            audit=self._journal.head,
        )
        self._window.close(self._progress, summary)
        await workflow.wait_condition(workflow.all_handlers_finished)
        return summary

    async def _close_after_cancel(self) -> RunSummary:
        """Stop what is at work, keep what has ended, and say so. A run whose last task had ended is not cancelled."""
        self._apply_facts()
        if not self._course.is_over(self._progress):
            by = canceller(workflow.cancellation_reason())
            self._take(self._course.cancel(self._progress, workflow.now(), by))
            self._window.tell(self._progress)
            await self._children.stop()
            self._apply_facts()
        return await self._close()

    async def _close_after_bug(self, error: BaseException) -> None:
        """Stop the children, which would go on paying, and leave the reason in the event log."""
        self._window.tell(self._progress, bug=repr(error))
        await self._children.stop()  # whatever else goes wrong here, they must not go on
        self._take(self._course.break_off(self._progress, workflow.now(), repr(error)))
        await self._journal.write_all()
        self._window.close_after_bug(self._progress, repr(error), self._journal.head)

    # What people may ask and do

    @workflow.query
    def view(self) -> RunView:
        """The state now, why tasks wait, and the events that are not in the store yet."""
        return RunView(
            status=self._course.status(self._progress),
            census=self._course.census(self._progress),
            events=self._journal.unwritten,
            waits=waits_of(self._course.chart, self._progress),
            spent_usd=self._progress.spent,
            reserved_usd=purse.reserved(self._progress),
            audit=self._journal.head,
        )

    def steer(self, make: Make) -> Steered:
        """Make a change that was asked for, at once, so that whoever asks next sees it. The same one is made once."""
        self._begin()
        was_paused = self._progress.paused
        step = self._tried(self._progress, make)
        self._take(step)
        if self._progress.paused is not was_paused:
            workflow.upsert_memo({"paused": self._progress.paused})  # the door looks here before every call
        self._alarm.ring()
        return step.answer or Steered(done="done")

    def check(self, make: Make) -> None:
        """Refuse what cannot be done: a step is pure, so trying it changes nothing."""
        unbegun = self._input.progress is None and self._progress.started is None
        begun = self._first_step().progress if unbegun else self._progress
        self._tried(begun, make)

    def _tried(self, progress: Progress, make: Make) -> Step:
        """The step that an update asks for. A refusal fails the update and nothing else: a replay skips the check."""
        info = workflow.current_update_info()
        try:
            return once(progress, info.id if info is not None else "", make, workflow.now())
        except Refused as refused:
            raise ApplicationError(str(refused), type="Refused") from None


async def _to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """Do this whole, even when a cancel comes meanwhile."""
    doing = asyncio.create_task(work)
    while not doing.done():
        with suppress(asyncio.CancelledError):
            await asyncio.shield(doing)
    await doing
