"""What a check says: that it is well, something to know, or a problem with its remedy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    name: str
    state: Literal["ok", "note", "problem"]
    what: str
    remedy: str | None = None


def ok(name: str, what: str) -> Finding:
    """All is well."""
    return Finding(name, "ok", what)


def note(name: str, what: str, remedy: str | None = None) -> Finding:
    """Nothing is wrong, but a person may want to know."""
    return Finding(name, "note", what, remedy)


def problem(name: str, what: str, remedy: str) -> Finding:
    """Something must be mended, and how."""
    return Finding(name, "problem", what, remedy)
