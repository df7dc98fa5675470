"""All that was taken of one scene, and which arms there are to take. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from trap_sample import ALL, LANGGRAPH, OURS, OWN, SDK, SEMAPHORE, UNTIL_DONE, WAVES, Arm, Sample

SWEEP = (1, 2, 4, 8, 22)
CALLS = 23
"""22 tasks and a synthesis."""


@dataclass(frozen=True)
class Taken:
    """The samples of a scene, and its physical limits by seed: of the whole quota, and of what the headroom leaves."""

    title: str
    samples: Sequence[Sample]
    limits: dict[int, tuple[float, float]]

    def of(self, arm: Arm) -> list[Sample]:
        """The samples of an arm."""
        return [sample for sample in self.samples if sample.arm == arm]

    def seconds(self, arm: Arm) -> float | None:
        """The median time of an arm, if it was run."""
        found = [sample.seconds for sample in self.of(arm)]
        return median(found) if found else None

    @property
    def limit(self) -> float:
        """The physical limit, of the median seed."""
        return median(whole for whole, _ in self.limits.values())

    @property
    def left(self) -> float:
        """The limit that the headroom leaves, of the median seed."""
        return median(left for _, left in self.limits.values())


def arms_to_compare() -> list[Arm]:
    """Each way of today with both kinds of retries, then ours."""
    ways = ((ALL, 22), (WAVES, 4), (SEMAPHORE, 4), (LANGGRAPH, 4))
    theirs = [Arm(way, places, retries) for way, places in ways for retries in (SDK, UNTIL_DONE)]
    return [*theirs, Arm(OURS, 4, OWN), Arm(OURS, 22, OWN)]


def arms_of_the_sweep(places: int) -> tuple[Arm, Arm]:
    """A semaphore that is retried until all is done, and ours. A semaphore of 22 is all at once."""
    semaphore = Arm(ALL, 22, UNTIL_DONE) if places == 22 else Arm(SEMAPHORE, places, UNTIL_DONE)
    return semaphore, Arm(OURS, places, OWN)


def all_arms() -> list[Arm]:
    """Each once."""
    swept = [arm for places in SWEEP for arm in arms_of_the_sweep(places)]
    return list(dict.fromkeys([*arms_to_compare(), *swept]))
