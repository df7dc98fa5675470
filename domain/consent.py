"""Whether a plan may start, by what it is likely to cost: it runs, a person is asked, or it is refused."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Literal

from domain.estimate import Estimate
from domain.forecast import Spread
from domain.prices import Usd
from domain.stakes import Stake
from domain.values import Value


class Consent(Value):
    """What is decided, and why."""

    decision: Literal["run", "ask", "refuse"]
    why: str
    capped: bool = False
    """Whether it is refused for a cap of a task or an agent."""


def decision_for(
    estimate: Estimate,
    *,
    budget: Decimal | None,
    ask_above: Decimal,
    simulated: bool,
    stakes: Sequence[Stake] = (),
    daily: Decimal | None = None,
    unforeseen: int = 0,
) -> Consent:
    """What interface, caps and settings say to an estimate.

    A cap of a task or an agent is looked at as the budget is. That a day may not cover it is told, and no more: the run
    goes on on the next. Unforeseen are tasks that an agent may add while it runs: no estimate has them.
    """
    found = _by_the_whole(estimate, budget=budget, ask_above=ask_above, simulated=simulated, unforeseen=unforeseen)
    if found.decision == "refuse" or estimate.usd is None:
        return found
    if (refusal := next(filter(None, map(_refusal, stakes)), None)) is not None:
        return Consent(decision="refuse", why=refusal, capped=True)
    told = [found.why]
    told += [f"{_most(stake)}: it may end without a result" for stake in stakes if stake.high > stake.most][:1]
    if daily is not None and estimate.usd.likely > daily:
        told += [f"a day allows {dollars(daily)} (daily_usd): it will go on on another day"]
    return found.model_copy(update={"why": "; ".join(told)})


def _refusal(stake: Stake) -> str | None:
    if stake.likely > stake.most:
        return f"{stake.whose} will likely cost {dollars(stake.likely)}, and its budget_usd is {dollars(stake.most)}"
    if stake.call > stake.most:
        call = f"one call of {stake.whose} may cost up to {dollars(stake.call)}"
        return f"{call}, and its budget_usd is {dollars(stake.most)}: it could not start"
    return None


def _most(stake: Stake) -> str:
    return f"at most {stake.whose} could cost {dollars(stake.high)}, and its budget_usd is {dollars(stake.most)}"


def _by_the_whole(
    estimate: Estimate, *, budget: Decimal | None, ask_above: Decimal, simulated: bool, unforeseen: int
) -> Consent:
    """What interface and settings say to an estimate.

    A budget is the consent of whoever set it, for a simulated run as well. Without one a person is asked above a
    threshold, and where nobody can know the cost beforehand, when there is money to spend. Where money is limited,
    every model must have a price: who asks has checked that (`PriceList.check`).
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
    if unforeseen:
        most = f"{unforeseen:,} {'task' if unforeseen == 1 else 'tasks'}"
        grown = f"an agent may add up to {most} to it (replan), and nobody knows yet what they will cost"
        return Consent(decision="ask", why=grown)
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
    if amount < 0:
        return f"-{dollars(-amount)}"
    if amount >= 1 or not amount:
        return f"${amount:,.2f}"
    return f"${amount:.{max(2, 1 - amount.adjusted())}f}"


def _listed(models: tuple[str, ...]) -> str:
    return ", ".join(map(repr, models))
