"""Caps: what one task may cost in a run and its retries, and what all tasks of an agent or of a plan inside may spend.

They are kept as the budget of the run is (`purse.py`): the worst case is set aside before a start. But one that is used
up ends the tasks that it concerns, and no others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import NamedTuple

from domain.barriers import at_agent
from domain.chart import Chart
from domain.models import Plan
from domain.prices import NOTHING, money
from domain.progress import Progress
from domain.step import Draft

State = Progress | Draft

NO_PROMISES: Mapping[str, Decimal] = {}


def of_task(id: str) -> str:
    """The name that the cap of a task is counted under; that of an agent is `at_agent`."""
    return f"task {id}"


def of_plan(part: str) -> str:
    """The same of a plan inside the plan."""
    return f"plan {part}"


class Cap(NamedTuple):
    """One cap, and how it stands."""

    name: str
    whose: str
    """As people read it."""
    most: Decimal
    spent: Decimal
    held: Decimal
    """What is set aside under it."""
    owed: bool
    """Whether some of what counts as spent may turn out to be less: the ledger is being asked."""

    @property
    def left(self) -> Decimal:
        """What may still be set aside."""
        return self.most - self.spent - self.held

    def never_covers(self, call: Decimal) -> bool:
        """Whether a call does not fit, whatever those at work come to."""
        return not self.owed and call > self.most - self.spent

    def says(self, call: Decimal) -> str:
        """Why a call does not fit."""
        there = f"${money(max(self.left, NOTHING))} of the ${money(self.most)} of {self.whose} is left"
        return f"one call may cost up to ${money(call)}, and {there}"


def names(chart: Chart, id: str) -> tuple[str, ...]:
    """The caps that a task is under."""
    return tuple(name for name, most, _ in _limits(chart, id) if most is not None)


def _limits(chart: Chart, id: str) -> Iterator[tuple[str, Decimal | None, str]]:
    """What a task may be under: by name, how much, and whose it is."""
    task = chart.tasks[id]
    yield of_task(id), task.budget, f"task {id!r}"
    yield at_agent(task.agent), chart.outline.budgets.get(task.agent), f"agent {task.agent!r}"
    if task.part is not None:
        yield of_plan(task.part), chart.outline.parts[task.part].budget, f"plan {task.part!r}"


def of(chart: Chart, state: State, id: str, promised: Mapping[str, Decimal] = NO_PROMISES) -> list[Cap]:
    """The caps that a task is under, as they stand: its own before that of its agent, and of the plan that it is of.

    `promised` is what others that are let go in the same breath will set aside.
    """
    return [
        Cap(
            name=name,
            whose=whose,
            most=most,
            spent=state.capped.get(name, NOTHING),
            held=_held(state, name) + promised.get(name, NOTHING),
            owed=any(name in names(chart, owed.task) for owed in state.owing),
        )
        for name, most, whose in _limits(chart, id)
        if most is not None
    ]


def _held(state: State, name: str) -> Decimal:
    return sum((held.usd for held in state.reserved.values() if name in held.caps), NOTHING)


def shares(chart: Chart, state: State, there: Decimal) -> dict[str, Decimal]:
    """What is set aside for each plan inside the plan that has begun, until its end: nobody else has it meanwhile.

    That is what is left of its budget. When there is less in all, as much of it as there is: the first begun first.
    """
    found = {}
    for part in state.parts:
        budget = chart.outline.parts[part].budget
        if budget is not None:
            own = budget - state.capped.get(of_plan(part), NOTHING) - _held(state, of_plan(part))
            found[part] = max(min(own, there), NOTHING)
            there -= found[part]
    return found


def set_aside(chart: Chart, state: State, there: Decimal, *, but: str | None) -> Decimal:
    """What is set aside for all of them but one."""
    if chart.era.before_0_8:
        return _set_aside_to_0_7(chart, state, but)
    return sum((share for part, share in shares(chart, state, there).items() if part != but), NOTHING)


def _set_aside_to_0_7(chart: Chart, state: State, but: str | None) -> Decimal:
    """What is left to plans inside the plan that have a task at work: between its tasks it was anybody's."""
    at_work = {part for id in state.active if (part := chart.tasks[id].part) is not None} - {but}
    lefts = (
        part.budget - state.capped.get(of_plan(id), NOTHING) - _held(state, of_plan(id))
        for id, part in chart.outline.parts.items()
        if id in at_work and part.budget is not None
    )
    return sum((max(left, NOTHING) for left in lefts), NOTHING)


def lacking(
    chart: Chart, state: State, id: str, call: Decimal, promised: Mapping[str, Decimal] = NO_PROMISES
) -> Cap | None:
    """The cap that does not cover a call of a task now: first of all one that never will."""
    short = [cap for cap in of(chart, state, id, promised) if call > cap.left]
    return next((cap for cap in short if cap.never_covers(call)), short[0] if short else None)


def waiting_at(state: State) -> set[str]:
    """The caps that tasks wait for."""
    return {wait.cap for wait in state.parked.values() if wait.cap is not None}


# Plans


def limits_of(plan: Plan) -> Iterator[tuple[str, str, Decimal, list[str]]]:
    """Every cap of a plan: the name that it is counted under, whose it is, how much, and the tasks that it is for."""
    for task in plan.tasks:
        if task.budget is not None:
            yield of_task(task.id), f"task {task.id!r}", task.budget, [task.id]
    for agent in plan.agents:
        tasks = [task.id for task in plan.tasks if task.agent == agent.called]
        if agent.cap is not None and tasks:
            yield at_agent(agent.called), f"agent {agent.called!r}", agent.cap, tasks
    for part in plan.parts:
        if part.budget is not None:
            inside = [task.id for task in plan.tasks if task.part == part.id]
            yield of_plan(part.id), f"plan {part.id!r}", part.budget, inside


def spent_under(plan: Plan, cost: Callable[[str], Decimal]) -> dict[str, Decimal]:
    """What was spent under each cap of a plan, by what each of its tasks has cost."""
    return {name: sum(map(cost, tasks), NOTHING) for name, _, _, tasks in limits_of(plan)}
