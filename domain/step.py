"""One step of a running plan: the next progress, and how it is put together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from pydantic import JsonValue

from domain.events import Event, EventType
from domain.progress import Progress


@dataclass(frozen=True)
class Step:
    """The next progress, what happened on the way, and the tasks to start now."""

    progress: Progress
    events: tuple[Event, ...] = ()
    starts: tuple[str, ...] = ()
    held_back: bool = False
    """Whether more could start, but not in the same breath."""


@dataclass
class Draft:
    """A progress being changed within one step: copied once, so that the steps stay pure."""

    progress: Progress
    now: datetime

    def __post_init__(self) -> None:
        self.ended = dict(self.progress.ended)
        self.active = dict(self.progress.active)
        self.parked = dict(self.progress.parked)
        self.unmet = dict(self.progress.unmet)
        self.walls = dict(self.progress.walls)
        self.begun = dict.fromkeys(self.progress.begun)  # a set in order, so that a replay writes the same
        self.ready = {agent: list(line) for agent, line in self.progress.ready.items()}
        self.usage = self.progress.usage
        self.peak = self.progress.peak
        self.paused = self.progress.paused
        self.cancelled = self.progress.cancelled
        self.events: list[Event] = []

    def tell(self, type: EventType, task: str | None = None, **data: JsonValue) -> None:
        """Add an event; its number follows the last one of the run."""
        number = self.progress.events + len(self.events) + 1
        self.events.append(Event(number=number, type=type, time=self.now, task=task, data=data))

    def done(self, starts: Iterable[str] = (), *, held_back: bool = False) -> Step:
        """The step that this draft has become."""
        progress = self.progress.model_copy(
            update={
                "ended": self.ended,
                "active": self.active,
                "parked": self.parked,
                "unmet": self.unmet,
                "walls": self.walls,
                "begun": tuple(self.begun),
                "ready": {agent: tuple(line) for agent, line in self.ready.items() if line},
                "usage": self.usage,
                "peak": self.peak,
                "paused": self.paused,
                "cancelled": self.cancelled,
                "events": self.progress.events + len(self.events),
            }
        )
        return Step(progress, tuple(self.events), tuple(starts), held_back)
