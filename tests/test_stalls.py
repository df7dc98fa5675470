"""A run that stands still is found out, with the cause that the server gives; one that waits is left in peace."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from conftest import Bench, Run, eventually
from temporalio import workflow
from temporalio.api.workflowservice.v1 import SetWorkerDeploymentCurrentVersionRequest
from temporalio.client import Client, WorkflowExecutionDescription
from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import UnsandboxedWorkflowRunner, Worker, WorkerDeploymentConfig

from catalog import is_open, run_list
from checkup.findings import Finding
from checkup.runs import runs_go_on
from domain import details, stalls
from domain.course import Course
from domain.events import Event, EventType
from domain.models import RunStatus, TaskStatus
from domain.picture import Picture
from domain.planning import plan_from_text
from domain.progress import Progress
from domain.registry import Registry
from domain.runs import TaskInput
from domain.stalls import Cause, Stall
from domain.step import Step
from pollers import pollers_on
from simulator.server import Simulator
from stalls import find_stall
from versioning import unversioned_runner
from workflows.supervisor import SupervisorWorkflow
from workflows.task import TaskWorkflow

ONE = "tasks: [{id: only, agent: hand, prompt: Go., timeout: 60s}]"
TWO = "max_concurrency: 2\ndefaults: {agent: hand, timeout: 60s}\ntasks: [{id: a, prompt: Go.}, {id: b, prompt: Go.}]"
HANG = {"fault": "hang_before_headers"}
LATER = timedelta(minutes=3)
"""How much later whoever looks believes it is: nobody waits for two minutes."""


async def seen(run: Run, picture: Picture, later: timedelta = LATER) -> Stall | None:
    """What a look finds, later."""
    return await find_stall(run.temporal, await run.handle.describe(), picture, datetime.now(UTC) + later)


async def found(run: Run, picture: Picture, cause: Cause) -> Stall:
    """What a look finds as soon as this is the cause: at first a step is only on its way, or nobody has polled yet."""
    while (stall := await seen(run, picture)) is None or stall.cause is not cause:
        await asyncio.sleep(0.05)
    return stall


async def is_polled(bench: Bench) -> bool:
    """Whether somebody takes runs: from then on it is not for want of a worker that one stands still."""
    return bool(await pollers_on(bench.temporal, bench.queue))


def compute(seconds: float) -> None:
    """Be busy for so long."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


@pytest.fixture
def toy(bench: Bench, registry: Registry) -> Toy:
    return Toy(bench, registry)


class Toy:
    """Workflows that do what ours should never do, under the names of ours."""

    def __init__(self, bench: Bench, registry: Registry) -> None:
        self._bench, self._registry = bench, registry

    @asynccontextmanager
    async def at_work(
        self, *workflows: type, task_timeout: timedelta | None = None, **options: Any
    ) -> AsyncIterator[Run]:
        """A worker that has these instead of ours, and a run that it takes."""
        bench = self._bench
        async with self.worker(*workflows, **options):
            await eventually(partial(is_polled, bench))
            run = f"toy-{uuid.uuid4().hex[:8]}"
            await bench.temporal.start_workflow(
                "SupervisorWorkflow", id=run, task_queue=bench.queue, task_timeout=task_timeout
            )
            yield Run(run, bench.client, bench.temporal)
            await bench.temporal.get_workflow_handle(run).terminate()

    def worker(self, *workflows: type, **options: Any) -> Worker:
        options = {"workflow_runner": UnsandboxedWorkflowRunner(), **options}
        return Worker(self._bench.temporal, task_queue=self._bench.queue, workflows=workflows, **options)

    def picture(self, run: Run, *began: tuple[EventType, str]) -> Picture:
        """The run after these events."""
        planned = plan_from_text(ONE, file="toy.yaml", registry=self._registry, folder=self._bench.folder)
        picture = Picture(run.id, planned.plan, simulated=True)
        now = datetime.now(UTC)
        picture.add(
            Event(number=number, type=type, time=now, task=task) for number, (type, task) in enumerate(began, 1)
        )
        return picture


# What must not happen in workflow code


async def test_a_bug_in_the_code_of_a_task(crew: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The supervisor is well and waits; its task breaks off for ever. When the bug is mended, the run goes on."""

    def work_details(input: TaskInput, now: datetime) -> str:
        raise KeyError("agent\x1b[31m")

    monkeypatch.setattr(details, "work_details", work_details)
    run = await crew.start(ONE)
    picture = await run.until(lambda picture: bool(picture.of(TaskStatus.RUNNING)))

    stall = await found(run, picture, Cause.BUG)

    assert stall.task == "only"
    assert "WORKFLOW_WORKER_UNHANDLED_FAILURE: KeyError: 'agent" in stall.what
    assert stall.what.isprintable()
    assert stall.since < datetime.now(UTC)
    assert await seen(run, picture, later=timedelta(0)) is None, "not yet"

    monkeypatch.undo()
    assert (await run.report()).status is RunStatus.COMPLETED


async def test_code_that_takes_too_long(crew: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def launch(self: Course, progress: Progress, now: datetime, unconfirmed: int | None = None) -> Step:
        compute(3)
        return Step(progress)

    monkeypatch.setattr(Course, "launch", launch)
    run = await crew.start(ONE)
    picture = await crew.client.glance(run.id)

    stall = await found(run, picture, Cause.SLOW_CODE)

    assert stall.task is None
    assert "TMPRL1101" in stall.what
    await run.handle.terminate()


async def test_code_that_was_changed_under_a_run(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second worker would have started the tasks in another order."""
    bench.simulator.script([{"when": {"contains": "Go."}, "then": HANG}])
    async with bench.worker():
        run = await bench.start(TWO)
        await bench.simulator.until(lambda: bench.simulator.in_flight == 2)
        picture = await bench.client.glance(run.id)
    honest = Course.launch

    def launch(self: Course, progress: Progress, now: datetime, unconfirmed: int | None = None) -> Step:
        step = honest(self, progress, now, unconfirmed)
        return replace(step, starts=tuple(reversed(step.starts)))

    monkeypatch.setattr(Course, "launch", launch)
    async with bench.worker():
        await bench.client.cancel(run.id)

        stall = await found(run, picture, Cause.CHANGED_CODE)

    assert stall.task is None
    assert "NON_DETERMINISTIC_ERROR" in stall.what
    assert "TMPRL1100" in stall.what
    await run.handle.terminate()


@workflow.defn(name="TaskWorkflow")
class LargeTask:
    """Hands over what no codec makes small."""

    @workflow.run
    async def run(self) -> str:
        return workflow.random().randbytes(2_000_000).hex()


@workflow.defn(name="SupervisorWorkflow")
class Parent:
    """Has one task at work."""

    @workflow.run
    async def run(self) -> None:
        await workflow.execute_child_workflow("TaskWorkflow", id=f"{workflow.info().workflow_id}/only")


@workflow.defn(name="SupervisorWorkflow")
class ManyChildren:
    """Has more tasks at work than Temporal allows."""

    @workflow.run
    async def run(self) -> None:
        run = workflow.info().workflow_id
        starts = [workflow.start_child_workflow("TaskWorkflow", id=f"{run}/{number}") for number in range(2_001)]
        await asyncio.gather(*starts)


@workflow.defn(name="SupervisorWorkflow")
class Deaf:
    """Does not come back in time."""

    @workflow.run
    async def run(self) -> None:
        compute(1.5)
        await workflow.wait_condition(lambda: False)


async def test_a_task_whose_result_is_too_large(toy: Toy) -> None:
    async with toy.at_work(Parent, LargeTask) as run:
        stall = await found(run, toy.picture(run, (EventType.TASK_STARTED, "only")), Cause.TOO_LARGE)

        assert stall.task == "only"
        assert "PAYLOADS_TOO_LARGE" in stall.what
        assert "TMPRL1103" in stall.what


async def test_more_tasks_at_work_than_temporal_allows(toy: Toy) -> None:
    # Without Temporal's own limit of 2 s for a step: on a busy machine 2,001 starts take longer, and it is not their
    # slowness that counts.
    async with toy.at_work(ManyChildren, debug_mode=True) as run:
        stall = await found(run, toy.picture(run), Cause.TOO_MANY)

        assert stall.task is None
        assert "PENDING_CHILD_WORKFLOWS_LIMIT_EXCEEDED" in stall.what
        assert "2000" in stall.what


async def test_a_worker_that_takes_a_step_and_does_not_answer(toy: Toy) -> None:
    async with toy.at_work(Deaf, task_timeout=timedelta(seconds=1), debug_mode=True) as run:
        stall = await found(run, toy.picture(run), Cause.NO_ANSWER)

        assert stall.task is None
        assert "TIMED_OUT" in stall.what


@workflow.defn(name="SupervisorWorkflow")
class Idle:
    """Has forgotten what it is there for."""

    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: False)


async def test_a_run_that_forgets_a_task_that_could_start(toy: Toy) -> None:
    """Nothing fails and nothing is awaited: that much can be said."""
    async with toy.at_work(Idle) as run:
        picture = toy.picture(run, (EventType.TASK_READY, "only"))

        stall = await found(run, picture, Cause.SILENCE)

        assert stall.task is None
        assert await seen(run, picture, later=timedelta(0)) is None


# Nobody there


async def test_no_worker_at_all(bench: Bench) -> None:
    run = await bench.start(ONE)
    picture = await bench.client.glance(run.id)

    stall = await found(run, picture, Cause.NO_WORKER)

    assert (stall.task, stall.do) == (None, "up")
    assert bench.queue in stall.what
    assert await seen(run, picture, later=timedelta(0)) is None, "a worker may be on its way"


@workflow.defn(name="TaskWorkflow")
class Call:
    """Waits for whoever makes its call."""

    @workflow.run
    async def run(self) -> None:
        await workflow.execute_activity("run_agent_task", start_to_close_timeout=timedelta(minutes=1))


async def test_nobody_makes_the_call_of_a_task(toy: Toy) -> None:
    """The supervisor has nothing to do: it is the task that nobody does."""
    async with toy.at_work(Parent, Call) as run:
        stall = await found(run, toy.picture(run, (EventType.TASK_STARTED, "only")), Cause.NO_WORKER)

    assert (stall.task, stall.do) == ("only", "up")


async def test_nobody_writes_the_events(bench: Bench) -> None:
    """A worker that does all but the supervisor's own activities: the run goes on in the dark."""
    worker = Worker(
        bench.temporal,
        task_queue=bench.queue,
        workflows=[SupervisorWorkflow, TaskWorkflow],
        workflow_runner=unversioned_runner(),
    )
    async with worker:
        await eventually(partial(is_polled, bench))
        run = await bench.start(ONE)
        picture = await bench.client.glance(run.id)

        stall = await found(run, picture, Cause.NO_WORKER)

    assert stall.task is None
    assert f"{bench.queue}-control" in stall.what


@workflow.defn(name="SupervisorWorkflow", versioning_behavior=VersioningBehavior.PINNED)
class Pinned:
    """Belongs to the version that it began on."""

    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: False)

    @workflow.signal
    def wake(self) -> None:
        """Something to do."""


async def test_a_version_that_no_worker_has(toy: Toy, temporal: Client) -> None:
    """Temporal says nothing at all: the first attempt waits, and others poll the queue."""
    deployment = f"crew-{uuid.uuid4().hex[:8]}"

    def of(build: str) -> dict[str, Any]:
        version = WorkerDeploymentVersion(deployment_name=deployment, build_id=build)
        return {"deployment_config": WorkerDeploymentConfig(version=version, use_worker_versioning=True)}

    async def is_current() -> bool:
        request = SetWorkerDeploymentCurrentVersionRequest(
            namespace=temporal.namespace, deployment_name=deployment, build_id="one"
        )
        try:
            await temporal.workflow_service.set_worker_deployment_current_version(request)
        except RPCError:
            return False  # the worker has not polled yet
        return True

    async def is_pinned() -> bool:
        return bool((await run.handle.describe()).raw_info.versioning_info.deployment_version.build_id)

    first = toy.worker(Pinned, **of("one"))
    async with first:
        await eventually(is_current)
        id = f"toy-{uuid.uuid4().hex[:8]}"
        await temporal.start_workflow("SupervisorWorkflow", id=id, task_queue=first.task_queue)
        run = Run(id, cast("Any", None), temporal)
        await eventually(is_pinned)
        assert [poller.version for poller in await pollers_on(temporal, first.task_queue)] == [f"{deployment}.one"]
    async with toy.worker(Pinned, **of("two")):
        await run.handle.signal("wake")
        stall = await found(run, toy.picture(run), Cause.NO_VERSION)

    assert stall.task is None
    assert f"{deployment}.one" in stall.what
    await run.handle.terminate()


async def test_a_store_that_is_gone(crew: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The supervisor's own activities have no other way: they are tried until the store answers."""
    monkeypatch.setattr(stalls, "FAILURES", 1)
    crew.simulator.script([{"when": {"contains": "Go."}, "then": HANG}])
    run = await crew.start(ONE)
    await crew.simulator.until(lambda: crew.simulator.in_flight == 1)
    picture = await run.until(lambda picture: bool(picture.of(TaskStatus.RUNNING)))
    (tmp_path / "store").rename(tmp_path / "elsewhere")
    (tmp_path / "store").touch()
    await crew.client.pause(run.id, by="a test")

    stall = await found(run, picture, Cause.ACTIVITY_FAILS)

    assert stall.task is None
    assert "append_events" in stall.what
    (tmp_path / "store").unlink()
    (tmp_path / "elsewhere").rename(tmp_path / "store")
    await eventually(lambda: _is_well(run, picture))
    await crew.client.cancel(run.id)
    await run.closed()


async def _is_well(run: Run, picture: Picture) -> bool:
    return await seen(run, picture) is None


# What is no stall


async def test_a_run_that_is_well_is_asked_nothing(crew: Bench) -> None:
    """Its supervisor was described anyway."""
    crew.simulator.script([{"when": {"contains": "Go."}, "then": HANG}])
    run = await crew.start(ONE)
    picture = await run.until(lambda picture: bool(picture.of(TaskStatus.RUNNING)))
    nobody = cast("Client", None)

    described = await run.handle.describe()

    assert await find_stall(nobody, described, picture, datetime.now(UTC)) is None
    await crew.client.cancel(run.id)
    await run.closed()


async def test_a_long_call_a_wall_and_a_pause_are_none(crew: Bench) -> None:
    """Of a long call nobody hears; the server knows that a worker is at it."""
    crew.simulator.script(
        [
            {"when": {"contains": "Hang."}, "then": HANG},
            {"when": {"contains": "Wall."}, "then": {"fault": "rate_limit", "retry_after": 600}},
        ]
    )
    calling = await crew.start("tasks: [{id: only, agent: hand, prompt: Hang., timeout: 60s}]")
    paused = await crew.start("tasks: [{id: only, agent: hand, prompt: Hang., timeout: 60s}]")
    await crew.simulator.until(lambda: crew.simulator.in_flight == 2)
    walled = await crew.start("tasks: [{id: only, agent: hand, prompt: Wall., timeout: 60s}]")
    await crew.client.pause(paused.id, by="a test")
    pictures = [
        (calling, await calling.until(lambda picture: bool(picture.of(TaskStatus.RUNNING)))),
        (walled, await walled.until(lambda picture: picture.status is RunStatus.WAITING)),
        (paused, await paused.until(lambda picture: picture.status is RunStatus.PAUSED)),
    ]

    for run, picture in pictures:
        await eventually(partial(_is_well, run, picture))  # a step that was on its way is soon behind them
    for run, _ in pictures:
        await crew.client.cancel(run.id)
        await run.closed()


# What people see


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever looks has waited long enough already."""
    monkeypatch.setattr(stalls, "STALLED_AFTER", timedelta(0))


@pytest.mark.usefixtures("impatient")
async def test_every_screen_tells_of_a_stall(bench: Bench, tmp_path: Path) -> None:
    run = await bench.start(ONE)

    picture = await run.until(lambda picture: picture.stall is not None)
    (entry,) = await run_list(bench.client, since=timedelta(0))
    while entry.status is not RunStatus.STALLED:  # of a server that is too slow nobody says that a run stands still
        (entry,) = await run_list(bench.client, since=timedelta(0))
    store, findings = str(tmp_path / "store"), list[Finding]()
    while not any(finding.state == "problem" for finding in findings):
        findings = [finding async for finding in runs_go_on(bench.temporal, store, "./starter.py")]

    assert picture.status is RunStatus.STALLED
    assert not picture.ended
    (asked,) = picture.attention
    assert (asked.kind, asked.task, asked.do) == ("stall", None, "up")
    assert bench.queue in str(asked.what)
    assert (entry.status, is_open(entry)) == (RunStatus.STALLED, True)
    assert [found.kind for found in entry.attention] == ["stall"]
    assert [(finding.name, finding.state, finding.remedy) for finding in findings] == [
        (f"run {run.id}", "problem", "./starter.py up")
    ]
    assert bench.queue in findings[0].what

    picture.add([Event(number=1, type=EventType.TASK_READY, time=datetime.now(UTC), task="only")])

    assert picture.status is not RunStatus.STALLED, "what moves does not stand still"


async def test_a_watch_goes_on_through_a_stall(
    bench: Bench, simulator: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told while it lasts, and no longer."""
    monkeypatch.setattr(stalls, "STALLED_AFTER", timedelta(0))
    run = await bench.start(ONE)
    watching = bench.client.watch(run.id)

    first = (await anext(watching)).status
    monkeypatch.undo()
    async with bench.worker():
        statuses = [picture.status async for picture in watching]

    assert first is RunStatus.STALLED
    assert statuses[-1] is RunStatus.COMPLETED
    assert simulator.calls() == 1


async def test_a_server_that_does_not_answer_is_no_stall(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stalls, "STALLED_AFTER", timedelta(0))
    run = await bench.start(ONE)
    picture = await bench.client.glance(run.id)
    assert picture.stall is not None

    async def describe(*_: object, **__: object) -> WorkflowExecutionDescription:
        raise RPCError("gone", RPCStatusCode.UNAVAILABLE, b"")

    monkeypatch.setattr(type(run.handle), "describe", describe)
    await bench.client._notice_an_outside_end(picture)

    assert picture.status is RunStatus.RUNNING
