"""Replanning: after given tasks an agent looks at what they came to, and may propose a change of what is left.

It is asked as a task of the run, `replan-1`, so it is seen, paid and budgeted like any other. Whoever needs one of the
given tasks waits for it: what a change is about has not started then. Why: docs/decisions/0045-replan.md.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from pydantic import JsonValue

from domain.models import Form, Need, Plan, Policy, Task

TITLE = "nightcrew.changes"
"""Of the schema: who judges such an answer, and who makes one up, know it by this name."""

REPLAN = re.compile(r"replan-(\d+)")
ABOUT, LISTED_BYTES = 200, 60_000
"""Characters that are told of a task or an agent, and bytes of such a list: of very many the last are only counted."""

REPAIRS = 2
"""How often a proposal that cannot be goes back, with what is wrong with it."""

ASSIGNMENT = (
    "The tasks whose results you are given have ended. Look at what they came to and at the plan below, and say "
    "whether the rest of the plan should change: tasks to add, tasks that have not started to edit or to remove, or "
    "nothing. Change only what these results call for; empty lists are a good answer. You may add at most {most} "
    "tasks. A new task has an id of its own (letters, digits and '-'), one of the agents below, a prompt that says all "
    "that its agent must know, and the tasks whose results it needs. Of a task that you edit, give the needs as they "
    "shall be, and the prompt, or an empty one where it stays as it is. When something must use a new result, edit it "
    "so that it needs the new task. Say why in two sentences."
)

_NEEDS: JsonValue = {
    "type": "array",
    "description": "The tasks whose results it is given.",
    "items": {
        "type": "object",
        "properties": {
            "task": {"type": "string"},
            "policy": {"type": "string", "enum": [policy.value for policy in Policy]},
        },
        "required": ["task", "policy"],
        "additionalProperties": False,
    },
}


def _tasks(*more: str) -> JsonValue:
    keys: dict[str, JsonValue] = {"id": {"type": "string"}, "agent": {"type": "string"}, "prompt": {"type": "string"}}
    properties: dict[str, JsonValue] = {key: keys[key] for key in ("id", *more, "prompt")} | {"needs": _NEEDS}
    return {
        "type": "array",
        "items": {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        },
    }


SCHEMA: dict[str, JsonValue] = {
    "title": TITLE,
    "type": "object",
    "properties": {
        "why": {"type": "string"},
        "add": _tasks("agent"),
        "edit": _tasks(),
        "remove": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["why", "add", "edit", "remove"],
    "additionalProperties": False,
}


def is_replan(task: Task) -> bool:
    """Whether it is one of these."""
    return task.grows is not None and task.grows.is_replan


def most_added(tasks: Iterable[Task]) -> int:
    """How many tasks may be added to a plan of these by agents that look at it while it runs."""
    return sum(task.grows.max_tasks or 0 for task in tasks if task.grows is not None and task.grows.is_replan)


def assignment(most: int) -> str:
    """What its agent is asked."""
    return ASSIGNMENT.format(most=most)


def with_round(tasks: Sequence[Task], replan: Task, after: Collection[str]) -> tuple[Task, ...]:
    """The tasks with one that looks at what `after` came to; those that need one of these wait for it.

    Those that it needs itself, in one step or many, cannot wait for it.
    """
    by_id = {task.id: task for task in tasks}
    before = list(after)
    for id in before:
        before += [need.task for need in by_id[id].needs if need.task not in before]
    needs = tuple(
        Need(task=id, policy=Policy.OPTIONAL, form=Form.SUMMARY if by_id[id].summarise else Form.FULL) for id in after
    )
    wait = Need(task=replan.id, policy=Policy.OPTIONAL, form=Form.ORDER)
    held = [
        task.model_copy(update={"needs": (*task.needs, wait)})
        if task.id not in before and any(need.task in after for need in task.told_of)
        else task
        for task in tasks
    ]
    return (*held, replan.model_copy(update={"needs": needs}))


def told_of_plan(plan: Plan, task: Task) -> str:
    """The plan and the agents that it may use, as JSON: the words of others in it are texts, and stay such."""
    tasks: list[dict[str, JsonValue]] = [
        {
            "id": each.id,
            "agent": each.agent,
            "needs": {need.task: need.policy.value for need in each.told_of},
            "about": _about("".join(piece for piece in each.prompt if isinstance(piece, str))),
        }
        for each in plan.tasks
        if each.id != task.id
    ]
    agents: list[dict[str, JsonValue]] = [
        {"agent": agent.called, "can": list(agent.capabilities), "about": _about(agent.instructions)}
        for agent in plan.agents
    ]
    return "\n".join(f"[\n{lines}\n]" for lines in (",\n".join(_within(each)) for each in (tasks, agents)))


def _about(text: str) -> str:
    return " ".join(text.split())[:ABOUT]


def _within(values: Sequence[dict[str, JsonValue]]) -> Iterator[str]:
    room = LISTED_BYTES
    for told, value in enumerate(values):
        line = json.dumps(value, ensure_ascii=False)
        room -= len(line.encode())
        if room < 0:
            yield json.dumps({"more": len(values) - told})
            return
        yield line
