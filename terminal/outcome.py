"""How a command ends: its exit code, and its errors for people and for scripts."""

from __future__ import annotations

import json
import re
import sys
from enum import IntEnum
from typing import Any

from domain.models import RunStatus
from domain.problems import Problem


class Exit(IntEnum):
    """What the exit code says."""

    DONE = 0
    CANNOT = 1
    WRONG = 2
    DEGRADED = 3
    FAILED = 4
    CANCELLED = 5
    MONEY = 6
    DEADLINE_PASSED = 7
    NOT_FINISHED = 8
    INTERRUPTED = 130


PIPED = 160
"""Columns where nobody said how many: a pipe has room for everything."""

BY_STATUS = {
    RunStatus.COMPLETED: Exit.DONE,
    RunStatus.DEGRADED: Exit.DEGRADED,
    RunStatus.PARTIAL: Exit.DEGRADED,
    RunStatus.FAILED: Exit.FAILED,
    RunStatus.CANCELLED: Exit.CANCELLED,
    RunStatus.BUDGET_STOPPED: Exit.MONEY,
    RunStatus.DEADLINE_PASSED: Exit.DEADLINE_PASSED,
}


def exit_for(status: RunStatus) -> Exit:
    """The exit code of a run's state; a run that is going is not finished."""
    return BY_STATUS.get(status, Exit.NOT_FINISHED)


STEERING = re.compile("[\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
"""Control characters that JSON leaves as they are, marks of direction, and halves of surrogate pairs."""


def ended(sentence: str) -> str:
    """The sentence with a sign at its end."""
    return sentence if sentence.endswith((".", "?", "!")) else f"{sentence}."


class Refusal(Exception):
    """A command that cannot be carried out: what is wrong, and the remedy."""

    def __init__(self, message: str, *, code: str, exit: Exit, problems: tuple[Problem, ...] = ()) -> None:
        super().__init__(message)
        self.code, self.exit, self.problems = code, exit, problems


def show_refusal(refusal: Refusal, *, as_json: bool) -> Exit:
    """Tell a person on stderr, or a script on stdout, why nothing was done."""
    if as_json:
        error = {"code": refusal.code, "message": str(refusal), "problems": [_plain(p) for p in refusal.problems]}
        print_json({"error": error})
    else:
        for problem in refusal.problems:
            sys.stderr.write(f"{problem}\n")
        sys.stderr.write(f"{refusal}\n")
    return refusal.exit


def print_json(document: dict[str, Any]) -> None:
    """One document on stdout."""
    sys.stdout.write(_encoded(document, indent=2) + "\n")


def print_line(document: dict[str, Any]) -> None:
    """One line of JSON Lines on stdout, at once."""
    sys.stdout.write(one_line_of_json(document) + "\n")
    sys.stdout.flush()


def one_line_of_json(document: dict[str, Any]) -> str:
    """One line of JSON Lines, for who writes several at once."""
    return _encoded(document)


def _encoded(document: dict[str, Any], indent: int | None = None) -> str:
    """JSON in which people can read every language, but no character steers a terminal."""
    text = json.dumps(document, ensure_ascii=False, indent=indent)
    return STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _plain(problem: Problem) -> dict[str, Any]:
    names = ("file", "line", "column", "task", "message", "hint")
    return {name: getattr(problem, name) for name in names}
