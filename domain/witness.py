"""What a run tells of the calls of its tasks: one event for each request to a provider, and no more than one.

A task tells of its calls when a start of it is over, or the ledger is asked when it could not. The same request may be
told of by both: what was told is remembered until the task and its account are closed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pydantic import JsonValue

from domain.calls import Call
from domain.chart import Chart
from domain.costs import charge_for
from domain.events import EventType, timestamp
from domain.models import Account, Answered, Outcome, Stopped, Usage
from domain.prices import Price, money
from domain.progress import Owed, Told
from domain.step import Draft

ANSWERED = "+"
"""After the key of a call that was told of as answered."""


def hear(chart: Chart, draft: Draft, id: str, outcome: Outcome) -> None:
    """A start of a task is over: tell of the calls that it tells of."""
    calls = calls_of(outcome, chart.model(id))
    if not calls:
        return
    told = draft.told.get(id, Told())
    known = _tell(chart, draft, id, calls, told.calls, step=1 + draft.rounds.get(id, 0))
    draft.told[id] = told.model_copy(update={"calls": known})


def calls_of(outcome: Outcome, model: str) -> tuple[Call, ...]:
    """The calls that an outcome tells of, each with all that is known of it."""
    if not isinstance(outcome, Answered):
        return () if isinstance(outcome, Stopped) else outcome.calls
    known = {"model": model, "usage": outcome.usage, "answer": outcome.output_ref, "attempt": outcome.attempts}
    return tuple(call.model_copy(update=known) if call.is_told_beside else call for call in outcome.calls)


def hear_the_ledger(chart: Chart, draft: Draft, owed: Owed, account: Account) -> None:
    """The ledger was asked about a task that could not tell: tell of the calls that nobody has told of."""
    _tell(chart, draft, owed.task, account.requests, owed.told.calls, step=owed.step)


def _tell(
    chart: Chart, draft: Draft, id: str, calls: Iterable[Call], known: Iterable[str], *, step: int
) -> tuple[str, ...]:
    """Tell of those that were not told of; the keys of all that are known then.

    One that was told of as lost, and was answered after all, is told of once more: that it amends what was said.
    """
    keys = dict.fromkeys(known)
    for call in calls:
        key = f"{call.key}{ANSWERED}" if call.answer is not None else call.key
        if key in keys or f"{call.key}{ANSWERED}" in keys:
            continue
        late: dict[str, JsonValue] = {"amends": True} if call.key in keys else {}
        keys[key] = None
        draft.tell(EventType.CALL_MADE, id, **call_data(call, chart.outline.prices, step), **late)
    return tuple(keys)


def call_data(call: Call, prices: Mapping[str, Price], step: int) -> dict[str, JsonValue]:
    """What the event of a call says: names, figures and hashes."""
    price, in_vain = prices.get(call.model), call.answer is None
    charge = price and charge_for(price, call.usage, call.unsettled, in_vain=in_vain, batched=call.batched)
    found: dict[str, JsonValue] = {
        "agent": call.agent,
        "model": call.model,
        "step": step,
        "attempt": call.attempt,
        "request": call.number,
        "at": timestamp(call.at),
        "tokens": call.usage.model_dump(),
        "cost_usd": money(charge.actual) if charge else None,
        "prompt": call.prompt,
        "answer": call.answer,
    }
    if call.unsettled != Usage():
        found["unsettled"] = call.unsettled.model_dump()
        found["unsettled_usd"] = money(charge.unsettled) if charge else None
    more: dict[str, JsonValue] = {"error": call.error, "reads": call.reads, "batched": call.batched}
    return found | {name: value for name, value in more.items() if value}
