"""What the answer of a task makes of its plan. Pure: the same plan and the same answer make the same plan."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from domain.graph import needs_of
from domain.items import NotGrown as NotGrown  # noqa: PLC0414  who grows a plan finds it here
from domain.items import expanded
from domain.models import Plan, Task
from domain.planning import changes
from domain.planning.proposals import Unusable, judged

MAX_TASKS = 10_000
MAX_NEEDS = 100_000
"""The same limits as for a plan that is read from a file."""


@dataclass(frozen=True)
class Grown:
    """The plan that an answer has made of another one."""

    plan: Plan
    idle: Mapping[str, str] = field(default_factory=dict)
    """Tasks that there is nothing to do for, and why: they are skipped."""


class Kind(Protocol):
    """One way to grow: a plan, the task that has answered, its answer, and the fan-outs that are over already."""

    def __call__(self, plan: Plan, task: Task, text: str, over: Collection[str], /) -> Grown: ...  # noqa: D102


def _by_items(plan: Plan, task: Task, text: str, over: Collection[str]) -> Grown:
    return Grown(*expanded(plan, task.id, text, over))


def _by_proposal(plan: Plan, task: Task, text: str, over: Collection[str]) -> Grown:  # noqa: ARG001
    try:
        return Grown(judged(plan, text).grown(plan, task))
    except Unusable as unusable:
        raise NotGrown(f"the proposed plan cannot be run: {unusable.problems[0]}") from None


def _by_changes(plan: Plan, task: Task, text: str, over: Collection[str]) -> Grown:  # noqa: ARG001
    try:
        return Grown(changes.changed(plan, task, text))
    except changes.Refused as refused:
        raise NotGrown(f"the change that it proposes cannot be made: {refused}") from None


KINDS: dict[str, Kind] = {"items": _by_items, "plan": _by_proposal, "changes": _by_changes}


def grown(plan: Plan, task: Task, text: str, over: Collection[str] = ()) -> Grown:
    """What an answer makes of the plan. `NotGrown` says why it cannot.

    `over` are fan-outs that have ended already, as when a person has skipped them: they stay as they are.
    """
    if task.grows is None:
        return Grown(plan)
    found = KINDS[task.grows.kind](plan, task, text, over)
    if len(found.plan.tasks) > MAX_TASKS:
        raise NotGrown(f"the plan would have {len(found.plan.tasks):,} tasks; at most {MAX_TASKS:,} are possible")
    if sum(map(len, needs_of(found.plan).values())) > MAX_NEEDS:
        raise NotGrown(f"the plan would have more than {MAX_NEEDS:,} needs, a fan-out counted by its tasks")
    return found


def edited(old: Plan, new: Plan) -> tuple[str, ...]:
    """The tasks of both plans that are not the same in both."""
    before = {task.id: task for task in old.tasks}
    return tuple(task.id for task in new.tasks if before.get(task.id, task) != task)
