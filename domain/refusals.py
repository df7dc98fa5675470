"""A refusal: who may not do what, and why not. It is told as an event, and is the reason why a task fails.

It names patterns and names only: the path of a file, the name of an agent or of a model. Never a text.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from domain.rights import ANYTHING, Right, Unsaid
from domain.values import Value

REFUSED = "RightRefused"
"""What a task's error is called that had no right."""

MOST_TOLD = 10
"""Refusals of one call that are told: the rest is counted. A task may have hundreds of files."""

DISABLED, RETIRED = "disabled", "retired"
"""Why an agent may do nothing at all."""

A_TOOL = "*"
"""What a model asked for that wanted a tool. What it called it is its own text, and is told to nobody."""


class Refusal(Value):
    """One thing that an agent may not do."""

    agent: str
    right: Right | None
    """Which right it lacks. None: it may do nothing at all, for the reason that is in `thing`."""
    thing: str
    """What it wanted, as a right would name it: `claude-haiku-5-5`, `files:notes/a.md`, `results:writer`."""
    pattern: Annotated[str | None, Unsaid] = None
    """What was withdrawn and matches it. None: it never had the right."""
    by: Annotated[str | None, Unsaid] = None
    """Who withdrew it, or disabled or retired the agent."""
    at: Annotated[datetime | None, Unsaid] = None

    @property
    def sentence(self) -> str:
        """Who may not do what, and why not."""
        if self.right is None:
            return f"agent {self.agent!r} is {self.thing}{f' (by {self.by})' if self.by else ''}"
        if self.is_of_model:
            return f"the model of agent {self.agent!r} asked for a tool, and was given none"
        why = f"it has no right '{_written(self.right, self.thing)}'"
        if self.pattern is not None:
            at = f", {self.at:%Y-%m-%d %H:%M} UTC" if self.at is not None else ""
            why = f"'{_written(self.right, self.pattern)}' was withdrawn by {self.by or 'somebody'}{at}"
        return f"agent {self.agent!r} may not {_deed(self.right, self.thing)}: {why}"

    @property
    def is_of_model(self) -> bool:
        """Whether it was the model that asked for something: whatever its agent may do, it was given no tool."""
        return self.right is Right.TOOLS and self.thing == A_TOOL and self.pattern is None

    @property
    def command(self) -> str | None:
        """What gives the right back, as it is typed after `./starter.py`. None: somebody must change the definition."""
        agent = shlex.quote(self.agent)
        if self.right is None:
            return f"agents enable {agent}" if self.thing == DISABLED else None
        return f"agents grant {agent} {self.right} {shlex.quote(self.pattern)}" if self.pattern is not None else None

    @property
    def remedy(self) -> str | None:
        """What to do about it."""
        if self.command is not None:
            return f"./starter.py {self.command}"
        mendable = self.right is not None and not self.is_of_model
        return f"add it to the rights of {self.agent!r}" if mendable else None


def told(refusals: Sequence[Refusal]) -> str:
    """The first of them as a sentence, and how many more there are."""
    more = f", and {len(refusals) - 1} more" if len(refusals) > 1 else ""
    return f"{refusals[0].sentence}{more}"


def _written(right: Right, pattern: str) -> str:
    """A right as it is named. Money is there or not, or a sum that is not enough: it has no patterns."""
    return right.value if right is Right.BUDGET and pattern == ANYTHING else f"{right}: {pattern}"


def _deed(right: Right, thing: str) -> str:
    if right is Right.DATA:
        kind, _, name = thing.partition(":")
        words = {"files": "the file", "results": "results of agent", "urls": "the address"}
        return f"read {words[kind]} {name!r}" if kind in words else f"read {name!r}"
    return {
        Right.MODELS: f"use the model {thing!r}",
        Right.TOOLS: f"use the tool {thing!r}",
        Right.REGIONS: f"be called in the region {thing!r}",
        Right.BUDGET: "spend money" if thing == ANYTHING else f"bring what it has spent in this run to ${thing}",
    }[right]
