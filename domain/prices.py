"""What tokens cost: prices as a run was shown them, and the exact arithmetic over them. Money is never a float."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Annotated

from pydantic import Field, PlainSerializer

from domain.values import Spent, Usage, Value

MILLION = 1_000_000
NOTHING = Decimal(0)

BATCH_FACTOR = Decimal("0.5")
"""What a batch costs of the same call made at once."""

Rate = Annotated[Decimal, Field(ge=0)]
"""US dollars per million tokens."""


def money(amount: Decimal) -> str:
    """An amount as documents carry it: exact, without an exponent and without zeros that say nothing."""
    return f"{amount.normalize():f}" if amount else "0"


Usd = Annotated[Decimal, PlainSerializer(money, return_type=str, when_used="json")]
"""US dollars. In documents a string: whoever reads it as a number would round it."""


class UnknownPrice(LookupError):
    """Nobody knows what a model costs. That is never nothing."""

    def __init__(self, models: Iterable[str], source: str) -> None:
        self.models = tuple(sorted(models))
        names = ", ".join(map(repr, self.models))
        super().__init__(f"there is no price for the model {names} in {source}")


class Rates(Value):
    """US dollars per million tokens of each kind."""

    input: Rate
    output: Rate
    cache_read: Rate
    cache_write: Rate

    def of(self, usage: Usage) -> Decimal:
        """What these tokens cost."""
        return (
            self.input * usage.input
            + self.output * usage.output
            + self.cache_read * usage.cache_read
            + self.cache_write * usage.cache_write
        ) / MILLION


class Tier(Value):
    """A long prompt is dearer: with more tokens in than this, all tokens of the request have other rates."""

    above: int
    rates: Rates


class Price(Rates):
    """What a model costs."""

    tiers: tuple[Tier, ...] = ()
    """For long prompts, the shortest first."""
    batch_factor: Decimal = BATCH_FACTOR

    def rates_for(self, tokens_in: int) -> Rates:
        """The rates of a request with so many tokens in, from the cache or not."""
        passed = [tier.rates for tier in self.tiers if tokens_in > tier.above]
        return passed[-1] if passed else self


class PriceList(Value):
    """The prices of some models, where they come from, and of which day they are."""

    source: str
    date: str
    models: dict[str, Price] = Field(default_factory=dict)

    @property
    def label(self) -> str:
        """Source and day, as reports show them."""
        return f"{self.source}, prices of {self.date}"

    def price(self, model: str) -> Price:
        """What a model costs."""
        if model not in self.models:
            raise UnknownPrice([model], self.label)
        return self.models[model]

    def check(self, models: Iterable[str]) -> None:
        """Refuse when one of these has no price: where money is limited, nothing unknown is spent."""
        if missing := set(models) - self.models.keys():
            raise UnknownPrice(missing, self.label)


def cost_of(price: Price, usage: Usage, *, batched: bool = False) -> Decimal:
    """What one request with this usage costs, exactly.

    The tokens of several requests are not one request: a long prompt is dearer, and many short ones are not.
    """
    cost = price.rates_for(usage.input + usage.cache_read + usage.cache_write).of(usage)
    return cost * price.batch_factor if batched else cost


def spared_by_cache(price: Price, usage: Usage, *, batched: bool = False) -> Decimal:
    """What the same request would have cost on top if nothing were read from a cache or written to one.

    Below nothing where it wrote and read too little: a write is dearer than plain input.
    """
    tokens_in = usage.input + usage.cache_read + usage.cache_write
    uncached = Usage(input=tokens_in, output=usage.output)
    return cost_of(price, uncached, batched=batched) - cost_of(price, usage, batched=batched)


def spared_by_batch(price: Price, usage: Usage) -> Decimal:
    """What the request of a batch would have cost on top if it had been made at once."""
    return cost_of(price, usage) - cost_of(price, usage, batched=True)


def worst_cost(price: Price, usage: Usage, *, batched: bool = False) -> Decimal:
    """What a request with at most so many tokens in and out can cost, however they come to be counted.

    Whether input is written to the cache is for the provider to say, and which tier a prompt falls into is known only
    when its tokens have been counted: so the dearest rate counts, whatever it is for.
    """
    rates: tuple[Rates, ...] = (price, *(tier.rates for tier in price.tiers))
    dearest_in = max(max(each.input, each.cache_read, each.cache_write) for each in rates)
    dearest_out = max(each.output for each in rates)
    tokens_in = usage.input + usage.cache_read + usage.cache_write
    cost = (dearest_in * tokens_in + dearest_out * usage.output) / MILLION
    return cost * price.batch_factor if batched else cost


def cost_of_calls(prices: Mapping[str, Price], calls: Iterable[Spent]) -> Decimal:
    """What these calls have cost; those of which nobody told the end count at their worst case."""
    return sum((_cost(prices.get(call.model), call) for call in calls), NOTHING)


def _cost(price: Price | None, call: Spent) -> Decimal:
    if price is None:
        return NOTHING  # nobody limits what has no price: a budget is not let in without one
    if call.unsettled == Usage():
        return cost_of(price, call.usage, batched=call.batched)
    return worst_cost(price, call.usage + call.unsettled, batched=call.batched)
