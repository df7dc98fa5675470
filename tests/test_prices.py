"""What tokens cost: exact, never more than the worst case, and never nothing where nobody knows."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from fractions import Fraction

import pytest
from genai_prices import Usage as TheirUsage
from genai_prices import calc_price
from hypothesis import given
from hypothesis import strategies as st

from domain.models import Plan
from domain.prices import Price, PriceList, Rates, Tier, UnknownPrice, cost_of, money, worst_cost
from domain.values import Usage
from prices import price_list

DAY = date(2026, 10, 20)
OURS = ("claude-haiku-5-5", "claude-sonnet-5-5", "claude-opus-5-5", "claude-haiku-4-5")
HAIKU, SONNET = "claude-haiku-5-5", "claude-sonnet-5-5"
LIST = price_list(OURS, DAY)

tokens = st.integers(0, 2_000_000)
usages = st.builds(Usage, input=tokens, output=tokens, cache_read=tokens, cache_write=tokens)
models = st.sampled_from(OURS)
amounts = st.decimals(0, 1000, places=4)


def test_prices_are_those_of_the_provider() -> None:
    haiku, sonnet = LIST.price(HAIKU), LIST.price(SONNET)

    assert (haiku.input, haiku.output) == (Decimal("0.1"), Decimal("0.5"))
    assert [(tier.above, tier.rates.input, tier.rates.output) for tier in haiku.tiers] == [
        (100_000, Decimal("0.5"), Decimal("2.5"))
    ]
    assert (sonnet.input, sonnet.output) == (Decimal(2), Decimal(10))
    assert not sonnet.tiers
    assert LIST.label == "genai-prices 0.2.1, prices of 2026-10-20"


@given(models, usages, st.booleans())
def test_a_cost_is_what_the_library_says(model: str, usage: Usage, batched: bool) -> None:
    """To the last digit, with its tiers, its caches and its batches: our arithmetic is pure and theirs is not."""
    theirs = TheirUsage(
        input_tokens=usage.input + usage.cache_read + usage.cache_write,
        output_tokens=usage.output,
        cache_read_tokens=usage.cache_read,
        cache_write_tokens=usage.cache_write,
    )
    context = {"processing": "batch"} if batched else None

    expected = calc_price(theirs, model, provider_id="anthropic", price_context=context).total_price

    assert cost_of(LIST.price(model), usage, batched=batched) == expected


@given(models, usages, usages)
def test_no_request_costs_more_than_its_worst_case(model: str, usage: Usage, most: Usage) -> None:
    """Whichever part of its input was written to the cache, and whichever tier it fell into."""
    within = usage.input + usage.cache_read + usage.cache_write <= most.input and usage.output <= most.output
    price = LIST.price(model)

    assert cost_of(price, usage) <= worst_cost(price, usage)
    if within:
        assert cost_of(price, usage) <= worst_cost(price, Usage(input=most.input, output=most.output))


@given(st.builds(Rates, input=amounts, output=amounts, cache_read=amounts, cache_write=amounts), usages)
def test_a_cost_is_exact(rates: Rates, usage: Usage) -> None:
    price = Price(**rates.model_dump())
    parts = [(price.input, usage.input), (price.output, usage.output)]
    parts += [(price.cache_read, usage.cache_read), (price.cache_write, usage.cache_write)]

    exact = sum(Fraction(rate) * count / 1_000_000 for rate, count in parts)

    assert Fraction(cost_of(price, usage)) == exact


def test_a_long_prompt_is_dearer_from_its_first_token() -> None:
    haiku = LIST.price(HAIKU)

    at, above = (cost_of(haiku, Usage(input=count)) for count in (100_000, 100_001))

    assert (at, above) == (Decimal("0.01"), Decimal("0.0500005"))


def test_an_unknown_model_is_named_and_never_free() -> None:
    found = price_list(["claude-haiku-5-5", "gpt-9"], DAY)

    assert set(found.models) == {"claude-haiku-5-5"}
    with pytest.raises(UnknownPrice, match=r"'gpt-9' in genai-prices 0\.2\.1, prices of 2026-10-20"):
        found.price("gpt-9")
    with pytest.raises(UnknownPrice, match="gpt-9"):
        found.check(["claude-haiku-5-5", "gpt-9"])


@pytest.mark.parametrize(("amount", "text"), [("0", "0"), ("0.10", "0.1"), ("1E+2", "100"), ("0.0000001", "0.0000001")])
def test_an_amount_is_written_in_full(amount: str, text: str) -> None:
    assert money(Decimal(amount)) == text


@given(models, st.lists(st.integers(1, 10**6), unique=True, max_size=3))
def test_a_list_survives_its_way_through_a_document(model: str, starts: list[int]) -> None:
    price = LIST.price(model)
    rates = Rates(input=price.input, output=price.output, cache_read=price.cache_read, cache_write=price.cache_write)
    tiers = tuple(Tier(above=start, rates=rates) for start in sorted(starts))
    found = PriceList(source="s", date="2026-10-20", models={model: price.model_copy(update={"tiers": tiers})})

    assert PriceList.model_validate_json(found.model_dump_json()) == found


def test_a_plan_of_an_older_release_has_no_prices() -> None:
    plan = Plan.model_validate_json('{"name": "old", "max_concurrency": 4, "agents": [], "tasks": []}')

    assert plan.prices is None
