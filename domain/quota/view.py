"""The bank as people read it: limits, use, who draws and who waits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

from pydantic import Field

from domain.events import timestamp
from domain.markdown import code
from domain.models import Value
from domain.prices import Usd, money
from domain.quota.bank import POOL_TICKET, TICKET, Bank, Worker, cap_of, flying, held, live
from domain.quota.buckets import later, used_in_a_minute
from domain.quota.day import Day, date_of
from domain.quota.lane import Lane
from domain.quota.terms import MEASURES, WORDS, Measure


class MeasureView(Value):
    """One limit of a class."""

    limit: int
    ours: int
    """The limit without the headroom."""
    used: int
    """In the last minute, with what calls under way may use at most."""
    left: int
    """What is in the provider's bucket, as far as we know."""


class LaneView(Value):
    """One class of models."""

    source: str
    """Who says what is allowed: the settings, the provider, both, or nobody yet."""
    limits: dict[Measure, MeasureView] = Field(default_factory=dict)
    flying: int = 0
    window: int | None = None
    """How many may be under way; None: as many as the limits allow."""
    narrowed: bool = False
    """Whether that is so because answers were slow, refused or timed out; else it is still growing."""
    wall: str | None = None
    waiting: tuple[str, ...] = ()
    """The workers whose first call does not fit yet."""


class WorkerView(Value):
    """One worker process."""

    seen: str
    draws: int
    flying: int
    waiting: int
    runs: dict[str, int] = Field(default_factory=dict)
    """Of those that wait: how many of which run."""


class PoolView(Value):
    """One agent that may be at work only so many times."""

    at_work: int
    promised: int = 0
    """How many more the workers may have without asking, because there is so much room."""
    waiting: tuple[str, ...] = ()
    """The runs whose tasks found it busy and come again, in their order."""


class DayView(Value):
    """The money of one day, UTC."""

    date: str
    limit_usd: Usd
    spent_usd: Usd
    """With what calls may have cost of which nobody knows the end."""
    held_usd: Usd
    """What calls under way may cost at most."""


class QuotaView(Value):
    """The quota of an account now."""

    at: str | None
    headroom: float
    lanes: dict[str, LaneView] = Field(default_factory=dict)
    workers: dict[str, WorkerView] = Field(default_factory=dict)
    pools: dict[str, PoolView] = Field(default_factory=dict)
    """Agents with a limit of their own."""
    day: DayView | None = None
    """The money of this day, where it is limited."""


def view_of(bank: Bank, now: datetime) -> QuotaView:
    """What there is to see of a bank now: since its last draw buckets have filled, and workers may have gone."""
    passed = 0.0 if bank.at is None else max(0.0, (now - bank.at).total_seconds())
    workers = live(bank, later=passed)
    lanes = {name: later(lane, passed, bank.terms.headroom, now) for name, lane in sorted(bank.lanes.items())}
    return QuotaView(
        at=None if bank.at is None else timestamp(bank.at),
        headroom=bank.terms.headroom,
        lanes={name: _lane(bank, workers, name, lane, now) for name, lane in lanes.items()},
        workers={
            name: WorkerView(
                seen=timestamp(worker.seen),
                draws=worker.draws,
                flying=sum(report.flying for report in worker.lanes.values()),
                waiting=worker.waiting,
                runs=worker.runs,
            )
            for name, worker in workers.items()
        },
        pools=dict(_pools(bank, workers, now)),
        day=_day(bank, workers, now),
    )


def _day(bank: Bank, workers: Mapping[str, Worker], now: datetime) -> DayView | None:
    """The money of this day; when all processes are silent, by the last word of the latest."""
    cap = cap_of(workers) or bank.terms.daily
    if cap is None:
        return None
    day = bank.days.get(date_of(now), Day())
    held = day.under_way(workers)
    return DayView(date=date_of(now), limit_usd=cap, spent_usd=day.committed - held, held_usd=held)


def _lane(bank: Bank, workers: Mapping[str, Worker], name: str, lane: Lane, now: datetime) -> LaneView:
    used = used_in_a_minute(lane)
    limits = {measure: lane.limits.of(measure) if lane.limits else None for measure in MEASURES}
    return LaneView(
        source=_source(bank, name, lane),
        limits={
            measure: MeasureView(
                limit=limit,
                ours=int(limit * (1 - bank.terms.headroom)),
                used=round(used.get(measure, 0.0)),
                left=max(0, int(lane.levels.get(measure, 0.0))),
            )
            for measure, limit in limits.items()
            if limit is not None
        },
        flying=flying(workers, name),
        window=None if lane.window is None else int(lane.window),
        narrowed=lane.calm is not None,
        wall=None if lane.wall is None else timestamp(lane.wall),
        waiting=tuple(name for name, ticket in lane.tickets.items() if now - ticket.seen <= TICKET),
    )


def _pools(bank: Bank, workers: Mapping[str, Worker], now: datetime) -> Iterator[tuple[str, PoolView]]:
    """Agents that are at work, promised or waited for."""
    there = [*workers.values()]
    for agent in sorted({*bank.turns, *(agent for worker in there for agent in (*worker.pools, *worker.leases))}):
        at_work = sum(worker.pools.get(agent, 0) for worker in there)
        promised = held(workers, agent) - at_work
        turns = bank.turns.get(agent, {})
        fresh = sorted((turn.since, run) for run, turn in turns.items() if now - turn.seen <= POOL_TICKET)
        if at_work or promised or fresh:
            yield agent, PoolView(at_work=at_work, promised=promised, waiting=tuple(run for _, run in fresh))


def _source(bank: Bank, name: str, lane: Lane) -> str:
    if lane.limits is None:
        return "not known yet"
    given = bank.terms.limits_for(name) is not None
    if not (given or lane.told):
        return "the provider tells none"
    return "settings and provider" if given and lane.told else "settings" if given else "provider"


def page_of(view: QuotaView) -> str:
    """The bank's page in the Temporal Web UI."""
    return "\n".join([f"Last draw {view.at or 'never'}, headroom {view.headroom:.0%}", "", *_lines(view)])


def _lines(view: QuotaView) -> Iterator[str]:
    """One flat list: on this page the columns of a table, and lists in a list, run into each other."""
    if view.day is not None:
        yield f"- {day_words(view.day)}"
    for name, lane in view.lanes.items():
        yield f"- {code(name)}: {', '.join(state_of(lane))}"
        for measure, seen in lane.limits.items():
            figures = f"{seen.used:,} of {seen.ours:,} used, {seen.left:,} left; the limit is {seen.limit:,}"
            yield f"- {code(name)}, {WORDS[measure]}: {figures}"
    for name, worker in view.workers.items():
        yield f"- worker {code(name)}: {worker.draws} draws, {worker.flying} calls under way, {worker.waiting} wait"
    for agent, pool in view.pools.items():
        waits = f", runs that wait for one: {len(pool.waiting)}" if pool.waiting else ""
        yield f"- agent {code(agent)}: {pool.at_work} at work, {pool.promised} promised{waits}"


def day_words(day: DayView) -> str:
    """The money of a day, in a line."""
    held = f", up to ${money(day.held_usd)} more by calls under way" if day.held_usd else ""
    return f"{day.date} UTC: ${money(day.spent_usd)} of ${money(day.limit_usd)} spent{held}"


def state_of(lane: LaneView) -> Iterator[str]:
    """What there is to say of a class beside its figures."""
    yield f"limits by: {lane.source}"
    yield f"{lane.flying} calls under way"
    if lane.window is not None:
        yield f"at most {lane.window} at once, {window_words(narrowed=lane.narrowed)}"
    if lane.wall is not None:
        yield f"no calls until {lane.wall}, says the provider"
    if lane.waiting:
        yield f"{len(lane.waiting)} workers wait"


def window_words(*, narrowed: bool) -> str:
    """Why so many calls may be under way, and not more."""
    return "because answers were slow, refused or timed out" if narrowed else "and one more with every answer"
