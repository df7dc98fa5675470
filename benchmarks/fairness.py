"""What a large run does to small ones: the seconds of 5 runs of 5 tasks alone, and beside one run of 500.

    .venv/bin/python benchmarks/fairness.py                    # 10 calls at a time, of 1 s each; 3 times
    .venv/bin/python benchmarks/fairness.py --repeat 1         # in two minutes
    .venv/bin/python benchmarks/fairness.py --limit slots      # by the slots of the worker instead of max_calls

The small runs are submitted together, alone or when the large one is at its usual pace. One worker makes a limited
number of calls at a time; the others wait in its line and in Temporal's queue (`max_calls`), or in the queue (slots).
The two arms take turns on one server, so that a noisy machine disturbs both alike. Seconds are those of a run from its
submit to its end, by Temporal's clock; a ratio is that of a run beside the large one to the median alone of that turn.
"""
# ruff: noqa: E402 - the environment is cleaned, and our code is found, before anything is imported

from __future__ import annotations

import os

for name in [name for name in os.environ if name.startswith(("ANTHROPIC_", "TEMPORAL_", "OTEL_", "NIGHTCREW_"))]:
    del os.environ[name]  # a benchmark spends no money, and touches no cluster
os.environ["TEMPORAL_CONFIG_FILE"] = os.devnull

import argparse
import asyncio
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from statistics import median
from time import perf_counter

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from temporalio.client import Client, WorkflowFailureError

from client import RunClient
from domain.models import Agent, Plan, Task
from domain.planning import Planned
from embedded import down, find_server, up
from footprint import footprint
from runtime import ROOT, Mode, Settings, connect, leave, load_settings, queue_of
from store import open_store

SMALL_RUNS, SMALL_TASKS = 5, 5
LARGE_PLACES = 50


@dataclass(frozen=True)
class Sample:
    """The small runs once, alone or beside the large one."""

    seconds: list[float]
    """Of each run."""
    worker_cpu: float
    server_cpu: float
    """In parts of a core."""
    large_done: int
    """Tasks of the large run that ended meanwhile."""


class Bench:
    """One home that is up, and one worker."""

    def __init__(self, settings: Settings, client: Client, worker: int) -> None:
        self._client = client
        self._runs = RunClient(client, open_store(settings.store))
        server = find_server(settings.home)
        if server is None:
            raise RuntimeError("the home is not up")
        self._pids = worker, server.pid

    async def alone(self) -> Sample:
        """The small runs by themselves."""
        return await self._small_runs(None)

    async def beside(self, tasks: int) -> Sample:
        """The small runs beside a large one that has taken all its places."""
        large = await self._submit(tasks, LARGE_PLACES)
        try:
            async for picture in self._runs.watch(large):
                if picture.census.succeeded >= LARGE_PLACES:  # it is past its start, and at its usual pace
                    break
            return await self._small_runs(large)
        finally:
            await self._runs.cancel(large)
            await self._closed(large)

    async def _small_runs(self, large: str | None) -> Sample:
        done = await self._ended(large)
        cpu, began = self._cpu(), perf_counter()
        runs = await asyncio.gather(*(self._submit(SMALL_TASKS, SMALL_TASKS) for _ in range(SMALL_RUNS)))
        seconds = await asyncio.gather(*(self._closed(run) for run in runs))
        length = perf_counter() - began
        worker, server = ((after - before) / length for before, after in zip(cpu, self._cpu(), strict=True))
        return Sample(sorted(seconds), worker, server, await self._ended(large) - done)

    async def _submit(self, tasks: int, places: int) -> str:
        return await self._runs.submit(_plan(tasks, places), id=None, simulated=True, queue=queue_of(Mode.SIMULATED))

    async def _closed(self, run: str) -> float:
        """The seconds of a run after its end."""
        handle = self._client.get_workflow_handle(run)
        with suppress(WorkflowFailureError):  # the large one is cancelled when it has served its purpose
            await handle.result()
        found = await handle.describe()
        if found.close_time is None:
            raise RuntimeError(f"{run} has no end")
        return (found.close_time - found.start_time).total_seconds()

    async def _ended(self, run: str | None) -> int:
        """Tasks of a run that have ended."""
        return (await self._runs.picture(run)).census.succeeded if run else 0

    def _cpu(self) -> list[float]:
        found = [footprint(pid) for pid in self._pids]
        return [one.cpu_seconds for one in found if one is not None]


def _plan(tasks: int, places: int) -> Planned:
    agent = Agent(name="hand", version="1", model="claude-haiku-4-5", instructions="Do the task.")
    made = tuple(
        Task(id=f"t{n}", agent="hand", prompt=("Go.",), timeout=timedelta(seconds=60), attempts=4, max_tokens=100)
        for n in range(tasks)
    )
    plan = Plan(name=f"fairness-{uuid.uuid4().hex[:8]}", max_concurrency=places, agents=(agent,), tasks=made)
    return Planned(plan=plan, contents={}, sources={}, warnings=())


@asynccontextmanager
async def worker(home: Path, calls: int, limit: str) -> AsyncIterator[int]:
    """The pid of a worker with so many calls at a time for as long as the block runs."""
    command = [sys.executable, str(ROOT / "worker.py"), "--home", str(home)]
    command += ["--slots", str(calls)] if limit == "slots" else []
    limits = {"NIGHTCREW_MAX_CALLS": str(calls)} if limit == "max_calls" else {}
    with (home / "logs" / "worker.log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *command, cwd=ROOT, env={**os.environ, **limits}, stdout=log, stderr=log
        )
    try:
        yield process.pid
    finally:
        process.kill()
        await process.wait()


async def measure(tasks: int, calls: int, seconds: float, limit: str, repeat: int) -> None:
    """Take every sample and print the table."""
    pace = ("--ttft", str(seconds), "--tokens-per-second", "0", "--jitter", "0", "--answer-tokens", "20", "40")
    ratios: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        settings = load_settings(Path(folder) / "home")
        try:
            await up(settings, simulator_options=pace, worker=False, keep=False)
            async with worker(settings.home, calls, limit) as pid:
                bench = Bench(settings, await connect(settings), pid)
                await bench.alone()  # imports and caches are not what is measured
                print(
                    f"{SMALL_RUNS} runs of {SMALL_TASKS} tasks, {calls} calls at a time, {seconds:g} s a call\n{HEADER}"
                )
                for turn in range(repeat):
                    ratios += await compare(bench, tasks, turn)
        finally:
            await down(settings)
    print(f"ratio of a small run beside the large one to alone: median {median(ratios):.2f}, worst {max(ratios):.2f}")


async def compare(bench: Bench, tasks: int, turn: int) -> list[float]:
    """The ratios of one turn."""
    if turn % 2:
        beside, alone = await bench.beside(tasks), await bench.alone()
    else:
        alone, beside = await bench.alone(), await bench.beside(tasks)
    ratios = [seconds / median(alone.seconds) for seconds in beside.seconds]
    for title, sample in ("alone", alone), (f"beside {tasks}", beside):
        times = "  ".join(f"{seconds:>5.2f}" for seconds in sample.seconds)
        load = f"{100 * sample.worker_cpu:>8.0f} {100 * sample.server_cpu:>8.0f}"
        print(f"{title:<12} {times}  {median(sample.seconds):>6.2f} {load} {sample.large_done:>11}")
    print(f"{'ratio':<12} {'  '.join(f'{ratio:>5.2f}' for ratio in ratios)}  {median(ratios):>6.2f}", flush=True)
    return ratios


HEADER = "small runs   seconds of each, sorted            median worker % server %  of large done"


def main() -> None:
    """Read the command line and measure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tasks", type=int, default=500, help="of the large run")
    parser.add_argument("--calls", type=int, default=10, help="that the worker makes at a time")
    parser.add_argument("--seconds", type=float, default=1.0, help="of a call")
    parser.add_argument("--limit", choices=["max_calls", "slots"], default="max_calls", help="what limits them")
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    asyncio.run(measure(options.tasks, options.calls, options.seconds, options.limit, options.repeat))
    leave(0)


if __name__ == "__main__":
    main()
