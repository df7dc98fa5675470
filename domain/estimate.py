"""What a plan will cost and how long it will take, before anything is spent: low, likely, high.

Low is one short answer for every task. Likely is what its agents did before and, where they have not been at work yet,
a guess. High is what it comes to when every attempt is used and every answer is as long as it may be.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal
from typing import NamedTuple

from domain.asking_again import again_weight, corrections_of
from domain.cached import likely_usage
from domain.chart import Chart
from domain.costs import total
from domain.forecast import BYTES_PER_TOKEN, DENSE, Forecast, Level, Outlook, Spread, forecast_of
from domain.graph import in_order, needs_of
from domain.models import Latency, Pace, Plan, Task
from domain.open_estimate import estimate_of_open
from domain.prices import NOTHING, Price, Usd, cost_of, worst_cost
from domain.progress import outline_of
from domain.quota.terms import Measure, Terms, lane_of
from domain.reviewing import REVIEW_TOKENS, review_brief, reviewer_of, reviews_of
from domain.sizing import Layout
from domain.summarizing import SUMMARIZER_TOKENS, most_read, summarizer_for
from domain.values import Usage, Value
from domain.weighing import review_weight, weight


class TokenSpread(Value):
    """Tokens in and out."""

    input: Spread[int]
    output: Spread[int]


class TaskEstimate(Value):
    """One task: what it will use, cost and take."""

    id: str
    agent: str
    model: str
    usd: Spread[Usd] | None
    """None for a model without a price."""
    tokens: TokenSpread
    seconds: Spread[float]
    answers: int
    """How many earlier answers of its agent this rests on."""


class Estimate(Value):
    """A whole plan."""

    usd: Spread[Usd] | None
    """None when a model has no price."""
    tokens: TokenSpread
    seconds: Spread[float]
    """From start to end: the longest chain with the places and the quota there are, without waits for people."""
    tasks: tuple[TaskEstimate, ...]
    price_source: str | None
    unpriced: tuple[str, ...] = ()
    """Models without a price."""


def estimate_of(plan: Plan, outlook: Outlook) -> Estimate:
    """The estimate of a plan, with the prices that are pinned in it. Of a fan-out over a list to come, by its most."""
    if any(task.each is not None for task in plan.tasks):
        return estimate_of_open(plan, lambda one: _estimate_of(one, outlook))
    return _estimate_of(plan, outlook)


def _estimate_of(plan: Plan, outlook: Outlook) -> Estimate:
    agents = {agent.called: agent for agent in plan.agents}
    tasks = {task.id: task for task in plan.tasks}
    prices = plan.prices.models if plan.prices is not None else {}
    forecasts: dict[str, Forecast] = {}
    for id in in_order(needs_of(plan)):
        forecasts[id] = forecast_of(plan, tasks[id], agents[tasks[id].agent], forecasts, outlook)
    likely = likely_usage(plan, forecasts, outlook)
    found = tuple(
        TaskEstimate(
            id=id,
            agent=agents[task.agent].label,
            model=agents[task.agent].model,
            usd=_money(
                prices.get(agents[task.agent].model), task, forecasts[id], likely[id], _aside(plan, task, prices)
            ),
            tokens=_tokens(forecasts[id], task),
            seconds=forecasts[id].seconds,
            answers=forecasts[id].answers,
        )
        for id, task in tasks.items()
    )
    return Estimate(
        usd=_sum_of_money(found),
        tokens=TokenSpread(
            input=_sum([each.tokens.input for each in found]), output=_sum([each.tokens.output for each in found])
        ),
        seconds=_duration(plan, found, outlook.terms),
        tasks=found,
        price_source=plan.prices.label if plan.prices is not None else None,
        unpriced=tuple(sorted({*(each.model for each in found), *_reviewers(plan)} - prices.keys())),
    )


# Tokens and money


def without(estimate: Estimate, kept: Collection[str]) -> Estimate:
    """The estimate of what is left when these tasks are kept of an earlier run. Its time stays what it was."""
    if not kept:
        return estimate
    left = tuple(task for task in estimate.tasks if task.id not in kept)
    tokens = TokenSpread(
        input=_sum([task.tokens.input for task in left]), output=_sum([task.tokens.output for task in left])
    )
    return estimate.model_copy(update={"tasks": left, "tokens": tokens, "usd": _sum_of_money(left)})


def _tokens(one: Forecast, task: Task) -> TokenSpread:
    """Of all attempts, at most, each with all that may go back; the tokens of other agents are not in it."""
    calls = 1 + corrections_of(task)
    again = (calls - 1) * again_weight(task.max_tokens) // DENSE
    return TokenSpread(
        input=one.input.model_copy(update={"high": (one.input.high * calls + again) * task.attempts}),
        output=one.output.model_copy(update={"high": one.output.high * calls * task.attempts}),
    )


class Aside(NamedTuple):
    """What calls of others for a task will likely cost, and at most."""

    likely: Decimal
    high: Decimal


def _aside(plan: Plan, task: Task, prices: Mapping[str, Price]) -> Aside | None:
    """What a summary of a result may cost, if it takes a call of its own, and what its reviews will. None: no price."""
    likely = high = NOTHING
    if task.summarise:
        price = prices.get(summarizer_for(plan, task).model)
        if price is None:
            return None
        high += worst_cost(price, Usage(input=most_read(task) // DENSE, output=SUMMARIZER_TOKENS))
    if task.review is not None:
        price = prices.get(reviewer_of(plan, task).model)
        if price is None:
            return None
        read = weight(review_brief(plan, task, "")) // BYTES_PER_TOKEN + task.max_tokens // 2
        likely += cost_of(price, Usage(input=read, output=REVIEW_TOKENS // 5))
        high += reviews_of(task) * worst_cost(price, Usage(input=review_weight(plan, task), output=REVIEW_TOKENS))
    return Aside(likely, high)


def _reviewers(plan: Plan) -> set[str]:
    """The models of those who review."""
    return {reviewer_of(plan, task).model for task in plan.tasks if task.review is not None}


def _money(price: Price | None, task: Task, one: Forecast, likely: Usage, aside: Aside | None) -> Spread[Usd] | None:
    """What a task may cost. Who can wait pays half; at most it is counted as if nobody gave a discount."""
    if price is None or aside is None:
        return None
    batched = task.latency is Latency.RELAXED
    cost = cost_of(price, likely, batched=batched)
    short = cost_of(price, Usage(input=one.input.low, output=one.output.low), batched=batched)
    again = Usage(input=one.input.high + again_weight(task.max_tokens) // DENSE, output=one.output.high)
    worst = worst_cost(price, Usage(input=one.input.high, output=one.output.high))
    worst += corrections_of(task) * worst_cost(price, again) + aside.high
    return Spread[Usd](
        low=min(short, cost),
        likely=cost + aside.likely,
        high=worst * task.attempts,
    )


def _sum_of_money(found: Sequence[TaskEstimate]) -> Spread[Usd] | None:
    def of(level: Level) -> Decimal | None:
        return total(each.usd.at(level) if each.usd is not None else None for each in found)

    low, likely, high = of("low"), of("likely"), of("high")
    if low is None or likely is None or high is None:
        return None
    return Spread[Usd](low=low, likely=likely, high=high)


def _sum(spreads: Sequence[Spread[int]]) -> Spread[int]:
    return Spread[int](
        low=sum(each.low for each in spreads),
        likely=sum(each.likely for each in spreads),
        high=sum(each.high for each in spreads),
    )


# Time


def _duration(plan: Plan, found: Sequence[TaskEstimate], terms: Terms | None) -> Spread[float]:
    """As long as the longest chain takes with the places there are, or as long as the quota takes to let it through."""
    order = Chart(outline_of(plan)).order(None).ids
    places = min(plan.max_concurrency, len(plan.tasks)) or 1

    def of(level: Level) -> float:
        work = {each.id: each.seconds.at(level) for each in found}
        laid_out = Layout(needs_of(plan), order, work, waves=plan.mode is Pace.WAVES).takes(places)
        return round(max(laid_out, _through_the_quota(found, plan.tasks, terms, level)), 3)

    return Spread[float](low=of("low"), likely=of("likely"), high=of("high"))


def _through_the_quota(
    found: Sequence[TaskEstimate], tasks: Sequence[Task], terms: Terms | None, level: Level
) -> float:
    """Seconds until the limits have let all calls through. A part of the first minute is there at once."""
    if terms is None:
        return 0.0
    used: dict[tuple[str, Measure], int] = {}
    for each, task in zip(found, tasks, strict=True):
        amounts: dict[Measure, int] = {
            "requests": task.attempts * (1 + corrections_of(task)) if level == "high" else 1,
            "input_tokens": each.tokens.input.at(level),
            "output_tokens": each.tokens.output.at(level),
        }
        for measure, amount in amounts.items():
            place = lane_of(each.model), measure
            used[place] = used.get(place, 0) + amount
    waits = [0.0]
    for (lane, measure), amount in used.items():
        limits = terms.limits_for(lane)
        if limits is not None and (most := limits.of(measure)) is not None:
            minute = most * (1 - terms.headroom)
            waits.append(60 * (amount - minute * (limits.burst or 1.0)) / minute)
    return max(waits)
