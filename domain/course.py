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

from domain import barriers, growths, places, purse, settling, timing, witness
from domain.amending import Unfitting
from domain.amendments import Amendment
from domain.chart import Chart
from domain.era import NOW, Era
from domain.events import EventType, timestamp
from domain.growths import Growth
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
from domain.progress import Census, Ended, Growing, Ordered, Outline, OutlineTask, Owed, Progress, Waiting
from domain.reuse import Kept
from domain.step import Draft, Step

REFUSED_AT_FIRST = {"key": "KeyRefused", "model": "ModelUnknown"}
"""What a wall is called that is none: the mistake was there before the first answer."""

NOTHING_KEPT: Mapping[str, Kept] = {}
NOTHING_SPENT: Mapping[str, Decimal] = {}


class Course:
    """The legal steps of one plan."""

    def __init__(
        self,
        outline: Outline,
        *,
        plan_ref: str = "",
        era: Era = NOW,
    ) -> None:
        self.chart = Chart(outline, plan_ref=plan_ref, era=era)

    def adopt(self, amendment: Amendment) -> None:
        """Go on with another plan: a step has made room for it."""
        self.chart = self.chart.amended(amendment)

    def task(self, id: str) -> OutlineTask:
        """The outline of one task."""
        return self.chart.tasks[id]

    def rank(self, progress: Progress, id: str) -> int:
        """The place of a task in the order among those that could start."""
        return self.chart.order(progress.started).rank[id]

    def inputs(self, progress: Progress, id: str) -> tuple[Input, ...]:
        """What each need of a task has come to."""
        return tuple(input_of(need, progress.ended[need], form) for need, form in self.task(id).forms.items())

    # Steps

    def begin(
        self,
        now: datetime,
        kept: Mapping[str, Kept] = NOTHING_KEPT,
        before: Decimal = NOTHING,
        capped: Mapping[str, Decimal] = NOTHING_SPENT,
    ) -> Step:
        """The first step: every task is known, what is kept of an earlier run has ended, who lacks nothing is ready.

        `before` is what the runs have spent that this one goes on from, and `capped` what of it counts for which cap.
        """
        outline = self.chart.outline
        draft = Draft(Progress(started=now, before=before, capped=dict(capped)), now)
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

    def launch(self, progress: Progress, now: datetime, unconfirmed: int | None = None) -> Step:
        """Start the first ready tasks that have a place and an instance of their agent, and no wall before them.

        Only so many at a time, when it is known how many starts the server has not confirmed yet.
        """
        if progress.paused or progress.cancelled or progress.late or progress.broke:
            return Step(progress)
        draft = Draft(progress, now)
        starts, held_back = places.fill(self.chart, draft, unconfirmed)
        if purse.is_broke(self.chart, draft):
            purse.stop(self.chart, draft)
        self._tell_of_rest(draft)
        return draft.done(starts, held_back=held_back)

    def result(self, progress: Progress, id: str, outcome: Outcome, now: datetime) -> Step:
        """A task at work has ended its work: with an answer, a failure, or a reason to wait outside."""
        if id not in progress.active or id in progress.growing:
            return Step(progress)  # told twice, as after a continue-as-new: the first word stands
        draft = Draft(progress, now)
        del draft.active[id]
        ordered = draft.stopping.pop(id, None)
        purse.settle(self.chart, draft, id, outcome)
        spent = _count_tries(draft, id, outcome)
        witness.hear(self.chart, draft, id, outcome)
        _tell_on_the_way(draft, id, outcome)
        match outcome:
            case Answered():
                self._answered(draft, id, outcome, spent)
            case Failed():
                draft.usage += outcome.spent
                if outcome.asked:
                    barriers.passed(self.chart, draft, id)
                if ordered is not None:
                    self._end_as_ordered(draft, id, ordered, outcome, spent)
                else:
                    end = Ended(status=outcome.status, why=outcome.error.message, cause=id)
                    self._end(draft, id, end, **_failure(outcome, spent))
                    if outcome.error.type == purse.TOO_DEAR and not draft.cancelled:
                        purse.stop_before_plan(self.chart, draft)
            case Stopped():
                end = ordered or Ended(status=TaskStatus.CANCELLED, why=outcome.why, cause=id)
                self._end_as_ordered(draft, id, end, None, spent)
            case Parked() if ordered is not None or draft.cancelled:
                end = ordered or Ended(status=TaskStatus.CANCELLED, why="the run was cancelled", cause=id)
                self._end_as_ordered(draft, id, end, None, spent)
            case Parked():
                self._park(draft, id, outcome, spent)
        return draft.done()

    def grown(self, progress: Progress, id: str, growth: Growth, now: datetime) -> Step:
        """It is known what the answer of a task makes of the plan: the task ends, and the run goes on with that plan.

        An answer that the plan cannot grow by is a failure, and kept for people to read.
        """
        here = id in progress.growing and id in progress.active
        if not here or growths.is_late(self.chart, progress, id, growth):
            return Step(progress)
        draft = Draft(progress, now)
        awaited = draft.growing.pop(id)
        del draft.active[id]
        ordered = draft.stopping.pop(id, None)
        if ordered is not None and not draft.late:  # somebody has stopped it meanwhile: then the plan stays as it is
            self._end_as_ordered(draft, id, ordered, _unused(awaited, ordered), awaited.spent)
            return draft.done()
        try:
            if (wait := growths.question(self.chart, progress, id, growth, now)) is not None:
                draft.growing[id] = _asked_about(awaited, growth)
                draft.approved.pop(id, None)
                settling.ask(draft, id, wait)
                return draft.done()
            chart = growths.take_in(self.chart, draft, id, growth)
        except Unfitting as unfitting:
            status = TaskStatus.TIMED_OUT if draft.late and ordered is not None else TaskStatus.FAILED
            self._end_ungrown(draft, id, awaited, status, str(unfitting))
            return draft.done()
        settling.end(chart, draft, id, _succeeded(awaited.answer), **_answer(awaited.answer, awaited.spent))
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

    def cancel(self, progress: Progress, now: datetime, by: str | None = None) -> Step:
        """Nothing new starts, and what waits ends here; tasks at work end by their own word."""
        draft = Draft(progress, now)
        draft.cancelled = True
        timing.close_everything(draft)
        for id, awaited in [*draft.growing.items()]:  # it has answered, and that is paid: the plan grows no more
            del draft.growing[id]
            draft.active.pop(id, None)  # a person was asked whether it should
            draft.stopping.pop(id, None)
            self._end_ungrown(draft, id, awaited, TaskStatus.CANCELLED, "the run was cancelled")
        for task in self.chart.outline.tasks:
            if task.id in draft.ended or task.id in draft.active:
                continue
            status = TaskStatus.CANCELLED if task.id in draft.begun else TaskStatus.NOT_STARTED
            reason = "the run was cancelled"
            draft.ended[task.id] = Ended(status=status, why=reason)
            draft.close_account(task.id)
            draft.tell(EventType.TASK_SKIPPED, task.id, status=status, reason=reason, cause=None, **_who(by))
        return draft.done()

    def finish(self, progress: Progress, now: datetime, by: str | None = None) -> Step:
        """The last step: every task has ended. `by` is who has cancelled the run, if it was."""
        draft = Draft(progress, now)
        census = self.census(progress).model_dump()
        who = _who(by if progress.cancelled else None)
        draft.tell(EventType.RUN_COMPLETED, status=self.status(progress), census=census, peak=progress.peak, **who)
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

    def plans(self, progress: Progress) -> dict[str, Census]:
        """The same of each plan inside the plan."""
        parts: dict[str, Counter[str]] = {id: Counter() for id in self.chart.outline.parts}
        for id, task in self.chart.tasks.items() if parts else ():
            if task.part is not None:
                parts[task.part][progress.state_of(id)] += 1
        return {id: Census(total=counts.total(), **counts) for id, counts in parts.items()}

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
            return self.chart.at_work
        return RunStatus.WAITING if progress.parked or progress.ready else self.chart.at_work

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

    def _answered(self, draft: Draft, id: str, answer: Answered, spent: Usage) -> None:
        """A task has its answer. One that the plan grows by stays at work until the plan has grown."""
        draft.usage += answer.spent
        draft.proven[self.chart.model(id)] = None
        barriers.passed(self.chart, draft, id)
        if not growths.awaits(self.chart, draft, id):
            self._end(draft, id, _succeeded(answer), **_answer(answer, spent))
        elif draft.cancelled:
            self._end_ungrown(draft, id, growths.begun(answer, spent), TaskStatus.CANCELLED, "the run was cancelled")
        else:
            draft.active[id] = draft.progress.active[id]
            draft.growing[id] = growths.begun(answer, spent)

    def _end_ungrown(self, draft: Draft, id: str, awaited: Growing, status: TaskStatus, why: str) -> None:
        """A task has answered, and the plan does not grow by it: it has not succeeded, so a retry does it again."""
        draft.approved.pop(id, None)  # the word of a person was for this change
        draft.notes.pop(id, None)
        error = TaskError(type="NotGrown", message=why, attempt=awaited.answer.attempts)
        end = Ended(status=status, why=why, cause=id)
        self._end(draft, id, end, **_answer(awaited.answer, awaited.spent), error=error.model_dump())

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
            usage = failed.spent if failed is not None else Usage()
            aside = _aside(failed) if failed is not None else {}
            return self._end(draft, id, end, **who, tokens=usage.model_dump(), unsettled=spent.model_dump(), **aside)
        kind = timing.TIMED_OUT if end.status is TaskStatus.TIMED_OUT else "Stopped"
        attempt = failed.error.attempt if failed else draft.used.get(id, 0)
        error = TaskError(type=kind, message=end.why or "stopped", attempt=attempt)
        last = failed or Failed(error=error)
        return self._end(draft, id, end, **_failure(last.model_copy(update={"error": error}), spent))

    def _park(self, draft: Draft, id: str, parked: Parked, spent: Usage) -> None:
        if parked.why == "budget" and parked.until is not None:
            # Not its own money, and not that of its run: the deployment may spend no more today.
            draft.wave.pop(id, None)
            draft.probes_no_more(id)
            return settling.park(draft, id, _own_wait(draft, id, parked))
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


def _who(by: str | None) -> dict[str, JsonValue]:
    """What an event says of a person who is known."""
    return {"by": by} if by is not None else {}


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
            **({"batched": True} if attempt.batched else {}),
        )
    used = [attempt.attempt for attempt in tries if attempt.used]
    if isinstance(outcome, Parked) and used:
        draft.used[id] = max(draft.used.get(id, 0), *used)
    return spent


def _tell_on_the_way(draft: Draft, id: str, outcome: Outcome) -> None:
    """Tell what was refused to a task, and what was said of its answers."""
    if not isinstance(outcome, Answered | Failed):
        return
    for refused in outcome.refused:
        draft.tell(EventType.RIGHT_REFUSED, id, **refused.model_dump(mode="json"))
    for number, said in enumerate(outcome.reviews, start=1):
        draft.tell(EventType.REVIEW_GIVEN, id, **said.model_dump(), **{"try": number})


def _asked_about(awaited: Growing, growth: Growth) -> Growing:
    """A task whose change of the plan a person is asked about: what was shown, and how it ends when nobody agrees."""
    shown = growth.amendment.plan_ref if growth.amendment is not None else None
    told = _answer(awaited.answer, awaited.spent)
    return awaited.model_copy(update={"asked": shown, "end": _succeeded(awaited.answer), "told": told})


def _unused(awaited: Growing, ordered: Ended) -> Failed:
    """An answer that the plan does not grow by, because its task was stopped: it has cost what it has cost."""
    answer = awaited.answer
    return Failed(
        error=TaskError(type="Stopped", message=ordered.why or "stopped", attempt=answer.attempts),
        usage=answer.usage,
        aside=answer.aside,
        output_ref=answer.output_ref,
        output_bytes=answer.output_bytes,
        batched=answer.batched,
    )


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
    return told | _aside(answer)


def _aside(outcome: Answered | Failed) -> dict[str, JsonValue]:
    """Of the tokens, those of calls beside the last one."""
    calls: list[JsonValue] = [
        {
            "model": call.model,
            "tokens": call.usage.model_dump(),
            **({"batched": True} if call.batched else {}),
        }
        for call in outcome.aside
    ]
    return {"aside": calls} if calls else {}


def _failure(failure: Failed, unsettled: Usage) -> dict[str, JsonValue]:
    return {
        "attempts": failure.error.attempt,
        "tokens": failure.spent.model_dump(),
        "unsettled": unsettled.model_dump(),
        "output_ref": failure.output_ref,
        "output_bytes": failure.output_bytes,
        "error": failure.error.model_dump(),
        **_aside(failure),
        **_waited(failure),
        **({"batched": True} if failure.batched else {}),
    }


def _waited(outcome: Answered | Failed) -> dict[str, JsonValue]:
    """The wait for quota, when there was one."""
    return {"waited_s": round(outcome.waited_s, 3)} if outcome.waited_s > 0 else {}
