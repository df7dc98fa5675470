"""RunClient: all that the command line and the dashboard may do with runs."""

from __future__ import annotations

import asyncio
import random
import secrets
import uuid
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from temporalio.client import (
    Client,
    WorkflowExecutionStatus,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from absence import is_unknown
from domain import large
from domain.amendments import Amendment, Change
from domain.cancelling import reason_of
from domain.chart import at_work
from domain.estimate import Estimate
from domain.events import timestamp
from domain.growing import edited
from domain.leaflet import run_details, run_summary
from domain.models import Plan, Priority, Task, ref_of
from domain.planning import Planned
from domain.progress import outline_of
from domain.regions import needed, regional
from domain.runs import RunInput
from domain.steering import Setting, Steered, Steering, TaskSteering
from heritage import NOTHING, Heritage
from payloads import check_size
from reader import RunReader, UnknownRun
from store import RUN_ID, Store
from telemetry.exporting import traced
from workflows.policies import queue_priority
from workflows.supervisor import SupervisorWorkflow
from workflows.window import attributes_of

__all__ = ["OtherPlan", "RunClient", "SteeringRefused", "UnknownRun"]

UPDATE_TIMEOUT = timedelta(seconds=30)
"""An update needs a worker too, and is worth a longer wait."""

UPDATE_TRY = timedelta(seconds=5)
"""For one try of an update; it is sent again under the same id."""

SEND_AGAIN, SEND_AGAIN_LAST = 0.2, 3.0
"""Seconds, more or less, until a change that did not get through is sent again: the first time, and at most."""

AT_ONCE = 8
"""Changes of this process under way: a server that has not been told otherwise takes ten of a run."""

PASSING = frozenset(
    {
        RPCStatusCode.RESOURCE_EXHAUSTED,  # too many updates of the run are under way
        RPCStatusCode.UNAVAILABLE,
        RPCStatusCode.FAILED_PRECONDITION,  # a workflow task failed meanwhile, as on a very busy worker
        RPCStatusCode.DEADLINE_EXCEEDED,
        RPCStatusCode.ABORTED,
        RPCStatusCode.CANCELLED,
    }
)
"""What Temporal says when the same words may get through a moment later."""

LIST_LAG = timedelta(minutes=1)
"""How far Temporal's list of workflows may be behind."""


class OtherPlan(ValueError):
    """The id belongs to a run of another plan."""


class SteeringRefused(Exception):
    """The run does not take this step now."""


class RunClient(RunReader):
    """Starts runs and steers them, and looks at them as any reader does."""

    def __init__(self, client: Client | None, store: Store) -> None:
        super().__init__(client, store)
        self._places = asyncio.Semaphore(AT_ONCE)

    # Start

    @traced("submit")
    async def submit(
        self,
        planned: Planned,
        *,
        id: str | None,
        simulated: bool,
        queue: str,
        provider: str | None = None,
        estimate: Estimate | None = None,
        continue_after: int | None = None,
        heritage: Heritage = NOTHING,
    ) -> str:
        """Start a run and give its id. The same id with the same plan is the same run, ended or not.

        `queue` is that of its mode; a plan with a region goes to the queue of that region.

        `provider` is where a live run asks, for people to read; `estimate` is what they were told it would cost, and
        `heritage` what earlier runs have done for it.
        """
        plan = planned.plan
        run = id or new_id(plan.name)
        if not RUN_ID.fullmatch(run):
            raise UnknownRun(f"{run!r} cannot be a run id: use letters, digits, '-', '_' and '.', at most 200")
        await self._store.claim()
        content = plan.model_dump_json().encode()
        input = RunInput(
            name=plan.name,
            plan_ref=await self._store.put_artifact(content),
            simulated=simulated,
            outline=outline_of(plan),
            continue_after=continue_after or large.history_of(len(plan.tasks)),
            kept=dict(heritage.kept),
            attributes=True,
            before=heritage.before,
            capped=dict(heritage.capped),
        )
        check_size("the plan's outline", input)
        for file in planned.contents.values():
            await self._store.put_artifact(file)
        manifest = {
            "run": run,
            "name": plan.name,
            "plan_ref": input.plan_ref,
            "simulated": simulated,
            "provider": provider,
            "submitted": timestamp(datetime.now(UTC)),
            **heritage.manifest(run),
        }
        if regions := needed(plan):
            manifest["regions"] = regions
        if estimate is not None:
            manifest["estimate_ref"] = await self._store.put_artifact(estimate.model_dump_json().encode())
        standing = await self._store.put_manifest(run, manifest)
        same = standing["simulated"] == simulated and heritage.is_of(standing)
        if same and await self._is_same(plan, standing["plan_ref"]):
            input = input.model_copy(update={"plan_ref": standing["plan_ref"]})
        else:
            raise OtherPlan(f"the run {run!r} exists with another plan: choose another --id")
        try:
            await self._start(run, input, plan, regional(queue, plan.region))
        except RPCError as error:
            if error.status is not RPCStatusCode.INVALID_ARGUMENT:
                raise
            # A server that does not know our search attributes says so like this: the run goes without them.
            await self._start(run, input.model_copy(update={"attributes": False}), plan, regional(queue, plan.region))
        return run

    async def _is_same(self, plan: Plan, ref: str) -> bool:
        """Whether this plan was submitted before. Its prices may have changed since: those of then stand.

        What its agents were chosen by is not written in plans before 0.7.0, and before 0.8.0 tasks of a list went by
        their items unless the plan said otherwise.
        """
        if ref == ref_of(plan.model_dump_json().encode()):
            return True
        then = Plan.model_validate_json(await self._store.artifact(ref))
        return _compared(then) == _compared(plan)

    async def _start(self, run: str, input: RunInput, plan: Plan, queue: str) -> None:
        known = plan.prices.models if plan.prices is not None else {}
        priced = all(agent.model in known for agent in plan.agents)
        try:
            await self._temporal.start_workflow(
                SupervisorWorkflow.run,
                input,
                id=run,
                task_queue=queue,
                task_timeout=large.patience_with(len(plan.tasks)),
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                memo={"plan_ref": input.plan_ref, "simulated": input.simulated},
                search_attributes=attributes_of(input.name, at_work(task.grows for task in plan.tasks), priced=priced)
                if input.attributes
                else None,
                static_summary=run_summary(plan, simulated=input.simulated),
                static_details=run_details(run, plan, simulated=input.simulated),
                priority=queue_priority(run, Priority.NORMAL),
            )
        except WorkflowAlreadyStartedError:
            return  # it has ended before: the same run

    # Steer

    async def cancel(self, run: str, by: str | None = None) -> None:
        """Ask Temporal to cancel the run, as the button in its Web UI does, and say who wants it so."""
        await self._handle(run).cancel(reason=reason_of(by))

    async def pause(self, run: str, by: str, note: str | None = None) -> Steered:
        """Start nothing new; calls at work finish."""
        return await self._steer(run, "pause", Steering(by=by, note=note))

    async def resume(self, run: str, by: str, note: str | None = None) -> Steered:
        """Go on after a pause."""
        return await self._steer(run, "resume", Steering(by=by, note=note))

    async def set(
        self,
        run: str,
        by: str,
        *,
        max_concurrency: int | None = None,
        budget: Decimal | None = None,
        note: str | None = None,
    ) -> Steered:
        """Change how many tasks may be at work at once, or what the run may spend."""
        setting = Setting(by=by, note=note, max_concurrency=max_concurrency, budget_usd=budget)
        return await self._steer(run, "set", setting)

    async def change(
        self,
        run: str,
        plan: Plan,
        base: Plan,
        base_ref: str,
        *,
        contents: Mapping[str, bytes],
        by: str,
        note: str | None = None,
    ) -> Steered:
        """Go on with another plan, made from the one that the run was seen to have."""
        asked = await self.amended(plan, base, base_ref, contents=contents, by=by, note=note)
        return await self._steer(run, "change", asked)

    async def amended(
        self, plan: Plan, base: Plan, base_ref: str, *, contents: Mapping[str, bytes], by: str, note: str | None = None
    ) -> Change:
        """What `change` is asked with. All that it names is in the store."""
        for content in contents.values():
            await self._store.put_artifact(content)
        amendment = Amendment(
            plan_ref=await self._store.put_artifact(plan.model_dump_json().encode()),
            base_ref=base_ref,
            outline=outline_of(plan),
            edited=edited(base, plan),
        )
        asked = Change(by=by, note=note, amendment=amendment)
        check_size("the plan's outline", asked)
        return asked

    async def approve(self, run: str, tasks: Iterable[str], by: str, note: str | None = None) -> Steered:
        """Let tasks start that wait for approval; the note goes to their agents."""
        return await self._steer(run, "approve", TaskSteering(by=by, note=note, tasks=tuple(tasks)))

    async def reject(self, run: str, tasks: Iterable[str], by: str, note: str | None = None) -> Steered:
        """Skip tasks that wait for approval, and what cannot do without them."""
        return await self._steer(run, "reject", TaskSteering(by=by, note=note, tasks=tuple(tasks)))

    async def skip(self, run: str, tasks: Iterable[str], by: str, note: str | None = None) -> Steered:
        """End tasks without doing them; one at work is stopped."""
        return await self._steer(run, "skip", TaskSteering(by=by, note=note, tasks=tuple(tasks)))

    async def retry(self, run: str, tasks: Iterable[str], by: str, note: str | None = None) -> Steered:
        """Do again what did not succeed: these tasks, or all, and what was skipped because of them."""
        return await self._steer(run, "retry", TaskSteering(by=by, note=note, tasks=tuple(tasks)))

    async def _steer(self, run: str, verb: str, steering: Steering) -> Steered:
        """Have one change made, exactly once, or hear why not.

        The id of the update is chosen here and sent along with every try, so that a run which has heard it already
        answers what it answered then.
        """
        try:
            async with self._places:
                answer = await self._update(run, verb, steering, id=uuid.uuid4().hex)
        except WorkflowUpdateFailedError as error:
            words = error.cause.message if isinstance(error.cause, ApplicationError) else str(error.cause)
            raise SteeringRefused(f"{verb} {run} was refused: {words}.") from error
        return answer or Steered(done="done")

    async def _update(self, run: str, verb: str, steering: Steering, id: str) -> Steered | None:
        """Send it until it was heard. Runs that were begun by release 0.2.0 answer nothing.

        Each try has a time of its own: one that reached a run just as it continued as new is never answered, and
        Temporal's client hides from a timeout around it that it was cancelled.
        """
        clock = asyncio.get_running_loop().time
        end, pause = clock() + UPDATE_TIMEOUT.total_seconds(), SEND_AGAIN
        may_be_made = False
        while True:
            try:
                answer = await self._handle(run).execute_update(
                    verb, steering, id=id, result_type=Steered, rpc_timeout=UPDATE_TRY
                )
            except WorkflowUpdateRPCTimeoutOrCancelledError as error:
                if (task := asyncio.current_task()) is not None and task.cancelling():
                    raise asyncio.CancelledError from error
            except RPCError as error:
                if error.status is RPCStatusCode.NOT_FOUND and may_be_made:
                    message = (
                        f"{verb} {run} was not answered, and the run has ended. It may have been applied: "
                        f"`events {run}` tells."
                    )
                    raise SteeringRefused(message) from error
                if error.status is RPCStatusCode.NOT_FOUND:
                    raise SteeringRefused(f"{verb} {run} was refused: the run has ended.") from error
                if error.status not in PASSING:
                    raise
            else:
                return Steered.model_validate(answer) if answer is not None else None
            may_be_made = True
            if clock() > end:
                message = (
                    f"No worker took {verb} {run} within {UPDATE_TIMEOUT.total_seconds():g} s. It may still be applied "
                    "when one comes: look before you send it again. Is this home up?"
                )
                raise SteeringRefused(message)
            await asyncio.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311  so that a crowd does not come back as one
            pause = min(2 * pause, SEND_AGAIN_LAST)

    async def open_runs(self) -> list[str]:
        """Runs of this store that Temporal has open. Its list lags behind, so what it may not know yet is asked for."""
        query = "WorkflowType = 'SupervisorWorkflow' AND ExecutionStatus = 'Running'"
        listed = {found.id async for found in self._temporal.list_workflows(query)}
        recent = timestamp(datetime.now(UTC) - LIST_LAG)
        manifests = [manifest for run in await self._store.runs() if (manifest := await self._store.manifest(run))]
        candidates = [m["run"] for m in manifests if m["run"] in listed or m["submitted"] > recent]
        return [run for run in candidates if await self.is_open(run)]

    async def is_open(self, run: str) -> bool:
        """Whether Temporal has the run open."""
        try:
            return (await self._handle(run).describe()).status is WorkflowExecutionStatus.RUNNING
        except RPCError as error:
            if is_unknown(error):
                return False
            raise


def _compared(plan: Plan) -> Plan:
    tasks, templates = (tuple(map(_task_compared, tasks)) for tasks in (plan.tasks, plan.templates))
    return plan.model_copy(update={"prices": None, "tasks": tasks, "templates": templates})


def _task_compared(task: Task) -> Task:
    each = task.each.model_copy(update={"numbered": False}) if task.each is not None else None
    return task.model_copy(update={"asked": (), "each": each})


def new_id(name: str) -> str:
    """An id that a person can read: the plan, the time, and a little chance."""
    return f"{name[:100]}-{datetime.now(UTC):%m%d-%H%M%S}-{secrets.token_hex(2)}"
