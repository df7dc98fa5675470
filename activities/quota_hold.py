"""What one process counts of a class of models, and of one call: all that it tells the bank, as sums since it began."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from time import monotonic

from activities import quota_figures
from activities.meter import Hold
from activities.model import ModelError, Overloaded, RateLimited
from domain.lineup import Lineup
from domain.models import Usage
from domain.prices import NOTHING
from domain.quota.buckets import ARRIVES
from domain.quota.terms import Amounts, Measure, minus, plus
from domain.quota.words import Call, LaneReport, LaneWord, Seen, Standing

WALL_WITHOUT_END = timedelta(seconds=30)
"""How long a rate limit is believed whose end the provider did not tell."""


@dataclass
class LaneBook:
    """What this process has to say of one class, and has heard of it."""

    tell: Callable[[], None]
    """To be called when the bank must hear something at once."""
    lineup: Lineup = field(default_factory=Lineup)
    flying: int = 0
    back: Amounts = field(default_factory=dict)
    answers: int = 0
    seconds: float = 0.0
    done: int = 0
    troubles: int = 0
    wall: float = 0.0
    """When the provider takes calls again, on our clock."""
    passed: int = 0
    looks: int = 0
    seen: tuple[int, Standing, Amounts, Amounts, float] | None = None
    most: Amounts = field(default_factory=dict)
    """The most that any answer under these limits has told of: one that is overtaken on its way is not lost."""
    told: dict[Measure, int] | None = None
    """The limits by the latest headers: others than before are news."""
    word: LaneWord = field(default_factory=LaneWord)
    free_until: float = 0.0
    holds: set[QuotaHold] = field(default_factory=set)
    """Of the calls that were drawn for and are under way."""

    def report(self, now: float) -> LaneReport:
        """All of it, as it is now."""
        seen = None
        if self.seen is not None:
            number, standing, charged, drawn, left = self.seen
            age = now - left
            seen = Seen(number=number, standing=standing, charged=charged, drawn=drawn, age=age, most=self.most)
        return LaneReport(
            flying=self.flying,
            back=self.back,
            answers=self.answers,
            seconds=self.seconds,
            done=self.done,
            troubles=self.troubles,
            wall=max(0.0, self.wall - now),
            passed=self.passed,
            seen=seen,
            on_its_way=self._on_its_way(now),
        )

    def _on_its_way(self, now: float) -> Amounts:
        """What was granted, and is not at the provider for sure."""
        total: Amounts = {}
        for hold in self.holds:
            if hold.is_on_its_way(now):
                total = plus(total, hold.amounts)
        return total

    def hear(self, call: Call, standing: Standing, drawn: Amounts, left: float) -> None:
        """Headers have come: the latest are told to the bank, at once when they are news."""
        self.looks += 1
        self.seen = (self.looks, standing, call.amounts, drawn, left)
        news = self.told != standing.limits
        before = {} if news else self.most
        there = {measure: left + call.amounts.get(measure, 0.0) for measure, left in standing.remaining.items()}
        self.most = {measure: max(amount, before.get(measure, 0.0)) for measure, amount in there.items()}
        if news:
            self.told = standing.limits
            self.tell()

    def pass_the_wall(self) -> None:
        """A call that was sent to find out was answered: there is no wall any more, for anybody."""
        self.wall = 0.0
        self.passed += 1
        self.tell()

    def refuse(self, call: Call, error: ModelError) -> None:
        """The provider has refused a call in spite of us: this process stops at once, the others when they ask."""
        self.troubles += 1
        quota_figures.refused(call.lane, type(error).__name__)
        if isinstance(error, RateLimited):
            self.wall = max(self.wall, monotonic() + (error.retry_after or WALL_WITHOUT_END).total_seconds())
        self.free_until = 0.0
        self.tell()


class QuotaHold(Hold):
    """One call's part of the quota, counted."""

    def __init__(
        self,
        lane: LaneBook,
        call: Call,
        *,
        asked: float | None = None,
        until: float = float("inf"),
        day: str | None = None,
    ) -> None:
        self._lane, self._call = lane, call
        self.day = day
        """The day that its money counts for, where that is limited."""
        self._paid: Decimal | None = None
        self._asked, self._until = asked, until
        self.free = asked is None
        """Whether nobody asked for it, because nothing is limited."""
        self.used_after: float | None = None
        """Seconds from asking until it was used, or was found to be too late."""
        self._drawn = lane.word.drawn
        self._left: float | None = None
        self._heard = self._spoke = False
        self._usage: Usage | None = None

    @property
    def amounts(self) -> Amounts:
        """What was drawn."""
        return self._call.amounts

    def is_on_its_way(self, now: float) -> bool:
        """Whether the provider may not have counted it yet. It has when its answer begins."""
        return self._left is None or (now - self._left < ARRIVES and not self._heard)

    def is_late(self) -> bool:
        """Whether the provider's buckets have filled for others since: what came in between took too long."""
        now = monotonic()
        if now <= self._until:
            return False
        self._note_use(now)
        quota_figures.late()
        return True

    def begun(self) -> None:
        """The request is about to leave: from here on it counts, whatever becomes of it."""
        self._left = monotonic()
        self._note_use(self._left)

    def _note_use(self, now: float) -> None:
        if self._asked is not None:
            self.used_after = now - self._asked

    def heard(self, standing: Standing) -> None:
        """Keep the latest headers for the bank."""
        self._heard = True
        if self._left is not None:
            self._lane.hear(self._call, standing, self._drawn, self._left)

    def spoke(self) -> None:
        """The time to the first words tells how busy the provider is."""
        if self._left is not None and not self._spoke:
            self._spoke = True
            self._lane.answers += 1
            self._lane.seconds += monotonic() - self._left

    def settled(self, usage: Usage) -> None:
        """What the provider counted: input that it had in its cache is not in it."""
        self._usage = usage
        self._lane.done += 1
        if self._call.probe:
            self._lane.pass_the_wall()

    def refused(self, error: ModelError) -> None:
        """A refusal for the account's limit is a wall for everybody; an overload or a timeout is a sign."""
        if error.standing is not None:
            self.heard(error.standing)
        if isinstance(error, RateLimited | Overloaded) or error.timed_out:
            self._lane.refuse(self._call, error)

    def paid(self, usd: Decimal | None) -> None:
        """What it has cost, or may have cost at most."""
        self._paid = usd

    @property
    def cost(self) -> Decimal:
        """What its day is charged with: nothing for a call that was never made, its worst case when nobody told."""
        if self._left is None:
            return NOTHING
        return self._paid if self._paid is not None else self._call.usd or NOTHING

    def back(self) -> Amounts:
        """What goes back: all of a call that was never made, and of any other what was counted too much."""
        if self.free:
            return {}  # it was not drawn
        if self._left is None:
            return self._call.amounts
        if self._usage is None:
            return {}
        counted: Amounts = {
            "requests": 1.0,
            "input_tokens": float(self._usage.input + self._usage.cache_write),
            "output_tokens": float(self._usage.output),
        }
        return minus(self._call.amounts, counted)
