"""Why a task does not get on: what it waits for, since when and, where it can be known, until when."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from pydantic import AliasChoices, Field

from domain.board import BACKOFF, SILENT_AFTER, Live
from domain.events import timestamp
from domain.models import Value
from domain.progress import Wall

NAMED = 5
"""Open needs that a wait names; of a task that needs hundreds, the others are counted."""


class Wait(Value):
    """What a task waits for, since when and, where it can be known, until when."""

    reason: str = Field(validation_alias=AliasChoices("for", "reason"), serialization_alias="for")
    what: str | None = None
    since: str | None = None
    until: str | None = None


def for_inputs(open_needs: Sequence[str], since: datetime | None) -> Wait:
    """A task waits for tasks before it."""
    more = f" and {len(open_needs) - NAMED} more tasks" if len(open_needs) > NAMED else ""
    return Wait(reason="inputs", what=", ".join(open_needs[:NAMED]) + more, since=stamp(since))


def for_a_place(since: datetime | None, part: str | None = None) -> Wait:
    """A task could start, but all places are taken: of the run, or of the plan inside it that the task is of."""
    return Wait(reason="slot", what=None if part is None else f"a place of the plan {part}", since=stamp(since))


def for_an_agent(agent: str, most: int, since: datetime | None) -> Wait:
    """There is a place, but its agent is at work as often as it may be."""
    return Wait(reason="pool", what=f"{agent}, which does {most} at once", since=stamp(since))


def for_money(since: datetime | None) -> Wait:
    """A task could start, but one before it waits until the budget covers it."""
    return Wait(reason="budget", what="a task before it waits for the budget", since=stamp(since))


def for_a_wave(wave: int, since: datetime | None) -> Wait:
    """A task could start, but not before every task of the present wave has ended or left it."""
    return Wait(reason="slot", what=f"the end of wave {wave}" if wave else None, since=stamp(since))


def for_the_pause(since: datetime | None) -> Wait:
    """A task could start, but nothing new is started."""
    return Wait(reason="pause", since=stamp(since))


def for_a_wall(wall: Wall, since: datetime | None, met: datetime | None = None) -> Wait:
    """The provider takes no calls of this kind; when it does not say until when, `until` is the next try.

    Or the agent is at work as often as it may be, in all runs together. A task that has met walls at every start of
    late waits since the first of them.
    """
    begun = met or (wall.since if since is None else max(wall.since, since))
    return Wait(
        reason="pool" if wall.kind == "pool" else "wall",
        what=wall.what,
        since=timestamp(begun),
        until=timestamp(wall.until),
    )


def of_a_call(live: Live, now: datetime) -> Wait | None:
    """What a task at work waits for: a word from its worker, its next attempt, its part of the quota, or a sibling."""
    note = live.note
    if live.silent(now):
        return Wait(reason="worker", what="there is no word from its worker", since=timestamp(live.heard))
    if note.step in {BACKOFF, "quota"} or (note.step == "cache" and note.what is not None):
        return Wait(reason=note.step, what=note.what, since=timestamp(note.since), until=stamp(note.until))
    return None


def for_a_worker(started: datetime, now: datetime, region: str | None = None) -> Wait | None:
    """A task was handed out, and no worker has said a word of it: it has none, or its worker was lost."""
    if now - started <= SILENT_AFTER:
        return None
    whose = f" of the region {region}" if region is not None else ""
    return Wait(reason="worker", what=f"there is no word from a worker{whose}", since=timestamp(started))


def stamp(time: datetime | None) -> str | None:
    """The time as JSON has it, or none."""
    return None if time is None else timestamp(time)
