"""The provider's buckets: how they fill, what is drawn from them, and what an answer tells of them.

Levels are those of the provider, and never above them: they fill at the limit less the headroom, what is drawn leaves
at once, and what an answer's headers say is believed when it is less.

A grant arrives later than it was drawn. That changes nothing in a bucket that is not full; but a full one takes nothing
in until the grant is there. So by our count a bucket is full when it holds all but what is on its way.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

from domain.quota.lane import MINUTE, Lane, OnItsWay
from domain.quota.terms import MEASURES, Amounts, Limits, Measure, minus, plus
from domain.quota.window import SAMPLE, WIDER_EVERY, wider
from domain.quota.words import Obstacle, Seen

BELIEF = 0.05
"""The part of a bucket by which headers must be below our count before they are believed: calls cross on the way."""

ARRIVES = 0.5
"""Seconds from the moment that a request leaves until it has arrived."""

BIN = 5.0
"""Seconds of one span of what was used."""


def dated(lane: Lane, seconds: float, *, worker: str, own: float, unsure: Collection[str]) -> Lane:
    """The lane before so much time passes by the word of a process.

    By its own clock more may have passed since it was granted something. What those were granted who have spoken since
    was perhaps granted at the end of that time: it is as much on its way as before.
    """
    more = {worker: seconds - own, **dict.fromkeys(unsure, seconds)}
    on_its_way = tuple(
        grant.model_copy(update={"seconds": max(0.0, grant.seconds + more.get(grant.worker, 0.0))})
        for grant in lane.on_its_way
    )
    return lane.model_copy(update={"on_its_way": on_its_way})


def later(lane: Lane, seconds: float, headroom: float, now: datetime, *, unsure: Amounts | None = None) -> Lane:
    """The lane after so much time: buckets have filled, walls whose time has come are gone.

    What was drawn somewhen in this time, nobody knows when, may have been drawn at its end: from a full bucket.
    """
    levels = {measure: _filled(lane, measure, seconds, headroom, unsure or {}) for measure in lane.levels}
    on_its_way = tuple(
        grant.model_copy(update={"seconds": grant.seconds - seconds})
        for grant in lane.on_its_way
        if grant.seconds > seconds
    )
    first = int((now.timestamp() - MINUTE) // BIN)
    used = {span: amounts for span, amounts in lane.used.items() if span > first}
    wall = lane.wall if lane.wall is not None and lane.wall > now else None
    aged = lane.model_copy(update={"levels": levels, "used": used, "wall": wall, "on_its_way": on_its_way})
    return wider(aged, seconds / WIDER_EVERY)


def _filled(lane: Lane, measure: Measure, seconds: float, headroom: float, unsure: Amounts) -> float:
    """What is in a bucket after so much time: there is more room in it with every grant that has arrived."""
    level, rate, at = lane.levels[measure], lane.rate(measure, headroom) or 0.0, 0.0
    for end in sorted({*(grant.seconds for grant in lane.on_its_way if grant.seconds < seconds), seconds}):
        room = lane.room(measure, after=at) - unsure.get(measure, 0.0)
        level = max(level, min(room, level + (end - at) * rate))
        at = end
    return level


def set_back(lane: Lane, by: timedelta) -> Lane:
    """The lane after the clock was set back."""
    spans = round(by.total_seconds() / BIN)
    return lane.model_copy(
        update={
            "used": {span - spans: amounts for span, amounts in lane.used.items()},
            "wall": None if lane.wall is None else lane.wall - by,
            "calm": None if lane.calm is None else lane.calm - by,
            "tickets": {
                name: ticket.model_copy(update={"since": ticket.since - by, "seen": ticket.seen - by})
                for name, ticket in lane.tickets.items()
            },
        }
    )


def limited(lane: Lane, given: Limits | None) -> Lane:
    """The lane under the limits that a person has set; those of the provider count where they are less."""
    if given is None and not lane.told and lane.limits is None:
        return lane  # still unknown
    limits = Limits(
        **{measure: _less(given.of(measure) if given else None, lane.told.get(measure)) for measure in MEASURES},
        burst=given.burst if given else None,
    )
    if limits == lane.limits and all(
        (limits.of(measure) is None) == (measure not in lane.sizes) for measure in MEASURES
    ):
        return lane
    return _resized(lane, limits)


def _resized(lane: Lane, limits: Limits) -> Lane:
    """Buckets grow and shrink with their limits; one that is new is full."""
    sizes: Amounts = {}
    levels: Amounts = {}
    for measure in MEASURES:
        if (limit := limits.of(measure)) is None:
            continue
        before = lane.limits.of(measure) if lane.limits is not None else None
        size = limit * (1.0 if limits.burst is None else limits.burst)
        if limits.burst is None and before and measure in lane.sizes:  # what was learned
            size = min(size, lane.sizes[measure] * limit / before)
        sizes[measure] = max(1.0, size)
        levels[measure] = lane.levels.get(measure, sizes[measure])
    return _not_too_full(lane.model_copy(update={"limits": limits, "sizes": sizes, "levels": levels}))


def _not_too_full(lane: Lane) -> Lane:
    levels = {measure: min(level, lane.room(measure)) for measure, level in lane.levels.items()}
    return lane.model_copy(update={"levels": levels})


def informed(lane: Lane, seen: Seen, given: Limits | None, headroom: float) -> Lane:
    """The lane after one more look at the headers of an answer.

    They tell of a moment after its call left. All from then on is taken together: what flowed in, was drawn, came back.
    """
    before = lane
    told = {**lane.told, **seen.standing.limits}  # one that an answer does not speak of is still there
    lane = lane.model_copy(update={"told": told, "limits": lane.limits or Limits()})
    lane = limited(lane, given)
    sizes, levels = dict(lane.sizes), dict(lane.levels)
    for measure, left in seen.standing.remaining.items():
        if measure not in levels:
            continue
        came_in = seen.age * (lane.rate(measure, headroom) or 0.0)
        now_left = left + came_in - (lane.out.get(measure, 0.0) - seen.drawn.get(measure, 0.0))
        if given is None or given.burst is None:  # how much fits at once nobody says: at least what was seen there
            limit = lane.limits.of(measure) if lane.limits is not None else None
            most = max(left + seen.charged.get(measure, 0.0), seen.most.get(measure, 0.0))
            there = max(1.0, min(most, float(limit or 0)))
            if measure not in before.levels:
                # Nobody has counted until now: all that was drawn lacks, but what has filled up after this call.
                filled = min(came_in, seen.charged.get(measure, 0.0))
                sizes[measure], levels[measure] = there, there - lane.out.get(measure, 0.0) + filled
            elif measure not in before.told or there > sizes[measure]:
                # It is as much larger or smaller as what is in it is more or less: what lacks stays the same.
                counted = before if measure not in before.told else lane
                levels[measure] = there - (counted.sizes[measure] - counted.levels[measure])
                sizes[measure] = there
        if now_left < levels[measure] - BELIEF * sizes[measure]:
            levels[measure] = now_left
    return _not_too_full(lane.model_copy(update={"sizes": sizes, "levels": levels}))


def returned(lane: Lane, back: Amounts, *, unsure: Amounts) -> Lane:
    """The lane with what was drawn and not used; less than nothing where more was used.

    It came back before the process said so, perhaps to a full bucket, and others may have drawn from that since.
    """
    levels = {
        measure: min(max(level, lane.room(measure) - unsure.get(measure, 0.0)), level + back.get(measure, 0.0))
        for measure, level in lane.levels.items()
    }
    last = max(lane.used, default=None)
    used = lane.used if last is None else {**lane.used, last: minus(lane.used[last], back)}
    return lane.model_copy(update={"levels": levels, "used": used, "back": plus(lane.back, back)})


def arrived(lane: Lane, worker: str, on_its_way: Amounts | None, hold: float) -> Lane:
    """The lane after a process has said what of its grants is still on its way: the rest is there, or never comes."""
    if on_its_way is None:
        return lane
    mine = [grant.seconds for grant in lane.on_its_way if grant.worker == worker]
    others = tuple(grant for grant in lane.on_its_way if grant.worker != worker)
    if any(on_its_way.values()):
        rest = OnItsWay(worker=worker, amounts=on_its_way, seconds=max(mine, default=hold + ARRIVES))
        others = (*others, rest)
    return lane.model_copy(update={"on_its_way": others})


def need(lane: Lane, measure: Measure, amount: float, *, headroom: float) -> float:
    """What must be in a bucket before so much is drawn: of a full one, the headroom stays.

    A call that is larger than its bucket is granted when that is full, and leaves a debt, as with the provider.
    """
    size = lane.sizes[measure]
    return min(amount + headroom * size, size)


def wait_for(lane: Lane, amounts: Amounts, *, worker: str, headroom: float) -> tuple[float, Obstacle | None]:
    """Seconds until a call may be granted, and the measure that it waits for."""
    longest, obstacle = 0.0, None
    own = lane.tickets.get(worker)
    for measure, level in lane.levels.items():
        ahead = sum(
            ticket.need.get(measure, 0.0)
            for name, ticket in lane.tickets.items()
            if name != worker and (own is None or ticket.since < own.since)
        )
        lacking = need(lane, measure, amounts.get(measure, 0.0), headroom=headroom) + ahead - level
        rate = lane.rate(measure, headroom)
        if lacking > 1e-6 and rate and lacking / rate > longest:
            longest, obstacle = lacking / rate, measure
    return longest, obstacle


def drawn(lane: Lane, amounts: Amounts, now: datetime, *, worker: str, hold: float) -> Lane:
    """The lane after a call was granted, to be made within the hold."""
    span = int(now.timestamp() // BIN)
    return lane.model_copy(
        update={
            "levels": {measure: level - amounts.get(measure, 0.0) for measure, level in lane.levels.items()},
            "drawn": plus(lane.drawn, amounts),
            "used": {**lane.used, span: plus(lane.used.get(span, {}), amounts)},
            "on_its_way": _with_one_more(lane.on_its_way, worker, amounts, hold + ARRIVES),
        }
    )


def _with_one_more(grants: tuple[OnItsWay, ...], worker: str, amounts: Amounts, seconds: float) -> tuple[OnItsWay, ...]:
    """Grants of one draw are one entry, however many they are."""
    if grants and (grants[-1].worker, grants[-1].seconds) == (worker, seconds):
        *before, last = grants
        return *before, last.model_copy(update={"amounts": plus(last.amounts, amounts)})
    return *grants, OnItsWay(worker=worker, amounts=amounts, seconds=seconds)


def used_in_a_minute(lane: Lane) -> Amounts:
    """What was used in the last minute, and what is drawn for calls that are under way."""
    total: Amounts = {}
    for amounts in lane.used.values():
        total = plus(total, amounts)
    return {measure: max(0.0, amount) for measure, amount in total.items()}


def usual_amounts(lane: Lane, amounts: Amounts) -> Amounts:
    """What a call of this size will have used in the end, by the calls of the last minute: most of it comes back."""
    used = used_in_a_minute(lane)
    calls = used.get("requests", 0.0)
    if calls < SAMPLE:
        return amounts
    return {measure: min(amount, used.get(measure, 0.0) / calls) for measure, amount in amounts.items()}


def part_used(lane: Lane) -> dict[Measure, float]:
    """The part of each limit that was drawn in the last minute."""
    used = used_in_a_minute(lane)
    limits = {measure: lane.limits.of(measure) for measure in MEASURES} if lane.limits is not None else {}
    return {measure: round(used.get(measure, 0.0) / limit, 3) for measure, limit in limits.items() if limit}


def _less(one: int | None, other: int | None) -> int | None:
    known = [limit for limit in (one, other) if limit is not None]
    return min(known, default=None)
