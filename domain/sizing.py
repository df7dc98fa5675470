"""How many places a plan can use: its tasks, as long as they were measured to work, laid out on ever fewer places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from math import ceil

from domain.graph import Needs, dependants_of

SLACK = 1.05
"""How much longer than with places for all it may take with the fewest: the last few places often win nothing."""


class Layout:
    """A plan whose tasks work so long, each started when there is a place, in the order in which a run starts them.

    A run does not know beforehand which task takes long, and nor does its layout.
    """

    def __init__(self, needs: Needs, order: Sequence[str], work: Mapping[str, float], *, waves: bool = False) -> None:
        self._work, self._order, self._waves = work, order, waves
        self._rank = {id: rank for rank, id in enumerate(order)}
        self._dependants = dependants_of(needs)
        self._unmet = {id: len(set(needed)) for id, needed in needs.items()}

    def takes(self, places: int) -> float:
        """How long it takes on so many places."""
        return self._run(places)[0]

    def fewest_places(self, most: int) -> int:
        """The fewest on which it takes hardly longer than on the most."""
        takes, fits = self._run(most)
        enough = takes * SLACK
        too_few = min(ceil(sum(self._work.values()) / enough), fits) - 1 if enough else 0
        while fits - too_few > 1:
            places = (too_few + fits) // 2
            if self.takes(places) <= enough:
                fits = places
            else:
                too_few = places
        return fits

    def _run(self, places: int) -> tuple[float, int]:
        """How long it takes, and how many of the places it uses."""
        unmet = dict(self._unmet)
        ready = [rank for rank, id in enumerate(self._order) if not unmet[id]]
        busy: list[tuple[float, str]] = []
        now, used, going = 0.0, 0, False  # going: a wave is, and the next one waits for its last task
        while ready or busy:
            while ready and len(busy) < places and not (self._waves and going):
                id = self._order[heappop(ready)]
                heappush(busy, (now + self._work[id], id))
            used = max(used, len(busy))
            now, ended = heappop(busy)
            going = bool(busy)
            for id in self._dependants[ended]:
                unmet[id] -= 1
                if not unmet[id]:
                    heappush(ready, self._rank[id])
        return now, used
