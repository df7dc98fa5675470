"""What workflows and clients see of the activities: names, requests and replies, free of effects."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Annotated

from temporalio.exceptions import ApplicationError, FailureError, TerminatedError, is_cancelled_exception

from domain.audit import Head
from domain.events import Event
from domain.models import Account, Failed, Input, Outcome, Priority, Stopped, TaskError, TaskStatus, Unsaid, Value
from domain.regions import base_of, with_suffix

RUN_AGENT = "run_agent"
AWAIT_TASKS = "await_tasks"
APPEND_EVENTS = "append_events"
CLOSE_RUN = "close_run"
SETTLE = "settle"
GROW_PLAN = "grow_plan"

QUOTA_BANK = "QuotaBank"
DRAW = "draw"

MESSAGE_LIMIT = 500
"""Characters of an error message: it is carried in histories, briefs and reports."""


class AgentRequest(Value):
    """One step of one task: who asks, and where the texts are. Prompts are read by the activity, not carried here."""

    run: str
    chain: str
    """The first run id of the supervisor's chain: another run of the same name is not ours."""
    task: str
    step: int = 1
    plan_ref: str
    inputs: tuple[Input, ...] = ()
    timeout: timedelta
    attempts: int
    used: int = 0
    """Attempts that earlier starts of the task have used: the count of this activity goes on from there."""
    note: str | None = None
    """What the person who approved the task has to say to its agent."""
    priority: Priority = Priority.NORMAL
    rank: int = 0
    """Its place in the order of its run, where calls wait."""
    probe: bool = False
    """Whether it is to find out if a wall still stands: a provider without capacity is then that wall."""
    cap: Decimal | None = None
    """US dollars that the calls of this step may cost at most: what is not covered by it is not asked."""


class AgentReply(Value):
    """What came of it. A wall or a stopped run is a reply: Temporal counts every raised failure as an attempt."""

    outcome: Outcome


class AwaitRequest(Value):
    """The tasks in flight that an earlier run of the supervisor had started."""

    run: str
    tasks: tuple[str, ...]


class TaskEnd(Value):
    """The end of one task's child workflow, however it came."""

    task: str
    outcome: Outcome


class AwaitReply(Value):
    """The tasks that have ended so far: at least one."""

    ends: tuple[TaskEnd, ...]


class EventsRequest(Value):
    """Events to append, numbered without gaps."""

    run: str
    events: tuple[Event, ...]
    head: Annotated[Head | None, Unsaid] = None
    """That of the audit trail, after which they stand there too. None: it is empty, or of before 0.7.0."""


class EventsReply(Value):
    """The head of the audit trail now."""

    head: Head


class SettleRequest(Value):
    """A task that ended without telling what its calls have cost."""

    run: str
    task: str
    step: int
    over: bool = False
    """Whether the whole run is: nobody waits for any of its batches any more."""


class SettleReply(Value):
    """What the ledger knows of it."""

    account: Account


class GrowRequest(Value):
    """A task by whose answer the plan of its run grows."""

    run: str
    plan_ref: str
    task: str
    output_ref: str
    over: Annotated[tuple[str, ...], Unsaid] = ()
    """Fan-outs over its list that have ended already: they stay as they are."""
    agreed: Annotated[bool, Unsaid] = False
    """Whether a person has agreed to it: then it is asked for once more."""


class CloseRequest(Value):
    """A run whose events are all written, and what its report is made from."""

    run: str
    plan_ref: str
    simulated: bool


class CloseReply(Value):
    """Where the report is, and what the run has cost."""

    report_ref: str
    cost_usd: str | None = None
    """Unknown before 0.5.0, and with a model that has no price."""


def outcome_of_failure(error: BaseException) -> Outcome:
    """What it means for a task that its child workflow did not hand back a result."""
    cause = error.__cause__ or error
    if is_cancelled_exception(error) or is_cancelled_exception(cause):
        return Stopped(why="the task was cancelled")
    if isinstance(cause, TerminatedError):
        return Failed(
            status=TaskStatus.CANCELLED,
            error=TaskError(type="Terminated", message="the task's workflow was terminated"),
        )
    kind = cause.type if isinstance(cause, ApplicationError) and cause.type else type(cause).__name__
    message = cause.message if isinstance(cause, FailureError) else str(cause)
    return Failed(error=TaskError(type=kind, message=message[:MESSAGE_LIMIT]))


def quota_id(account: str, queue: str) -> str:
    """The workflow id of the bank of an account: no run and no task can have it, their ids know neither sign.

    One for all regions: the provider counts what an account uses, wherever it is asked from.
    """
    return f"quota:{account}@{base_of(queue)}"


def account_and_queue(bank: str) -> tuple[str, str]:
    """Whose bank it is, by its workflow id."""
    account, _, queue = bank.removeprefix("quota:").partition("@")
    return account, queue


def quota_queue(queue: str) -> str:
    """The queue of the bank: nothing else stands in line before a draw. Workers of every region take its work."""
    return f"{base_of(queue)}-quota"


def control_queue(queue: str) -> str:
    """The queue of the supervisor's own small activities, with slots that waiting agents cannot take."""
    return with_suffix(queue, "-control")
