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


class Priority(StrEnum):
    """How urgent a task is among those that could start."""

    LOW = "low"
    NORMAL = "normal"
    HIGH = "high"


class Pace(StrEnum):
    """How places are filled: one by one as they become free, or all at once when all have become free."""

    WINDOW = "window"
    WAVES = "waves"


class Latency(StrEnum):
    """How long an answer may take: it is asked for now, or at half the price within a day."""

    NORMAL = "normal"
    RELAXED = "relaxed"


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
    STALLED = "STALLED"
    """Seen by a reader, never written by the run: a run that stands still cannot say so."""
    COMPLETED = "COMPLETED"
    DEGRADED = "DEGRADED"
    PARTIAL = "PARTIAL"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    DEADLINE_PASSED = "DEADLINE_PASSED"


GOING_RUN = frozenset({RunStatus.RUNNING, RunStatus.PAUSED, RunStatus.WAITING, RunStatus.STALLED})
ENDED_RUN = frozenset(RunStatus) - GOING_RUN

Deadline = timedelta | datetime
"""So long after the start of the run, or at this time."""


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


class Approval(Value):
    """A person must agree before a task starts."""

    ask: str | None = None
    """What the person is asked."""
    expires: timedelta | None = None
    """How long the question stands."""
    on_expiry: Literal["reject", "approve"] = "reject"


class Task(Value):
    """One task with every value in effect."""

    id: str
    agent: str
    type: str | None = None
    prompt: tuple[str | Placement, ...]
    files: tuple[File, ...] = ()
    payload: dict[str, JsonValue] = Field(default_factory=dict)
    needs: tuple[Need, ...] = ()
    quorum: int | None = None
    """How many of the optional needs must have succeeded."""
    approval: Approval | None = None
    priority: Priority = Priority.NORMAL
    deadline: Deadline | None = None
    """From the start of the run, or a time."""
    timeout: timedelta
    """One attempt, from request to end."""
    time_limit: timedelta | None = None
    """The whole task, from its first start, with all its attempts and waits."""
    attempts: int
    max_tokens: int
    latency: Latency = Latency.NORMAL
    shares: tuple[str, ...] | None = None
    """The documents that go first because siblings have them too, in order; none of them: the agent's word alone.
    None where there are no siblings, and in plans before 0.5.0."""


class Plan(Value):
    """A valid plan: ids are unique, needs exist, there is no cycle, every agent is here."""

    name: str
    max_concurrency: int
    mode: Pace = Pace.WINDOW
    deadline: Deadline | None = None
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


class Try(Value):
    """One attempt that brought no answer: why, when it ended, and what it may have cost."""

    attempt: int
    error: TaskError
    at: datetime
    usage: Usage = Usage()
    """What the provider itself said of its cost."""
    unsettled: Usage = Usage()
    """What it may have cost on top, at most: the provider did not come to say."""


class Answered(Value):
    """The agent answered."""

    kind: Literal["answered"] = "answered"
    output_ref: str
    output_bytes: int
    usage: Usage
    attempts: int
    tries: tuple[Try, ...] = ()
    """The attempts before, in vain. Their usage is not in `usage`."""
    waited_s: float = 0.0
    """Seconds for which its last attempt waited for quota."""
    batched: bool = False
    """Whether it came in a batch: all of its usage costs half."""


class Failed(Value):
    """The agent did not answer, or its answer does not count; a partial one is kept for people to read."""

    kind: Literal["failed"] = "failed"
    status: Literal[TaskStatus.FAILED, TaskStatus.TIMED_OUT, TaskStatus.CANCELLED] = TaskStatus.FAILED
    error: TaskError
    usage: Usage = Usage()
    unsettled: Usage = Usage()
    """What the last attempt may have cost on top, at most."""
    output_ref: str | None = None
    output_bytes: int = 0
    tries: tuple[Try, ...] = ()
    """The attempts before the last one."""
    asked: bool = False
    """Whether the provider was asked, and took the call: not when a worker or the store was lost before."""
    waited_s: float = 0.0
    """Seconds for which its last attempt waited for quota."""
    batched: bool = False
    """Whether its usage is of a batch, and costs half."""


WallKind = Literal["rate", "spend", "key", "model", "unreachable", "overload", "pool"]
"""What stands in the way: a condition of the account (spend, key, unreachable), of a model, or of an agent (pool)."""


class Parked(Value):
    """A condition around the call, not a fault of it: start again at `until`, no attempt used."""

    kind: Literal["parked"] = "parked"
    why: Literal["wall", "pause", "worker", "batch"]
    what: str
    until: datetime | None = None
    wall: WallKind | None = None
    """Of a wall: which. None only in histories before 0.3.0, where every task had a wall of its own."""
    tries: tuple[Try, ...] = ()
    """The attempts that this start has used before it met the condition."""


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
