"""The tempo of a run: how much faster than one at a time, where its time went, how many places to give it next time.

Measured from the turns of its tasks (`trail.py`), when a report is made: in time by the size of the plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil

from domain.chart import Chart, Order
from domain.graph import needs_of
from domain.models import Plan, TaskStatus
from domain.progress import outline_of
from domain.report import Serial
from domain.sizing import Layout
from domain.trail import OPEN, Part, Stretch, Trail

MOST_PLACES = 500
"""As many as a plan may ask for."""

MATERIAL = 0.05
"""The part of the time from which on waits for quota say that the quota is the limit."""

DRAWN = timedelta(seconds=1)
"""A shorter wait for quota is what asking takes: it says nothing of limits."""

PENDING, RUNNING = TaskStatus.PENDING, TaskStatus.RUNNING
NONE = timedelta()
MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True)
class Tempo:
    """What the measurement says."""

    speedup: float | None
    serial: Serial
    suggested: int | None


def tempo_of(plan: Plan, trail: Trail, started: datetime | None, now: datetime) -> Tempo:
    """The tempo of a run that began and has come so far, or ended."""
    if started is None or now <= started:
        return Tempo(None, Serial(), None)
    chain = _chain(plan, trail, started, now)
    serial = _serial(chain, now - started)
    measured = _Measured(plan, trail, started, now)
    if not measured.of_ended:
        return Tempo(None, serial, None)
    counted = now - started - measured.idle_in(one for one in chain if one.part is Part.PERSON)
    waited = sum((one.length for one in chain if one.part is Part.QUOTA and one.length >= DRAWN), NONE)
    wide, of_wide = _without_planner(plan), measured
    if wide is not plan:
        of_wide = _Measured(wide, trail, started, now)
        wide, of_wide = (wide, of_wide) if of_wide.of_ended else (plan, measured)
    suggested = _places(wide, Chart(outline_of(wide)).order(started), of_wide)
    if waited > MATERIAL * counted:
        suggested = min(suggested, of_wide.mean_at_once)
    return Tempo(round(measured.work / counted, 2), serial, suggested)


# Where the time went: the chain of tasks that really led to the end, backwards


def _chain(plan: Plan, trail: Trail, started: datetime, now: datetime) -> list[Stretch]:
    """The time of a run without a gap, as far as it can be told where it went.

    From the task that came last back to whatever let it start, the need that ended last, and so on to the start of the
    run: each answers for the time between the end of that need and its own end, so the parts add up.
    """
    needs = needs_of(plan)
    found: list[Stretch] = []
    task, cursor = _last(plan, trail, now)
    while task is not None:
        released = trail.released(task, by=cursor) or cursor
        ends = {need: end for need in needs[task] if (end := trail.ended(need, by=released)) is not None}
        need = max(ends, key=ends.__getitem__, default=None)
        since = started if need is None else max(started, ends[need])
        for stretch in trail.stretches(task, since, cursor):
            found += trail.told_apart(task, stretch)
        task, cursor = need, since
    return found


def _last(plan: Plan, trail: Trail, now: datetime) -> tuple[str | None, datetime]:
    """The task that the run is, or was, still about, and until when.

    While it goes, that is the one that has been at work longest or, if none is, has waited longest.
    """
    turns = [(turn, task.id) for task in plan.tasks if (turn := trail.last(task.id)) is not None]
    going = [(turn.status is not RUNNING, turn.at, id) for turn, id in turns if turn.status in OPEN - {PENDING}]
    if going:
        return min(going)[-1], now
    ended = [(turn.at, trail.was_at_work(id), id) for turn, id in turns if turn.status not in OPEN]
    if not ended:
        return None, now
    at, _, last = max(ended)
    return last, min(at, now)


def _serial(chain: Iterable[Stretch], duration: timedelta) -> Serial:
    """The parts in seconds. They add up to the duration as it is shown: whatever is left is other."""
    went = dict.fromkeys(Part, NONE)
    for stretch in chain:
        went[stretch.part] += stretch.length
    named = Part.WORK, Part.QUOTA, Part.SLOT, Part.PERSON
    work, quota, slot, person = (went[part] // MILLISECOND / 1000 for part in named)
    rest = round(duration.total_seconds(), 3) - (work + quota + slot + person)
    return Serial(
        critical_path_s=work,
        quota_wait_s=quota,
        slot_wait_s=slot,
        person_wait_s=person,
        other_s=round(abs(rest), 3),  # a hair below nothing is nothing
    )


# How many places to give it


def _without_planner(plan: Plan) -> Plan:
    """The plan that was made for a goal. Who made it was alone, and says nothing of how many can be at work."""
    planners = {task.id for task in plan.tasks if task.grows is not None and task.grows.kind == "plan"}
    if not planners:
        return plan
    rest = (task for task in plan.tasks if task.id not in planners)
    tasks = (
        task.model_copy(update={"needs": tuple(need for need in task.needs if need.task not in planners)})
        for task in rest
    )
    return plan.model_copy(update={"tasks": tuple(tasks)})


class _Measured:
    """The work of all tasks, and the time in which there was any."""

    def __init__(self, plan: Plan, trail: Trail, started: datetime, now: datetime) -> None:
        self.of: dict[str, timedelta] = {}
        """Each task's work, so far."""
        self.of_ended: dict[str, timedelta] = {}
        """Of those that worked and have ended: the measure for all others."""
        self._stretches: list[Stretch] = []
        self._waiters: list[Stretch] = []
        for task in plan.tasks:
            found = [*trail.stretches(task.id, started, now)]
            work = sum((one.length for one in found if one.part is Part.WORK), NONE)
            self.of[task.id] = work
            if work and (last := trail.last(task.id)) is not None and last.status not in OPEN:
                self.of_ended[task.id] = work
            busy = [one for one in found if one.part in {Part.WORK, Part.QUOTA}]
            self._stretches += busy
            if any(one.part is Part.QUOTA for one in busy):
                self._waiters.append(Stretch(busy[0].since, busy[-1].until, RUNNING, Part.QUOTA))
        self.work = sum(self.of.values(), NONE)
        self._going = _covered(self._stretches)

    @property
    def mean_at_once(self) -> int:
        """How many were really at work, on average, while the quota was the limit: as long as tasks waited for it.

        With so many places the same comes through the same quota, and fewer wait for it.
        """
        if not self._waiters:
            return MOST_PLACES
        since, until = min(one.since for one in self._waiters), max(one.until for one in self._waiters)
        pressed = [one.within(since, until) for one in self._stretches if one.since < until and one.until > since]
        work = sum((one.length for one in pressed if one.part is Part.WORK), NONE)
        return max(1, ceil(work / _covered(pressed)))

    def idle_in(self, waits: Iterable[Stretch]) -> timedelta:
        """How long there was nothing to do in these waits: what was done meanwhile took its time all the same."""
        return _covered([*self._stretches, *waits]) - self._going

    def expected(self) -> dict[str, float]:
        """The work of each task next time; one that was not measured whole is taken to be like the others."""
        mean = sum(self.of_ended.values(), NONE) / len(self.of_ended)
        return {id: self.of_ended.get(id, max(work, mean)).total_seconds() for id, work in self.of.items()}


def _places(plan: Plan, order: Order, measured: _Measured) -> int:
    """As many as the work can use: its needs and the pools of its agents allow no more to be at work."""
    tasks = Counter(task.agent for task in plan.tasks)
    pools = {agent.called: agent.max_concurrency or MOST_PLACES for agent in plan.agents}
    most = min(MOST_PLACES, sum(min(count, pools[agent]) for agent, count in tasks.items()))
    return Layout(needs_of(plan), order.ids, measured.expected()).fewest_places(most)


def _covered(stretches: Iterable[Stretch]) -> timedelta:
    """The time in which there was at least one of these."""
    whole, until = NONE, None
    for stretch in sorted(stretches):
        start = stretch.since if until is None else max(stretch.since, until)
        if stretch.until > start:
            whole, until = whole + (stretch.until - start), stretch.until
    return whole
