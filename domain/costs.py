"""What a run has cost, as its report tells it: in all, for attempts in vain, and by agent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import NamedTuple

from domain.prices import NOTHING, Price, PriceList, Usd, cost_of, worst_cost
from domain.values import Usage, Value


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
    unsettled_usd: Usd | None = None


class Charge(NamedTuple):
    """Calls at their price: what the provider told, what of it went to attempts in vain, what may come on top."""

    actual: Decimal = NOTHING
    retries: Decimal = NOTHING
    unsettled: Decimal = NOTHING

    def plus(self, other: Charge) -> Charge:
        """Both together."""
        return Charge(*(one + more for one, more in zip(self, other, strict=True)))


def charge_for(price: Price, usage: Usage, unsettled: Usage, *, in_vain: bool, batched: bool = False) -> Charge:
    """One call at its price. Each is charged by itself: a long prompt is dearer than many short ones."""
    cost = cost_of(price, usage, batched=batched)
    return Charge(cost, cost if in_vain else NOTHING, worst_cost(price, unsettled))


class Bills:
    """What the tasks of a run have cost, each and all. With a model that has no price nobody can say."""

    def __init__(self, prices: PriceList | None, models: Mapping[str, str]) -> None:
        """`models` has the model of every task."""
        self._known = known = prices.models if prices is not None else {}
        self._prices = {task: known[model] for task, model in models.items() if model in known}
        self._charges: dict[str, Charge] = {}
        self._all: Charge | None = Charge() if len(self._prices) == len(models) else None

    def add(
        self,
        task: str,
        usage: Usage,
        unsettled: Usage,
        *,
        in_vain: bool,
        model: str | None = None,
        batched: bool = False,
    ) -> None:
        """One call of a task, to its own model or to another."""
        price = self._known.get(model) if model is not None else self._prices.get(task)
        if price is None:
            return
        charge = charge_for(price, usage, unsettled, in_vain=in_vain, batched=batched)
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
