"""What a call that waits for quota is told, and what its task hears when it would wait too long."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from domain.models import Parked
from domain.quota.terms import WORDS
from domain.quota.words import Call, Obstacle

A_DAY = 86_400.0
"""Seconds: nobody looks further ahead."""

WHAT: dict[Obstacle, str] = {
    **{measure: f"{words} of {{lane}}" for measure, words in WORDS.items()},
    "wall": "the provider takes no calls to {lane} for a while",
    "window": "calls to {lane} that are under way: so many at once and not more, for now",
    "first": "the first answer of {lane}, which tells its limits",
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


def busy_agent(call: Call, seconds: float) -> Parked:
    """The task comes again when its agent may be free."""
    what = f"{call.agent}, which does {call.pool} at once"
    return Parked(why="wall", wall="pool", what=what, until=moment_in(seconds))
