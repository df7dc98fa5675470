"""The vocabulary: what a plan, a task, an agent and a result are."""

from __future__ import annotations

import hashlib
import json
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, JsonValue

from domain.calls import Call as Call  # noqa: PLC0414
from domain.playbook import Playbook
from domain.prices import PriceList
from domain.refusals import Refusal
from domain.rights import Rights, Role, granted
from domain.values import Spent as Spent  # noqa: PLC0414
from domain.values import Usage as Usage  # noqa: PLC0414  part of the vocabulary: everyone finds it here
from domain.values import Value as Value  # noqa: PLC0414


class Policy(StrEnum):
    """What a dependant does when a need did not succeed."""

    REQUIRE = "require"
    TOLERATE = "tolerate"
    OPTIONAL = "optional"


class Form(StrEnum):
    """How the result of a need reaches a dependant: whole, as a summary with the reference of the whole, or not at all.

    By name, a dependant is told only whether there is a result: what stands in it comes to it in another text.
    """

    FULL = "full"
    SUMMARY = "summary"
    NAME = "name"
    ORDER = "order"
    """Nothing at all: it only waits until the need has ended."""


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

    PLANNING = "PLANNING"
    """Its planner is at work, and the plan is not there yet."""
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


GOING_RUN = frozenset({RunStatus.PLANNING, RunStatus.RUNNING, RunStatus.PAUSED, RunStatus.WAITING, RunStatus.STALLED})
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


class Check(Value):
    """A task that shows whether an agent can do what it is there for: what is asked, and what the answer must have."""

    prompt: str
    expect: str
    """A text that stands in the answer, whatever its case."""


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
    budget: Annotated[Decimal | None, Unsaid] = None
    """US dollars that all its tasks together may spend in a run and its retries."""
    own: Annotated[str | None, Unsaid] = None
    """Of an agent that a plan brings along: a short hash of what it is. None: it is one of the registry."""
    rights: Annotated[Rights | None, Field(exclude_if=lambda rights: rights is None)] = None
    """What it may do. None where nobody wrote any down: then what its definition and its plan hand it."""
    roles: Annotated[tuple[Role, ...], Unsaid] = ()
    """Rights under names, as they were defined when the run was submitted."""
    given: Annotated[tuple[Role, ...], Unsaid] = ()
    """Roles that the register had given it by then, on top of those of its definition."""
    region: Annotated[str | None, Unsaid] = None
    """Where its calls are made: only workers that were started for this region make them."""
    check: Annotated[Check | None, Unsaid] = None
    """The task that it must pass before it is onboarded."""
    alias: Annotated[str | None, Unsaid] = None
    """Name and version, where its plan has asked for a version that the name alone does not mean."""

    @property
    def called(self) -> str:
        """What the tasks of its plan call it. Two versions of one agent in one plan are called differently."""
        return self.alias or self.name

    @property
    def label(self) -> str:
        """Name and version, as reports show them."""
        return f"{self.name}@{self.version}"

    @property
    def granted(self) -> Rights | None:
        """What its rights and its roles grant together."""
        return granted(self.rights, (*self.roles, *self.given))

    @property
    def cap(self) -> Decimal | None:
        """US dollars that all its tasks together may spend in a run and its retries: the lesser of what is written."""
        rights = self.granted
        written = (self.budget, rights.budget_usd if rights is not None else None)
        return min((usd for usd in written if usd is not None), default=None)

    @property
    def pool(self) -> str:
        """What its instances are counted under: one of a plan is another than one of the registry with its name."""
        return f"{self.label}+{self.own}" if self.own else self.label

    def of_a_plan(self) -> Agent:
        """The agent as one that a plan brings along. Two plans with the same definition mean the same one."""
        what = [self.model, self.instructions, sorted(self.capabilities)]
        return self.model_copy(update={"own": ref_of(json.dumps(what).encode()).removeprefix("sha256:")[:6]})


class File(Value):
    """A file of the plan's folder as it was at submit."""

    path: str
    ref: str
    size: int


class Placement(Value):
    """The place in a prompt where upstream results go: one task, or all tasks of a fan-out."""

    name: str
    tasks: tuple[str, ...]
    field: Annotated[tuple[str, ...], Unsaid] = ()
    """The way to the field of the result that goes there; none: the whole result."""

    @property
    def written(self) -> str:
        """What stands between the braces."""
        return ".".join((self.name, *self.field))


class Approval(Value):
    """A person must agree before a task starts."""

    ask: str | None = None
    """What the person is asked."""
    expires: timedelta | None = None
    """How long the question stands."""
    on_expiry: Literal["reject", "approve"] = "reject"


class Expectation(Value):
    """What an answer must have before dependants use it."""

    mentions: tuple[str, ...] = ()
    """Texts that stand in it, whatever their case."""
    min_words: int = 0


class Review(Value):
    """Another agent must accept an answer before anybody uses it."""

    by: str
    """What the reviewer is called in the plan: `Agent.called`."""
    tries: int = 1
    """How often a rejected answer goes back to who gave it."""


class Grows(Value):
    """That the plan grows by the answer of a task, and within which limits."""

    kind: Literal["items", "plan", "changes"]
    """What the answer is: the items of a fan-out, the proposal of a plan, or of changes in the plan that runs."""
    max_tasks: Annotated[int | None, Unsaid] = None
    """How many tasks a proposal may have."""
    approval: Annotated[Approval | None, Unsaid] = None
    """Of a proposal that a person must agree to before it is part of the plan."""
    rounds: Annotated[int, Unsaid] = 0
    """Of changes: how often they may be asked for once more, when what was added has ended."""

    @property
    def is_replan(self) -> bool:
        """Whether the answer is about the plan alone, and no result of it."""
        return self.kind == "changes"


class Each(Value):
    """Of a task that stands for a fan-out: the task whose answer is the list, and how many items are taken at most."""

    source: str
    most: int
    at_once: Annotated[int | None, Unsaid] = None
    """How many of its tasks may be at work at once."""
    numbered: Annotated[bool, Unsaid] = False
    """Whether its tasks go by number: ids can be read by more people than items. At rest nothing is said where a plan
    asks for items in ids, which was the default before 0.8.0."""
    ask: Annotated[tuple[str, ...], Unsaid] = ()
    """The question of its approval, as the texts between which the item stands."""


class Merged(Value):
    """A text that others were merged into: the task that made it, and what is in it."""

    task: str
    sources: tuple[str, ...]
    """Ids of tasks and paths of files: where what is in it comes from in the end."""


class Task(Value):
    """One task with every value in effect."""

    id: str
    agent: str
    """What its agent is called in the plan: `Agent.called`."""
    asked: Annotated[tuple[str, ...], Unsaid] = ()
    """The capabilities that it was asked for by; none: its agent was named."""
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
    budget: Annotated[Decimal | None, Unsaid] = None
    """US dollars that its calls may cost in a run and its retries."""
    part: Annotated[str | None, Unsaid] = None
    """The plan inside the plan that it belongs to."""
    schema_: Annotated[dict[str, JsonValue] | None, Unsaid] = None
    """The JSON Schema of its answer. None: any text is one."""
    repairs: Annotated[int, Unsaid] = 0
    """How often its agent is asked again when an answer is not as it must be."""
    review: Annotated[Review | None, Unsaid] = None
    summarise: Annotated[bool, Unsaid] = False
    """Whether a dependant takes its result as a summary: then its agent is asked to give one."""
    expect: Annotated[Expectation | None, Unsaid] = None
    merge: Annotated[bool, Unsaid] = False
    """Whether it makes one text of its inputs, which names where each thing in it comes from."""
    merged: Annotated[tuple[Merged, ...], Unsaid] = ()
    """Of a task that merges more than one brief can hold: the texts that it is given in place of its sources."""
    latency: Latency = Latency.NORMAL
    shares: tuple[str, ...] | None = None
    """The documents that go first because siblings have them too, in order; none of them: the agent's word alone.
    None where there are no siblings, and in plans before 0.5.0."""
    grows: Annotated[Grows | None, Unsaid] = None
    """Of a task by whose answer the plan grows."""
    each: Annotated[Each | None, Unsaid] = None
    """Of a task that stands for a fan-out whose items are not known yet. It is never done itself."""
    fan: Annotated[str | None, Unsaid] = None
    """The id of the task that stood for it, when the plan has grown by it."""
    item: Annotated[str | None, Unsaid] = None
    """Its item, then: the text of another agent, which stands in its prompt as data."""

    @property
    def closes_with_summary(self) -> bool:
        """Whether its agent is asked for the summary in its answer: nothing may stand beside one by a schema."""
        return self.summarise and self.schema_ is None

    @property
    def told_of(self) -> tuple[Need, ...]:
        """The needs that it is told of; any other it only waits for."""
        return tuple(need for need in self.needs if need.form is not Form.ORDER)


class Part(Value):
    """A plan inside a plan: what its tasks have for themselves, from the first start of one until all have ended."""

    id: str
    places: int
    budget: Annotated[Decimal | None, Unsaid] = None
    """US dollars that its tasks together may spend in a run and its retries."""


class Goal(Value):
    """What holds for the plan that is made of a goal: nothing that the planner says changes it."""

    max_tasks: int
    simulated: bool = False
    governed: bool = False
    """Whether only agents with rights may be given work."""
    playbooks: tuple[Playbook, ...] = ()
    """Those that the planner may choose."""


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
    parts: Annotated[tuple[Part, ...], Unsaid] = ()
    """The plans inside it."""
    templates: Annotated[tuple[Task, ...], Unsaid] = ()
    """The tasks that stood for a fan-out before the plan grew by its items."""
    goal: Annotated[Goal | None, Unsaid] = None
    """Of a plan that a planner makes from a goal."""
    region: Annotated[str | None, Unsaid] = None
    """Where the run is: only workers that were started for this region do anything for it."""
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
    requests: Annotated[tuple[Call, ...], Unsaid] = ()
    """Each of these calls as the trail tells of it, those that were told of before too."""


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
    used: Annotated[bool, Field(exclude_if=lambda used: used)] = True
    """Whether it used an attempt. A wall uses none, nor does a worker that is stopped: both may cost all the same."""
    batched: Annotated[bool, Unsaid] = False
    """Whether it went in a batch: what it used costs half, and so does what it may have used."""


class Verdict(Value):
    """What a reviewer said of an answer. The words are kept by their reference."""

    by: str
    """Name and version."""
    accepted: bool
    ref: str


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
    """Calls beside the one that brought the answer: for a summary, for reviews, and answers that were not used.

    Not in `usage`."""
    reviews: Annotated[tuple[Verdict, ...], Unsaid] = ()
    """What was said of its answers, in order."""
    accounted: bool = False
    """Whether every call is told of that may have cost something: the ledger may not have answered."""
    batched: bool = False
    """Whether it came in a batch: all of its usage costs half."""
    calls: Annotated[tuple[Call, ...], Unsaid] = ()
    """Every request that no earlier start has told of, those before the answer too.

    Of the only one that there was, what stands here already is left out: model, tokens, and the hash of the answer."""
    refused: Annotated[tuple[Refusal, ...], Unsaid] = ()
    """What a call beside that of the agent had no right to: it was not made, or its answer not used."""

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
    """Whether its last attempt went in a batch: what it used costs half, and so does what it may have used."""
    calls: Annotated[tuple[Call, ...], Unsaid] = ()
    """Every request that no earlier start has told of."""
    refused: Annotated[tuple[Refusal, ...], Unsaid] = ()
    """What it failed for, when that is a right that its agent does not have."""
    aside: Annotated[tuple[Spent, ...], Unsaid] = ()
    """Calls that were answered on the way: answers that were not used, and reviews. Not in `usage`."""
    reviews: Annotated[tuple[Verdict, ...], Unsaid] = ()

    @property
    def spent(self) -> Usage:
        """What its last call and all that were answered before it have cost, without the attempts in vain."""
        return sum((call.usage for call in self.aside), self.usage)


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
    """The calls of this start in vain: those that used an attempt, and those that may have cost something."""
    accounted: bool = False
    """Whether every call of this start is told of that may have cost something, but for one in a batch."""
    in_batch: Annotated[bool, Unsaid] = False
    """Whether a request of the task is in a batch, of which nothing has come yet."""
    calls: Annotated[tuple[Call, ...], Unsaid] = ()
    """Every request of this start, those that met a wall too."""


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
