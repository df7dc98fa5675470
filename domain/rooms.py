"""The places of a run: a task has one, and a plan inside the plan has its own from its first start to its end.

They are its own so that a part of a plan goes its pace whatever the rest does, between its steps too. Only while
nothing of it is at work or could start (all of it waits for a person, a wall, money, a time, or for tasks outside) may
others use them. Then it gets them back as they become free, before anybody outside starts.

Nobody waits for ever: whoever holds places has somebody at work or one that could start, and who has neither gives
them up. A part that has not begun waits until all of its places are free at once, and begins with them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from domain.chart import Chart
from domain.progress import OutlineTask
from domain.step import Draft


class Rooms:
    """Who may start as far as places go. It is told of every start."""

    def __init__(self, chart: Chart, draft: Draft, places: int) -> None:
        self._parts = chart.outline.parts
        self._places = places
        self._busy = Counter(chart.tasks[id].part for id in draft.active)
        self._keeps = not chart.era.before_0_8
        self._held = draft.parts if self._keeps else {}
        """Places by the part that holds them. Until 0.7 a part was one only while one of its tasks was at work."""
        self._awaited = False
        """Whether a part waits to begin: then nobody takes its places away one by one."""
        for part, busy in self._busy.items():
            if part is not None:  # a history that an earlier release began told of no parts
                self._held[part] = max(self._held.get(part, 0), busy) if self._keeps else self._own(part)

    @property
    def _free(self) -> int:
        return self._places - self._busy[None] - sum(self._held.values())

    def _own(self, part: str) -> int:
        return min(self._parts[part].places, self._places)

    def share_out(self, wanting: Collection[str | None]) -> None:
        """Take places from parts that have no use for them, and give to those that lack some, the first begun first.

        `wanting` are the parts of tasks that could start.
        """
        if not self._keeps:
            return
        self._awaited = False
        for part in self._held:
            if not self._busy[part] and part not in wanting:
                self._held[part] = 0
        for part, held in self._held.items():
            if self._busy[part] or part in wanting:
                given = min(self._own(part), held + max(self._free, 0))
                self._held[part] = max(given, self._busy[part])  # somebody may have set fewer than are taken

    def has_one_for(self, task: OutlineTask) -> bool:
        """Whether there is a place for a task. To be asked by rank: whoever comes first is waited for."""
        if task.part in self._held:
            return self._busy[task.part] < self._held[task.part]
        needed = 1 if task.part is None else self._own(task.part)
        if self._awaited or needed > self._free:
            self._awaited = self._awaited or task.part is not None
            return False
        return True

    def took(self, task: OutlineTask) -> None:
        """A task has started. With the first of a part that part begins."""
        if task.part is not None and task.part not in self._held:
            self._held[task.part] = self._own(task.part)
        self._busy[task.part] += 1
        self._awaited = False
