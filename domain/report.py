"""The report of a run, folded from its plan and its events: the same document while it runs and after its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from domain.events import Event, EventType, timestamp
from domain.graph import final_tasks
from domain.models import ENDED_RUN, Plan, RunStatus, Task, TaskError, TaskStatus, Usage, Value
from domain.progress import Census

INLINE_LIMIT = 64 * 1024
"""Bytes of an output that a report shows in place; a larger one is given by reference."""


class Wait(Value):
    """What a task waits for, since when and, where it can be known, until when."""

    reason: str = Field(serialization_alias="for")
    what: str | None = None
    since: str | None = None
    until: str | None = None


class TaskReport(Value):
    """One task in the report."""

    id: str
    agent: str
    type: str | None
    status: TaskStatus
    success: bool
    attempts: int
    timeout_s: float
    duration_s: float | None
    tokens: Usage
    wait: Wait | None
    error: TaskError | None
    cause: str | None
    output: str | None
    output_ref: str | None


class Concurrency(Value):
    """How many tasks were allowed at once, and how many there were."""

    max: int
    peak: int


class Report(Value):
    """The whole truth of a run."""

    schema_name: Literal["nightcrew.report/1"] = Field("nightcrew.report/1", serialization_alias="schema")
    run: str
    name: str
    status: RunStatus
    simulated: bool
    census: Census
    started: str | None
    finished: str | None
    duration_s: float | None
    tokens: Usage
    concurrency: Concurrency
    tasks: tuple[TaskReport, ...]
    outputs: dict[str, str | None]
    output: str | None

    def document(self) -> dict[str, Any]:
        """The report as JSON data, with the names of the interface."""
        return self.model_dump(mode="json", by_alias=True)


@dataclass
class TaskPicture:
    """What the events so far say of one task."""

    status: TaskStatus = TaskStatus.PENDING
    since: datetime | None = None
    started: datetime | None = None
    ended: datetime | None = None
    attempts: int = 0
    tokens: Usage = field(default_factory=Usage)
    wait: Wait | None = None
    error: TaskError | None = None
    cause: str | None = None
    output_ref: str | None = None
    output_bytes: int = 0


class Picture:
    """The state of a run as its events tell it. Readers keep one and add what is new."""

    def __init__(self, run: str, plan: Plan, *, simulated: bool) -> None:
        self.run, self.plan, self.simulated = run, plan, simulated
        self.tasks = {task.id: TaskPicture() for task in plan.tasks}
        self.last = 0
        self.started: datetime | None = None
        self.finished: datetime | None = None
        self.paused = False
        self._ended_as: RunStatus | None = None
        self._at_work = 0
        self._peak = 0

    def add(self, events: Iterable[Event]) -> None:
        """Take in what happened since; events already seen are passed over."""
        for event in events:
            if event.number <= self.last:
                continue
            self.last = event.number
            if event.task is None:
                self._add_to_run(event)
            else:
                self._add_to_task(self.tasks[event.task], event)

    def close_from_outside(self, status: RunStatus, time: datetime | None, reason: str) -> None:
        """The run ended without a word of its own, as when it is terminated: say what that means for its tasks."""
        self._ended_as, self.finished = status, time
        for task in self.tasks.values():
            if task.ended is None:
                end = TaskStatus.NOT_STARTED if task.started is None else TaskStatus.CANCELLED
                task.status, task.ended, task.wait = end, time, None
                task.error = TaskError(type="Stopped", message=reason)

    @property
    def status(self) -> RunStatus:
        """The state of the run."""
        if self._ended_as is not None:
            return self._ended_as
        if self.paused:
            return RunStatus.PAUSED
        states = {task.status for task in self.tasks.values()}
        at_work = states & {TaskStatus.RUNNING, TaskStatus.READY}
        return RunStatus.WAITING if TaskStatus.WAITING in states and not at_work else RunStatus.RUNNING

    @property
    def ended(self) -> bool:
        """Whether the run has ended."""
        return self.status in ENDED_RUN

    @property
    def census(self) -> Census:
        """The count of tasks by state."""
        counts = Counter(task.status.value.lower() for task in self.tasks.values())
        return Census(total=len(self.tasks), **counts)

    @property
    def tokens(self) -> Usage:
        """All tokens so far."""
        return sum((task.tokens for task in self.tasks.values()), Usage())

    def report(self, texts: Mapping[str, str], now: datetime) -> Report:
        """The document. `texts` has the outputs to show in place, by reference."""
        agents = {agent.name: agent.label for agent in self.plan.agents}
        tasks = tuple(self._task(task, agents[task.agent], texts, now) for task in self.plan.tasks)
        outputs = {id: self._text(self.tasks[id], texts) for id in final_tasks(self.plan)}
        return Report(
            run=self.run,
            name=self.plan.name,
            status=self.status,
            simulated=self.simulated,
            census=self.census,
            started=_stamp(self.started),
            finished=_stamp(self.finished),
            duration_s=_seconds(self.started, self.finished or now),
            tokens=self.tokens,
            concurrency=Concurrency(max=self.plan.max_concurrency, peak=self._peak),
            tasks=tasks,
            outputs=outputs,
            output=_joined(outputs),
        )

    def _add_to_run(self, event: Event) -> None:
        match event.type:
            case EventType.RUN_STARTED:
                self.started = event.time
            case EventType.RUN_PAUSED:
                self.paused = True
            case EventType.RUN_RESUMED:
                self.paused = False
            case EventType.RUN_COMPLETED:
                # After a bug of ours tasks may be open in the log: nothing is at work any more.
                status = RunStatus(str(event.data["status"]))
                self.close_from_outside(status, event.time, "the run ended before its task")

    def _add_to_task(self, task: TaskPicture, event: Event) -> None:
        data: dict[str, Any] = event.data
        task.since = event.time
        self._at_work -= task.status is TaskStatus.RUNNING
        match event.type:
            case EventType.TASK_CREATED:
                pass
            case EventType.TASK_READY:
                task.status, task.wait = TaskStatus.READY, None
            case EventType.TASK_STARTED:
                task.status, task.wait = TaskStatus.RUNNING, None
                task.started = task.started or event.time
                self._at_work += 1
                self._peak = max(self._peak, self._at_work)
            case EventType.TASK_WAITING:
                task.status = TaskStatus.WAITING
                task.wait = Wait(
                    reason=data["for"], what=data["what"], since=timestamp(event.time), until=data["until"]
                )
            case EventType.TASK_COMPLETED | EventType.TASK_FAILED | EventType.TASK_SKIPPED:
                self._end(task, event.time, data)

    def _end(self, task: TaskPicture, time: datetime, data: dict[str, Any]) -> None:
        task.status, task.ended, task.wait = TaskStatus(data["status"]), time, None
        task.attempts = data.get("attempts", 0)
        task.tokens = Usage.model_validate(data.get("tokens", {}))
        task.output_ref = data.get("output_ref")
        task.output_bytes = data.get("output_bytes", 0)
        task.cause = data.get("cause")
        if "error" in data:
            task.error = TaskError.model_validate(data["error"])
        elif "reason" in data:
            task.error = TaskError(type=task.status.value.title().replace("_", ""), message=data["reason"])

    def _task(self, task: Task, agent: str, texts: Mapping[str, str], now: datetime) -> TaskReport:
        seen = self.tasks[task.id]
        return TaskReport(
            id=task.id,
            agent=agent,
            type=task.type,
            status=seen.status,
            success=seen.status is TaskStatus.SUCCEEDED,
            attempts=seen.attempts,
            timeout_s=task.timeout.total_seconds(),
            duration_s=_seconds(seen.started, seen.ended or now),
            tokens=seen.tokens,
            wait=self._wait(task, seen),
            error=seen.error,
            cause=seen.cause,
            output=self._text(seen, texts),
            output_ref=seen.output_ref,
        )

    def _wait(self, task: Task, seen: TaskPicture) -> Wait | None:
        """Why a task is not at work: its inputs, a place, or what it said itself."""
        since = _stamp(seen.since)
        if seen.status is TaskStatus.PENDING and not self.ended:
            open_needs = [need.task for need in task.needs if self.tasks[need.task].ended is None]
            shown = ", ".join(open_needs[:5]) + (f" and {len(open_needs) - 5} more" if len(open_needs) > 5 else "")
            return Wait(reason="inputs", what=shown, since=since)
        if seen.status is TaskStatus.READY:
            return Wait(reason="pause" if self.paused else "slot", since=since)
        return seen.wait

    def _text(self, seen: TaskPicture, texts: Mapping[str, str]) -> str | None:
        return texts.get(seen.output_ref) if seen.output_ref else None


def _joined(outputs: Mapping[str, str | None]) -> str | None:
    """The text of the one final task; of several, each under its id, in plan order."""
    if len(outputs) == 1:
        return next(iter(outputs.values()))
    return "\n\n".join(f"{id}:\n{text}" for id, text in outputs.items() if text is not None) or None


def _stamp(time: datetime | None) -> str | None:
    return None if time is None else timestamp(time)


def _seconds(start: datetime | None, end: datetime) -> float | None:
    return None if start is None else round((end - start).total_seconds(), 3)
