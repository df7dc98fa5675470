"""What runs have cost together: by run, by plan, by agent or by day."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Literal, get_args

from domain.catalog import RunEntry
from domain.costs import AgentShare, Cost, Savings
from domain.prices import NOTHING, Usd
from domain.values import Usage, Value

By = Literal["run", "plan", "agent", "day"]
WAYS: tuple[By, ...] = get_args(By)


class SpendingLine(Value):
    """One line: what was added up, and what it came to."""

    name: str
    runs: int = 0
    tokens: Usage = Usage()
    usd: Usd = NOTHING
    """Of live runs: what was paid."""
    simulated_usd: Usd = NOTHING
    """Of simulated runs: what it would have cost."""
    retries_usd: Usd = NOTHING
    """Of live runs: what of that went to attempts in vain."""
    simulated_retries_usd: Usd = NOTHING
    unsettled_usd: Usd = NOTHING
    """Of live runs: what may have been billed on top, at most."""
    savings: Savings = Savings()
    """Of live runs: what was not paid."""
    simulated_savings: Savings = Savings()
    unpriced: int = 0
    """Runs in it whose cost is not known. They count for nothing here, which is less than they have cost."""

    def plus(self, other: SpendingLine) -> SpendingLine:
        """Both together, under the name of this."""
        return SpendingLine(
            name=self.name,
            runs=self.runs + other.runs,
            tokens=self.tokens + other.tokens,
            usd=self.usd + other.usd,
            simulated_usd=self.simulated_usd + other.simulated_usd,
            retries_usd=self.retries_usd + other.retries_usd,
            simulated_retries_usd=self.simulated_retries_usd + other.simulated_retries_usd,
            unsettled_usd=self.unsettled_usd + other.unsettled_usd,
            savings=self.savings + other.savings,
            simulated_savings=self.simulated_savings + other.simulated_savings,
            unpriced=self.unpriced + other.unpriced,
        )


def spending_of(entries: Iterable[RunEntry], by: By, day: Callable[[datetime], str]) -> list[SpendingLine]:
    """A line for each run, plan, agent or day, in the order in which they come. `day` names that of a moment."""
    lines: dict[str, SpendingLine] = {}
    for entry in entries:
        for spent in _by_agent(entry) if by == "agent" else [_of_run(entry, _name(entry, by, day))]:
            lines[spent.name] = lines[spent.name].plus(spent) if spent.name in lines else spent
    return list(lines.values())


def sum_of(lines: Iterable[SpendingLine]) -> SpendingLine:
    """All lines together."""
    whole = SpendingLine(name="all")
    for line in lines:
        whole = whole.plus(line)
    return whole


def _name(entry: RunEntry, by: By, day: Callable[[datetime], str]) -> str:
    when = entry.started or entry.submitted
    names: Mapping[By, str] = {
        "run": entry.run,
        "plan": entry.name,
        "day": day(datetime.fromisoformat(when)) if when else "unknown",
    }
    return names[by]


def _of_run(entry: RunEntry, name: str) -> SpendingLine:
    tokens = Usage()
    for share in entry.agents:
        tokens += share.tokens
    return _line(name, entry, tokens, entry.cost.actual_usd, entry.cost)


def _by_agent(entry: RunEntry) -> list[SpendingLine]:
    return [_line(share.agent, entry, share.tokens, share.cost_usd, share) for share in entry.agents]


def _line(name: str, entry: RunEntry, tokens: Usage, cost: Decimal | None, told: Cost | AgentShare) -> SpendingLine:
    """A line of one run or of one agent in it: what was paid and what was simulated never mix."""
    paid, retries, savings = cost or NOTHING, told.retries_usd or NOTHING, told.savings or Savings()
    line = SpendingLine(name=name, runs=1, tokens=tokens, unpriced=int(cost is None))
    if entry.simulated:
        simulated = {"simulated_usd": paid, "simulated_retries_usd": retries, "simulated_savings": savings}
        return line.model_copy(update=simulated)
    unsettled = told.unsettled_usd or NOTHING
    live = {"usd": paid, "retries_usd": retries, "unsettled_usd": unsettled, "savings": savings}
    return line.model_copy(update=live)
