"""A round: one home, runs at work, faults of one kind at given points, and the judgement."""

from __future__ import annotations

import random
import shlex
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proof.disk import NoDisk
from proof.faults import KILLS, KINDS, strike
from proof.grounds import Grounds, grounds_at
from proof.plans import PLANS
from proof.points import boundaries, reached
from proof.processes import started

IN_A_ROUND = 12
"""Faults in one home. More would save a second each, and make what is left harder to read."""

BESIDE = ("large", "capped")
"""What runs beside the plan that is struck at a point, and is struck at some point of its own."""


@dataclass(frozen=True)
class Strike:
    """One fault to be done, and how somebody does it again."""

    kind: str
    at: str
    plan: str = "small"

    def again(self, seed: int) -> str:
        """The command that does this one alone."""
        words = ["python", "-m", "proof", "--seed", str(seed), "--fault", self.kind, "--at", self.at]
        return shlex.join([*words, *([] if self.plan == "small" else ["--plan", self.plan])])


@dataclass(frozen=True)
class Round:
    """Faults that are done to one home, and what they are called together."""

    label: str
    strikes: tuple[Strike, ...]

    def again(self, seed: int) -> str:
        """The commands that do them all: one if they are of one kind and plan."""
        sorts = dict.fromkeys((strike.kind, strike.plan) for strike in self.strikes)
        ats = [",".join(s.at for s in self.strikes if (s.kind, s.plan) == sort) for sort in sorts]
        return "; ".join(Strike(kind, at, plan).again(seed) for (kind, plan), at in zip(sorts, ats, strict=True))


@dataclass
class Tally:
    """What came of the rounds of one kind."""

    counts: Counter[str] = field(default_factory=Counter)
    violations: list[dict[str, Any]] = field(default_factory=list)
    skipped: str | None = None

    def add(self, other: Tally) -> None:
        """Take another round in."""
        self.counts += other.counts
        self.violations += other.violations
        self.skipped = self.skipped or other.skipped


async def rehearse() -> dict[str, int]:
    """How many boundaries the small plan has when nobody disturbs it."""
    with tempfile.TemporaryDirectory(prefix="nightcrew-proof-") as folder:
        async with grounds_at(Path(folder)) as grounds:
            run = await grounds.submit("small", "")
            await grounds.all_closed()
            return await boundaries(grounds, run)


def at_every_boundary(kind: str, points: Mapping[str, int]) -> list[Strike]:
    """One fault for each of them."""
    return [Strike(kind, f"{clock}:{number}") for clock, count in points.items() for number in range(1, count + 1)]


def at_random(kind: str, count: int, seed: int) -> list[Strike]:
    """So many faults at moments of the large plan that the seed decides."""
    chance = random.Random(f"{seed}/{kind}")  # noqa: S311
    return [Strike(kind, f"after:{chance.uniform(0.1, 5):.2f}", "large") for _ in range(count)]


def in_rounds(strikes: Sequence[Strike]) -> list[Round]:
    """Parts that one home can take, each of one kind."""
    sorted_out = {strike.kind: [each for each in strikes if each.kind == strike.kind] for strike in strikes}
    return [
        Round(kind, tuple(part[at : at + IN_A_ROUND]))
        for kind, part in sorted_out.items()
        for at in range(0, len(part), IN_A_ROUND)
    ]


async def fight(round: Round, seed: int, environment: Mapping[str, str] | None = None) -> Tally:
    """One round, in a home that nobody has used before."""
    kind = KINDS[round.strikes[0].kind]
    with kept_if_broken() as left:
        try:
            async with grounds_at(left.folder, small=kind.disk, worker_environment=environment) as grounds:
                if kind.second_worker:
                    await started(grounds.second)
                left.tally = await _fight(grounds, round, seed)
        except NoDisk as reason:
            left.tally.skipped = str(reason)
    return left.tally


@dataclass
class Left:
    """What is left of a home, and the judgement on it."""

    folder: Path
    tally: Tally = field(default_factory=Tally)


@contextmanager
def kept_if_broken() -> Iterator[Left]:
    """A folder for a home, which stays there for who looks into a violation."""
    left = Left(Path(tempfile.mkdtemp(prefix="nightcrew-proof-")))
    try:
        yield left
    finally:
        if left.tally.violations:
            sys.stderr.write(f"What is left of it is in {left.folder}\n")
        else:
            shutil.rmtree(left.folder)


async def _fight(grounds: Grounds, round: Round, seed: int) -> Tally:
    missed = 0
    if len(round.strikes) > 1:
        for plan in BESIDE:
            await grounds.submit(plan, round.again(seed))
    for each in round.strikes:
        await grounds.spare()
        run = await grounds.submit(each.plan, each.again(seed))
        if await reached(grounds, run, each.at):
            await strike(grounds, each.kind)
        else:
            missed += 1  # it had fewer events than that: there is no such moment
    await grounds.all_closed()
    tally = await judged(grounds, missed)
    for violation in tally.violations:
        violation["again"] = violation["again"] or round.again(seed)
    return tally


async def judged(grounds: Grounds, missed: int = 0, *, part: float = 1.0) -> Tally:
    """What the checker says of all that has happened here; `part` of the tasks must have succeeded."""
    least = int(part * sum(PLANS[run.plan].succeed for run in grounds.runs))
    verdict = await grounds.check(least)
    counts = Counter({**verdict["counted"], "missed": missed})
    counts["kills"] = sum(fault.kind in KILLS for fault in grounds.faults)
    return Tally(counts, verdict["violations"])
