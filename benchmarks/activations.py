"""How long the supervisor holds the worker at a time: its activations in a run of ten thousand tasks.

    .venv/bin/python benchmarks/activations.py                        # until 1,500 tasks were called, in three minutes
    .venv/bin/python benchmarks/activations.py --calls 9900           # nearly all of them, in a quarter of an hour

The worker is in this process, so that every activation is seen: as seconds on the clock, and as seconds of CPU of its
thread, which a busy machine does not stretch. The longest are the first, which reads the plan, and those after
continue-as-new, which read what was carried over: the later, the more of it there is.
"""
# ruff: noqa: E402 - the environment is cleaned, and our code is found, before anything is imported

from __future__ import annotations

import os

for name in [name for name in os.environ if name.startswith(("ANTHROPIC_", "TEMPORAL_", "OTEL_", "NIGHTCREW_"))]:
    del os.environ[name]  # a benchmark spends no money, and touches no cluster
os.environ["TEMPORAL_CONFIG_FILE"] = os.devnull

import argparse
import asyncio
import logging
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter, thread_time

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scale import INSTANT, SHAPES, plan_of
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.worker.workflow_sandbox._runner import _Instance
from trap_sample import read_bill

from client import RunClient
from collector import collecting_between
from embedded import down, up
from runtime import Mode, connect, leave, load_settings, queue_of
from store import open_store
from telemetry.logs import configure_logs
from worker import build_worker, model_for

LIMIT = 0.5
"""Seconds that no activation should take."""


@dataclass(frozen=True)
class Seen:
    """One activation of the supervisor."""

    clock: float
    cpu: float
    jobs: str


@contextmanager
def watched() -> Iterator[list[Seen]]:
    """Every activation of a supervisor in this process."""
    seen: list[Seen] = []
    activate = _Instance.activate

    def timed(self: _Instance, act: WorkflowActivation) -> WorkflowActivationCompletion:
        clock, cpu = perf_counter(), thread_time()
        done = activate(self, act)
        if self.instance_details.info.workflow_type == "SupervisorWorkflow":
            jobs = dict.fromkeys(str(job.WhichOneof("variant")) for job in act.jobs)
            seen.append(Seen(perf_counter() - clock, thread_time() - cpu, f"{len(act.jobs)} jobs: {', '.join(jobs)}"))
        return done

    _Instance.activate = timed  # type: ignore[method-assign]
    try:
        yield seen
    finally:
        _Instance.activate = activate  # type: ignore[method-assign]


async def measure(shape: str, tasks: int, places: int, calls: int) -> None:
    """Run the beginning of a plan, and tell what its activations took."""
    with tempfile.TemporaryDirectory(prefix="nightcrew-") as folder:
        settings = load_settings(Path(folder) / "home")
        try:
            await up(settings, worker=False, simulator_options=INSTANT, keep=False)
            temporal, store = await connect(settings), open_store(settings.store)
            queue, runs = queue_of(Mode.SIMULATED), RunClient(temporal, store)
            model = model_for(Mode.SIMULATED, settings)
            with watched() as seen:
                async with build_worker(temporal, queue=queue, model=model, store=store), collecting_between():
                    run = await runs.submit(plan_of(shape, tasks, places), id=None, simulated=True, queue=queue)
                    while len(read_bill(settings.home)) < calls:  # noqa: ASYNC110  of another process
                        await asyncio.sleep(0.5)
                    handle = temporal.get_workflow_handle(run)
                    listed = [found async for found in temporal.list_workflows(f"WorkflowId = '{run}'")]
                    await handle.terminate(reason="the benchmark has seen enough")
        finally:
            await down(settings)
    tell(shape, tasks, len(listed), seen)


def tell(shape: str, tasks: int, histories: int, seen: list[Seen]) -> None:
    """The figures."""
    over = sum(each.cpu > LIMIT for each in seen)
    print(
        f"{shape}, {tasks} tasks: {len(seen)} activations over {histories} histories, {over} with more than {LIMIT} s"
    )
    for title, times in ("clock", [each.clock for each in seen]), ("CPU", [each.cpu for each in seen]):
        print(f"  {title:<6} median {1000 * median(times):6.1f} ms, longest {1000 * max(times):6.1f} ms")
    for each in sorted(seen, key=lambda each: -each.cpu)[:4]:
        print(f"  {1000 * each.clock:6.1f} ms, {1000 * each.cpu:6.1f} of CPU: {each.jobs}")


def main() -> None:
    """Read the command line and measure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--shapes", nargs="+", default=["wide", "layered"], choices=SHAPES)
    parser.add_argument("--concurrency", type=int, default=50)
    parser.add_argument("--calls", type=int, default=1500, help="end the run after so many")
    options = parser.parse_args()
    configure_logs(level=logging.ERROR)
    for shape in options.shapes:
        asyncio.run(measure(shape, options.tasks, options.concurrency, options.calls))
    leave(0)


if __name__ == "__main__":
    main()
