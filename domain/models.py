"""The vocabulary: what a plan, a task, an agent and a result are."""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue


class Value(BaseModel):
    """An immutable value. Unknown fields are ignored, so that a newer writer does not stop an older reader."""

    model_config = ConfigDict(frozen=True)


class Policy(StrEnum):
    """What a dependant does when a need did not succeed."""

    REQUIRE = "require"
    TOLERATE = "tolerate"
    OPTIONAL = "optional"


class TaskStatus(StrEnum):
    """Where a task stands."""

    PENDING = "PENDING"
    READY = "READY"
    WAITING = "WAITING"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    TIMED_OUT = "TIMED_OUT"
    SKIPPED = "SKIPPED"
    CANCELLED = "CANCELLED"
    NOT_STARTED = "NOT_STARTED"


class RunStatus(StrEnum):
    """Where a run stands."""

    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    WAITING = "WAITING"
    COMPLETED = "COMPLETED"
    DEGRADED = "DEGRADED"
    PARTIAL = "PARTIAL"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


ENDED_RUN = frozenset(
    {RunStatus.COMPLETED, RunStatus.DEGRADED, RunStatus.PARTIAL, RunStatus.FAILED, RunStatus.CANCELLED}
)


class Need(Value):
    """An edge: the task that must end first, and what happens when it did not succeed."""

    task: str
    policy: Policy = Policy.TOLERATE


class Agent(Value):
    """Who does a task: a model with instructions and limits."""

    name: str
    version: str
    capabilities: tuple[str, ...] = ()
    model: str
    instructions: str
    max_concurrency: int | None = None
    timeout: timedelta | None = None
    attempts: int | None = None
    max_tokens: int | None = None

    @property
    def label(self) -> str:
        """Name and version, as reports show them."""
        return f"{self.name}@{self.version}"


class File(Value):
    """A file of the plan's folder as it was at submit."""

    path: str
    ref: str
    size: int


class Placement(Value):
    """The place in a prompt where upstream results go: one task, or all tasks of a fan-out."""

    name: str
    tasks: tuple[str, ...]


class Task(Value):
    """One task with every value in effect."""

    id: str
    agent: str
    type: str | None = None
    prompt: tuple[str | Placement, ...]
    files: tuple[File, ...] = ()
    payload: dict[str, JsonValue] = Field(default_factory=dict)
    needs: tuple[Need, ...] = ()
    timeout: timedelta
    attempts: int
    max_tokens: int


class Plan(Value):
    """A valid plan: ids are unique, needs exist, there is no cycle, every agent is here."""

    name: str
    max_concurrency: int
    agents: tuple[Agent, ...]
    tasks: tuple[Task, ...]


class Usage(Value):
    """Tokens by kind, as the provider bills them."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input=self.input + other.input,
            output=self.output + other.output,
            cache_read=self.cache_read + other.cache_read,
            cache_write=self.cache_write + other.cache_write,
        )


class Input(Value):
    """What a task gets from one of its needs: a result by reference, or the reason why there is none."""

    task: str
    status: TaskStatus
    ref: str | None = None
    why: str | None = None


class TaskError(Value):
    """Why a task did not succeed."""

    type: str
    message: str
    attempt: int = 0
    retryable: bool = False


class Answered(Value):
    """The agent answered."""

    kind: Literal["answered"] = "answered"
    output_ref: str
    output_bytes: int
    usage: Usage
    attempts: int


class Failed(Value):
    """The agent did not answer, or its answer does not count; a partial one is kept for people to read."""

    kind: Literal["failed"] = "failed"
    status: Literal[TaskStatus.FAILED, TaskStatus.TIMED_OUT, TaskStatus.CANCELLED] = TaskStatus.FAILED
    error: TaskError
    usage: Usage = Usage()
    output_ref: str | None = None
    output_bytes: int = 0


class Parked(Value):
    """A condition around the call, not a fault of it: start again at `until`, no attempt used."""

    kind: Literal["parked"] = "parked"
    why: Literal["wall", "pause", "worker"]
    what: str
    until: datetime | None = None


class Stopped(Value):
    """The run ended or was cancelled while the task was at work: nothing more is paid."""

    kind: Literal["stopped"] = "stopped"
    why: str


Outcome = Annotated[Answered | Failed | Parked | Stopped, Field(discriminator="kind")]


class TaskResult(Value):
    """What the child workflow of a task hands back."""

    outcome: Outcome


def ref_of(content: bytes) -> str:
    """The reference of a content: its hash, so that it can be checked wherever it is read."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
