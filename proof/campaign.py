"""What a proof consists of: which faults, how many, and where."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from math import inf
from time import monotonic
from typing import Any

from proof.faults import KILLS, KINDS
from proof.rounds import Round, Tally, at_every_boundary, at_random, fight, in_rounds, rehearse
from proof.stall import STALL, stand_still

KILLS_AT_RANDOM = 15
"""Of each kind, in the large plan; those at the boundaries of the small one come on top."""

OTHER_FAULTS = {
    "freeze-worker": 6,
    "freeze-server": 4,
    "cut-short": 4,
    "cut-long": 4,
    "reset": 8,
    "full-store": 2,
    "full-database": 3,
}

MIXED = "kills"

ORDER = (MIXED, *KINDS)
"""Of the lines of the table."""

SOME_POINTS = {"run": 40, "task": 11, "call": 3}
"""Boundaries that the small plan has for certain, for who cannot wait for a rehearsal."""


@dataclass(frozen=True)
class Campaign:
    """A proof: which rounds it has, and whether it waits for a stall to become one."""

    rounds: Callable[[int], Coroutine[Any, Any, list[Round]]]
    waits: bool


async def _long(seed: int) -> list[Round]:
    points = await rehearse()
    strikes = [strike for kind in KILLS for strike in at_every_boundary(kind, points)]
    at_chance = [strike for kind in KILLS for strike in at_random(kind, KILLS_AT_RANDOM, seed)]
    others = [strike for kind, count in OTHER_FAULTS.items() for strike in at_random(kind, count, seed)]
    return [*in_rounds(strikes), *in_rounds(at_chance), *in_rounds(others)]


async def _short(seed: int) -> list[Round]:
    """Ten kills in one home, of all kinds."""
    chance = random.Random(seed)  # noqa: S311
    every = [strike for kind in KILLS for strike in at_every_boundary(kind, SOME_POINTS)]
    return [Round(MIXED, (*chance.sample(every, 8), *at_random(chance.choice(KILLS), 2, seed)))]


LONG = Campaign(_long, waits=True)
SHORT = Campaign(_short, waits=False)


async def prove(campaign: Campaign, seed: int, *, homes: int, minutes: float = inf) -> dict[str, Tally]:
    """What came of it, by kind of fault. After so many minutes nothing new is begun."""
    rounds = await campaign.rounds(seed)
    random.Random(seed).shuffle(rounds)  # noqa: S311 - so that every kind has been there when time is short
    tallies = {label: Tally() for label in sorted({each.label for each in rounds}, key=ORDER.index)} | {STALL: Tally()}
    places, began, done = asyncio.Semaphore(homes), monotonic(), 0

    async def take(label: str, again: str, work: Callable[[], Coroutine[Any, Any, Tally]]) -> None:
        nonlocal done
        async with places:
            if monotonic() - began > minutes * 60:
                return
            try:
                tally = await work()
            except Exception as problem:  # noqa: BLE001 - the other rounds are worth being told of
                what = f"the round broke off: {type(problem).__name__}: {problem}"
                tally = Tally(violations=[{"invariant": "nothing", "run": None, "what": what, "again": again}])
        tallies[label].add(tally)
        done += 1
        broken = f"{len(tally.violations)} violations" if tally.violations else tally.skipped or "holds"
        passed = (monotonic() - began) / 60
        sys.stderr.write(f"{passed:5.1f} min  round {done} of {len(rounds) + 1}: {label}: {broken}\n")

    await asyncio.gather(
        take(STALL, f"python -m proof --seed {seed}", partial(stand_still, seed, wait=campaign.waits)),
        *(take(each.label, each.again(seed), partial(fight, each, seed)) for each in rounds),
    )
    return tallies


async def one_round(round: Round, seed: int) -> dict[str, Tally]:
    """What came of one round: that of somebody who wants to see it again."""
    return {round.label: await fight(round, seed)}
