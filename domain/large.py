"""Runs so large that their histories must be kept short."""

from __future__ import annotations

from datetime import timedelta

LARGE = 1_000
"""Tasks beyond which a run is large: whoever replays one of its histories needs more time for every event."""

HISTORY = 250
"""Tasks that end in one history of a large run, so that it replays in a few seconds. Of others the server decides."""

PATIENCE = timedelta(seconds=30)
"""How long a workflow task of a large run may take, 10 s by default. A replay that takes longer would begin again and
again; and as long a worker that is lost in the middle of one is waited for."""


def history_of(tasks: int) -> int | None:
    """How many tasks may end in one history of a run with so many, if that is not for the server to say."""
    return HISTORY if tasks > LARGE else None


def patience_with(tasks: int) -> timedelta | None:
    """How long a workflow task of a run with so many tasks may take, if that is not what it has anyway."""
    return PATIENCE if tasks > LARGE else None
