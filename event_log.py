"""The events of all runs of a store as one sequence: read once, or followed.

Of each run in order and without a gap; of several runs by time, as far as they are written when it is their turn. To
subscribe is to iterate, to unsubscribe is to stop. Whoever reads costs the runs nothing: Temporal is not asked. New
runs are found by a listing, only those that have not ended are asked for their next segment, by its name, and of each
run that has something to say one segment is in memory.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice

from domain.event_filter import EVERYTHING, Wanted
from domain.events import EventType, Logged, timestamp
from domain.offsets import Mark, Offsets
from store import Store, StoreError, StoreUnavailable

AT_ONCE = 16
"""Questions to the store in flight: a bucket answers many as quickly as one."""

BATCH = 200
"""Events that are handed over at a time."""

LIST_EVERY = 1.0
"""Seconds from one listing of the runs to the next. Where they are many and it takes long, it is done less often."""

LIST_SHARE = 20
"""A listing may take one part in so many of the time."""

LOOK_FIRST, LOOK_LAST = 0.5, 15.0
"""Seconds from one question for the next segment of a run to the next: the first while it tells something, the last
when it has been silent for long, as one that was terminated is for ever."""

SILENCE_SHARE = 20
"""A run is asked again after one part in so many of its silence: so its next word is late by at most that part."""

LONG_AGO = "1970-01-01T00:00:00Z"

NOWHERE: Offsets = {}


@dataclass(frozen=True)
class Batch:
    """What was read, and how far that is. Who has dealt with the events keeps the marks, and begins there again."""

    events: tuple[Logged, ...] = ()
    """Those that were asked for."""
    marks: Offsets = field(default_factory=dict)
    """For each run that was read from, the last event, asked for or not."""
    gone: tuple[str, ...] = ()
    """Runs that are no longer there: their marks are of no more use."""
    more: bool = False
    """Whether another batch comes at once. The last one before a rest says that it does not."""
    troubles: tuple[str, ...] = ()
    """What could not be read, in sentences."""


@dataclass
class _Course:
    """How far one run was read."""

    run: str
    time: datetime
    """Nothing that is still to come of it is older."""
    mark: Mark | None = None
    """Where the reader was before, until it was looked up whether that event is still the same."""
    after: int = 0
    heard: float = 0.0
    """When it last told something here: clocks of other machines say nothing about that."""
    due: float = 0.0
    waiting: deque[Logged] = field(default_factory=deque)
    ended: bool = False


class EventLog:
    """One reader of all runs."""

    def __init__(self, store: Store, wanted: Wanted = EVERYTHING, after: Offsets = NOWHERE) -> None:
        self._store, self._wanted, self._after = store, wanted, after
        self._known: set[str] = set()
        self._resting: dict[str, _Course] = {}
        self._at_hand: list[tuple[datetime, str, _Course]] = []
        self._gone: list[str] = []
        self._troubles: list[str] = []
        self._list_at = 0.0
        self._follow = self._unavailable = self._promised = False

    async def batches(self, *, follow: bool = False) -> AsyncGenerator[Batch, None]:
        """What there is, in batches; with `follow` also what comes, until whoever reads has enough."""
        self._follow = follow
        while True:
            await self._look()
            async for batch in self._merged():
                yield batch
            if not follow:
                return
            await asyncio.sleep(max(0.0, self._next_look() - _clock()))

    # What there is

    async def _look(self) -> None:
        """Find new runs when it is time, and let those be asked whose time has come."""
        if _clock() >= self._list_at:
            began = _clock()
            try:
                await self._find_runs()
            except StoreUnavailable as error:
                self._go_on_without_the_store(error)
            else:
                self._unavailable = False
            self._list_at = _clock() + max(LIST_EVERY, LIST_SHARE * (_clock() - began))
        for course in [course for course in self._resting.values() if course.due <= _clock()]:
            del self._resting[course.run]
            self._push(course)

    async def _find_runs(self) -> None:
        there = set(await self._store.runs())
        if gone := (self._known or self._after.keys()) - there:
            self._forget(gone)
        new = sorted(run for run in there - self._known if self._wanted.concerns(run))
        for some in _by(AT_ONCE, new):
            for run, course in zip(some, await asyncio.gather(*map(self._begin, some)), strict=True):
                if course is not None:
                    self._known.add(run)
                    self._resting[run] = course

    def _forget(self, runs: set[str]) -> None:
        """Runs were pruned. What is in memory of them is not told any more."""
        self._known -= runs
        self._gone += sorted(runs)
        for run in runs:
            self._resting.pop(run, None)
        self._at_hand = [entry for entry in self._at_hand if entry[1] not in runs]
        heapq.heapify(self._at_hand)

    async def _begin(self, run: str) -> _Course | None:
        """A run from where it was read before, or from its start; None when it need not be read, or is not there."""
        try:
            is_done = await self._is_done_with(run)
            manifest = None if is_done else await self._store.manifest(run)
            if is_done or (manifest and not self._wanted.concerns_family(run, str(manifest.get("family") or run))):
                self._known.add(run)
                return None
        except StoreError as error:
            self._set_aside(run, error)
            return None
        if manifest is None:
            return None
        mark = self._after.get(run)
        submitted = datetime.fromisoformat(str(manifest.get("submitted") or LONG_AGO))
        return _Course(run, mark.time if mark is not None else submitted, mark, heard=_clock())

    async def _is_done_with(self, run: str) -> bool:
        """Whether a run has ended, and was read to its end or has ended too early: then its log is not opened."""
        mark, since = self._after.get(run), self._wanted.since
        if since is None and (mark is None or not mark.ended):
            return False
        end = await self._store.end(run)
        if end is None or not end.get("finished"):
            return False
        was_read = mark is not None and mark.ended and end["finished"] == timestamp(mark.time)
        return was_read or (since is not None and end["finished"] < timestamp(since))

    # By time

    async def _merged(self) -> AsyncGenerator[Batch, None]:
        """Everything at hand, the oldest first; who follows is interrupted when it is time to look around."""
        events, last, read = list[Logged](), dict[str, Logged](), 0
        while self._at_hand:
            if not self._at_hand[0][2].waiting:
                await self._fetch()
                continue
            _, run, course = heapq.heappop(self._at_hand)
            logged = course.waiting.popleft()
            course.time, read = logged.event.time, read + 1
            course.ended = logged.event.type is EventType.RUN_COMPLETED
            last[run] = logged
            if self._wanted.takes(logged):
                events.append(logged)
            self._push(course)
            if read >= BATCH:
                yield self._batch(events, last, more=True)
                events, last, read = [], {}, 0
                if self._follow and _clock() >= self._list_at:
                    return
        if last or self._gone or self._troubles or self._promised:
            yield self._batch(events, last, more=False)

    def _batch(self, events: list[Logged], last: dict[str, Logged], *, more: bool) -> Batch:
        self._promised = more
        gone, self._gone = tuple(self._gone), []
        troubles, self._troubles = tuple(self._troubles), []
        marks = {run: Mark.at(logged.event) for run, logged in last.items()}
        return Batch(tuple(events), marks, gone, more, troubles)

    async def _fetch(self) -> None:
        """The next segments of the runs that are first in line: several at once, as far as none of them is at hand."""
        courses: list[_Course] = []
        while self._at_hand and not self._at_hand[0][2].waiting and len(courses) < AT_ONCE:
            courses.append(heapq.heappop(self._at_hand)[2])
        await asyncio.gather(*map(self._fetch_one, courses))
        for course in courses:
            if course.waiting:
                self._push(course)
            elif not course.ended:
                self._rest(course)

    async def _fetch_one(self, course: _Course) -> None:
        try:
            if course.mark is not None:
                await self._go_back_to(course, course.mark)
            segment = [] if course.waiting else await self._store.segment(course.run, course.after)
        except StoreError as error:
            self._set_aside(course.run, error)
            course.ended = True
            return
        except StoreUnavailable as error:
            self._go_on_without_the_store(error)
            return
        course.waiting.extend(segment)
        if course.waiting:
            course.after, course.heard = course.waiting[-1].event.number, _clock()

    async def _go_back_to(self, course: _Course, mark: Mark) -> None:
        """Begin after the event that was read last; where that is another one by now, at the start."""
        segment = await self._store.segment_with(course.run, mark.number)
        is_there = any(mark.is_at(logged.event) for logged in segment)
        course.mark = None
        if is_there:
            course.waiting.extend(logged for logged in segment if logged.event.number > mark.number)
            course.after, course.ended = mark.number, mark.ended and not course.waiting

    def _push(self, course: _Course) -> None:
        time = course.waiting[0].event.time if course.waiting else course.time
        heapq.heappush(self._at_hand, (time, course.run, course))

    def _rest(self, course: _Course) -> None:
        course.due = _clock() + look_again(_clock() - course.heard)
        self._resting[course.run] = course

    def _next_look(self) -> float:
        if self._at_hand:
            return 0.0
        return min([self._list_at, *(course.due for course in self._resting.values())])

    # What goes wrong

    def _set_aside(self, run: str, error: StoreError) -> None:
        """A run that is damaged hides no other: it is told of once."""
        self._known.add(run)
        self._troubles.append(f"{run} is passed over: {error}.")

    def _go_on_without_the_store(self, error: StoreUnavailable) -> None:
        """A store that is away for a moment ends nobody's subscription. Who only reads what there is must be told."""
        if not self._follow:
            raise error
        self._troubles += [] if self._unavailable else [f"{str(error)[0].upper()}{str(error)[1:]}. It is asked again."]
        self._unavailable = True


def look_again(silence: float) -> float:
    """After how many seconds a run is asked again that has been silent for so long."""
    return min(max(silence / SILENCE_SHARE, LOOK_FIRST), LOOK_LAST)


def _clock() -> float:
    return asyncio.get_running_loop().time()


def _by(number: int, runs: Iterable[str]) -> Iterable[tuple[str, ...]]:
    left = iter(runs)
    while some := tuple(islice(left, number)):
        yield some
