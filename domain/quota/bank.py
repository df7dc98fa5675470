"""The bank: what an account may use, drawn by the processes that call. `draw` is all its arithmetic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Annotated

from pydantic import Field

from domain.models import Unsaid, Value
from domain.quota import buckets, window
from domain.quota.day import Day, Till, lowest
from domain.quota.lane import Lane, Ticket
from domain.quota.terms import MEASURES, Amounts, Terms, minus
from domain.quota.words import NO_LANE, Ask, Call, Grant, LaneReport, LaneWord, Obstacle

SILENT = timedelta(seconds=15)
"""A process that said nothing for so long holds nothing any more: it is gone, or will begin anew."""

FORGOTTEN = timedelta(minutes=10)
"""After so long what a process had returned is forgotten too: the buckets are full by then."""

TICKET = timedelta(seconds=5)
"""A process that does not come back for its turn has lost it."""

ASK_AGAIN = 2.0
"""Seconds after which a process asks again at the latest: what others return may be there sooner than time fills it."""

KNOW_SOON = 0.2
"""Seconds after which those who wait for the first answer ask again."""

NEWS = 0.5
"""Seconds by which a wall must be longer than the one that a process spoke of before."""

POOL_SOON, POOL_AGAIN = 1.0, 5.0
"""Seconds after which a task whose agent is busy comes again: soon at first, since the end of the call before may not
have been told yet; later as often as it has waited."""

POOL_TICKET = timedelta(seconds=POOL_AGAIN + 7)
"""How long a run keeps its turn at an agent that was busy: its task comes again through its supervisor, which takes a
while on a busy machine. One that was paused or cancelled meanwhile, or waits for tokens, keeps others no longer."""

LEASE_FROM = 20
"""An agent with so much room is not asked for one by one."""

STILL = 1.0
"""Seconds of a process in which the server's clock moves, or was set back."""

MONEY_AGAIN = 1.0
"""Seconds after which those who wait for the money of calls under way ask again."""

RUNS_SHOWN = 10


class Worker(Value):
    """What one process has said last."""

    number: int
    clock: float
    seen: datetime
    hold: float
    draws: int = 0
    lanes: dict[str, LaneReport] = Field(default_factory=dict)
    pools: dict[str, int] = Field(default_factory=dict)
    leases: dict[str, int] = Field(default_factory=dict)
    waiting: int = 0
    runs: dict[str, int] = Field(default_factory=dict)
    """Of those that wait: how many of which run."""
    daily: Annotated[Decimal | None, Unsaid] = None
    """What its settings allow for a day."""
    heard: Annotated[float | None, Field(exclude_if=lambda heard: heard is None)] = None
    """What the bank's `elapsed` was at its last word. None: an earlier release took it down."""
    quiet: Annotated[float, Unsaid] = 0.0
    """Seconds for which it has surely said nothing."""
    drawn: Annotated[dict[str, Amounts], Unsaid] = Field(default_factory=dict)
    """By class: all that had been drawn by then. What is more was drawn since, by others."""


class Turn(Value):
    """A run whose task found its agent busy."""

    since: datetime
    seen: datetime


class Bank(Value):
    """What is known of one account. Its size depends on processes, classes and agents, never on calls."""

    terms: Terms = Terms()
    at: datetime | None = None
    """The server's clock at the last draw: it may jump, so it tells when something was, and not how long ago."""
    elapsed: Annotated[float, Unsaid] = 0.0
    """Seconds that have passed for sure since the bank began: those that processes have seen on their own clocks."""
    lanes: dict[str, Lane] = Field(default_factory=dict)
    workers: dict[str, Worker] = Field(default_factory=dict)
    """In the order of their last words."""
    turns: dict[str, dict[str, Turn]] = Field(default_factory=dict)
    """By agent: the runs that wait for an instance, in the order of their coming."""
    days: dict[str, Day] = Field(default_factory=dict)
    """What was spent on the last days, where that is limited."""


def draw(bank: Bank, ask: Ask, now: datetime) -> tuple[Bank, Grant]:
    """What a process may call now, and the bank after it."""
    if bank.at is not None and now < bank.at:
        bank = _set_back(bank, bank.at - now)
    known = bank.workers.get(ask.worker)
    if known is not None and ask.number <= known.number:
        return bank, Grant(retry_in=ASK_AGAIN)  # it was overtaken by a later one, which said everything
    teller = _Teller(bank, ask, known, now)
    teller.hear()
    return teller.answer()


def stands_still(bank: Bank, ask: Ask, now: datetime) -> bool:
    """Whether time has passed for a process, and none for the bank.

    When the server's clock is set back, one run of a workflow has no later time until the old one has come again.
    """
    known = bank.workers.get(ask.worker)
    return known is not None and now <= known.seen and ask.clock - known.clock > STILL


def live(bank: Bank, *, later: float = 0.0) -> dict[str, Worker]:
    """The processes that are there, so many seconds after the last draw."""
    silent = SILENT.total_seconds() - later
    return {name: worker for name, worker in bank.workers.items() if _quiet(bank, worker) <= silent}


def flying(workers: Mapping[str, Worker], lane: str, *, but: str | None = None) -> int:
    """How many calls of a class are under way."""
    return sum(worker.lanes[lane].flying for name, worker in workers.items() if name != but and lane in worker.lanes)


def held(workers: Mapping[str, Worker], agent: str, *, but: str | None = None) -> int:
    """How many times an agent is at work, or promised."""
    return sum(
        max(worker.pools.get(agent, 0), worker.leases.get(agent, 0)) for name, worker in workers.items() if name != but
    )


def cap_of(workers: Mapping[str, Worker]) -> Decimal | None:
    """What a day may cost: the least that a process says which is there."""
    return lowest(worker.daily for worker in workers.values())


def _quiet(bank: Bank, worker: Worker) -> float:
    """Seconds for which a process has surely said nothing."""
    if worker.heard is not None or bank.at is None:
        return worker.quiet
    return (bank.at - worker.seen).total_seconds()


def _heard(bank: Bank, worker: Worker) -> float:
    """When a process has spoken last, in seconds of the bank."""
    return worker.heard if worker.heard is not None else bank.elapsed - _quiet(bank, worker)


def _passed(bank: Bank, ask: Ask, now: datetime) -> float:
    """Seconds that have passed since the last draw, by the clock of the process that asks.

    Of one that the bank does not know there is only the server's clock, and that may have jumped: it vouches for none.
    """
    known = bank.workers.get(ask.worker)
    if known is None or bank.at is None:
        return 0.0
    seen = _heard(bank, known) + ask.clock - known.clock
    told = ask.elapsed if ask.elapsed is not None else bank.elapsed + (now - bank.at).total_seconds()
    return max(0.0, min(seen, told) - bank.elapsed)


def _aged(bank: Bank, passed: float, since: Collection[str]) -> Bank:
    """The bank after so much time. When in it these have spoken nobody knows: perhaps just now."""

    def aged(name: str, worker: Worker) -> Worker:
        quiet = _quiet(bank, worker) + (0.0 if name in since else passed)
        return worker.model_copy(update={"heard": _heard(bank, worker), "quiet": quiet})

    workers = {name: aged(name, worker) for name, worker in bank.workers.items()}
    return bank.model_copy(update={"elapsed": bank.elapsed + passed, "workers": workers})


def _since(bank: Bank, worker: str) -> set[str]:
    """The processes that have spoken since the last word of this one."""
    order = [*bank.workers]
    return {*order[order.index(worker) + 1 :]} if worker in bank.workers else {*order}


class _Teller:
    """One draw, step by step, on copies of what changes."""

    def __init__(self, bank: Bank, ask: Ask, known: Worker | None, now: datetime) -> None:
        self.ask, self.known, self.now = ask, known, now
        self.passed, self.since = _passed(bank, ask, now), _since(bank, ask.worker)
        self.bank = _aged(bank, self.passed, self.since)
        self.lanes = dict(bank.lanes)
        self.turns = {agent: _fresh(turns, now) for agent, turns in bank.turns.items()}
        self.live = live(self.bank)
        self.present = {name: worker for name, worker in self.live.items() if now - worker.seen <= SILENT}
        """Who is silent by neither clock. Their calls count in a window, and their word on the money of a day counts:
        no limits of the provider, which must not wait for the word of a process that is the only one left."""
        self.headroom = ask.terms.headroom
        self.pools = Counter(ask.pools)
        self.granted: Counter[str] = Counter()
        others = {name: worker for name, worker in self.live.items() if name != ask.worker}
        cap = lowest([ask.terms.daily, *(self.present[name].daily for name in others if name in self.present)])
        self.till = Till(bank.days, ask, cap=cap, live=others, now=now)

    # What is heard

    def hear(self) -> None:
        """Let time pass, and take in what the process has to say."""
        for name in {*self.lanes, *self.ask.lanes, *(call.lane for call in self.ask.calls)} - {NO_LANE}:
            lane = self.lanes.get(name) or Lane(window=window.FIRST, wide=window.OPEN)
            lane = buckets.dated(lane, self.passed, worker=self.ask.worker, own=self._own(), unsure=self.since)
            lane = buckets.later(lane, self.passed, self.headroom, self.now, unsure=self._drawn_since(name, lane))
            lane = buckets.limited(lane, self.ask.terms.limits_for(name))
            tickets = {who: it for who, it in lane.tickets.items() if self.now - it.seen <= TICKET}
            lane = lane.model_copy(update={"tickets": tickets})
            self.lanes[name] = self._told(name, lane, self.ask.lanes.get(name))

    def _own(self) -> float:
        """Seconds since the last word of the process that asks, by its own clock."""
        return 0.0 if self.known is None else max(self.passed, self.ask.clock - self.known.clock)

    def _drawn_since(self, name: str, lane: Lane) -> Amounts:
        """What others have drawn since the last word of the process that asks."""
        return minus(lane.drawn, self.known.drawn.get(name, {}) if self.known is not None else {})

    def _told(self, name: str, lane: Lane, report: LaneReport | None) -> Lane:
        if report is None:
            return lane
        before = self.known.lanes.get(name) if self.known is not None else None
        before = before or (LaneReport() if self.known is not None or self.ask.number == 1 else report)
        lane = buckets.arrived(lane, self.ask.worker, report.on_its_way, self.ask.hold)
        lane = buckets.returned(lane, minus(report.back, before.back), unsure=self._drawn_since(name, lane))
        if report.seen is not None and (before.seen is None or report.seen.number > before.seen.number):
            lane = buckets.informed(lane, report.seen, self.ask.terms.limits_for(name), self.headroom)
        if report.passed > before.passed:
            lane = lane.model_copy(update={"wall": None})
        if report.wall > self._still_told(before):
            end = self.now + timedelta(seconds=report.wall)
            lane = lane.model_copy(update={"wall": max(end, lane.wall or end)})
        return window.felt(
            lane,
            answers=max(0, report.answers - before.answers),
            seconds=max(0.0, report.seconds - before.seconds),
            done=max(0, report.done - before.done),
            troubles=max(0, report.troubles - before.troubles),
            flying=max(1, report.flying + flying(self.present, name, but=self.ask.worker)),
            now=self.now,
        )

    def _still_told(self, before: LaneReport) -> float:
        """Seconds that a wall has left of which the process spoke before: it is no news, and may have fallen since."""
        if self.known is None:
            return 0.0
        return max(0.0, before.wall - (self.ask.clock - self.known.clock)) + NEWS

    # What is granted

    def answer(self) -> tuple[Bank, Grant]:
        """Grant what fits, in the order of the process; in each class nobody passes the first that does not fit."""
        numbers: list[int] = []
        stuck: dict[str, LaneWord] = {}
        full: dict[str, float] = {}
        got: set[str] = set()
        unpaid: list[int] = []
        for call in self.ask.calls:
            if not self.till.may_cover(call.usd):
                unpaid.append(call.number)
            elif call.agent is not None and not self._has_room(call):
                waited = (self.now - self.turns[call.agent][call.run].since).total_seconds()
                full[call.agent] = min(POOL_AGAIN, max(POOL_SOON, waited))
            elif call.lane not in stuck:
                wait, obstacle = self._wait(call)
                if obstacle is None:
                    numbers.append(call.number)
                    got |= {call.lane} - {NO_LANE}
                    self._give(call)
                else:
                    stuck[call.lane] = self._word(call, wait, obstacle)
        self._write_tickets(stuck, got)
        leases = self._leases()
        words = {
            name: stuck.get(name, LaneWord()).model_copy(
                update={
                    "free": lane.free and not self.till.is_limited,
                    "drawn": lane.out,
                    "used": buckets.part_used(lane),
                }
            )
            for name, lane in self.lanes.items()
            if name in self.ask.lanes or name in stuck or name in got
        }
        words |= {NO_LANE: stuck[NO_LANE]} if NO_LANE in stuck else {}
        retry = min((word.retry_in for word in stuck.values()), default=None)
        grant = Grant(numbers=tuple(numbers), lanes=words, full=full, leases=leases, retry_in=retry)
        more = {"day": self.till.word(), "unpaid": tuple(unpaid), "elapsed": self.bank.elapsed}
        return self._after(leases), grant.model_copy(update=more)

    def _has_room(self, call: Call) -> bool:
        """Whether an instance is free for this call, and not meant for a run that came before."""
        agent = call.agent or ""
        turns = self.turns.get(agent, {})
        own = turns.get(call.run)
        ahead = sum(1 for run, turn in turns.items() if run != call.run and (own is None or turn.since < own.since))
        others = held(self.live, agent, but=self.ask.worker)
        if call.pool - others - self.pools[agent] > ahead:
            return True
        since = own.since if own is not None else self.now
        self.turns[agent] = {**turns, call.run: Turn(since=since, seen=self.now)}
        return False

    def _wait(self, call: Call) -> tuple[float, Obstacle | None]:
        if not self.till.covers(call.usd):
            return MONEY_AGAIN, "money"
        if call.lane == NO_LANE:
            return 0.0, None
        lane = self.lanes[call.lane]
        if lane.wall is not None and not call.probe:
            return (lane.wall - self.now).total_seconds(), "wall"
        report = self.ask.lanes.get(call.lane, LaneReport())
        others = flying(self.present, call.lane, but=self.ask.worker)
        under_way = report.flying + self.granted[call.lane] + others
        if lane.limits is None:
            return (KNOW_SOON, "first") if under_way >= window.FIRST else (0.0, None)
        if lane.window is not None and under_way >= int(lane.window):
            return KNOW_SOON, "window"
        return buckets.wait_for(lane, call.amounts, worker=self.ask.worker, headroom=self.headroom)

    def _give(self, call: Call) -> None:
        self.till.take(call.usd)
        if call.lane == NO_LANE:
            return
        self.lanes[call.lane] = buckets.drawn(
            self.lanes[call.lane], call.amounts, self.now, worker=self.ask.worker, hold=self.ask.hold
        )
        self.granted[call.lane] += 1
        if call.agent is not None:
            self.pools[call.agent] += 1
            self.turns.get(call.agent, {}).pop(call.run, None)

    def _word(self, call: Call, wait: float, obstacle: Obstacle) -> LaneWord:
        if call.lane == NO_LANE:
            return LaneWord(obstacle=obstacle, retry_in=wait)
        lane = self.lanes[call.lane]
        amounts = buckets.usual_amounts(lane, call.amounts)
        rates = [(amounts.get(measure, 0.0), lane.rate(measure, self.headroom)) for measure in MEASURES]
        spacing = max((amount / rate for amount, rate in rates if rate), default=0.0)
        in_line = len({*lane.tickets, self.ask.worker})
        return LaneWord(obstacle=obstacle, retry_in=max(0.02, wait), spacing=spacing * in_line)

    def _write_tickets(self, stuck: dict[str, LaneWord], got: set[str]) -> None:
        """Whoever got something stands behind those who got nothing."""
        first = {call.lane: call.amounts for call in reversed(self.ask.calls) if call.lane in stuck}
        for name in {*got, *stuck} - {NO_LANE}:
            tickets = dict(self.lanes[name].tickets)
            own = tickets.pop(self.ask.worker, None)
            if name in stuck and stuck[name].obstacle in MEASURES:
                since = own.since if own is not None and name not in got else self.now
                tickets[self.ask.worker] = Ticket(since=since, seen=self.now, need=first[name])
            self.lanes[name] = self.lanes[name].model_copy(update={"tickets": tickets})

    def _leases(self) -> dict[str, int]:
        """Agents with much room, that are not asked for one by one while nothing else is limited either."""
        found: dict[str, int] = {}
        for agent, pool in {call.agent: call.pool for call in self.ask.calls if call.agent is not None}.items():
            room = pool - held(self.live, agent, but=self.ask.worker) - self.pools[agent]
            if room >= LEASE_FROM and not self.turns.get(agent):
                found[agent] = self.pools[agent] + room // (2 * len({*self.live, self.ask.worker}))
        return found

    def _after(self, leases: dict[str, int]) -> Bank:
        ask = self.ask
        reports = {
            name: report.model_copy(update={"flying": report.flying + self.granted[name]})
            for name, report in {**dict.fromkeys(self.granted, LaneReport()), **ask.lanes}.items()
        }
        me = Worker(
            number=ask.number,
            clock=max(ask.clock, self.known.clock if self.known is not None else ask.clock),
            seen=self.now,
            hold=ask.hold,
            draws=1 + (self.known.draws if self.known is not None else 0),
            lanes={**(self.known.lanes if self.known is not None else {}), **reports},
            pools={agent: count for agent, count in self.pools.items() if count},
            leases=leases,
            waiting=ask.waiting,
            runs=dict(Counter(call.run for call in ask.calls).most_common(RUNS_SHOWN)),
            daily=ask.terms.daily,
            heard=self.bank.elapsed,
            drawn={name: lane.drawn for name, lane in self.lanes.items()},
        )
        others = {
            name: worker
            for name, worker in self.bank.workers.items()
            if name != ask.worker and worker.quiet <= FORGOTTEN.total_seconds()
        }
        return self.bank.model_copy(
            update={
                "terms": ask.terms,
                "at": self.now,
                "lanes": self.lanes,
                "workers": {**others, ask.worker: me},
                "turns": {agent: turns for agent, turns in self.turns.items() if turns},
                "days": self.till.after(),
            }
        )


def _set_back(bank: Bank, by: timedelta) -> Bank:
    """The bank after the server's clock was set back: what was to last a minute must not last an hour and a minute."""

    def turned(turn: Turn) -> Turn:
        return turn.model_copy(update={"since": turn.since - by, "seen": turn.seen - by})

    return bank.model_copy(
        update={
            "at": None if bank.at is None else bank.at - by,
            "lanes": {name: buckets.set_back(lane, by) for name, lane in bank.lanes.items()},
            "workers": {
                name: worker.model_copy(update={"seen": worker.seen - by}) for name, worker in bank.workers.items()
            },
            "turns": {agent: {run: turned(turn) for run, turn in turns.items()} for agent, turns in bank.turns.items()},
        }
    )


def _fresh(turns: dict[str, Turn], now: datetime) -> dict[str, Turn]:
    return {run: turn for run, turn in turns.items() if now - turn.seen <= POOL_TICKET}
