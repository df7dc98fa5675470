"""Ten tasks to ten thousand in one run: time, CPU, memory, history and database, for three shapes of a plan.

    .venv/bin/python benchmarks/scale.py                                     # everything, in about an hour
    .venv/bin/python benchmarks/scale.py --tasks 10 100 --shapes wide        # in two minutes

- wide       tasks that need nobody
- layered    layers of a hundred, each task needs three of the layer before
- chain      each task needs the one before: one at a time, so that a step's own price shows

Each run has a home of its own: a server with an empty database, a worker, and a simulator that answers at once. What is
found wrong (a task done twice, a child that was terminated, a history that is too long) ends the benchmark.
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
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from time import perf_counter

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from footprints import Footprints
from homes import Home, new_home
from trap_sample import read_bill

from domain.models import Agent, Need, Plan, RunStatus, Task
from domain.planning import Planned
from embedded import Worker, find_server
from runtime import Mode, leave
from simulator.provider import MESSAGES

INSTANT = ("--ttft", "0", "--tokens-per-second", "0", "--jitter", "0", "--answer-tokens", "20", "40")
SHAPES = ("wide", "layered", "chain")
LAYER, NEEDS = 100, 3
EVENTS_MOST = 10_240
"""What no run of a chain may exceed: from there on the server warns."""


def shaped(shape: str, number: int) -> tuple[int, ...]:
    """The tasks that a task needs, by number."""
    match shape:
        case "chain":
            return (number - 1,) if number else ()
        case "layered":
            before = (number // LAYER - 1) * LAYER
            return () if before < 0 else tuple(before + (number + step * 37) % LAYER for step in range(NEEDS))
        case _:
            return ()


def plan_of(shape: str, tasks: int, places: int) -> Planned:
    """A plan of so many tasks, made without YAML."""
    agent = Agent(name="hand", version="1", model="claude-haiku-4-5", instructions="Do the task.")
    made = tuple(
        Task(
            id=f"t{number}",
            agent="hand",
            prompt=("Go.",),
            needs=tuple(Need(task=f"t{need}") for need in shaped(shape, number)),
            timeout=timedelta(seconds=60),
            attempts=4,
            max_tokens=100,
        )
        for number in range(tasks)
    )
    plan = Plan(name=f"{shape}-{tasks}", max_concurrency=places, agents=(agent,), tasks=made)
    return Planned(plan=plan, contents={}, sources={}, warnings=())


@dataclass(frozen=True)
class Histories:
    """The histories of one run: of the supervisor, from continue-as-new to continue-as-new."""

    runs: int
    most_events: int
    events: int
    megabytes: float


async def histories_of(home: Home, run: str) -> Histories:
    """How long they have become."""
    listed = [found async for found in home.temporal.list_workflows(f"WorkflowId = '{run}'")]
    described = [
        (await home.temporal.get_workflow_handle(run, run_id=found.run_id).describe()).raw_description
        for found in listed
    ]
    infos = [one.workflow_execution_info for one in described]
    return Histories(
        runs=len(infos),
        most_events=max(info.history_length for info in infos),
        events=sum(info.history_length for info in infos),
        megabytes=sum(info.history_size_bytes for info in infos) / 1e6,
    )


async def ends_of_children(home: Home, run: str) -> Counter[str]:
    """How the children of a run have closed; the server's list may be a moment behind."""
    query = f"WorkflowType = 'TaskWorkflow' AND WorkflowId STARTS_WITH '{run}/'"
    while True:
        found = [child.status.name if child.status else "?" async for child in home.temporal.list_workflows(query)]
        ends = Counter(found)
        if not ends["RUNNING"]:
            return ends
        await asyncio.sleep(0.2)


def folder_mb(folder: Path, pattern: str) -> float:
    """Megabytes of the files of a folder."""
    return sum(file.stat().st_size for file in folder.rglob(pattern) if file.is_file()) / 1e6


async def measure(shape: str, tasks: int, places: int) -> None:
    """One line of the table."""
    async with new_home(INSTANT) as home:
        server, worker = find_server(home.folder), Worker(home.folder, Mode.SIMULATED).find()
        if server is None or worker is None:
            raise RuntimeError("the home is not up")
        await home.run(plan_of("wide", 10, 4))  # imports and caches are not what is measured
        warm, database = len(calls(home)), folder_mb(home.folder, "*.db*")
        async with Footprints(worker.pid, server.pid) as used:
            start = perf_counter()
            id, summary = await home.run_named(plan_of(shape, tasks, places))
            seconds = perf_counter() - start
        histories, ends = await histories_of(home, id), await ends_of_children(home, id)
        paid = Counter(entry["task"] for entry in calls(home)[warm:])
        found = {
            "status": (summary.status, RunStatus.COMPLETED),
            "tasks that called": (len(paid), tasks),
            "calls": (sum(paid.values()), tasks),
            "children": (dict(ends), {"COMPLETED": tasks}),
            "events in a run": (min(histories.most_events, EVENTS_MOST), histories.most_events),
        }
        if wrong := [f"{what}: {is_so}, not {should}" for what, (is_so, should) in found.items() if is_so != should]:
            raise SystemExit(f"{shape}, {tasks} tasks: {'; '.join(wrong)}")
        (worker_cpu, server_cpu), (worker_mb, server_mb) = used.cpu_seconds(), used.peak_mb()
        grown = folder_mb(home.folder, "*.db*") - database
        print(
            f"{shape:<8} {tasks:>6} {seconds:>8.1f} {tasks / seconds:>8.1f} "
            f"{1000 * worker_cpu / tasks:>9.1f} {1000 * server_cpu / tasks:>9.1f} {worker_mb:>9.0f} {server_mb:>9.0f} "
            f"{histories.runs:>5} {histories.most_events:>7} {histories.events / tasks:>8.1f} "
            f"{1000 * histories.megabytes / tasks:>8.2f} {1000 * grown / tasks:>8.1f} "
            f"{1000 * folder_mb(home.folder / 'store', '*') / tasks:>8.1f}",
            flush=True,
        )


def calls(home: Home) -> list[dict[str, str]]:
    """The calls of the bill."""
    return [entry for entry in read_bill(home.folder) if entry["path"] == MESSAGES]


HEADER = (
    "shape     tasks  seconds  tasks/s worker ms server ms worker MB server MB  runs    most   events       kB "
    "database    store\n" + 34 * " " + "CPU/task  CPU/task" + 26 * " " + "events    /task    /task  kB/task  kB/task"
)


async def measure_all(shapes: Sequence[str], sizes: Sequence[int], places: int) -> None:
    """The table."""
    print(HEADER)
    for shape in shapes:
        for tasks in sizes:
            await measure(shape, tasks, places)


def main() -> None:
    """Read the command line and measure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tasks", type=int, nargs="+", default=[10, 100, 1000, 10_000])
    parser.add_argument("--shapes", nargs="+", default=SHAPES, choices=SHAPES)
    parser.add_argument("--concurrency", type=int, default=50)
    options = parser.parse_args()
    asyncio.run(measure_all(options.shapes, options.tasks, options.concurrency))
    leave(0)


if __name__ == "__main__":
    main()
