"""The fixed lines of a plan: who needs whom, which model does what, and who goes first among those that could start."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta

from domain.amendments import Amendment
from domain.era import NOW, Era
from domain.models import Deadline, Grows, Pace, Priority, RunStatus
from domain.prices import Price
from domain.progress import Ended, Outline, OutlineTask

URGENCY = {Priority.HIGH: 0, Priority.NORMAL: 1, Priority.LOW: 2}


def at_work(grows: Iterable[Grows | None]) -> RunStatus:
    """What a run is called that has something to do: while there is nothing but a planner, the plan is not there."""
    planning = all(each is not None and each.kind == "plan" for each in grows)
    return RunStatus.PLANNING if planning else RunStatus.RUNNING


class Order:
    """Ranks of tasks: of two that could start, the one with the lower rank does."""

    def __init__(self, ids: list[str]) -> None:
        self.ids = ids
        self.rank = {id: rank for rank, id in enumerate(ids)}


class Chart:
    """What of a plan does not change while it runs, but for another plan that takes its place."""

    def __init__(
        self,
        outline: Outline,
        *,
        plan_ref: str = "",
        era: Era = NOW,
    ) -> None:
        self.outline = outline
        self.plan_ref = plan_ref
        self.era = era
        self.tasks = {task.id: task for task in outline.tasks}
        self._inside = self._members() if outline.parts else {}
        self.dependants: dict[str, list[str]] = {}
        for task in outline.tasks:
            for need in task.needs:
                self.dependants.setdefault(need, []).append(task.id)
        self.at_work = at_work(task.grows for task in outline.tasks)
        self._leaves = [task.id for task in outline.tasks if task.id not in self.dependants]
        self.finals = self._finals()
        self._order: tuple[datetime | None, Order] | None = None
        self._due: tuple[datetime | None, list[tuple[datetime, str]]] | None = None

    def amended(self, amendment: Amendment) -> Chart:
        """The chart of the plan that takes the place of this one."""
        return Chart(amendment.outline, plan_ref=amendment.plan_ref, era=self.era)

    def _members(self) -> dict[str, frozenset[str]]:
        found: dict[str, list[str]] = {}
        for id, task in self.tasks.items():
            if task.part is not None:
                found.setdefault(task.part, []).append(id)
        return {part: frozenset(ids) for part, ids in found.items()}

    def has_ended(self, part: str, ended: Mapping[str, Ended]) -> bool:
        """Whether nothing of a plan inside the plan is left to be done."""
        return self._inside.get(part, frozenset()) <= ended.keys()

    def _finals(self) -> list[str]:
        """The tasks that nobody needs, but for those that look at the plan."""
        looking = {id for id, task in self.tasks.items() if task.grows is not None and task.grows.is_replan}
        return [id for id in self.tasks if id not in looking and looking.issuperset(self.dependants.get(id, ()))]

    def model(self, id: str) -> str:
        """The model that does a task; of plans that do not tell it, the agent stands for it."""
        agent = self.tasks[id].agent
        return self.outline.models.get(agent, agent)

    def price(self, id: str) -> Price | None:
        """What the model of a task costs, where that is known."""
        return self.outline.prices.get(self.model(id))

    def order(self, started: datetime | None) -> Order:
        """The order among ready tasks: by urgency, or as the plan has them."""
        if self._order is None or self._order[0] != started:
            ids = list(self.tasks)
            if self.outline.by_urgency and self.outline.mode is Pace.WINDOW:
                ids = self._by_urgency(started)
            self._order = started, Order(ids)
        return self._order[1]

    def deadline(self, started: datetime | None) -> datetime | None:
        """When the run must have ended."""
        return _at(self.outline.deadline, started)

    def deadlines(self, started: datetime | None) -> list[tuple[datetime, str]]:
        """The deadlines of tasks, the earliest first."""
        if self._due is None or self._due[0] != started:
            self._due = started, sorted(self._deadlines(started))
        return self._due[1]

    def _deadlines(self, started: datetime | None) -> Iterator[tuple[datetime, str]]:
        for task in self.outline.tasks:
            if task.deadline is not None and (at := _at(task.deadline, started)) is not None:
                yield at, task.id

    def _by_urgency(self, started: datetime | None) -> list[str]:
        """Priority, then the earlier deadline, then the longer way that is left, then the order of the plan."""
        left = self._remaining()
        due = {id: at for at, id in self.deadlines(started)}
        latest = max(due.values(), default=None)

        def urgency(task: OutlineTask) -> tuple[int, bool, datetime | None, timedelta]:
            return URGENCY[task.priority], task.id not in due, due.get(task.id, latest), -left[task.id]

        return [task.id for task in sorted(self.outline.tasks, key=urgency)]

    def _remaining(self) -> dict[str, timedelta]:
        """The critical path from each task to the end, with one attempt at its timeout for every task on the way."""
        nothing = timedelta()
        left: dict[str, timedelta] = {}
        after = dict.fromkeys(self.tasks, nothing)
        open = {id: len(dependants) for id, dependants in self.dependants.items()}
        order = [*self._leaves]
        for id in order:  # backwards: a task comes when all that need it have come
            task = self.tasks[id]
            left[id] = way = task.timeout + after[id]
            for need in task.needs:
                after[need] = max(after[need], way)
                open[need] -= 1
                if not open[need]:
                    order.append(need)
        return left


def _at(deadline: Deadline | None, started: datetime | None) -> datetime | None:
    """A deadline as a time. Before the run has started there is none."""
    if isinstance(deadline, timedelta):
        return None if started is None else started + deadline
    return deadline
