"""The legal steps of a running plan.

A step takes a progress, something that happened and the time, and gives the next progress with its events.
Nothing here scans the plan: a step touches the task it is about and the tasks that wait for it.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from datetime import datetime, timedelta

from pydantic import JsonValue

from domain.events import EventType, timestamp
from domain.models import Answered, Failed, Input, Outcome, Parked, Policy, RunStatus, Stopped, TaskError, TaskStatus
from domain.progress import Census, Ended, Outline, OutlineTask, Progress, Waiting
from domain.step import Draft, Step

INPUTS_AT_ONCE = 5_000
"""Inputs that the tasks of one launch carry together, about 200 KB: a workflow task that sends 4 MB is terminated."""

PROBE_FIRST, PROBE_LAST = timedelta(minutes=1), timedelta(minutes=15)
"""A wall without a known end is probed after 1, 2, 4 ... 15 minutes."""


class Course:
    """The legal steps of one plan."""

    def __init__(self, outline: Outline) -> None:
        self._outline = outline
        self._tasks = {task.id: task for task in outline.tasks}
        self._position = {task.id: position for position, task in enumerate(outline.tasks)}
        self._dependants: dict[str, list[str]] = {}
        for task in outline.tasks:
            for need in task.needs:
                self._dependants.setdefault(need, []).append(task.id)

    def task(self, id: str) -> OutlineTask:
        """The outline of one task."""
        return self._tasks[id]

    def inputs(self, progress: Progress, id: str) -> tuple[Input, ...]:
        """What each need of a task has come to."""
        needs = [(need, progress.ended[need]) for need in self._tasks[id].needs]
        return tuple(Input(task=need, status=end.status, ref=end.ref, why=end.why) for need, end in needs)

    # Steps

    def begin(self, now: datetime) -> Step:
        """The first step: every task is known, those without needs are ready."""
        draft = Draft(Progress(), now)
        draft.tell(EventType.RUN_SUBMITTED)
        draft.tell(EventType.RUN_STARTED, tasks=len(self._tasks), max_concurrency=self._outline.max_concurrency)
        for task in self._outline.tasks:
            draft.tell(EventType.TASK_CREATED, task.id, agent=task.agent)
        for task in self._outline.tasks:
            if task.needs:
                draft.unmet[task.id] = len(task.needs)
            else:
                self._make_ready(draft, task.id)
        return draft.done()

    def launch(self, progress: Progress, now: datetime) -> Step:
        """Start the first ready tasks, in plan order, that have a place and an instance of their agent."""
        if progress.paused or progress.cancelled:
            return Step(progress)
        draft = Draft(progress, now)
        busy = Counter(self._tasks[id].agent for id in draft.active)
        starts: list[str] = []
        carried = 0
        while len(draft.active) < self._outline.max_concurrency:
            open_lines = [
                (line[0], agent)
                for agent, line in draft.ready.items()
                if line and busy[agent] < self._outline.pools.get(agent, self._outline.max_concurrency)
            ]
            if not open_lines:
                break
            position, agent = min(open_lines)
            task = self._outline.tasks[position]
            if starts and carried + len(task.needs) > INPUTS_AT_ONCE:
                return self._launched(draft, starts, held_back=True)
            carried += len(task.needs)
            draft.ready[agent].pop(0)
            id = task.id
            draft.active[id] = now
            draft.begun[id] = None
            busy[agent] += 1
            starts.append(id)
            draft.tell(EventType.TASK_STARTED, id)
        return self._launched(draft, starts, held_back=False)

    def result(self, progress: Progress, id: str, outcome: Outcome, now: datetime) -> Step:
        """A task at work has ended its work: with an answer, a failure, or a reason to wait outside."""
        if id not in progress.active:
            return Step(progress)  # told twice, as after a continue-as-new: the first word stands
        draft = Draft(progress, now)
        del draft.active[id]
        match outcome:
            case Answered():
                draft.walls.pop(id, None)
                draft.usage += outcome.usage
                self._end(draft, id, Ended(status=TaskStatus.SUCCEEDED, ref=outcome.output_ref), **_answer(outcome))
            case Failed():
                draft.walls.pop(id, None)
                draft.usage += outcome.usage
                end = Ended(status=outcome.status, why=outcome.error.message, cause=id)
                self._end(draft, id, end, **_failure(outcome))
            case Stopped():
                error = TaskError(type="Stopped", message=outcome.why)
                failed = Failed(status=TaskStatus.CANCELLED, error=error)
                self._end(draft, id, Ended(status=TaskStatus.CANCELLED, why=outcome.why, cause=id), **_failure(failed))
            case Parked():
                self._park(draft, id, outcome)
        return draft.done()

    def wake(self, progress: Progress, now: datetime) -> Step:
        """What waited for a time that has come is ready again."""
        due = [id for id, wait in progress.parked.items() if wait.until is not None and wait.until <= now]
        if not due:
            return Step(progress)
        draft = Draft(progress, now)
        for id in due:
            del draft.parked[id]
            self._make_ready(draft, id)
        return draft.done()

    def next_wake(self, progress: Progress) -> datetime | None:
        """The earliest time that something waits for."""
        return min((wait.until for wait in progress.parked.values() if wait.until is not None), default=None)

    def pause(self, progress: Progress, now: datetime, by: str) -> Step:
        """Calls at work go on; nothing new starts."""
        draft = Draft(progress, now)
        draft.paused = True
        draft.tell(EventType.RUN_PAUSED, by=by)
        return draft.done()

    def resume(self, progress: Progress, now: datetime, by: str) -> Step:
        """Go on; tasks that the pause met at the door are ready again."""
        draft = Draft(progress, now)
        draft.paused = False
        draft.tell(EventType.RUN_RESUMED, by=by)
        for id, wait in progress.parked.items():
            if wait.why == "pause":
                del draft.parked[id]
                self._make_ready(draft, id)
        return draft.done()

    def cancel(self, progress: Progress, now: datetime) -> Step:
        """Nothing new starts, and what waits ends here; tasks at work end by their own word."""
        draft = Draft(progress, now)
        draft.cancelled = True
        draft.ready.clear()
        draft.unmet.clear()
        for task in self._outline.tasks:
            if task.id in draft.ended or task.id in draft.active:
                continue
            draft.parked.pop(task.id, None)
            status = TaskStatus.CANCELLED if task.id in draft.begun else TaskStatus.NOT_STARTED
            reason = "the run was cancelled"
            draft.ended[task.id] = Ended(status=status, why=reason)
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
        return len(progress.ended) == len(self._tasks)

    def census(self, progress: Progress) -> Census:
        """The count of tasks by state."""
        counts = Counter(end.status.value.lower() for end in progress.ended.values())
        counts["running"] = len(progress.active)
        counts["waiting"] = len(progress.parked)
        counts["ready"] = sum(len(line) for line in progress.ready.values())
        counts["pending"] = len(progress.unmet)
        return Census(total=len(self._tasks), **counts)

    def status(self, progress: Progress) -> RunStatus:
        """The state of the run, going or ended."""
        if not self.is_over(progress):
            return self._going(progress)
        if progress.cancelled:
            return RunStatus.CANCELLED
        finals = [progress.ended[id] for id in self._tasks if id not in self._dependants]
        succeeded = sum(end.status is TaskStatus.SUCCEEDED for end in finals)
        if succeeded < len(finals):
            return RunStatus.PARTIAL if succeeded else RunStatus.FAILED
        everything = all(end.status is TaskStatus.SUCCEEDED for end in progress.ended.values())
        return RunStatus.COMPLETED if everything else RunStatus.DEGRADED

    # How a step is made

    def _launched(self, draft: Draft, starts: list[str], *, held_back: bool) -> Step:
        draft.peak = max(draft.peak, len(draft.active))
        return draft.done(starts, held_back=held_back)

    def _going(self, progress: Progress) -> RunStatus:
        if progress.paused:
            return RunStatus.PAUSED
        return RunStatus.WAITING if progress.parked and not (progress.active or progress.ready) else RunStatus.RUNNING

    def _make_ready(self, draft: Draft, id: str) -> None:
        insort(draft.ready.setdefault(self._tasks[id].agent, []), self._position[id])
        draft.tell(EventType.TASK_READY, id)

    def _end(self, draft: Draft, id: str, end: Ended, **data: JsonValue) -> None:
        """End a task and settle, without recursion, everything that was waiting for it."""
        draft.ended[id] = end
        draft.begun.pop(id, None)
        succeeded = end.status is TaskStatus.SUCCEEDED
        draft.tell(EventType.TASK_COMPLETED if succeeded else EventType.TASK_FAILED, id, status=end.status, **data)
        settled = [id]
        for need in settled:
            for dependant in self._dependants.get(need, ()):
                if dependant not in draft.unmet:
                    continue  # the run was cancelled meanwhile
                draft.unmet[dependant] -= 1
                if draft.unmet[dependant]:
                    continue
                del draft.unmet[dependant]
                missing = self._unacceptable(draft, dependant)
                if missing is None:
                    self._make_ready(draft, dependant)
                    continue
                self._skip(draft, dependant, missing)
                settled.append(dependant)

    def _unacceptable(self, draft: Draft, id: str) -> str | None:
        """The first need that keeps a task from running."""
        needs = self._tasks[id].needs
        return next((need for need, policy in needs.items() if not accepts(policy, draft.ended[need].status)), None)

    def _skip(self, draft: Draft, id: str, need: str) -> None:
        status, cause = draft.ended[need].status, draft.ended[need].cause
        reason = f"needs {need!r}, which ended {status}"
        draft.ended[id] = Ended(status=TaskStatus.SKIPPED, why=reason, cause=cause)
        draft.tell(EventType.TASK_SKIPPED, id, status=TaskStatus.SKIPPED, reason=reason, cause=cause)

    def _park(self, draft: Draft, id: str, parked: Parked) -> None:
        if draft.cancelled:
            end = Ended(status=TaskStatus.CANCELLED, why="the run was cancelled", cause=id)
            error = TaskError(type="Stopped", message="the run was cancelled")
            return self._end(draft, id, end, **_failure(Failed(status=TaskStatus.CANCELLED, error=error)))
        if parked.why == "worker" or (parked.why == "pause" and not draft.paused):
            return self._make_ready(draft, id)
        until = parked.until
        if parked.why == "wall" and until is None:
            until = draft.now + min(PROBE_FIRST * 2 ** draft.walls.get(id, 0), PROBE_LAST)
            draft.walls[id] = min(draft.walls.get(id, 0) + 1, 10)
        draft.parked[id] = Waiting(why=parked.why, what=parked.what, since=draft.now, until=until)
        draft.tell(
            EventType.TASK_WAITING,
            id,
            **{"for": parked.why, "what": parked.what, "until": timestamp(until) if until else None},
        )
        return None


def accepts(policy: Policy, status: TaskStatus) -> bool:
    """Whether a dependant may run when a need of this policy ended like this."""
    if status is TaskStatus.SUCCEEDED or policy is Policy.OPTIONAL:
        return True
    return policy is Policy.TOLERATE and status is TaskStatus.TIMED_OUT


def _answer(answer: Answered) -> dict[str, JsonValue]:
    return {
        "attempts": answer.attempts,
        "tokens": answer.usage.model_dump(),
        "output_ref": answer.output_ref,
        "output_bytes": answer.output_bytes,
    }


def _failure(failure: Failed) -> dict[str, JsonValue]:
    return {
        "attempts": failure.error.attempt,
        "tokens": failure.usage.model_dump(),
        "output_ref": failure.output_ref,
        "output_bytes": failure.output_bytes,
        "error": failure.error.model_dump(),
    }
