"""The money of a day: what all calls of an account may cost between two midnights, UTC.

A process says what its calls of a day have cost, and what those under way may cost at most. Whatever a process has said
last counts, also when it is gone: its calls may have been billed. So nothing that is lost or said twice on the way can
let more through than there is. A call counts for the day on which it was granted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from pydantic import Field

from domain.models import Value
from domain.prices import NOTHING
from domain.quota.words import Ask, DayReport, DayWord

DAYS_KEPT = 3
"""Days that are remembered: a clock may be set back, and a call of yesterday may still be under way."""

SHARES_KEPT = 500
"""Processes of a day that are known one by one; of more, those that are silent for longest are known as a sum."""


class Share(Value):
    """What one process has said last of a day."""

    settled: Decimal = NOTHING
    held: Decimal = NOTHING
    seen: datetime


class Day(Value):
    """What was spent on one day, and what calls under way may still cost."""

    shares: dict[str, Share] = Field(default_factory=dict)
    gone: Decimal = NOTHING
    """Of processes that are not known one by one any more."""

    @property
    def committed(self) -> Decimal:
        """All of it."""
        return self.gone + sum((share.settled + share.held for share in self.shares.values()), NOTHING)

    def under_way(self, workers: Iterable[str]) -> Decimal:
        """What of it may turn out to be less: what these processes hold."""
        return sum((self.shares[name].held for name in workers if name in self.shares), NOTHING)


def date_of(now: datetime) -> str:
    """The day that it is."""
    return now.astimezone(UTC).date().isoformat()


def midnight_after(now: datetime) -> datetime:
    """When the next day begins."""
    return datetime.combine(now.astimezone(UTC).date() + timedelta(days=1), datetime.min.time(), UTC)


def lowest(caps: Iterable[Decimal | None]) -> Decimal | None:
    """What holds where processes say different things: the least. None: nobody says anything."""
    return min((cap for cap in caps if cap is not None), default=None)


class Till:
    """The money of the present day, during one draw."""

    def __init__(
        self, days: Mapping[str, Day], ask: Ask, *, cap: Decimal | None, live: Iterable[str], now: datetime
    ) -> None:
        """`cap` is what the day allows, and `live` are the processes that may still give something back."""
        self._now, self._date, self._worker, self._cap = now, date_of(now), ask.worker, cap
        self._live = {*live, ask.worker}
        self._days = {date: _heard(day, ask, ask.money.get(date), now) for date, day in days.items()}
        if self._date not in self._days and (cap is not None or self._date in ask.money):
            self._days[self._date] = _heard(Day(), ask, ask.money.get(self._date), now)

    @property
    def is_limited(self) -> bool:
        """Whether a day allows only so much."""
        return self._cap is not None

    def covers(self, call: Decimal | None) -> bool:
        """Whether a call fits now, at its worst case. One that nobody knows the price of fits nowhere."""
        if self._cap is None:
            return True
        return call is not None and self._today.committed + call <= self._cap

    def may_cover(self, call: Decimal | None) -> bool:
        """Whether a call may fit today when those under way have told what they cost."""
        if self._cap is None:
            return True
        surely = self._today.committed - self._today.under_way(self._live)
        return call is not None and surely + call <= self._cap

    def take(self, call: Decimal | None) -> None:
        """Set aside what a call may cost."""
        if self._cap is None or call is None:
            return
        share = self._today.shares.get(self._worker, Share(seen=self._now))
        share = share.model_copy(update={"held": share.held + call})
        self._days[self._date] = self._today.model_copy(update={"shares": {**self._today.shares, self._worker: share}})

    def word(self) -> DayWord | None:
        """What a process is told; nothing where nothing is limited."""
        if self._cap is None:
            return None
        left = max(NOTHING, self._cap - self._today.committed)
        return DayWord(date=self._date, cap=self._cap, left=left, until=midnight_after(self._now))

    def after(self) -> dict[str, Day]:
        """The days that are remembered."""
        kept = sorted(self._days)[-DAYS_KEPT:]
        return {date: _folded(self._days[date]) for date in kept}

    @property
    def _today(self) -> Day:
        return self._days[self._date]


def _heard(day: Day, ask: Ask, report: DayReport | None, now: datetime) -> Day:
    """The day after one more word of a process: it replaces the one before, with whatever was granted since."""
    if report is None and ask.worker not in day.shares:
        return day
    report = report or DayReport(settled=day.shares[ask.worker].settled)
    share = Share(settled=report.settled, held=report.held, seen=now)
    return day.model_copy(update={"shares": {**day.shares, ask.worker: share}})


def _folded(day: Day) -> Day:
    """The day with not more processes than are kept."""
    if len(day.shares) <= SHARES_KEPT:
        return day
    old = sorted(day.shares, key=lambda name: day.shares[name].seen)[:-SHARES_KEPT]
    gone = sum((day.shares[name].settled + day.shares[name].held for name in old), day.gone)
    return day.model_copy(
        update={"gone": gone, "shares": {name: share for name, share in day.shares.items() if name not in old}}
    )
