"""Calls that begin alike: one goes first, and nobody waits for it for long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime

import pytest

from activities.prefixes import Prefixes, Turn


class Caller:
    """One call: what it waits for, and what it is told to do next."""

    def __init__(self, prefixes: Prefixes, key: str | None = "key") -> None:
        self.waits: list[str] = []
        self.turn: Turn | None = None
        self._go: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.task = asyncio.create_task(self._call(prefixes, key))

    async def _call(self, prefixes: Prefixes, key: str | None) -> None:
        async with prefixes.turn(key, self._wait) as turn:
            self.turn = turn
            await self._go

    def _wait(self, what: str, _until: datetime | None) -> None:
        self.waits.append(what)

    async def begins(self) -> None:
        assert self.turn is not None
        self.turn.begun()
        await settled()

    async def fails(self) -> None:
        self._go.set_exception(ConnectionError())
        await asyncio.gather(self.task, return_exceptions=True)
        await settled()

    async def is_cancelled(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        await settled()


async def settled() -> None:
    """Everybody who can go on has gone on."""
    for _ in range(10):
        await asyncio.sleep(0)


async def callers(prefixes: Prefixes, count: int, key: str | None = "key") -> list[Caller]:
    found = [Caller(prefixes, key) for _ in range(count)]
    await settled()
    return found


def gone(found: list[Caller]) -> list[bool]:
    return [caller.turn is not None for caller in found]


async def test_the_others_go_when_the_first_answer_has_begun() -> None:
    found = await callers(Prefixes(), 3)
    assert gone(found) == [True, False, False]
    assert [bool(caller.waits) for caller in found] == [False, True, True]

    await found[0].begins()

    assert gone(found) == [True, True, True]
    assert [caller.turn.reads for caller in found if caller.turn] == [False, True, True]


async def test_what_was_kept_a_moment_ago_is_not_waited_for() -> None:
    prefixes = Prefixes()
    (first,) = await callers(prefixes, 1)
    await first.begins()
    await first.fails()

    later = await callers(prefixes, 2)

    assert gone(later) == [True, True]


@pytest.mark.parametrize("end", [Caller.fails, Caller.is_cancelled])
async def test_when_the_first_comes_to_nothing_the_next_one_goes_first(
    end: Callable[[Caller], asyncio.Future[None]],
) -> None:
    """One, not all: what it would have written is not there."""
    found = await callers(Prefixes(), 3)

    await end(found[0])

    assert gone(found) == [True, True, False]
    await found[1].begins()
    assert gone(found) == [True, True, True]


async def test_nobody_waits_for_long() -> None:
    """The first says nothing, and does not end either: the others go without it."""
    found = await callers(Prefixes(patience=0.01), 3)

    async with asyncio.timeout(10):
        while not all(gone(found)):
            await asyncio.sleep(0.01)

    assert [caller.turn.reads for caller in found if caller.turn] == [False, False, False]


async def test_one_who_gave_up_waiting_is_no_loss_for_the_others() -> None:
    found = await callers(Prefixes(), 3)

    await found[1].is_cancelled()
    await found[0].begins()

    assert gone(found) == [True, False, True]


async def test_other_beginnings_and_none_wait_for_nobody() -> None:
    prefixes = Prefixes()
    await callers(prefixes, 1)

    assert gone(await callers(prefixes, 1, "another")) == [True]
    assert gone(await callers(prefixes, 2, None)) == [True, True]


async def test_nothing_is_remembered_of_what_was_never_kept() -> None:
    prefixes = Prefixes()
    (only,) = await callers(prefixes, 1)

    await only.fails()

    assert prefixes._known == {}
