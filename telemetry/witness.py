"""The witness: binds run, task and attempt to everything an activity logs, and tells what came of it.

One interceptor of the worker, so that no activity and no workflow has to think of it. It only looks: it changes neither
a request nor a result, and gives Temporal no command.
"""

from __future__ import annotations

from typing import Any, NoReturn

import structlog
from opentelemetry import metrics, trace
from temporalio import activity, workflow
from temporalio.exceptions import ApplicationError, FailureError
from temporalio.exceptions import CancelledError as Cancelled
from temporalio.worker import (
    ActivityInboundInterceptor,
    ContinueAsNewInput,
    ExecuteActivityInput,
    ExecuteWorkflowInput,
    Interceptor,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
    WorkflowOutboundInterceptor,
)

from activities.contract import RUN_AGENT, AgentReply, AgentRequest
from domain.models import Parked, Stopped
from telemetry.lines import names_of, remember_workflow

RUN = "SupervisorWorkflow"

log = structlog.get_logger()
_meter = metrics.get_meter("nightcrew")
_at_work = _meter.create_up_down_counter(
    "nightcrew.agents.at_work", unit="{agent}", description="Agents at work in this worker"
)
_failed = _meter.create_counter(
    "nightcrew.attempts.failed", unit="{attempt}", description="Attempts that failed, by error.type"
)


class Witness(Interceptor):
    """Given to every Worker of ours."""

    def __init__(self) -> None:
        activity.logger.activity_info_on_message = False  # the names are on the line already
        workflow.logger.workflow_info_on_message = False
        workflow.logger.unsafe_disable_sandbox()  # our log handler is not workflow code

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        """Look at activities."""
        return _Activities(next)

    def workflow_interceptor_class(
        self,
        input: WorkflowInterceptorClassInput,  # noqa: ARG002
    ) -> type[WorkflowInboundInterceptor]:
        """Look at workflows."""
        return _Workflows


def _used_before(input: ExecuteActivityInput) -> int:
    """Attempts of earlier starts of the task: Temporal counts those of this one."""
    request = input.args[0] if input.args else None
    return request.used if isinstance(request, AgentRequest) else 0


class _Activities(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        """The activity, watched. The names stay bound: the SDK's own lines after it are in the same task."""
        info = activity.info()
        names = names_of(info.workflow_id, info.attempt + _used_before(input))
        structlog.contextvars.bind_contextvars(**names)
        span = trace.get_current_span()
        span.set_attributes({f"nightcrew.{name}": value for name, value in names.items() if value is not None})
        place = 1 if info.activity_type == RUN_AGENT else 0
        _at_work.add(place)
        try:
            reply = await super().execute_activity(input)
        except Exception as error:
            kind = _kind_of(error)
            span.set_attribute("error.type", kind)
            _failed.add(1, {"error.type": kind, "nightcrew.activity": info.activity_type})
            foreseen = isinstance(error, FailureError)
            log.warning("attempt_failed", activity=info.activity_type, error=kind, exc_info=not foreseen)
            raise
        finally:
            _at_work.add(-place)
        if isinstance(reply, AgentReply):
            _tell(reply)
        return reply


class _Workflows(WorkflowInboundInterceptor):
    def init(self, outbound: WorkflowOutboundInterceptor) -> None:
        """Look at what the workflow asks for, too."""
        super().init(_Outbound(outbound))

    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:
        """The workflow, watched. The logger is silent during a replay."""
        info = workflow.info()
        remember_workflow(info.run_id, info.workflow_id, info.attempt)
        if info.workflow_type != RUN:
            return await super().execute_workflow(input)
        if info.continued_run_id is None:
            workflow.logger.info("run_started")
        try:
            summary = await super().execute_workflow(input)
        except Cancelled:
            _tell_end("CANCELLED")
            raise
        except ApplicationError as error:
            _tell_end("FAILED", error=error.type)
            raise
        _tell_end(str(summary.status))
        return summary


class _Outbound(WorkflowOutboundInterceptor):
    def continue_as_new(self, input: ContinueAsNewInput) -> NoReturn:
        """Say that the run goes on with a fresh history."""
        workflow.logger.info("run_continues")
        super().continue_as_new(input)


def _tell(reply: AgentReply) -> None:
    match reply.outcome:
        case Parked(why=why, until=until):
            log.info("task_parked", why=why, until=until.isoformat() if until else None)
        case Stopped(why=why):
            log.info("task_stopped", why=why)


def _tell_end(status: str, **more: str | None) -> None:
    workflow.logger.info("run_ended", extra={"told": {"status": status, **more}})


def _kind_of(error: Exception) -> str:
    """An error's name: of ours the type that Temporal is told."""
    return error.type if isinstance(error, ApplicationError) and error.type else type(error).__name__
