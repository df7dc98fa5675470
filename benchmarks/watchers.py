"""What 50 people who watch a run do to it: the seconds of a run alone, and with 50 `./starter.py watch RUN` beside it.

    .venv/bin/python benchmarks/watchers.py                           # 60 tasks of about 2 s, 8 at once; 5 times each
    .venv/bin/python benchmarks/watchers.py --watchers 10 --repeat 1  # in two minutes

Each watcher is a process of its own on a terminal of its own (100 x 30), where it paints the live view; `--no-terminal`
makes them write plain lines. The runs take turns, with and without watchers, in another order each time, so that a
noisy machine disturbs both alike. A run is paused after its first task; watchers are started and have settled before it
is resumed and the clock starts, because what it costs to start 50 Pythons is not what is asked here.
"""
# ruff: noqa: E402 - the environment is cleaned, and our code is found, before anything is imported

from __future__ import annotations

import os

for name in [name for name in os.environ if name.startswith(("ANTHROPIC_", "TEMPORAL_", "OTEL_", "NIGHTCREW_"))]:
    del os.environ[name]  # a benchmark spends no money, and touches no cluster
os.environ["TEMPORAL_CONFIG_FILE"] = os.devnull

import argparse
import asyncio
import fcntl
import pty
import selectors
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import psutil
from temporalio.client import Client

from client import RunClient
from domain.events import EventType
from domain.models import Agent, Need, Plan, RunStatus, Task, TaskStatus
from domain.planning import Planned
from embedded import Worker, down, find_server, up
from runtime import ROOT, Mode, Settings, connect, leave, load_settings, queue_of
from store import open_store

ABOUT_TWO_SECONDS = ("--ttft", "0.5", "--tokens-per-second", "60", "--jitter", "0.1", "--answer-tokens", "80", "100")
GATE = "gate"
"""The task that every other one needs: the run is paused while it is answered, and resumed when all is ready."""


@dataclass(frozen=True)
class Sample:
    """One run."""

    seconds: float
    """From the word to begin to the last event, by Temporal's clock."""
    worker_cpu: float
    server_cpu: float
    watchers_cpu: float
    idle_cpu: float
    """Of all watchers together, in parts of a core, before the clock started."""


class Terminals:
    """Reads what the watchers write, as a terminal does, and throws it away."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def open(self) -> int:
        """A terminal; what is written on it is read."""
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        self._selector.register(master, selectors.EVENT_READ)
        return slave

    def _read(self) -> None:
        while True:
            for key, _ in self._selector.select(timeout=0.5):
                try:
                    came = os.read(key.fd, 65536)
                except OSError:
                    came = b""
                if not came:
                    self._selector.unregister(key.fd)
                    os.close(key.fd)


TERMINALS = Terminals()


@contextmanager
def watching(home: Path, run: str, number: int, *, terminal: bool) -> Iterator[list[psutil.Process]]:
    """So many watchers of a run for as long as the block runs."""
    command = [sys.executable, str(ROOT / "starter.py"), "--home", str(home), "watch", run]
    environment = {**os.environ, "TERM": "xterm-256color"}
    started: list[subprocess.Popen[bytes]] = []
    try:
        for _ in range(number):
            place = TERMINALS.open() if terminal else os.open(os.devnull, os.O_RDWR)
            started.append(
                subprocess.Popen(
                    command, cwd=ROOT, env=environment, stdin=place, stdout=place, stderr=place, start_new_session=True
                )
            )
            os.close(place)
        yield [psutil.Process(process.pid) for process in started]
    finally:
        for process in started:
            process.kill()
        for process in started:
            process.wait()


class Bench:
    """One home that is up."""

    def __init__(self, settings: Settings, client: Client, *, terminal: bool) -> None:
        self._home, self._client, self._terminal = settings.home, client, terminal
        self._runs = RunClient(client, open_store(settings.store))
        server, worker = find_server(settings.home), Worker(settings.home, Mode.SIMULATED).find()
        if server is None or worker is None:
            raise RuntimeError("the home is not up")
        self._server, self._worker = psutil.Process(server.pid), psutil.Process(worker.pid)

    async def sample(self, tasks: int, places: int, watchers: int) -> Sample:
        """One run with so many watchers, which are there and have calmed down before its clock starts."""
        run = await self._paused_run(_plan(tasks, places))
        with watching(self._home, run, watchers, terminal=self._terminal) as processes:
            idle = await _settled(processes)
            before = _cpu(self._worker), _cpu(self._server), _cpu(*processes)
            await self._runs.resume(run, by="benchmark")
            await self._client.get_workflow_handle(run).result()
            after = _cpu(self._worker), _cpu(self._server), _cpu(*processes)
        times = {event.type: event.time async for event in self._runs.events(run)}
        length = times[EventType.RUN_COMPLETED] - times[EventType.RUN_RESUMED]
        worker, server, watching_it = (b - a for a, b in zip(before, after, strict=True))
        return Sample(length.total_seconds(), worker, server, watching_it, idle)

    async def _paused_run(self, planned: Planned) -> str:
        """A run whose first task is answered, and that waits for a word to begin with the others."""
        run = await self._runs.submit(planned, id=None, simulated=True, queue=queue_of(Mode.SIMULATED))
        paused = False
        async for picture in self._runs.watch(run):
            gate = picture.tasks[GATE]
            if not paused and gate.live is not None and gate.live.note.step in {"calling", "answering"}:
                await self._runs.pause(run, by="benchmark")
                paused = True
            if gate.status is TaskStatus.SUCCEEDED:
                break
        if picture.status is not RunStatus.PAUSED:
            raise RuntimeError("the pause came too late: this machine is too busy for this benchmark")
        return run


def _plan(tasks: int, places: int) -> Planned:
    agent = Agent(name="hand", version="1", model="claude-haiku-4-5", instructions="Do the task.")
    needs = (Need(task=GATE),)
    gate = Task(id=GATE, agent="hand", prompt=("Go.",), timeout=timedelta(seconds=60), attempts=4, max_tokens=500)
    made = (gate, *(gate.model_copy(update={"id": f"t{n}", "needs": needs}) for n in range(tasks)))
    plan = Plan(name=f"watched-{uuid.uuid4().hex[:8]}", max_concurrency=places, agents=(agent,), tasks=made)
    return Planned(plan=plan, contents={}, sources={}, warnings=())


async def _settled(processes: list[psutil.Process]) -> float:
    """What the processes take together, in parts of a core, once they no longer start."""
    while True:
        before = _cpu(*processes)
        await asyncio.sleep(5)
        taken = (_cpu(*processes) - before) / 5
        if taken <= 0.02 * len(processes):
            return taken


def _cpu(*processes: psutil.Process) -> float:
    times = [process.cpu_times() for process in processes]
    return sum(float(taken.user + taken.system) for taken in times)


async def measure(tasks: int, places: int, watchers: int, repeat: int, *, terminal: bool) -> None:
    """Take the samples in turns and print them as they come, then the ratio."""
    with tempfile.TemporaryDirectory() as folder:
        settings = load_settings(Path(folder) / "home")
        try:
            await up(settings, simulator_options=ABOUT_TWO_SECONDS)
            bench = Bench(settings, await connect(settings), terminal=terminal)
            await bench.sample(places, places, 0)  # imports and caches are not what is measured
            print(HEADER)
            samples: dict[int, list[Sample]] = {0: [], watchers: []}
            for turn in range(repeat):
                for number in (0, watchers) if turn % 2 == 0 else (watchers, 0):
                    samples[number].append(sample := await bench.sample(tasks, places, number))
                    print(_row(number, tasks, sample), flush=True)
            alone, watched = (median(sample.seconds for sample in samples[number]) for number in (0, watchers))
            print(
                f"medians: {alone:.2f} s alone, {watched:.2f} s with {watchers} watchers, ratio {watched / alone:.3f}"
            )
        finally:
            await down(settings)


HEADER = (
    "watchers  seconds  worker ms  server ms  watchers: cores idle   at work\n                     CPU/task   CPU/task"
)


def _row(watchers: int, tasks: int, sample: Sample) -> str:
    worker, server = (1000 * cpu / tasks for cpu in (sample.worker_cpu, sample.server_cpu))
    idle, at_work = sample.idle_cpu, sample.watchers_cpu / sample.seconds
    return f"{watchers:>8}  {sample.seconds:>7.2f}  {worker:>9.1f}  {server:>9.1f}  {idle:>20.2f}  {at_work:>8.2f}"


def main() -> None:
    """Read the command line and measure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tasks", type=int, default=60)
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--watchers", type=int, default=50)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--no-terminal", action="store_true", help="watchers write plain lines to /dev/null")
    options = parser.parse_args()
    asyncio.run(
        measure(options.tasks, options.concurrency, options.watchers, options.repeat, terminal=not options.no_terminal)
    )
    leave(0)


if __name__ == "__main__":
    main()
