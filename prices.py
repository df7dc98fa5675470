"""What models cost, from the price data that the library `genai-prices` brings along. Nothing is asked of a network.

The only file that knows that library: it takes a third of a second to load, so it is loaded when a price is wanted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from domain.models import Plan
from domain.prices import Price, PriceList, Rates, Tier

if TYPE_CHECKING:
    from genai_prices.types import ModelPrice, TieredPrices

PROVIDER = "anthropic"

WRITE_FACTOR, READ_FACTOR = Decimal("1.25"), Decimal("0.1")
"""What input costs that is written to the cache, or read from it, of what it costs without: the provider's published
factors, for a model whose own cache prices the data lacks."""

KINDS = ("input", "output", "cache_read", "cache_write")


def priced(plan: Plan, day: date | None = None) -> Plan:
    """The plan with the prices of its models pinned: what it is estimated, billed and reported with."""
    return plan.model_copy(update={"prices": price_list({agent.model for agent in plan.agents}, day)})


def price_list(models: Iterable[str], day: date | None = None) -> PriceList:
    """What these models cost on a day, by default today. A model that is not known is not in the list."""
    import genai_prices  # noqa: PLC0415  slow to load

    day = day or datetime.now(UTC).date()
    found = {model: price for model in sorted(set(models)) if (price := _price(model, day)) is not None}
    return PriceList(source=f"genai-prices {genai_prices.__version__}", date=_newest(day).isoformat(), models=found)


def _price(model: str, day: date) -> Price | None:
    from genai_prices import Usage, calc_price  # noqa: PLC0415

    at = datetime(day.year, day.month, day.day, tzinfo=UTC)
    try:
        standard = calc_price(Usage(), model, provider_id=PROVIDER, genai_request_timestamp=at).model_price
    except LookupError:
        return None
    rates = _rates(standard, 0)
    if rates is None:
        return None
    tiers = tuple(
        Tier(above=start, rates=dearer)
        for start in sorted(set(_starts(standard)))
        if (dearer := _rates(standard, start + 1)) is not None
    )
    return Price(**rates.model_dump(), tiers=tiers)


def _rates(standard: ModelPrice, tokens_in: int) -> Rates | None:
    """The rates of a request with so many tokens in; none for a model that is not billed by token."""
    told = {kind: _at(getattr(standard, f"{kind}_mtok", None), tokens_in) for kind in KINDS}
    if (into := told["input"]) is None or (out := told["output"]) is None:
        return None
    read, write = told["cache_read"], told["cache_write"]
    return Rates(
        input=into,
        output=out,
        cache_read=into * READ_FACTOR if read is None else read,
        cache_write=into * WRITE_FACTOR if write is None else write,
    )


def _at(price: Decimal | TieredPrices | None, tokens_in: int) -> Decimal | None:
    if price is None or isinstance(price, Decimal):
        return price
    passed = [tier.price for tier in price.tiers if tokens_in > tier.start]
    return passed[-1] if passed else price.base


def _starts(standard: ModelPrice) -> Iterator[int]:
    """From how many tokens in on one of the prices is another."""
    for kind in KINDS:
        price = getattr(standard, f"{kind}_mtok", None)
        if price is not None and not isinstance(price, Decimal):
            yield from (tier.start for tier in price.tiers)


def _newest(day: date) -> date:
    """The last day up to this one that the data names as the beginning of a price: as new as it is, for certain.

    The data carries no date of its own. The day of a run would say nothing of how old its prices are.
    """
    from genai_prices.data import providers  # noqa: PLC0415
    from genai_prices.types import ModelPrice, StartDateConstraint  # noqa: PLC0415

    models = [model for provider in providers for model in provider.models]
    constraints = [
        *(each.constraint for model in models if not isinstance(model.prices, ModelPrice) for each in model.prices),
        *(each.constraint for model in models for each in model.price_variants or []),
    ]
    starts = [found.start_date for found in constraints if isinstance(found, StartDateConstraint)]
    return max((start for start in starts if start <= day), default=day)
