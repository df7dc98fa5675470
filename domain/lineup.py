"""Who waits for a place, and who is next: the more urgent first, then the runs in turns, each in its own order.

Pure: a value and its steps. A run with hundreds of calls in the line is served once in a round, as a run with one is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush

from domain.models import Priority

URGENCY = {Priority.HIGH: 0, Priority.NORMAL: 1, Priority.LOW: 2}


@dataclass(frozen=True)
class Waiter:
    """One call that waits. Numbers are given in the order of coming, and never twice."""

    run: str
    priority: Priority
    number: int
    rank: int = 0
    """Its place in the order of its own run: an earlier deadline, or a longer way that is left, goes first."""


@dataclass(frozen=True)
class Lineup:
    """All who wait, and whose turn it was.

    Turns have even numbers. A run that comes new gets the odd number before the last turn: it stands behind the runs
    that waited through that turn, and before the one that had it. So it is served within a round, and however many come
    after it, none of them passes it. When nobody waits any more, all is even, and forgotten.
    """

    waiting: tuple[Waiter, ...] = ()
    turn: int = 0
    turns: Mapping[str, int] = field(default_factory=dict)
    """By run, the turn that it had last."""

    def joined(self, waiter: Waiter) -> Lineup:
        """With one more at the end."""
        turns = {waiter.run: self.turn - 1, **self.turns}
        return replace(self, waiting=(*self.waiting, waiter), turns=turns)

    def left(self, waiter: Waiter) -> Lineup:
        """Without one who no longer waits."""
        waiting = tuple(other for other in self.waiting if other != waiter)
        return replace(self, waiting=waiting) if waiting else Lineup()

    def next(self) -> Waiter | None:
        """Who is to be served, if anybody waits."""
        return min(self.waiting, key=self._place, default=None)

    def first(self, most: int) -> list[Waiter]:
        """The next so many, in the order in which they are served when nobody comes or leaves."""
        lines: dict[str, deque[Waiter]] = {}
        for waiter in sorted(self.waiting, key=lambda waiter: (URGENCY[waiter.priority], waiter.rank, waiter.number)):
            lines.setdefault(waiter.run, deque()).append(waiter)
        heads = [(self._place(line[0]), run) for run, line in lines.items()]
        heapify(heads)
        turn, found = self.turn, list[Waiter]()
        while heads and len(found) < most:
            _, run = heappop(heads)
            found.append(lines[run].popleft())
            turn += 2
            if line := lines[run]:
                head = line[0]
                heappush(heads, ((URGENCY[head.priority], turn, head.rank, head.number), run))
        return found

    def served(self, waiter: Waiter) -> Lineup:
        """After this one was served: the turn of its run is over."""
        turn = self.turn + 2
        return replace(self, turn=turn, turns={**self.turns, waiter.run: turn}).left(waiter)

    def _place(self, waiter: Waiter) -> tuple[int, int, int, int]:
        return URGENCY[waiter.priority], self.turns[waiter.run], waiter.rank, waiter.number
