"""What a run has cost, in a line or two under its report; of a simulated one, what it would have cost."""

from __future__ import annotations

from collections.abc import Iterator

from domain.consent import dollars
from domain.report import Report, TaskReport


def cost_lines(report: Report) -> Iterator[str]:
    """The money of a run: what it cost, what was likely, and what retries were worth."""
    cost = report.cost
    if cost.unpriced:
        yield f"What it cost is not known: there is no price for {', '.join(cost.unpriced)}."
    if cost.actual_usd is None:
        return
    verb = "It would have cost" if report.simulated else "It cost"
    likely = f"; {dollars(cost.estimate_usd)} was likely" if cost.estimate_usd is not None else ""
    parts = [f"{verb} {dollars(cost.actual_usd)}{likely}"]
    if cost.retries_usd:
        parts.append(f"{dollars(cost.retries_usd)} of it for attempts in vain")
    if cost.unsettled_usd:
        parts.append(f"up to {dollars(cost.unsettled_usd)} more may be billed for them")
    yield f"{', '.join(parts)} ({cost.price_source})."


def cost_cell(task: TaskReport) -> str:
    """The cost of one task in a table."""
    return dollars(task.cost_usd) if task.cost_usd else ""
