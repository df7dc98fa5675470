"""One step of a running plan: the next progress, and how it is put together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from pydantic import JsonValue

from domain.amendments import Amendment
from domain.events import Event, EventType
from domain.prices import NOTHING
from domain.progress import Owed, Progress, Told
from domain.steering import Steered


@dataclass(frozen=True)
class Step:
    """The next progress, what happened on the way, and the tasks to start and to stop now."""

    progress: Progress
    events: tuple[Event, ...] = ()
    starts: tuple[str, ...] = ()
    stops: tuple[str, ...] = ()
    held_back: bool = False
    """Whether more could start, but not in the same breath."""
    answer: Steered | None = None
    """What the person hears who asked for the step."""
    adopts: Amendment | None = None
    """The plan that is that of the run from this step on."""


@dataclass
class Draft:
    """A progress being changed within one step: copied once, so that the steps stay pure."""

    progress: Progress
    now: datetime

    def __post_init__(self) -> None:
        given = self.progress
        self.started = given.started
        self.ended = dict(given.ended)
        self.active = dict(given.active)
        self.parked = dict(given.parked)
        self.unmet = dict(given.unmet)
        self.since = dict(given.since)
        self.walled = dict(given.walled)
        self.walls = dict(given.walls)
        self.begun = dict.fromkeys(given.begun)  # a set in order, so that a replay writes the same
        self.limits = dict(given.limits)
        self.used = dict(given.used)
        self.rounds = dict(given.rounds)
        self.notes = dict(given.notes)
        self.approved = dict.fromkeys(given.approved)
        self.stopping = dict(given.stopping)
        self.barriers = dict(given.barriers)
        self.proven = dict.fromkeys(given.proven)
        self.wave = dict.fromkeys(given.wave)
        self.waves = given.waves
        self.ready = {agent: list(line) for agent, line in given.ready.items()}
        self.max_concurrency = given.max_concurrency
        self.usage = given.usage
        self.budget, self.before, self.spent = given.budget, given.before, given.spent
        self.capped = dict(given.capped)
        self.reserved = dict(given.reserved)
        self.owing = list(given.owing)
        self.growing = dict(given.growing)
        self.parts = dict(given.parts)
        self.told = dict(given.told)
        self.low, self.broke = given.low, given.broke
        self.peak = given.peak
        self.paused, self.cancelled = given.paused, given.cancelled
        self.late, self.resting = given.late, given.resting
        self.events: list[Event] = []
        self.stops: list[str] = []
        self.adopts: Amendment | None = None

    def probes_no_more(self, id: str, *, but: str | None = None) -> None:
        """A task that was to probe a wall did not come to it: another one shall."""
        for place, wall in self.barriers.items():
            if wall.probe == id and place != but:
                self.barriers[place] = wall.model_copy(update={"probe": None})

    def spend(self, usd: Decimal, caps: Iterable[str]) -> None:
        """Count what was spent: for the run, and for the caps that it is under."""
        self.spent += usd
        for cap in caps:
            self.capped[cap] = self.capped.get(cap, NOTHING) + usd

    def close_account(self, id: str) -> bool:
        """A task has ended: what its starts could not tell, the ledger is asked for. Whether they have told all."""
        held = self.reserved.pop(id, None)  # of one that ended while its request was in a batch
        told = self.told.pop(id, None)
        if held is not None:
            self.spend(held.usd, held.caps)
            told = (told or Told()) + Told(usd=held.usd, loose=True)
        if told is None or not told.loose:
            return True
        self.owing.append(Owed(task=id, step=1 + self.rounds.get(id, 0), told=told))
        return False

    def leave_batch(self, id: str) -> None:
        """A task will be told something else than what it has asked in a batch: nobody comes for that answer.

        It may be billed all the same; the rest of what was set aside is free, for what the task will ask then.
        """
        held = self.reserved.get(id)
        if held is None or not held.open:
            return
        del self.reserved[id]
        cost = held.usd if held.call is None else min(held.usd, held.call)
        self.spend(cost, held.caps)
        self.told[id] = self.told.get(id, Told()) + Told(usd=cost, loose=True)

    def tell(self, type: EventType, task: str | None = None, /, **data: JsonValue) -> None:
        """Add an event; its number follows the last one of the run."""
        number = self.progress.events + len(self.events) + 1
        self.events.append(Event(number=number, type=type, time=self.now, task=task, data=data))

    def done(self, starts: Iterable[str] = (), *, held_back: bool = False, answer: Steered | None = None) -> Step:
        """The step that this draft has become."""
        progress = self.progress.model_copy(
            update={
                "started": self.started,
                "ended": self.ended,
                "active": self.active,
                "parked": self.parked,
                "unmet": self.unmet,
                "since": self.since,
                "walled": self.walled,
                "walls": self.walls,
                "begun": tuple(self.begun),
                "limits": self.limits,
                "used": self.used,
                "rounds": self.rounds,
                "notes": self.notes,
                "approved": tuple(self.approved),
                "stopping": self.stopping,
                "barriers": self.barriers,
                "proven": tuple(self.proven),
                "wave": tuple(self.wave),
                "waves": self.waves,
                "ready": {agent: tuple(line) for agent, line in self.ready.items() if line},
                "max_concurrency": self.max_concurrency,
                "usage": self.usage,
                "budget": self.budget,
                "before": self.before,
                "spent": self.spent,
                "capped": self.capped,
                "reserved": self.reserved,
                "owing": tuple(self.owing),
                "growing": self.growing,
                "parts": self.parts,
                "told": self.told,
                "low": self.low,
                "broke": self.broke,
                "peak": self.peak,
                "paused": self.paused,
                "cancelled": self.cancelled,
                "late": self.late,
                "resting": self.resting,
                "events": self.progress.events + len(self.events),
            }
        )
        return Step(progress, tuple(self.events), tuple(starts), tuple(self.stops), held_back, answer, self.adopts)
