"""Caps of tasks and of agents: kept as the budget of the run is, and they end nothing but what they concern."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st
from plans import AGENTS, START, in_vain, outlines
from test_course import Run
from test_purse import CALL, TOKEN, Spending, answer, priced

from domain import caps, purse
from domain.barriers import at_agent
from domain.course import Course
from domain.models import Account, Parked, Policy, RunStatus, Stopped, TaskStatus, Usage
from domain.outlook import waits_of
from domain.prices import NOTHING, cost_of_calls
from domain.progress import Outline, OutlineTask, Progress
from domain.steering import TaskSteering


def capped(
    *tasks: tuple[str, str, Decimal | None],
    budgets: dict[str, Decimal] | None = None,
    places: int = 10,
    budget: Decimal | None = None,
) -> Run:
    """Tasks that need nothing, each with its agent and its cap."""
    made = [
        OutlineTask(id=id, agent=agent, timeout=timedelta(seconds=30), attempts=3, budget=most)
        for id, agent, most in tasks
    ]
    outline = priced(Outline(max_concurrency=places, tasks=tuple(made)), budget)
    return Run(outline.model_copy(update={"budgets": budgets or {}}))


def test_a_cap_of_a_task_allows_as_many_attempts_as_it_covers() -> None:
    run = capped(("a", "ant", 2 * CALL), ("b", "ant", None))

    assert run.launch() == ("a", "b")

    assert {id: held.attempts for id, held in run.progress.reserved.items()} == {"a": 2, "b": 3}
    assert purse.cap(run.course.chart, run.progress, "a") == 2 * CALL
    assert purse.cap(run.course.chart, run.progress, "b") is None


def test_a_task_that_its_cap_never_covers_fails_and_names_it_and_the_run_goes_on() -> None:
    run = capped(("a", "ant", CALL - TOKEN), ("b", "ant", None))

    assert run.launch() == ("b",)
    run.result("b", answer())

    why = "one call may cost up to $0.00005, and $0.000049 of the $0.000049 of task 'a' is left"
    end = run.progress.ended["a"]
    assert end.status is TaskStatus.FAILED
    assert end.why == f"{why}: give it a higher budget_usd, and start the plan with --reuse"
    assert run.course.status(run.progress) is RunStatus.PARTIAL


def test_who_comes_for_its_batch_passes_those_that_wait_for_its_money() -> None:
    """Otherwise each would wait for the other: the money is set aside for the one that comes."""
    run = capped(("a", "ant", None), ("b", "ant", None), ("c", "ant", None), budgets={"ant": 3 * CALL})
    assert run.launch() == ("a",)
    assert run.progress.parked["b"].cap == at_agent("ant")

    until = run.now + timedelta(minutes=5)
    run.result("a", Parked(why="batch", what="a batch", until=until, accounted=True, in_batch=True))
    assert run.launch() == ()
    run.pass_time(timedelta(minutes=5))

    assert run.launch() == ("a",)
    run.result("a", answer())
    assert run.launch() == ("b",)


def test_what_earlier_starts_of_a_task_have_cost_counts_for_its_cap() -> None:
    run = capped(("a", "ant", 2 * CALL), ("b", "ant", None))
    run.launch()
    tries = tuple(each.model_copy(update={"usage": Usage(output=20), "unsettled": Usage()}) for each in in_vain(1))

    run.result("a", Parked(why="worker", what="its worker was stopped", tries=tries, accounted=True))

    assert run.launch() == ("a",)
    assert run.progress.reserved["a"].attempts == 1
    assert purse.cap(run.course.chart, run.progress, "a") == CALL + 20 * TOKEN


def test_a_task_done_again_waits_until_its_first_round_is_settled() -> None:
    run = capped(("a", "ant", 2 * CALL), ("b", "ant", None))
    run.launch()
    run.result("a", Stopped(why="the task was cancelled"))
    run.ask("retry", TaskSteering(by="someone", tasks=("a",)))

    assert run.launch() == ()
    assert run.progress.parked["a"].cap == caps.of_task("a")
    run.take(run.course.settled(run.progress, run.progress.owing[0], Account(), run.now))

    assert run.launch() == ("a",)


def test_a_task_waits_while_its_agents_cap_is_held_by_others_and_holds_up_nobody_else() -> None:
    run = capped(("a", "ant", None), ("b", "ant", None), ("c", "ant", None), ("d", "bee", None), budgets={"ant": CALL})

    assert run.launch() == ("a", "d")

    wait = run.progress.parked["b"]
    assert (wait.why, wait.cap, wait.until) == ("budget", at_agent("ant"), None)
    assert wait.what == "one call may cost up to $0.00005, and $0 of the $0.00005 of agent 'ant' is left"
    assert waits_of(run.course.chart, run.progress)["c"].reason == "budget"
    assert list(run.progress.ready) == ["ant"]


def test_an_agents_cap_that_is_used_up_ends_its_tasks_and_no_others() -> None:
    run = capped(
        ("a", "ant", None), ("b", "ant", None), ("c", "bee", None), budgets={"ant": CALL + 15 * TOKEN}, places=1
    )

    assert run.launch() == ("a",)
    run.result("a", answer(10))
    assert run.launch() == ("b",)
    run.result("b", answer(10))
    assert run.launch() == ("c",)
    run.result("c", answer(10))

    assert run.progress.capped[at_agent("ant")] == 20 * TOKEN
    again = capped(("a", "ant", None), ("b", "ant", None), ("c", "bee", None), budgets={"ant": CALL}, places=1)
    again.launch()
    again.result("a", answer(10))
    assert again.launch() == ("c",)
    assert again.end_of("b") is TaskStatus.FAILED
    assert "of agent 'ant'" in (again.progress.ended["b"].why or "")


def test_who_needs_a_task_that_was_not_covered_is_skipped_because_of_it() -> None:
    made = (
        OutlineTask(id="a", agent="ant", timeout=timedelta(1), attempts=1, budget=TOKEN),
        OutlineTask(id="b", agent="ant", needs={"a": Policy.REQUIRE}, timeout=timedelta(1), attempts=1),
    )
    run = Run(priced(Outline(max_concurrency=1, tasks=made), None))

    assert run.launch() == ()

    assert (run.end_of("b"), run.progress.ended["b"].cause) == (TaskStatus.SKIPPED, "a")
    assert run.course.is_over(run.progress)


def test_what_the_runs_before_have_spent_counts_for_caps_too() -> None:
    run = capped(("a", "ant", 2 * CALL), ("b", "ant", None), budgets={"ant": 3 * CALL})
    given = {caps.of_task("a"): CALL, at_agent("ant"): 2 * CALL}

    run.take(Course(run.course.chart.outline).begin(START, before=2 * CALL, capped=given))
    run.launch()

    assert run.progress.reserved["a"].attempts == 1
    assert run.progress.parked["b"].cap == at_agent("ant")


def test_a_task_that_waits_for_another_day_is_no_sign_of_an_empty_purse() -> None:
    run = capped(("a", "ant", None), budget=9 * CALL)
    run.launch()

    run.result("a", Parked(why="budget", what="today's money", until=run.now + timedelta(hours=5), accounted=True))

    assert run.launch() == ()
    assert run.course.status(run.progress) is RunStatus.WAITING
    assert (run.progress.used, run.progress.reserved) == ({}, {})
    run.pass_time(timedelta(hours=5))
    assert run.launch() == ("a",)


def test_who_waits_for_another_day_comes_at_once_when_a_person_says_so() -> None:
    run = capped(("a", "ant", None))
    run.launch()
    run.result("a", Parked(why="budget", what="today's money", until=run.now + timedelta(hours=5)))

    run.ask("retry", TaskSteering(by="someone", tasks=()))

    assert run.launch() == ("a",)


def spent_on(voyage: Spending, names: set[str]) -> Decimal:
    """What was billed for these tasks."""
    calls = [call for (id, _), made in voyage.steps.items() if id in names for call in made]
    return cost_of_calls(voyage.course.chart.outline.prices, calls)


some = st.one_of(st.none(), st.integers(1, 30))


@given(outlines(), some, st.dictionaries(st.sampled_from(AGENTS), st.integers(1, 30)), st.data())
def test_no_order_of_things_overspends_a_cap(
    outline: Outline, calls: int | None, agents: dict[str, int], data: st.DataObject
) -> None:
    """Of the run, of any task, of any agent; and in the end the books are the bill."""
    priced_one = priced(outline, None if calls is None else calls * CALL / 3)
    tasks = [
        task.model_copy(update={"budget": None if (thirds := data.draw(some)) is None else thirds * CALL / 3})
        for task in priced_one.tasks
    ]
    budgets = {agent: most * CALL / 3 for agent, most in agents.items()}
    voyage = Spending(priced_one.model_copy(update={"tasks": tuple(tasks), "budgets": budgets}), data.draw)
    groups = {caps.of_task(task.id): (task.budget, {task.id}) for task in tasks if task.budget is not None}
    groups |= {
        at_agent(agent): (most, {task.id for task in tasks if task.agent == agent}) for agent, most in budgets.items()
    }

    for moment in voyage.moments():
        progress = moment.step.progress
        limit = purse.limit(voyage.course.chart, progress)
        assert limit is None or voyage.billed <= limit
        for name, (most, names) in groups.items():
            assert committed(progress, name) <= most
            assert spent_on(voyage, names) <= most

    assert not voyage.progress.reserved
    voyage.settle()
    for name, (_, names) in groups.items():
        assert voyage.progress.capped.get(name, NOTHING) == spent_on(voyage, names)


def committed(progress: Progress, name: str) -> Decimal:
    held = sum((held.usd for held in progress.reserved.values() if name in held.caps), NOTHING)
    return progress.capped.get(name, NOTHING) + held
