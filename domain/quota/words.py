"""What a worker process says to the bank, and what the bank answers.

A process tells its state, never a change: sums since it began, all that it holds now. So a word that is lost or said
twice changes nothing, and a bank that was restarted knows as much as before after one round.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Annotated, Literal

from pydantic import Field

from domain.models import Unsaid, Value
from domain.prices import NOTHING
from domain.quota.terms import Amounts, Measure, Terms

Obstacle = Measure | Literal["wall", "window", "first", "money"]
"""Why a call is not granted: a limit, a wall until its time, too many under way, limits that are still unknown, or
money of the day that calls under way may need."""

NO_LANE = ""
"""The class of calls that draw money alone: what goes in a batch has other limits than calls of a minute."""


class Call(Value):
    """A call that waits: what it may use at most."""

    number: int
    lane: str
    amounts: Amounts
    run: str
    agent: str | None = None
    """An agent that may be at work only so many times in all: name and version, and a hash of one of a plan's own."""
    pool: int = 0
    """How many times."""
    probe: bool = False
    """Whether it is to find out if a wall still stands."""
    usd: Annotated[Decimal | None, Field(exclude_if=lambda usd: usd is None)] = None
    """What it may cost at most, where that is known."""


class Standing(Value):
    """What the headers of one answer say: limits, and what is left of them. Empty: the provider says nothing."""

    limits: dict[Measure, int] = Field(default_factory=dict)
    remaining: dict[Measure, int] = Field(default_factory=dict)


class Seen(Value):
    """The latest standing that a process has seen, and which of its calls it came with."""

    number: int
    standing: Standing
    charged: Amounts
    """What that call was counted with."""
    drawn: Amounts
    """All that was drawn and had not come back when that call was granted: what came later is not in its standing."""
    age: float
    """Seconds since that call left: when the provider looked nobody says, and a busy one answers long after it."""
    most: Amounts = Field(default_factory=dict)
    """The most that was there before a call, as any answer under these limits told: what a bucket holds at least."""


class LaneReport(Value):
    """What one process has to say of one class."""

    flying: int = 0
    """Calls that are granted and not over."""
    back: Amounts = Field(default_factory=dict)
    """The sum of what was granted and not used; below zero where more was used."""
    answers: int = 0
    seconds: float = 0.0
    """The sum of the times to their first words."""
    done: int = 0
    """Answers that were whole."""
    troubles: int = 0
    """Refusals for a limit, overloads, and calls that took too long, in spite of the meter."""
    wall: float = 0.0
    """Seconds for which the provider wants no call."""
    passed: int = 0
    """Calls that were to find out if the wall still stands, and were answered."""
    seen: Seen | None = None
    on_its_way: Amounts | None = None
    """What was granted, and is not at the provider for sure. None: the process does not say."""


class DayReport(Value):
    """What one process has to say of the money of one day."""

    settled: Decimal = NOTHING
    """What its calls of that day have cost that are over, or may have cost."""
    held: Decimal = NOTHING
    """What those under way may cost at most."""


class Ask(Value):
    """Everything that one process says at one time."""

    worker: str
    number: int
    """Of this ask: an older one that comes late is passed over."""
    clock: float
    """Its own clock, which never jumps."""
    hold: float
    """Seconds after which it uses no grant any more."""
    terms: Terms = Terms()
    lanes: dict[str, LaneReport] = Field(default_factory=dict)
    pools: dict[str, int] = Field(default_factory=dict)
    """How many calls of each limited agent it has under way."""
    calls: tuple[Call, ...] = ()
    """The first of those that wait, in their order."""
    waiting: int = 0
    """How many wait in all."""
    money: Annotated[dict[str, DayReport], Unsaid] = Field(default_factory=dict)
    """By day: what its calls have cost and may cost, where that is limited."""
    elapsed: Annotated[float | None, Field(exclude_if=lambda elapsed: elapsed is None)] = None
    """What the `elapsed` of the bank is at least by now: what it told, and what has passed since on our clock. None:
    it has told nothing yet."""


class LaneWord(Value):
    """What the bank says of one class."""

    free: bool = False
    """Nothing is limited: for a while nobody needs to ask."""
    obstacle: Obstacle | None = None
    """What the first call that was not granted waits for."""
    retry_in: float = 0.0
    """Seconds until it may be granted."""
    spacing: float = 0.0
    """Seconds between calls of its kind, as things stand."""
    drawn: Amounts = Field(default_factory=dict)
    """All that was ever drawn and has not come back, these grants included."""
    used: dict[Measure, float] = Field(default_factory=dict)
    """The part of each limit that was drawn in the last minute."""


class DayWord(Value):
    """What the bank says of the money of a day."""

    date: str
    cap: Decimal
    left: Decimal
    until: datetime
    """When the next day begins."""


class Grant(Value):
    """What the bank answers: the calls that may be made now, or never by this grant."""

    numbers: tuple[int, ...] = ()
    lanes: dict[str, LaneWord] = Field(default_factory=dict)
    full: dict[str, float] = Field(default_factory=dict)
    """Agents that cannot take the calls of this ask, and in how many seconds to come again."""
    leases: dict[str, int] = Field(default_factory=dict)
    """Agents with so much room that this process may have so many calls under way without asking."""
    retry_in: float | None = None
    """Seconds until the first call that was not granted may be; none when all were."""
    day: DayWord | None = None
    """The day that these calls count for, where its money is limited."""
    unpaid: tuple[int, ...] = ()
    """Calls that the money of the day does not cover, whatever those under way come to."""
    elapsed: Annotated[float | None, Field(exclude_if=lambda elapsed: elapsed is None)] = None
    """Seconds that have passed for the bank: the process carries them on by its own clock, and says so when it asks."""
    before: str | None = None
    """The run of the bank before this one: closed, and of no use any more."""
