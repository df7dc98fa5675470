"""Processes that die in the middle: the plan completes all the same, and what was paid for is not paid again."""

from __future__ import annotations

import asyncio
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from conftest import Bench, Run, eventually

from client import RunClient
from domain.models import RunStatus, TaskStatus, Usage
from domain.planning import Planned, plan_from_text
from domain.prices import cost_of
from domain.registry import Registry
from embedded import Worker, down, up
from folder import PlanFolder
from heritage import successor
from prices import price_list, priced
from proof.link import Link
from proof.processes import kill
from runtime import ROOT, Mode, Settings, connect, dial, load_settings, queue_of
from services import Service
from simulator.server import Simulator
from store import open_store
from temporal_server import Server
from workflows import policies

PLAN = """
max_concurrency: 3
defaults: {agent: hand, timeout: 60s}
tasks:
  - {id: done, for_each: [1, 2, 3], prompt: Go.}
  - {id: slow, for_each: [1, 2, 3], prompt: Think., needs: [done]}
  - {id: last, for_each: [1, 2, 3], prompt: Go., needs: [slow]}
"""


class Home:
    """Real processes in a folder of their own; the provider alone is in this process, so that its bill survives."""

    def __init__(self, settings: Settings, simulator: Simulator, registry: Registry) -> None:
        self.settings, self.simulator, self.registry = settings, simulator, registry

    async def submit(self, plan: str) -> Run:
        folder = PlanFolder(self.settings.home)
        return await self.submit_planned(plan_from_text(plan, file="test.yaml", registry=self.registry, folder=folder))

    async def submit_planned(self, planned: Planned) -> Run:
        temporal = await connect(self.settings)
        client = RunClient(temporal, open_store(self.settings.store))
        run = await client.submit(planned, id=None, simulated=True, queue=queue_of(Mode.SIMULATED))
        return Run(run, client, temporal)

    async def kill(self, *services: Service) -> None:
        assert all(service.find() for service in services)
        await kill(*services)

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
    thinks = 8 if dies == "server" else 3600  # a worker that lives brings its answers to a server that is gone
    simulator.script([{"when": {"contains": "Think."}, "then": {"ttft": thinks}}])
    run = await home.submit(PLAN)
    await simulator.until(lambda: simulator.in_flight == 3 and simulator.calls("slow[3]") == 1)
    under_way = {entry.task for entry in simulator.log if entry.ended is None}

    services = {"worker": Worker(home.settings.home, Mode.SIMULATED), "server": Server(home.settings.home)}
    await home.kill(*(service for name, service in services.items() if dies in (name, "both")))
    simulator.script([])
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


async def test_a_task_that_made_no_call_has_all_its_attempts_after_kill_9(home: Home) -> None:
    """Of two tasks with one attempt each, the worker dies while one is at its call and the other waits for its turn."""
    toml = home.settings.home / "nightcrew.toml"
    toml.write_text(toml.read_text("utf-8") + "max_calls = 1\n", "utf-8")
    home = Home(load_settings(home.settings.home), home.simulator, home.registry)
    await home.up()
    simulator = home.simulator
    simulator.script([{"when": {"nth": 1}, "then": {"ttft": 3600}}])
    run = await home.submit(
        "max_concurrency: 2\ndefaults: {agent: hand, attempts: 1, timeout: 10m}\n"
        "tasks: [{id: t, for_each: [1, 2], prompt: Go.}]"
    )
    await simulator.until(lambda: simulator.in_flight == 1)
    (at_work,) = {entry.task for entry in simulator.log}

    async def the_other_waits_in_the_worker() -> bool:
        tasks = (await run.client.picture(run.id)).tasks
        lives = [seen.live for id, seen in tasks.items() if id != at_work]
        return any(live is not None and live.note.step == "quota" for live in lives)

    await eventually(the_other_waits_in_the_worker)
    await home.kill(Worker(home.settings.home, Mode.SIMULATED))
    simulator.script([])
    await home.up()
    report = await run.report()

    ends = {task.id: (task.status, task.attempts, task.error and task.error.type) for task in report.tasks}
    assert ends.pop(at_work or "") == (TaskStatus.FAILED, 1, "WorkerLost")
    assert [*ends.values()] == [(TaskStatus.SUCCEEDED, 1, None)]


async def test_a_successor_survives_kill_9_of_its_worker(home: Home) -> None:
    """What it took over is not called at all; of what was under way, each call is paid at most once more."""
    await home.up()
    simulator = home.simulator
    simulator.script([{"when": {"task": "slow[2]"}, "then": {"fault": "invalid_request"}}])
    before = await home.submit(PLAN)
    assert (await before.report()).status is RunStatus.FAILED
    simulator.script([{"when": {"contains": "Think."}, "then": {"ttft": 3600}}])
    simulator.forget()

    found = await successor(before.client, before.id, (), {})
    planned = Planned(plan=found.plan, contents={}, sources={}, warnings=())
    queue = queue_of(Mode.SIMULATED)
    await before.client.submit(planned, id=found.id, simulated=True, queue=queue, heritage=found.heritage)
    await simulator.until(lambda: simulator.calls("slow[2]") == 1)
    await home.kill(Worker(home.settings.home, Mode.SIMULATED))
    simulator.script([])
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
    assert report.tasks[0].attempts == 1


RELAXED = """
max_concurrency: 8
latency: relaxed
tasks: [{id: part, for_each: [1, 2, 3, 4], agent: hand, prompt: Go.}]
"""

DIES_WITH_ITS_BATCH = """
import asyncio
import os
import sys

from activities.batch_book import BatchBook
from activities.batch_collecting import Collector

made, send_soon = BatchBook.made, Collector._send_soon


async def send_all_four(self: Collector, run: str, group: object) -> None:
    while len(group.members) < 4:  # also where they come one by one
        await asyncio.sleep(0.01)
    await send_soon(self, run, group)


async def made_and_die(self: BatchBook, run: str, name: str, id: str) -> None:
    {before}
    os._exit(9)


Collector._send_soon = send_all_four
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
    read = plan_from_text(RELAXED, file="test.yaml", registry=home.registry, folder=PlanFolder(home.settings.home))
    run = await home.submit_planned(replace(read, plan=priced(read.plan)))

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
    (model,) = {each.model or "" for each in billed}
    price = price_list({model}).price(model)
    whole = sum(cost_of(price, Usage(input=each.billed.input, output=each.billed.output)) for each in billed)
    assert report.cost.actual_usd == whole / 2
    assert report.unsettled == Usage()


async def test_a_cut_longer_than_the_heartbeat_joins_the_running_call(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server gives the attempt up and schedules another: it joins the call that was never interrupted.

    Also when the task may make but one.
    """
    monkeypatch.setattr(policies, "HEARTBEAT_TIMEOUT", timedelta(seconds=2))
    bench.simulator.script([{"then": {"ttft": 8}}])
    link = Link(bench.temporal.service_client.config.target_host)
    async with link.serve() as address:
        direct, bench.temporal = bench.temporal, await dial(address)
        async with bench.worker():
            run = await bench.start("tasks: [{id: a, agent: hand, prompt: Go., timeout: 30s, attempts: 1}]")
            await bench.simulator.until(lambda: bench.simulator.calls() == 1)

            link.cut()
            task = direct.get_workflow_handle(f"{run.id}/a")
            while not (await task.describe()).raw_description.pending_activities[0].attempt > 1:
                await asyncio.sleep(0.05)
            link.mend()
            report = await run.report()

    assert report.status is RunStatus.COMPLETED
    assert bench.simulator.calls() == 1
    assert report.tasks[0].attempts == 1


@pytest.mark.soak
async def test_fifteen_seconds_without_a_network_cost_one_paid_call(bench: Bench) -> None:
    """With the heartbeat as it is: the server has given the attempt up when the network comes back."""
    bench.simulator.script([{"then": {"ttft": 20}}])
    link = Link(bench.temporal.service_client.config.target_host)
    async with link.serve() as address:
        bench.temporal = await dial(address)
        async with bench.worker():
            run = await bench.start("tasks: [{id: a, agent: hand, prompt: Go., timeout: 60s}]")
            await bench.simulator.until(lambda: bench.simulator.calls() == 1)

            link.cut()
            await asyncio.sleep(15)  # the fault itself
            link.mend()
            report = await run.report()

    assert report.status is RunStatus.COMPLETED
    assert (bench.simulator.calls(), report.tasks[0].attempts) == (1, 1)
