"""The same tasks in several shapes, with the same luck. Pure."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence

from domain.models import Need, Plan, Task
from domain.planning import Planned

ONE_CALL, CHAIN_OF_THREE, CHAIN, IN_TURN, DAG = "one call", "chain of 3", "chain", "one at a time", "DAG"
ARMS = (ONE_CALL, CHAIN_OF_THREE, CHAIN, IN_TURN, DAG)


def shaped(example: Planned, arm: str) -> list[Planned]:
    """The plans of one arm: one, but for the single calls, of which there is one for each that the chain of 3 has."""
    plan = example.plan
    three = [task for task in plan.tasks if not task.needs][:3]
    shapes: dict[str, list[Plan]] = {
        ONE_CALL: [_with(plan, [task]) for task in three],
        CHAIN_OF_THREE: [_with(plan, chained(three))],
        CHAIN: [_with(plan, chained(plan.tasks))],
        IN_TURN: [plan.model_copy(update={"max_concurrency": 1})],
        DAG: [plan],
    }
    return [Planned(plan=shape, contents=example.contents, sources={}, warnings=()) for shape in shapes[arm]]


def warm_up(example: Planned) -> Planned:
    """One task of its own, which takes nothing of the luck of those that are measured."""
    task = example.plan.tasks[0].model_copy(update={"id": "warm-up", "needs": ()})
    return Planned(plan=_with(example.plan, [task]), contents=example.contents, sources={}, warnings=())


def chained(tasks: Sequence[Task]) -> Iterator[Task]:
    """Each task needs the one before it, whose result goes along, and what it needed anyway."""
    before: Task | None = None
    for task in tasks:
        known = {need.task for need in task.needs}
        link = (Need(task=before.id),) if before is not None and before.id not in known else ()
        before = task.model_copy(update={"needs": (*task.needs, *link)})
        yield before


def luck(tasks: Sequence[Task], seed: int) -> str:
    """A script for the simulator: the answer to a task has the same size and pace in every shape.

    By itself the simulator's chance depends on the prompt, and in a chain that has more in it.
    """
    chance = random.Random(seed)  # noqa: S311
    rules = [
        {
            "when": {"task": task.id},
            "then": {
                "answer_tokens": chance.randint(60, 150),
                "ttft": chance.uniform(0.4, 0.6),
                "tokens_per_second": chance.uniform(48, 72),
            },
        }
        for task in tasks
    ]
    return json.dumps({"rules": rules})


def _with(plan: Plan, tasks: Sequence[Task] | Iterator[Task]) -> Plan:
    return plan.model_copy(update={"tasks": tuple(tasks)})
