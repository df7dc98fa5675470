"""The soak: a fault every 5 to 40 seconds for hours, over processes, disk, network and provider (K1), and no leak (K2).

One worker is spared what is done to workers: whatever it gathers in its life can be seen. Every quarter of an hour the
faults pause, everything ends, and the checker judges the runs of that quarter.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from time import monotonic
from typing import Any

import psutil

from proof.disk import NoDisk
from proof.evidence import Fault, Look
from proof.faults import KINDS, strike
from proof.grounds import Grounds, grounds_at, moment
from proof.page import table
from proof.plans import PLANS, SCRIPT
from proof.processes import started
from proof.rounds import Tally, judged, kept_if_broken

QUARTER = 900.0
"""Seconds between two judgements, without the time in which everything ends."""

AT_WORK = 4
"""Runs at once."""

MOODS: tuple[dict[str, Any], ...] = (
    {"fault": "overloaded"},
    {"fault": "reset_mid_stream"},
    {"fault": "rate_limit", "retry_after": 2},
    {"ttft": 4},
)
"""What the provider does to one of four requests, for a while."""

SETTLED = 600.0
"""Seconds after which a worker has loaded what it needs: what it gathers from then on is a leak."""


JUDGED_FROM = 2.0
"""Hours of a settled worker from which on what it gathers is judged: before, the slope is that of chance."""

MOST_AN_HOUR = {"rss_mb": 1.0, "files": 0.5}
"""What may be added in an hour (K2): less than a megabyte, and no file that stays open."""


@dataclass(frozen=True)
class Sample:
    """The spared worker and the database at one moment."""

    hours: float
    rss_mb: float
    files: int
    database_mb: float


async def soak(length: timedelta, seed: int) -> int:
    """Do it, and tell; the exit code."""
    with kept_if_broken() as left:
        try:
            async with grounds_at(left.folder / "small", small="home", megabytes=4000) as grounds:
                left.tally = await Soak(grounds, seed, disk=True).last(length.total_seconds())
        except NoDisk as reason:
            sys.stderr.write(f"{reason}: no disk is filled up\n")
            async with grounds_at(left.folder / "plain") as grounds:
                left.tally = await Soak(grounds, seed, disk=False).last(length.total_seconds())
    return 1 if left.tally.violations else 0


class Soak:
    """One soak."""

    def __init__(self, grounds: Grounds, seed: int, *, disk: bool) -> None:
        self._grounds, self._seed = grounds, seed
        self._chance = random.Random(seed)  # noqa: S311
        self._plans = random.Random(f"{seed}/plans")  # noqa: S311 - apart: who draws first is left to the machine
        left_out = {"full-store"} if disk else {"full-store", "full-database"}
        self._kinds = [*(KINDS.keys() - left_out), "provider"]
        self._kinds.sort()
        self._tally = Tally()
        self._samples: list[Sample] = []
        self._began = monotonic()

    async def last(self, seconds: float) -> Tally:
        """Go on for so long."""
        await started(self._grounds.second)
        end = self._began + seconds
        while monotonic() < end:
            await self._quarter(min(QUARTER, end - monotonic()))
            if self._tally.violations:
                break  # what is left should be looked at
        for what in leaks(self._samples):
            self._tally.violations.append({"invariant": "K2", "run": None, "what": what, "again": self._again()})
        sys.stdout.write(table({"soak": self._tally}) + "\n" + leak(self._samples) + "\n")
        for violation in self._tally.violations:
            sys.stdout.write(f"{violation['invariant']} is broken, run {violation['run']}: {violation['what']}\n")
            sys.stdout.write(f"  again: {violation['again'] or self._again()}\n")
        return self._tally

    async def _quarter(self, seconds: float) -> None:
        grounds = self._grounds
        grounds.runs, grounds.faults, grounds.looks = [], [], []
        grounds.ask("/log", method="DELETE")  # in memory: the file, which is the bill, keeps what it has
        watching = asyncio.create_task(self._watch())
        loads = [asyncio.create_task(self._load()) for _ in range(AT_WORK)]
        end = monotonic() + seconds
        while (pause := self._chance.uniform(5, 40)) < end - monotonic():
            await asyncio.sleep(pause)
            await self._do(self._chance.choice(self._kinds))
        await asyncio.sleep(max(0.0, end - monotonic()))
        for task in loads:
            task.cancel()
        await asyncio.gather(*loads, return_exceptions=True)
        grounds.ask("/script", SCRIPT)
        await grounds.all_closed()
        watching.cancel()
        tally = await judged(grounds, part=0.5)  # a provider in such a mood fails tasks, and may
        if grounds.second.find() is None:
            what = "the worker that was spared has ended by itself"
            tally.violations.append({"invariant": "K2", "run": None, "what": what, "again": self._again()})
        self._tally.add(tally)
        sys.stderr.write(f"{self._hours():5.2f} h: {tally.counts['faults']} faults, {tally.counts['runs']} runs, ")
        sys.stderr.write(f"{len(tally.violations)} violations\n")

    async def _do(self, kind: str) -> None:
        if kind == "provider":
            mood = self._chance.choice(MOODS)
            rules = [*SCRIPT["rules"], *({"when": {"nth": 4 * n}, "then": mood} for n in range(1, 6))]
            self._grounds.ask("/script", {**SCRIPT, "rules": rules})
            self._grounds.faults.append(Fault(kind, moment(), moment(), loses_calls=False))
        else:
            await strike(self._grounds, kind)

    async def _load(self) -> None:
        """One run after the other."""
        while True:
            plan = self._plans.choice([*PLANS])
            run = await self._grounds.submit(plan, self._again())
            while not (self._grounds.of_run(run) / "end.json").exists():
                await asyncio.sleep(0.5)

    async def _watch(self) -> None:
        """Look at the open runs and at the spared worker, once a minute."""
        while True:
            for run in [run.run for run in self._grounds.runs if run.closed is None]:
                with suppress(Exception):  # the server may be down: who cannot be asked tells nothing wrong
                    picture = await self._grounds.client.picture(run)
                    self._grounds.looks.append(Look(run, moment(), picture.status.value))
            if state := self._grounds.second.find():
                self._samples.append(sampled(state.pid, self._hours(), self._grounds.settings.home / "temporal.db"))
            await asyncio.sleep(60)

    def _again(self) -> str:
        """The same faults in the same order; a little longer than until now, for what comes of them."""
        return f"python -m proof --seed {self._seed} --hours {self._hours() + 0.25:.2f}"

    def _hours(self) -> float:
        return (monotonic() - self._began) / 3600


def sampled(pid: int, hours: float, database: Path) -> Sample:
    """How large a process and the database are now."""
    process = psutil.Process(pid)
    return Sample(hours, process.memory_info().rss / 1e6, process.num_fds(), database.stat().st_size / 1e6)


def slope(points: Sequence[tuple[float, float]]) -> float:
    """What is added in an hour, by least squares; nothing is known of fewer than two moments."""
    if len({x for x, _ in points}) < 2:
        return 0.0
    middle = sum(x for x, _ in points) / len(points)
    mean = sum(y for _, y in points) / len(points)
    return sum((x - middle) * (y - mean) for x, y in points) / sum((x - middle) ** 2 for x, _ in points)


def leak(samples: Sequence[Sample]) -> str:
    """What the spared worker has gathered, in a sentence."""
    later = _settled(samples)
    if len(later) < 2:
        return f"Nothing can be said of a leak: the worker that was spared was at work for less than {SETTLED:.0f} s."
    rss, files = (slope([(s.hours, getattr(s, name)) for s in later]) for name in MOST_AN_HOUR)
    return (
        f"The worker that was spared: {later[-1].rss_mb:.0f} MB and {later[-1].files} files at its end; "
        f"{rss:+.2f} MB and {files:+.2f} files an hour. The database has {later[-1].database_mb:.0f} MB."
    )


def leaks(samples: Sequence[Sample]) -> list[str]:
    """What the spared worker gathers for ever, as far as it was watched for long enough to say so."""
    later = _settled(samples)
    if not later or later[-1].hours - later[0].hours < JUDGED_FROM:
        return []
    slopes = {name: slope([(s.hours, getattr(s, name)) for s in later]) for name in MOST_AN_HOUR}
    return [
        f"the worker that was spared gathers {slopes[name]:.2f} {name} an hour, and {most} is the most"
        for name, most in MOST_AN_HOUR.items()
        if slopes[name] >= most
    ]


def _settled(samples: Sequence[Sample]) -> list[Sample]:
    return [sample for sample in samples if sample.hours * 3600 >= SETTLED]
