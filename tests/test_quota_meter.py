"""The meter of one process, with the bank's arithmetic beside it: what is granted, held, given back and told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from conftest import eventually
from counter import LANE, Counter

from activities import quota_meter
from activities.meter import GivenBack, Hold, Wish
from activities.model import RateLimited
from activities.quota_meter import QuotaMeter, carried_on
from activities.teller import Unanswered
from domain.models import Priority, Usage
from domain.quota.bank import Bank
from domain.quota.lane import Lane
from domain.quota.terms import Limits, Terms
from domain.quota.words import Ask, Grant, Standing

MODEL = "claude-haiku-4-5"


def wish(run: str = "run", *, priority: Priority = Priority.NORMAL, pool: int | None = None) -> Wish:
    return Wish(run=run, priority=priority, model=MODEL, max_tokens=100, size=350, agent="hand", pool=pool)


def limited(*, requests: int | None = None, output: int | None = None, burst: float = 1.0) -> Terms:
    limits = Limits(requests=requests, output_tokens=output, burst=burst)
    return Terms(headroom=0, limits={"default": limits})


@asynccontextmanager
async def metered(terms: Terms | None = None, *, patience: float = 60) -> AsyncIterator[tuple[QuotaMeter, Counter]]:
    counter = Counter()
    async with QuotaMeter(counter, terms or Terms(), patience=patience) as meter:
        yield meter, counter


class Callers:
    """Calls that begin when they may, and end when the test says so."""

    def __init__(self, meter: QuotaMeter) -> None:
        self.began: list[str] = []
        self._meter = meter
        self._ends: dict[str, asyncio.Event] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def come(self, name: str, wanted: Wish) -> None:
        self._ends[name] = asyncio.Event()
        self._tasks[name] = asyncio.create_task(self._call(name, wanted))

    async def _call(self, name: str, wanted: Wish) -> None:
        async with self._meter.draw(wanted) as hold:
            self.began.append(name)
            hold.begun()
            await self._ends[name].wait()
            hold.settled(Usage(input=100, output=1))

    async def end(self, *names: str) -> None:
        for name in names or [*self._tasks]:
            self._ends[name].set()
            await self._tasks[name]

    async def until_begun(self, count: int) -> None:
        async def begun() -> bool:
            return len(self.began) >= count

        await eventually(begun)

    async def cancel(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)


async def until_asked(counter: Counter, count: int) -> None:
    async def asked() -> bool:
        return len(counter.grants) >= count

    await eventually(asked)
    for _ in range(10):
        await asyncio.sleep(0)  # so that the meter has taken the grant in


async def test_all_that_wait_are_drawn_for_in_one_ask() -> None:
    """In the order of the line: the more urgent first, then the runs in turns."""
    async with metered(limited(requests=600)) as (meter, counter):
        callers = Callers(meter)
        for name in "a1", "a2", "b1":
            callers.come(name, wish(name[0]))
        callers.come("c1", wish("c", priority=Priority.HIGH))
        await callers.until_begun(4)

        assert callers.began == ["c1", "a1", "b1", "a2"]
        assert len(counter.asks) == 1
        await callers.end()


async def test_what_a_call_did_not_use_goes_to_the_next() -> None:
    """Output is counted with all that may come; the answer says what came."""
    async with metered(limited(output=100), patience=90) as (meter, counter):
        callers = Callers(meter)
        callers.come("first", wish())
        await callers.until_begun(1)
        callers.come("second", wish())
        await until_asked(counter, 2)
        assert counter.grants[-1].lanes[LANE].obstacle == "output_tokens"

        await callers.end("first")
        await callers.until_begun(2)

        assert counter.asks[-1].lanes[LANE].back["output_tokens"] == 99
        await callers.end("second")


async def test_what_was_read_from_the_cache_is_given_back() -> None:
    """The provider counts no input that it had in its cache; what it writes there it counts."""
    async with metered(limited(requests=60)) as (meter, counter):
        async with meter.draw(wish()) as hold:
            hold.begun()
            hold.settled(Usage(input=10, cache_write=20, cache_read=3_000, output=5))
        async with meter.draw(wish()):  # whoever comes next tells what has come back
            drawn = counter.asks[0].calls[0].amounts

        assert counter.asks[-1].lanes[LANE].back["input_tokens"] == drawn["input_tokens"] - 30


async def test_a_character_of_hangul_counts_as_more_than_a_token() -> None:
    """By its three bytes alone it would be less than one, and the provider's bucket would be empty before ours."""
    async with metered(limited(requests=600)) as (meter, counter):
        async with meter.draw(replace(wish(), size=3_000, wide=1_000)):
            pass
        async with meter.draw(replace(wish(), size=3_500)):
            pass

        wide, plain = (ask.calls[0].amounts["input_tokens"] for ask in counter.asks if ask.calls)
        assert 1_500 <= wide <= 1_600
        assert plain == 1_001


async def test_a_call_that_is_never_made_gives_everything_back() -> None:
    async with metered(limited(requests=1)) as (meter, counter):
        async with meter.draw(wish()):
            pass  # its run was cancelled meanwhile: nothing is asked of the provider

        async with meter.draw(wish()):
            pass

        assert counter.bank.lanes[LANE].drawn["requests"] == 2
        assert counter.asks[-1].lanes[LANE].back["requests"] == 1


async def test_a_grant_that_comes_too_late_is_not_used() -> None:
    """It goes back, and the call is granted anew: the provider's buckets have not waited for it."""
    async with metered(limited(requests=600)) as (meter, counter):
        counter.slow = 0.5
        callers = Callers(meter)
        callers.come("a", wish())
        await until_asked(counter, 1)
        counter.slow = 0.0
        await callers.until_begun(1)

        assert [len(grant.numbers) for grant in counter.grants][:2] == [1, 1]
        assert counter.asks[1].lanes[LANE].back["requests"] == 1
        await callers.end()


async def test_agents_of_one_name_are_counted_by_what_they_are() -> None:
    """The busy one is told by the name that people know."""
    async with metered(limited(requests=600)) as (meter, _):
        shipped, own = (replace(wish(pool=1), counted_as=name) for name in ("hand@1", "hand@1+3f2a9c"))
        async with meter.draw(shipped), meter.draw(own):
            with pytest.raises(GivenBack) as back:
                async with meter.draw(own):
                    raise AssertionError("it is at work")

        assert (back.value.parked.wall, back.value.parked.what) == ("pool", "hand, which does 1 at once")


async def test_a_bank_that_does_not_answer_is_asked_again() -> None:
    async with metered(limited(requests=600)) as (meter, counter):
        counter.fails = 3

        async with meter.draw(wish()):
            pass

        assert [ask.number for ask in counter.asks] == [1, 2, 3, 4]


async def test_without_a_bank_a_call_goes_back_to_its_run() -> None:
    """It uses no attempt, and comes again."""
    async with metered(patience=-1.5) as (meter, counter):
        counter.fails = 1_000

        with pytest.raises(GivenBack) as back:
            async with meter.draw(wish()):
                raise AssertionError("nobody has granted it")

        assert back.value.parked.why == "worker"


async def test_a_long_wait_is_a_wall_of_the_run() -> None:
    """The task parks until the line is shorter; its place in the run is free for others meanwhile."""
    async with metered(limited(requests=1), patience=30) as (meter, _), AsyncExitStack() as first:
        hold = await first.enter_async_context(meter.draw(wish()))
        hold.begun()

        with pytest.raises(GivenBack) as back:
            async with meter.draw(wish()):
                raise AssertionError("there is nothing left of this minute")

        parked = back.value.parked
        assert (parked.why, parked.wall) == ("wall", "rate")
        assert "requests a minute of haiku-4" in parked.what
        assert parked.until is not None


async def test_a_call_that_waits_says_for_what_and_until_when() -> None:
    told: list[tuple[str, datetime | None]] = []
    waits = Wish("run", Priority.NORMAL, MODEL, 100, 350, "hand", waits=lambda what, until: told.append((what, until)))
    async with metered(limited(requests=60, burst=0.01)) as (meter, _):
        async with meter.draw(wish()) as hold:
            hold.begun()

        async with meter.draw(waits):
            pass

        what, until = told[0]
        assert what == "requests a minute of haiku-4"
        assert until is not None
        assert until - datetime.now(UTC) < timedelta(seconds=2)


async def test_a_refusal_stops_this_process_at_once_and_the_bank_at_its_next_word() -> None:
    """Until the time that the provider said."""
    async with metered(limited(requests=6_000)) as (meter, counter):
        async with meter.draw(wish()) as hold:
            hold.begun()
            hold.refused(RateLimited("too many", retry_after=timedelta(hours=1)))

        with pytest.raises(GivenBack) as back:
            async with meter.draw(wish()):
                raise AssertionError("the provider wants no call")

        until = back.value.parked.until
        assert until is not None
        assert until - datetime.now(UTC) > timedelta(minutes=59)
        assert counter.bank.lanes[LANE].wall is not None


async def test_who_is_sent_to_find_out_goes_up_to_the_wall() -> None:
    """A person says that it may be gone: when the provider takes the call, it is gone for everybody."""
    async with metered(limited(requests=6_000)) as (meter, counter):
        async with meter.draw(wish()) as hold:
            hold.begun()
            hold.refused(RateLimited("too many", retry_after=timedelta(hours=1)))

        async with meter.draw(replace(wish(), probe=True)) as hold:
            hold.begun()
            hold.settled(Usage(input=1, output=1))
        async with meter.draw(wish()):
            pass

        assert counter.bank.lanes[LANE].wall is None


async def test_limits_are_learned_from_the_first_answer() -> None:
    """A few calls go first; nobody else goes before one of them has told how the account stands."""
    async with metered() as (meter, counter), AsyncExitStack() as first:
        holds = [await first.enter_async_context(meter.draw(wish())) for _ in range(4)]
        callers = Callers(meter)
        asked = len(counter.grants)
        callers.come("fifth", wish())
        await until_asked(counter, asked + 1)
        assert counter.grants[-1].lanes[LANE].obstacle == "first"

        holds[0].begun()
        holds[0].heard(Standing(limits={"requests": 60}, remaining={"requests": 29}))
        await callers.until_begun(1)

        lane = counter.bank.lanes[LANE]
        assert lane.limits is not None
        assert (lane.limits.requests, lane.sizes["requests"]) == (60, 30)
        assert lane.levels["requests"] < 30 - 4  # four calls may not be in what the provider counted
        await callers.end()


async def test_where_nothing_is_limited_nobody_asks() -> None:
    """A provider without such headers has no limits that we know of."""
    async with metered() as (meter, counter):
        async with meter.draw(wish()) as hold:
            hold.begun()
            hold.heard(Standing())
            await until_asked(counter, 2)
        asked = len(counter.asks)

        for _ in range(50):
            async with meter.draw(wish()):
                pass

        assert len(counter.asks) == asked


async def test_new_limits_are_told_at_once() -> None:
    """The provider has halved them: the bank follows with the first answer that says so, and back."""
    async with metered(Terms(headroom=0)) as (meter, counter):

        async def answer(limit: int) -> None:
            async with meter.draw(wish()) as hold:
                hold.begun()
                asked = len(counter.grants)
                hold.heard(Standing(limits={"requests": limit}, remaining={"requests": limit - 1}))
                await until_asked(counter, asked + 1)

        for limit in 100, 50, 100:
            await answer(limit)
            lane = counter.bank.lanes[LANE]
            assert lane.limits is not None
            assert (lane.limits.requests, lane.sizes["requests"]) == (limit, limit)


async def test_an_agent_with_few_instances_sends_the_others_back() -> None:
    """They wait in their run for it, without a place; with its end the next one gets it."""
    async with metered(limited(requests=6_000)) as (meter, _):
        async with meter.draw(wish("a", pool=1)) as hold:
            hold.begun()
            with pytest.raises(GivenBack) as back:
                async with meter.draw(wish("b", pool=1)):
                    raise AssertionError("the agent is busy")

        parked = back.value.parked
        assert (parked.wall, parked.what) == ("pool", "hand, which does 1 at once")
        async with meter.draw(wish("b", pool=1)) as served:
            assert isinstance(served, Hold)


async def test_who_leaves_the_line_takes_nothing_along() -> None:
    async with metered(limited(requests=1)) as (meter, counter):
        async with meter.draw(wish()) as hold:
            hold.begun()
        callers = Callers(meter)
        callers.come("a", wish())
        await asyncio.sleep(0)

        await callers.cancel()

        assert callers.began == []
        assert counter.bank.lanes[LANE].drawn["requests"] == 1


async def test_a_mistake_of_ours_does_not_stop_the_meter() -> None:
    """An answer that nobody expects, such as one that cannot be read: the bank is asked again."""
    async with metered(limited(requests=600)) as (meter, counter):
        answers, draw_truly = iter([ValueError("no grant")]), counter.draw

        async def draw_badly(ask: Ask) -> Grant:
            for error in answers:
                raise error
            return await draw_truly(ask)

        counter.draw = draw_badly  # type: ignore[method-assign]
        async with meter.draw(wish()):
            pass

        assert [ask.number for ask in counter.asks] == [2]


async def test_an_instance_that_is_free_again_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits here, so nothing is asked; but another process may wait for it."""
    monkeypatch.setattr(quota_meter, "REPORT_EVERY", 3_600.0)
    async with metered(limited(requests=6_000)) as (meter, counter):
        async with meter.draw(wish(pool=1)) as hold:
            hold.begun()
        await until_asked(counter, 2)

        assert (counter.asks[0].calls[0].agent, counter.asks[-1].pools) == ("hand", {})


async def test_what_comes_back_last_is_told_and_then_nothing_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others could use it; a process that holds nothing has nothing to say."""
    monkeypatch.setattr(quota_meter, "REPORT_EVERY", 0.05)
    async with metered(limited(output=6_000)) as (meter, counter):
        async with meter.draw(wish()) as hold:
            hold.begun()
            hold.settled(Usage(input=1, output=1))
        await until_asked(counter, 2)
        said = len(counter.asks)
        await asyncio.sleep(0.5)

        assert counter.asks[-1].lanes[LANE].back["output_tokens"] == 99
        assert counter.asks[-1].lanes[LANE].flying == 0
        assert len(counter.asks) - said <= 1


async def test_nobody_flies_freely_while_the_bank_counts() -> None:
    """What it is asked with is all that it knows of this process: a promise from before is void by then."""
    async with metered() as (meter, counter), AsyncExitStack() as calls:
        hold = await calls.enter_async_context(meter.draw(wish(pool=100)))
        hold.begun()
        hold.heard(Standing())
        await until_asked(counter, 2)
        other = await calls.enter_async_context(meter.draw(replace(wish(), model="claude-opus-4-1")))
        await calls.enter_async_context(meter.draw(wish(pool=100)))
        asked = len(counter.asks)
        callers = Callers(meter)
        callers.come("leased", wish(pool=100))
        await callers.until_begun(1)
        assert len(counter.asks) == asked

        counter.slow = 0.2
        other.begun()
        other.refused(RateLimited("too many", retry_after=timedelta(seconds=1)))
        while len(counter.asks) == asked:
            await asyncio.sleep(0)
        callers.come("asks", wish(pool=100))
        await asyncio.sleep(0)
        assert callers.began == ["leased"]

        await callers.until_begun(2)
        await callers.end()


async def test_where_an_agent_has_much_room_its_calls_end_without_a_word() -> None:
    async with metered() as (meter, counter):
        async with meter.draw(wish(pool=100)) as hold:
            hold.begun()
            hold.heard(Standing())
            await until_asked(counter, 2)
        async with meter.draw(wish(pool=100)):
            pass
        asked = len(counter.asks)

        for _ in range(50):
            async with meter.draw(wish(pool=100)):
                await asyncio.sleep(0)

        assert len(counter.asks) <= asked + 1


async def test_who_waited_in_vain_comes_again_when_the_line_is_short() -> None:
    """Nobody is before it any more: a run that stays away for long would leave the quota unused."""
    async with metered(limited(requests=6_000), patience=0.5) as (meter, counter), AsyncExitStack() as first:
        counter.bank = Bank(lanes={LANE: Lane(window=1.0, wide=100.0)})
        hold = await first.enter_async_context(meter.draw(wish()))
        hold.begun()

        with pytest.raises(GivenBack) as back:
            async with meter.draw(wish()):
                raise AssertionError("one at once")

        until = back.value.parked.until
        assert until is not None
        assert until - datetime.now(UTC) < timedelta(seconds=10)


async def test_it_closes_while_the_bank_is_being_asked() -> None:
    """The SDK makes an update without an answer of a cancel: a worker that drains would wait for its meter for ever."""
    asked = asyncio.Event()

    class Swallows(Counter):
        async def draw(self, ask: Ask) -> Grant:
            self.asks.append(ask)
            asked.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise Unanswered("as the SDK tells of a cancel") from None
            raise AssertionError("it is never answered")

    async with QuotaMeter(Swallows(), Terms()) as meter:
        callers = Callers(meter)
        callers.come("a", wish())
        await asked.wait()
        await callers.cancel()


async def test_a_mistake_of_ours_while_it_waits_for_its_turn_does_not_stop_the_meter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mistakes = iter([ZeroDivisionError("as the test says")])
    due_in = QuotaMeter._due_in

    def due_badly(meter: QuotaMeter, now: float) -> float:
        for mistake in mistakes:
            raise mistake
        return due_in(meter, now)

    monkeypatch.setattr(QuotaMeter, "_due_in", due_badly)
    async with metered(limited(requests=600)) as (meter, _), meter.draw(wish()) as hold:
        assert isinstance(hold, Hold)


async def test_who_flies_on_a_promise_says_again_and_again_what_it_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits and nothing was held, so the meter slept: a process that is silent for long is taken for gone."""
    monkeypatch.setattr(quota_meter, "REPORT_EVERY", 3_600.0)
    async with metered() as (meter, counter):
        async with meter.draw(wish(pool=100)) as hold:
            hold.begun()
            hold.heard(Standing())
            await until_asked(counter, 2)
        async with meter.draw(wish(pool=100)):
            pass
        await asyncio.sleep(0.1)
        asked = len(counter.asks)
        monkeypatch.setattr(quota_meter, "REPORT_EVERY", 0.05)

        async with meter.draw(wish(pool=100)):
            assert len(counter.asks) == asked
            await until_asked(counter, asked + 1)

        assert counter.asks[asked].pools == {"hand": 1}


async def test_the_time_of_the_bank_is_carried_on() -> None:
    """Before its first answer a process can say nothing of it; then it says at least what it was told."""
    async with metered(limited(requests=600)) as (meter, counter):
        for _ in range(2):
            async with meter.draw(wish()) as hold:
                hold.begun()

        async def asked() -> bool:
            return len(counter.grants) >= 2

        await eventually(asked)

    first, second = (ask.elapsed for ask in counter.asks[:2])
    assert first is None
    assert second is not None
    assert second >= (counter.grants[0].elapsed or 0.0)


@pytest.mark.parametrize(
    ("said", "told", "carried"),
    [
        (None, 40.0, 40.0),  # the first answer
        (30.0, 30.0, 35.0),  # it was five seconds on its way
        (30.0, 38.0, 38.0),  # others know better
        (5_000.0, 0.0, 0.0),  # another bank
        (5_000.0, None, None),  # one of an earlier release
    ],
)
def test_what_has_passed_is_what_was_told_or_more(
    said: float | None, told: float | None, carried: float | None
) -> None:
    ask = Ask(worker="w", number=1, clock=100.0, hold=0.3, elapsed=said)

    at = carried_on(ask, Grant(elapsed=told), 105.0)

    assert at == (None if carried is None else (carried, 105.0))
