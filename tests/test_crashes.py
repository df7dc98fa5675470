"""Processes that die in the middle: the plan completes all the same, and what was paid for is not paid again."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path

import pytest
from conftest import Bench, Run

from client import RunClient
from domain.models import RunStatus, Usage
from domain.planning import Planned, plan_from_text
from domain.registry import Registry
from embedded import Worker, down, up
from folder import PlanFolder
from heritage import successor
from runtime import ROOT, Mode, Settings, connect, dial, load_settings, queue_of
from services import Service
from simulator.server import Simulator
from store import open_store
from temporal_server import Server
from workflows import policies

PLAN = """
max_concurrency: 3
defaults: {agent: hand, timeout: 20s}
tasks:
  - {id: done, for_each: [1, 2, 3], prompt: Go.}
  - {id: slow, for_each: [1, 2, 3], prompt: Think., needs: [done]}
  - {id: last, for_each: [1, 2, 3], prompt: Go., needs: [slow]}
"""


class Home:
    """Real processes in a folder of their own; the provider alone is in this process, so that its bill survives."""

    def __init__(self, settings: Settings, simulator: Simulator, registry: Registry) -> None:
        self.settings, self.simulator, self._registry = settings, simulator, registry

    async def submit(self, plan: str) -> Run:
        folder = PlanFolder(self.settings.home)
        return await self.submit_planned(plan_from_text(plan, file="test.yaml", registry=self._registry, folder=folder))

    async def submit_planned(self, planned: Planned) -> Run:
        temporal = await connect(self.settings)
        client = RunClient(temporal, open_store(self.settings.store))
        run = await client.submit(planned, id=None, simulated=True, queue=queue_of(Mode.SIMULATED))
        return Run(run, client, temporal)

    async def kill(self, *services: Service) -> None:
        """SIGKILL, all in the same moment, and wait until they are gone."""
        states = [service.find() for service in services]
        for state in states:
            assert state is not None
            os.kill(state.pid, signal.SIGKILL)
        while any(service.find() for service in services):
            await asyncio.sleep(0.01)

    async def up(self, *, worker: bool = True) -> None:
        await up(self.settings, worker=worker, keep=False)


@pytest.fixture
async def home(tmp_path: Path, simulator: Simulator, registry: Registry) -> AsyncIterator[Home]:
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "nightcrew.toml").write_text(f'simulator_url = "{simulator.url}"\n', "utf-8")
    settings = load_settings(folder)
    yield Home(settings, simulator, registry)
    await down(settings)


@pytest.mark.parametrize("dies", ["worker", "server", "both"])
async def test_a_plan_survives_kill_9(home: Home, dies: str) -> None:
    """What had finished is not called again; of what was under way, each call is paid at most once more."""
    await home.up()
    simulator = home.simulator
    simulator.script([{"when": {"contains": "Think."}, "then": {"ttft": 1.5}}])
    run = await home.submit(PLAN)
    await simulator.until(lambda: simulator.in_flight == 3 and simulator.calls("slow[3]") == 1)
    under_way = {entry.task for entry in simulator.log if entry.ended is None}

    services = {"worker": Worker(home.settings.home, Mode.SIMULATED), "server": Server(home.settings.home)}
    await home.kill(*(service for name, service in services.items() if dies in (name, "both")))
    await home.up()
    report = await run.report()

    assert report.status is RunStatus.COMPLETED
    paid = Counter(entry.task for entry in simulator.log)
    assert len(paid) == 9
    assert under_way == {"slow[1]", "slow[2]", "slow[3]"}
    assert {paid[task] for task in paid if task not in under_way} == {1}
    assert {paid[task] for task in under_way} <= ({1} if dies == "server" else {1, 2})
    events = await run.events()
    assert [event.number for event in events] == list(range(1, len(events) + 1))


async def test_a_successor_survives_kill_9_of_its_worker(home: Home) -> None:
    """What it took over is not called at all; of what was under way, each call is paid at most once more."""
    await home.up()
    simulator = home.simulator
    simulator.script([{"when": {"task": "slow[2]"}, "then": {"fault": "invalid_request"}}])
    before = await home.submit(PLAN)
    assert (await before.report()).status is RunStatus.FAILED
    simulator.script([{"when": {"contains": "Think."}, "then": {"ttft": 1.5}}])
    simulator.forget()

    found = await successor(before.client, before.id, (), {})
    planned = Planned(plan=found.plan, contents={}, sources={}, warnings=())
    queue = queue_of(Mode.SIMULATED)
    await before.client.submit(planned, id=found.id, simulated=True, queue=queue, heritage=found.heritage)
    await simulator.until(lambda: simulator.calls("slow[2]") == 1)
    await home.kill(Worker(home.settings.home, Mode.SIMULATED))
    await home.up()
    report = await Run(found.id, before.client, before.temporal).report()

    assert report.status is RunStatus.COMPLETED
    paid = Counter(entry.task for entry in simulator.log)
    assert set(paid) == {"slow[2]", "last[1]", "last[2]", "last[3]"}
    assert paid.pop("slow[2]") <= 2
    assert set(paid.values()) == {1}
    assert {task.id for task in report.tasks if task.reused} == {f"done[{n}]" for n in (1, 2, 3)} | {
        "slow[1]",
        "slow[3]",
    }


DIES_AFTER_THE_LEDGER = """
import os
import sys
from pathlib import Path

from activities.ledger import Entry, Ledger
from activities.model import Completion

complete = Ledger.complete


async def complete_and_die(self: Ledger, entry: Entry, completion: Completion, number: int) -> None:
    await complete(self, entry, completion, number)
    os._exit(9)


Ledger.complete = complete_and_die
import worker

sys.exit(worker.main())
"""


async def dead_worker(home: Home, tmp_path: Path, program: str) -> None:
    """A worker with this program, after it has died where the program says."""
    script = tmp_path / "dying_worker.py"
    script.write_text(program, "utf-8")
    dying = await asyncio.create_subprocess_exec(
        sys.executable,
        str(script),
        *("--home", str(home.settings.home), "--queue", queue_of(Mode.SIMULATED)),
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
    )
    try:
        assert await dying.wait() == 9
    finally:
        if dying.returncode is None:
            dying.kill()
            await dying.wait()


async def test_an_answer_in_the_ledger_is_not_paid_again(home: Home, tmp_path: Path) -> None:
    """A worker that dies between the provider's answer and Temporal: the next one finds the answer."""
    await home.up(worker=False)
    home.simulator.script([{"when": {"task": "a"}, "then": {"answer": "the walrus sings"}}])
    run = await home.submit("tasks: [{id: a, agent: hand, prompt: Go.}, {id: b, agent: hand, prompt: Go., needs: [a]}]")

    await dead_worker(home, tmp_path, DIES_AFTER_THE_LEDGER)
    assert home.simulator.calls("a") == 1
    await home.up()
    report = await run.report()

    assert report.status is RunStatus.COMPLETED
    assert [entry.task for entry in home.simulator.log] == ["a", "b"]
    assert report.tasks[0].output == "the walrus sings"
    assert report.tasks[0].attempts == 2


RELAXED = """
max_concurrency: 8
latency: relaxed
tasks: [{id: part, for_each: [1, 2, 3, 4], agent: hand, prompt: Go.}]
"""

DIES_WITH_ITS_BATCH = """
import os
import sys

from activities.batch_book import BatchBook

made = BatchBook.made


async def made_and_die(self: BatchBook, run: str, name: str, id: str) -> None:
    {before}
    os._exit(9)


BatchBook.made = made_and_die
import worker

sys.exit(worker.main())
"""


@pytest.mark.parametrize("before", ["await made(self, run, name, id)", "pass"], ids=["recorded", "not recorded"])
async def test_a_batch_is_made_once_though_its_worker_dies(home: Home, tmp_path: Path, before: str) -> None:
    """Whether its id was written down or not: it is found again, all results come, and each is billed once."""
    await home.up(worker=False)
    simulator = home.simulator
    simulator.script([], batch_seconds=None)
    run = await home.submit(RELAXED)

    await dead_worker(home, tmp_path, DIES_WITH_ITS_BATCH.format(before=before))
    assert [(entry.path, entry.status) for entry in simulator.log] == [("/v1/messages/batches", 200)]
    await home.up()
    await run.until(lambda picture: {task.wait.reason for task in picture.tasks.values() if task.wait} == {"batch"})
    simulator.script([], batch_seconds=0)
    report = await run.report()

    assert report.status is RunStatus.COMPLETED
    assert [task.batched for task in report.tasks] == 4 * [True]
    (made,) = [entry for entry in simulator.log if not entry.batch]
    billed = [entry for entry in simulator.log if entry.batch]
    assert sorted(entry.task or "" for entry in billed) == [f"part[{number}]" for number in (1, 2, 3, 4)]
    assert {entry.batch_id for entry in billed} == {made.batch_id}
    assert report.tokens.input == sum(entry.billed.input for entry in billed)
    assert report.unsettled == Usage()


class Link:
    """A TCP proxy between a worker and its server that can stop passing anything on, in both directions."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._open = asyncio.Event()
        self._open.set()
        self._pumps: set[asyncio.Task[None]] = set()

    def cut(self) -> None:
        self._open.clear()

    def mend(self) -> None:
        self._open.set()

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        try:
            yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            server.close()
            for pump in [*self._pumps]:
                pump.cancel()
            await asyncio.gather(*self._pumps, return_exceptions=True)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(*self._target)
        for source, sink in (reader, far_writer), (far_reader, writer):
            pump = asyncio.create_task(self._pump(source, sink))
            self._pumps.add(pump)
            pump.add_done_callback(self._pumps.discard)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65_536):
                await self._open.wait()
                sink.write(data)
                await sink.drain()
        except ConnectionError:
            pass  # one side hung up; the other is hung up on
        finally:
            sink.close()
            with suppress(ConnectionError):
                await sink.wait_closed()


async def test_a_cut_longer_than_the_heartbeat_joins_the_running_call(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server gives the attempt up and schedules another: it joins the call that was never interrupted."""
    monkeypatch.setattr(policies, "HEARTBEAT_TIMEOUT", timedelta(seconds=2))
    bench.simulator.script([{"then": {"ttft": 8}}])
    link = Link(bench.temporal.service_client.config.target_host)
    async with link.serve() as address:
        direct, bench.temporal = bench.temporal, await dial(address)
        async with bench.worker():
            run = await bench.start("tasks: [{id: a, agent: hand, prompt: Go., timeout: 30s}]")
            await bench.simulator.until(lambda: bench.simulator.calls() == 1)

            link.cut()
            task = direct.get_workflow_handle(f"{run.id}/a")
            while not (await task.describe()).raw_description.pending_activities[0].attempt > 1:
                await asyncio.sleep(0.05)
            link.mend()
            report = await run.report()

    assert report.status is RunStatus.COMPLETED
    assert bench.simulator.calls() == 1
    assert report.tasks[0].attempts >= 2
