"""The bench: a real Temporal server, real HTTP to the simulator, the worker that production runs."""
# ruff: noqa: E402 - the environment is cleaned before anything is imported

from __future__ import annotations

import os

OTHERS = ("ANTHROPIC_", "AWS_", "NIGHTCREW_", "OTEL_", "TEMPORAL_")
for name in [name for name in os.environ if name.startswith(OTHERS)]:
    del os.environ[name]  # before anything reads them: no test may spend money or touch a company's cluster or bucket
os.environ["TEMPORAL_CONFIG_FILE"] = os.devnull

import asyncio
import sys
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, suppress
from copy import copy
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from bucket import BUCKET, credentials, serving
from home import Home
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from temporalio.api.enums.v1 import EventType as HistoryEvent
from temporalio.api.history.v1 import HistoryEvent as Recorded
from temporalio.client import (
    Client,
    WorkflowExecutionDescription,
    WorkflowFailureError,
    WorkflowHandle,
    WorkflowQueryFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker._workflow import _InterruptDeadlockError  # its only name

from activities.teller import BankTeller, Unanswered
from client import PASSING, RunClient
from domain.events import Event
from domain.picture import Picture
from domain.planning import Folder, plan_from_text
from domain.quota.words import Ask, Grant
from domain.registry import Registry, registry_from_text
from domain.report import Report
from domain.runs import RunSummary, RunView
from embedded import down, up
from folder import PlanFolder
from prices import priced
from runtime import Settings, connect, load_settings
from simulator.config import Config
from simulator.server import Simulator
from store import Store, open_store
from worker import build_worker
from workflows.supervisor import SupervisorWorkflow

pytest_plugins = ["clocks"]

# How long an example takes, or to draw ten, is the machine's matter. The same ones every time: what is green stays so.
# To look for new ones: make test ARGS="--hypothesis-profile search".
ANY_PACE: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
hypothesis_settings.register_profile("any machine", derandomize=True, **ANY_PACE)
hypothesis_settings.register_profile("search", **ANY_PACE)
hypothesis_settings.load_profile("any machine")


@pytest.hookimpl(trylast=True)
def pytest_configure() -> None:
    """Let a step that Temporal interrupts after its 2 s on a busy machine be tried again, and fail no test.

    The interrupt is raised wherever the step is: also in the middle of a destructor, where nobody can hear of it.
    """
    tell = sys.unraisablehook

    def tell_others(raised: sys.UnraisableHookArgs) -> None:
        if raised.exc_type is not _InterruptDeadlockError:
            tell(raised)

    sys.unraisablehook = tell_others


AGENTS = """
agents:
  - {name: hand, version: "1", capabilities: [work], model: claude-haiku-4-5, instructions: Do the task., timeout: 20s}
  - {name: pair, version: "1", capabilities: [two], model: claude-haiku-4-5, instructions: Do it., max_concurrency: 2}
"""


@pytest.fixture(scope="session")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return load_settings(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="session")
async def temporal(settings: Settings) -> AsyncIterator[Client]:
    """A client of one server for all tests of the session."""
    await up(settings, worker=False, simulator=False, keep=False)
    try:
        yield await connect(settings)
    finally:
        await down(settings)


@pytest.fixture(scope="session")
def s3() -> Iterator[str]:
    """A server that speaks S3."""
    with serving() as url:
        yield url


@pytest.fixture
def bucket(s3: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A place of its own in a bucket, which this process and those it starts can reach."""
    for name, value in credentials(s3).items():
        monkeypatch.setenv(name, value)
    return f"s3://{BUCKET}/{uuid.uuid4().hex}"


@pytest.fixture(params=["folder", "bucket"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a store may be: what is asked of one is asked of the other."""
    where: str = request.getfixturevalue("bucket") if request.param == "bucket" else str(tmp_path / "store")
    return where


@pytest.fixture
def store(place: str) -> Store:
    """A store, on a folder and in a bucket."""
    return open_store(place)


@pytest.fixture
async def simulator() -> AsyncIterator[Simulator]:
    """A provider that answers at once."""
    async with Simulator(Config(ttft=0, tokens_per_second=0, jitter=0, answer_tokens=(5, 10))) as simulator:
        yield simulator


@pytest.fixture
def registry() -> Registry:
    return registry_from_text(AGENTS, file="agents.yaml")


def was_interrupted(event: Recorded) -> bool:
    """Whether Temporal broke a step off after its 2 s on a busy machine: it is tried again, and no fault of the run."""
    return "TMPRL1101" in event.workflow_task_failed_event_attributes.failure.message


async def granted(teller: BankTeller, ask: Ask) -> Grant:
    """What the bank answers, asked again under the same number until it does: on a busy machine it may be too slow."""
    while True:
        with suppress(Unanswered):
            return await teller.draw(ask)


async def answer_to(run: WorkflowHandle[Any, Any], update: str, input: object, **options: Any) -> Any:
    """What a run answers to an update, sent again under the same id as long as it may get through a moment later."""
    options = {"id": uuid.uuid4().hex, "rpc_timeout": timedelta(seconds=5), **options}
    while True:
        try:
            return await run.execute_update(update, input, **options)
        except RPCError as error:
            if error.status not in PASSING:
                raise
        except WorkflowUpdateRPCTimeoutOrCancelledError:
            pass
        await asyncio.sleep(0.2)


async def look(workflow: WorkflowHandle[Any, Any], query: str, *words: Any, **options: Any) -> Any:
    """What a workflow answers to a query, asked again until it does: a busy machine may be too slow for one."""
    while True:
        try:
            return await workflow.query(query, *words, rpc_timeout=timedelta(seconds=5), **options)
        except WorkflowQueryFailedError:
            pass
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                raise
        await asyncio.sleep(0.2)


async def eventually(true: Callable[[], Awaitable[bool]]) -> None:
    """Wait until something is true that can only be asked for. The time limit is that of the test."""
    while not await true():
        await asyncio.sleep(0.05)


@dataclass
class Run:
    """One run under test."""

    id: str
    client: RunClient
    temporal: Client

    @property
    def handle(self) -> WorkflowHandle[SupervisorWorkflow, RunSummary]:
        return self.temporal.get_workflow_handle_for(SupervisorWorkflow.run, self.id)

    async def report(self) -> Report:
        """The report after the end."""
        async for picture in self.client.watch(self.id):
            if picture.ended:
                return await self.client.report(picture)
        raise AssertionError("the run did not end")

    async def closed(self) -> WorkflowExecutionDescription:
        """The workflow after its end, however it ended."""
        with suppress(WorkflowFailureError):
            await self.handle.result()
        return await self.handle.describe()

    async def until(self, true: Callable[[Picture], bool]) -> Picture:
        """The run as soon as something is true of it."""
        while not true(picture := await self.client.picture(self.id)):
            await asyncio.sleep(0.05)
        return picture

    async def events(self) -> list[Event]:
        """The event log as the store has it."""
        return [event async for event in self.client.events(self.id)]

    async def written(self) -> None:
        """Wait until the store has every event of an open run, and the run knows it: in between both have them."""

        async def has_no_more() -> bool:
            view: RunView = await look(self.handle, "view", result_type=RunView)
            return view.events == ()

        await eventually(has_no_more)

    async def ended_children(self) -> dict[str, str]:
        """The state of every child workflow once none is open."""
        children = await self.children()
        while still := [task for task, state in children.items() if state == "RUNNING"]:
            await asyncio.sleep(0.05)
            children |= await self._states(still)
        return children

    async def chain(self) -> list[WorkflowHandle[Any, Any]]:
        """Every run of the supervisor, from continue-as-new to continue-as-new.

        By its histories, each of which names the one before: Temporal's list may be a moment behind.
        """
        chain: list[WorkflowHandle[Any, Any]] = []
        run_id: str | None = (await self.handle.describe()).run_id
        while run_id:
            chain.insert(0, part := self.temporal.get_workflow_handle(self.id, run_id=run_id))
            first = await anext(part.fetch_history_events())
            run_id = first.workflow_execution_started_event_attributes.continued_execution_run_id
        return chain

    async def children(self) -> dict[str, str]:
        """The state of every child workflow, by task; of one that was started again, of its last start.

        Those that the histories say were to be started are asked for by their ids: the list may be a moment behind.
        """
        initiated = HistoryEvent.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_INITIATED
        ids = [
            event.start_child_workflow_execution_initiated_event_attributes.workflow_id
            for part in await self.chain()
            async for event in part.fetch_history_events()
            if event.event_type == initiated
        ]
        return await self._states(dict.fromkeys(id.removeprefix(f"{self.id}/") for id in ids))

    async def _states(self, tasks: Iterable[str]) -> dict[str, str]:
        """Of the children for these tasks, as far as there are any: a run that ends may not have come to all starts."""
        asked = {task: self.temporal.get_workflow_handle(f"{self.id}/{task}").describe() for task in tasks}
        found: dict[str, str] = {}
        for task, answer in zip(asked, await asyncio.gather(*asked.values(), return_exceptions=True), strict=True):
            if isinstance(answer, WorkflowExecutionDescription):
                found[task] = answer.status.name if answer.status else "?"
            elif not (isinstance(answer, RPCError) and answer.status is RPCStatusCode.NOT_FOUND):
                raise answer
        return found


class Bench:
    """Starts workers and runs on a queue of its own."""

    def __init__(self, temporal: Client, simulator: Simulator, registry: Registry, folder: Path) -> None:
        self.temporal, self.simulator, self._registry = temporal, simulator, registry
        self.queue = f"test-{uuid.uuid4().hex[:8]}"
        self.store: Store = open_store(str(folder / "store"))
        self.folder: Folder = PlanFolder(folder)
        self.client = RunClient(temporal, self.store)

    def on(self, client: Client) -> Bench:
        """The same bench for one more worker: two of them on one queue must not share a client."""
        other = copy(self)
        other.temporal = client
        return other

    @asynccontextmanager
    async def worker(self, **options: Any) -> AsyncIterator[None]:
        from activities.claude import Claude

        model = Claude(base_url=self.simulator.url, api_key="test", auth_token=None, simulated=True)
        options = {"backoff": timedelta(milliseconds=50), "grace": timedelta(seconds=1), **options}
        async with build_worker(self.temporal, queue=self.queue, model=model, store=self.store, **options):
            yield
        await model.close()

    async def start(
        self, plan: str, *, id: str | None = None, continue_after: int | None = None, with_prices: bool = False
    ) -> Run:
        planned = plan_from_text(plan, file="test.yaml", registry=self._registry, folder=self.folder)
        planned = replace(planned, plan=priced(planned.plan)) if with_prices else planned
        run = await self.client.submit(planned, id=id, simulated=True, queue=self.queue, continue_after=continue_after)
        return Run(run, self.client, self.temporal)


@pytest.fixture
async def bench(temporal: Client, simulator: Simulator, registry: Registry, tmp_path: Path) -> Bench:
    """Everything but a worker."""
    return Bench(temporal, simulator, registry, tmp_path)


@pytest.fixture
async def crew(bench: Bench) -> AsyncIterator[Bench]:
    """The bench with a worker at work."""
    async with bench.worker():
        yield bench


@pytest.fixture(scope="module")
def up_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """A home that was brought up by the command line, for all tests of a file."""
    with Home(tmp_path_factory.mktemp("up")) as home:
        yield home


@pytest.fixture
def home(up_home: Home) -> Home:
    """That home, with a simulator that answers at once."""
    up_home.script(ttft=0, tokens_per_second=0)
    return up_home
