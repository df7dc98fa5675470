"""How many events a second the log takes, how many its readers, and how late these are.

    .venv/bin/python benchmarks/events.py        # 1,000 a second for 20 s, then as many as go, for 3 readers

Events are appended as supervisors have it done: each run has a batch written every second, in a store that is a folder,
synced to the disk. Each reader is a process, `events --all --follow --reader NAME --json`, as people start it. Late is
an event by the time from when it happened until its line has come out of a reader; supervisors write what has happened
within the last second, and here that second is part of it.
"""
# ruff: noqa: E402 - the environment is cleaned, and our code is found, before anything is imported

from __future__ import annotations

import os

for name in [name for name in os.environ if name.startswith(("ANTHROPIC_", "TEMPORAL_", "OTEL_", "NIGHTCREW_"))]:
    del os.environ[name]  # a benchmark spends no money, and touches no cluster
os.environ["TEMPORAL_CONFIG_FILE"] = os.devnull

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Coroutine
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import perf_counter

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from pydantic import JsonValue

from domain.events import Event, EventType, timestamp
from store import Store, open_store
from workflows.policies import BATCH, WRITE_AFTER

STARTER = [sys.executable, str(ROOT / "starter.py")]


@dataclass
class Follower:
    """One reader in a process of its own, and how late each line of it was."""

    process: asyncio.subprocess.Process
    late: list[float] = field(default_factory=list)
    times: list[float] = field(default_factory=list)

    @staticmethod
    async def start(home: Path, name: str) -> Follower:
        """One that reads everything from now on."""
        words = ["--home", str(home), "events", "--all", "--follow", "--reader", name, "--json"]
        return Follower(await asyncio.create_subprocess_exec(*STARTER, *words, stdout=asyncio.subprocess.PIPE))

    def begin(self) -> None:
        """Count anew."""
        self.late.clear()
        self.times.clear()

    async def read(self, until: int) -> None:
        """Read lines until there were so many."""
        while len(self.late) < until and self.process.stdout is not None:
            line = json.loads(await self.process.stdout.readline())
            self.late.append((datetime.now(UTC) - datetime.fromisoformat(line["time"])).total_seconds())
            self.times.append(perf_counter())

    async def stop(self) -> None:
        """End it."""
        self.process.terminate()
        await self.process.communicate()


class Writer:
    """Runs that tell of tasks, as their supervisors would."""

    def __init__(self, store: Store, runs: int) -> None:
        self._store = store
        self._last = {f"run-{number}": 0 for number in range(runs)}
        self.written = 0
        self.times: list[float] = []

    async def submit(self) -> None:
        """Write down what each run is."""
        for run in self._last:
            await self._store.put_manifest(run, {"run": run, "submitted": timestamp(datetime.now(UTC))})

    async def at(self, rate: float, seconds: float) -> None:
        """So many events a second: every run writes once a second what has happened in it since."""
        each = rate / len(self._last)
        offsets = (index / len(self._last) for index in range(len(self._last)))
        await asyncio.gather(
            *(self._tell(run, each, seconds, start) for run, start in zip(self._last, offsets, strict=True))
        )

    async def fast(self, events: int) -> None:
        """So many events, as fast as they are taken, in the largest batches that a supervisor writes."""

        async def some(run: str) -> None:
            for _ in range(events // len(self._last) // BATCH):
                await self._append(run, [datetime.now(UTC)] * BATCH)

        await asyncio.gather(*map(some, self._last))

    async def _tell(self, run: str, rate: float, seconds: float, start: float) -> None:
        began = datetime.now(UTC) + timedelta(seconds=start)
        told = 0
        while told < rate * seconds:
            due = began + (told / rate) * timedelta(seconds=1) + WRITE_AFTER
            await asyncio.sleep(max(0.0, (due - datetime.now(UTC)).total_seconds()))
            now = datetime.now(UTC)
            many = min(int((now - began).total_seconds() * rate) - told, int(rate * seconds) - told)
            await self._append(run, [began + timedelta(seconds=(told + each) / rate) for each in range(many)])
            told += many

    async def _append(self, run: str, times: list[datetime]) -> None:
        first = self._last[run] + 1
        data: dict[str, JsonValue] = {
            "status": "SUCCEEDED",
            "attempts": 1,
            "output_ref": f"sha256:{'0' * 64}",
            "output_bytes": 1234,
        }
        events = [
            Event(number=number, type=EventType.TASK_COMPLETED, time=time, task=f"task[{number}]", data=data)
            for number, time in enumerate(times, first)
        ]
        await self._store.append_events(run, tuple(events))
        self._last[run] += len(events)
        self.written += len(events)
        self.times += [perf_counter()] * len(events)


async def main(rate: float, seconds: float, most: int, runs: int, readers: int) -> None:
    """Both halves, one after the other, with the same readers."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        writer = Writer(open_store(str(home / "store")), runs)
        await writer.submit()
        followers = [await Follower.start(home, f"reader-{number}") for number in range(readers)]
        try:
            await writer.fast(runs * BATCH)  # until all of them are up
            await asyncio.gather(*(follower.read(writer.written) for follower in followers))
            await _measure(
                f"{rate:,.0f} a second asked for", writer, followers, writer.at(rate, seconds), int(rate * seconds)
            )
            await _measure("as fast as it goes", writer, followers, writer.fast(most), most)
        finally:
            for follower in followers:
                await follower.stop()


async def _measure(
    what: str, writer: Writer, followers: list[Follower], write: Coroutine[None, None, None], events: int
) -> None:
    writer.times.clear()
    for follower in followers:
        follower.begin()
    await asyncio.gather(write, *(follower.read(events) for follower in followers))
    late = sorted(each for follower in followers for each in follower.late)
    print(
        f"{what}: {len(writer.times):,} events, {_rate(writer.times):,.0f} written a second; {len(followers)} readers, "
        f"the slowest {min(_rate(follower.times) for follower in followers):,.0f} a second; late by "
        f"{late[len(late) // 2]:.2f} s (median), {late[int(len(late) * 0.99)]:.2f} s (99 of 100)"
    )


def _rate(times: list[float]) -> float:
    """A second, from the first batch to the last."""
    first = sum(time == times[0] for time in times)
    return (len(times) - first) / (times[-1] - times[0])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=1_000)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--most", type=int, default=40_000)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--readers", type=int, default=3)
    asked = parser.parse_args()
    asyncio.run(main(asked.rate, asked.seconds, asked.most, asked.runs, asked.readers))
