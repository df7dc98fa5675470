"""The meter: who may call now. What every kind of it has in common, and the simplest ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from itertools import count
from typing import Protocol

from activities.model import ModelError
from domain.lineup import Lineup, Waiter
from domain.models import Parked, Priority, Usage
from domain.quota.words import Standing

PATIENCE = 60.0
"""Seconds in the line, after which a task goes back to its run: far less than an attempt may spend beside its call."""


class GivenBack(Exception):
    """The call was not made, and nothing is wrong with it: its run has it made when it may."""

    def __init__(self, parked: Parked) -> None:
        super().__init__(parked.what)
        self.parked = parked


@dataclass(frozen=True)
class Wish:
    """A call that somebody wants to make."""

    run: str
    priority: Priority
    model: str
    max_tokens: int
    size: int
    """Bytes of what is sent."""
    agent: str
    rank: int = 0
    """Its place in the order of its run."""
    pool: int | None = None
    """How many times its agent may be at work, in all runs together."""
    counted_as: str | None = None
    """What that is counted under; by default the agent's name."""
    probe: bool = False
    """Whether it is to find out if a wall still stands."""
    wide: int = 0
    """Characters of it that are not ASCII."""
    usd: Decimal | None = None
    """What it may cost at most, where that is known."""
    waits: Callable[[str, datetime | None], None] = lambda _what, _until: None
    """Is told what the call waits for, and until when."""


class Hold:
    """One call's part of the quota, while it is under way. This one is of a meter that does not count."""

    def is_late(self) -> bool:
        """Whether it must not be used any more, and the call is to be drawn for anew."""
        return False

    def begun(self) -> None:
        """The request is about to leave: from here on it may count."""

    def heard(self, standing: Standing) -> None:
        """The provider has said how the account stands."""

    def spoke(self) -> None:
        """The first words have come."""

    def settled(self, usage: Usage) -> None:
        """The provider has said what the call used."""

    def refused(self, error: ModelError) -> None:
        """The call came to nothing."""

    def paid(self, usd: Decimal | None) -> None:
        """What the call has cost, or may have cost at most. Without a word it counts at its worst case."""


class Meter(Protocol):
    """What the door asks before a call."""

    def draw(self, wish: Wish) -> AbstractAsyncContextManager[Hold]:
        """A block in which this call may be made; it begins when it may, or is `GivenBack`."""
        ...

    def pay(self, wish: Wish) -> AbstractAsyncContextManager[Hold]:
        """A block that has the money of a call that goes in a batch, or it is `GivenBack`; spent if the call begins."""
        ...


class OpenMeter:
    """Grants every call at once."""

    @asynccontextmanager
    async def draw(self, wish: Wish) -> AsyncIterator[Hold]:  # noqa: ARG002 - as above
        """Nothing to wait for."""
        yield Hold()

    @asynccontextmanager
    async def pay(self, wish: Wish) -> AsyncIterator[Hold]:  # noqa: ARG002 - as above
        """Nothing to count."""
        yield Hold()


class NarrowMeter:
    """Grants so many calls at a time, of all runs together. The others wait in a line that is fair to every run.

    Whoever has a place asks the next meter, if there is one: a grant of that one would not keep while it waits here.
    """

    def __init__(self, places: int, patience: float = PATIENCE, *, then: Meter | None = None) -> None:
        self._free = places
        self._patience = patience
        self._then = then or OpenMeter()
        self._lineup = Lineup()
        self._called: dict[Waiter, asyncio.Future[None]] = {}
        self._numbers = count()

    @asynccontextmanager
    async def draw(self, wish: Wish) -> AsyncIterator[Hold]:
        """Wait for a place, and hold it during the block."""
        await self._wait(Waiter(wish.run, wish.priority, next(self._numbers), wish.rank))
        try:
            async with self._then.draw(wish) as hold:
                yield hold
        finally:
            self._free += 1
            self._call_next()

    def pay(self, wish: Wish) -> AbstractAsyncContextManager[Hold]:
        """A batch needs no place."""
        return self._then.pay(wish)

    async def _wait(self, waiter: Waiter) -> None:
        called = self._called[waiter] = asyncio.get_running_loop().create_future()
        self._lineup = self._lineup.joined(waiter)
        self._call_next()
        try:
            async with asyncio.timeout(self._patience):
                await called
        except TimeoutError:
            self._forgo(waiter, called)
            raise GivenBack(Parked(why="worker", what="the worker makes as many calls as it may")) from None
        except asyncio.CancelledError:
            self._forgo(waiter, called)
            raise
        finally:
            del self._called[waiter]

    def _call_next(self) -> None:
        while self._free and (waiter := self._lineup.next()):
            called = self._called[waiter]
            if called.cancelled():  # it is about to leave
                self._lineup = self._lineup.left(waiter)
                continue
            self._lineup = self._lineup.served(waiter)
            self._free -= 1
            called.set_result(None)

    def _forgo(self, waiter: Waiter, called: asyncio.Future[None]) -> None:
        """Leave the line; a place that was given in this very moment goes to the next."""
        if called.done() and not called.cancelled():
            self._free += 1
            self._call_next()
        else:
            self._lineup = self._lineup.left(waiter)
