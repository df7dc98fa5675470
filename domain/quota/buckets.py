"""The provider's buckets: how they fill, what is drawn from them, and what an answer tells of them.

Levels are those of the provider, and never above them: they fill at the limit less the headroom, what is drawn leaves
at once, and what an answer's headers say is believed when it is less. A granted call leaves a reserve behind.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from domain.quota.lane import MINUTE, Lane
from domain.quota.terms import MEASURES, Amounts, Limits, Measure, minus, plus
from domain.quota.window import SAMPLE, WIDER_EVERY, wider
from domain.quota.words import Obstacle, Seen

BELIEF = 0.05
"""The part of a bucket by which headers must be below our count before they are believed: calls cross on the way."""

BIN = 5.0
"""Seconds of one span of what was used."""


def later(lane: Lane, seconds: float, headroom: float, now: datetime) -> Lane:
    """The lane after so much time: buckets have filled, walls whose time has come are gone."""
    levels = {
        measure: min(lane.sizes[measure], level + seconds * (lane.rate(measure, headroom) or 0.0))
        for measure, level in lane.levels.items()
    }
    first = int((now.timestamp() - MINUTE) // BIN)
    used = {span: amounts for span, amounts in lane.used.items() if span > first}
    wall = lane.wall if lane.wall is not None and lane.wall > now else None
    return wider(lane.model_copy(update={"levels": levels, "used": used, "wall": wall}), seconds / WIDER_EVERY)


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
        levels[measure] = min(lane.levels.get(measure, sizes[measure]), sizes[measure])
    return lane.model_copy(update={"limits": limits, "sizes": sizes, "levels": levels})


def informed(lane: Lane, seen: Seen, given: Limits | None, headroom: float) -> Lane:
    """The lane after one more look at the headers of an answer.

    They tell of a moment after its call left. All from then on is taken together: what flowed in, was drawn, came back.
    """
    known = lane.told
    told = {**lane.told, **seen.standing.limits}  # one that an answer does not speak of is still there
    lane = lane.model_copy(update={"told": told, "limits": lane.limits or Limits()})
    lane = limited(lane, given)
    sizes, levels = dict(lane.sizes), dict(lane.levels)
    for measure, left in seen.standing.remaining.items():
        if measure not in levels:
            continue
        new = measure not in known
        if given is None or given.burst is None:  # how much fits at once nobody says: at least what was seen there
            limit = lane.limits.of(measure) if lane.limits is not None else None
            there = min(left + seen.charged.get(measure, 0.0), float(limit or 0))
            sizes[measure] = max(1.0, there if new else max(sizes[measure], there))
        # Of the first answer nobody knows what else was on its way: none of it may be in what the provider counted.
        counted = seen.charged if new else seen.drawn
        since = lane.out.get(measure, 0.0) - counted.get(measure, 0.0)
        now_left = left + seen.age * (lane.rate(measure, headroom) or 0.0) - since
        if now_left < levels[measure] - BELIEF * sizes[measure]:
            levels[measure] = now_left
        levels[measure] = min(levels[measure], sizes[measure])
    return lane.model_copy(update={"sizes": sizes, "levels": levels})


def returned(lane: Lane, back: Amounts) -> Lane:
    """The lane with what was drawn and not used; less than nothing where more was used."""
    levels = {
        measure: min(lane.sizes[measure], level + back.get(measure, 0.0)) for measure, level in lane.levels.items()
    }
    last = max(lane.used, default=None)
    used = lane.used if last is None else {**lane.used, last: minus(lane.used[last], back)}
    return lane.model_copy(update={"levels": levels, "used": used, "back": plus(lane.back, back)})


def need(lane: Lane, measure: Measure, amount: float, *, headroom: float, hold: float) -> float:
    """What must be in a bucket before so much is drawn: a reserve stays, for calls that are on their way longer.

    A call that is larger than its bucket is granted when that is full, and leaves a debt, as with the provider.
    """
    size = lane.sizes[measure]
    reserve = headroom * size + hold * (lane.rate(measure, headroom) or 0.0)
    return min(amount + reserve, size)


def debt(lane: Lane, measure: Measure, amount: float, *, headroom: float, hold: float) -> float:
    """What is drawn on top of a call that leaves no room for the reserve: what flows in while its grant is held.

    It is granted when the bucket is full; until it arrives the provider's stays full, and takes nothing in.
    """
    size, inflow = lane.sizes[measure], hold * (lane.rate(measure, headroom) or 0.0)
    return max(0.0, min(inflow, amount + headroom * size + inflow - size))


def wait_for(
    lane: Lane, amounts: Amounts, *, worker: str, headroom: float, hold: float
) -> tuple[float, Obstacle | None]:
    """Seconds until a call may be granted, and the measure that it waits for."""
    longest, obstacle = 0.0, None
    own = lane.tickets.get(worker)
    for measure, level in lane.levels.items():
        ahead = sum(
            ticket.need.get(measure, 0.0)
            for name, ticket in lane.tickets.items()
            if name != worker and (own is None or ticket.since < own.since)
        )
        lacking = need(lane, measure, amounts.get(measure, 0.0), headroom=headroom, hold=hold) + ahead - level
        rate = lane.rate(measure, headroom)
        if lacking > 1e-6 and rate and lacking / rate > longest:
            longest, obstacle = lacking / rate, measure
    return longest, obstacle


def drawn(lane: Lane, amounts: Amounts, now: datetime, *, headroom: float = 0.0, hold: float = 0.0) -> Lane:
    """The lane after a call was granted."""
    span = int(now.timestamp() // BIN)
    leaves = {
        measure: amount + (debt(lane, measure, amount, headroom=headroom, hold=hold) if amount else 0.0)
        for measure, amount in amounts.items()
        if measure in lane.sizes
    }
    return lane.model_copy(
        update={
            "levels": {measure: level - leaves.get(measure, 0.0) for measure, level in lane.levels.items()},
            "drawn": plus(lane.drawn, amounts),
            "used": {**lane.used, span: plus(lane.used.get(span, {}), amounts)},
        }
    )


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
