"""Finding out why a run stands still: what Temporal has handed out and not got back, and who could take it.

A run that is well is not asked anything: how its supervisor is described tells enough. Only what is suspect there, or a
run from which nothing has been heard for a while, is worth more questions, and there is a bound to them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from google.protobuf.timestamp_pb2 import Timestamp
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import (
    EventType,
    PendingActivityState,
    PendingWorkflowTaskState,
    TimeoutType,
    VersioningBehavior,
    WorkflowTaskFailedCause,
)
from temporalio.api.failure.v1 import Failure as TemporalFailure
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflow.v1 import PendingActivityInfo, PendingWorkflowTaskInfo
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryReverseRequest
from temporalio.client import Client, WorkflowExecutionDescription, WorkflowExecutionStatus
from temporalio.service import RPCError

from domain.models import RunStatus, TaskStatus
from domain.picture import Picture
from domain.stalls import (
    TIMED_OUT,
    Errand,
    Failure,
    NextStep,
    Stall,
    Workers,
    first_line,
    silent_tasks,
    stall_of_errand,
    stall_of_silence,
    stall_of_step,
    telling,
)
from pollers import pollers_on

TASKS_ASKED = 20
"""Tasks of one run that are asked for in one look, the longest at work first: what stops all stops these."""

PAGE, PAGES = 100, 5
"""Events of a history that are read from its end, and how often: a run may have gone on hearing of its tasks."""

PATIENCE = timedelta(seconds=3)
"""For one answer: who looks is shown what is known."""

OVER = {EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED, EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED}
"""Before these, nothing is said of the step that is to be done now."""


async def find_stall(
    client: Client, supervisor: WorkflowExecutionDescription, picture: Picture, now: datetime
) -> Stall | None:
    """Why this run stands still; none when it goes on, waits for something known, or Temporal does not answer.

    A run that is paused or waits does so on purpose: of such a run only the supervisor is looked at.
    """
    look = _Look(client, now)
    try:
        if stall := await look.at(supervisor, task=None):
            return stall
        for task in _silent(picture, now)[:TASKS_ASKED]:
            with suppress(RPCError):  # it has just ended, or is just being started
                child = await client.get_workflow_handle(f"{picture.run}/{task}").describe(rpc_timeout=PATIENCE)
                if child.status is WorkflowExecutionStatus.RUNNING and (stall := await look.at(child, task)):
                    return stall
    except RPCError:
        return None
    if _knows_what_for(picture) or not _has_nothing_handed_out(supervisor):
        return None
    return stall_of_silence(picture.moved, now)


def is_quiet(picture: Picture, now: datetime) -> bool:
    """Whether the tasks at work should be looked at."""
    return bool(_silent(picture, now))


def _silent(picture: Picture, now: datetime) -> tuple[str, ...]:
    at_work = {} if picture.paused else {id: picture.tasks[id].live for id in picture.of(TaskStatus.RUNNING)}
    return silent_tasks(at_work, picture.moved, now)


class _Look:
    """One look at a run: workflows one after the other, every queue asked for once."""

    def __init__(self, client: Client, now: datetime) -> None:
        self._client, self._now = client, now
        self._asked: dict[tuple[str, bool], tuple[str | None, ...]] = {}

    async def at(self, described: WorkflowExecutionDescription, task: str | None) -> Stall | None:
        """Why this workflow stands still, be it the supervisor or a task."""
        version = _pinned_to(described)
        raw = described.raw_description
        if raw.HasField("pending_workflow_task"):
            step = _step(raw.pending_workflow_task)
            if step.is_suspect(self._now):
                failure = await self._failure(described) if step.attempt > 1 else None
                workers = await self._workers(described.task_queue, version)
                if stall := stall_of_step(task, step, failure, workers, self._now):
                    return stall
        for pending in raw.pending_activities:
            errand = _errand(pending)
            if errand.is_suspect(self._now):
                if errand.keeps_failing:
                    errand = await self._with_its_beginning(described, pending.activity_id, errand)
                workers = await self._workers(errand.queue, version, activities=True)
                if stall := stall_of_errand(task, errand, workers, self._now):
                    return stall
        return None

    async def _workers(self, queue: str, version: str | None, *, activities: bool = False) -> Workers:
        if (polling := self._asked.get((queue, activities))) is None:
            pollers = await pollers_on(self._client, queue, activities=activities)
            polling = self._asked[queue, activities] = tuple(poller.version for poller in pollers)
        return Workers(queue=queue, polling=polling, pinned=version)

    async def _failure(self, described: WorkflowExecutionDescription) -> Failure | None:
        """How the step that is to be done failed before."""
        failures = []
        async for event in self._from_its_end(described):
            if event.event_type in OVER:
                break
            if failure := _failure(event):
                failures.append(failure)
        return telling(failures)

    async def _with_its_beginning(self, described: WorkflowExecutionDescription, id: str, errand: Errand) -> Errand:
        """The activity with the time of its first attempt; further back than we read, it is at least so old."""
        oldest = errand.since
        async for event in self._from_its_end(described):
            oldest = min(oldest, _time(event.event_time))
            scheduled = event.activity_task_scheduled_event_attributes
            if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED and scheduled.activity_id == id:
                break
        return errand.model_copy(update={"since": oldest})

    async def _from_its_end(self, described: WorkflowExecutionDescription) -> AsyncIterator[HistoryEvent]:
        request = GetWorkflowExecutionHistoryReverseRequest(
            namespace=self._client.namespace,
            execution=WorkflowExecution(workflow_id=described.id, run_id=described.run_id),
            maximum_page_size=PAGE,
        )
        for _ in range(PAGES):
            ask = self._client.workflow_service.get_workflow_execution_history_reverse
            page = await ask(request, retry=True, timeout=PATIENCE)
            for event in page.history.events:
                yield event
            if not page.next_page_token:
                return
            request.next_page_token = page.next_page_token


def _knows_what_for(picture: Picture) -> bool:
    """Whether the run is at work, or waits for something that is known."""
    waits = picture.walls or picture.of(TaskStatus.WAITING) or picture.of(TaskStatus.RUNNING)
    return picture.status is not RunStatus.RUNNING or bool(waits)


def _has_nothing_handed_out(described: WorkflowExecutionDescription) -> bool:
    raw = described.raw_description
    return not (raw.HasField("pending_workflow_task") or raw.pending_activities or raw.pending_children)


def _step(pending: PendingWorkflowTaskInfo) -> NextStep:
    return NextStep(
        attempt=pending.attempt,
        scheduled=_time(pending.scheduled_time),
        started=pending.state == PendingWorkflowTaskState.PENDING_WORKFLOW_TASK_STATE_STARTED,
    )


def _errand(pending: PendingActivityInfo) -> Errand:
    started = pending.state != PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED
    beats = started and pending.last_heartbeat_time.ToNanoseconds() > pending.last_started_time.ToNanoseconds()
    return Errand(
        name=pending.activity_type.name,
        queue=pending.activity_options.task_queue.name,
        attempt=pending.attempt,
        scheduled=_time(pending.scheduled_time),
        since=_time(pending.scheduled_time),
        started=started,
        lost=_lost(pending),
        beats=beats,
        endless=not pending.maximum_attempts,
        error=_said(pending.last_failure) if pending.HasField("last_failure") else None,
    )


def _lost(pending: PendingActivityInfo) -> datetime | None:
    """When the worker of the attempt before was last heard of, if that ended for its silence.

    The run's own errands are short, and do not say how they get on: their time runs out when their worker is lost.
    """
    timeout = pending.last_failure.timeout_failure_info.timeout_type
    own = not pending.maximum_attempts and timeout == TimeoutType.TIMEOUT_TYPE_START_TO_CLOSE
    if not own and timeout != TimeoutType.TIMEOUT_TYPE_HEARTBEAT:
        return None
    heard = max(pending.last_heartbeat_time.ToNanoseconds(), pending.last_started_time.ToNanoseconds())
    return datetime.fromtimestamp(heard / 1e9, UTC) if heard else None


def _failure(event: HistoryEvent) -> Failure | None:
    """What an event says of a step that failed."""
    at = _time(event.event_time)
    if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED:
        failed = event.workflow_task_failed_event_attributes
        cause = WorkflowTaskFailedCause.Name(failed.cause).removeprefix("WORKFLOW_TASK_FAILED_CAUSE_")
        return Failure(cause=cause, message=_said(failed.failure), at=at)
    timeout = event.workflow_task_timed_out_event_attributes.timeout_type
    return Failure(cause=TIMED_OUT, message="", at=at) if timeout == TimeoutType.TIMEOUT_TYPE_START_TO_CLOSE else None


def _pinned_to(described: WorkflowExecutionDescription) -> str | None:
    """The version whose workers alone may go on with a workflow."""
    versioning = described.raw_info.versioning_info
    if versioning.versioning_override.pinned.HasField("version"):
        version = versioning.versioning_override.pinned.version
    elif versioning.behavior == VersioningBehavior.VERSIONING_BEHAVIOR_PINNED:
        version = versioning.deployment_version
    else:
        return None
    return f"{version.deployment_name}.{version.build_id}"


def _said(failure: TemporalFailure) -> str:
    """What a failure says of itself, in one line: its type where it has one, and its message."""
    type = failure.application_failure_info.type
    return first_line(f"{type}: {failure.message}" if type else failure.message)


def _time(stamp: Timestamp) -> datetime:
    return stamp.ToDatetime(UTC)
