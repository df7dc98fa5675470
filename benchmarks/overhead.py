"""What our promises cost: tasks per second of a run, beside a bare Temporal parent, child and one activity.

    .venv/bin/python benchmarks/overhead.py                             # 200 tasks; 1, 4, 8, 22, 50 at once; 3 times
    .venv/bin/python benchmarks/overhead.py --tasks 1000 --concurrency 32
    .venv/bin/python benchmarks/overhead.py --tasks 100 --repeat 1      # in two minutes

Three arms on one server, taken in turns so that a noisy machine disturbs all of them alike:

- nightcrew   a run as users start it: the real worker, the whole door, a request to the simulator for every task
- bare        a parent that starts the same number of children, each with one activity that does nothing
- bare+http   the same, and the activity makes the same request through the same client

All use the same worker options and the same data converter. Latency is that of one task at work, by Little's law:
places x seconds / tasks. CPU is that of the process while the arm ran; memory is the most it held meanwhile.
"""
# ruff: noqa: E402 - the environment is cleaned, and our code is found, before anything is imported

from __future__ import annotations

import os

for name in [name for name in os.environ if name.startswith(("ANTHROPIC_", "TEMPORAL_", "OTEL_", "NIGHTCREW_"))]:
    del os.environ[name]  # a benchmark spends no money, and touches no cluster
os.environ["TEMPORAL_CONFIG_FILE"] = os.devnull

import argparse
import asyncio
import subprocess
import sys
import tempfile
import uuid
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from statistics import median
from time import perf_counter

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bare import BareParent, BareTask
from footprints import Footprints
from pydantic import JsonValue
from temporalio import activity
from temporalio.client import Client
from temporalio.worker import Worker as TemporalWorker

from activities.reading import AnswerReader
from client import RunClient
from domain.briefing import Brief
from domain.models import Agent, Plan, Task
from domain.planning import Planned
from embedded import Worker, down, find_server, simulator_url, up
from runtime import ROOT, Mode, Settings, connect, leave, load_settings, queue_of
from store import open_store
from versioning import unversioned_runner
from worker import HEARTBEAT_THROTTLE, SLOTS, STICKY, model_for

BARE = "bare"
INSTANT = ("--ttft", "0", "--tokens-per-second", "0", "--jitter", "0", "--answer-tokens", "20", "40")
ARMS = ("nightcrew", "bare", "bare+http")


# The floor


@activity.defn
async def nothing(number: int) -> str:
    """What the smallest activity can do."""
    return f"task {number}"


class Calls:
    """The same request that a task of ours makes, without the door around it."""

    def __init__(self, settings: Settings) -> None:
        self._model = model_for(Mode.SIMULATED, settings)

    @activity.defn
    async def call(self, number: int) -> str:
        """One request."""
        content: tuple[dict[str, JsonValue], ...] = (
            {"type": "text", "text": f"Task: t{number}\nPlan: overhead\nAgent: hand@1"},
            {"type": "text", "text": "Go."},
        )
        brief = Brief(model="claude-haiku-4-5", max_tokens=100, system="Do the task.", content=content)
        return (await self._model.complete(brief, user="bare", reader=AnswerReader())).text


async def serve_bare(settings: Settings) -> None:
    """The bare worker, with the options of ours."""
    client = await connect(settings)
    async with TemporalWorker(
        client,
        task_queue=BARE,
        workflows=[BareParent, BareTask],
        activities=[nothing, Calls(settings).call],
        workflow_runner=unversioned_runner(),
        max_concurrent_activities=SLOTS,
        max_heartbeat_throttle_interval=HEARTBEAT_THROTTLE,
        default_heartbeat_throttle_interval=HEARTBEAT_THROTTLE,
        sticky_queue_schedule_to_start_timeout=STICKY,
    ):
        await asyncio.Event().wait()


# The measurement


@dataclass(frozen=True)
class Sample:
    """One run of one arm."""

    seconds: float
    worker_cpu: float
    server_cpu: float
    worker_mb: float
    server_mb: float


class Bench:
    """The processes of the benchmark, and how each arm is run on them."""

    def __init__(self, settings: Settings, client: Client, bare: int) -> None:
        self._client = client
        self._runs = RunClient(client, open_store(settings.store))
        server, ours = find_server(settings.home), Worker(settings.home, Mode.SIMULATED).find()
        if server is None or ours is None:
            raise RuntimeError("the home is not up")
        self._server = server.pid
        self._workers = {"nightcrew": ours.pid, "bare": bare, "bare+http": bare}

    async def sample(self, arm: str, tasks: int, places: int) -> Sample:
        """Run one arm once."""
        arms: dict[str, Callable[[int, int], Awaitable[None]]] = {
            "nightcrew": self._ours,
            "bare": lambda tasks, places: self._bare(tasks, places, "nothing"),
            "bare+http": lambda tasks, places: self._bare(tasks, places, "call"),
        }
        async with Footprints(self._workers[arm], self._server) as used:
            start = perf_counter()
            await arms[arm](tasks, places)
            seconds = perf_counter() - start
        (worker_cpu, server_cpu), (worker_mb, server_mb) = used.cpu_seconds(), used.peak_mb()
        return Sample(seconds, worker_cpu, server_cpu, worker_mb, server_mb)

    async def _ours(self, tasks: int, places: int) -> None:
        run = await self._runs.submit(_plan(tasks, places), id=None, simulated=True, queue=queue_of(Mode.SIMULATED))
        await self._client.get_workflow_handle(run).result()

    async def _bare(self, tasks: int, places: int, name: str) -> None:
        id = f"bare-{uuid.uuid4().hex[:8]}"
        await self._client.execute_workflow(BareParent.run, args=[tasks, places, name], id=id, task_queue=BARE)


def _plan(tasks: int, places: int) -> Planned:
    agent = Agent(name="hand", version="1", model="claude-haiku-4-5", instructions="Do the task.")
    made = tuple(
        Task(id=f"t{n}", agent="hand", prompt=("Go.",), timeout=timedelta(seconds=60), attempts=4, max_tokens=100)
        for n in range(tasks)
    )
    plan = Plan(name=f"overhead-{uuid.uuid4().hex[:8]}", max_concurrency=places, agents=(agent,), tasks=made)
    return Planned(plan=plan, contents={}, sources={}, warnings=())


@contextmanager
def bare_worker(home: Path) -> Iterator[int]:
    """The pid of a bare worker for as long as the block runs."""
    process = subprocess.Popen([sys.executable, __file__, "--serve-bare", str(home)], cwd=ROOT)
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


async def measure(sizes: list[int], places: list[int], repeat: int) -> None:
    """Take every sample and print the table."""
    with tempfile.TemporaryDirectory() as folder:
        settings = load_settings(Path(folder) / "home")
        try:
            await up(settings, simulator_options=INSTANT, keep=False)
            if simulator_url(settings) is None:
                raise RuntimeError("there is no simulator")
            with bare_worker(settings.home) as bare:
                bench = Bench(settings, await connect(settings), bare)
                for arm in ARMS:
                    async with asyncio.timeout(60):  # a worker that could not start would be waited for in vain
                        await bench.sample(arm, 20, 4)  # imports and caches are not what is measured
                print(HEADER)
                for size in sizes:
                    for place in places:
                        await compare(bench, size, place, repeat)
        finally:
            await down(settings)


async def compare(bench: Bench, tasks: int, places: int, repeat: int) -> None:
    """One block of the table: the arms in turns, each time in another order."""
    samples: dict[str, list[Sample]] = defaultdict(list)
    for turn in range(repeat):
        for arm in (*ARMS[turn % 3 :], *ARMS[: turn % 3]):
            samples[arm].append(await bench.sample(arm, tasks, places))
    rates = {arm: median(tasks / sample.seconds for sample in samples[arm]) for arm in ARMS}
    for arm in ARMS:
        taken = samples[arm]
        worker, server = (
            1000 * median(cpu) / tasks
            for cpu in ([sample.worker_cpu for sample in taken], [sample.server_cpu for sample in taken])
        )
        load = [
            100 * median(use)
            for use in ([s.worker_cpu / s.seconds for s in taken], [s.server_cpu / s.seconds for s in taken])
        ]
        spread = f"{tasks / max(s.seconds for s in taken):.1f}-{tasks / min(s.seconds for s in taken):.1f}"
        ratio = f"{rates['nightcrew'] / rates[arm]:.2f}" if arm != "nightcrew" else ""
        print(
            f"{tasks:>6} {places:>6}  {arm:<10} {rates[arm]:>8.1f} {spread:>13} {1000 * places / rates[arm]:>8.0f} "
            f"{worker:>9.1f} {server:>9.1f} {load[0]:>8.0f} {load[1]:>8.0f} "
            f"{max(s.worker_mb for s in taken):>9.0f} {max(s.server_mb for s in taken):>9.0f}  {ratio:>6}",
            flush=True,
        )


HEADER = (
    " tasks places  arm         tasks/s    (low-high) ms/task worker ms server ms worker % server % worker MB server MB"
    "  nightcrew : this arm\n" + 53 * " " + "CPU/task  CPU/task  of a core of a core"
)


def main() -> None:
    """Read the command line and measure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tasks", type=int, nargs="+", default=[200])
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 4, 8, 22, 50])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--serve-bare", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve_bare:
        asyncio.run(serve_bare(load_settings(options.serve_bare)))
    else:
        asyncio.run(measure(options.tasks, options.concurrency, options.repeat))
    leave(0)


if __name__ == "__main__":
    main()
