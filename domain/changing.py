"""A plan as a person wants it to be now, against the one that runs: what is otherwise, and what cannot be.

The run keeps what is its own: its name, places, budget and deadline, its agents and prices as they were pinned.
A task that says the same as before is the very same one, so that what was told and paid for it stays true.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from domain.amending import Difference
from domain.growing import NotGrown, grown
from domain.models import Agent, Plan, Task
from domain.prices import PriceList

OF_THE_RUN = ("name", "max_concurrency", "mode", "deadline", "budget", "on_budget", "region", "goal")
"""What of a plan stays as the run has it: `set` changes what can be changed of it."""

WORKED_OUT = frozenset({"shares", "asked", "summarise"})
"""What of a task follows from the rest of its plan, and changes nothing of what it is told."""

KEYS = {"budget": "budget_usd", "each": "for_each", "schema_": "schema"}
"""What a key is called in a plan file, where that is another word."""


@dataclass(frozen=True)
class Changed:
    """The plan of a run as somebody wants it to be, and what is otherwise in it."""

    plan: Plan
    difference: Difference
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """What of each edited task is otherwise, as a plan file calls it."""
    refused: tuple[str, ...] = ()
    """What cannot be, in sentences without their points."""


def changed(old: Plan, new: Plan, started: Mapping[str, str], answers: Mapping[str, str]) -> Changed:
    """What becomes of the plan of a run.

    `started` says of the tasks that have started how they stand; `answers` has the lists by which it has grown.
    """
    refused: list[str] = []
    new = _called_as_before(old, new)
    for task in [task for task in new.tasks if task.id in answers]:
        try:
            new = grown(new, task, answers[task.id]).plan
        except NotGrown as not_grown:
            refused.append(f"the list that {task.id!r} has made does not fit the plan any more: {not_grown}")
    before = {task.id: task for task in old.tasks}
    tasks = {task.id: task for task in old.tasks if _is_unwritten(task) and task.id in started}
    keys: dict[str, tuple[str, ...]] = {}
    for task in new.tasks:
        tasks[task.id] = task
        if (then := before.get(task.id)) is None:
            continue
        one, other = _said(then), _said(task)
        if task.id in started:
            one, other = _regardless_of_files(one), _regardless_of_files(other)
        if otherwise := [key for key in one | other if one.get(key) != other.get(key)]:
            keys[task.id] = tuple(KEYS.get(key, key) for key in otherwise)
        else:
            tasks[task.id] = then
    added = tuple(id for id in tasks if id not in before)
    removed = tuple(id for id in before if id not in tasks)
    refused += [f"{id!r} {started[id]}: it cannot be removed" for id in removed if id in started]
    refused += [f"{id!r} {started[id]}: it cannot be changed ({', '.join(keys[id])})" for id in keys if id in started]
    agents, others = _agents(old, new)
    refused += [f"the agent {name!r} is pinned as it was at submit: give the new one another name" for name in others]
    plan = new.model_copy(
        update={
            **{name: getattr(old, name) for name in OF_THE_RUN},
            "tasks": tuple(tasks.values()),
            "agents": agents,
            "prices": _prices(old.prices, new.prices),
        }
    )
    if not (added or keys or removed):
        plan = old
    return Changed(plan, Difference(added=added, edited=tuple(keys), removed=removed), keys, tuple(refused))


def _called_as_before(old: Plan, new: Plan) -> Plan:
    """The new plan, with the items of a list in ids where the run was submitted with them there, and nowhere else.

    Until 0.8.0 they were there unless a plan said otherwise: the same file would call the same tasks by other names.
    """
    each = {fan.id: fan.each.numbered for fan in (*old.tasks, *old.templates) if fan.each is not None}
    tasks = tuple(
        task.model_copy(update={"each": task.each.model_copy(update={"numbered": each[task.id]})})
        if task.each is not None and task.id in each
        else task
        for task in new.tasks
    )
    return new.model_copy(update={"tasks": tasks})


def _is_unwritten(task: Task) -> bool:
    """Whether no plan file can have such a task: the one that has made the plan of a goal."""
    return task.grows is not None and task.grows.kind == "plan"


def _said(task: Task) -> dict[str, Any]:
    """What a task says. In which form results reach it follows from how many need them, so it is no edit by itself."""
    said = task.model_dump(mode="json", exclude=set(WORKED_OUT))
    return {**said, "needs": [[need.task, need.policy] for need in task.needs]}


def _regardless_of_files(said: dict[str, Any]) -> dict[str, Any]:
    """What a task says that was given its files: they may hold something else by now."""
    return {**said, "files": [file["path"] for file in said["files"]]}


def _agents(old: Plan, new: Plan) -> tuple[tuple[Agent, ...], list[str]]:
    """The agents of the run and the new ones, and the names of those that are not what they were."""
    pinned = {agent.called: agent for agent in old.agents}
    more = tuple(agent for agent in new.agents if agent.called not in pinned)
    otherwise = [agent.called for agent in new.agents if _is_other(pinned.get(agent.called, agent), agent)]
    return (*old.agents, *more), otherwise


def _is_other(pinned: Agent, agent: Agent) -> bool:
    return (pinned.label, pinned.own) != (agent.label, agent.own)


def _prices(old: PriceList | None, new: PriceList | None) -> PriceList | None:
    """The prices that were pinned, and those of models that are new."""
    if old is None or new is None:
        return old
    return old.model_copy(update={"models": {**new.models, **old.models}})
