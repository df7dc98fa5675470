"""The playbook that the simulator's planner chooses: that whose `when` the goal speaks the words of, if it says enough.

Words are compared and lists are found, and no more: so whoever tries it out can tell beforehand what will be chosen.

    Answer one question from several systems at once, systems: crm, billing and support. Who is about to leave?
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

ALIKE = 3
"""Words that a goal must have in common with a `when`, short ones not counted."""

_WORD = re.compile(r"[^\W\d_]{4,}")
_NAME = r"\w[\w.-]*"
_LIST = rf"\b{{name}}:?\s+({_NAME}(?:,\s*{_NAME})*(?:,?\s+and\s+{_NAME})?)"
_BETWEEN = re.compile(r",?\s+and\s+|,\s*")
_SAMPLE = re.compile(r"such as \S+,\S")
_DEFAULT = "(default: "


def chosen(goal: str, playbooks: Any) -> tuple[str, dict[str, str]] | None:
    """The playbook that a goal is clearly for, and its parameters; of several the one it has most words of."""
    words = _words(goal)
    offers = [(len(words & _words(str(playbook["when"]))), playbook) for playbook in _read(playbooks)]
    alike, playbook = max(offers, key=lambda offer: offer[0], default=(0, {}))
    if alike < ALIKE or (params := _filled(goal, playbook["params"])) is None:
        return None
    return str(playbook["name"]), params


def _read(playbooks: Any) -> Iterator[dict[str, Any]]:
    for each in playbooks if isinstance(playbooks, list) else []:
        if isinstance(each, dict) and {"name", "when", "params"} <= each.keys() and isinstance(each["params"], dict):
            yield each


def _words(text: str) -> set[str]:
    return {word.lower() for word in _WORD.findall(text)}


def _filled(goal: str, params: dict[str, Any]) -> dict[str, str] | None:
    """What the goal says for each parameter. Nothing when one that must be given is not there."""
    filled: dict[str, str] = {}
    for name, about in params.items():
        if (items := _items(goal, name)) is not None:
            filled[name] = ",".join(items)
        elif _DEFAULT in str(about):
            continue
        elif _SAMPLE.search(str(about)):
            return None
        else:
            filled[name] = goal
    return filled


def _items(goal: str, name: str) -> list[str] | None:
    """The list that follows the name of a parameter: `systems: crm, billing and support`."""
    for found in re.finditer(_LIST.format(name=re.escape(name)), goal, re.IGNORECASE):
        items = [item.rstrip(".-") for item in _BETWEEN.split(found.group(1))]
        if len(items) > 1:
            return items
    return None
