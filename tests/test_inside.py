"""A plan inside a plan: what it becomes, the places that are its own, and a run of it to its report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from conftest import Bench
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import Draw, Moment, Voyage, answered, failed, outlines
from test_amending import ChangingVoyage
from test_caps import committed, spent_on
from test_course import Run
from test_planning import mistakes, planned, tasks
from test_purse import CALL, TOKEN, Spending, answer, priced

from domain import barriers, caps, purse
from domain.chart import Chart
from domain.course import Course
from domain.era import Era
from domain.models import Approval, Pace, Part, Placement, Policy, RunStatus, TaskStatus, Usage
from domain.prices import NOTHING
from domain.progress import Outline, OutlineTask, Progress
from domain.steering import TaskSteering

MARKET = b"""
max_concurrency: 2
budget_usd: 0.25
params: {market: {default: solar}, year: {default: "2026"}}
tasks:
  - {id: ask, for_each: [price, size], agent: writer, prompt: "{{ item }} of {{ params.market }}, {{ params.year }}"}
  - {id: sum, agent: writer, prompt: "Sum up: {{ ask }}", needs: [ask]}
  - {id: risks, agent: writer, prompt: What could go wrong?, files: [notes.md]}
"""
FILES = {"parts/market.yaml": MARKET, "parts/notes.md": b"N"}
WHOLE = """
params: {year: {default: "2030"}}
tasks:
  - {id: aim, agent: writer, prompt: Why?}
  - {id: wind, plan: parts/market.yaml, needs: {aim: require}, params: {market: wind, year: "{{ params.year }}"}}
  - {id: report, agent: writer, prompt: "Report on {{ wind }}", needs: [wind]}
"""


def test_a_task_that_is_a_plan_becomes_the_tasks_of_that_plan() -> None:
    found = tasks(WHOLE, files=FILES)

    assert list(found) == ["aim", "wind/ask[price]", "wind/ask[size]", "wind/sum", "wind/risks", "report"]
    assert {id: [need.task for need in task.needs] for id, task in found.items()} == {
        "aim": [],
        "wind/ask[price]": ["aim"],
        "wind/ask[size]": ["aim"],
        "wind/sum": ["wind/ask[price]", "wind/ask[size]"],
        "wind/risks": ["aim"],
        "report": ["wind/sum", "wind/risks"],
    }
    assert {task.part for id, task in found.items() if id.startswith("wind/")} == {"wind"}
    assert found["wind/ask[size]"].prompt == ("size of wind, 2030",)
    assert found["wind/ask[size]"].needs[0].policy is Policy.REQUIRE
    assert found["wind/sum"].prompt[1] == Placement(name="wind/ask", tasks=("wind/ask[price]", "wind/ask[size]"))
    assert found["report"].prompt[1] == Placement(name="wind", tasks=("wind/sum", "wind/risks"))
    assert [file.path for file in found["wind/risks"].files] == ["notes.md"]  # beside its own plan


def test_it_brings_along_what_it_says_of_itself() -> None:
    whole = planned(WHOLE, files=FILES)

    (part,) = whole.plan.parts
    assert (part.id, part.places, str(part.budget)) == ("wind", 2, "0.25")
    assert b"N" in whole.contents.values()
    assert whole.sources["wind/sum"]["agent"] == "task"
    assert planned(f"max_concurrency: 1\n{WHOLE}", files=FILES).plan.parts[0].places == 1


def test_a_result_that_several_of_its_first_tasks_take_goes_down_as_a_summary() -> None:
    assert tasks(WHOLE, files=FILES)["aim"].summarise


@pytest.mark.parametrize(
    ("key", "file", "words"),
    [
        ("timeout: 3s", MARKET, "'timeout' cannot stand beside 'plan'"),
        ("for_each: [a]", MARKET, "'for_each' cannot stand beside 'plan'"),
        ("params: {markt: x}", MARKET, "the plan declares no parameter 'markt'"),
        ("params: {market: '{{ nobody }}'}", MARKET, "names no task of this plan"),
        ("needs: [nobody]", MARKET, "needs 'nobody', which is no task"),
        ("quorum: 1", MARKET, "'quorum' counts optional needs"),
        ("", b"tasks: [", "part.yaml:2:1: not valid YAML"),
        ("", b"tasks: [{id: a, agent: nobody, prompt: x}]", "part.yaml:1:24: task 'a': unknown agent 'nobody'"),
        ("", b"mode: waves\n" + MARKET, "has mode: waves"),
        ("", b"deadline: 2d\n" + MARKET, "has a deadline"),
        ("", b"on_budget: wait\n" + MARKET, "has on_budget: wait"),
        ("", b"tasks: [{id: a, plan: part.yaml}]", "cannot have one inside itself"),
        ("", b"\xff", "is not UTF-8 text"),
        ("", b"agents: [{name: writer, version: x, model: m, instructions: i}]" + MARKET, "is another one"),
    ],
)  # fmt: skip
def test_what_cannot_be_inside_is_told_with_its_place(key: str, file: bytes, words: str) -> None:
    comma = ", " if key else ""
    text = f"tasks:\n  - {{id: a, agent: writer, prompt: x}}\n  - {{id: b, plan: part.yaml{comma}{key}}}\n"

    (found,) = mistakes(text, files={"part.yaml": file, "notes.md": b"N"})

    assert words in found


def test_params_are_for_plans() -> None:
    assert mistakes("tasks: [{id: a, agent: writer, prompt: x, params: {b: c}}]") == [
        "p:1:51: task 'a': 'params' stands beside 'plan' only"
    ]


def test_a_plan_in_waves_has_none_inside() -> None:
    assert "in waves" in mistakes(f"mode: waves\n{WHOLE}", files=FILES)[0]


# The places


def task(id: str, *needs: str, part: str | None = None, approval: Approval | None = None) -> OutlineTask:
    required = dict.fromkeys(needs, Policy.REQUIRE)
    return OutlineTask(
        id=id,
        agent="ant",
        part=part,
        needs=required,
        orders=needs,  # so that it costs what any other does
        approval=approval,
        timeout=timedelta(seconds=30),
        attempts=1,
    )


def whole(*tasks: OutlineTask, places: int, own: int, budget: Decimal | None = None) -> Outline:
    """A plan with a plan inside, which has so many places and so much money of its own."""
    return Outline(max_concurrency=places, parts={"p": Part(id="p", places=own, budget=budget)}, tasks=tasks)


def test_a_plan_inside_keeps_its_places_between_its_steps() -> None:
    """Also when those outside come first in the order of the plan."""
    outside = [task(f"x{number}", "go") for number in range(1, 7)]
    steps = task("p1", part="p"), task("p2", "p1", part="p")
    run = Run(whole(*outside, task("go"), *steps, places=3, own=2))
    assert run.launch() == ("go", "p1")
    run.result("go", answered())
    assert run.launch() == ("x1",)
    run.result("p1", answered())

    assert run.launch() == ("p2",)
    run.result("p2", answered())
    assert run.launch() == ("x2", "x3")


def test_a_plan_inside_keeps_its_money_between_its_steps() -> None:
    """What waits for the money of the others holds up none of its tasks."""
    outside = [task(f"x{number}") for number in range(1, 5)]
    steps = task("p2", "p1", part="p"), task("p3", "p2", part="p")
    run = Run(
        priced(whole(task("p1", part="p"), *outside, *steps, places=10, own=1, budget=3 * CALL), 5 * CALL, attempts=1)
    )
    assert run.launch() == ("p1", "x1", "x2")

    for id, then in ("p1", ("p2",)), ("p2", ("p3",)), ("x1", ()), ("x2", ()), ("p3", ()):
        run.result(id, answer(int(CALL / TOKEN)))
        assert run.launch() == then

    assert run.course.status(run.progress) is RunStatus.BUDGET_STOPPED
    assert run.progress.spent == 5 * CALL
    assert {id for id, end in run.progress.ended.items() if end.status is TaskStatus.SUCCEEDED} == {
        "p1",
        "p2",
        "p3",
        "x1",
        "x2",
    }


def test_while_all_of_a_plan_inside_waits_for_a_person_others_use_its_places() -> None:
    """It gets them back as they become free, before anybody outside starts."""
    outside = [task(f"x{number}", "go") for number in range(1, 7)]
    steps = task("p1", part="p"), task("p2", "p1", part="p", approval=Approval()), task("p3", "p1", part="p")
    rest = task("p4", "p3", part="p", approval=Approval())
    run = Run(whole(*outside, task("go"), *steps, rest, places=3, own=2))
    run.launch()
    run.result("go", answered())
    assert run.launch() == ("x1",)
    run.result("p1", answered())
    assert run.launch() == ("p3",)
    run.result("p3", answered())
    assert run.launch() == ("x2", "x3")

    run.ask("approve", TaskSteering(by="someone", tasks=("p2", "p4")))
    for id, then in ("x1", "p2"), ("x2", "p4"), ("x3", "x4"):
        run.result(id, answered())
        assert run.launch() == (then,)


def test_with_one_place_a_plan_inside_has_it_to_its_end_and_once_more_when_it_is_done_again() -> None:
    steps = task("p1", part="p"), task("p2", "p1", part="p")
    run = Run(whole(task("p0", part="p"), *(task(f"x{number}") for number in (1, 2, 3, 4)), *steps, places=1, own=4))
    assert run.launch() == ("p0",)
    for id, then in ("p0", "p1"), ("p1", "p2"):
        run.result(id, answered())
        assert run.launch() == (then,)
    run.result("p2", failed())
    assert run.launch() == ("x1",)
    assert not run.progress.parts

    run.ask("retry", TaskSteering(by="someone", tasks=("p2",)))
    assert not run.progress.parts
    for id, then in ("x1", "x2"), ("x2", "x3"), ("x3", "x4"), ("x4", "p2"):
        run.result(id, answered())
        assert run.launch() == (then,)
    assert run.progress.parts == {"p": 1}


def test_of_two_plans_inside_whose_money_is_not_all_there_the_one_that_began_first_has_its_own() -> None:
    """And nobody outside has any of it."""
    steps = [task(f"{part}{step}", f"{part}{step - 1}", part=part) for step in (2, 3) for part in ("p", "q")]
    outline = whole(task("p1", part="p"), task("q1", part="q"), task("x"), *steps, places=10, own=1)
    parts = {part: Part(id=part, places=1, budget=3 * CALL) for part in ("p", "q")}
    run = Run(priced(outline, 5 * CALL, attempts=1).model_copy(update={"parts": parts}))
    assert run.launch() == ("p1", "q1")

    for id, then in ("p1", ("p2",)), ("q1", ("q2",)), ("p2", ("p3",)), ("q2", ()), ("p3", ()):
        run.result(id, answer(int(CALL / TOKEN)))
        assert run.launch() == then

    assert run.course.status(run.progress) is RunStatus.BUDGET_STOPPED


@pytest.mark.parametrize("on_budget", ["stop", "wait"])
def test_a_task_outside_that_is_done_again_has_the_money_of_those_that_need_it(on_budget: str) -> None:
    """It would wait for them, and they for it."""
    steps = task("p1", part="p"), task("p2", "p1", "a", part="p")
    run = Run(priced(whole(task("a"), *steps, places=10, own=1, budget=3 * CALL), 4 * CALL, on_budget, attempts=1))
    assert run.launch() == ("a", "p1")
    whole_call = Usage(output=int(CALL / TOKEN))
    run.result("a", failed().model_copy(update={"usage": whole_call, "unsettled": Usage(), "accounted": True}))
    run.ask("retry", TaskSteering(by="someone", tasks=("a",)))
    assert run.launch() == ()
    assert run.progress.parked["a"].why == "budget"
    run.result("p1", answer(int(CALL / TOKEN)))

    assert run.launch() == ("a",)
    run.result("a", answer(int(CALL / TOKEN)))
    assert run.launch() == ("p2",)


def test_a_plan_inside_has_ended_when_the_last_of_it_is_taken_out_and_begins_again_when_it_is_given_more() -> None:
    outside = [task(f"x{number}") for number in (1, 2, 3)]
    steps = task("p1", part="p"), task("p2", "p1", part="p", approval=Approval())
    plan = whole(*steps, *outside, places=2, own=2)
    run = Run(plan)
    assert run.launch() == ("p1",)
    run.result("p1", answered())
    assert run.launch() == ("x1", "x2")
    assert run.progress.parts == {"p": 0}

    run.change(plan.model_copy(update={"tasks": (steps[0], *outside)}))
    assert not run.progress.parts
    run.change(plan.model_copy(update={"tasks": (steps[0], *outside, task("p3", "p1", part="p"))}))
    for id, then in ("x1", ("x3",)), ("x2", ()), ("x3", ("p3",)):
        run.result(id, answered())
        assert run.launch() == then
    assert run.progress.parts == {"p": 2}


def test_runs_that_an_earlier_release_began_go_on_as_before_until_their_next_history() -> None:
    outside = [task(f"x{number}", "go") for number in range(1, 7)]
    steps = task("p1", part="p"), task("p2", "p1", part="p")
    outline = whole(*outside, task("go"), *steps, places=3, own=2)
    run, carried = Run(outline, Era(before_0_8=True)), Run(outline, Era(before_0_8=True))
    for each in run, carried:
        assert each.launch() == ("go", "p1")
        each.result("go", answered())
        assert "parts" not in each.progress.model_dump()
    carried.course = Course(outline)
    for each in run, carried:
        assert each.launch() == ("x1",)
        each.result("p1", answered())

    assert run.launch() == ("x2", "x3")
    assert carried.launch() == ("p2",)


@st.composite
def with_parts(draw: Draw) -> Outline:
    """Any plan of which some tasks are of plans inside it."""
    outline = draw(outlines())
    parts = {name: Part(id=name, places=draw(st.integers(1, 4))) for name in ("p", "q")}
    names = st.sampled_from([None, *parts])
    placed = tuple(task.model_copy(update={"part": draw(names)}) for task in outline.tasks)
    return outline.model_copy(update={"mode": Pace.WINDOW, "parts": parts, "tasks": placed})


class Watch:
    """Which plans inside have begun and what they have of the run, by what the interface says."""

    def __init__(self, outline: Outline) -> None:
        self.adopt(outline)
        self._own: dict[str, int] = {}
        """The places of those that have begun; never more than there were since."""
        self._kept: set[str] = set()
        """Those of which something was at work or could start ever since."""

    def adopt(self, outline: Outline) -> None:
        """The plan is another one from now on."""
        self._outline, self._chart = outline, Chart(outline)
        self._part = {task.id: task.part for task in outline.tasks}

    def see(self, moment: Moment) -> None:
        """Judge one moment."""
        given, progress = moment.given, moment.step.progress
        most = progress.max_concurrency or self._outline.max_concurrency
        self._own = {part: min(own, most) for part, own in self._own.items()}
        lowered = self._taken(given) > most
        before = dict(self._own)
        for part in self._parts_of(moment.step.starts) - before.keys():
            self._own[part] = min(self._outline.parts[part].places, most)
            self._kept.add(part)
        if moment.step.starts:
            busy = self._busy(progress)
            assert busy.total() <= most
            assert lowered or self._taken(progress) <= most
            parts = self._parts_of(moment.step.starts)
            assert all(busy[part] <= min(self._outline.parts[part].places, most) for part in parts)
            if any(self._part[id] not in before for id in moment.step.starts) and not moment.step.held_back:
                self._nobody_lacks_places(progress, before, most)
        self._own = {part: own for part, own in self._own.items() if self._open(part, progress)}
        self._kept &= {part for part in self._own if self._is_alive(part, progress)}
        if not (progress.cancelled or progress.late):
            assert progress.parts.keys() == self._own.keys()

    def _nobody_lacks_places(self, progress: Progress, begun: Collection[str], most: int) -> None:
        """Nobody outside starts while a part that has begun could use one more of its own."""
        busy, agents = self._busy(progress), Counter(self._chart.tasks[id].agent for id in progress.active)
        for id in self._could_start(progress):
            part, agent = self._part[id], self._chart.tasks[id].agent
            if part in begun and agents[agent] < self._outline.pools.get(agent, 500):
                assert busy[part] >= min(self._outline.parts[part or ""].places, most), id

    def _taken(self, progress: Progress) -> int:
        """The places that nobody else may have."""
        busy = self._busy(progress)
        kept = sum(max(self._own[part], busy[part]) - busy[part] for part in self._kept)
        return busy.total() + kept

    def _busy(self, progress: Progress) -> Counter[str | None]:
        return Counter(self._part[id] for id in progress.active)

    def _parts_of(self, ids: Iterable[str]) -> set[str]:
        return {part for id in ids if (part := self._part[id]) is not None}

    def _open(self, part: str, progress: Progress) -> bool:
        return any(id not in progress.ended for id, its in self._part.items() if its == part)

    def _is_alive(self, part: str, progress: Progress) -> bool:
        return self._busy(progress)[part] > 0 or part in self._parts_of(self._could_start(progress))

    def _could_start(self, progress: Progress) -> list[str]:
        ids = self._chart.order(progress.started).ids
        ready = (ids[rank] for line in progress.ready.values() for rank in line)
        return [id for id in ready if barriers.allows(self._chart, progress.barriers, id)]


@settings(max_examples=300, deadline=None)
@given(with_parts(), st.data())
def test_a_plan_inside_has_its_own_places_until_its_end(outline: Outline, data: st.DataObject) -> None:
    """And whatever happens, every run comes to its end: nobody waits for places that never become free."""
    watch = Watch(outline)

    for moment in Voyage(outline, data.draw).moments():
        watch.see(moment)


@settings(max_examples=150, deadline=None)
@given(with_parts(), st.data())
def test_so_it_is_when_the_plan_is_changed(outline: Outline, data: st.DataObject) -> None:
    """When the last that was left of a part is taken out, it has ended."""
    watch, voyage = Watch(outline), ChangingVoyage(outline, data.draw)

    for moment in voyage.moments():
        if moment.kind == "change":
            watch.adopt(voyage.course.chart.outline)
        watch.see(moment)


thirds = st.integers(3, 36)


@settings(max_examples=300, deadline=None)
@given(with_parts(), thirds, st.none() | thirds, thirds, st.sampled_from(["stop", "wait"]), st.data())
def test_a_plan_inside_has_its_own_money_until_its_end(
    outline: Outline, p: int, q: int | None, most: int, on_budget: str, data: st.DataObject
) -> None:
    """It spends no more, and what was there at its start waits for it. No run ends with money that is of use."""
    budgets = {part: None if own is None else own * CALL / 3 for part, own in (("p", p), ("q", q))}
    parts = {id: part.model_copy(update={"budget": budgets[id]}) for id, part in outline.parts.items()}
    voyage = Spending(priced(outline, most * CALL / 3, on_budget).model_copy(update={"parts": parts}), data.draw)
    inside = {part: {task.id for task in outline.tasks if task.part == part} for part in parts}
    covered: set[str] = set()
    """Those whose whole share was there when they began."""

    for moment in voyage.moments():
        given, progress, chart = moment.given, moment.step.progress, voyage.course.chart
        there = (purse.limit(chart, progress) or NOTHING) - purse.committed(progress)
        own = {
            part: budget - committed(progress, caps.of_plan(part))
            for part, budget in budgets.items()
            if budget is not None and part in progress.parts
        }
        for part in own.keys() - given.parts.keys():
            covered |= {part} if sum(own.values()) <= there else set()
        covered &= own.keys()
        assert there >= sum((own[part] for part in covered), NOTHING)
        waiting = [id for id in purse.short(progress) if progress.parked[id].cap is None]
        assert not [id for id in waiting if any(id in inside[part] for part in covered)]
        for part, budget in budgets.items():
            assert budget is None or spent_on(voyage, inside[part]) <= budget
        gone = {
            part for part in given.parts.keys() - progress.parts.keys() if not inside[part] <= progress.ended.keys()
        }
        assert not (gone and given.active)
        if progress.broke and not given.broke:
            ready = chart.tasks.keys() - given.ended.keys() - given.unmet.keys()
            costs = {id: purse.worst_call(chart, given, id) or NOTHING for id in ready}
            ended = {id for id in ready if progress.ended[id].status is TaskStatus.FAILED}  # its own cap will never do
            assert all(cost > there for id, cost in costs.items() if id not in ended)


# The run


INNER = """
max_concurrency: 2
tasks:
  - {id: look, for_each: [1, 2, 3, 4], agent: hand, prompt: Look.}
  - {id: join, agent: hand, prompt: "Join {{ look }}.", needs: [look]}
"""
OUTER = """
max_concurrency: 6
tasks:
  - {id: aim, agent: hand, prompt: Why?}
  - {id: east, plan: inner.yaml, needs: [aim]}
  - {id: west, plan: inner.yaml, needs: [aim]}
  - {id: end, agent: hand, prompt: "{{ east }} and {{ west }}", needs: {east: require, west: optional}}
"""


async def test_a_run_of_plans_inside_a_plan(crew: Bench, tmp_path: Path) -> None:
    """Each task once, at most two of each plan at once, its census in the report, one answer out of all."""
    (tmp_path / "inner.yaml").write_text(INNER)
    run = await crew.start(OUTER, continue_after=4)

    report = await run.report()

    assert report.status is RunStatus.COMPLETED
    assert crew.simulator.calls() == report.census.total == 12
    assert {plan.id: (plan.census.succeeded, plan.census.total) for plan in report.plans} == {
        "east": (5, 5),
        "west": (5, 5),
    }
    events = await run.events()
    at_work: set[str] = set()
    for event in events:
        if event.type == "task.started" and event.task is not None:
            at_work.add(event.task)
        elif event.type == "task.completed" and event.task is not None:
            at_work.discard(event.task)
        assert all(sum(id.startswith(f"{part}/") for id in at_work) <= 2 for part in ("east", "west"))
    assert list(report.outputs) == ["end"]


async def test_one_that_fails_inside_costs_what_needs_it(crew: Bench, tmp_path: Path) -> None:
    """The policy of the edge that leaves the plan decides, as for any task; a retry does again what is missing."""
    (tmp_path / "inner.yaml").write_text(INNER)
    crew.simulator.script([{"when": {"task": "west/join", "nth": 1}, "then": {"fault": "invalid_request"}}])
    run = await crew.start(OUTER)

    report = await run.report()

    states = {task.id: task.status.value for task in report.tasks}
    assert (states["west/join"], states["end"], report.status) == ("FAILED", "SUCCEEDED", RunStatus.DEGRADED)
    west = next(plan for plan in report.plans if plan.id == "west")
    assert (west.census.succeeded, west.census.failed) == (4, 1)


CHAIN = """
max_concurrency: 2
defaults: {timeout: 2m}
tasks:
  - {id: one, agent: hand, prompt: One.}
  - {id: two, agent: hand, prompt: "Two, after {{ one }}.", needs: [one]}
  - {id: three, agent: hand, prompt: "Three, after {{ two }}.", needs: [two]}
"""
BESIDE = """
max_concurrency: 3
defaults: {timeout: 2m}
tasks:
  - {id: x, for_each: [1, 2, 3, 4, 5, 6], agent: hand, prompt: Outside.}
  - {id: part, plan: chain.yaml}
"""


@pytest.mark.parametrize("continue_after", [None, 1])
async def test_a_chain_inside_starts_its_next_step_before_those_outside(
    crew: Bench, tmp_path: Path, continue_after: int | None
) -> None:
    """Outside there is one place meanwhile, and who has it stays. Continue-as-new takes along who has what."""
    (tmp_path / "chain.yaml").write_text(CHAIN)
    crew.simulator.script([{"when": {"task": "x[1]"}, "then": {"fault": "hang_before_headers"}}])
    run = await crew.start(BESIDE, continue_after=continue_after)
    await run.until(lambda picture: picture.census.ended == 8)
    await run.client.skip(run.id, ["x[1]"], by="ann", note=None)

    report = await run.report()

    assert (report.census.succeeded, report.census.skipped) == (8, 1)
    events = await run.events()
    starts = [event.task for event in events if event.type == "task.started"]
    assert starts[:4] == ["part/one", "x[1]", "part/two", "part/three"]
    assert sorted(map(str, starts[4:])) == [f"x[{number}]" for number in range(2, 7)]
    at_work = most = 0
    for event in events:
        at_work += (event.type == "task.started") - (event.type == "task.completed")
        most = max(most, at_work)
    assert most == 3
