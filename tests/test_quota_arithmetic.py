"""The arithmetic of the bank beside a provider that counts for itself: whatever happens, nothing is given out twice."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import permutations
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from activities.quota_meter import carried_on
from domain.quota.bank import SILENT, Bank, draw, stands_still
from domain.quota.lane import Lane
from domain.quota.terms import TIERS, Amounts, Limits, Terms, plus
from domain.quota.view import view_of
from domain.quota.words import Ask, Call, Grant, LaneReport, Seen, Standing
from simulator.config import Limits as ProviderLimits
from simulator.limits import Limiter

LANE = "haiku-4"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOLD = 0.3
REPORT_EVERY = 5.0
POOL = 3
OPEN = Bank(lanes={LANE: Lane()})
"""A bank whose window is open."""

amounts = st.builds(
    lambda read, written: {"requests": 1.0, "input_tokens": float(read), "output_tokens": float(written)},
    st.sampled_from([1, 50, 100, 200, 400, 3_000]),
    st.sampled_from([1, 50, 100, 200, 400, 3_000]),
)

everything = st.builds(lambda size, pooled: [(size, pooled, "r")] * 40, amounts, st.booleans())
"""So many that a bucket is empty after them."""

wishes = st.lists(st.tuples(amounts, st.booleans(), st.sampled_from("rs")), max_size=8) | everything


@dataclass
class Process:
    """A worker process: sums since it began, and all that it holds."""

    name: str
    number: int = 0
    calls: int = 0
    back: Amounts = field(default_factory=dict)
    under_way: dict[int, Call] = field(default_factory=dict)
    said: Ask | None = None
    drawn: dict[int, Amounts] = field(default_factory=dict)
    """By call: all that was drawn when it was granted."""
    heard: int = 0
    seen: Seen | None = None
    left: float = 0.0
    """When the call left whose answer was seen last."""
    elapsed: tuple[float, float] | None = None
    """What had passed for the bank by its last answer, and when that came."""
    spoke: float = 0.0
    """When it said something last."""
    is_older: bool = False
    """Whether it is of a release that does not say so."""


class World(RuleBasedStateMachine):
    """Processes that ask, use, return, die and repeat themselves; a bank that is restarted; clocks that jump."""

    headroom = 0.1
    largest = 3_000.0
    learns = False

    @initialize(
        requests=st.sampled_from([10, 60, 200]),
        tokens=st.sampled_from([2_000, 50_000]),
        burst=st.sampled_from([0.05, 0.1, 0.5, 1.0]),
        hold=st.sampled_from([HOLD, HOLD, 1.0, 4.0]),
        tells=st.booleans(),
        older=st.frozensets(st.integers(1, 4)),
    )
    def begin(self, requests: int, tokens: int, burst: float, hold: float, tells: bool, older: frozenset[int]) -> None:
        self.hold, self.tells, self.older = hold, tells, older
        given = {"requests": requests, "input_tokens": tokens, "output_tokens": tokens, "burst": burst}
        self.provider = Limiter(ProviderLimits.model_validate(given))
        self.terms = Terms(headroom=self.headroom, limits={"default": Limits.model_validate(given)})
        self.bank = OPEN
        self.now, self.skew = 0.0, 0.0
        self.names = 0
        self.on_their_way: list[tuple[float, Process, Call]] = []
        self.answers: list[tuple[Process, Call, Standing, float]] = []
        self.guessed: set[tuple[str, int]] = set()
        self.processes = [self.process() for _ in range(3)]
        for process in self.processes:
            self.say(process, ())

    def process(self) -> Process:
        self.names += 1
        return Process(f"w{self.names}", is_older=self.names in self.older)

    # What happens

    @rule(seconds=st.sampled_from([0.0, 0.1, HOLD, 1.0, 7.0, 30.0]))
    def time_passes(self, seconds: float) -> None:
        """Calls that are on their way to the provider arrive in time, and whoever holds something says so."""
        end = self.now + seconds
        while self.now < end or self.coming(end):
            silent = [process for process in self.processes if process.under_way]
            due = min((process.spoke + REPORT_EVERY for process in silent), default=end)
            at = max(self.now, min(due, end))
            while coming := self.coming(at):
                self.on_their_way.remove(coming)
                self.now = max(self.now, coming[0])
                self.arrive(coming[1], coming[2])
            self.now = at
            for process in silent:
                if self.now >= process.spoke + REPORT_EVERY:
                    self.say(process, ())

    def coming(self, until: float) -> tuple[float, Process, Call] | None:
        """The next call that arrives at the provider by then."""
        first = min(self.on_their_way, key=lambda call: call[0], default=None)
        return first if first is not None and first[0] <= until else None

    @rule(by=st.sampled_from([-7200.0, -60.0, -5.0, 0.5, 5.0, 20.0, 60.0, 7200.0]))
    def the_clock_of_the_server_jumps(self, by: float) -> None:
        """Nobody speaks at once: whoever asks next meets a bank that has heard of nothing."""
        self.skew += by

    @rule(
        silence=st.sampled_from([0.0, 5.0, 20.0]),
        by=st.sampled_from([0.0, 0.5, 20.0]),
        who=st.integers(0, 2),
        is_new=st.booleans(),
        wanted=everything,
    )
    def after_a_jump_one_asks_for_everything(
        self, silence: float, by: float, who: int, is_new: bool, wanted: list[tuple[Amounts, bool, str]]
    ) -> None:
        """And the others are heard after it."""
        self.time_passes(silence)
        self.the_clock_of_the_server_jumps(by)
        if is_new:
            self.a_process_dies(who)
        self.ask(who, wanted, "used", 0.0)
        for process in self.processes:
            self.say(process, ())

    @rule(who=st.integers(0, 2))
    def a_process_dies(self, who: int) -> None:
        """The one in its place says its first word when it asks, perhaps long after and for calls."""
        self.processes[who] = self.process()

    @rule(
        who=st.integers(0, 2),
        wanted=wishes,
        fate=st.sampled_from(["used", "used", "used", "late", "lost", "dies"]),
        delay=st.sampled_from([0.0, 0.3, 1.0]),
    )
    def ask(self, who: int, wanted: list[tuple[Amounts, bool, str]], fate: str, delay: float) -> None:
        process = self.processes[who]
        ask = self.asked(process, self.wishes(process, wanted))
        self.use(process, ask, self.drawn(process, ask), fate, delay)
        if fate == "dies":
            self.a_process_dies(who)

    @rule(who=st.integers(0, 2), wanted=wishes, seconds=st.sampled_from([0.1, 1.0, 4.0]))
    def an_ask_is_long_on_its_way(self, who: int, wanted: list[tuple[Amounts, bool, str]], seconds: float) -> None:
        """The bank stands still, or the way to it is slow: the others are heard before."""
        process = self.processes[who]
        ask = self.asked(process, self.wishes(process, wanted))
        self.time_passes(seconds)
        if process.said is ask:
            self.use(process, ask, self.drawn(process, ask), "used" if seconds <= self.hold else "late", 0.0)

    @rule(who=st.integers(0, 2), part=st.floats(0, 1))
    def a_call_ends(self, who: int, part: float) -> None:
        """The provider gives back what it did not produce, and the process hears of it."""
        process = self.processes[who]
        on_their_way = {call.number for _, by, call in self.on_their_way if by is process}
        there = [number for number in process.under_way if number not in on_their_way]
        if not there:
            return
        call = process.under_way.pop(there[0])
        self.over(process, call)
        unused = int(call.amounts["output_tokens"] * part)
        self.provider.settle("model", unused_output=unused, now=self.now)
        process.back = plus(process.back, {"output_tokens": float(unused)})

    @rule(who=st.integers(0, 2))
    def an_ask_comes_twice(self, who: int) -> None:
        process = self.processes[who]
        if process.said is not None:
            self.bank, grant = draw(self.bank, process.said, self.clock)
            assert grant.numbers == ()

    @rule()
    def the_bank_is_restarted(self) -> None:
        self.bank = Bank.model_validate_json(self.bank.model_dump_json())

    # How it is done

    def wishes(self, process: Process, wanted: list[tuple[Amounts, bool, str]]) -> tuple[Call, ...]:
        calls = []
        for size, pooled, run in wanted:
            process.calls += 1
            amount: Amounts = {measure: min(part, self.largest) for measure, part in size.items()}
            agent, pool = ("pair", POOL) if pooled else (None, 0)
            calls.append(Call(number=process.calls, lane=LANE, amounts=amount, run=run, agent=agent, pool=pool))
        return tuple(calls)

    def use(self, process: Process, ask: Ask, grant: Grant, fate: str, delay: float) -> None:
        """What is granted is used, goes back because it is too late, or is lost on its way."""
        if not self.bank.lanes[LANE].told:
            self.guessed.update((process.name, call.number) for call in ask.calls)
        for call in ask.calls:
            if call.number not in grant.numbers:
                continue
            if fate == "used":
                process.under_way[call.number] = call
                process.drawn[call.number] = grant.lanes[LANE].drawn
                self.on_their_way.append((max(self.now, ask.clock + delay * self.hold), process, call))
            elif fate == "late":
                process.back = plus(process.back, call.amounts)

    def over(self, process: Process, call: Call) -> None:
        """A call is about to end."""

    @property
    def clock(self) -> datetime:
        return NOON + timedelta(seconds=self.now + self.skew)

    def say(self, process: Process, calls: tuple[Call, ...]) -> Grant:
        return self.drawn(process, self.asked(process, calls))

    def asked(self, process: Process, calls: tuple[Call, ...]) -> Ask:
        process.number += 1
        process.spoke = self.now
        held_now = Counter(call.agent for call in process.under_way.values() if call.agent is not None)
        elapsed = None if process.elapsed is None else process.elapsed[0] + self.now - process.elapsed[1]
        process.said = Ask(
            worker=process.name,
            number=process.number,
            clock=self.now,
            hold=self.hold,
            terms=self.terms,
            lanes={LANE: self.report(process)},
            pools=dict(held_now),
            calls=calls,
            waiting=len(calls),
            elapsed=elapsed,
        )
        return process.said

    def drawn(self, process: Process, ask: Ask) -> Grant:
        self.bank, grant = draw(self.bank, ask, self.clock)
        process.elapsed = None if process.is_older else carried_on(ask, grant, self.now)
        return grant

    def report(self, process: Process) -> LaneReport:
        """What a process has to say. One of an older kind does not tell what is still on its way."""
        coming: Amounts = {}
        for _, by, call in self.on_their_way:
            coming = plus(coming, call.amounts) if by is process else coming
        seen = process.seen and process.seen.model_copy(update={"age": self.now - process.left})
        on_its_way = coming if self.tells else None
        return LaneReport(flying=len(process.under_way), back=process.back, on_its_way=on_its_way, seen=seen)

    def arrive(self, process: Process, call: Call) -> None:
        """A granted call comes to the provider, which would refuse it if it were too much."""
        wait = self.provider.admit(
            "model",
            input_tokens=int(call.amounts["input_tokens"]),
            output_tokens=int(call.amounts["output_tokens"]),
            now=self.now,
        )
        if self.learns and (process.name, call.number) in self.guessed and wait:
            return
        assert wait == 0, f"a call of {process.name} would be refused"
        told = self.provider.standings("model", self.now)
        limits = {name.replace("-", "_"): standing.limit for name, standing in told.items()}
        left = {name.replace("-", "_"): standing.remaining for name, standing in told.items()}
        standing = Standing.model_validate({"limits": limits, "remaining": left})
        self.answers.append((process, call, standing, self.now))

    @invariant()
    def no_instance_is_held_twice(self) -> None:
        """Of one that is silent for long nobody knows: but whoever lives is heard."""
        holding = sum(call.agent is not None for process in self.processes for call in process.under_way.values())
        assert holding <= POOL

    @invariant()
    def the_state_stays_small(self) -> None:
        assert len(self.bank.model_dump_json()) < 40_000

    def teardown(self) -> None:
        """Whatever has happened: when all calls have ended, every instance can be had again."""
        if self.learns or not hasattr(self, "processes"):
            return
        self.on_their_way.clear()
        for process in self.processes:
            process.under_way.clear()
        self.now += 2 * SILENT.total_seconds()
        for process in self.processes:
            self.say(process, ())
        first = self.processes[0]
        tiny: Amounts = {"requests": 1.0, "input_tokens": 1.0, "output_tokens": 1.0}
        for _ in range(20):
            first.calls += 1
            call = Call(number=first.calls, lane=LANE, amounts=tiny, run="r", agent="pair", pool=POOL)
            if len(first.under_way) < POOL and call.number in self.say(first, (call,)).numbers:
                first.under_way[call.number] = call
            self.time_passes(30.0)
        assert len(first.under_way) == POOL


class CarelessWorld(World):
    """Without any headroom: the arithmetic itself must be right."""

    headroom = 0.0


class LearningWorld(World):
    """Limits, or how much fits at once, are learned from answers, which begin in any order."""

    largest = 1_000.0
    learns = True

    @initialize(
        requests=st.sampled_from([60, 200]),
        burst=st.sampled_from([0.1, 0.5, 1.0]),
        hold=st.sampled_from([HOLD, 1.0, 4.0]),
        tells=st.booleans(),
        tier=st.sampled_from([None, 100, 1_000]),
        older=st.frozensets(st.integers(1, 4)),
    )
    def begin_without(
        self, requests: int, burst: float, hold: float, tells: bool, tier: int | None, older: frozenset[int]
    ) -> None:
        super().begin(requests, 50_000, burst, hold, tells, older)
        self.bank = Bank()
        self.terms = Terms(headroom=self.headroom, limits={"default": Limits(requests=tier)} if tier else {})
        self.processes = [self.process() for _ in range(3)]

    def begin(self, *_: object) -> None:
        """As above."""

    @rule(which=st.integers(0, 9))
    def an_answer_begins(self, which: int) -> None:
        """It tells how the account stood when its call arrived. Who has died hears nothing."""
        if self.answers:
            self.hear(self.answers.pop(which % len(self.answers)))

    def over(self, process: Process, call: Call) -> None:
        """An answer ends after it has begun."""
        for answer in [answer for answer in self.answers if answer[:2] == (process, call)]:
            self.answers.remove(answer)
            self.hear(answer)

    def hear(self, answer: tuple[Process, Call, Standing, float]) -> None:
        process, call, standing, left = answer
        process.left = left
        process.heard += 1
        drawn = process.drawn[call.number]
        process.seen = Seen(number=process.heard, standing=standing, charged=call.amounts, drawn=drawn, age=0.0)


TestWorld = World.TestCase
TestWorld.settings = settings(max_examples=80, stateful_step_count=25, deadline=None)
TestLearningWorld = LearningWorld.TestCase
TestLearningWorld.settings = settings(max_examples=80, stateful_step_count=25, deadline=None)
TestCarelessWorld = CarelessWorld.TestCase
TestCarelessWorld.settings = settings(max_examples=80, stateful_step_count=25, deadline=None)


def ask_for(count: int, *, number: int, worker: str = "w", clock: float = 0.0, **more: Any) -> Ask:
    """So many calls of the same size."""
    limits = {"default": Limits(requests=60, burst=0.1)}
    calls = tuple(
        Call(number=100 * number + one, lane=LANE, amounts={"requests": 1.0}, run="r", **more) for one in range(count)
    )
    return Ask(
        worker=worker, number=number, clock=clock, hold=HOLD, terms=Terms(headroom=0, limits=limits), calls=calls
    )


def test_what_is_granted_now_may_arrive_together_with_what_is_granted_later() -> None:
    """What flows into a full bucket while a grant is on its way has no room there: it is not given out."""
    bank, first = draw(OPEN, ask_for(10, number=1), NOON)
    _, second = draw(bank, ask_for(10, number=2, clock=HOLD), NOON + timedelta(seconds=HOLD))

    assert len(first.numbers) + len(second.numbers) <= 6


def test_an_agent_is_never_at_work_more_often_than_it_may_be() -> None:
    """In one process or in two; what a silent process held is free again."""
    bank, first = draw(OPEN, ask_for(5, number=1, agent="pair", pool=3), NOON)
    bank, other = draw(bank, ask_for(1, number=1, worker="v", agent="pair", pool=3), NOON)

    assert (len(first.numbers), other.numbers) == (3, ())
    assert "pair" in first.full
    assert "pair" in other.full

    later = NOON + SILENT + timedelta(seconds=1)
    _, again = draw(bank, ask_for(1, number=2, worker="v", clock=16.0, agent="pair", pool=3), later)
    assert len(again.numbers) == 1


def test_the_calls_of_a_worker_that_died_alone_close_no_window_for_long() -> None:
    """It had the first four under way, and nobody knows a limit yet: the next worker waits for no 15 s of its own."""
    bank, first = draw(Bank(), ask_for(9, number=1).model_copy(update={"terms": Terms()}), NOON)
    assert len(first.numbers) == 4

    for second, clock, granted in (5, 100.0, 0), (16, 111.0, 4):
        ask = ask_for(9, number=second, worker="v", clock=clock).model_copy(update={"terms": Terms()})
        bank, grant = draw(bank, ask, NOON + timedelta(seconds=second))
        assert len(grant.numbers) == granted


def test_runs_that_wait_for_an_agent_take_turns() -> None:
    """One that found it busy comes before one that asks for the first time when an instance is free again."""
    bank, _ = draw(OPEN, ask_for(1, number=1, agent="one", pool=1), NOON)
    waits = ask_for(1, number=1, worker="v", agent="one", pool=1)
    late = waits.model_copy(update={"calls": (waits.calls[0].model_copy(update={"run": "late"}),)})
    bank, refused = draw(bank, late, NOON)
    assert refused.full

    bank, overtaken = draw(bank, ask_for(1, number=2, clock=1.0, agent="one", pool=1), NOON + timedelta(seconds=1))
    _, served = draw(bank, late.model_copy(update={"number": 2, "clock": 5.0}), NOON + timedelta(seconds=5))

    assert (overtaken.numbers, len(served.numbers)) == ((), 1)


def of_run(ask: Ask, run: str) -> Ask:
    return ask.model_copy(update={"calls": tuple(call.model_copy(update={"run": run}) for call in ask.calls)})


def test_a_run_that_does_not_come_again_loses_its_turn() -> None:
    """It was cancelled, or paused: a task that still waits comes again within five seconds, and keeps the turn."""

    def ask(number: int, count: int, run: str) -> Ask:
        return of_run(ask_for(count, number=number, clock=float(number), agent="one", pool=1), run)

    bank, _ = draw(OPEN, ask(1, 1, "first").model_copy(update={"worker": "gone"}), after(1))
    for number in 2, 7, 11:  # "gone" is silent from here on, and another run comes again and again
        bank, busy = draw(bank, ask(number, 1, "second"), after(number))
        assert busy.full
    bank, kept = draw(bank, ask(22, 1, "third"), after(22))
    _, free = draw(bank, ask(24, 1, "third"), after(24))

    assert (kept.numbers, len(free.numbers)) == ((), 1)


def test_a_run_that_has_its_turn_and_waits_for_its_model_keeps_others_no_longer() -> None:
    """It asks all the time, but the agent is not what it waits for: a call of another class has it."""
    bank, _ = draw(OPEN, ask_for(1, number=1, worker="v", agent="one", pool=1), NOON)
    bank, busy = draw(bank, of_run(ask_for(1, number=1, agent="one", pool=1), "first"), NOON)
    bank, _ = draw(bank, ask_for(0, number=2, worker="v", clock=1.0), after(1))  # its call has ended
    wall = {"lanes": {LANE: LaneReport(wall=60.0, troubles=1)}}

    served = []
    for second in range(2, 16):
        waits = of_run(ask_for(1, number=second, clock=float(second), agent="one", pool=1), "first")
        bank, nothing = draw(bank, waits.model_copy(update=wall), after(second))
        other = of_run(ask_for(1, number=second, worker="o", clock=float(second), agent="one", pool=1), "other")
        calls = tuple(call.model_copy(update={"lane": "opus-4"}) for call in other.calls)
        bank, grant = draw(bank, other.model_copy(update={"calls": calls}), after(second))
        assert nothing.numbers == ()
        served += [second] * len(grant.numbers)

    assert busy.full
    assert served[:1] == [13]


def test_processes_take_turns_at_a_limit() -> None:
    """Whoever was served stands behind those who wait, however early it asks again."""
    bank, first = draw(OPEN, ask_for(10, number=1), NOON)
    bank, nothing = draw(bank, ask_for(10, number=1, worker="v"), NOON)
    assert (len(first.numbers), len(nothing.numbers)) == (6, 0)

    served = []
    for second in range(1, 8):
        for worker in "w", "v":
            ask = ask_for(10, number=1 + second, worker=worker, clock=float(second))
            bank, grant = draw(bank, ask, NOON + timedelta(seconds=second))
            served += [worker for _ in grant.numbers]

    assert "".join(served) == "wvwvwv"


def test_a_wall_holds_for_every_process_until_its_time() -> None:
    """One has met it; the others hear of it when they ask, and are told when to come again."""
    bank, _ = draw(OPEN, ask_for(1, number=1), NOON)
    met = ask_for(0, number=2).model_copy(update={"lanes": {LANE: LaneReport(wall=30.0, troubles=1)}})
    bank, _ = draw(bank, met, NOON)

    bank, stopped = draw(bank, ask_for(3, number=1, worker="v"), NOON + timedelta(seconds=29))
    _, free = draw(bank, ask_for(3, number=2, worker="v", clock=2.0), NOON + timedelta(seconds=31))

    assert (stopped.numbers, stopped.lanes[LANE].obstacle, stopped.retry_in) == ((), "wall", 1.0)
    assert free.numbers != ()


def test_a_clock_that_is_set_back_makes_no_wait_longer() -> None:
    """By an hour: a wall stands for its half minute, a dead process loses its turn, and buckets fill as before."""
    bank, _ = draw(OPEN, ask_for(10, number=1, worker="dead"), NOON)
    met = ask_for(0, number=1).model_copy(update={"lanes": {LANE: LaneReport(wall=30.0, troubles=1)}})
    bank, _ = draw(bank, met, NOON)
    earlier = NOON - timedelta(hours=1)
    bank, _ = draw(bank, ask_for(0, number=2, clock=1.0), earlier)
    assert bank.lanes[LANE].wall == earlier + timedelta(seconds=30)

    later = ask_for(10, number=3, clock=32.0)
    bank, granted = draw(bank, later, earlier + timedelta(seconds=31))

    assert granted.numbers != ()
    assert "dead" not in bank.lanes[LANE].tickets


def test_a_clock_that_stands_still_is_seen() -> None:
    """By a process for which time has passed; two words of one moment tell nothing."""
    bank, _ = draw(OPEN, ask_for(1, number=1, clock=10.0), NOON)

    assert stands_still(bank, ask_for(1, number=2, clock=12.0), NOON)
    assert not stands_still(bank, ask_for(1, number=2, clock=10.5), NOON)
    assert not stands_still(bank, ask_for(1, number=2, clock=12.0), NOON + timedelta(seconds=2))
    assert not stands_still(bank, ask_for(1, number=1, worker="v", clock=12.0), NOON)


def test_a_wall_that_has_fallen_is_not_raised_by_who_remembers_it() -> None:
    """One process has met it, and says so in every word; the call of another was taken before its end."""
    bank, _ = draw(OPEN, ask_for(1, number=1), NOON)
    met = ask_for(0, number=2).model_copy(update={"lanes": {LANE: LaneReport(wall=3_600.0, troubles=1)}})
    bank, _ = draw(bank, met, NOON)
    taken = ask_for(0, number=1, worker="v").model_copy(update={"lanes": {LANE: LaneReport(passed=1)}})
    bank, _ = draw(bank, taken, NOON)
    assert bank.lanes[LANE].wall is None

    again = ask_for(0, number=3, clock=5.0)
    later = NOON + timedelta(seconds=5)
    remembers = again.model_copy(update={"lanes": {LANE: LaneReport(wall=3_595.0, troubles=1)}})
    meets = again.model_copy(update={"lanes": {LANE: LaneReport(wall=3_600.0, troubles=2)}})

    assert draw(bank, remembers, later)[0].lanes[LANE].wall is None
    assert draw(bank, meets, later)[0].lanes[LANE].wall is not None


def test_an_answer_that_says_nothing_of_limits_takes_none_away() -> None:
    """Such as a refusal by something before the provider."""
    bank = Bank()

    def say(number: int, standing: Standing) -> None:
        nonlocal bank
        seen = Seen(number=number, standing=standing, charged={"requests": 1.0}, drawn={}, age=0.0)
        word = ask_for(0, number=number).model_copy(update={"terms": Terms(), "lanes": {LANE: LaneReport(seen=seen)}})
        bank, _ = draw(bank, word, NOON)

    say(1, Standing(limits={"requests": 60}, remaining={"requests": 10}))
    say(2, Standing())

    lane = bank.lanes[LANE]
    assert lane.limits is not None
    assert lane.limits.requests == 60
    assert lane.levels["requests"] <= 11


def test_what_a_slow_answer_tells_of_the_account_is_not_counted_twice() -> None:
    """Its call left long ago: what was drawn since then has flowed in, come back, or is in what it tells."""
    allowed = Limits(output_tokens=6_000)
    seconds = 30
    terms = Terms(headroom=0, limits={"default": allowed})

    def ask(number: int, *, count: int = 0, **report: Any) -> Ask:
        calls = tuple(Call(number=one, lane=LANE, amounts={"output_tokens": 1_000.0}, run="r") for one in range(count))
        lanes = {LANE: LaneReport(**report)}
        return Ask(worker="w", number=number, clock=float(number), hold=0.3, terms=terms, lanes=lanes, calls=calls)

    bank, granted = draw(OPEN, ask(1, count=1), NOON + timedelta(seconds=1))
    at_grant = granted.lanes[LANE].drawn
    back = 0.0
    for second in range(2, seconds):  # a call of 1,000 is granted every second, and uses 100
        back += 900.0
        bank, _ = draw(bank, ask(second, count=1, back={"output_tokens": back}), NOON + timedelta(seconds=second))
    standing = Standing(limits={"output_tokens": 6_000}, remaining={"output_tokens": 4_000})
    seen = Seen(number=1, standing=standing, charged={"output_tokens": 1_000.0}, drawn=at_grant, age=float(seconds - 1))
    last = ask(seconds, back={"output_tokens": back}, seen=seen)
    bank, _ = draw(bank, last, NOON + timedelta(seconds=seconds))

    assert bank.lanes[LANE].levels["output_tokens"] >= 3_900


@pytest.mark.parametrize("given", [Limits(requests=50), Limits(requests=500), TIERS[1].limits["default"]])
def test_how_much_fits_at_once_is_learned_though_limits_are_set(given: Limits) -> None:
    """A tier, or a table without `burst`, says how much a minute allows: after a quiet spell not all of it at once."""
    terms = Terms(limits={"default": given})
    bank, first = draw(OPEN, ask_for(1, number=1).model_copy(update={"terms": terms}), NOON)
    standing = Standing(limits={"requests": 50}, remaining={"requests": 4})
    seen = Seen(number=1, standing=standing, charged={"requests": 1.0}, drawn=first.lanes[LANE].drawn, age=0.1)
    heard = ask_for(0, number=2, clock=1.0).model_copy(update={"terms": terms, "lanes": {LANE: LaneReport(seen=seen)}})
    bank, _ = draw(bank, heard, NOON + timedelta(seconds=1))

    quiet = ask_for(22, number=3, clock=121.0).model_copy(update={"terms": terms})
    bank, burst = draw(bank, quiet, NOON + timedelta(seconds=121))

    assert bank.lanes[LANE].sizes["requests"] == 5
    assert 1 <= len(burst.numbers) <= 5


def test_a_burst_that_a_person_has_set_is_not_learned() -> None:
    terms = Terms(headroom=0, limits={"default": Limits(requests=60, burst=0.5)})
    standing = Standing(limits={"requests": 60}, remaining={"requests": 4})
    seen = Seen(number=1, standing=standing, charged={"requests": 1.0}, drawn={}, age=0.0)
    word = ask_for(0, number=1).model_copy(update={"terms": terms, "lanes": {LANE: LaneReport(seen=seen)}})

    bank, _ = draw(OPEN, word, NOON)

    assert bank.lanes[LANE].sizes["requests"] == 30
    assert bank.lanes[LANE].levels["requests"] <= 5


def test_what_was_learned_of_a_bucket_follows_its_limit() -> None:
    """The provider halves the limit, and the bucket with it."""
    bank = OPEN
    for number, (limit, left) in enumerate([(60, 5), (30, 2)], start=1):
        standing = Standing(limits={"requests": limit}, remaining={"requests": left})
        seen = Seen(number=number, standing=standing, charged={"requests": 1.0}, drawn={}, age=0.0)
        terms = Terms(limits={"default": Limits(requests=600)})
        word = ask_for(0, number=number).model_copy(update={"terms": terms, "lanes": {LANE: LaneReport(seen=seen)}})
        bank, _ = draw(bank, word, NOON)

        assert bank.lanes[LANE].sizes["requests"] == left + 1


@pytest.mark.parametrize(
    ("headroom", "hold", "limits", "amount"),
    [
        (0.0, 0.3, {"output_tokens": 2_000, "burst": 0.05}, 400.0),
        (0.0, 1.0, {"output_tokens": 8_000, "burst": 0.1}, 800.0),
        (0.1, 1.0, {"output_tokens": 8_000, "burst": 0.1}, 800.0),
        (0.1, 4.0, {"output_tokens": 8_000, "burst": 0.1}, 700.0),
        (0.1, 0.3, {"output_tokens": 8_000, "burst": 0.1}, 8_000.0),
    ],
)
def test_a_call_as_large_as_its_bucket_is_not_followed_too_early(
    headroom: float, hold: float, limits: dict[str, Any], amount: float
) -> None:
    """It arrives as late as a grant may be used, the next one at once: nothing flowed in before the first was there."""
    provider = Limiter(ProviderLimits.model_validate(limits))
    terms = Terms(headroom=headroom, limits={"default": Limits.model_validate(limits)})
    provider.admit("model", input_tokens=0, output_tokens=0, now=0.0)
    bank, now, arrivals = OPEN, 0.0, list[float]()
    for number in range(1, 5):
        while True:
            call = Call(number=number, lane=LANE, amounts={"output_tokens": amount}, run="r")
            ask = Ask(worker="w", number=round(now * 100) + 1, clock=now, hold=hold, terms=terms, calls=(call,))
            bank, grant = draw(bank, ask, NOON + timedelta(seconds=now))
            if grant.numbers:
                break
            now += 0.05
        arrivals.append(now + hold if number % 2 else now)
        now += 0.05

    refused = [
        arrival
        for arrival in sorted(arrivals)
        if provider.admit("model", input_tokens=0, output_tokens=int(amount), now=arrival) > 0
    ]
    assert refused == []


@pytest.mark.parametrize("order", [*permutations(range(4))])
@pytest.mark.parametrize("together", [False, True])
def test_the_order_of_the_first_answers_does_not_matter(order: tuple[int, ...], together: bool) -> None:
    """Four calls arrive at once, and are answered in any order: in the end the bank knows what is in the bucket.

    Of answers that come together only the latest is told, and the most that any of them has told of.
    """
    provider = Limiter(ProviderLimits(requests=60, burst=0.1))
    calls = ask_for(4, number=1).model_copy(update={"terms": Terms(headroom=0)})
    bank, first = draw(Bank(), calls, NOON)
    left = []
    for _ in first.numbers:
        assert provider.admit("model", input_tokens=0, output_tokens=0, now=0.0) == 0
        left.append(provider.standings("model", 0.0)["requests"].remaining)

    most = 0.0
    for number, which in enumerate(order, start=1):
        most = max(most, left[which] + 1.0)
        if together and number < 3:
            continue
        second = 0.6 + number / 10
        seen = Seen(
            number=number,
            standing=Standing(limits={"requests": 60}, remaining={"requests": left[which]}),
            charged={"requests": 1.0},
            drawn=first.lanes[LANE].drawn,
            age=second,
            most={"requests": most},
        )
        report = LaneReport(flying=4, seen=seen, on_its_way={})
        heard = ask_for(0, number=1 + number, clock=second).model_copy(
            update={"terms": Terms(headroom=0), "lanes": {LANE: report}}
        )
        bank, _ = draw(bank, heard, NOON + timedelta(seconds=second))

    assert bank.lanes[LANE].sizes["requests"] == 6
    assert bank.lanes[LANE].levels["requests"] == pytest.approx(3.0)  # six, without four, and a second later


def after(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def sure(ask: Ask) -> Ask:
    """Of a process that was there from the beginning, and carries the time of the bank on by its clock."""
    return ask.model_copy(update={"elapsed": ask.clock})


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("jump", [20.0, 3_600.0])
def test_a_jump_of_the_servers_clock_frees_nothing_that_is_held(jump: float, number: int) -> None:
    """Whoever asks first after it, one that was there before or one that nobody knows: nobody has been silent."""
    bank, both = draw(OPEN, ask_for(2, number=1, agent="pair", pool=2), NOON)
    bank, _ = draw(bank, ask_for(0, number=1, worker="v"), NOON)
    asker = "v" if number == 2 else "new"

    bank, more = draw(bank, ask_for(2, number=number, worker=asker, clock=1.0, agent="pair", pool=2), after(1 + jump))

    assert (len(both.numbers), more.numbers) == (2, ())
    assert view_of(bank, after(1 + jump)).lanes[LANE].flying == 2


def test_a_process_that_nobody_knows_vouches_for_no_time() -> None:
    """Of its first word only the server knows when it was. From then on its own clock counts, and buckets fill."""
    bank, _ = draw(OPEN, ask_for(6, number=1), NOON)

    bank, first = draw(bank, ask_for(6, number=1, worker="new", clock=500.0), after(3_600))
    bank, second = draw(bank, ask_for(6, number=2, worker="new", clock=503.0), after(3_603))

    assert (len(first.numbers), len(second.numbers)) == (0, 2)


def test_a_process_that_is_alone_after_others_have_died_gets_all_there_is() -> None:
    """What they held is free when it has been there for as long as a process may be silent."""
    bank, _ = draw(OPEN, ask_for(6, number=1, agent="pair", pool=2), NOON)
    bank, none = draw(bank, ask_for(2, number=1, worker="new", agent="pair", pool=2), after(3_600))

    for second in 5, 10, 16:
        ask = ask_for(2, number=second, worker="new", clock=float(second), agent="pair", pool=2)
        bank, grant = draw(bank, ask, after(3_600 + second))

    assert (none.numbers, len(grant.numbers)) == ((), 2)


def test_what_flowed_in_while_the_bank_stood_still_is_there_afterwards() -> None:
    """An ask was executed five seconds after it was made: it looks as if the server's clock had jumped."""
    bank, _ = draw(OPEN, ask_for(6, number=1), NOON)
    bank, late = draw(bank, sure(ask_for(6, number=2, clock=0.3)), after(5.3))
    _, soon = draw(bank, sure(ask_for(6, number=3, clock=5.4)), after(5.5))

    assert (len(late.numbers), len(soon.numbers)) == (0, 4)


@pytest.mark.parametrize("arrives", [False, True])
def test_who_was_silent_for_long_does_not_fill_what_was_drawn_just_now(arrives: bool) -> None:
    """The bucket was full all the hour; a process that nobody knew has emptied it, and holds an instance."""
    bank, _ = draw(OPEN, ask_for(0, number=1), NOON)
    bank, all_of_it = draw(bank, ask_for(6, number=1, worker="new", agent="six", pool=6), after(3_600))
    held_now = ask_for(0, number=2, worker="new").model_copy(update={"pools": {"six": 6}})
    there = held_now.model_copy(update={"lanes": {LANE: LaneReport(flying=6, on_its_way={})}})
    bank, _ = draw(bank, there if arrives else held_now, after(3_600))

    bank, busy = draw(bank, sure(ask_for(6, number=2, clock=3_600.0, agent="six", pool=6)), after(3_600))
    bank, empty = draw(bank, sure(ask_for(6, number=3, clock=3_600.0)), after(3_600))
    bank, _ = draw(bank, sure(ask_for(0, number=4, clock=3_600.5)), after(3_600.5))

    assert (len(all_of_it.numbers), [*busy.full], empty.numbers) == (6, ["six"], ())
    assert bank.lanes[LANE].levels["requests"] == (0.5 if arrives else 0.0)


def test_what_came_back_to_a_full_bucket_is_not_there_again() -> None:
    """A call ended, another process drew all there was, and only then the first one told of its end."""
    bank, _ = draw(OPEN, ask_for(6, number=1), NOON)
    bank, _ = draw(bank, ask_for(0, number=1, worker="v"), NOON)
    bank, _ = draw(bank, ask_for(0, number=2, clock=10.0), after(10))
    bank, full = draw(bank, ask_for(6, number=2, worker="v", clock=10.0), after(10))
    arrived = ask_for(0, number=3, worker="v", clock=10.1).model_copy(
        update={"lanes": {LANE: LaneReport(on_its_way={})}}
    )
    bank, _ = draw(bank, arrived, after(10.1))

    told = ask_for(6, number=3, clock=10.1).model_copy(update={"lanes": {LANE: LaneReport(back={"requests": 6.0})}})
    _, again = draw(bank, told, after(10.1))

    assert (len(full.numbers), again.numbers) == (6, ())


def test_a_process_of_an_earlier_release_vouches_for_no_second_twice() -> None:
    """It does not say what has passed for the bank; others vouch for the same time, and the server's clock jumps."""
    bank, _ = draw(OPEN, ask_for(6, number=1), NOON)
    bank, _ = draw(bank, ask_for(0, number=1, worker="older"), NOON)
    bank, _ = draw(bank, sure(ask_for(0, number=2, clock=4.0)), after(4))

    _, grant = draw(bank, ask_for(6, number=2, worker="older", clock=4.0), after(24))

    assert grant.elapsed == 4.0


def test_a_bank_of_an_earlier_release_goes_on() -> None:
    """It has not counted what passes: its processes are there, and their clocks go on where they were."""
    bank, _ = draw(OPEN, ask_for(6, number=1, agent="six", pool=6), NOON)
    bank, _ = draw(bank, ask_for(0, number=1, worker="v", clock=2.0), after(2))
    old = bank.model_dump(mode="json", exclude={"elapsed": True, "workers": {"__all__": {"heard", "quiet", "drawn"}}})

    bank, first = draw(Bank.model_validate(old), ask_for(6, number=2, clock=3.0, agent="six", pool=6), after(3))
    _, second = draw(bank, ask_for(6, number=3, clock=6.0), after(6))

    assert first.elapsed == 1.0
    assert (first.numbers, len(second.numbers)) == ((), 3)
