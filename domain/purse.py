"""The purse of a run: before a task starts its worst case is set aside, and when it has ended what it cost is taken.

What is spent and what is set aside together never exceed the budget, so that no crash, no retry and no order of ends
can overspend it. Money is in `Decimal`; a model without a price has no place in a run with a budget.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

from domain import caps, settling, witness
from domain.asking_again import again_weight
from domain.caps import Cap
from domain.chart import Chart
from domain.events import EventType
from domain.inputs import input_of
from domain.models import Account, Answered, Failed, Form, Input, Outcome, Parked, Spent, Stopped, TaskError, TaskStatus
from domain.prices import NOTHING, money, worst_cost
from domain.progress import Ended, OutlineTask, Owed, Progress, Reserve, Told, Waiting
from domain.reviewing import REVIEW_TOKENS
from domain.step import Draft
from domain.summaries import SUMMARIZER
from domain.summarizing import SUMMARIZER_TOKENS
from domain.timing import close_everything
from domain.values import Usage
from domain.weighing import heaviest

State = Progress | Draft

LOW = Decimal("0.2")
"""The part of a budget that is little: then people are told."""

TOO_DEAR = "PlanTooDear"
"""What the error of a planner is called that proposes nothing that the budget reaches for."""


# How much there is


def limit(chart: Chart, state: State) -> Decimal | None:
    """What the run may spend: as a person has set it since, or as the plan says."""
    return state.budget if state.budget is not None else chart.outline.budget


def committed(state: State) -> Decimal:
    """What is spent, by the runs before this one too, and what calls at work may still cost."""
    return state.before + state.spent + reserved(state)


def reserved(state: State) -> Decimal:
    """What calls at work, and those in a batch, may still cost."""
    return sum((held.usd for held in state.reserved.values()), NOTHING)


def left(chart: Chart, state: State, part: str | None = None) -> Decimal | None:
    """What may still be set aside for a task, of the whole or of a plan inside it; None: as much as it takes."""
    most = limit(chart, state)
    if most is None:
        return None
    there = most - committed(state)
    return there - caps.set_aside(chart, state, there, but=part)


def has_its_own(chart: Chart, state: Draft, id: str, promised: Mapping[str, Decimal] = caps.NO_PROMISES) -> bool:
    """Whether a task is covered by what is set aside for its plan inside the plan: it takes nothing from others."""
    part, most = chart.tasks[id].part, limit(chart, state)
    if part is None or part not in state.parts or most is None:
        return False
    share = caps.shares(chart, state, most - committed(state)).get(part)
    worst = worst_call(chart, state, id)
    return share is not None and worst is not None and worst <= share - promised.get(caps.of_plan(part), NOTHING)


# Before a task starts


def worst_call(chart: Chart, draft: State, id: str) -> Decimal | None:
    """What one attempt at a task can cost at most, with all calls that belong to it; None when a model has no price."""
    inputs = [_weighed(need, draft.ended[need], form) for need, form in chart.tasks[id].forms.items()]
    return _worst_of(chart, id, inputs, draft.notes.get(id))


def least_call(chart: Chart, id: str) -> Decimal | None:
    """The same, before the results of others are put into it."""
    return _worst_of(chart, id, [], None)


def _worst_of(chart: Chart, id: str, inputs: list[tuple[Input, int]], note: str | None) -> Decimal | None:
    task, price = chart.tasks[id], chart.price(id)
    if price is None:
        return None
    tokens = heaviest(fixed=task.weight, files=task.files, inputs=inputs, repeated=task.repeats, note=note)
    again = Usage(input=tokens + again_weight(task.max_tokens), output=task.max_tokens)
    reviews = _worst_reviews(chart, task)
    if reviews is None:
        return None
    first = worst_cost(price, Usage(input=tokens, output=task.max_tokens))
    return first + task.corrections * worst_cost(price, again) + reviews + _worst_aside(chart, id)


def _worst_reviews(chart: Chart, task: OutlineTask) -> Decimal | None:
    """What all reviews of its answers can cost at most; None when the model of the reviewer has no price."""
    if task.reviewer is None:
        return NOTHING
    price = chart.outline.prices.get(chart.outline.models.get(task.reviewer, task.reviewer))
    if price is None:
        return None
    return task.reviews * worst_cost(price, Usage(input=task.review, output=REVIEW_TOKENS))


def _worst_aside(chart: Chart, id: str) -> Decimal:
    """What the call for a summary can cost on top, where the result of a task goes down as one."""
    task = chart.tasks[id]
    price = chart.outline.prices.get(chart.outline.models.get(SUMMARIZER, chart.model(id)))
    if not task.aside or price is None:
        return NOTHING
    return worst_cost(price, Usage(input=task.aside, output=SUMMARIZER_TOKENS))


def _weighed(need: str, end: Ended, form: Form) -> tuple[Input, int]:
    """What a task is given of a need, and its bytes."""
    input = input_of(need, end, form)
    if form is Form.NAME:
        return input, 0
    return input, end.summary_size if input.whole is not None else end.size


def reserve(chart: Chart, draft: Draft, id: str) -> bool:
    """Set aside what a task may cost: all its attempts, or as many as fit, one at least. Whether that was possible."""
    if not chart.outline.counted or id in draft.reserved:  # it was in a batch, and comes for the answer
        return True
    worst = worst_call(chart, draft, id)
    wanted = max(1, chart.tasks[id].attempts - draft.used.get(id, 0))
    fitting = None if worst is None else _fitting(chart, draft, id, worst)
    granted = wanted if fitting is None else min(wanted, fitting)
    if not granted:
        return False
    usd, under = worst or NOTHING, caps.names(chart, id)
    draft.reserved[id] = Reserve(usd=usd * granted, attempts=granted, call=usd, caps=under)
    return True


def attempts(chart: Chart, progress: Progress, id: str) -> int:
    """The number of the last attempt that a task may make as things stand."""
    held = progress.reserved.get(id)
    most = chart.tasks[id].attempts
    return most if held is None else min(most, progress.used.get(id, 0) + held.attempts)


def cap(chart: Chart, progress: Progress, id: str) -> Decimal | None:
    """What the calls of a task may cost in this step: what is set aside now, and what its starts have told before."""
    held = progress.reserved.get(id)
    if held is None or chart.price(id) is None or (limit(chart, progress) is None and not held.caps):
        return None
    return held.usd + progress.told.get(id, Told()).usd


def _fitting(chart: Chart, draft: Draft, id: str, worst: Decimal) -> int | None:
    """How many calls of this price fit into what is left, of the budget and of every cap; None: any number."""
    lefts = [left(chart, draft, chart.tasks[id].part), *(cap.left for cap in caps.of(chart, draft, id))]
    there = min((each for each in lefts if each is not None), default=None)
    if there is None or (worst == 0 and there >= 0):
        return None
    return int(there // worst) if there > 0 else 0


# When it does not fit


def turn_away(chart: Chart, draft: Draft, id: str) -> None:
    """A task that does not fit waits until others have settled, or somebody has raised the budget.

    When its own cap, or that of its agent, will never cover it, it ends here: the run goes on without it.
    """
    worst = worst_call(chart, draft, id) or NOTHING
    draft.wave.pop(id, None)
    draft.probes_no_more(id)
    cap = caps.lacking(chart, draft, id, worst)
    if cap is not None and cap.never_covers(worst):
        _end_uncovered(chart, draft, id, cap.says(worst))
    else:
        _wait(chart, draft, id, cap, worst)


def _wait(chart: Chart, draft: Draft, id: str, cap: Cap | None, worst: Decimal) -> None:
    """Let a task wait for the money of a cap, or of the run."""
    there = max(left(chart, draft, chart.tasks[id].part) or NOTHING, NOTHING)
    what = f"one call may cost up to ${money(worst)}, and ${money(there)} of the budget is left"
    if cap is not None:
        what = cap.says(worst)
    settling.park(draft, id, Waiting(why="budget", what=what, since=draft.now, cap=cap.name if cap else None))


def _end_uncovered(chart: Chart, draft: Draft, id: str, what: str) -> None:
    """End a task whose cap is used up, or too small for one call."""
    why = f"{what}: give it a higher budget_usd, and start the plan with --reuse"
    error = TaskError(type="NotCovered", message=why, attempt=draft.used.get(id, 0))
    end = Ended(status=TaskStatus.FAILED, why=why, cause=id)
    settling.end(chart, draft, id, end, attempts=error.attempt, error=error.model_dump())


def short(state: State) -> list[str]:
    """The tasks that wait for money of the run or of a cap; not those that wait for another day."""
    return [id for id, wait in state.parked.items() if wait.why == "budget" and wait.until is None]


def is_in_the_way(chart: Chart, state: State, id: str) -> bool:
    """Whether a task that waits for money keeps another one from starting."""
    concerned = {None, *caps.names(chart, id)}
    return any(state.parked[other].cap in concerned for other in short(state))


def is_awaited(chart: Chart, draft: Draft, id: str) -> bool:
    """Whether a task that waits for money of the run may get it when all that is at work has settled."""
    if id not in draft.parked or draft.parked[id].cap is not None:
        return False
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
    given = NOTHING
    promised: dict[str, Decimal] = {}
    stuck: set[str] = set()
    held_up = False
    for id in sorted(waiting, key=chart.order(draft.started).rank.__getitem__):
        if held_up and chart.tasks[id].part not in draft.parts:
            continue  # it has nothing of its own, and need not be weighed: thousands may wait
        worst = worst_call(chart, draft, id) or NOTHING
        under = caps.names(chart, id)
        its_own = has_its_own(chart, draft, id, promised)
        if not stuck.isdisjoint(under) or (held_up and not its_own):
            continue  # nobody passes the first that waits for a cap, or for money that what is at work will settle
        if (cap := caps.lacking(chart, draft, id, worst, promised)) is not None:
            stuck |= _look_at_cap(chart, draft, id, cap, worst)
            continue
        there = left(chart, draft, chart.tasks[id].part)
        if there is not None and not its_own:
            if worst > there - given:
                if draft.parked[id].cap is not None:
                    _wait(chart, draft, id, None, worst)
                held_up = bool(draft.active) and is_awaited(chart, draft, id)
                continue
            given += worst
        promised |= {name: promised.get(name, NOTHING) + worst for name in under}
        del draft.parked[id]
        settling.make_ready(chart, draft, id)


def _look_at_cap(chart: Chart, draft: Draft, id: str, cap: Cap, worst: Decimal) -> set[str]:
    """A task that waits for money is not covered by a cap: it waits for that, or ends. Where others wait behind it."""
    if cap.never_covers(worst):
        del draft.parked[id]
        _end_uncovered(chart, draft, id, cap.says(worst))
        return set()
    if draft.parked[id].cap != cap.name:
        _wait(chart, draft, id, cap, worst)
    return {cap.name}


def lets_go(chart: Chart, draft: Draft) -> bool:
    """Where nothing but money is awaited, no plan inside keeps any for later. Whether there was such a one.

    Its tasks may need some outside that a person has done again: these would wait for it, and it for them. It begins
    once more with its next start.
    """
    if not draft.parts or not _awaits_money_alone(draft):
        return False
    draft.parts.clear()
    look_again(chart, draft)
    return True


def is_broke(chart: Chart, draft: Draft) -> bool:
    """Whether nothing is at work, nothing can start, and nothing but money is awaited."""
    return chart.outline.on_budget == "stop" and _awaits_money_alone(draft)


def _awaits_money_alone(draft: Draft) -> bool:
    if draft.owing:  # it may be less than what counts for it now
        return False
    stuck = bool(draft.parked) and not draft.active and not any(draft.ready.values())
    return stuck and len(short(draft)) == len(draft.parked)


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


def stop_before_plan(chart: Chart, draft: Draft) -> None:
    """The planner has failed because what it proposes is too dear: when nothing else is left, the run ends for that."""
    if len(draft.ended) == len(chart.tasks):
        draft.broke = True
        draft.tell(EventType.BUDGET_STOPPED, **_figures(chart, draft))


# When a task has ended


def settle(chart: Chart, draft: Draft, id: str, outcome: Outcome) -> None:
    """Take what a start of a task has cost; the rest of what was set aside is free again.

    A start that cannot tell of all its calls counts at its worst case until the ledger was asked.
    """
    held = draft.reserved.pop(id, None)
    if held is None:
        return
    calls = calls_of(chart.model(id), outcome)
    if isinstance(outcome, Parked) and _is_in_a_batch(chart, held, outcome):
        _keep_aside(chart, draft, id, held, outcome)
        return
    whole = not isinstance(outcome, Stopped) and outcome.accounted
    told = Told.of(chart.outline.prices, calls, usd=None if whole else held.usd, loose=not whole)
    draft.spend(told.usd, held.caps)
    draft.told[id] = draft.told.get(id, Told()) + told
    _tell_when_low(chart, draft)


def _is_in_a_batch(chart: Chart, held: Reserve, parked: Parked) -> bool:
    """Whether a request of a task may still be answered by a batch. A worker that was stopped could not look."""
    unseen = held.open and parked.why == "worker" and not chart.era.before_0_6
    return parked.in_batch or parked.why == "batch" or unseen


def _keep_aside(chart: Chart, draft: Draft, id: str, held: Reserve, parked: Parked) -> None:
    """A request in a batch may be answered in a day: what it may cost stays set aside, but for what is told already."""
    calls, known = calls_of(chart.model(id), parked), parked.accounted
    told = Told.of(chart.outline.prices, calls, loose=not known and (parked.in_batch or parked.why != "batch"))
    left = {"usd": held.usd - told.usd, "call": held.call if known else None, "open": True}
    draft.reserved[id] = held.model_copy(update=left)
    if calls or told.loose:
        draft.spend(told.usd, held.caps)
        draft.told[id] = draft.told.get(id, Told()) + told


def settle_from_ledger(chart: Chart, draft: Draft, owed: Owed, account: Account) -> None:
    """The ledger was asked about a task that could not tell: what its calls have cost replaces what was counted."""
    if owed not in draft.owing:
        return  # asked twice
    draft.owing.remove(owed)
    witness.hear_the_ledger(chart, draft, owed, account)
    untold = Told.of(chart.outline.prices, account.calls) - owed.told
    draft.spend(untold.usd, caps.names(chart, owed.task))
    draft.usage += untold.usage
    draft.tell(
        EventType.TASK_SETTLED,
        owed.task,
        attempts=account.attempts,
        tokens=untold.usage.model_dump(),
        unsettled=untold.unsettled.model_dump(),
        cost_usd=money(untold.actual_usd),
        unsettled_usd=money(untold.unsettled_usd),
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
    tries = (
        Spent(model=each.model or model, usage=each.usage, unsettled=each.unsettled, batched=each.batched)
        for each in outcome.tries
    )
    match outcome:
        case Answered():
            return (*tries, Spent(model=model, usage=outcome.usage, batched=outcome.batched), *outcome.aside)
        case Failed():
            last = Spent(model=model, usage=outcome.usage, unsettled=outcome.unsettled, batched=outcome.batched)
            return (*tries, last, *outcome.aside)
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
        "reserved_usd": money(reserved(draft)),
    }
