"""RunClient: all that the command line and the dashboard may do with runs."""

from __future__ import annotations

import asyncio
import secrets
from datetime import UTC, datetime, timedelta

from temporalio.client import (
    WorkflowExecutionStatus,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from domain.events import timestamp
from domain.planning import Planned
from domain.progress import outline_of
from domain.runs import RunInput, Steering
from payloads import check_size
from reader import RunReader, UnknownRun
from store import RUN_ID
from workflows.supervisor import SupervisorWorkflow

__all__ = ["OtherPlan", "RunClient", "SteeringRefused", "UnknownRun"]

UPDATE_TIMEOUT = timedelta(seconds=30)
"""An update needs a worker too, and is worth a longer wait."""

LIST_LAG = timedelta(minutes=1)
"""How far Temporal's list of workflows may be behind."""


class OtherPlan(ValueError):
    """The id belongs to a run of another plan."""


class SteeringRefused(Exception):
    """The run does not take this step now."""


class RunClient(RunReader):
    """Starts runs and steers them, and looks at them as any reader does."""

    # Start

    async def submit(
        self, planned: Planned, *, id: str | None, simulated: bool, queue: str, continue_after: int | None = None
    ) -> str:
        """Start a run and give its id. The same id with the same plan is the same run, ended or not."""
        plan = planned.plan
        run = id or new_id(plan.name)
        if not RUN_ID.fullmatch(run):
            raise UnknownRun(f"{run!r} cannot be a run id: use letters, digits, '-', '_' and '.', at most 200")
        content = plan.model_dump_json().encode()
        input = RunInput(
            name=plan.name,
            plan_ref=await self._store.put_artifact(content),
            simulated=simulated,
            outline=outline_of(plan),
            continue_after=continue_after,
        )
        check_size("the plan's outline", input)
        for file in planned.contents.values():
            await self._store.put_artifact(file)
        manifest = {
            "run": run,
            "name": plan.name,
            "plan_ref": input.plan_ref,
            "simulated": simulated,
            "submitted": timestamp(datetime.now(UTC)),
        }
        standing = await self._store.put_manifest(run, manifest)
        if (standing["plan_ref"], standing["simulated"]) != (input.plan_ref, simulated):
            raise OtherPlan(f"the run {run!r} exists with another plan: choose another --id")
        await self._start(run, input, queue)
        return run

    async def _start(self, run: str, input: RunInput, queue: str) -> None:
        try:
            await self._temporal.start_workflow(
                SupervisorWorkflow.run,
                input,
                id=run,
                task_queue=queue,
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                memo={"plan_ref": input.plan_ref, "simulated": input.simulated},
                static_summary=f"{input.name}: {len(input.outline.tasks)} tasks",
            )
        except WorkflowAlreadyStartedError:
            return  # it has ended before: the same run

    # Steer

    async def cancel(self, run: str) -> None:
        """Ask Temporal to cancel the run, as the button in its Web UI does."""
        await self._handle(run).cancel()

    async def pause(self, run: str, by: str) -> None:
        """Start nothing new; calls at work finish."""
        await self._update(run, "pause", Steering(by=by))

    async def resume(self, run: str, by: str) -> None:
        """Go on after a pause."""
        await self._update(run, "resume", Steering(by=by))

    async def _update(self, run: str, verb: str, steering: Steering) -> None:
        try:
            async with asyncio.timeout(UPDATE_TIMEOUT.total_seconds()):
                await self._handle(run).execute_update(verb, steering)
        except WorkflowUpdateFailedError as error:
            words = error.cause.message if isinstance(error.cause, ApplicationError) else str(error.cause)
            raise SteeringRefused(f"{verb} {run} was refused: {words}.") from error
        except (WorkflowUpdateRPCTimeoutOrCancelledError, TimeoutError) as error:
            message = f"No worker took {verb} {run} yet; it is applied when one comes. Is this home up?"
            raise SteeringRefused(message) from error

    async def open_runs(self) -> list[str]:
        """Runs of this store that Temporal has open. Its list lags behind, so what it may not know yet is asked for."""
        query = "WorkflowType = 'SupervisorWorkflow' AND ExecutionStatus = 'Running'"
        listed = {found.id async for found in self._temporal.list_workflows(query)}
        recent = timestamp(datetime.now(UTC) - LIST_LAG)
        manifests = [manifest for run in await self._store.runs() if (manifest := await self._store.manifest(run))]
        candidates = [m["run"] for m in manifests if m["run"] in listed or m["submitted"] > recent]
        return [run for run in candidates if await self._is_running(run)]

    async def _is_running(self, run: str) -> bool:
        try:
            return (await self._handle(run).describe()).status is WorkflowExecutionStatus.RUNNING
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return False
            raise


def new_id(name: str) -> str:
    """An id that a person can read: the plan, the time, and a little chance."""
    return f"{name[:100]}-{datetime.now(UTC):%m%d-%H%M%S}-{secrets.token_hex(2)}"
