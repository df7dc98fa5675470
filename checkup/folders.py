"""Whether a folder can be written, or could be made."""

from __future__ import annotations

import tempfile
from pathlib import Path


def nearest(place: Path) -> Path:
    """The folder itself, or the first above it that exists."""
    return next(found for found in (place, *place.parents) if found.exists())


def why_unwritable(place: Path) -> str | None:
    """What the system says when somebody writes there; nothing when it can be done."""
    try:
        with tempfile.TemporaryFile(dir=nearest(place)):
            return None  # asked by doing: rights alone do not tell of a read-only disk
    except OSError as error:
        return error.strerror or type(error).__name__
