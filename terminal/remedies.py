"""What a person should do, as it is typed."""

from __future__ import annotations

from domain.report import Attention
from terminal.text import plain

STARTER = "./starter.py"
"""How the starter is called from the folder of the project, with the home beside it."""

TYPED = frozenset({"approval", "right", "failure", "stall"})
"""Kinds of attention that a command always answers."""


def remedy(found: Attention, starter: str) -> str:
    """What to do, as it is typed; what no command can do is a sentence."""
    typed = found.kind in TYPED or found.do.endswith("--budget USD")
    return f"{starter} {plain(found.do)}" if typed else plain(found.do)
