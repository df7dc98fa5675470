"""The shape of a plan: cycles, layers, final tasks, the critical path. Nothing recurses: chains may be long."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from domain.models import Plan

Needs = Mapping[str, Sequence[str]]


def needs_of(plan: Plan) -> dict[str, list[str]]:
    """The ids that each task needs, in plan order."""
    return {task.id: [need.task for need in task.needs] for task in plan.tasks}


def dependants_of(needs: Needs) -> dict[str, list[str]]:
    """The ids that need each id: the same edges the other way round."""
    dependants: dict[str, list[str]] = {id: [] for id in needs}
    for id, needed in needs.items():
        for other in dict.fromkeys(needed):
            dependants[other].append(id)
    return dependants


def in_order(needs: Needs) -> list[str]:
    """Every id after all that it needs. Ids on a cycle, or behind one, are left out."""
    waiting = {id: len(set(needed)) for id, needed in needs.items()}
    dependants = dependants_of(needs)
    order = [id for id, count in waiting.items() if not count]
    for id in order:
        for dependant in dependants[id]:
            waiting[dependant] -= 1
            if not waiting[dependant]:
                order.append(dependant)
    return order


def cycles(needs: Needs) -> list[list[str]]:
    """One shortest cycle of every knot: [a, b, c] means that a needs b, b needs c and c needs a.

    A knot is a set of ids that all need each other, so knots are independent and each is told once. Every id that is
    needed must be a key. Cycles start with their first id in the given order, and come in that order.
    """
    free = set(in_order(needs))
    rest = {id: [need for need in needed if need not in free] for id, needed in needs.items() if id not in free}
    position = {id: index for index, id in enumerate(rest)}
    found = []
    for knot in _knots(rest):
        first = min(knot, key=position.__getitem__)
        if len(knot) > 1 or first in rest[first]:
            found.append(_shortest_cycle(rest, first, knot))
    return sorted(found, key=lambda cycle: position[cycle[0]])


def _shortest_cycle(needs: Needs, start: str, knot: set[str]) -> list[str]:
    came_from: dict[str, str] = {}
    queue = deque([start])
    while start not in came_from:
        id = queue.popleft()
        for need in needs[id]:
            if need in knot and need not in came_from:
                came_from[need] = id
                queue.append(need)
    cycle = [came_from[start]]
    while cycle[-1] != start:
        cycle.append(came_from[cycle[-1]])
    return cycle[::-1]


def _knots(needs: Needs) -> Iterator[set[str]]:
    """Strongly connected components, by Tarjan's algorithm with its own stack."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    path: list[str] = []
    on_path: set[str] = set()
    for root in needs:
        work = [(root, iter(needs[root]))] if root not in index else []
        while work:
            id, remaining = work[-1]
            if id not in index:
                index[id] = low[id] = len(index)
                path.append(id)
                on_path.add(id)
            for need in remaining:
                if need not in index:
                    work.append((need, iter(needs[need])))
                    break
                if need in on_path:
                    low[id] = min(low[id], index[need])
            else:
                work.pop()
                if work:
                    parent = work[-1][0]
                    low[parent] = min(low[parent], low[id])
                if low[id] == index[id]:
                    knot = {path.pop()}
                    while id not in knot:
                        knot.add(path.pop())
                    on_path -= knot
                    yield knot


def layers(plan: Plan) -> list[list[str]]:
    """Ids by depth: each layer needs only layers before it. Within a layer, plan order."""
    needs = needs_of(plan)
    depth: dict[str, int] = {}
    for id in in_order(needs):
        depth[id] = 1 + max((depth[need] for need in needs[id]), default=-1)
    found: list[list[str]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for id in needs:
        found[depth[id]].append(id)
    return found


def final_tasks(plan: Plan) -> list[str]:
    """The ids that nobody needs, in plan order: what the plan is for. Who only looks at the plan does not count."""
    tasks = [task for task in plan.tasks if task.grows is None or not task.grows.is_replan]
    needed = {need.task for task in tasks for need in task.needs}
    return [task.id for task in tasks if task.id not in needed]


@dataclass(frozen=True)
class Ways:
    """For each id the end of the longest chain of needs that leads to it, and the need before it on that chain."""

    ends: Mapping[str, timedelta]
    before: Mapping[str, str | None]

    def to(self, id: str) -> list[str]:
        """The longest chain that ends with this id, first task first."""
        path = [id]
        while (earlier := self.before[path[-1]]) is not None:
            path.append(earlier)
        return path[::-1]


def longest_ways(plan: Plan, durations: Mapping[str, timedelta]) -> Ways:
    """How long the way to each task is, itself included. A task without a duration takes none."""
    needs = needs_of(plan)
    ends: dict[str, timedelta] = {}
    before: dict[str, str | None] = {}
    for id in in_order(needs):
        before[id] = latest = max(needs[id], key=ends.__getitem__, default=None)
        start = timedelta() if latest is None else ends[latest]
        ends[id] = start + durations.get(id, timedelta())
    return Ways(ends, before)


def critical_path(plan: Plan, durations: Mapping[str, timedelta]) -> tuple[list[str], timedelta]:
    """The chain of needs that takes longest, first task first, and its length."""
    ways = longest_ways(plan, durations)
    last = max((task.id for task in plan.tasks), key=ways.ends.__getitem__, default=None)
    return (ways.to(last), ways.ends[last]) if last is not None else ([], timedelta())
