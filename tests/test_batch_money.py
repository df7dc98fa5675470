"""The money of a day that is drawn for requests in a batch: it is spent for those that are sent, and for no others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pytest
from conftest import eventually
from counter import LANE, Counter
from doorway import opened
from test_day_money import worth
from test_right_door import ALL, PRICES, act

from activities import batch_collecting
from activities.attempts import TurnedAway
from activities.batch_book import BatchBook
from activities.batch_book import Member as Whose
from activities.batch_collecting import Collector, Member, NeverSent
from activities.batch_lookout import Lookout
from activities.gate import Standing
from activities.meter import GivenBack
from activities.model import BatchStanding, LanguageModel
from activities.quota_meter import QuotaMeter
from domain.briefing import Brief
from domain.models import Latency, Parked
from domain.prices import NOTHING
from domain.quota.bank import Bank
from domain.quota.lane import Lane
from domain.quota.terms import Limits, Terms
from domain.register import Verb
from simulator import Simulator
from store import Store, StoreUnavailable, open_store

PAUSED = TurnedAway(Parked(why="pause", what="the run is paused"))
CENTS = Decimal("0.25")


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_collecting, "MOMENT", 0.02)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path / "store"))


@pytest.fixture
def counter() -> Counter:
    return Counter(Bank(lanes={LANE: Lane(limits=Limits())}))


class Provider:
    """Makes every batch, and knows how large they were."""

    def __init__(self) -> None:
        self.made: list[int] = []

    async def make_batch(self, briefs: dict[str, Brief], *, user: str) -> BatchStanding:
        self.made.append(len(briefs))
        return BatchStanding(id=f"batch-{user}", created=datetime.now(UTC), requests=len(briefs), ended=False)


class Nobody:
    """Looks after no batch."""

    def mind(self, *_: str) -> None: ...


class Senders:
    """Tasks of one run that send a request each, worth 25 cents of a day that has a dollar."""

    def __init__(self, store: Store, meter: QuotaMeter) -> None:
        self.provider, self.book, self.meter = Provider(), BatchBook(store), meter
        self.collector = Collector(cast("LanguageModel", self.provider), self.book, cast("Lookout", Nobody()))
        self.tasks: list[asyncio.Task[Any]] = []

    def send(self, *permits: Callable[[], Any]) -> None:
        """One for each of these, which is asked directly before the request is written down."""
        for place, permit in enumerate(permits):

            async def intend(_name: str, place: int = place, permit: Callable[[], Any] = permit) -> str:
                await permit()
                return f"id-{place}"

            brief = Brief(model="m", max_tokens=1, system=f"{place}", content=())
            member = Member(Whose(task=f"{place}", step=1), brief, lambda: self.meter.pay(worth(str(CENTS))), intend)
            self.tasks.append(asyncio.create_task(self.collector.send("run", "chain", member)))

    async def ended(self) -> list[Any]:
        return await asyncio.gather(*self.tasks, return_exceptions=True)


async def yes() -> None:
    """It may go."""


async def no() -> None:
    raise PAUSED


async def spent(meter: QuotaMeter) -> Decimal:
    """What this process tells the bank that the day has cost, when nothing is held any more."""

    async def nothing_is_held() -> bool:
        return all(day.held == 0 for day in meter._till.reports().values())

    await eventually(nothing_is_held)
    return sum((day.settled for day in meter._till.reports().values()), NOTHING)


async def test_who_is_turned_away_after_it_has_paid_has_its_money_back(store: Store, counter: Counter) -> None:
    """And may come with it again: a day of a dollar has enough for all four."""
    async with QuotaMeter(counter, Terms(daily=Decimal(1))) as meter:
        senders = Senders(store, meter)
        senders.send(no, no, no, no)
        assert await senders.ended() == 4 * [PAUSED]
        assert await spent(meter) == NOTHING

        senders = Senders(store, meter)
        senders.send(yes, yes, no, yes)
        assert [type(end) for end in await senders.ended()].count(BatchStanding) == 3
        assert await spent(meter) == 3 * CENTS

    assert senders.provider.made == [3]


async def test_a_task_that_is_stopped_while_others_pay_has_paid_nothing(store: Store, counter: Counter) -> None:
    async with QuotaMeter(counter, Terms(daily=Decimal(1))) as meter:
        async with meter.pay(worth("0.75")):  # so that the second must wait
            senders = Senders(store, meter)
            senders.send(yes, yes)
            await eventually(lambda: _holds(counter, 4))
            senders.tasks[0].cancel()
            await asyncio.wait(senders.tasks[:1])
        stopped, sent = await senders.ended()
        assert await spent(meter) == CENTS

    assert isinstance(stopped, asyncio.CancelledError)
    assert isinstance(sent, BatchStanding)
    assert senders.provider.made == [1]


async def _holds(counter: Counter, quarters: int) -> bool:
    return any(day.held == quarters * CENTS for day in counter.asks[-1].money.values())


@pytest.mark.parametrize("ends", [None, NeverSent, StoreUnavailable], ids=["stopped", "called off", "no store"])
async def test_what_is_not_sent_whatever_the_reason_costs_nothing(
    store: Store, counter: Counter, monkeypatch: pytest.MonkeyPatch, ends: type[Exception] | None
) -> None:
    """A process that is stopped in the midst of it, a batch that others have called off, a store that goes away."""
    asked = asyncio.Event()

    async def announce(*_: object) -> bool:
        asked.set()
        if ends is None:
            await asyncio.Event().wait()
        if ends is StoreUnavailable:
            raise StoreUnavailable("away")
        return False

    async with QuotaMeter(counter, Terms(daily=Decimal(1))) as meter:
        senders = Senders(store, meter)
        monkeypatch.setattr(senders.book, "announce", announce)
        senders.send(yes, yes)
        await asked.wait()
        if ends is None:
            for sending in senders.collector._sending:
                sending.cancel()
        else:
            assert [type(end) for end in await senders.ended()] == 2 * [ends]
        assert await spent(meter) == NOTHING
        for task in senders.tasks:
            task.cancel()

    assert senders.provider.made == []


async def test_the_wait_of_money_for_others_makes_no_grant_keep_longer(counter: Counter) -> None:
    """How long grants are held is for calls, which are made at once."""
    async with QuotaMeter(counter, Terms(daily=Decimal(1))) as meter:
        before = meter._use
        async with meter.pay(worth("0.25")) as hold:
            await asyncio.sleep(0.2)
            hold.begun()

        assert meter._use == before


# At the door


async def test_a_pause_that_comes_while_money_is_drawn_costs_nothing(
    simulator: Simulator, store: Store, counter: Counter
) -> None:
    async with (
        QuotaMeter(counter, Terms(daily=Decimal(1))) as meter,
        opened(store, simulator.url, latency=Latency.RELAXED, meter=meter, prices=PRICES) as door,
    ):
        door.gate.last = Standing(paused=True)
        assert (await door.parked("a")).why == "pause"
        assert await spent(meter) == NOTHING
        door.gate.last = Standing()
        assert (await door.parked("a")).why == "batch"
        assert await spent(meter) == Decimal("0.03")


async def nothing_was_drawn(meter: QuotaMeter, counter: Counter) -> bool:
    """Whether the bank was asked for no money before it is asked now."""
    with pytest.raises(GivenBack):
        await meter.pay(worth("2")).__aenter__()
    return [call.usd for ask in counter.asks for call in ask.calls] == [Decimal(2)]


@pytest.mark.parametrize("probe", [True, False])
async def test_where_there_is_no_room_no_money_is_drawn(
    simulator: Simulator, store: Store, counter: Counter, probe: bool
) -> None:
    """Whoever looks every two minutes whether there is room again does not pay for each look."""
    full: dict[str, Any] = {"reserve": 2**80, "latency": Latency.RELAXED, "prices": PRICES}
    async with (
        QuotaMeter(counter, Terms(daily=Decimal(1))) as meter,
        opened(store, simulator.url, meter=meter, **full) as door,
    ):
        assert (await door.parked("a", probe=probe)).wall == "disk"
        assert await nothing_was_drawn(meter, counter)


async def test_for_who_has_no_right_to_its_call_no_money_is_drawn(
    simulator: Simulator, store: Store, counter: Counter
) -> None:
    await act(store, Verb.WITHDRAWN, right="models", pattern="*")
    async with (
        QuotaMeter(counter, Terms(daily=Decimal(1))) as meter,
        opened(store, simulator.url, meter=meter, latency=Latency.RELAXED, prices=PRICES, rights=ALL) as door,
    ):
        failed, _ = await door.failed("a")
        assert failed.error.type == "RightRefused"
        assert await nothing_was_drawn(meter, counter)
