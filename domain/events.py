"""What happened, as data: numbered per run without gaps, in one envelope for every reader."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field, JsonValue

from domain.models import Value

SOURCE = "/nightcrew/supervisor"

SPEC_VERSION = "1.0"
"""Of CloudEvents: the envelope is one, in its JSON format."""


class EventType(StrEnum):
    """The kinds of events of a run."""

    RUN_SUBMITTED = "run.submitted"
    RUN_STARTED = "run.started"
    RUN_PAUSED = "run.paused"
    RUN_RESUMED = "run.resumed"
    RUN_CHANGED = "run.changed"
    RUN_WAITING = "run.waiting"
    RUN_COMPLETED = "run.completed"
    PLAN_CHANGED = "plan.changed"
    TASK_CREATED = "task.created"
    TASK_READY = "task.ready"
    TASK_STARTED = "task.started"
    TASK_WAITING = "task.waiting"
    TASK_RETRIED = "task.retried"
    TASK_COMPLETED = "task.completed"
    TASK_FAILED = "task.failed"
    TASK_SKIPPED = "task.skipped"
    TASK_SETTLED = "task.settled"
    CALL_MADE = "call.made"
    RIGHT_REFUSED = "right.refused"
    REVIEW_GIVEN = "review.given"
    WAVE_STARTED = "wave.started"
    APPROVAL_NEEDED = "approval.needed"
    APPROVAL_GIVEN = "approval.given"
    APPROVAL_REFUSED = "approval.refused"
    APPROVAL_EXPIRED = "approval.expired"
    BUDGET_LOW = "budget.low"
    BUDGET_STOPPED = "budget.stopped"
    QUOTA_WALL = "quota.wall"
    QUOTA_CLEARED = "quota.cleared"


class Event(Value):
    """One fact of a run. It carries references and figures, never a prompt or an answer."""

    number: int
    type: Annotated[EventType | str, Field(union_mode="left_to_right")]
    """One that is not among ours is of a newer version: it is passed on, and changes nothing."""
    time: datetime
    task: str | None = None
    data: dict[str, JsonValue] = Field(default_factory=dict)


def timestamp(time: datetime) -> str:
    """RFC 3339 in UTC, to the millisecond, as every JSON of ours writes a time."""
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(frozen=True)
class Logged:
    """An event as the log of a run has it: whose it is, who told it, and what it belongs to."""

    run: str
    event: Event
    correlation: str
    """The family of the run: the first of a run and its retries. Before 0.7.0 the run itself."""
    source: str = SOURCE

    @property
    def subject(self) -> str:
        """The run, or a task of it."""
        return self.run if self.event.task is None else f"{self.run}/{self.event.task}"

    @property
    def envelope(self) -> dict[str, Any]:
        """The event as it is stored and shown."""
        return {
            "specversion": SPEC_VERSION,
            "id": f"{self.run}/{self.event.number}",
            "type": str(self.event.type),
            "source": self.source,
            "subject": self.subject,
            "time": timestamp(self.event.time),
            "correlationid": self.correlation,
            "datacontenttype": "application/json",
            "data": self.event.data,
        }


def to_envelope(run: str, event: Event) -> dict[str, Any]:
    """The event of a run that is the first of its family."""
    return Logged(run, event, correlation=run).envelope


def from_envelope(envelope: dict[str, Any]) -> Event:
    """The event alone."""
    return logged(envelope).event


def logged(envelope: dict[str, Any]) -> Logged:
    """The event back from its envelope: the number is the end of the id, the task what follows the run."""
    run, _, task = envelope["subject"].partition("/")
    event = Event(
        number=int(envelope["id"].removeprefix(f"{run}/")),
        type=envelope["type"],
        time=datetime.fromisoformat(envelope["time"]),
        task=task or None,
        data=envelope["data"],
    )
    return Logged(run, event, correlation=envelope["correlationid"], source=envelope["source"])
