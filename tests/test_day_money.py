"""The money of a day, in the bank and in the meter: no order of words, losses and deaths lets more through."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from counter import LANE, Counter
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from test_quota_meter import wish

from activities.meter import GivenBack
from activities.quota_meter import QuotaMeter
from domain.models import Usage
from domain.prices import NOTHING
from domain.quota import day as days
from domain.quota.bank import Bank, draw
from domain.quota.lane import Lane
from domain.quota.terms import Limits, Terms
from domain.quota.view import page_of, view_of
from domain.quota.words import NO_LANE, Ask, Call, DayReport, Grant

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
TODAY = "2026-01-01"
OPEN = Bank(lanes={LANE: Lane(limits=Limits())})
DIME = Decimal("0.1")


def ask_for(
    *usd: Decimal | None, number: int = 1, worker: str = "w", cap: Decimal | None, lane: str = LANE, **more: Any
) -> Ask:
    calls = tuple(
        Call(number=100 * number + place, lane=lane, amounts={}, run="r", usd=each) for place, each in enumerate(usd)
    )
    terms = Terms(headroom=0, daily=cap)
    return Ask(worker=worker, number=number, clock=float(number), hold=0.3, terms=terms, calls=calls, **more)


# The bank


def test_a_day_covers_so_many_calls_and_others_wait_for_what_those_under_way_come_to() -> None:
    bank, first = draw(OPEN, ask_for(DIME, DIME, DIME, cap=Decimal("0.25")), NOON)
    settled = {TODAY: DayReport(settled=Decimal("0.02"))}
    _, second = draw(bank, ask_for(DIME, DIME, DIME, number=2, cap=Decimal("0.25"), money=settled), NOON)

    assert (len(first.numbers), first.unpaid) == (2, ())
    assert (first.lanes[LANE].obstacle, first.lanes[LANE].free) == ("money", False)
    assert len(second.numbers) == 2


def test_what_can_never_be_paid_today_goes_back_until_midnight() -> None:
    spent = {TODAY: DayReport(settled=Decimal("0.2"))}

    _, grant = draw(OPEN, ask_for(DIME, number=2, cap=Decimal("0.25"), money=spent), NOON)

    assert (grant.numbers, grant.unpaid) == ((), (200,))
    assert grant.day is not None
    assert (grant.day.left, grant.day.until) == (Decimal("0.05"), datetime(2026, 1, 2, tzinfo=UTC))


def test_the_next_day_begins_at_midnight_and_a_call_of_yesterday_stays_one_of_yesterday() -> None:
    bank, _ = draw(OPEN, ask_for(DIME, cap=DIME), NOON)
    held = {TODAY: DayReport(held=DIME)}

    bank, grant = draw(bank, ask_for(DIME, number=2, cap=DIME, money=held), NOON + timedelta(hours=12))

    assert len(grant.numbers) == 1
    assert {date: day.committed for date, day in bank.days.items()} == {TODAY: DIME, "2026-01-02": DIME}


def test_a_clock_that_is_set_back_over_midnight_gives_no_money_twice() -> None:
    bank, _ = draw(OPEN, ask_for(DIME, cap=DIME), NOON)
    bank, _ = draw(bank, ask_for(number=2, cap=DIME, money={TODAY: DayReport(held=DIME)}), NOON + timedelta(hours=13))
    _, grant = draw(bank, ask_for(DIME, number=3, cap=DIME, money={TODAY: DayReport(held=DIME)}), NOON)

    assert grant.numbers == ()


def test_a_dead_process_leaves_what_it_may_have_spent() -> None:
    bank, _ = draw(OPEN, ask_for(DIME, cap=DIME), NOON)

    bank, soon = draw(bank, ask_for(DIME, worker="v", cap=DIME), NOON + timedelta(seconds=1))
    _, late = draw(bank, ask_for(DIME, worker="v", number=17, cap=DIME), NOON + timedelta(seconds=17))

    assert (soon.unpaid, soon.lanes[LANE].obstacle) == ((), "money")
    assert late.unpaid == (1_700,)


def test_a_grant_that_was_lost_on_its_way_costs_nothing() -> None:
    """The process says that it holds nothing: so it makes no such call."""
    bank, _ = draw(OPEN, ask_for(DIME, cap=DIME), NOON)

    _, grant = draw(bank, ask_for(DIME, number=2, cap=DIME), NOON)

    assert len(grant.numbers) == 1


def test_where_processes_say_different_things_the_least_holds_for_all() -> None:
    bank, _ = draw(OPEN, ask_for(worker="careful", cap=DIME), NOON)
    bank, generous = draw(bank, ask_for(DIME, DIME, worker="generous", cap=Decimal(5)), NOON)
    bank, without = draw(bank, ask_for(DIME, worker="without", cap=None), NOON)
    _, later = draw(bank, ask_for(DIME, worker="without", number=61, cap=None), NOON + timedelta(minutes=1))

    assert (len(generous.numbers), len(without.numbers), len(later.numbers)) == (1, 0, 1)
    assert without.day is not None
    assert later.day is None


def test_a_call_without_a_price_is_never_covered() -> None:
    _, grant = draw(OPEN, ask_for(None, cap=DIME), NOON)

    assert grant.unpaid == (100,)


def test_a_batch_draws_money_and_nothing_else() -> None:
    bank, grant = draw(OPEN, ask_for(DIME, cap=Decimal(1), lane=NO_LANE), NOON)

    assert len(grant.numbers) == 1
    assert list(bank.lanes) == [LANE]
    assert bank.days[TODAY].committed == DIME


def test_a_bank_of_an_earlier_release_is_read_and_goes_on() -> None:
    bank, _ = draw(OPEN, ask_for(DIME, cap=None), NOON)
    before = bank.model_dump(mode="json", exclude={"days"})
    old = Bank.model_validate(before)

    bank, grant = draw(old, ask_for(DIME, number=2, cap=DIME), NOON)

    assert len(grant.numbers) == 1
    assert Bank.model_validate_json(bank.model_dump_json()) == bank


def test_of_too_many_processes_the_longest_silent_are_kept_as_a_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(days, "SHARES_KEPT", 3)
    bank = OPEN
    for place in range(6):
        ask = ask_for(DIME, worker=f"w{place}", cap=Decimal(1))
        bank, _ = draw(bank, ask, NOON + timedelta(seconds=place))

    assert len(bank.days[TODAY].shares) == 3
    assert bank.days[TODAY].committed == 6 * DIME


def test_the_bank_shows_what_the_day_has_come_to() -> None:
    bank, _ = draw(OPEN, ask_for(number=1, cap=Decimal(1), money={TODAY: DayReport(settled=DIME)}), NOON)
    bank, _ = draw(bank, ask_for(DIME, worker="v", cap=Decimal(1)), NOON)

    view = view_of(bank, NOON)

    assert view.model_dump(mode="json")["day"] == {
        "date": TODAY,
        "limit_usd": "1",
        "spent_usd": "0.1",
        "held_usd": "0.1",
    }
    assert f"- {TODAY} UTC: $0.1 of $1 spent, up to $0.1 more by calls under way" in page_of(view).splitlines()
    assert view_of(OPEN, NOON).day is None


# Any order of words, losses and deaths


@dataclass
class Process:
    """A worker process: what it has said, and what its calls do."""

    name: str
    cap: Decimal
    number: int = 0
    settled: dict[str, Decimal] = field(default_factory=dict)
    flying: list[tuple[str, Decimal]] = field(default_factory=list)

    def money(self) -> dict[str, DayReport]:
        dates = {*self.settled, *(date for date, _ in self.flying)}
        return {
            date: DayReport(
                settled=self.settled.get(date, NOTHING),
                held=sum((usd for at, usd in self.flying if at == date), NOTHING),
            )
            for date in dates
        }


class Deployment(RuleBasedStateMachine):
    """Processes with one cap. What a call is billed is at most its worst case, whenever it is granted."""

    cap = Decimal(1)
    processes = st.integers(0, 2)
    prices = st.integers(1, 40).map(lambda cents: Decimal(cents) / 100)

    @initialize()
    def begin(self) -> None:
        self.bank, self.now = OPEN, NOON
        self.billed: dict[str, Decimal] = {}
        self.born = 0
        self.alive = [self._born() for _ in range(3)]
        self.late: list[Ask] = []

    def _born(self) -> Process:
        self.born += 1
        return Process(f"w{self.born}", self.cap)

    def _ask(self, process: Process, wanted: list[Decimal]) -> Ask:
        process.number += 1
        return ask_for(*wanted, number=process.number, worker=process.name, cap=process.cap, money=process.money())

    def _draw(self, ask: Ask) -> Grant:
        self.bank, grant = draw(Bank.model_validate_json(self.bank.model_dump_json()), ask, self.now)
        return grant

    @rule(who=processes, wanted=st.lists(prices, max_size=5), lost=st.booleans())
    def ask(self, who: int, wanted: list[Decimal], lost: bool) -> None:
        process = self.alive[who]
        ask = self._ask(process, wanted)
        grant = self._draw(ask)
        if lost:
            return
        assert grant.day is not None
        for call in ask.calls:
            if call.number in grant.numbers and call.usd is not None:
                process.flying.append((grant.day.date, call.usd))
                self.billed[grant.day.date] = self.billed.get(grant.day.date, NOTHING) + call.usd

    @rule(who=processes, wanted=st.lists(prices, max_size=3))
    def ask_and_be_overtaken(self, who: int, wanted: list[Decimal]) -> None:
        self.late.append(self._ask(self.alive[who], wanted))

    @rule()
    def arrive_late(self) -> None:
        """Whatever it brings, nobody listens any more."""
        if self.late:
            self._draw(self.late.pop())

    @rule(who=processes, part=st.integers(0, 100))
    def settle(self, who: int, part: int) -> None:
        process = self.alive[who]
        if process.flying:
            date, usd = process.flying.pop(0)
            cost = usd * part / 100
            process.settled[date] = process.settled.get(date, NOTHING) + cost
            self.billed[date] -= usd - cost

    @rule(who=processes)
    def die(self, who: int) -> None:
        """Its calls may be billed whole."""
        self.alive[who] = self._born()

    @rule(seconds=st.sampled_from([1, 20, 700, 30_000]))
    def wait(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)

    @invariant()
    def no_day_is_overspent(self) -> None:
        if hasattr(self, "billed"):
            assert all(usd <= self.cap for usd in self.billed.values())


TestDeployment = Deployment.TestCase
TestDeployment.settings = settings(max_examples=80, stateful_step_count=25, deadline=None)


# The meter


@pytest.fixture
def counter() -> Counter:
    return Counter(OPEN)


def worth(usd: str) -> Any:
    return replace(wish(), usd=Decimal(usd))


async def test_calls_settle_to_what_they_cost_and_what_was_never_made_costs_nothing(counter: Counter) -> None:
    async with QuotaMeter(counter, Terms(daily=Decimal(1))) as meter:
        async with meter.draw(worth("0.6")) as hold:
            hold.begun()
            hold.settled(Usage(input=1))
            hold.paid(Decimal("0.05"))
        async with meter.draw(worth("0.6")):
            pass
        async with meter.draw(worth("0.9")) as hold:
            hold.begun()
        with pytest.raises(GivenBack) as back:
            async with meter.draw(worth("0.1")):
                pass

    assert counter.asks[-1].money == {days.date_of(datetime.now(UTC)): DayReport(settled=Decimal("0.95"))}
    assert (back.value.parked.why, back.value.parked.wall) == ("budget", None)
    assert back.value.parked.until == days.midnight_after(datetime.now(UTC))
    assert back.value.parked.what == "one call may cost up to $0.1, and $0.05 of today's $1 (daily_usd) is left"


async def test_nothing_limited_is_no_way_around_the_money_of_a_day(counter: Counter) -> None:
    """Every call is asked for, though the provider limits nothing; also where another process has the cap."""
    async with QuotaMeter(counter, Terms(daily=Decimal(1))) as capped, QuotaMeter(counter, Terms()) as other:
        for meter in capped, other, capped, other:
            async with meter.draw(worth("0.4")) as hold:
                hold.begun()
                hold.paid(Decimal("0.2"))
        with pytest.raises(GivenBack):
            async with other.draw(worth("0.4")):
                pass


async def test_who_does_not_fit_yet_waits_until_those_under_way_have_told(counter: Counter) -> None:
    async with QuotaMeter(counter, Terms(daily=Decimal(1))) as meter, AsyncExitStack() as under_way:
        hold = await under_way.enter_async_context(meter.draw(worth("0.9")))
        hold.begun()
        second = asyncio.create_task(_cost(meter, "0.9"))
        while len(counter.asks) < 2:
            await asyncio.sleep(0.01)
        assert not second.done()

        hold.paid(Decimal("0.01"))
        await under_way.aclose()

        await second


async def _cost(meter: QuotaMeter, usd: str) -> None:
    async with meter.draw(worth(usd)) as hold:
        hold.begun()


async def test_a_model_without_a_price_is_not_asked_where_a_day_is_limited(counter: Counter) -> None:
    async with QuotaMeter(counter, Terms(daily=Decimal(1))) as meter:
        with pytest.raises(GivenBack) as back:
            async with meter.draw(wish()):
                pass

    assert (back.value.parked.why, back.value.parked.until) == ("budget", None)


async def test_what_goes_in_a_batch_is_paid_once_and_stays_spent(counter: Counter) -> None:
    """What does not go in it after all costs nothing, and its money is there for others."""
    async with QuotaMeter(counter, Terms(daily=Decimal(1))) as meter:
        async with meter.pay(worth("0.6")):
            pass
        async with meter.pay(worth("0.6")) as hold:
            hold.begun()
        with pytest.raises(GivenBack):
            await meter.pay(worth("0.6")).__aenter__()
    async with QuotaMeter(Counter(OPEN), Terms()) as meter, meter.pay(wish()):
        pass
