"""A plan inside a plan: what it becomes, the places that are its own, and a run of it to its report."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Bench
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import Draw, Voyage, outlines
from test_caps import spent_on
from test_planning import mistakes, planned, tasks
from test_purse import CALL, Spending, priced

from domain import purse
from domain.models import Pace, Part, Placement, Policy, RunStatus
from domain.progress import Outline, Progress

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


@st.composite
def with_parts(draw: Draw) -> Outline:
    """Any plan of which some tasks are of plans inside it."""
    outline = draw(outlines())
    parts = {name: Part(id=name, places=draw(st.integers(1, 4))) for name in ("p", "q")}
    names = st.sampled_from([None, *parts])
    placed = tuple(task.model_copy(update={"part": draw(names)}) for task in outline.tasks)
    return outline.model_copy(update={"mode": Pace.WINDOW, "parts": parts, "tasks": placed})


def taken(outline: Outline, progress: Progress) -> int:
    """The places that are taken, by what the interface says."""
    parts = {task.id: task.part for task in outline.tasks}
    at_work = [parts[id] for id in progress.active]
    most = progress.max_concurrency or outline.max_concurrency
    return at_work.count(None) + sum(min(outline.parts[part].places, most) for part in {*at_work} if part is not None)


@settings(max_examples=200, deadline=None)
@given(with_parts(), st.data())
def test_a_plan_inside_has_its_own_places_and_never_more(outline: Outline, data: st.DataObject) -> None:
    """And whatever happens, every run comes to its end: nobody waits for places that never become free."""
    parts = {task.id: task.part for task in outline.tasks}

    for moment in Voyage(outline, data.draw).moments():
        progress = moment.step.progress
        if moment.step.starts:
            most = progress.max_concurrency or outline.max_concurrency
            lowered = taken(outline, moment.given) > most  # somebody has set fewer places than were taken
            assert lowered or taken(outline, progress) <= most
            started = {parts[id] for id in moment.step.starts} - {None}
            assert all(
                sum(parts[id] == part for id in progress.active) <= outline.parts[part].places
                for part in started
                if part is not None
            )


@settings(max_examples=100, deadline=None)
@given(with_parts(), st.integers(1, 12), st.integers(1, 12), st.data())
def test_a_plan_inside_spends_no_more_than_its_own(outline: Outline, own: int, all: int, data: st.DataObject) -> None:
    """And while it is at work nobody else sets aside what is left of it."""
    parts = {"p": outline.parts["p"].model_copy(update={"budget": own * CALL}), "q": outline.parts["q"]}
    voyage = Spending(priced(outline, all * CALL).model_copy(update={"parts": parts}), data.draw)
    inside = {task.id for task in outline.tasks if task.part == "p"}

    for moment in voyage.moments():
        progress, chart = moment.step.progress, voyage.course.chart
        assert spent_on(voyage, inside) <= own * CALL
        started = [id for id in moment.step.starts if id not in inside]
        if started and progress.active.keys() & moment.given.active.keys() & inside:
            left = purse.left(chart, progress)
            assert left is None or left >= 0


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
