"""Tasks by state, kept by moves: a picture of 5,000 tasks that is looked at twice a second must not count them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, KeysView

from domain.models import TaskStatus
from domain.progress import Census

NAMES = {status: status.value.lower() for status in TaskStatus}


class Tally:
    """Which tasks are in which state."""

    def __init__(self, ids: Iterable[str]) -> None:
        self._by_state: dict[TaskStatus, dict[str, None]] = {status: {} for status in TaskStatus}
        self._by_state[TaskStatus.PENDING] = dict.fromkeys(ids)
        self._total = len(self._by_state[TaskStatus.PENDING])

    def move(self, id: str, old: TaskStatus, new: TaskStatus) -> None:
        """A task has come from one state into another."""
        if old is not new:
            del self._by_state[old][id]
            self._by_state[new][id] = None

    def enter(self, id: str) -> None:
        """One more task is in the plan."""
        self._by_state[TaskStatus.PENDING][id] = None
        self._total += 1

    def leave(self, id: str) -> None:
        """A task that has not started is in the plan no more."""
        del self._by_state[TaskStatus.PENDING][id]
        self._total -= 1

    def part(self, ids: Iterable[str]) -> Tally:
        """The same of these tasks alone."""
        found = Tally(ids)
        for status, there in self._by_state.items():
            for id in [id for id in found.of(TaskStatus.PENDING) if id in there]:
                found.move(id, TaskStatus.PENDING, status)
        return found

    def of(self, status: TaskStatus) -> KeysView[str]:
        """The tasks of a state in the order in which they came into it; those never moved are in plan order."""
        return self._by_state[status].keys()

    def newest(self, status: TaskStatus) -> Iterator[str]:
        """The same, those that came last first."""
        return reversed(self._by_state[status])

    def count(self, *states: TaskStatus) -> int:
        """How many tasks are in one of these states."""
        return sum(len(self._by_state[status]) for status in states)

    @property
    def census(self) -> Census:
        """The count of tasks by state."""
        return Census(total=self._total, **{NAMES[status]: len(ids) for status, ids in self._by_state.items()})
