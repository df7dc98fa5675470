"""The window: how many calls of a class may be under way at once, whatever the limits would allow.

It begins narrow and grows with answers; it is narrowed at once when the provider is short of room, and grows back.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from domain.quota.lane import Lane

SLOW = 1.5
"""So many times the usual time to the first word: then the provider is short of room."""

LESS, HALF = 0.7, 0.5
"""The part of the window that is left when answers become slow, and when calls are refused or time out."""

FIRST, OPEN = 4.0, 32.0
"""A class of which nothing is known begins with so many calls at once, and one more for every answer; when it has taken
so many at once, as many as the limits allow."""

SLOWER = 0.3
"""And so many seconds more: of answers within milliseconds a busy machine of our own makes slow ones."""

SAMPLE = 8
"""Answers before their times say anything."""

CALM = timedelta(seconds=5)
"""After the window was narrowed it is left alone for so long: those under way still tell of the time before."""

NARROWEST = 2.0
"""The window never becomes narrower: one call that hangs must not stop everybody."""

WIDER_EVERY = 10.0
"""Seconds after which the window is wider by one though nobody answered: those under way may all be slow ones."""


def felt(lane: Lane, *, answers: int, seconds: float, done: int, troubles: int, flying: int, now: datetime) -> Lane:
    """The lane after so many more answers began, calls ended, and calls were refused or timed out.

    Narrowed at once when it is too much, and wider by one in a round; before it was ever narrowed, by one with every
    answer.
    """
    recent, usual = lane.recent, lane.usual
    if answers:
        mean = seconds / answers
        weight = min(1.0, answers / SAMPLE)
        recent = mean if recent is None else recent + weight * (mean - recent)
        usual = recent if usual is None else min(recent, usual * (1 + 0.02 * weight))
    heard = lane.answers + answers
    slow = bool(answers) and heard >= SAMPLE and (recent or 0.0) > max(SLOW * (usual or 0.0), (usual or 0.0) + SLOWER)
    lane = lane.model_copy(update={"recent": recent, "usual": usual, "answers": heard})
    if troubles or slow:
        narrow = max(NARROWEST, min(flying, lane.window or flying) * (HALF if troubles else LESS))
        if flying <= narrow or (lane.calm is not None and lane.calm > now):
            return lane
        wide = max(lane.wide if lane.window is not None else 0.0, float(flying))
        if slow:  # if they stay so with half as many it was not us: prompts are larger; else the usual time falls again
            usual = recent
        return lane.model_copy(update={"window": narrow, "wide": wide, "calm": now + CALM, "usual": usual})
    if lane.window is None:
        return lane
    return wider(lane, done / lane.window if lane.calm is not None else float(done))


def wider(lane: Lane, by: float) -> Lane:
    """The window a little wider; one that has grown back is forgotten."""
    if lane.window is None:
        return lane
    if lane.window + by >= lane.wide:
        return lane.model_copy(update={"window": None, "wide": 0.0, "calm": None})
    return lane.model_copy(update={"window": lane.window + by})
