"""The state of a running plan, as a value.

It is what continue-as-new carries, so it holds only codes, references and counts: 10,000 ended tasks must
fit one payload. How it changes is in `course.py`.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal

from pydantic import Field

from domain.models import (
    Plan,
    Policy,
    TaskStatus,
    Usage,
    Value,
)


class OutlineTask(Value):
    """What the supervisor must know of a task; prompt, files and payload stay in the store."""

    id: str
    agent: str
    needs: dict[str, Policy] = Field(default_factory=dict)
    timeout: timedelta
    attempts: int


class Outline(Value):
    """The plan without its texts."""

    max_concurrency: int
    pools: dict[str, int] = Field(default_factory=dict)
    tasks: tuple[OutlineTask, ...]


def outline_of(plan: Plan) -> Outline:
    """The outline of a plan: what travels to the supervisor, beside the reference of the whole."""
    return Outline(
        max_concurrency=plan.max_concurrency,
        pools={agent.name: agent.max_concurrency for agent in plan.agents if agent.max_concurrency is not None},
        tasks=tuple(
            OutlineTask(
                id=task.id,
                agent=task.agent,
                needs={need.task: need.policy for need in task.needs},
                timeout=task.timeout,
                attempts=task.attempts,
            )
            for task in plan.tasks
        ),
    )


class Ended(Value):
    """What dependants need of a task that has ended."""

    status: TaskStatus
    ref: str | None = None
    why: str | None = None
    cause: str | None = None


class Waiting(Value):
    """A started task that waits outside: for a wall to pass, or for the run to be resumed."""

    why: Literal["wall", "pause", "worker"]
    what: str
    since: datetime
    until: datetime | None = None


class Census(Value):
    """How many tasks are in which state; it adds up at every moment."""

    total: int
    succeeded: int = 0
    failed: int = 0
    timed_out: int = 0
    skipped: int = 0
    cancelled: int = 0
    not_started: int = 0
    pending: int = 0
    ready: int = 0
    waiting: int = 0
    running: int = 0


class Progress(Value):
    """How far a plan has come."""

    ended: dict[str, Ended] = Field(default_factory=dict)
    active: dict[str, datetime] = Field(default_factory=dict)
    parked: dict[str, Waiting] = Field(default_factory=dict)
    ready: dict[str, tuple[int, ...]] = Field(default_factory=dict)
    """Positions in the plan, by agent: the next task of an agent is the first of its line."""
    unmet: dict[str, int] = Field(default_factory=dict)
    """How many needs of a task have not ended yet; a task without an entry is past that."""
    begun: tuple[str, ...] = ()
    """Tasks that were at work once and have not ended: one that is ready again after a wall has still been started."""
    walls: dict[str, int] = Field(default_factory=dict)
    usage: Usage = Usage()
    peak: int = 0
    paused: bool = False
    cancelled: bool = False
    events: int = 0
