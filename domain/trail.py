"""What each task of a run did and waited for, moment by moment, kept as its events come.

A turn is written down in constant time, so that watchers pay nothing for it. What it all comes to is for `tempo.py`,
when a report is made.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

from domain.models import TaskStatus, WallKind
from domain.progress import Wall


class Part(StrEnum):
    """Where time went."""

    WORK = "work"
    """At work, with attempts in vain and the pauses between them: whoever does one at a time has them, too."""
    QUOTA = "quota"
    """The account's rate: the door waited for its part of it, or the provider refused."""
    SLOT = "slot"
    """It could have started: a place, the next wave or an instance of its agent was missing."""
    PERSON = "person"
    """Somebody's word: an approval, the end of a pause, that it be done again."""
    OTHER = "other"
    """Any other wall, a worker that was lost, what lies between two steps."""


OF_WAITS = {
    "approval": Part.PERSON,
    "pause": Part.PERSON,
    "quota": Part.QUOTA,
    "pool": Part.SLOT,
    "slot": Part.SLOT,
}
"""What a wait outside counts as; a wall goes by its kind."""

OF_STATES = {TaskStatus.PENDING: Part.OTHER, TaskStatus.READY: Part.SLOT, TaskStatus.RUNNING: Part.WORK}
OPEN = frozenset({TaskStatus.PENDING, TaskStatus.READY, TaskStatus.WAITING, TaskStatus.RUNNING})


class Turn(NamedTuple):
    """From this moment on a task was in this state, and its time went there."""

    at: datetime
    status: TaskStatus
    part: Part


class Stretch(NamedTuple):
    """A time between two moments, and where it went."""

    since: datetime
    until: datetime
    status: TaskStatus
    part: Part

    @property
    def length(self) -> timedelta:
        """How long it was."""
        return self.until - self.since

    def within(self, since: datetime, until: datetime) -> Stretch:
        """What of it lies between two moments."""
        return self._replace(since=max(self.since, since), until=min(self.until, until))


class Weather(NamedTuple):
    """What kept tasks from starting, from this moment on: a pause, and walls by their places."""

    since: datetime
    paused: bool
    walls: Mapping[str, Wall]


class Trail:
    """The turns of every task, and the weather of the run. Moments only go forward."""

    def __init__(self, places: Mapping[str, tuple[str, ...]]) -> None:
        """`places` are those at which a wall would stand before each task."""
        self._turns: dict[str, list[Turn]] = {}
        self.adopt(places)
        self._attempts: dict[str, datetime] = {}
        self._weather: list[Weather] = []

    def adopt(self, places: Mapping[str, tuple[str, ...]]) -> None:
        """Go on with the tasks of another plan."""
        self._places = places
        self._turns = {id: self._turns.get(id, []) for id in places}

    # What is written down

    def attempted(self, id: str, at: datetime) -> None:
        """An attempt of the present start was in vain, and ended then."""
        self._attempts[id] = at

    def move(self, id: str, status: TaskStatus, at: datetime, *, wait: str | None, wall: WallKind | None) -> None:
        """A task comes into another state."""
        part = _part_of(status, wait, wall)
        attempt = self._attempts.pop(id, None)
        if self._is(id, TaskStatus.RUNNING) and status in OPEN:
            # It was given back: since its last attempt, if it made one, it had met what it was given back for.
            began = self._turns[id][-1].at
            why = part if status is TaskStatus.WAITING else Part.OTHER
            self._turn(id, Turn(min(max(attempt or began, began), at), TaskStatus.WAITING, why))
        self._turn(id, Turn(at, status, part))

    def waited(self, id: str, at: datetime, length: timedelta) -> None:
        """So much of the start that ends now was a wait for quota. When is not told: it is put at its end."""
        if self._is(id, TaskStatus.RUNNING) and length > timedelta():
            self._turn(id, Turn(at - length, TaskStatus.RUNNING, Part.QUOTA))

    def weather(self, at: datetime, *, paused: bool, walls: Mapping[str, Wall]) -> None:
        """What keeps tasks from starting has changed."""
        self._weather.append(Weather(at, paused, dict(walls)))

    # What can be read off

    def last(self, id: str) -> Turn | None:
        """The latest turn of a task."""
        return self._turns[id][-1] if self._turns[id] else None

    def was_at_work(self, id: str) -> bool:
        """Whether the latest turn of a task ended a start."""
        return len(self._turns[id]) > 1 and self._turns[id][-2].status is TaskStatus.RUNNING

    def ended(self, id: str, by: datetime) -> datetime | None:
        """When a task had last ended by a moment: one that is done again ends several times."""
        return next((turn.at for turn in reversed(self._turns[id]) if turn.at <= by and turn.status not in OPEN), None)

    def released(self, id: str, by: datetime) -> datetime | None:
        """When a task had last come past its needs by a moment."""
        turns = [turn for turn in self._turns[id] if turn.at <= by]
        for place in range(len(turns) - 1, -1, -1):
            was_pending = place == 0 or turns[place - 1].status is TaskStatus.PENDING
            if was_pending and turns[place].status is not TaskStatus.PENDING:
                return turns[place].at
        return None

    def stretches(self, id: str, since: datetime, until: datetime) -> Iterator[Stretch]:
        """The time between two moments, without a gap, by where it went."""
        before, after = Turn(since, TaskStatus.PENDING, Part.OTHER), Turn(until, TaskStatus.PENDING, Part.OTHER)
        for turn, following in pairwise([before, *self._turns[id], after]):
            start, end = max(turn.at, since), min(following.at, until)
            if start < end:
                yield Stretch(start, end, turn.status, turn.part)

    def told_apart(self, id: str, stretch: Stretch) -> Iterator[Stretch]:
        """A stretch in which a task could have started, by what kept it; any other as it is."""
        if stretch.status is not TaskStatus.READY:
            yield stretch
            return
        start, keeper = stretch.since, Part.SLOT
        for place in range(max(0, bisect_right(self._weather, start, key=_since) - 1), len(self._weather)):
            weather = self._weather[place]
            if weather.since >= stretch.until:
                break
            if weather.since > start:
                yield Stretch(start, weather.since, stretch.status, keeper)
                start = weather.since
            keeper = self._keeper(id, weather)
        yield Stretch(start, stretch.until, stretch.status, keeper)

    # How it is done

    def _is(self, id: str, status: TaskStatus) -> bool:
        return bool(self._turns[id]) and self._turns[id][-1].status is status

    def _turn(self, id: str, turn: Turn) -> None:
        """A moment that is told late or by another clock is no earlier than the one before."""
        turns = self._turns[id]
        turns.append(turn if not turns or turn.at >= turns[-1].at else turn._replace(at=turns[-1].at))

    def _keeper(self, id: str, weather: Weather) -> Part:
        if weather.paused:
            return Part.PERSON
        walls = [weather.walls[place] for place in self._places[id] if place in weather.walls]
        kinds = {wall.kind for wall in walls if wall.probe != id}
        if not kinds:
            return Part.SLOT
        return Part.QUOTA if kinds == {"rate"} else Part.OTHER


def _part_of(status: TaskStatus, wait: str | None, wall: WallKind | None) -> Part:
    """Where the time goes in a state. Between its end and being done again a task waits for somebody to say so."""
    if status is not TaskStatus.WAITING:
        return OF_STATES.get(status, Part.PERSON)
    if wait == "wall":
        return Part.QUOTA if wall in {None, "rate"} else Part.OTHER  # before 0.3.0 all walls were of a rate
    return OF_WAITS.get(wait or "", Part.OTHER)


def _since(weather: Weather) -> datetime:
    return weather.since
