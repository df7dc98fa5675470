"""What was said around a command, and how a command is carried out. Heavy imports wait until one is."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from terminal.outcome import Exit


class Said:
    """What was said before the command: it holds for every command."""

    home: Path | None = None
    json = False
    debug = False


def hear(home: Path | None, as_json: bool) -> None:  # noqa: FBT001
    """Options after the command add to those before it."""
    Said.home, Said.json = home or Said.home, as_json or Said.json


def session() -> Any:
    """The home that was named."""
    from terminal.session import Session

    return Session(Said.home)


def do(action: Coroutine[Any, Any, Exit]) -> int:
    """Carry out what was asked for; the exit code."""
    return asyncio.run(action)
