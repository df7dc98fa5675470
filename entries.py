"""What stands in the ledger of paid calls: what was going to be asked, and what came of it."""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Annotated

from pydantic import Field

from domain.models import Try, Unsaid, Usage, Value
from store import REF


def task_key(run: str, task: str) -> str:
    """Where the calls of a task are, whatever step they are of."""
    return f"{run}/{hashlib.sha256(task.encode()).hexdigest()[:32]}"


def step_key(run: str, task: str, step: int) -> str:
    """Where the calls of one step of a task are."""
    return f"{task_key(run, task)}/{step}"


NOBODY = ""
"""Of a setback that no start of its task has told: whoever ends the task does."""

NEVER_SENT = frozenset({"NotMade", "BatchNotSent"})
"""What became of an intent that no request has followed: it is no call."""


class Intent(Value):
    """A request that is about to be made: by whom, and what it may cost at most."""

    run: str
    task: str
    step: int
    start: str = ""
    """Which start of the task: the run id of its workflow. A task that was parked is started again."""
    attempt: int
    attempts: int = 0
    model: str
    max_tokens: int
    worst: Usage = Usage()
    at: datetime
    aside: bool = False
    """Whether it is for a call beside that of the agent: for a summary."""
    batch: str | None = None
    """The batch in which it goes, by our own name for it; none for a call."""
    agent: Annotated[str | None, Unsaid] = None
    """Who asks: name and version. Nobody wrote it down before 0.7.0."""
    reads: Annotated[str | None, Unsaid] = None
    """The hash of the list of what the agent was given to read."""


class Setback(Value):
    """A request that brought no answer, or none that is known of."""

    told: Try
    start: str
    used: bool = True
    """Whether it used an attempt of its task. A wall uses none, nor does a worker that is stopped."""
    output_ref: str | None = None
    """What there was of an answer that was called off."""
    output_bytes: int = 0


class Kept(Value):
    """What is written down of a completion. Its text is beside it, by hash."""

    text_ref: str = Field(pattern=f"^{REF.pattern}$")
    usage: Usage
    stop_reason: str
    number: int = Field(default=1, ge=1)
    batched: bool = False
