"""Deadlines that a plan will hardly meet, told before it starts.

What is reckoned with is one attempt of every task, at its full timeout, along the needs. It is neither the worst case
(tasks are tried again, and wait for places and people) nor the likely one: most answers come long before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from domain import deadlines, durations
from domain.graph import Ways, longest_ways
from domain.models import Deadline, Plan
from domain.problems import Located, Place, Problems, shorten


@dataclass
class WrittenDeadline:
    """A deadline where it stands in the file, and the tasks that it holds for: none when it is the plan's."""

    at: Located
    deadline: Deadline
    tasks: list[str] = field(default_factory=list)


def by_place(given: Iterable[tuple[Located, Deadline, Sequence[str]]]) -> list[WrittenDeadline]:
    """Each deadline once, with all its tasks: one in `defaults` is given by many."""
    found: dict[Place, WrittenDeadline] = {}
    for at, deadline, tasks in given:
        found.setdefault(Place(at.line, at.column), WrittenDeadline(at, deadline)).tasks.extend(tasks)
    return list(found.values())


def warn_of_deadlines(plan: Plan, written: Iterable[WrittenDeadline], now: datetime | None, warnings: Problems) -> None:
    """One warning for each deadline that the longest way to its tasks exceeds, with that way and both figures.

    A time can be looked at only by those who say what time it is now.
    """
    ways = longest_ways(plan, {task.id: task.timeout for task in plan.tasks})
    for each in written:
        ids = each.tasks or list(ways.ends)
        last = max(ids, key=ways.ends.__getitem__)
        available = _available(each.deadline, now)
        task = last if each.tasks else None
        if available is None or ways.ends[last] <= available:
            continue
        if available <= timedelta():
            warnings.add(each.at, f"the deadline {deadlines.written(each.deadline)} has passed", task=task)
            continue
        others = sum(ways.ends[id] > available for id in each.tasks) - 1
        hint = f"and {others:,} other task{'s' if others > 1 else ''} of the same deadline" if others > 0 else None
        warnings.add(each.at, _sentence(each.deadline, available, ways, last), task=task, hint=hint)


def _available(deadline: Deadline, now: datetime | None) -> timedelta | None:
    if isinstance(deadline, timedelta):
        return deadline
    return None if now is None else deadline - now


def _sentence(deadline: Deadline, available: timedelta, ways: Ways, last: str) -> str:
    shown = f"of {deadlines.written(deadline)}"
    if isinstance(deadline, datetime):
        left = durations.written(timedelta(seconds=available // timedelta(seconds=1)))
        shown = f"{deadlines.written(deadline)}, {left} from now,"
    path, length = _path(ways.to(last)), durations.written(ways.ends[last])
    return (
        f"the deadline {shown} may be missed: {path} takes {length} with one attempt of each task at its full timeout"
    )


def _path(ids: list[str]) -> str:
    """The tasks in order, and only the ends of a long way."""
    names = [shorten(id, 40) for id in ids]
    if len(names) > 6:
        names = [*names[:3], f"... ({len(names) - 5:,} more) ...", *names[-2:]]
    return " -> ".join(names)
