"""The word of an agent that is asked whether a plan should change: one more task in the first round, then nothing."""

from __future__ import annotations

import json
import random
import re
from typing import Any

from simulator.prompt import Prompt
from simulator.prose import sentence_of
from simulator.script import Then

_PLAN = re.compile(r'<plan [^\n]* mark="(\w+)">\n(.*?)\n</plan mark="\1">', re.DOTALL)
_LINE = re.compile(r"^(\{.*\}),?$", re.MULTILINE)
TITLE = "nightcrew.changes"
FIRST = "replan-1"


def changed(prompt: Prompt, then: Then, chance: random.Random) -> Any:  # noqa: ARG001
    """A task that looks closer at the first result, used by those that use that result."""
    why = f"[Simulated change] {sentence_of(prompt, chance)}"
    nothing: dict[str, Any] = {"why": why, "add": [], "edit": [], "remove": []}
    lists = [found[2] for text in prompt.texts for found in _PLAN.finditer(text)]
    lines = [json.loads(line) for each in lists for line in _LINE.findall(each)]
    tasks = {line["id"]: line for line in lines if "id" in line}
    read = [title for title in prompt.titles if title in tasks and "/" not in title]
    if prompt.task != FIRST or not read or "follow-up" in tasks:
        return nothing
    source = read[0]
    new = {
        "id": "follow-up",
        "agent": tasks[source]["agent"],
        "prompt": "Look closer at the weakest point of what you are given.",
        "needs": [{"task": source, "policy": "tolerate"}],
    }
    edits = [
        {"id": id, "prompt": "", "needs": [*_needs(task), {"task": "follow-up", "policy": "optional"}]}
        for id, task in tasks.items()
        if source in task["needs"] and not re.search(r"[\[/]", id)
    ]
    return {**nothing, "add": [new], "edit": edits[:1]}


def _needs(task: dict[str, Any]) -> list[dict[str, str]]:
    return [{"task": id, "policy": policy} for id, policy in task["needs"].items()]
