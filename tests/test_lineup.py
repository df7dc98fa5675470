"""Who is next in the line, and the meter that calls them: the more urgent first, and the runs in turns."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activities.meter import GivenBack, NarrowMeter, Wish
from domain.lineup import URGENCY, Lineup, Waiter
from domain.models import Priority

RUNS = st.sampled_from("abcde")
PRIORITIES = st.sampled_from(Priority)
COMINGS = st.lists(st.tuples(RUNS, PRIORITIES), max_size=30)
STEPS = st.lists(st.one_of(st.tuples(RUNS, PRIORITIES), st.none()), max_size=60)
"""Somebody comes, or (none) somebody is served."""


def line(*comings: tuple[str, Priority]) -> Lineup:
    lineup = Lineup()
    for number, (run, priority) in enumerate(comings):
        lineup = lineup.joined(Waiter(run, priority, number))
    return lineup


def drained(lineup: Lineup) -> list[Waiter]:
    """All who wait, in the order in which they are served."""
    order = []
    while waiter := lineup.next():
        lineup = lineup.served(waiter)
        order.append(waiter)
    return order


def normal(runs: str) -> list[tuple[str, Priority]]:
    return [(run, Priority.NORMAL) for run in runs]


@pytest.mark.parametrize(
    ("coming", "served"),
    [("", ""), ("abc", "abc"), ("aaaab", "abaaa"), ("aaabbbccc", "abcabcabc"), ("aabcb", "abcab")],
)
def test_the_runs_take_turns(coming: str, served: str) -> None:
    assert "".join(waiter.run for waiter in drained(line(*normal(coming)))) == served


@given(COMINGS, st.lists(st.integers(0, 3), min_size=30, max_size=30), st.integers(0, 30))
def test_those_who_are_next_are_known_beforehand(
    comings: list[tuple[str, Priority]], ranks: list[int], most: int
) -> None:
    """As many as one asks for, in the order in which they are then served."""
    lineup = Lineup()
    for number, (run, priority) in enumerate(comings):
        lineup = lineup.joined(Waiter(run, priority, number, ranks[number]))

    assert lineup.first(most) == drained(lineup)[:most]


def test_a_run_keeps_its_own_order() -> None:
    """An earlier deadline or a longer way that is left: the run has ranked its tasks, whoever came first."""
    lineup = Lineup()
    for number, (run, rank) in enumerate([("a", 7), ("a", 2), ("b", 5), ("a", 4)]):
        lineup = lineup.joined(Waiter(run, Priority.NORMAL, number, rank))

    assert [(waiter.run, waiter.rank) for waiter in drained(lineup)] == [("a", 2), ("b", 5), ("a", 4), ("a", 7)]


def test_a_run_that_comes_while_another_has_its_turn_is_next() -> None:
    lineup = line(*normal("aaaa"))
    first = lineup.next()
    assert first is not None

    order = drained(lineup.served(first).joined(Waiter("b", Priority.NORMAL, 9)))

    assert [waiter.run for waiter in order] == ["b", "a", "a", "a"]


def test_a_stream_of_new_runs_holds_nobody_up() -> None:
    lineup = line(*normal("aa"))
    order = []
    for number in range(2, 8):
        waiter = lineup.next()
        assert waiter is not None
        order.append(waiter.run)
        lineup = lineup.served(waiter).joined(Waiter(f"new{number}", Priority.NORMAL, number))

    assert order[:3] == ["a", "new2", "a"]


@given(COMINGS)
def test_everybody_is_served_once(comings: list[tuple[str, Priority]]) -> None:
    assert Counter(drained(line(*comings))) == Counter(line(*comings).waiting)


@given(COMINGS)
def test_the_more_urgent_are_first_and_a_run_keeps_its_order(comings: list[tuple[str, Priority]]) -> None:
    order = drained(line(*comings))

    urgencies = [URGENCY[waiter.priority] for waiter in order]
    assert urgencies == sorted(urgencies)
    for run in "abcde":
        own = [(URGENCY[waiter.priority], waiter.number) for waiter in order if waiter.run == run]
        assert own == sorted(own)


@given(COMINGS)
def test_among_equals_no_run_is_served_twice_while_another_waits(comings: list[tuple[str, Priority]]) -> None:
    order = drained(line(*normal("".join(run for run, _ in comings))))

    for place, waiter in enumerate(order):
        passed = Counter(other.run for other in order[:place] if other.run != waiter.run)
        own = sum(other.run == waiter.run for other in order[:place])
        assert all(times <= own + 1 for times in passed.values())


@given(STEPS)
def test_whoever_waits_is_passed_by_another_run_once_at_most(steps: list[tuple[str, Priority] | None]) -> None:
    """Also while others come and go; only by more urgent ones more often."""
    lineup = Lineup()
    passed: dict[Waiter, Counter[str]] = {}
    for number, coming in enumerate(steps):
        if coming is not None:
            newcomer = Waiter(*coming, number)
            lineup = lineup.joined(newcomer)
            passed[newcomer] = Counter()
        elif (served := lineup.next()) is not None:
            lineup = lineup.served(served)
            for waiter in lineup.waiting:
                if waiter.priority is served.priority and waiter.run != served.run:
                    passed[waiter][served.run] += 1
                elif waiter.run == served.run:
                    passed[waiter].clear()  # its run had a turn
    assert all(times <= 1 for counts in passed.values() for times in counts.values())


@given(COMINGS, st.data())
def test_whoever_leaves_is_not_called_and_changes_nothing_for_the_others(
    comings: list[tuple[str, Priority]], data: st.DataObject
) -> None:
    lineup = line(*comings)
    leaving = data.draw(st.sets(st.sampled_from(lineup.waiting))) if lineup.waiting else set()

    rest = lineup
    for waiter in leaving:
        rest = rest.left(waiter)

    assert {*drained(rest)} == {*lineup.waiting} - leaving
    assert rest.turns.keys() <= lineup.turns.keys()


@given(COMINGS)
def test_nothing_is_remembered_when_nobody_waits(comings: list[tuple[str, Priority]]) -> None:
    lineup = line(*comings)
    for waiter in drained(lineup):
        lineup = lineup.served(waiter)

    assert lineup == Lineup()


# The meter


def wish(run: str, priority: Priority = Priority.NORMAL) -> Wish:
    return Wish(run=run, priority=priority, model="m", max_tokens=1, size=1, agent="a")


class Calls:
    """Calls that last until they are told to end."""

    def __init__(self, meter: NarrowMeter) -> None:
        self.meter = meter
        self.began: list[str] = []
        self._ends: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def come(self, *names: str, priority: Priority = Priority.NORMAL) -> None:
        """Calls by the names of their runs, and a digit."""
        for name in names:
            self._ends[name] = asyncio.Event()
            self.tasks[name] = asyncio.create_task(self._call(name, priority))
            await settle()

    async def _call(self, name: str, priority: Priority) -> None:
        async with self.meter.draw(wish(name[0], priority)):
            self.began.append(name)
            await self._ends[name].wait()

    async def end(self, *names: str) -> None:
        for name in names:
            self._ends[name].set()
            await self.tasks[name]
            await settle()

    async def cancel(self, *names: str) -> None:
        for name in names:
            self.tasks[name].cancel()
        await asyncio.wait([self.tasks[name] for name in names])

    async def outcome(self, name: str) -> BaseException | None:
        await asyncio.wait([self.tasks[name]])
        return self.tasks[name].exception()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@asynccontextmanager
async def calls(places: int, patience: float = 60) -> AsyncIterator[Calls]:
    made = Calls(NarrowMeter(places, patience))
    try:
        yield made
    finally:
        await made.cancel(*made.tasks)


async def test_so_many_calls_at_a_time_and_the_runs_in_turns() -> None:
    async with calls(2) as made:
        await made.come("a1", "a2", "a3", "a4", "b1", "b2")
        assert made.began == ["a1", "a2"]

        await made.end("a1", "a2", "a3", "b1")

        assert made.began == ["a1", "a2", "a3", "b1", "a4", "b2"]


async def test_an_urgent_call_goes_before_those_that_came_earlier() -> None:
    async with calls(1) as made:
        await made.come("a1", "b1")
        await made.come("c1", priority=Priority.HIGH)

        await made.end("a1")

        assert made.began == ["a1", "c1"]


async def test_a_call_that_fails_gives_its_place_back() -> None:
    async with calls(1) as made:
        await made.come("a1", "b1")

        await made.cancel("a1")
        await settle()

        assert made.began == ["a1", "b1"]


async def test_whoever_is_cancelled_leaves_the_line() -> None:
    async with calls(1) as made:
        await made.come("a1", "b1", "c1")
        await made.cancel("b1")

        await made.end("a1")

        assert made.began == ["a1", "c1"]


@pytest.mark.parametrize("heard", ["before", "after"])
async def test_a_place_for_one_who_is_just_cancelled_goes_to_the_next(heard: str) -> None:
    """Its place becomes free in the same moment, before or after the cancel, and it has not woken up yet."""
    async with calls(1) as made, AsyncExitStack() as first:
        await first.enter_async_context(made.meter.draw(wish("a")))
        await made.come("b1", "c1")

        if heard == "before":
            made.tasks["b1"].cancel()
        await first.aclose()
        made.tasks["b1"].cancel()
        await settle()

        assert made.tasks["b1"].cancelled()
        assert made.began == ["c1"]


async def test_whoever_has_waited_for_too_long_is_given_back() -> None:
    async with calls(1, patience=0.01) as made:
        await made.come("a1", "b1")

        assert isinstance(await made.outcome("b1"), GivenBack)

        await made.end("a1")
        await made.come("c1")
        assert made.began == ["a1", "c1"]
