"""What the calls of this process have cost on a day, and what those under way may cost: all that it tells the bank."""

from __future__ import annotations

from decimal import Decimal

from domain.prices import NOTHING
from domain.quota.words import DayReport

DAYS_TOLD = 2
"""The last days that are told of; older ones while a call of them is under way."""


class DayBooks:
    """Sums by day. Where the money of a day is not limited, nothing is counted."""

    def __init__(self) -> None:
        self._days: dict[str, DayReport] = {}

    def hold(self, day: str | None, usd: Decimal | None) -> None:
        """A call was granted that may cost so much."""
        self._add(day, held=usd or NOTHING)

    def settle(self, day: str | None, usd: Decimal | None, cost: Decimal) -> None:
        """It is over, and has cost so much."""
        self._add(day, held=-(usd or NOTHING), settled=cost)

    def reports(self) -> dict[str, DayReport]:
        """All that is to be told."""
        last = sorted(self._days)[-DAYS_TOLD:]
        self._days = {day: report for day, report in self._days.items() if day in last or report.held}
        return dict(self._days)

    def _add(self, day: str | None, *, held: Decimal, settled: Decimal = NOTHING) -> None:
        if day is None:
            return
        known = self._days.get(day, DayReport())
        self._days[day] = DayReport(settled=known.settled + settled, held=known.held + held)
