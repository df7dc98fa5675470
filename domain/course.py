"""The legal steps of a running plan.

A step takes a progress, something that happened and the time, and gives the next progress with its events.
Nothing here scans the plan: a step touches the task it is about and the tasks that wait for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal

from pydantic import JsonValue

from domain import barriers, places, purse, settling, timing
from domain.chart import Chart
from domain.events import EventType, timestamp
from domain.inputs import input_of
from domain.models import (
    Account,
    Answered,
    Failed,
    Input,
    Outcome,
    Parked,
    RunStatus,
    Stopped,
    TaskError,
    TaskStatus,
    Try,
    Usage,
)
from domain.prices import NOTHING
from domain.progress import Census, Ended, Ordered, Outline, OutlineTask, Owed, Progress, Waiting
from domain.reuse import Kept
from domain.step import Draft, Step

REFUSED_AT_FIRST = {"key": "KeyRefused", "model": "ModelUnknown"}
"""What a wall is called that is none: the mistake was there before the first answer."""

NOTHING_KEPT: Mapping[str, Kept] = {}


class Course:
    """The legal steps of one plan."""

    def __init__(self, outline: Outline, *, before_0_4: bool = False) -> None:
        self.chart = Chart(outline, before_0_4=before_0_4)

    def task(self, id: str) -> OutlineTask:
        """The outline of one task."""
        return self.chart.tasks[id]

    def rank(self, progress: Progress, id: str) -> int:
        """The place of a task in the order among those that could start."""
        return self.chart.order(progress.started).rank[id]

    def inputs(self, progress: Progress, id: str) -> tuple[Input, ...]:
        """What each need of a task has come to."""
        task = self.task(id)
        return tuple(input_of(need, progress.ended[need], as_summary=need in task.summaries) for need in task.needs)

    # Steps

    def begin(self, now: datetime, kept: Mapping[str, Kept] = NOTHING_KEPT, before: Decimal = NOTHING) -> Step:
        """The first step: every task is known, what is kept of an earlier run has ended, who lacks nothing is ready.

        `before` is what the runs have spent that this one goes on from.
        """
        outline = self.chart.outline
        draft = Draft(Progress(started=now, before=before), now)
        draft.tell(EventType.RUN_SUBMITTED)
        draft.tell(
            EventType.RUN_STARTED,
            tasks=len(outline.tasks),
            max_concurrency=outline.max_concurrency,
            mode=outline.mode.value,
        )
        for task in outline.tasks:
            draft.tell(EventType.TASK_CREATED, task.id, agent=task.agent)
        for id in kept:
            settling.take_over(draft, id, kept[id])
        for task in outline.tasks:
            if task.id in draft.ended:
                continue
            if open_needs := sum(need not in draft.ended for need in task.needs):
                draft.unmet[task.id] = open_needs
            else:
                settling.reopen(self.chart, draft, [task.id])
        return draft.done()

    def launch(self, progress: Progress, now: datetime) -> Step:
        """Start the first ready tasks that have a place and an instance of their agent, and no wall before them."""
        if progress.paused or progress.cancelled or progress.late or progress.broke:
            return Step(progress)
        draft = Draft(progress, now)
        starts, held_back = places.fill(self.chart, draft)
        if purse.is_broke(self.chart, draft):
            purse.stop(self.chart, draft)
        self._tell_of_rest(draft)
        return draft.done(starts, held_back=held_back)

    def result(self, progress: Progress, id: str, outcome: Outcome, now: datetime) -> Step:
        """A task at work has ended its work: with an answer, a failure, or a reason to wait outside."""
        if id not in progress.active:
            return Step(progress)  # told twice, as after a continue-as-new: the first word stands
        draft = Draft(progress, now)
        del draft.active[id]
        ordered = draft.stopping.pop(id, None)
        purse.settle(self.chart, draft, id, outcome)
        spent = _count_tries(draft, id, outcome)
        match outcome:
            case Answered():
                draft.usage += outcome.spent
                draft.proven[self.chart.model(id)] = None
                barriers.passed(self.chart, draft, id)
                self._end(draft, id, _succeeded(outcome), **_answer(outcome, spent))
            case Failed():
                draft.usage += outcome.usage
                if outcome.asked:
                    barriers.passed(self.chart, draft, id)
                if ordered is not None:
                    self._end_as_ordered(draft, id, ordered, outcome, spent)
                else:
                    end = Ended(status=outcome.status, why=outcome.error.message, cause=id)
                    self._end(draft, id, end, **_failure(outcome, spent))
            case Stopped():
                end = ordered or Ended(status=TaskStatus.CANCELLED, why=outcome.why, cause=id)
                self._end_as_ordered(draft, id, end, None, spent)
            case Parked() if ordered is not None or draft.cancelled:
                end = ordered or Ended(status=TaskStatus.CANCELLED, why="the run was cancelled", cause=id)
                self._end_as_ordered(draft, id, end, None, spent)
            case Parked():
                self._park(draft, id, outcome, spent)
        return draft.done()

    def settled(self, progress: Progress, owed: Owed, account: Account, now: datetime) -> Step:
        """The ledger was asked what a task has cost that could not tell."""
        draft = Draft(progress, now)
        purse.settle_from_ledger(self.chart, draft, owed, account)
        return draft.done()

    def wake(self, progress: Progress, now: datetime) -> Step:
        """Do what waited for a time that has come."""
        if self.is_over(progress) or not timing.is_due(self.chart, progress, now):
            return Step(progress)
        draft = Draft(progress, now)
        timing.pass_time(self.chart, draft)
        return draft.done()

    def next_wake(self, progress: Progress) -> datetime | None:
        """The earliest time that something waits for."""
        return timing.next_time(self.chart, progress)

    def cancel(self, progress: Progress, now: datetime) -> Step:
        """Nothing new starts, and what waits ends here; tasks at work end by their own word."""
        draft = Draft(progress, now)
        draft.cancelled = True
        timing.close_everything(draft)
        for task in self.chart.outline.tasks:
            if task.id in draft.ended or task.id in draft.active:
                continue
            status = TaskStatus.CANCELLED if task.id in draft.begun else TaskStatus.NOT_STARTED
            reason = "the run was cancelled"
            draft.ended[task.id] = Ended(status=status, why=reason)
            draft.close_account(task.id)
            draft.tell(EventType.TASK_SKIPPED, task.id, status=status, reason=reason, cause=None)
        return draft.done()

    def finish(self, progress: Progress, now: datetime) -> Step:
        """The last step: every task has ended."""
        draft = Draft(progress, now)
        census = self.census(progress).model_dump()
        draft.tell(EventType.RUN_COMPLETED, status=self.status(progress), census=census, peak=progress.peak)
        return draft.done()

    def break_off(self, progress: Progress, now: datetime, error: str) -> Step:
        """The last step after a bug of ours: tasks stay as they were last known."""
        draft = Draft(progress, now)
        bug: dict[str, JsonValue] = {"type": "WorkflowBug", "message": error[:500]}
        draft.tell(EventType.RUN_COMPLETED, status=RunStatus.FAILED, error=bug)
        return draft.done()

    # What can be read off

    def is_over(self, progress: Progress) -> bool:
        """Whether every task has ended."""
        return len(progress.ended) == len(self.chart.tasks)

    def census(self, progress: Progress) -> Census:
        """The count of tasks by state."""
        counts = Counter(end.status.value.lower() for end in progress.ended.values())
        counts["running"] = len(progress.active)
        counts["waiting"] = len(progress.parked)
        counts["ready"] = sum(len(line) for line in progress.ready.values())
        counts["pending"] = len(progress.unmet)
        return Census(total=len(self.chart.tasks), **counts)

    def status(self, progress: Progress) -> RunStatus:
        """The state of the run, going or ended."""
        if not self.is_over(progress):
            return self._going(progress)
        if progress.cancelled:
            return RunStatus.CANCELLED
        everything = all(end.status is TaskStatus.SUCCEEDED for end in progress.ended.values())
        if progress.broke:
            return RunStatus.BUDGET_STOPPED
        if progress.late and not everything:
            return RunStatus.DEADLINE_PASSED
        finals = [progress.ended[id] for id in self.chart.finals]
        succeeded = sum(end.status is TaskStatus.SUCCEEDED for end in finals)
        if succeeded < len(finals):
            return RunStatus.PARTIAL if succeeded else RunStatus.FAILED
        return RunStatus.COMPLETED if everything else RunStatus.DEGRADED

    # How a step is made

    def _going(self, progress: Progress) -> RunStatus:
        if progress.paused:
            return RunStatus.PAUSED
        if progress.active or places.can_start(self.chart, progress):
            return RunStatus.RUNNING
        return RunStatus.WAITING if progress.parked or progress.ready else RunStatus.RUNNING

    def _tell_of_rest(self, draft: Draft) -> None:
        """Say so, once, when nothing is at work and something is awaited. Runs before 0.3.0 did not."""
        if draft.started is None:
            return
        if draft.active:
            draft.resting = False
            return
        progress = draft.done().progress
        if not draft.resting and self._going(progress) is RunStatus.WAITING:
            draft.resting = True
            until = timing.next_time(self.chart, progress)
            draft.tell(EventType.RUN_WAITING, until=timestamp(until) if until else None)

    def _end(self, draft: Draft, id: str, end: Ended, **data: JsonValue) -> None:
        draft.walls.pop(id, None)
        draft.probes_no_more(id)
        settling.end(self.chart, draft, id, end, **data)

    def _end_as_ordered(self, draft: Draft, id: str, end: Ended, failed: Failed | None, spent: Usage) -> None:
        """End a task that was stopped at work: as whoever stopped it said, with what is known of its last attempt."""
        who: dict[str, JsonValue] = {}
        if isinstance(end, Ordered):
            who = {"by": end.by, "note": end.note} if end.by is not None else {}
            end = Ended(status=end.status, why=end.why, cause=end.cause)
        if end.status not in settling.SELF:
            usage = failed.usage if failed is not None else Usage()
            return self._end(draft, id, end, **who, tokens=usage.model_dump(), unsettled=spent.model_dump())
        kind = timing.TIMED_OUT if end.status is TaskStatus.TIMED_OUT else "Stopped"
        attempt = failed.error.attempt if failed else draft.used.get(id, 0)
        error = TaskError(type=kind, message=end.why or "stopped", attempt=attempt)
        last = failed or Failed(error=error)
        return self._end(draft, id, end, **_failure(last.model_copy(update={"error": error}), spent))

    def _park(self, draft: Draft, id: str, parked: Parked, spent: Usage) -> None:
        if parked.why == "budget" and not parked.tries:
            # What was set aside covers one call at least: there is nothing to wait for, whatever it is that is wrong.
            error = TaskError(type="NotCovered", message=parked.what, attempt=draft.used.get(id, 0) + 1)
            end = Ended(status=TaskStatus.FAILED, why=parked.what, cause=id)
            return self._end(draft, id, end, **_failure(Failed(error=error), spent))
        given_back = parked.why == "budget" or (parked.why == "worker" and parked.until is None)
        if given_back or (parked.why == "pause" and not draft.paused):
            return settling.make_ready(self.chart, draft, id)
        if parked.why == "batch":
            draft.wave.pop(id, None)  # it may take a day: the next wave does not wait for it
        if parked.wall is None:
            if parked.why == "wall" and self.chart.outline.counted:
                # On the way to its summary: it says nothing of the wall that it may be sent to.
                draft.probes_no_more(id)
                draft.wave.pop(id, None)
            return settling.park(draft, id, _own_wait(draft, id, parked))
        if barriers.is_error(self.chart, draft, id, parked.wall):
            error = TaskError(
                type=REFUSED_AT_FIRST[parked.wall], message=parked.what, attempt=draft.used.get(id, 0) + 1
            )
            end = Ended(status=TaskStatus.FAILED, why=parked.what, cause=id)
            return self._end(draft, id, end, **_failure(Failed(error=error), spent))
        return barriers.meet(self.chart, draft, id, parked)


def _own_wait(draft: Draft, id: str, parked: Parked) -> Waiting:
    """A wait that concerns one task alone."""
    until = parked.until
    if parked.why == "wall" and until is None:
        until = draft.now + min(barriers.PROBE_FIRST * 2 ** draft.walls.get(id, 0), barriers.PROBE_LAST)
        draft.walls[id] = min(draft.walls.get(id, 0) + 1, 10)
    return Waiting(why=parked.why, what=parked.what, since=draft.now, until=until)


def _count_tries(draft: Draft, id: str, outcome: Outcome) -> Usage:
    """Tell of the attempts in vain before this outcome, each with its cost; what the last one may have cost at most."""
    tries: tuple[Try, ...] = () if isinstance(outcome, Stopped) else outcome.tries
    spent = outcome.unsettled if isinstance(outcome, Failed) else Usage()
    for attempt in tries:
        draft.usage += attempt.usage
        draft.tell(
            EventType.TASK_RETRIED,
            id,
            attempt=attempt.attempt,
            error=attempt.error.model_dump(),
            at=timestamp(attempt.at),
            tokens=attempt.usage.model_dump(),
            unsettled=attempt.unsettled.model_dump(),
            **({"model": attempt.model} if attempt.model is not None else {}),
        )
    if isinstance(outcome, Parked) and tries:
        draft.used[id] = max(draft.used.get(id, 0), *(attempt.attempt for attempt in tries))
    return spent


def _succeeded(answer: Answered) -> Ended:
    """What dependants need of an answer: its summary only where it is not the answer itself."""
    end = Ended(status=TaskStatus.SUCCEEDED, ref=answer.output_ref, size=answer.output_bytes)
    if answer.summary_ref in (None, answer.output_ref):
        return end
    return end.model_copy(update={"summary_ref": answer.summary_ref, "summary_size": answer.summary_bytes})


def _answer(answer: Answered, unsettled: Usage) -> dict[str, JsonValue]:
    return {
        "attempts": answer.attempts,
        "tokens": answer.spent.model_dump(),
        "unsettled": unsettled.model_dump(),
        "output_ref": answer.output_ref,
        "output_bytes": answer.output_bytes,
        **_summary(answer),
        **_waited(answer),
        **({"batched": True} if answer.batched else {}),
    }


def _summary(answer: Answered) -> dict[str, JsonValue]:
    """The summary, when one was asked for; and, of the tokens, those of calls beside that of the agent."""
    told: dict[str, JsonValue] = {}
    if answer.summary_ref is not None:
        told |= {"summary_ref": answer.summary_ref, "summary_bytes": answer.summary_bytes}
    if answer.aside:
        told |= {"aside": [{"model": call.model, "tokens": call.usage.model_dump()} for call in answer.aside]}
    return told


def _failure(failure: Failed, unsettled: Usage) -> dict[str, JsonValue]:
    return {
        "attempts": failure.error.attempt,
        "tokens": failure.usage.model_dump(),
        "unsettled": unsettled.model_dump(),
        "output_ref": failure.output_ref,
        "output_bytes": failure.output_bytes,
        "error": failure.error.model_dump(),
        **_waited(failure),
        **({"batched": True} if failure.batched else {}),
    }


def _waited(outcome: Answered | Failed) -> dict[str, JsonValue]:
    """The wait for quota, when there was one."""
    return {"waited_s": round(outcome.waited_s, 3)} if outcome.waited_s > 0 else {}
