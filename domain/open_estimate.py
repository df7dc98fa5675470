"""What a plan will cost whose fan-outs are over lists that nobody has made yet: with one item, with some, with all.

At least there is one item; likely a third of what is taken at most; at most all of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from domain.forecast import Spread
from domain.items import expanded
from domain.models import Plan
from domain.prices import NOTHING

if TYPE_CHECKING:
    from domain.estimate import Estimate, TaskEstimate, TokenSpread

LIKELY = 3
"""The part of the most items that a list will likely have: one in so many."""


def estimate_of_open(plan: Plan, estimate: Callable[[Plan], Estimate]) -> Estimate:
    """The estimate of such a plan, made of those of three plans that it may become."""
    plans = [_with_items(plan, count) for count in (lambda _: 1, lambda most: -(-most // LIKELY), lambda most: most)]
    few, some, many = map(estimate, plans)
    found = [_by_fan(one, of) for one, of in zip(plans, (few, some, many), strict=True)]
    return many.model_copy(
        update={
            "usd": _money(few.usd, some.usd, many.usd),
            "tokens": _tokens(few.tokens, some.tokens, many.tokens),
            "seconds": _spread(few.seconds, some.seconds, many.seconds),
            "tasks": tuple(_task(id, *(each.get(id) for each in found)) for id in found[2]),
        }
    )


def _with_items(plan: Plan, count: Callable[[int], int]) -> Plan:
    """The plan as it may become, with so many items of as many as are taken at most."""
    most: dict[str, int] = {}
    for task in plan.tasks:
        if task.each is not None:
            most[task.each.source] = min(task.each.most, most.get(task.each.source, task.each.most))
    for source, number in most.items():
        items = [f"item {place} of the list, in some words" for place in range(count(number))]
        plan, _ = expanded(plan, source, json.dumps(items))
    return plan


def _by_fan(plan: Plan, estimate: Estimate) -> dict[str, TaskEstimate]:
    """The tasks of an estimate, those of a fan-out together."""
    fans = {task.id: task.fan for task in plan.tasks}
    members: dict[str, list[TaskEstimate]] = {}
    for each in estimate.tasks:
        members.setdefault(fans.get(each.id) or each.id, []).append(each)
    return {id: _together(id, parts) for id, parts in members.items()}


def _together(id: str, parts: list[TaskEstimate]) -> TaskEstimate:
    if len(parts) == 1:
        return parts[0].model_copy(update={"id": id})
    costs = [part.usd for part in parts if part.usd is not None]
    tokens = {name: _sum([getattr(part.tokens, name) for part in parts], 0) for name in ("input", "output")}
    return parts[0].model_copy(
        update={
            "id": id,
            "usd": _sum(costs, NOTHING) if len(costs) == len(parts) else None,
            "tokens": parts[0].tokens.model_copy(update=tokens),
        }
    )


def _task(id: str, few: TaskEstimate | None, some: TaskEstimate | None, many: TaskEstimate | None) -> TaskEstimate:
    """One task, or all of a fan-out. A merge in levels may be there with many items alone."""
    found = next(each for each in (many, some, few) if each is not None)
    nothing = _nothing(found)
    low, likely, high = few or nothing, some or nothing, many or nothing
    return found.model_copy(
        update={
            "id": id,
            "usd": _money(low.usd, likely.usd, high.usd),
            "tokens": _tokens(low.tokens, likely.tokens, high.tokens),
            "seconds": _spread(low.seconds, likely.seconds, high.seconds),
        }
    )


def _nothing(like: TaskEstimate) -> TaskEstimate:
    none: Mapping[str, Any] = {"low": 0, "likely": 0, "high": 0}
    tokens = {name: getattr(like.tokens, name).model_copy(update=none) for name in ("input", "output")}
    usd = like.usd.model_copy(update=dict.fromkeys(none, NOTHING)) if like.usd is not None else None
    return like.model_copy(
        update={
            "usd": usd,
            "tokens": like.tokens.model_copy(update=tokens),
            "seconds": like.seconds.model_copy(update=dict.fromkeys(none, 0.0)),
        }
    )


def _money(few: Spread[Any] | None, some: Spread[Any] | None, many: Spread[Any] | None) -> Spread[Any] | None:
    return None if few is None or some is None or many is None else _spread(few, some, many)


def _tokens(few: TokenSpread, some: TokenSpread, many: TokenSpread) -> TokenSpread:
    update = {
        name: _spread(getattr(few, name), getattr(some, name), getattr(many, name)) for name in ("input", "output")
    }
    return many.model_copy(update=update)


def _spread(few: Spread[Any], some: Spread[Any], many: Spread[Any]) -> Spread[Any]:
    return many.model_copy(update={"low": few.low, "likely": some.likely})


def _sum(spreads: list[Spread[Any]], nothing: Decimal | int) -> Spread[Any]:
    totals = {level: sum((getattr(each, level) for each in spreads), nothing) for level in ("low", "likely", "high")}
    return spreads[0].model_copy(update=totals)
