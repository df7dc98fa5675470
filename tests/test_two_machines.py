"""Workers on other machines: processes that share nothing but a Temporal address and a store.

A is the home of the Temporal server, B and C are those of workers, D is that of the person who submits.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from conftest import eventually
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client

from embedded import find_server
from pollers import TAGGED, workers_on
from runtime import ROOT, Mode, Settings, queue_of
from simulator.server import Simulator

QUEUE = queue_of(Mode.SIMULATED)
PLAN = """
name: shared
max_concurrency: 6
defaults: {agent: writer, timeout: 60s}
tasks:
  - {id: first, for_each: [1, 2, 3, 4, 5, 6], prompt: Go.}
  - {id: slow, for_each: [1, 2, 3, 4, 5, 6], prompt: Think., needs: [first]}
  - {id: last, for_each: [1, 2, 3, 4, 5, 6], prompt: Go., needs: [slow]}
"""
ONE = "name: one\ntasks: [{id: only, agent: writer, prompt: Go.}]\n"


@dataclass
class Network:
    """What the machines have in common, and the processes on them."""

    folder: Path
    temporal: str
    simulator: str
    store: str
    """Where it is, as a URL: the workers are told so."""
    workers: dict[str, asyncio.subprocess.Process] = field(default_factory=dict)

    def environment(self, machine: str, store: str) -> dict[str, str]:
        return {
            **os.environ,
            "NIGHTCREW_HOME": str(self.folder / machine),
            "NIGHTCREW_STORE": store,
            "NIGHTCREW_SIMULATOR_URL": self.simulator,
            "TEMPORAL_ADDRESS": self.temporal,
        }

    async def work(self, machine: str) -> None:
        """A worker with three slots: two of them must share six tasks at once."""
        self.workers[machine] = await asyncio.create_subprocess_exec(
            *(sys.executable, str(ROOT / "worker.py"), "--queue", QUEUE, "--slots", "3"),
            cwd=ROOT,
            env=self.environment(machine, self.store),
            stderr=asyncio.subprocess.DEVNULL,
        )

    def identity(self, machine: str) -> str:
        """What Temporal calls the worker of a machine."""
        return f"{self.workers[machine].pid}@{socket.gethostname()}"

    async def starter(self, machine: str, *words: str) -> tuple[int, str]:
        """A command on a machine to its end: the exit code and what it said on stdout."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, str(ROOT / "starter.py"), *words),
            cwd=ROOT,
            env=self.environment(machine, self.store.removeprefix("file://")),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        out, _ = await process.communicate()
        assert process.returncode is not None
        return process.returncode, out.decode()


@asynccontextmanager
async def ending(network: Network) -> AsyncIterator[Network]:
    try:
        yield network
    finally:
        for process in network.workers.values():
            if process.returncode is None:
                process.kill()
            await process.wait()


@pytest.fixture(params=["folder"])
async def network(
    request: pytest.FixtureRequest, temporal: Client, settings: Settings, simulator: Simulator, tmp_path: Path
) -> AsyncIterator[Network]:
    server = find_server(settings.home)
    assert server is not None
    (tmp_path / "store").mkdir()
    in_a_bucket = request.param == "bucket"
    store: str = request.getfixturevalue("bucket") if in_a_bucket else (tmp_path / "store").as_uri()
    (tmp_path / "plan.yaml").write_text(PLAN, "utf-8")
    (tmp_path / "one.yaml").write_text(ONE, "utf-8")
    async with ending(Network(tmp_path, server.address, simulator.url, store)) as network:
        yield network


async def who_did(temporal: Client, report: dict[str, Any]) -> dict[str, str]:
    """The worker whose word on a task stands, by task, as Temporal has it in the history."""
    done = {}
    for task in (task["id"] for task in report["tasks"]):
        async for event in temporal.get_workflow_handle(f"{report['run']}/{task}").fetch_history_events():
            if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED:
                done[task] = event.activity_task_started_event_attributes.identity.partition(TAGGED)[0]
    return done


@pytest.mark.parametrize("network", ["folder", "bucket"], indirect=True)
async def test_a_run_is_shared_by_two_machines_and_survives_the_loss_of_one(
    network: Network, temporal: Client, simulator: Simulator
) -> None:
    """Both have worked on it; of the calls that were under way on the lost one, each is paid at most once more."""
    simulator.script([{"when": {"contains": "Think."}, "then": {"ttft": 12}}, {"then": {"ttft": 6}}])
    await network.work("b")
    await network.work("c")
    await eventually(lambda: _count(temporal, 2))

    running = asyncio.create_task(network.starter("d", "run", str(network.folder / "plan.yaml"), "--json"))
    await simulator.until(lambda: simulator.in_flight == 6 and simulator.calls("slow[6]") == 1)
    under_way = {e.task for e in simulator.log if e.ended is None or e.ended > time.time() - 2}
    network.workers["c"].kill()
    code, out = await running

    report: dict[str, Any] = json.loads(out)
    assert (code, report["status"], report["census"]["succeeded"]) == (0, "COMPLETED", 18)
    assert all(task["output"] for task in report["tasks"])
    paid = Counter(entry.task for entry in simulator.log)
    assert len(paid) == 18
    assert {task for task, calls in paid.items() if calls > 1} <= under_way
    assert max(paid.values()) <= 2
    assert simulator.calls() <= 18 + 3  # the lost one had three slots
    done = await who_did(temporal, report)
    assert {done[f"first[{item}]"] for item in range(1, 7)} == {network.identity("b"), network.identity("c")}
    assert {done[f"last[{item}]"] for item in range(1, 7)} == {network.identity("b")}


async def test_who_submits_starts_nothing_of_his_own_and_anyone_reads_the_report(
    network: Network, temporal: Client
) -> None:
    await network.work("b")
    await eventually(lambda: _count(temporal, 1))

    code, out = await network.starter("d", "run", str(network.folder / "one.yaml"), "--json")
    report = json.loads(out)
    run = report["run"]

    assert code == 0
    services = {path.name.partition(".")[0] for path in (network.folder / "d" / "services").iterdir()}
    assert not services & {"server", "simulator", "worker-simulated"}
    assert set((await who_did(temporal, report)).values()) == {network.identity("b")}
    assert await network.starter("b", "result", run, "--text") == await network.starter("d", "result", run, "--text")


async def test_without_a_worker_elsewhere_run_brings_its_own(network: Network, temporal: Client) -> None:
    """Workers that ended a moment ago, cleanly or not, are not taken for such."""
    for order in "terminate", "kill":
        await network.work("b")
        await eventually(lambda: _count(temporal, 1))
        getattr(network.workers["b"], order)()
        await network.workers["b"].wait()
        assert await workers_on(temporal, QUEUE) == 0

    code, out = await network.starter("d", "run", str(network.folder / "one.yaml"), "--json")

    assert (code, json.loads(out)["status"]) == (0, "COMPLETED")
    assert (network.folder / "d" / "services" / "worker-simulated.lock").exists()


async def _count(temporal: Client, expected: int) -> bool:
    return await workers_on(temporal, QUEUE) == expected
