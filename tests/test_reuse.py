"""What a new run takes over of an earlier one: pure rules, for any plan, any edit and any end of the earlier run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import START, Draw, answered, outline, outlines, plan_of

from domain.course import Course
from domain.graph import dependants_of, needs_of
from domain.models import Approval, File, Input, Need, Plan, Policy, RunStatus, Task, TaskStatus, Usage
from domain.past import past_of
from domain.picture import Picture
from domain.progress import outline_of
from domain.report import Decision
from domain.requests import Requests
from domain.reuse import NOT_TOLD, Kept, Past, fingerprint, taken_over, unfinished, with_what_they_lacked
from domain.selection import only
from domain.steering import TaskSteering
from terminal.live import live_view

TOLERATE, OPTIONAL, REQUIRE = Policy.TOLERATE, Policy.OPTIONAL, Policy.REQUIRE


def cone(plan: Plan, roots: set[str]) -> set[str]:
    """These tasks and everything after them, found the plain way."""
    dependants, found = dependants_of(needs_of(plan)), [*roots]
    for id in found:
        found += [later for later in dependants[id] if later not in found]
    return set(found)


def ref(id: str) -> str:
    return f"sha256:{id:0>64}"


def past_with(plan: Plan, ends: dict[str, TaskStatus]) -> dict[str, Past]:
    """An earlier run of the plan in which tasks ended like this, and were told so."""
    refs = {id: ref(id) if status is TaskStatus.SUCCEEDED else None for id, status in ends.items()}
    return {
        task.id: Past(
            Kept(status=ends[task.id], run="before", ref=refs[task.id]),
            tuple(Input(task=need.task, status=ends[need.task], ref=refs[need.task]) for need in task.needs),
        )
        for task in plan.tasks
    }


def all_well(plan: Plan) -> dict[str, Past]:
    return past_with(plan, {task.id: TaskStatus.SUCCEEDED for task in plan.tasks})


def edited(plan: Plan, id: str, **change: Any) -> Plan:
    tasks = tuple(task.model_copy(update=change) if task.id == id else task for task in plan.tasks)
    return plan.model_copy(update={"tasks": tasks})


@st.composite
def edits(draw: Draw, plan: Plan) -> tuple[Plan, set[str]]:
    """An edited plan, and the tasks whose own words have changed."""
    chosen = draw(st.sets(st.sampled_from([task.id for task in plan.tasks])))
    for id in sorted(chosen):
        task = next(task for task in plan.tasks if task.id == id)
        unneeded = {"needs": task.needs[1:]} if task.needs else {"max_tokens": 2}
        change: dict[str, Any] = draw(
            st.sampled_from(
                [
                    {"prompt": ("another prompt",)},
                    {"payload": {"new": 1}},
                    {"files": (File(path="a", ref=ref("f"), size=1),)},
                    {"max_tokens": 77},
                    {"type": "another"},
                    unneeded,
                ]
            )
        )
        plan = edited(plan, id, **change)
    return plan, chosen


@settings(max_examples=100, deadline=None)
@given(outlines().map(plan_of), st.data())
def test_what_is_kept_is_the_complement_of_the_cone(old: Plan, data: st.DataObject) -> None:
    """Of what changed, and of what did not succeed: for any plan, any edit, any ends and any order of the tasks."""
    new, changed = data.draw(edits(old))
    new = new.model_copy(update={"tasks": tuple(data.draw(st.permutations(new.tasks)))})
    statuses = st.sampled_from([TaskStatus.SUCCEEDED] * 3 + [TaskStatus.FAILED, TaskStatus.SKIPPED])
    past = past_with(old, {task.id: data.draw(statuses) for task in old.tasks})
    past = dict(data.draw(st.permutations([*past.items()])))

    kept = taken_over(new, old, past, unfinished(past))

    assert set(kept) == {task.id for task in new.tasks} - cone(new, changed | unfinished(past))
    assert list(kept) == [task.id for task in new.tasks if task.id in kept], "in plan order, whatever ended first"
    assert all(found.status is TaskStatus.SUCCEEDED for found in kept.values())


@settings(max_examples=100, deadline=None)
@given(outlines().map(plan_of), st.data())
def test_tasks_that_were_named_are_done_with_everything_after_them_and_nothing_else(
    plan: Plan, data: st.DataObject
) -> None:
    """Also what failed elsewhere stays as it was: nobody asked for it."""
    done = st.sampled_from([TaskStatus.SUCCEEDED, TaskStatus.FAILED, TaskStatus.TIMED_OUT])
    past = past_with(plan, {task.id: data.draw(done) for task in plan.tasks})
    named = data.draw(st.sets(st.sampled_from([task.id for task in plan.tasks]), min_size=1))

    kept = taken_over(plan, plan, past, with_what_they_lacked(plan, past, named))

    assert set(kept) == {task.id for task in plan.tasks} - cone(plan, named)
    assert {id: found.status for id, found in kept.items()} == {id: past[id].kept.status for id in kept}


@settings(max_examples=100, deadline=None)
@given(outlines(), st.data())
def test_a_run_that_takes_results_over_ends_as_if_it_had_done_them(given_outline: Any, data: st.DataObject) -> None:
    """Its census and status are the same, and only the others are started, however many are kept."""
    free = given_outline.model_copy(
        update={
            "deadline": None,
            "tasks": tuple(
                task.model_copy(update={"approval": None, "deadline": None, "time_limit": None})
                for task in given_outline.tasks
            ),
        }
    )
    plan = plan_of(free)
    again = data.draw(st.sets(st.sampled_from([task.id for task in plan.tasks])))
    kept = taken_over(plan, plan, all_well(plan), again)
    course, picture = Course(free), Picture("now", plan, simulated=True)

    step = course.begin(START, kept)
    picture.add(step.events)
    started: list[str] = []
    while not course.is_over(step.progress):
        step = course.launch(step.progress, START)
        picture.add(step.events)
        started += step.starts
        for id in step.starts:
            step = course.result(step.progress, id, answered(), START)
            picture.add(step.events)
    picture.add(course.finish(step.progress, START).events)

    assert set(started) == cone(plan, again)
    assert course.status(step.progress) is picture.status is RunStatus.COMPLETED
    assert picture.census == course.census(step.progress)
    assert step.progress.usage == picture.tokens == Usage(input=len(started), output=2 * len(started))
    assert picture.reused == len(kept)
    assert {id for id, seen in picture.tasks.items() if seen.reused == "before"} == set(kept)


AGENT = plan_of(outline({"a": {}})).agents[0]
TASK = plan_of(outline({"a": {"b": OPTIONAL}, "b": {}})).tasks[0]


@pytest.mark.parametrize(
    "change",
    [
        {"priority": "high"},
        {"attempts": 9},
        {"quorum": 1},
        {"approval": Approval(ask="Shall we?")},
        {"needs": (Need(task="b", policy=REQUIRE),)},
        {"timeout": TASK.timeout * 2},
    ],
)
def test_what_the_agent_is_not_told_is_no_change(change: dict[str, Any]) -> None:
    assert fingerprint(TASK.model_copy(update=change), AGENT) == fingerprint(TASK, AGENT)


@pytest.mark.parametrize("change", [{"version": "2"}, {"model": "other"}, {"instructions": "Else."}, {"name": "dog"}])
def test_another_agent_is_a_change(change: dict[str, Any]) -> None:
    """And its limits are none: what counts of them is in the task."""
    assert fingerprint(TASK, AGENT.model_copy(update=change)) != fingerprint(TASK, AGENT)
    assert fingerprint(TASK, AGENT.model_copy(update={"max_concurrency": 7, "attempts": 2})) == fingerprint(TASK, AGENT)


def test_a_plan_by_another_name_is_the_same_work() -> None:
    plan = plan_of(outline({"a": {}, "b": {"a": TOLERATE}}))

    kept = taken_over(plan.model_copy(update={"name": "copy", "max_concurrency": 1}), plan, all_well(plan), ())

    assert set(kept) == {"a", "b"}


def test_an_input_that_came_later_is_another_input() -> None:
    """It had run without it; the input was done again while the run was going, and is there now."""
    plan = plan_of(outline({"a": {}, "b": {"a": OPTIONAL}}))
    past = all_well(plan)
    past["b"] = Past(past["b"].kept, (Input(task="a", status=TaskStatus.FAILED, why="it broke"),))

    assert set(taken_over(plan, plan, past, ())) == {"a"}


def test_another_result_of_the_same_need_is_another_input() -> None:
    plan = plan_of(outline({"a": {}, "b": {"a": TOLERATE}}))
    past = all_well(plan)
    past["b"] = Past(past["b"].kept, (Input(task="a", status=TaskStatus.SUCCEEDED, ref=ref("earlier")),))

    assert set(taken_over(plan, plan, past, ())) == {"a"}


def test_the_order_of_needs_is_told() -> None:
    plan = plan_of(outline({"a": {}, "b": {}, "c": {"a": TOLERATE, "b": TOLERATE}}))
    turned = edited(plan, "c", needs=tuple(reversed(plan.tasks[2].needs)))

    assert set(taken_over(turned, plan, all_well(plan), ())) == {"a", "b"}


def test_a_missing_input_is_the_same_for_another_reason() -> None:
    plan = plan_of(outline({"a": {}, "b": {"a": OPTIONAL}, "c": {}}))
    past = past_with(plan, {"a": TaskStatus.FAILED, "b": TaskStatus.SUCCEEDED, "c": TaskStatus.SUCCEEDED})
    past["b"] = Past(past["b"].kept, (Input(task="a", status=TaskStatus.FAILED, why="it broke otherwise"),))

    assert set(taken_over(plan, plan, past, with_what_they_lacked(plan, past, ["c"]))) == {"a", "b"}


def test_a_task_that_was_skipped_brings_along_what_it_lacked() -> None:
    plan = plan_of(outline({"a": {}, "b": {"a": REQUIRE}, "c": {"b": REQUIRE}, "other": {}}))
    ends = {"a": TaskStatus.FAILED, "b": TaskStatus.SKIPPED, "c": TaskStatus.SKIPPED, "other": TaskStatus.FAILED}
    past = past_with(plan, ends)

    assert with_what_they_lacked(plan, past, ["c"]) == {"a", "b", "c"}
    assert with_what_they_lacked(plan, past, ["a"]) == {"a"}


def _decided(note: str | None) -> Decision:
    return Decision(answer="approved", by="ann", note=note, at="2026-01-01T00:00:00Z")


@pytest.mark.parametrize(
    ("before", "note", "now", "kept"),
    [
        (Approval(ask="Shall we?"), "Be kind.", Approval(ask="Shall we?"), True),
        (Approval(ask="Shall we?"), "Be kind.", Approval(ask="Shall we now?"), False),
        (None, None, Approval(ask="Shall we?"), False),
        (Approval(ask="Shall we?"), None, None, True),
        (Approval(ask="Shall we?"), "Be kind.", None, False),
    ],
)
def test_a_question_that_was_answered_is_not_asked_again(
    before: Approval | None, note: str | None, now: Approval | None, kept: bool
) -> None:
    """A new or another question is; and a note that nobody would give now was told to the agent all the same."""
    plan = plan_of(outline({"a": {}}))
    old, new = edited(plan, "a", approval=before), edited(plan, "a", approval=now)
    approval = _decided(note) if before is not None else None
    past = {"a": Past(Kept(run="before", ref=ref("a"), approval=approval))}

    assert bool(taken_over(new, old, past, ())) is kept


def _ran(plan: Plan, work: Callable[[Course, Any, Any], Any]) -> Picture:
    """A picture of a run that was led by hand."""
    course, picture = Course(outline_of(plan)), Picture("before", plan, simulated=True)

    def take(step: Any) -> Any:
        picture.add(step.events)
        return step.progress

    progress = work(course, take(course.begin(START)), take)
    if course.is_over(progress):
        take(course.finish(progress, START))
    return picture


def test_what_a_run_has_come_to_is_read_from_its_events() -> None:
    """With the cost of the answer alone, the note, and the run that had paid first."""
    plan = edited(plan_of(outline({"a": {}, "b": {"a": TOLERATE}})), "b", approval=Approval())

    def work(course: Course, progress: Any, take: Any) -> Any:
        progress = take(course.launch(progress, START))
        progress = take(course.result(progress, "a", answered(3), START))
        asked = TaskSteering(by="ann", tasks=("b",), note="Be kind.")
        progress = take(Requests(course.chart).approve(progress, asked, START))
        progress = take(course.launch(progress, START))
        return take(course.result(progress, "b", answered(5), START))

    first = past_of(_ran(plan, work))
    again = Picture("again", plan, simulated=True)
    again.add(Course(outline_of(plan)).begin(START, taken_over(plan, plan, first, ())).events)
    second = past_of(again)

    assert (first["a"].kept.run, first["a"].kept.tokens) == ("before", Usage(input=3, output=6))
    assert [input.ref for input in first["b"].inputs] == [first["a"].kept.ref]
    note = first["b"].kept.approval
    assert note is not None
    assert (note.by, note.note) == ("ann", "Be kind.")
    assert second == first, "whoever takes over from the second takes over the same"
    seen = "\n".join(line.plain for line in live_view(again, START).lines(100, 40))
    assert "2 reused" in seen
    report = again.report({}, START)
    assert report.reuse is not None
    assert (report.reuse.runs, report.reuse.tasks) == (("before",), 2)
    assert (report.reuse.tokens, report.tokens) == (Usage(input=8, output=16), Usage())
    assert report.reuse.models == {"m": Usage(input=8, output=16)}
    assert [(task.reused, task.attempts, task.success) for task in report.tasks] == [("before", 0, True)] * 2


def test_only_some_tasks_are_a_plan_of_their_own() -> None:
    plan = plan_of(outline({"a": {}, "b": {"a": TOLERATE}, "c": {"b": TOLERATE}, "d": {"a": TOLERATE}, "e": {}}))

    found = only(plan, ["c", "e"])

    assert [task.id for task in found.tasks] == ["a", "b", "c", "e"]
    assert [agent.name for agent in found.agents] == ["ant"]


def test_every_key_of_a_task_is_either_told_or_named_as_not_told() -> None:
    """Whoever adds a key must decide whether it changes what the agent is told."""
    told = {"id", "agent", "type", "prompt", "files", "payload", "max_tokens", "merge", "merged", "each", "item"}
    told |= {"schema_", "review", "expect"}

    assert set(Task.model_fields) == told | NOT_TOLD
