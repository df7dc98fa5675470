"""What a run has cost, in a line or two under its report; of a simulated one, what it would have cost."""

from __future__ import annotations

from collections.abc import Iterator

from domain.consent import dollars
from domain.costs import Savings
from domain.report import PlanReport, Report, TaskReport


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
        parts.append(f"up to {dollars(cost.unsettled_usd)} more may be billed for calls that were cut off")
    yield f"{', '.join(parts)} ({cost.price_source})."
    if spared := spared_words(cost.savings):
        yield f"{spared[0].upper()}{spared[1:]}."


def spared_words(savings: Savings | None) -> str:
    """What the cache and batches saved; what was taken over is told by `show_reuse`."""
    if savings is None:
        return ""
    parts = []
    if savings.cache_usd > 0:
        parts.append(f"the prompt cache saved {dollars(savings.cache_usd)}")
    if savings.cache_usd < 0:
        parts.append(f"writing the prompt cache cost {dollars(-savings.cache_usd)} more than reading it saved")
    if savings.batches_usd:
        parts.append(f"batches saved {dollars(savings.batches_usd)}")
    return ", ".join(parts)


def cost_cell(task: TaskReport) -> str:
    """The cost of one task in a table."""
    return dollars(task.cost_usd) if task.cost_usd else ""


def plan_cost(plan: PlanReport) -> str:
    """What a plan inside the plan has cost, and may cost, behind its census."""
    of = f" of at most {dollars(plan.budget_usd)}" if plan.budget_usd is not None else ""
    return f"; {dollars(plan.cost_usd)}{of}" if plan.cost_usd else ""
