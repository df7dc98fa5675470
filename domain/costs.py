"""What a run has cost and saved, as its report tells it: in all, for attempts in vain, and by agent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import NamedTuple

from domain.prices import NOTHING, Price, PriceList, Usd, cost_of, spared_by_batch, spared_by_cache, worst_cost
from domain.values import Spent, Usage, Value


class Savings(Value):
    """What was not paid. Each is told by itself: without it, and all else the same, that much more would have been."""

    reuse_usd: Usd = NOTHING
    """What the results had cost that were taken over, where they were paid."""
    cache_usd: Usd = NOTHING
    """What reads from the prompt cache spared, less what the writes cost on top: below nothing if too few have read."""
    batches_usd: Usd = NOTHING
    """What requests in batches would have cost on top, each made at once."""

    def __add__(self, other: Savings) -> Savings:
        return Savings(
            reuse_usd=self.reuse_usd + other.reuse_usd,
            cache_usd=self.cache_usd + other.cache_usd,
            batches_usd=self.batches_usd + other.batches_usd,
        )


class Cost(Value):
    """The money of a run. What nobody knows the price of is none of these, and never nothing."""

    estimate_usd: Usd | None = None
    """What was likely, before anything was spent."""
    estimate_low_usd: Usd | None = None
    estimate_high_usd: Usd | None = None
    actual_usd: Usd | None = None
    """What the provider has told, at the prices of the submit."""
    retries_usd: Usd | None = None
    """What of it went to attempts in vain."""
    unsettled_usd: Usd | None = None
    """What attempts in vain may have cost on top, at most: nobody came to say."""
    savings: Savings | None = None
    reserved_usd: Usd = NOTHING
    """What is set aside for tasks at work."""
    budget_usd: Usd | None = None
    """For this run and those that it goes on from."""
    before_usd: Usd = NOTHING
    """What those have spent."""
    price_source: str | None = None
    unpriced: tuple[str, ...] = ()
    """Models of the plan that have no price."""


class AgentShare(Value):
    """What one agent has done and cost in a run."""

    agent: str
    model: str
    tasks: int = 0
    """Tasks that it was at work on."""
    answers: int = 0
    answered: int = 0
    """Tokens of those answers."""
    seconds: float = 0.0
    """What the work on them took, without waits."""
    tokens: Usage = Usage()
    cost_usd: Usd | None = None
    retries_usd: Usd | None = None
    unsettled_usd: Usd | None = None
    savings: Savings | None = None
    """With what its tasks had cost that were taken over: those are not among its tasks."""


class Charge(NamedTuple):
    """Calls at their price: what the provider told, what of it went to attempts in vain, what may come on top.

    And what was spared: by taking over, by the prompt cache, by batches.
    """

    actual: Decimal = NOTHING
    retries: Decimal = NOTHING
    unsettled: Decimal = NOTHING
    reuse: Decimal = NOTHING
    cache: Decimal = NOTHING
    batches: Decimal = NOTHING

    @property
    def savings(self) -> Savings:
        """What was spared."""
        return Savings(reuse_usd=self.reuse, cache_usd=self.cache, batches_usd=self.batches)

    def plus(self, other: Charge) -> Charge:
        """Both together."""
        return Charge(*(one + more for one, more in zip(self, other, strict=True)))


def charge_for(price: Price, usage: Usage, unsettled: Usage, *, in_vain: bool, batched: bool = False) -> Charge:
    """One call at its price. Each is charged by itself: a long prompt is dearer than many short ones."""
    cost = cost_of(price, usage, batched=batched)
    return Charge(
        actual=cost,
        retries=cost if in_vain else NOTHING,
        unsettled=worst_cost(price, unsettled, batched=batched),
        cache=spared_by_cache(price, usage, batched=batched),
        batches=spared_by_batch(price, usage) if batched else NOTHING,
    )


def charge_of_calls(prices: Mapping[str, Price], calls: Iterable[Spent]) -> Charge:
    """Calls in vain together, each at the price of its own model. What has no price counts for nothing."""
    charge = Charge()
    for call in calls:
        if (price := prices.get(call.model)) is not None:
            charge = charge.plus(charge_for(price, call.usage, call.unsettled, in_vain=True, batched=call.batched))
    return charge


class Bills:
    """What the tasks of a run have cost, each and all. With a model that has no price nobody can say."""

    def __init__(self, prices: PriceList | None, models: Mapping[str, str]) -> None:
        """`models` has the model of every task."""
        self._charges: dict[str, Charge] = {}
        self.adopt(prices, models)

    def adopt(self, prices: PriceList | None, models: Mapping[str, str]) -> None:
        """Go on with the tasks of another plan. What was charged stays."""
        self._known = known = prices.models if prices is not None else {}
        self._prices = {task: known[model] for task, model in models.items() if model in known}
        self._all: Charge | None = None
        if len(self._prices) == len(models):
            self._all = Charge()
            for charge in self._charges.values():
                self._all = self._all.plus(charge)

    def add(
        self,
        task: str,
        usage: Usage,
        unsettled: Usage,
        *,
        in_vain: bool,
        model: str | None = None,
        batched: bool = False,
    ) -> Charge:
        """One call of a task, to its own model or to another; what it is charged with, as far as there is a price."""
        price = self._known.get(model) if model is not None else self._prices.get(task)
        if price is None:
            return Charge()
        charge = charge_for(price, usage, unsettled, in_vain=in_vain, batched=batched)
        self.charge(task, charge)
        return charge

    def spare(self, task: str, worth: Decimal) -> None:
        """A result that was taken over, and what it had cost; less than nothing when it is done again after all."""
        self.charge(task, Charge(reuse=worth))

    def worth(self, task: str, usage: Usage) -> Decimal:
        """What an answer of a task is worth of which only the tokens are known."""
        price = self._prices.get(task)
        return cost_of(price, usage) if price is not None else NOTHING

    def charge(self, task: str, charge: Charge) -> None:
        """Calls of a task whose cost is known already."""
        self._charges[task] = self._charges.get(task, Charge()).plus(charge)
        self._all = self._all.plus(charge) if self._all is not None else None

    def of(self, task: str) -> Charge | None:
        """What one task has cost so far."""
        return self._charges.get(task, Charge()) if task in self._prices else None

    @property
    def all(self) -> Charge | None:
        """What the run has cost so far."""
        return self._all


def total(amounts: Iterable[Decimal | None]) -> Decimal | None:
    """The sum, or none when a part of it is not known."""
    whole = NOTHING
    for amount in amounts:
        if amount is None:
            return None
        whole += amount
    return whole
