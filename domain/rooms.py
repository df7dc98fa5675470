"""The places of a run: a task has one, and a plan inside the plan has all of its own while one of its tasks is at work.

They are its own so that a part of a plan goes its pace whatever the rest does; between its tasks, as while all of them
wait for a person, it holds none.
"""

from __future__ import annotations

from collections import Counter

from domain.chart import Chart
from domain.progress import OutlineTask
from domain.step import Draft


class Rooms:
    """Who may start as far as places go. It is told of every start."""

    def __init__(self, chart: Chart, draft: Draft, places: int) -> None:
        self._parts = chart.outline.parts
        self._places = places
        self._busy = Counter(chart.tasks[id].part for id in draft.active)
        self._awaited = False
        """Whether a part waits for its places: then nobody takes them away one by one."""

    @property
    def _taken(self) -> int:
        own = sum(self._own(part) for part, busy in self._busy.items() if part is not None and busy)
        return self._busy[None] + own

    def _own(self, part: str) -> int:
        return min(self._parts[part].places, self._places)

    def has_one_for(self, task: OutlineTask) -> bool:
        """Whether there is a place for a task. To be asked by rank: whoever comes first is waited for."""
        if task.part is not None and self._busy[task.part]:
            return self._busy[task.part] < self._own(task.part)
        needed = 1 if task.part is None else self._own(task.part)
        if self._awaited or self._taken + needed > self._places:
            self._awaited = self._awaited or task.part is not None
            return False
        return True

    def took(self, task: OutlineTask) -> None:
        """A task has started."""
        self._busy[task.part] += 1
        self._awaited = False
