"""What happened, as data: numbered per run without gaps, in one envelope for every reader."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from pydantic import Field, JsonValue

from domain.models import Value

SOURCE = "/nightcrew/supervisor"


class EventType(StrEnum):
    """The kinds of events of a run."""

    RUN_SUBMITTED = "run.submitted"
    RUN_STARTED = "run.started"
    RUN_PAUSED = "run.paused"
    RUN_RESUMED = "run.resumed"
    RUN_CHANGED = "run.changed"
    RUN_WAITING = "run.waiting"
    RUN_COMPLETED = "run.completed"
    TASK_CREATED = "task.created"
    TASK_READY = "task.ready"
    TASK_STARTED = "task.started"
    TASK_WAITING = "task.waiting"
    TASK_RETRIED = "task.retried"
    TASK_COMPLETED = "task.completed"
    TASK_FAILED = "task.failed"
    TASK_SKIPPED = "task.skipped"
    TASK_SETTLED = "task.settled"
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
    type: EventType
    time: datetime
    task: str | None = None
    data: dict[str, JsonValue] = Field(default_factory=dict)


def timestamp(time: datetime) -> str:
    """RFC 3339 in UTC, to the millisecond, as every JSON of ours writes a time."""
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def to_envelope(run: str, event: Event) -> dict[str, Any]:
    """The event as it is stored and shown."""
    return {
        "id": f"{run}/{event.number}",
        "type": event.type.value,
        "source": SOURCE,
        "subject": run if event.task is None else f"{run}/{event.task}",
        "time": timestamp(event.time),
        "correlationid": run,
        "data": event.data,
    }


def from_envelope(envelope: dict[str, Any]) -> Event:
    """The event back from its envelope: the number is the end of the id, the task what follows the run."""
    run, _, task = envelope["subject"].partition("/")
    return Event(
        number=int(envelope["id"].removeprefix(f"{run}/")),
        type=EventType(envelope["type"]),
        time=datetime.fromisoformat(envelope["time"]),
        task=task or None,
        data=envelope["data"],
    )
