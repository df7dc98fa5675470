"""Calls under way: one flight per key, whoever comes and goes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from activities.flights import Flights


class Call:
    """A call that ends when the test says so."""

    def __init__(self) -> None:
        self.made = 0
        self.cancelled = 0
        self.under_way = asyncio.Event()
        self.answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def __call__(self) -> str:
        self.made += 1
        self.under_way.set()
        try:
            return await asyncio.shield(self.answer)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise


@pytest.fixture
async def flights() -> AsyncIterator[Flights[str]]:
    """Flights of which nothing is left at the end, on any path."""
    flights = Flights[str]()
    yield flights
    async with asyncio.timeout(60):
        while flights._flying:
            await asyncio.wait([flight.call for flight in flights._flying.values()])
            await asyncio.sleep(0)


def board(flights: Flights[str], call: Call, *, flies_on: bool = False, key: str = "key") -> asyncio.Task[str]:
    return asyncio.create_task(flights.join(key, call, flies_on=lambda: flies_on))


async def settled(*joiners: asyncio.Task[str]) -> None:
    async with asyncio.timeout(60):
        await asyncio.wait(joiners)


async def test_two_joiners_make_one_call(flights: Flights[str]) -> None:
    call = Call()
    first, second = board(flights, call), board(flights, call)
    await call.under_way.wait()

    call.answer.set_result("done")

    assert (await first, await second) == ("done", "done")
    assert call.made == 1


async def test_other_keys_are_other_calls(flights: Flights[str]) -> None:
    one, other = Call(), Call()
    joiners = [board(flights, one, key="one"), board(flights, other, key="other")]
    one.answer.set_result("1")
    other.answer.set_result("2")

    assert await asyncio.gather(*joiners) == ["1", "2"]


async def test_a_flight_that_has_landed_is_not_joined(flights: Flights[str]) -> None:
    """Whether what it brought still counts is the ledger's question."""
    first, second = Call(), Call()
    first.answer.set_result("first")
    second.answer.set_result("second")
    assert await board(flights, first) == "first"

    assert await board(flights, second) == "second"


async def test_an_exception_reaches_both_joiners(flights: Flights[str]) -> None:
    call = Call()
    joiners = [board(flights, call), board(flights, call)]
    await call.under_way.wait()

    call.answer.set_exception(ValueError("no"))
    ends = await asyncio.gather(*joiners, return_exceptions=True)

    assert [type(end) for end in ends] == [ValueError, ValueError]
    assert call.made == 1


async def test_a_real_cancel_of_the_only_passenger_stops_the_call(flights: Flights[str]) -> None:
    """It has stopped when the passenger hears of it: nothing goes on paying in the background."""
    call = Call()
    joiner = board(flights, call)
    await call.under_way.wait()

    joiner.cancel()
    await settled(joiner)

    assert joiner.cancelled()
    assert call.cancelled == 1
    assert not flights._flying


async def test_a_cancelled_passenger_stays_until_the_call_has_let_go(flights: Flights[str]) -> None:
    """Closing a connection takes a moment; before that the call may still be paid for."""
    under_way, leaving, let_go = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def slow_to_leave() -> str:
        under_way.set()
        try:
            return await asyncio.Future[str]()
        finally:
            leaving.set()
            await let_go.wait()

    joiner = asyncio.create_task(flights.join("key", slow_to_leave, flies_on=lambda: False))
    await under_way.wait()
    joiner.cancel()
    await leaving.wait()
    await asyncio.sleep(0)
    assert not joiner.done()

    let_go.set()
    await settled(joiner)

    assert joiner.cancelled()


async def test_nobody_boards_a_flight_that_is_being_called_off(flights: Flights[str]) -> None:
    """Who comes meanwhile has a call of their own: a cancel that was not theirs does not reach them."""
    leaving, let_go, second = asyncio.Event(), asyncio.Event(), Call()

    async def slow_to_leave() -> str:
        try:
            return await asyncio.Future[str]()
        finally:
            leaving.set()
            await let_go.wait()

    first = asyncio.create_task(flights.join("key", slow_to_leave, flies_on=lambda: False))
    await asyncio.sleep(0)  # it has boarded
    await asyncio.sleep(0)  # and its flight has begun
    first.cancel()
    await leaving.wait()

    later = board(flights, second)
    await second.under_way.wait()
    let_go.set()
    await settled(first)
    second.answer.set_result("done")

    assert await later == "done"


async def test_a_cancel_of_one_of_two_leaves_the_call_to_the_other(flights: Flights[str]) -> None:
    call = Call()
    leaver, stayer = board(flights, call), board(flights, call)
    await call.under_way.wait()

    leaver.cancel()
    await settled(leaver)
    assert call.cancelled == 0
    call.answer.set_result("done")

    assert await stayer == "done"


async def test_a_cancel_of_both_at_once_stops_the_call(flights: Flights[str]) -> None:
    call = Call()
    joiners = [board(flights, call), board(flights, call)]
    await call.under_way.wait()

    for joiner in joiners:
        joiner.cancel()
    await settled(*joiners)

    assert call.cancelled == 1


async def test_a_call_whose_attempt_was_given_up_flies_on_for_the_next_one(flights: Flights[str]) -> None:
    """C2: the server lost sight of the first attempt; the second joins its call and nobody pays twice."""
    call = Call()
    lost = board(flights, call, flies_on=True)
    await call.under_way.wait()
    lost.cancel()
    await settled(lost)
    assert (lost.cancelled(), call.cancelled) == (True, 0)

    later = board(flights, call)
    await asyncio.sleep(0)  # it has boarded
    call.answer.set_result("done")

    assert await later == "done"
    assert call.made == 1


async def test_a_call_that_flies_on_can_still_be_stopped_by_its_next_passenger(flights: Flights[str]) -> None:
    call = Call()
    lost = board(flights, call, flies_on=True)
    await call.under_way.wait()
    lost.cancel()
    await settled(lost)

    later = board(flights, call)
    await asyncio.sleep(0)  # it has boarded
    later.cancel()
    await settled(later)

    assert (call.made, call.cancelled) == (1, 1)


async def test_a_failure_that_nobody_is_left_to_hear_is_no_unhandled_error(flights: Flights[str]) -> None:
    call = Call()
    unheard: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(context))
    joiner = board(flights, call, flies_on=True)
    await call.under_way.wait()
    joiner.cancel()
    await settled(joiner)

    (flight,) = flights._flying.values()
    call.answer.set_exception(ValueError("no"))
    await asyncio.wait([flight.call])
    await asyncio.sleep(0)
    del flight

    asyncio.get_running_loop().set_exception_handler(None)
    assert not unheard
    assert not flights._flying
