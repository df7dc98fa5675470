"""Whether a plan may start, by what it is likely to cost: it runs, a person is asked, or it is refused."""

from __future__ import annotations

from decimal import Decimal
from typing import Literal

from domain.estimate import Estimate
from domain.forecast import Spread
from domain.prices import Usd
from domain.values import Value


class Consent(Value):
    """What is decided, and why."""

    decision: Literal["run", "ask", "refuse"]
    why: str


def decision_for(estimate: Estimate, *, budget: Decimal | None, ask_above: Decimal, simulated: bool) -> Consent:
    """What interface and settings say to an estimate.

    A budget is the consent of whoever set it, for a simulated run as well. Without one a person is asked above a
    threshold, when there is money to spend. Where money is limited, every model must have a price: who asks has
    checked that (`PriceList.check`).
    """
    if estimate.usd is None:
        return Consent(decision="run", why=f"there is no price for {_listed(estimate.unpriced)}, and nothing is spent")
    if budget is not None:
        return _within(estimate.usd, budget)
    likely = estimate.usd.likely
    if simulated:
        return Consent(decision="run", why="it is simulated, and nothing is spent")
    if likely > ask_above:
        above = f"it will likely cost {dollars(likely)}, more than ask_above_usd ({dollars(ask_above)})"
        return Consent(decision="ask", why=above)
    return Consent(decision="run", why=f"it will likely cost {dollars(likely)}, not more than {dollars(ask_above)}")


def _within(usd: Spread[Usd], budget: Decimal) -> Consent:
    """What a budget says. Compared is what is likely; what it could cost at most is told."""
    if usd.likely > budget:
        why = f"it will likely cost {dollars(usd.likely)}, and the budget is {dollars(budget)}"
        return Consent(decision="refuse", why=why)
    if usd.high > budget:
        why = f"at most it could cost {dollars(usd.high)}, and the budget is {dollars(budget)}: it may stop early"
        return Consent(decision="run", why=why)
    return Consent(
        decision="run", why=f"even at most it should cost {dollars(usd.high)}, and the budget is {dollars(budget)}"
    )


def dollars(amount: Decimal) -> str:
    """An amount as people read it: two digits after the point and, below a dollar, the first two that say something."""
    if amount >= 1 or not amount:
        return f"${amount:,.2f}"
    return f"${amount:.{max(2, 1 - amount.adjusted())}f}"


def _listed(models: tuple[str, ...]) -> str:
    return ", ".join(map(repr, models))
