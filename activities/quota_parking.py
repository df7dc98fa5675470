"""What a call that waits for quota is told, and what its task hears when it would wait too long."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from domain.models import Parked
from domain.prices import money
from domain.quota.terms import WORDS
from domain.quota.words import Call, DayWord, Obstacle

A_DAY = 86_400.0
"""Seconds: nobody looks further ahead."""

WHAT: dict[Obstacle, str] = {
    **{measure: f"{words} of {{lane}}" for measure, words in WORDS.items()},
    "wall": "the provider takes no calls to {lane} for a while",
    "window": "calls to {lane} that are under way: so many at once and not more, for now",
    "first": "the first answer of {lane}, which tells its limits",
    "money": "calls under way, which may need what is left of today's money",
}


def awaited(obstacle: Obstacle, lane: str) -> str:
    """What a call of this class waits for."""
    return WHAT[obstacle].format(lane=lane)


def moment_in(seconds: float) -> datetime:
    """The time in so many seconds."""
    return datetime.now(UTC) + timedelta(seconds=min(seconds, A_DAY))


def no_quota(what: str, seconds: float) -> Parked:
    """The task comes again when there may be room: until then its run has others done."""
    return Parked(why="wall", wall="rate", what=f"the quota is used up: {what}", until=moment_in(seconds))


def no_money(call: Call, day: DayWord) -> Parked:
    """The task comes again tomorrow. One whose price nobody knows never fits, nor one that is dearer than any day."""
    if call.usd is None:
        return Parked(why="budget", what="its model has no price, and the money of a day is limited (daily_usd)")
    if call.usd > day.cap:
        what = f"one call may cost up to ${money(call.usd)}, and a day has ${money(day.cap)} (daily_usd): raise it"
        return Parked(why="budget", what=what)
    left = f"${money(day.left)} of today's ${money(day.cap)} (daily_usd) is left"
    return Parked(why="budget", what=f"one call may cost up to ${money(call.usd)}, and {left}", until=day.until)


def money_later(what: str, seconds: float) -> Parked:
    """The task comes again when those under way may have told what they cost."""
    return Parked(why="budget", what=what, until=moment_in(seconds))


def busy_agent(name: str, most: int, seconds: float) -> Parked:
    """The task comes again when its agent may be free."""
    what = f"{name}, which does {most} at once"
    return Parked(why="wall", wall="pool", what=what, until=moment_in(seconds))
