"""The bank as people read it: at the time of whoever looks, not of the last draw."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from domain.quota.bank import Bank, draw
from domain.quota.lane import Lane
from domain.quota.terms import Amounts, Limits, Terms
from domain.quota.view import PoolView, QuotaView, page_of, view_of
from domain.quota.words import Ask, Call, LaneReport

LANE = "haiku-4"
OPEN = Bank(lanes={LANE: Lane()})
"""A bank whose window is open."""
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
TERMS = Terms(headroom=0.1, limits={"default": Limits(requests=60, output_tokens=6_000)})
AMOUNTS: Amounts = {"requests": 1.0, "input_tokens": 100.0, "output_tokens": 1_000.0}


def call(number: int, **more: Any) -> Call:
    return Call(number=number, lane=LANE, amounts=AMOUNTS, run="night", **more)


def asked(bank: Bank, *calls: Call, number: int = 1, after: float = 0.0, **said: Any) -> Bank:
    """The bank after one ask of a worker, so many seconds after noon."""
    ask = Ask(worker="w1", number=number, clock=after, hold=0.3, terms=TERMS, calls=calls, **said)
    return draw(bank, ask, NOON + timedelta(seconds=after))[0]


def seen(bank: Bank, after: float = 0.0) -> QuotaView:
    return view_of(bank, NOON + timedelta(seconds=after))


def test_limits_use_and_who_waits() -> None:
    view = seen(asked(OPEN, *(call(number) for number in range(1, 9)), waiting=8))

    lane = view.lanes[LANE]
    assert (lane.source, lane.flying, lane.waiting) == ("settings", 5, ("w1",))
    requests, output = lane.limits["requests"], lane.limits["output_tokens"]
    assert (requests.limit, requests.ours, requests.used, requests.left) == (60, 54, 5, 55)
    assert (output.limit, output.ours, output.used, output.left) == (6_000, 5_400, 5_000, 1_000)
    worker = view.workers["w1"]
    assert (worker.draws, worker.flying, worker.waiting, worker.runs) == (1, 5, 8, {"night": 8})


def test_what_came_back_was_not_used() -> None:
    """A call draws all that it may use; its answer tells what it was."""
    bank = asked(OPEN, call(1))

    bank = asked(bank, number=2, after=1, lanes={LANE: LaneReport(back={"output_tokens": 900.0})})

    assert seen(bank, 1).lanes[LANE].limits["output_tokens"].used == 100
    assert seen(bank, 1).lanes[LANE].limits["requests"].used == 1


def test_a_quiet_bank_is_told_as_it_is_now() -> None:
    """Buckets fill, a minute passes, walls fall and workers are gone, though nobody draws."""
    wall = LaneReport(flying=2, wall=30.0)
    bank = asked(OPEN, call(1, agent="pair", pool=1), call(2, agent="pair", pool=1), lanes={LANE: wall})
    assert seen(bank).lanes[LANE].wall == "2026-01-01T12:00:30.000Z"
    assert seen(bank).workers

    later = seen(bank, 16)
    assert (later.lanes[LANE].flying, later.workers, later.lanes[LANE].wall is None) == (0, {}, False)

    last = seen(bank, 70)
    assert (last.lanes[LANE].wall, last.lanes[LANE].limits["requests"].used) == (None, 0)
    assert last.lanes[LANE].limits["requests"].left == 60


def test_agents_with_a_limit() -> None:
    """Those at work, those that a worker may have without asking, and the runs that come again."""
    few = asked(OPEN, call(1, agent="pair", pool=1), call(2, agent="pair", pool=1))
    many = asked(OPEN, call(1, agent="crowd", pool=100))

    assert seen(few).pools == {"pair": PoolView(at_work=1, waiting=("night",))}
    assert seen(many).pools == {"crowd": PoolView(at_work=1, promised=49)}
    assert seen(few, 12).pools["pair"] == PoolView(at_work=1, waiting=("night",))
    assert seen(few, 13).pools["pair"] == PoolView(at_work=1)
    assert seen(few, 16).pools == {}
    assert "- agent `pair`: 1 at work, 0 promised, runs that wait for one: 1" in page_of(seen(few))
