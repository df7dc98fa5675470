"""One task at work: ask the agent, hand back what came of it. Every long wait is the supervisor's."""

from __future__ import annotations

import asyncio

from temporalio import exceptions, workflow
from temporalio.common import VersioningBehavior
from temporalio.exceptions import ActivityError, ApplicationError, CancelledError, TimeoutType, is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    from activities.contract import MESSAGE_LIMIT, RUN_AGENT, AgentReply, AgentRequest
    from domain.details import outcome_details, work_details
    from domain.leaflet import task_summary
    from domain.models import Answered, Failed, Stopped, TaskError, TaskResult, TaskStatus
    from domain.regions import regional
    from domain.runs import TaskInput
    from workflows import policies


@workflow.defn(versioning_behavior=VersioningBehavior.PINNED)
class TaskWorkflow:
    """One task, one child of the supervisor: its own history, its own id, visible by itself."""

    @workflow.run
    async def run(self, input: TaskInput) -> TaskResult:
        """Ask the agent; a failure is a result too, so that its reason reaches the supervisor whole."""
        workflow.set_current_details(work_details(input, workflow.now()))
        try:
            result = await self._ask(input)
        except (CancelledError, asyncio.CancelledError):
            workflow.set_current_details(outcome_details(Stopped(why="the task was cancelled"), workflow.now()))
            raise
        workflow.set_current_details(outcome_details(result.outcome, workflow.now()))
        return result

    async def _ask(self, input: TaskInput) -> TaskResult:
        request = AgentRequest(
            run=input.run,
            chain=input.chain,
            task=input.task,
            plan_ref=input.plan_ref,
            inputs=input.inputs,
            timeout=input.timeout,
            attempts=input.attempts,
            used=input.used,
            step=input.step,
            note=input.note,
            priority=input.priority,
            rank=input.rank,
            probe=input.probe,
            cap=input.cap,
        )
        try:
            reply = await workflow.execute_activity(
                RUN_AGENT,
                request,
                result_type=AgentReply,
                task_queue=regional(workflow.info().task_queue, input.region) if input.region else None,
                start_to_close_timeout=policies.attempt_timeout(input.timeout, input.calls),
                heartbeat_timeout=policies.HEARTBEAT_TIMEOUT,
                retry_policy=policies.agent_retry(max(1, input.attempts - input.used)),
                # A cancel waits for the door's word: an answer that came just then is paid for, and is kept.
                cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
                summary=task_summary(input.agent, input.task),
                priority=policies.queue_priority(input.run, input.priority),
            )
        except ActivityError as error:
            if is_cancelled_exception(error) or workflow.cancellation_reason() is not None:
                raise CancelledError("the task was cancelled") from error  # no failure: nobody wanted its end any more
            return TaskResult(outcome=_failed(error, input))
        if isinstance(reply.outcome, Stopped) and workflow.cancellation_reason() is None:
            # The door heard of the cancel before we did. Ours is on its way, unless the supervisor was terminated.
            await workflow.sleep(policies.CANCEL_ON_ITS_WAY, summary="for the supervisor's cancel")
        if workflow.cancellation_reason() is not None and not isinstance(reply.outcome, Answered):
            raise CancelledError("the activity ended normally after the cancel")
        return TaskResult(outcome=reply.outcome)


def _failed(error: ActivityError, input: TaskInput) -> Failed:
    """Why the last attempt failed: as the door told it, or as Temporal saw it when the door could not tell."""
    cause = error.cause
    if isinstance(cause, ApplicationError):
        if told := [detail for detail in cause.details if isinstance(detail, dict) and detail.get("kind") == "failed"]:
            return Failed.model_validate(told[0])
        return Failed(error=TaskError(type=cause.type or "ActivityFailed", message=cause.message[:MESSAGE_LIMIT]))
    if isinstance(cause, exceptions.TimeoutError) and cause.type is TimeoutType.HEARTBEAT:
        message = "the worker was lost again and again: whoever does this task is lost with it"
        return Failed(error=TaskError(type="WorkerLost", message=message, attempt=input.used, retryable=True))
    if isinstance(cause, exceptions.TimeoutError):
        message = (
            f"Task timeout after {input.timeout.total_seconds():g} s, attempt {input.attempts} of {input.attempts}"
        )
        lost = TaskError(type="TaskTimeout", message=message, attempt=input.attempts, retryable=True)
        return Failed(status=TaskStatus.TIMED_OUT, error=lost)
    return Failed(error=TaskError(type=type(cause).__name__, message=str(cause)[:MESSAGE_LIMIT]))
