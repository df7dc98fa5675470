"""What time does to a run: deadlines, time limits, and questions to people that expire.

The supervisor sleeps until the earliest of these times. Nothing here happens by itself: `pass_time` says what is due.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from pydantic import JsonValue

from domain import barriers, settling
from domain.chart import Chart
from domain.durations import written
from domain.events import EventType, timestamp
from domain.models import TaskError, TaskStatus
from domain.progress import Ended, Ordered, Progress
from domain.step import Draft

TIMED_OUT = "TimedOut"
"""The type of the error when a limit or a deadline passed; the message says which."""


def is_due(chart: Chart, progress: Progress, now: datetime) -> bool:
    """Whether anything waits for a time that has come."""
    return any(time <= now for time in _times(chart, progress))


def next_time(chart: Chart, progress: Progress) -> datetime | None:
    """The earliest time that something waits for."""
    return min(_times(chart, progress), default=None)


def pass_time(chart: Chart, draft: Draft) -> None:
    """Do what is due."""
    deadline = chart.deadline(draft.started)
    if deadline is not None and deadline <= draft.now and not draft.late:
        _close_the_run(chart, draft, deadline)
        return
    _stop_what_is_late(chart, draft)
    barriers.look(chart, draft)
    for id, wait in [*draft.parked.items()]:
        if wait.until is None or wait.until > draft.now:
            continue
        if wait.why == "approval":
            _expire(chart, draft, id)
        elif not (wait.why == "wall" and barriers.is_behind(chart, draft.barriers, id)):
            del draft.parked[id]
            settling.make_ready(chart, draft, id)


def failure(message: str, attempts: int) -> dict[str, JsonValue]:
    """The data of an end that no attempt has told."""
    error = TaskError(type=TIMED_OUT, message=message, attempt=attempts)
    return {"attempts": attempts, "error": error.model_dump()}


def _times(chart: Chart, progress: Progress) -> Iterator[datetime]:
    """Every time that something waits for; a run that is being ended waits for none."""
    if progress.cancelled or progress.late:
        return
    for id, wait in progress.parked.items():
        behind = wait.why == "wall" and barriers.is_behind(chart, progress.barriers, id)
        if wait.until is not None and not behind:
            yield wait.until
    yield from barriers.next_look(progress)
    yield from (at for id, at in progress.limits.items() if id not in progress.stopping)
    if (deadline := chart.deadline(progress.started)) is not None:
        yield deadline
    for at, id in chart.deadlines(progress.started):
        if id not in progress.ended and id not in progress.stopping:
            yield at
            return


def _stop_what_is_late(chart: Chart, draft: Draft) -> None:
    """Tasks whose deadline or time limit has passed."""
    for at, id in chart.deadlines(draft.started):
        if at > draft.now:
            break
        if id not in draft.ended and id not in draft.stopping:
            _stop(chart, draft, id, f"Task deadline {timestamp(at)} passed")
    for id, at in [*draft.limits.items()]:
        if at <= draft.now and id not in draft.stopping:
            limit = chart.tasks[id].time_limit
            _stop(chart, draft, id, f"Task time limit of {written(limit) if limit else '?'} passed")


def _stop(chart: Chart, draft: Draft, id: str, message: str) -> None:
    """The time of a task is over: one at work is stopped first, any other ends here."""
    if id in draft.active:
        _stop_at_work(draft, id, message)
        return
    settling.leave_line(chart, draft, id)
    draft.probes_no_more(id)
    how = Ended(status=TaskStatus.TIMED_OUT, why=message, cause=id)
    settling.end(chart, draft, id, how, **failure(message, draft.used.get(id, 0)))


def _stop_at_work(draft: Draft, id: str, message: str) -> None:
    draft.stopping[id] = Ordered(status=TaskStatus.TIMED_OUT, why=message, cause=id)
    draft.stops.append(id)


def _expire(chart: Chart, draft: Draft, id: str) -> None:
    """Nobody has answered in time: the plan says what that means."""
    task = chart.tasks[id]
    approval = task.grows.approval if task.grows is not None and id in draft.growing else task.approval
    then = approval.on_expiry if approval is not None else "reject"
    draft.tell(EventType.APPROVAL_EXPIRED, id, then=then)
    del draft.parked[id]
    if then == "approve":
        draft.approved[id] = None
        settling.make_ready(chart, draft, id)
        return
    how = Ended(status=TaskStatus.SKIPPED, why="nobody approved it in time", cause=id)
    settling.end(chart, draft, id, how)


def _close_the_run(chart: Chart, draft: Draft, deadline: datetime) -> None:
    """Nothing new starts; what is at work is stopped; what was started once has timed out, the rest never began."""
    draft.late = True
    message = f"Run deadline {timestamp(deadline)} passed"
    close_everything(draft)
    for task in chart.outline.tasks:
        id = task.id
        if id in draft.ended:
            continue
        timed_out = Ended(status=TaskStatus.TIMED_OUT, why=message, cause=id)
        if id in draft.active:
            if id not in draft.stopping:
                _stop_at_work(draft, id, message)
        elif id in draft.begun:
            settling.end(chart, draft, id, timed_out, **failure(message, draft.used.get(id, 0)))
        else:
            settling.end(chart, draft, id, Ended(status=TaskStatus.NOT_STARTED, why=message))


def close_everything(draft: Draft) -> None:
    """Empty every line: nothing that waits may become ready any more."""
    for line in draft.ready, draft.unmet, draft.since, draft.parked, draft.barriers, draft.wave:
        line.clear()
