"""What a run and a task are started with, and what a run hands back."""

from __future__ import annotations

from datetime import timedelta

from domain.events import Event
from domain.models import Input, RunStatus, Usage, Value
from domain.progress import Census, Outline, Progress


class RunInput(Value):
    """What the supervisor is started with: outline and reference; after continue-as-new, how far it had come."""

    name: str
    plan_ref: str
    simulated: bool
    outline: Outline
    progress: Progress | None = None
    in_flight: tuple[str, ...] = ()
    continue_after: int | None = None
    """Continue as new after so many tasks, where a test wants it sooner than the server suggests it."""


class RunSummary(Value):
    """How a run ended. The report is in the store."""

    status: RunStatus
    census: Census
    tokens: Usage
    report_ref: str | None = None


class RunView(Value):
    """The state of a run now, with the events that are not in the store yet."""

    status: RunStatus
    census: Census
    events: tuple[Event, ...]


class TaskInput(Value):
    """What the workflow of one task is started with."""

    run: str
    chain: str
    task: str
    agent: str
    plan_ref: str
    inputs: tuple[Input, ...] = ()
    timeout: timedelta
    attempts: int


class Steering(Value):
    """Who asks for a change of a run, and why."""

    by: str = "someone"
    note: str | None = None
