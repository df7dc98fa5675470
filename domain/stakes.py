"""What the caps of a plan will likely have to cover: asked before anything starts."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

from domain import purse
from domain.caps import limits_of
from domain.chart import Chart
from domain.estimate import Estimate
from domain.models import Plan
from domain.prices import NOTHING
from domain.progress import outline_of
from domain.values import Value


class Stake(Value):
    """One cap, and what its tasks will cost."""

    whose: str
    most: Decimal
    likely: Decimal
    high: Decimal
    call: Decimal
    """What one call can cost at most, before results of others are put into it: below that it could not start."""


def stakes_of(plan: Plan, estimate: Estimate) -> Iterator[Stake]:
    """Every cap of a plan with what is foreseen for its tasks; tasks that are kept of an earlier run cost nothing."""
    foreseen = {task.id: task.usd for task in estimate.tasks if task.usd is not None}
    limits = [*limits_of(plan)]
    if not limits:
        return
    chart = Chart(outline_of(plan))
    for _, whose, most, tasks in limits:
        spreads = [foreseen[id] for id in tasks if id in foreseen]
        calls = [purse.least_call(chart, id) or NOTHING for id in tasks if id in foreseen]
        if spreads:
            yield Stake(
                whose=whose,
                most=most,
                likely=sum((each.likely for each in spreads), NOTHING),
                high=sum((each.high for each in spreads), NOTHING),
                call=max(calls),
            )
