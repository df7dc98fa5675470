"""The vocabulary: what a plan, a task, an agent and a result are."""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, JsonValue

from domain.prices import PriceList
from domain.values import Spent as Spent  # noqa: PLC0414
from domain.values import Usage as Usage  # noqa: PLC0414  part of the vocabulary: everyone finds it here
from domain.values import Value as Value  # noqa: PLC0414


class Policy(StrEnum):
    """What a dependant does when a need did not succeed."""

    REQUIRE = "require"
    TOLERATE = "tolerate"
    OPTIONAL = "optional"


class Form(StrEnum):
    """How the result of a need reaches a dependant: whole, or as a summary with the reference of the whole."""

    FULL = "full"
    SUMMARY = "summary"


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
    BUDGET_STOPPED = "BUDGET_STOPPED"
    DEADLINE_PASSED = "DEADLINE_PASSED"


GOING_RUN = frozenset({RunStatus.RUNNING, RunStatus.PAUSED, RunStatus.WAITING, RunStatus.STALLED})
ENDED_RUN = frozenset(RunStatus) - GOING_RUN

Unsaid = Field(exclude_if=lambda value: not value)
"""For fields that most values do not use: what is not said stays unwritten. So what older code wrote keeps its hash, by
which a paid answer is found again, and a state of ten thousand tasks stays small."""

Deadline = timedelta | datetime
"""So long after the start of the run, or at this time."""

OnBudget = Literal["stop", "wait"]


class Need(Value):
    """An edge: the task that must end first, and what happens when it did not succeed."""

    task: str
    policy: Policy = Policy.TOLERATE
    form: Annotated[Form, Field(exclude_if=lambda form: form is Form.FULL)] = Form.FULL
    """In effect: the word of the edge, else by how many need the task."""


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
    summarise: Annotated[bool, Unsaid] = False
    """Whether a dependant takes its result as a summary: then its agent is asked to give one."""
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
    budget: Decimal | None = None
    """US dollars that the run and its retries together may spend."""
    on_budget: OnBudget = "stop"
    """What happens when nothing that is left fits the budget."""
    agents: tuple[Agent, ...]
    tasks: tuple[Task, ...]
    prices: PriceList | None = None
    """What its models cost, as the person who submitted it was shown. None before 0.5.0: its cost is not known."""


class Account(Value):
    """What the ledger knows of one step of a task."""

    calls: tuple[Spent, ...] = ()
    attempts: int = 0
    """The number of the last attempt that made a call."""
    output_ref: str | None = None
    """What there is of an answer that was cut off."""
    output_bytes: int = 0


class Input(Value):
    """What a task gets from one of its needs: a result by reference, or the reason why there is none."""

    task: str
    status: TaskStatus
    ref: str | None = None
    """Of what the agent is given: the result or, when `whole` is there, its summary."""
    why: str | None = None
    whole: Annotated[str | None, Unsaid] = None
    """Of a summary: the reference of the result that it is of."""
    whole_bytes: Annotated[int, Unsaid] = 0


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
    model: Annotated[str | None, Unsaid] = None
    """Who was asked, when it was not the model of the task's agent: of a call for a summary."""


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
    summary_ref: Annotated[str | None, Unsaid] = None
    """Of a task that is asked for a summary; of a short text it is the text itself."""
    summary_bytes: Annotated[int, Unsaid] = 0
    aside: Annotated[tuple[Spent, ...], Unsaid] = ()
    """Calls beside that of the agent: for a summary. Not in `usage`."""
    accounted: bool = False
    """Whether every call is told of that may have cost something: the ledger may not have answered."""
    batched: bool = False
    """Whether it came in a batch: all of its usage costs half."""

    @property
    def spent(self) -> Usage:
        """What its answer and all that belongs to it has cost, without the attempts in vain."""
        return sum((call.usage for call in self.aside), self.usage)


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
    accounted: bool = False
    """Whether every call is told of that may have cost something. A worker that was lost tells nothing."""
    waited_s: float = 0.0
    """Seconds for which its last attempt waited for quota."""
    batched: bool = False
    """Whether its usage is of a batch, and costs half."""


WallKind = Literal["rate", "spend", "key", "model", "unreachable", "overload", "pool", "disk"]
"""What stands in the way: a condition of the account (spend, key, unreachable), of a model, or of an agent (pool).

Or the disk of the store, which has no room for an answer: it concerns every task, as the account does.
"""


class Parked(Value):
    """A condition around the call, not a fault of it: start again at `until`, no attempt used."""

    kind: Literal["parked"] = "parked"
    why: Literal["wall", "pause", "worker", "budget", "batch"]
    what: str
    until: datetime | None = None
    wall: WallKind | None = None
    """Of a wall: which. None only in histories before 0.3.0, where every task had a wall of its own."""
    tries: tuple[Try, ...] = ()
    """The attempts that this start has used before it met the condition."""
    accounted: bool = False
    """Whether every call of this start is told of that may have cost something."""


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
