"""The purse of a run: what is spent and what is set aside never exceed the budget, in any order of things."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plans import AGENTS, START, Draw, Moment, Voyage, in_vain, outlines
from test_course import Run

from domain import places, purse
from domain.briefing import brief_for
from domain.chart import Chart
from domain.course import Course
from domain.events import EventType
from domain.models import (
    Account,
    Agent,
    Answered,
    Failed,
    File,
    Input,
    Need,
    Outcome,
    Pace,
    Parked,
    Placement,
    Plan,
    Policy,
    RunStatus,
    Spent,
    Stopped,
    Task,
    TaskError,
    TaskStatus,
    Try,
    Usage,
    ref_of,
)
from domain.prices import NOTHING, Price, PriceList, cost_of_calls
from domain.progress import Ended, Outline, OutlineTask, Progress, Reserve, outline_of
from domain.requests import Refused
from domain.steering import Setting, TaskSteering
from domain.weighing import heaviest, weight

DOLLAR = Price(input=Decimal(1), output=Decimal(1), cache_read=Decimal(1), cache_write=Decimal(1))
"""A millionth of a dollar a token, whatever it is."""

TOKEN = Decimal(1) / 1_000_000
WEIGHT, MAX_TOKENS = 20, 30
CALL = (WEIGHT + MAX_TOKENS) * TOKEN
"""The worst case of one call without inputs."""


def priced(outline: Outline, budget: Decimal | None, on_budget: str = "stop", attempts: int = 3) -> Outline:
    weights = {"weight": WEIGHT, "max_tokens": MAX_TOKENS, "attempts": attempts}
    tasks = [task.model_copy(update=weights) for task in outline.tasks]
    models = {name: outline.models.get(name, name) for name in AGENTS}
    return outline.model_copy(
        update={
            "counted": True,
            "tasks": tuple(tasks),
            "models": models,
            "prices": dict.fromkeys(models.values(), DOLLAR),
            "budget": budget,
            "on_budget": on_budget,
        }
    )


def tasks(
    *ids: str, budget: Decimal | None, places: int = 10, on_budget: str = "stop", mode: Pace = Pace.WINDOW
) -> Run:
    """Tasks that need nothing."""
    made = [OutlineTask(id=id, agent="ant", timeout=timedelta(seconds=30), attempts=3) for id in ids]
    return Run(priced(Outline(max_concurrency=places, mode=mode, tasks=tuple(made)), budget, on_budget))


def answer(tokens: int = 10) -> Answered:
    return Answered(output_ref=ref_of(b"x"), output_bytes=1, usage=Usage(output=tokens), attempts=1, accounted=True)


# Examples


def test_all_attempts_are_set_aside_and_what_was_not_used_is_free_again() -> None:
    run = tasks("a", "b", budget=4 * CALL)

    assert run.launch() == ("a", "b")
    assert {id: held.attempts for id, held in run.progress.reserved.items()} == {"a": 3, "b": 1}
    run.result("a", answer(10))

    assert run.progress.spent == 10 * TOKEN
    assert purse.left(run.course.chart, run.progress) == 3 * CALL - 10 * TOKEN


def test_what_does_not_fit_waits_until_others_have_settled() -> None:
    run = tasks("a", "b", budget=CALL + 15 * TOKEN, places=2)

    assert run.launch() == ("a",)
    wait = run.progress.parked["b"]
    assert (wait.why, wait.what) == ("budget", "one call may cost up to $0.00005, and $0.000015 of the budget is left")
    run.result("a", answer(10))

    assert run.launch() == ("b",)
    run.result("b", answer(10))
    assert run.course.status(run.progress) is RunStatus.COMPLETED


def test_nobody_passes_the_first_that_does_not_fit_while_something_is_at_work() -> None:
    """But when nothing is at work, a smaller one may still fit."""
    run = tasks("a", "large", "small", budget=2 * CALL, places=3)
    large = run.course.chart.tasks["large"].model_copy(update={"weight": 200})
    run.course.chart.tasks["large"] = large

    assert run.launch() == ("a",)
    run.result("a", answer(10))

    assert run.launch() == ("small",)
    assert run.progress.parked["large"].why == "budget"


def test_those_behind_the_first_that_is_awaited_are_not_weighed(monkeypatch: pytest.MonkeyPatch) -> None:
    """They may be thousands, and there is a look at them whenever something may start."""
    run = tasks("a", "b", "c", "d", budget=CALL / 2, on_budget="wait")
    assert run.launch() == ()
    run.ask("set", Setting(by="someone", budget_usd=CALL + 15 * TOKEN))
    assert run.launch() == ("a",)
    weighed: list[str] = []
    weigh = purse.worst_call

    def weighing(chart: Chart, state: purse.State, id: str) -> Decimal | None:
        weighed.append(id)
        return weigh(chart, state, id)

    monkeypatch.setattr(purse, "worst_call", weighing)
    assert run.launch() == ()

    assert {*weighed} == {"b"}
    run.result("a", answer(10))
    assert run.launch() == ("b",)


def test_one_that_never_fits_holds_nobody_up() -> None:
    run = tasks("huge", "a", "b", "c", budget=9 * CALL, places=3)
    run.course.chart.tasks["huge"] = run.course.chart.tasks["huge"].model_copy(update={"weight": 2000})

    assert run.launch() == ("a", "b", "c")
    assert run.progress.parked["huge"].why == "budget"


def test_a_wave_that_no_money_is_left_for_makes_way_for_the_next() -> None:
    """Nothing is at work, so that nobody would come to look again."""
    run = tasks("a", "b", "c", "d", budget=6 * CALL, places=2, mode=Pace.WAVES)
    for id in "a", "b":
        run.course.chart.tasks[id] = run.course.chart.tasks[id].model_copy(update={"weight": 2000})

    step = run.take(run.course.launch(run.progress, run.now))

    assert step.starts == ("c", "d")
    waves = [event.data["tasks"] for event in step.events if event.type is EventType.WAVE_STARTED]
    assert waves == [["a", "b"], ["c", "d"]]


def test_a_run_does_not_stop_while_money_is_owed_to_it() -> None:
    """What a stopped task has cost is asked of the ledger, and may leave enough for the next."""
    run = tasks("a", "b", budget=3 * CALL, places=1)
    run.launch()
    run.result("a", Stopped(why="the task was cancelled"))

    assert run.launch() == ()
    assert run.course.status(run.progress) is RunStatus.WAITING
    run.take(run.course.settled(run.progress, run.progress.owing[0], Account(), run.now))

    assert run.launch() == ("b",)


def test_without_a_budget_nothing_is_refused_at_the_door() -> None:
    limited, free = tasks("a", budget=CALL), tasks("a", budget=None)

    for run in limited, free:
        run.launch()

    assert purse.cap(limited.course.chart, limited.progress, "a") == CALL
    assert purse.cap(free.course.chart, free.progress, "a") is None


def test_a_run_that_cannot_pay_for_anything_more_stops_and_keeps_what_it_has() -> None:
    run = tasks("a", "b", "c", budget=CALL, places=1)
    run.launch()

    run.result("a", answer(30))
    step = run.take(run.course.launch(run.progress, run.now))

    assert run.course.status(run.progress) is RunStatus.BUDGET_STOPPED
    assert {id: end.status for id, end in run.progress.ended.items()} == {
        "a": TaskStatus.SUCCEEDED,
        "b": TaskStatus.NOT_STARTED,
        "c": TaskStatus.NOT_STARTED,
    }
    assert [event.type for event in step.events if event.task is None] == [EventType.BUDGET_STOPPED]
    assert run.progress.ended["b"].why == "the budget of $0.00005 does not cover it"


def too_dear(type: str = purse.TOO_DEAR) -> Failed:
    return Failed(error=TaskError(type=type, message="too dear"), accounted=True)


@pytest.mark.parametrize(
    ("type", "status"), [(purse.TOO_DEAR, RunStatus.BUDGET_STOPPED), ("AnswerInvalid", RunStatus.FAILED)]
)
def test_a_run_whose_planner_proposes_what_is_too_dear_ends_for_want_of_money(type: str, status: RunStatus) -> None:
    run = tasks("plan", budget=9 * CALL)
    run.launch()

    step = run.take(run.course.result(run.progress, "plan", too_dear(type), run.now))

    assert run.course.status(run.progress) is status
    assert run.progress.ended["plan"].status is TaskStatus.FAILED
    told = [event.type for event in step.events].count(EventType.BUDGET_STOPPED)
    assert told == (status is RunStatus.BUDGET_STOPPED)


def test_a_run_that_has_other_work_goes_on_when_a_planner_proposes_what_is_too_dear() -> None:
    """As when a person has added a task meanwhile: that is paid for, and the end is that of the work."""
    run = tasks("plan", "b", budget=9 * CALL)
    run.launch()

    run.result("plan", too_dear())
    run.result("b", answer(10))

    assert run.course.status(run.progress) is RunStatus.PARTIAL


def test_a_run_that_waits_for_money_goes_on_when_it_comes() -> None:
    run = tasks("a", "b", budget=CALL, places=1, on_budget="wait")
    run.launch()
    run.result("a", answer(30))

    assert run.launch() == ()
    assert run.course.status(run.progress) is RunStatus.WAITING
    run.ask("set", Setting(by="someone", budget_usd=2 * CALL))

    assert run.launch() == ("b",)


@pytest.mark.parametrize(
    ("budget", "why"),
    [(2 * CALL, r"the budget is \$0.0001 already"), (CALL, r"\$0.0001 is spent already, or may be by calls at work")],
)
def test_a_budget_is_not_set_to_what_it_is_or_below_what_is_gone(budget: Decimal, why: str) -> None:
    run = tasks("a", budget=2 * CALL)
    run.launch()

    with pytest.raises(Refused, match=why):
        run.ask("set", Setting(by="someone", budget_usd=budget))


def test_a_task_that_was_stopped_counts_at_its_worst_until_the_ledger_was_asked() -> None:
    run = tasks("a", "b", budget=4 * CALL, places=1)
    run.launch()

    run.result("a", Stopped(why="the task was cancelled"))
    assert run.progress.spent == 3 * CALL
    (owed,) = run.progress.owing
    calls = (Spent(model="ant", usage=Usage(input=5), unsettled=Usage(output=MAX_TOKENS)),)
    step = run.take(run.course.settled(run.progress, owed, Account(calls=calls, attempts=1), run.now))

    assert run.progress.spent == (5 + MAX_TOKENS) * TOKEN
    assert not run.progress.owing
    (event,) = step.events
    assert (event.type, event.task, event.data["attempts"]) == (EventType.TASK_SETTLED, "a", 1)
    assert run.course.settled(run.progress, owed, Account(), run.now).progress.spent == run.progress.spent


def test_what_the_door_does_not_cover_at_once_is_a_failure_and_no_loop() -> None:
    run = tasks("a", budget=CALL)
    run.launch()

    run.result("a", Parked(why="budget", what="too large", accounted=True))

    assert run.end_of("a") is TaskStatus.FAILED


# What cannot be known at once


def cut_off(tokens: int, *, attempt: int = 1, used: bool = False) -> Try:
    """A call that may have used so many tokens."""
    error = TaskError(type="WorkerStopped", message="the worker was stopped", retryable=True)
    return Try(attempt=attempt, error=error, at=START, unsettled=Usage(output=tokens), used=used)


def test_a_worker_that_is_stopped_again_and_again_takes_one_call_at_a_time() -> None:
    """All the rest of what was set aside is free for the restart: a tight run is not stopped early by restarts."""
    run = tasks("a", budget=5 * CALL)

    for stops in range(1, 5):
        assert run.launch() == ("a",)
        run.result("a", Parked(why="worker", what="stopped", tries=(cut_off(50),), accounted=True))
        assert (run.progress.spent, run.progress.used) == (stops * CALL, {})

    assert run.launch() == ("a",)
    run.result("a", answer(10))
    assert run.course.status(run.progress) is RunStatus.COMPLETED
    assert (run.progress.spent, run.progress.owing) == (4 * CALL + 10 * TOKEN, ())


def test_what_was_lost_in_a_batch_counts_at_half_its_price() -> None:
    """An attempt before the last one, and the last one itself."""
    run = tasks("a", budget=5 * CALL)
    run.launch()
    error = TaskError(type="BatchLost", message="gone", attempt=2)
    before = cut_off(50, used=True).model_copy(update={"batched": True})

    run.result("a", Failed(error=error, unsettled=Usage(output=50), tries=(before,), batched=True, accounted=True))

    assert run.progress.spent == 2 * DOLLAR.batch_factor * CALL


LATER = START + timedelta(hours=1)
IN_BATCH = Parked(why="batch", what="a batch", until=LATER, accounted=True, in_batch=True)


def with_an_optional_need(budget: Decimal) -> Run:
    """A task `b` that was told that `a` has failed, and waits for its batch."""
    needing = OutlineTask(
        id="b", agent="ant", needs={"a": Policy.OPTIONAL}, timeout=timedelta(seconds=30), attempts=1, max_tokens=1
    )
    first = OutlineTask(id="a", agent="ant", timeout=timedelta(seconds=30), attempts=1)
    run = Run(priced(Outline(max_concurrency=2, tasks=(first, needing)), budget))
    run.launch()
    run.result("a", Failed(error=TaskError(type="E", message="no"), accounted=True))
    assert run.launch() == ("b",)
    run.result("b", IN_BATCH)
    return run


def test_a_task_in_a_batch_whose_need_is_done_again_has_new_money_set_aside_for_its_new_brief() -> None:
    """Its old request may be billed all the same: one call of it counts, until the ledger was asked at its end."""
    run = with_an_optional_need(budget=1000 * CALL)
    before = run.progress.reserved["b"]

    run.ask("retry", TaskSteering(by="someone", tasks=("a",)))
    assert "b" not in run.progress.reserved
    assert run.progress.spent == before.call
    assert run.launch() == ("a",)
    run.result("a", Answered(output_ref=ref_of(b"x"), output_bytes=9000, usage=Usage(), attempts=1, accounted=True))
    assert run.launch() == ("b",)

    held = run.progress.reserved["b"]
    assert held.call == purse.worst_call(run.course.chart, run.progress, "b")
    assert held.usd > before.usd
    assert purse.cap(run.course.chart, run.progress, "b") == held.usd + (before.call or 0)
    run.result("b", answer(10))
    (owed,) = run.progress.owing
    calls = (Spent(model="ant", unsettled=Usage(output=20)), Spent(model="ant", usage=Usage(output=10)))
    run.take(run.course.settled(run.progress, owed, Account(calls=calls), run.now))
    assert run.progress.spent == 30 * TOKEN


@pytest.mark.parametrize(
    "parked",
    [
        Parked(why="pause", what="paused", accounted=True, in_batch=True),
        Parked(why="worker", what="stopped", accounted=True, in_batch=True),
        Parked(why="worker", what="another store", accounted=True),
        Parked(why="worker", what="stopped"),
    ],
    ids=["paused", "stopped", "another store", "stopped before it looked"],
)
def test_what_is_set_aside_for_a_batch_stays_while_nobody_has_looked_at_it(parked: Parked) -> None:
    """Neither free for others, nor counted as spent beside what the next start sets aside."""
    run = tasks("a", budget=4 * CALL)
    run.launch()
    run.result("a", IN_BATCH)
    held = run.progress.reserved["a"]
    run.now = LATER
    run.take(run.course.wake(run.progress, run.now))
    assert run.launch() == ("a",)

    run.result("a", parked)

    assert run.progress.reserved["a"].usd == held.usd
    assert run.progress.spent == 0


def test_a_call_that_was_told_as_lost_and_answered_after_all_is_counted_once() -> None:
    run = tasks("a", budget=4 * CALL)
    run.launch()
    lost = cut_off(50, used=True)
    run.result("a", Parked(why="worker", what="stopped", tries=(lost,), accounted=True))
    run.launch()

    run.result("a", answer(10).model_copy(update={"accounted": False}))
    (owed,) = run.progress.owing
    calls = (Spent(model="ant", usage=Usage(output=10)),)
    step = run.take(run.course.settled(run.progress, owed, Account(calls=calls), run.now))

    assert run.progress.spent == 10 * TOKEN
    (event,) = step.events
    assert (event.data["cost_usd"], event.data["unsettled_usd"]) == ("0", "-0.00005")
    assert event.data["unsettled"] == Usage(output=-50).model_dump()


def test_what_the_ledger_tells_is_priced_call_by_call_at_its_own_model() -> None:
    """The agent's model and that of the summarizer: neither is the other's price, and two calls are not one."""
    run = tasks("a", budget=None)
    dear = Price(input=Decimal(100), output=Decimal(100), cache_read=Decimal(100), cache_write=Decimal(100))
    run.course.chart.outline.prices["dear"] = dear
    run.launch()
    run.result("a", Stopped(why="the task was cancelled"))

    (owed,) = run.progress.owing
    calls = (
        Spent(model="ant", usage=Usage(output=10)),
        Spent(model="dear", usage=Usage(input=1), unsettled=Usage(output=2)),
    )
    step = run.take(run.course.settled(run.progress, owed, Account(calls=calls), run.now))

    (event,) = step.events
    assert Decimal(str(event.data["cost_usd"])) == (10 + 100) * TOKEN
    assert Decimal(str(event.data["unsettled_usd"])) == 200 * TOKEN


def test_runs_of_plans_before_money_was_counted_set_nothing_aside() -> None:
    run = Run(Outline(max_concurrency=1, tasks=(OutlineTask(id="a", agent="ant", timeout=timedelta(1), attempts=3),)))

    assert run.launch() == ("a",)
    assert not run.progress.reserved
    run.result("a", Stopped(why="cancelled"))
    assert not run.progress.owing


# Any plan, any order


UNSEEN = (
    Parked(why="pause", what="paused", accounted=True, in_batch=True),
    Parked(why="worker", what="stopped", accounted=True, in_batch=True),
    Parked(why="worker", what="stopped before it looked"),
)
"""What comes of a task whose request is in a batch when nobody has looked for the answer."""


class Spending(Voyage):
    """A run in which no call uses more than it may: what is billed is known, and told or not told."""

    def __init__(self, outline: Outline, draw: Draw) -> None:
        super().__init__(outline, draw)
        self.billed = NOTHING
        self.steps: dict[tuple[str, int], list[Spent]] = {}
        self.in_batch: dict[str, Spent] = {}

    def _result(self, id: str, *, kind: str = "result", outcome: Outcome | None = None) -> Moment:
        held = self.progress.reserved.get(id)
        if kind == "echo" or held is None:
            return super()._result(id, kind=kind, outcome=outcome)
        model, found = self.course.chart.model(id), self.in_batch.pop(id, None)
        before = [found] if found is not None and held.open else []  # else it was asked for what has changed since
        if before and outcome is None and self._draw(st.booleans()):
            self.in_batch[id] = before[0]
            return super()._result(id, kind=kind, outcome=self._draw(st.sampled_from(UNSEEN)))
        room = self._room(id, held)
        if room < 1 and not before:  # what it was set aside for has been spent by starts before this one
            return super()._result(id, kind=kind, outcome=Parked(why="budget", what="not covered", accounted=True))
        calls = [self._call(model) for _ in range(self._draw(st.integers(0 if before else 1, max(0, room))))]
        told = [*before, *calls]
        if outcome is None and len(calls) < room and self._draw(st.booleans()):
            self.in_batch[id] = sent = self._call(model)
            calls.append(sent)
            until = self._now + timedelta(minutes=5)
            made: Outcome = Parked(
                why="batch", what="a batch", until=until, tries=self._tries(told), accounted=True, in_batch=True
            )
        else:
            made = self._outcome(told) if outcome is None else self._answered(told)
        self.billed += cost_of_calls(self._outline.prices, calls)
        self.steps.setdefault((id, purse.step_of(self.progress, id)), []).extend(calls)
        return super()._result(id, kind=kind, outcome=made)

    def _room(self, id: str, held: Reserve) -> int:
        """How many calls the door lets pass: as many as are covered beside those that were made before."""
        cap = purse.cap(self.course.chart, self.progress, id)
        if cap is None:
            return held.attempts
        made = self.steps.get((id, purse.step_of(self.progress, id)), [])
        worst = purse.worst_call(self.course.chart, self.progress, id) or CALL
        return min(held.attempts, int((cap - cost_of_calls(self._outline.prices, made)) // worst))

    def _call(self, model: str) -> Spent:
        input, output = self._draw(st.integers(0, WEIGHT)), self._draw(st.integers(0, MAX_TOKENS))
        if self._draw(st.booleans()):
            return Spent(model=model, usage=Usage(input=input, output=output))
        return Spent(model=model, usage=Usage(input=input), unsettled=Usage(output=output))

    def _outcome(self, calls: list[Spent]) -> Outcome:
        match self._draw(st.sampled_from(["answered", "failed", "lost", "stopped", "parked"])):
            case "answered":
                return self._answered(calls)
            case "stopped":
                return Stopped(why="stopped")
            case "parked":
                tries = self._tries(calls)
                whole = self._draw(st.booleans())
                return Parked(why="worker", what="stopped", tries=tries if whole else (), accounted=whole)
            case kind:
                *before, last = calls
                error = TaskError(type="E", message="it broke")
                if kind == "lost":
                    return Failed(error=error)
                return Failed(
                    error=error, usage=last.usage, unsettled=last.unsettled, tries=self._tries(before), accounted=True
                )

    def _answered(self, calls: list[Spent]) -> Answered:
        *before, last = calls
        calls[-1] = settled = Spent(model=last.model, usage=last.usage + last.unsettled)
        tries = self._tries(before)
        usage = settled.usage
        return Answered(
            output_ref=ref_of(b""), output_bytes=0, usage=usage, attempts=len(calls), tries=tries, accounted=True
        )

    def _tries(self, calls: list[Spent]) -> tuple[Try, ...]:
        return tuple(
            each.model_copy(update={"usage": call.usage, "unsettled": call.unsettled})
            for each, call in zip(in_vain(len(calls)), calls, strict=True)
        )

    def _until_over(self) -> Iterator[Moment]:
        budget = purse.limit(self.course.chart, self.progress)
        if budget is not None and self._outline.on_budget == "wait":
            yield self._ask("set", Setting(by="someone", budget_usd=budget + 1000 * CALL))
        for moment in super()._until_over():
            yield moment
            self.settle()  # as the supervisor does: a run does not stop while money is owed to it

    def settle(self) -> None:
        """The ledger is asked for everything that was not told."""
        for owed in self.progress.owing:
            calls = tuple(self.steps[owed.task, owed.step])
            self.progress = self.course.settled(self.progress, owed, Account(calls=calls), START).progress


def stands_still(course: Course, progress: Progress) -> bool:
    """Whether a run that goes on has nothing that it could wait for, though tasks could start."""
    asked = any(wait.why == "approval" for wait in progress.parked.values())
    goes_on = not (progress.paused or progress.cancelled or progress.late or progress.broke or course.is_over(progress))
    awaits = progress.active or progress.owing or asked or course.next_wake(progress) is not None
    return goes_on and not awaits and places.can_start(course.chart, progress)


@given(outlines(), st.one_of(st.none(), st.integers(1, 60)), st.sampled_from(["stop", "wait"]), st.data())
def test_no_order_of_things_overspends_a_budget_or_leaves_money_set_aside(
    outline: Outline, calls: int | None, on_budget: str, data: st.DataObject
) -> None:
    budget = None if calls is None else calls * CALL / 3
    paid = priced(outline, budget, on_budget)
    weights = st.sampled_from([WEIGHT, WEIGHT, 10 * WEIGHT])
    weighed = (task.model_copy(update={"weight": data.draw(weights)}) for task in paid.tasks)
    voyage = Spending(paid.model_copy(update={"tasks": tuple(weighed)}), data.draw)

    for moment in voyage.moments():
        progress = moment.step.progress
        limit = purse.limit(voyage.course.chart, progress)
        assert limit is None or purse.committed(progress) <= limit
        assert limit is None or voyage.billed <= limit
        assert progress.reserved.keys() >= progress.active.keys()
        assert all(held.open for id, held in progress.reserved.items() if id not in progress.active)
        assert progress.spent >= 0
        assert moment.kind != "launch" or moment.step.held_back or not stands_still(voyage.course, progress)

    assert not voyage.progress.reserved
    voyage.settle()
    assert voyage.progress.spent == voyage.billed
    assert not voyage.progress.told


# What a brief can weigh


texts = st.text(max_size=200)


@st.composite
def told(draw: Draw) -> tuple[Plan, Task, tuple[Input, ...], dict[str, str], str | None]:
    """A task with whatever may go into its brief."""
    needs = draw(st.lists(st.sampled_from(["a", "b[ü]", "c"]), unique=True))
    content: dict[str, str] = {}
    inputs = []
    for need in needs:
        text = draw(texts) * draw(st.sampled_from([1, 1, 5_000]))
        ref = ref_of(text.encode())
        if draw(st.booleans()):
            content[ref] = text
            inputs.append(Input(task=need, status=TaskStatus.SUCCEEDED, ref=ref))
        else:
            inputs.append(Input(task=need, status=TaskStatus.SKIPPED, why=draw(st.one_of(st.none(), texts))))
    files = []
    for name in draw(st.lists(st.sampled_from(["x.md", "y/z.md"]), unique=True)):
        text = draw(texts) * draw(st.sampled_from([1, 1, 5_000]))
        ref = ref_of(text.encode())
        content[ref] = text
        files.append(File(path=name, ref=ref, size=len(text.encode())))
    nothing: st.SearchStrategy[list[str]] = st.just([])
    placed = draw(st.lists(st.sampled_from(needs)) if needs else nothing)
    places = [Placement(name=name, tasks=(name,)) for name in placed]
    task = Task(
        id="t",
        agent="ant",
        prompt=(draw(texts), *places),
        files=tuple(files),
        payload=draw(st.dictionaries(texts, texts, max_size=2)),
        needs=tuple(Need(task=need) for need in needs),
        timeout=timedelta(seconds=30),
        attempts=1,
        max_tokens=1,
    )
    agent = Agent(name="ant", version="1", model="m", instructions=draw(texts))
    return (
        Plan(name="p", max_concurrency=1, agents=(agent,), tasks=(task,)),
        task,
        tuple(inputs),
        content,
        draw(st.one_of(st.none(), texts)),
    )


@given(told())
def test_no_brief_is_heavier_than_its_sizes_say(
    case: tuple[Plan, Task, tuple[Input, ...], dict[str, str], str | None],
) -> None:
    """What the workflow sets aside from sizes covers what the door will ask, whatever is in the texts."""
    plan, task, inputs, content, note = case
    priced_plan = plan.model_copy(update={"prices": PriceList(source="s", date="d", models={"m": DOLLAR})})
    outlined = outline_of(priced_plan).tasks[0]

    most = heaviest(
        fixed=outlined.weight,
        files=outlined.files,
        inputs=[(each, len(content[each.ref].encode()) if each.ref else 0) for each in inputs],
        repeated=outlined.repeats,
        note=note,
    )

    assert weight(brief_for(plan, task, inputs, content, note)) <= most


def test_what_needs_have_come_to_is_weighed() -> None:
    chart = tasks("a", budget=None).course.chart
    needing = OutlineTask(
        id="b",
        agent="ant",
        needs={"a": Policy.TOLERATE},
        timeout=timedelta(1),
        attempts=1,
        weight=10,
        max_tokens=1,
    )
    chart.tasks["b"] = needing
    light, heavy = (
        purse.worst_call(chart, Progress(ended={"a": Ended(status=TaskStatus.SUCCEEDED, size=size)}), "b")
        for size in (1, 1001)
    )

    assert light is not None
    assert heavy is not None
    assert heavy - light == 1000 * TOKEN
