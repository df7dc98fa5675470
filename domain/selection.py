"""A part of a plan: the tasks that were named, and what they need."""

from __future__ import annotations

from collections.abc import Iterable

from domain.graph import needs_of
from domain.models import Plan


def only(plan: Plan, named: Iterable[str]) -> Plan:
    """The plan of these tasks and of all that they need, near or far, in plan order. The others are no part of it."""
    needs, wanted = needs_of(plan), dict.fromkeys(named)
    way = list(wanted)
    for id in way:
        found = [need for need in needs[id] if need not in wanted]
        wanted |= dict.fromkeys(found)
        way += found
    tasks = tuple(task for task in plan.tasks if task.id in wanted)
    used, inside = {task.agent for task in tasks}, {task.part for task in tasks}
    return plan.model_copy(
        update={
            "tasks": tasks,
            "agents": tuple(one for one in plan.agents if one.called in used),
            "parts": tuple(part for part in plan.parts if part.id in inside),
        }
    )
