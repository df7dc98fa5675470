"""Plans that the simulator proposes: a few tasks side by side and one that merges them, one task for a small goal, or a
playbook that the goal is clearly of the kind of.

It reads the goal from the payload of the request, counts words and finds the names that it lists, and no more: enough
for the crew to be tried out.
"""

from __future__ import annotations

import json
import random
import re
from typing import Any

from simulator.choosing import chosen
from simulator.listing import names_in
from simulator.prompt import Prompt
from simulator.script import Then

TITLE = "nightcrew.plan"
SMALL = 5
"""Words of a goal that one agent can do in one call."""

ASPECTS = ("facts", "figures", "risks", "options")
_PAYLOAD = re.compile(r'<payload of="payload" mark="(\w+)">\n(.*?)\n</payload mark="\1">', re.DOTALL)
_COUNT = re.compile(
    r"\b(\d{1,3})\s+(?:\w+\s+){0,2}?(areas|items|parts|topics|markets|questions|tasks|cities|systems)\b", re.IGNORECASE
)


def proposed(prompt: Prompt, then: Then, chance: random.Random) -> Any:
    """A plan for the goal in the prompt; the same goal gets the same plan."""
    del then, chance
    given = _payload(prompt)
    written = str(given.get("goal", ""))
    goal, parts = " ".join(written.split()), _parts(written)
    names = [str(agent.get("name")) for agent in given.get("agents", []) if isinstance(agent, dict)] or ["nobody"]
    if (choice := chosen(goal, given.get("playbooks"))) is not None:
        name, params = choice
        values = [{"name": name, "value": value} for name, value in params.items()]
        return {"why": f"The goal is of the kind of {name}.", "playbook": name, "params": values, "tasks": []}
    if len(goal.split()) <= SMALL and not parts:
        why = "One agent can do this in one call, so the plan has one task."
        tasks = [_task("answer", _one_of(names, "writer"), f"Answer this: {_quoted(goal)}")]
        return {"why": why, "playbook": "", "params": [], "tasks": tasks}
    return {
        "why": "The parts do not depend on each other.",
        "playbook": "",
        "params": [],
        "tasks": _split(goal, parts, names),
    }


def _parts(goal: str) -> list[str]:
    """What the goal is about, one by one: the names that it lists, or as many parts as it speaks of, or nothing."""
    names = names_in(goal)
    if (found := _COUNT.search(goal)) is None or int(found.group(1)) == len(names):
        return names
    return [f"part {number}" for number in range(1, int(found.group(1)) + 1)]


def _split(goal: str, parts: list[str], names: list[str]) -> list[dict[str, Any]]:
    looks, weighs, writes = (_one_of(names, name) for name in ("researcher", "analyst", "writer"))
    if parts:
        each = _task("look", looks, f"Look at {{{{ item }}}} of {len(parts)}, and at no other: {_quoted(goal)}")
        tasks = [{**each, "items": parts}]
        ids = ["look"]
    else:
        tasks = [_task(f"{aspect}", looks, f"Find the {aspect} for this goal: {_quoted(goal)}") for aspect in ASPECTS]
        ids = list(ASPECTS)
    tasks.append(_task("weigh", weighs, f"What speaks for and against each way to this goal? {_quoted(goal)}"))
    last = _task("answer", writes, f"Make one answer of what was found: {_quoted(goal)}")
    return [*tasks, {**last, "needs": [*ids, "weigh"], "merge": True}]


def _task(id: str, agent: str, prompt: str) -> dict[str, Any]:
    return {"id": id, "agent": agent, "prompt": prompt, "needs": []}


def _one_of(names: list[str], wanted: str) -> str:
    return wanted if wanted in names else names[0]


def _quoted(goal: str) -> str:
    """The goal in a prompt of the plan: a placeholder in it stays text."""
    return goal[:2000].replace("{{", "\\{{")


def _payload(prompt: Prompt) -> dict[str, Any]:
    for text in prompt.texts:
        if (found := _PAYLOAD.search(text)) is not None:
            try:
                value = json.loads(found.group(2))
            except ValueError:
                return {}
            return value if isinstance(value, dict) else {}
    return {}
