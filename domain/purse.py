"""The purse of a run: before a task starts its worst case is set aside, and when it has ended what it cost is taken.

What is spent and what is set aside together never exceed the budget, so that no crash, no retry and no order of ends
can overspend it. Money is in `Decimal`; a model without a price has no place in a run with a budget.
"""

from __future__ import annotations

from decimal import Decimal

from domain import settling
from domain.chart import Chart
from domain.events import EventType
from domain.inputs import input_of
from domain.models import Account, Answered, Failed, Input, Outcome, Parked, Spent, Stopped, TaskStatus
from domain.prices import NOTHING, cost_of_calls, money, worst_cost
from domain.progress import Ended, Owed, Progress, Reserve, Told, Waiting
from domain.step import Draft
from domain.summaries import SUMMARIZER
from domain.summarizing import SUMMARIZER_TOKENS
from domain.timing import close_everything
from domain.values import Usage
from domain.weighing import heaviest

State = Progress | Draft

LOW = Decimal("0.2")
"""The part of a budget that is little: then people are told."""


# How much there is


def limit(chart: Chart, state: State) -> Decimal | None:
    """What the run may spend: as a person has set it since, or as the plan says."""
    return state.budget if state.budget is not None else chart.outline.budget


def committed(state: State) -> Decimal:
    """What is spent, by the runs before this one too, and what calls at work may still cost."""
    return state.before + state.spent + sum((held.usd for held in state.reserved.values()), NOTHING)


def left(chart: Chart, state: State) -> Decimal | None:
    """What may still be set aside; None: as much as it takes."""
    most = limit(chart, state)
    return None if most is None else most - committed(state)


# Before a task starts


def worst_call(chart: Chart, draft: State, id: str) -> Decimal | None:
    """What one call of a task can cost at most; None when its model has no price."""
    price = chart.price(id)
    if price is None:
        return None
    task = chart.tasks[id]
    tokens = heaviest(
        fixed=task.weight,
        files=task.files,
        inputs=[_weighed(need, draft.ended[need], as_summary=need in task.summaries) for need in task.needs],
        repeated=task.repeats,
        note=draft.notes.get(id),
    )
    return worst_cost(price, Usage(input=tokens, output=task.max_tokens)) + _worst_aside(chart, id)


def _worst_aside(chart: Chart, id: str) -> Decimal:
    """What the call for a summary can cost on top, where the result of a task goes down as one."""
    task = chart.tasks[id]
    price = chart.outline.prices.get(chart.outline.models.get(SUMMARIZER, chart.model(id)))
    if not task.aside or price is None:
        return NOTHING
    return worst_cost(price, Usage(input=task.aside, output=SUMMARIZER_TOKENS))


def _weighed(need: str, end: Ended, *, as_summary: bool) -> tuple[Input, int]:
    """What a task is given of a need, and its bytes."""
    input = input_of(need, end, as_summary=as_summary)
    return input, end.summary_size if input.whole is not None else end.size


def reserve(chart: Chart, draft: Draft, id: str) -> bool:
    """Set aside what a task may cost: all its attempts, or as many as fit, one at least. Whether that was possible."""
    if not chart.outline.counted or id in draft.reserved:  # it was in a batch, and comes for the answer
        return True
    worst = worst_call(chart, draft, id)
    wanted = max(1, chart.tasks[id].attempts - draft.used.get(id, 0))
    fitting = None if worst is None else _fitting(chart, draft, worst)
    granted = wanted if fitting is None else min(wanted, fitting)
    if not granted:
        return False
    draft.reserved[id] = Reserve(usd=(worst or NOTHING) * granted, attempts=granted)
    return True


def attempts(chart: Chart, progress: Progress, id: str) -> int:
    """The number of the last attempt that a task may make as things stand."""
    held = progress.reserved.get(id)
    most = chart.tasks[id].attempts
    return most if held is None else min(most, progress.used.get(id, 0) + held.attempts)


def cap(chart: Chart, progress: Progress, id: str) -> Decimal | None:
    """What the calls of a task may cost in this step: what is set aside now, and what its starts have told before."""
    held = progress.reserved.get(id)
    if held is None or chart.price(id) is None or limit(chart, progress) is None:
        return None
    return held.usd + progress.told.get(id, Told()).usd


def _fitting(chart: Chart, draft: Draft, worst: Decimal) -> int | None:
    """How many calls of this price fit into what is left; None: any number."""
    there = left(chart, draft)
    if there is None or (worst == 0 and there >= 0):
        return None
    return int(there // worst) if there > 0 else 0


# When it does not fit


def wait_for_money(chart: Chart, draft: Draft, id: str) -> None:
    """A task that does not fit waits until others have settled, or somebody has raised the budget."""
    worst, there = worst_call(chart, draft, id) or NOTHING, left(chart, draft) or NOTHING
    what = f"one call may cost up to ${money(worst)}, and ${money(max(there, NOTHING))} of the budget is left"
    draft.wave.pop(id, None)
    draft.probes_no_more(id)
    settling.park(draft, id, Waiting(why="budget", what=what, since=draft.now))


def short(state: State) -> list[str]:
    """The tasks that wait for money."""
    return [id for id, wait in state.parked.items() if wait.why == "budget"]


def is_awaited(chart: Chart, draft: Draft, id: str) -> bool:
    """Whether a task that waits for money may get it when all that is at work has settled."""
    most, worst = limit(chart, draft), worst_call(chart, draft, id)
    return most is None or worst is None or worst <= most - draft.before - draft.spent


def holds_up(chart: Chart, draft: Draft) -> bool:
    """Whether others must wait behind a task that waits for money."""
    return any(is_awaited(chart, draft, id) for id in short(draft))


def look_again(chart: Chart, draft: Draft) -> None:
    """Let those that waited for money stand in line again, in their order, as far as it reaches now."""
    waiting = short(draft)
    if not waiting:
        return
    there = left(chart, draft)
    for id in sorted(waiting, key=chart.order(draft.started).rank.__getitem__):
        worst = worst_call(chart, draft, id) or NOTHING
        if there is not None:
            if worst > there:
                if draft.active and is_awaited(chart, draft, id):
                    return  # nobody passes the first: what is at work will settle
                continue
            there -= worst
        del draft.parked[id]
        settling.make_ready(chart, draft, id)


def is_broke(chart: Chart, draft: Draft) -> bool:
    """Whether nothing is at work, nothing can start, and nothing but money is awaited."""
    stuck = bool(draft.parked) and not draft.active and not any(draft.ready.values())
    if draft.owing or chart.outline.on_budget != "stop":  # what is owed may be less than what counts for it now
        return False
    return stuck and all(wait.why == "budget" for wait in draft.parked.values())


def stop(chart: Chart, draft: Draft) -> None:
    """The money does not reach for anything that is left: the run ends here, and keeps what it has."""
    draft.broke = True
    most = limit(chart, draft) or NOTHING
    reason = f"the budget of ${money(most)} does not cover it"
    draft.tell(EventType.BUDGET_STOPPED, **_figures(chart, draft))
    close_everything(draft)
    for task in chart.outline.tasks:
        if task.id in draft.ended:
            continue
        status = TaskStatus.CANCELLED if task.id in draft.begun else TaskStatus.NOT_STARTED
        draft.ended[task.id] = Ended(status=status, why=reason)
        draft.close_account(task.id)
        draft.tell(EventType.TASK_SKIPPED, task.id, status=status, reason=reason, cause=None)


# When a task has ended


def settle(chart: Chart, draft: Draft, id: str, outcome: Outcome) -> None:
    """Take what a start of a task has cost; the rest of what was set aside is free again.

    A start that cannot tell of all its calls counts at its worst case until the ledger was asked.
    """
    held = draft.reserved.pop(id, None)
    if held is None:
        return
    calls = calls_of(chart.model(id), outcome)
    if isinstance(outcome, Parked) and outcome.why == "batch":
        _keep_aside(chart, draft, id, held, calls)
        return
    whole = not isinstance(outcome, Stopped) and outcome.accounted
    cost = cost_of_calls(chart.outline.prices, calls) if whole else held.usd
    draft.spent += cost
    draft.told[id] = draft.told.get(id, Told()) + Told.of(cost, calls, loose=not whole)
    _tell_when_low(chart, draft)


def _keep_aside(chart: Chart, draft: Draft, id: str, held: Reserve, calls: tuple[Spent, ...]) -> None:
    """A request in a batch may be answered in a day: what it may cost stays set aside, but for what is told already."""
    cost = cost_of_calls(chart.outline.prices, calls)
    draft.reserved[id] = held.model_copy(update={"usd": held.usd - cost})
    if cost:
        draft.spent += cost
        draft.told[id] = draft.told.get(id, Told()) + Told.of(cost, calls)


def settle_from_ledger(chart: Chart, draft: Draft, owed: Owed, account: Account) -> None:
    """The ledger was asked about a task that could not tell: what its calls have cost replaces what was counted."""
    if owed not in draft.owing:
        return  # asked twice
    draft.owing.remove(owed)
    cost = cost_of_calls(chart.outline.prices, account.calls)
    untold = Told.of(cost, account.calls) - owed.told
    draft.spent += untold.usd
    draft.usage += untold.usage
    draft.tell(
        EventType.TASK_SETTLED,
        owed.task,
        attempts=account.attempts,
        tokens=untold.usage.model_dump(),
        unsettled=untold.unsettled.model_dump(),
        output_ref=account.output_ref,
        output_bytes=account.output_bytes,
    )


def step_of(state: State, id: str) -> int:
    """Which step a task is in: another one each time that a person has it done again."""
    return 1 + state.rounds.get(id, 0)


def calls_of(model: str, outcome: Outcome) -> tuple[Spent, ...]:
    """The calls that an outcome tells of."""
    if isinstance(outcome, Stopped):
        return ()
    tries = (Spent(model=each.model or model, usage=each.usage, unsettled=each.unsettled) for each in outcome.tries)
    match outcome:
        case Answered():
            return (*tries, Spent(model=model, usage=outcome.usage, batched=outcome.batched), *outcome.aside)
        case Failed():
            last = Spent(model=model, usage=outcome.usage, unsettled=outcome.unsettled, batched=outcome.batched)
            return (*tries, last)
    return tuple(tries)


def _tell_when_low(chart: Chart, draft: Draft) -> None:
    """Say so, once, when little of the budget is left."""
    most = limit(chart, draft)
    if most is None or draft.low or most - draft.before - draft.spent > most * LOW:
        return
    draft.low = True
    draft.tell(EventType.BUDGET_LOW, **_figures(chart, draft))


def _figures(chart: Chart, draft: Draft) -> dict[str, str]:
    return {
        "budget_usd": money(limit(chart, draft) or NOTHING),
        "spent_usd": money(draft.before + draft.spent),
        "reserved_usd": money(sum((held.usd for held in draft.reserved.values()), NOTHING)),
    }
