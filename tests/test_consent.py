"""Whether a plan may start, by what it is likely to cost."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from domain.consent import decision_for, dollars
from domain.estimate import Estimate, TokenSpread
from domain.forecast import Spread
from domain.prices import Usd
from domain.stakes import Stake

NOTHING_SPENT = "it is simulated, and nothing is spent"
MAY_END = "it may end without a result"
NONE = Spread[int](low=0, likely=0, high=0)
amounts = st.decimals(0, 1000, places=4)
spreads = st.lists(amounts, min_size=3, max_size=3).map(sorted)


def estimate(low: str | Decimal, likely: str | Decimal, high: str | Decimal) -> Estimate:
    return Estimate(
        usd=Spread[Usd](low=Decimal(low), likely=Decimal(likely), high=Decimal(high)),
        tokens=TokenSpread(input=NONE, output=NONE),
        seconds=Spread[float](low=0, likely=0, high=0),
        tasks=(),
        price_source="a list",
    )


@pytest.mark.parametrize(
    ("likely", "high", "budget", "simulated", "decision", "why"),
    [
        ("0.50", "9", None, False, "run", "it will likely cost $0.50, not more than $0.50"),
        ("0.51", "9", None, False, "ask", "it will likely cost $0.51, more than ask_above_usd ($0.50)"),
        ("99", "999", None, True, "run", "it is simulated, and nothing is spent"),
        ("2.01", "9", "2", False, "refuse", "it will likely cost $2.01, and the budget is $2.00"),
        ("2.01", "9", "2", True, "refuse", "it will likely cost $2.01, and the budget is $2.00"),
        ("2", "9", "2", False, "run", "at most it could cost $9.00, and the budget is $2.00: it may stop early"),
        ("1", "2", "2", False, "run", "even at most it should cost $2.00, and the budget is $2.00"),
    ],
)
def test_what_is_decided(likely: str, high: str, budget: str | None, simulated: bool, decision: str, why: str) -> None:
    limit = Decimal(budget) if budget is not None else None

    found = decision_for(estimate("0", likely, high), budget=limit, ask_above=Decimal("0.50"), simulated=simulated)

    assert (found.decision, found.why) == (decision, why)


@pytest.mark.parametrize(
    ("budget", "simulated", "decision"), [(None, False, "ask"), (None, True, "run"), ("2", False, "run")]
)
def test_tasks_that_an_agent_may_add_are_asked_about_where_no_budget_holds_them(
    budget: str | None, simulated: bool, decision: str
) -> None:
    limit = Decimal(budget) if budget is not None else None

    found = decision_for(
        estimate("0", "0.01", "1"), budget=limit, ask_above=Decimal("0.50"), simulated=simulated, unforeseen=4
    )

    assert found.decision == decision
    asked = "an agent may add up to 4 tasks to it (replan), and nobody knows yet what they will cost"
    assert (found.why == asked) == (decision == "ask")


@settings(deadline=None)
@given(spreads, st.none() | amounts, amounts, st.booleans())
def test_nothing_starts_unasked_that_will_likely_cost_more_than_is_allowed(
    usd: list[Decimal], budget: Decimal | None, ask_above: Decimal, simulated: bool
) -> None:
    found = decision_for(estimate(*usd), budget=budget, ask_above=ask_above, simulated=simulated).decision

    assert (found == "refuse") == (budget is not None and usd[1] > budget)
    assert (found == "ask") == (budget is None and not simulated and usd[1] > ask_above)


def test_an_unknown_cost_is_told_where_nothing_is_spent() -> None:
    unknown = estimate("0", "0", "0").model_copy(update={"usd": None, "unpriced": ("m",)})

    found = decision_for(unknown, budget=None, ask_above=Decimal(0), simulated=True)

    assert (found.decision, found.why) == ("run", "there is no price for 'm', and nothing is spent")


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        ("0", "$0.00"),
        ("1234.5", "$1,234.50"),
        ("1", "$1.00"),
        ("0.5", "$0.50"),
        ("0.05", "$0.050"),
        ("0.00123", "$0.0012"),
        ("0.0000004", "$0.00000040"),
    ],
)
def test_a_small_amount_keeps_two_digits_that_say_something(amount: str, text: str) -> None:
    assert dollars(Decimal(amount)) == text


@pytest.mark.parametrize(
    ("likely", "high", "call", "decision", "why"),
    [
        ("2.01", "9", "1", "refuse", "task 'a' will likely cost $2.01, and its budget_usd is $2.00"),
        (
            "1",
            "9",
            "2.01",
            "refuse",
            "one call of task 'a' may cost up to $2.01, and its budget_usd is $2.00: it could not start",
        ),
        (
            "2",
            "9",
            "1",
            "run",
            f"{NOTHING_SPENT}; at most task 'a' could cost $9.00, and its budget_usd is $2.00: {MAY_END}",
        ),
        ("1", "2", "1", "run", NOTHING_SPENT),
    ],
)
def test_a_cap_is_looked_at_as_a_budget_is(likely: str, high: str, call: str, decision: str, why: str) -> None:
    stake = Stake(whose="task 'a'", most=Decimal(2), likely=Decimal(likely), high=Decimal(high), call=Decimal(call))

    found = decision_for(estimate("0", "3", "9"), budget=None, ask_above=Decimal(1), simulated=True, stakes=[stake])

    assert (found.decision, found.why) == (decision, why)


def test_that_a_day_will_not_cover_it_is_told() -> None:
    found = decision_for(
        estimate("0", "3", "9"), budget=Decimal(9), ask_above=Decimal(1), simulated=False, daily=Decimal(2)
    )

    assert (found.decision, found.why.rpartition("; ")[2]) == (
        "run",
        "a day allows $2.00 (daily_usd): it will go on on another day",
    )
