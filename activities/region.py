"""An agent that is bound to a region is asked there and nowhere else.

Temporal hands its tasks to the workers of the region alone. This is for what a run may hand out that does not know of
regions yet, because its workflows are done by an older worker: it is handed back, and nothing is asked.
"""

from __future__ import annotations

import platform
from datetime import UTC, datetime, timedelta

from domain.models import Agent

WAIT = timedelta(minutes=1)
"""Then it is handed out again: by another worker, maybe."""


class OtherRegion(Exception):
    """The agent must be asked elsewhere; `until` is when to hand its task out again."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.until = datetime.now(UTC) + WAIT


def check_region(agent: Agent, here: str | None) -> None:
    """Pass an agent that may be asked here."""
    if agent.region in (None, here):
        return
    where = f"for the region {here}" if here is not None else "for no region"
    message = (
        f"the worker on {platform.node()} is there {where}, and the agent {agent.name!r} is bound to {agent.region}: "
        "bring the workers of the run up to date"
    )
    raise OtherRegion(message)
