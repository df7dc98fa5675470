"""A plan is replaced while it runs: any plan, at any moment, by any other in which all that has started is the same."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import AGENTS, START, Draw, Moment, Voyage, answered, failed, outline, outlines, plan_of, tasks_of

from domain.amendments import Amendment, Change
from domain.course import Course
from domain.events import EventType
from domain.growths import Growth
from domain.models import Approval, Grows, Plan, Policy, TaskStatus
from domain.picture import Picture
from domain.progress import Outline, OutlineTask, Progress
from domain.requests import Refused, Requests
from domain.steering import TaskSteering
from domain.step import Step

ENDS = {EventType.TASK_COMPLETED, EventType.TASK_FAILED, EventType.TASK_SKIPPED}
BACK = {EventType.TASK_WAITING, EventType.TASK_RETRIED, EventType.TASK_READY}


class ChangingVoyage(Voyage):
    """A run in which people change the plan, too. Every plan has a reference; the last is the one that stands."""

    def __init__(self, first: Outline, draw: Draw) -> None:
        super().__init__(first, draw)
        self.course = Course(first, plan_ref="plan-0")
        self.plans: dict[str, Plan] = {"plan-0": plan_of(first)}
        self.before = self.course.chart

    def _possible(self) -> list[str]:
        return [*super()._possible(), *["change"] * 4]

    def _request(self, verb: str) -> Moment:
        return self._change() if verb == "change" else super()._request(verb)

    def _carry(self) -> Moment:
        moment = super()._carry()
        self.course = Course(self._outline, plan_ref=self.course.chart.plan_ref)
        return moment

    def _change(self) -> Moment:
        """Take tasks out, put tasks in, and give others another limit or other needs; with or without sense."""
        ref = f"plan-{len(self.plans)}"
        new = self._draw(changes_of(self._outline, ref))
        chart = self.course.chart
        asked = Change(by="someone", amendment=Amendment(plan_ref=ref, base_ref=chart.plan_ref, outline=new))
        try:
            moment = self._take("change", lambda: Requests(chart).change(self.progress, asked, self._now))
        except Refused:
            return self._take("refused", lambda: Step(self.progress))
        assert moment.step.adopts is not None
        self.before = chart
        self.course.adopt(moment.step.adopts)
        self.plans[ref], self._outline = plan_of(new), new
        return moment


@st.composite
def changes_of(draw: Draw, old: Outline, ref: str) -> Outline:
    """Another plan: some tasks gone, with the edges to them; some with another limit; one or two new ones."""
    gone = set(draw(st.lists(st.sampled_from([task.id for task in old.tasks]), max_size=2)))
    tasks: list[OutlineTask] = []
    for task in old.tasks:
        if task.id in gone:
            continue
        needs = {need: policy for need, policy in task.needs.items() if need not in gone}
        if needs != task.needs:
            task = task.model_copy(update={"needs": needs, "quorum": None, "summaries": ()})  # noqa: PLW2901
        if draw(st.integers(0, 5)) == 0:
            task = task.model_copy(update={"agent": draw(st.sampled_from(AGENTS))})  # noqa: PLW2901
        tasks.append(task)
    for number in range(draw(st.integers(0 if tasks else 1, 2))):
        before = [task.id for task in tasks if not task.id.startswith(ref)]
        tasks.append(draw(tasks_of(f"{ref}-{number}", before)))
        is_needed = draw(st.booleans())
        if before and is_needed:  # and somebody needs the new one
            place = draw(st.integers(0, len(before) - 1))
            asked = tasks[place].model_copy(update={"needs": {**tasks[place].needs, tasks[-1].id: Policy.OPTIONAL}})
            if not asked.needs.keys() & {id for id in before if tasks[place].id in _all_needs(tasks, id)}:
                tasks[place] = asked
    return old.model_copy(update={"tasks": tuple(tasks)})


def _all_needs(tasks: list[OutlineTask], id: str) -> set[str]:
    needs = {task.id: task.needs for task in tasks}
    found, way = set(needs[id]), [*needs[id]]
    for need in way:
        way += [more for more in needs[need] if more not in found]
        found |= {*needs[need]}
    return found


@settings(max_examples=150, deadline=None)
@given(outlines(max_tasks=7), st.data())
def test_any_plan_may_take_the_place_of_any_other(first: Outline, data: st.DataObject) -> None:
    """The census adds up at every moment and is the readers' own; what has started is untouched; everything ends."""
    voyage = ChangingVoyage(first, data.draw)
    picture = Picture("run", voyage.plans["plan-0"], simulated=True)
    at_work: Counter[str] = Counter()
    for moment in voyage.moments():
        for event in moment.step.events:
            if event.type is EventType.PLAN_CHANGED:
                picture.adopt(voyage.plans[str(event.data["plan_ref"])], event.time)
            picture.add([event])
            if event.task is not None:
                at_work[event.task] += event.type is EventType.TASK_STARTED
                assert at_work[event.task] <= 1, "it started while it was at work"
                at_work[event.task] -= bool(at_work[event.task] and event.type in {*ENDS, *BACK} and _left(event.data))
        _check(moment, voyage, picture)
    assert voyage.course.is_over(voyage.progress)
    assert voyage.progress.ended.keys() == voyage.course.chart.tasks.keys()


def _left(data: dict[str, Any]) -> bool:
    return "error" not in data or "status" in data


def _check(moment: Moment, voyage: ChangingVoyage, picture: Picture) -> None:
    assert moment.given == moment.copy
    progress, chart = moment.step.progress, voyage.course.chart
    lines = [id for line in progress.ready.values() for id in line]
    places = [*progress.ended, *progress.active, *progress.parked, *progress.unmet]
    places += [chart.order(progress.started).ids[rank] for rank in lines]
    assert sorted(places) == sorted(chart.tasks), "every task is in one place"
    for line, ranks in progress.ready.items():
        ids = [chart.order(progress.started).ids[rank] for rank in ranks]
        assert {chart.tasks[id].line for id in ids} == {line}
        assert list(ranks) == sorted(ranks)
    for id, count in progress.unmet.items():
        assert count == sum(need not in progress.ended for need in chart.tasks[id].needs) > 0
    if moment.kind == "change":
        assert progress.ended.items() >= moment.given.ended.items()
        assert progress.active == moment.given.active
        assert set(progress.begun) == set(moment.given.begun)
        given = moment.given
        for id in {*given.begun, *given.rounds, *given.active, *given.ended}:
            assert chart.tasks[id] == voyage.before.tasks[id], "what has started is the same"
    if moment.kind != "finish":
        assert picture.census == voyage.course.census(progress)
        assert picture.tasks.keys() == chart.tasks.keys()


# One by one

PLAN = {"first": {}, "second": {"first": Policy.TOLERATE}, "third": {"second": Policy.REQUIRE}}


def begun(needs: dict[str, dict[str, Policy]] = PLAN) -> tuple[Course, Progress]:
    """A run of three, one after the other: the first is at work."""
    course = Course(outline(needs), plan_ref="old")
    progress = course.launch(course.begin(START).progress, START).progress
    return course, progress


def changed(course: Course, progress: Progress, new: Outline, *edited: str, base: str = "old") -> Step:
    amendment = Amendment(plan_ref="new", base_ref=base, outline=new, edited=edited)
    return Requests(course.chart).change(progress, Change(by="ann", note="so", amendment=amendment), START)


@pytest.mark.parametrize(
    ("plan", "edited", "why"),
    [
        ({"second": {}, "third": {"second": Policy.REQUIRE}}, (), "'first' is at work: it cannot be removed"),
        (PLAN, ("first",), "'first' is at work: it cannot be changed"),
        ({**PLAN, "more": {"nobody": Policy.REQUIRE}}, (), "'more' needs 'nobody', which is no task of the plan"),
        ({**PLAN, "a": {"b": Policy.REQUIRE}, "b": {"a": Policy.REQUIRE}}, (), "the needs form a cycle"),
        ({}, (), "the plan has no tasks, or two of the same id"),
    ],
)
def test_what_cannot_be_is_refused(plan: dict[str, dict[str, Policy]], edited: tuple[str, ...], why: str) -> None:
    """A refusal names the task and the reason, and nothing has changed."""
    course, progress = begun()

    with pytest.raises(Refused) as refused:
        changed(course, progress, outline(plan), *edited)

    assert str(refused.value) == why


def test_a_plan_that_somebody_else_has_changed_is_not_overwritten() -> None:
    """Who has looked at the plan before is told to look again; the same plan once more changes nothing."""
    course, progress = begun()

    with pytest.raises(Refused, match="changed meanwhile"):
        changed(course, progress, outline({**PLAN, "more": {}}), base="older")
    course.adopt(Amendment(plan_ref="new", base_ref="old", outline=outline(PLAN)))
    again = changed(course, progress, outline(PLAN))

    assert (again.progress, again.events, again.adopts) == (progress, (), None)


def test_what_was_approved_was_another_task() -> None:
    """A task that is edited after somebody has approved it is asked about again."""
    plan = outline({"only": {}, "other": {}})
    gated = plan.tasks[0].model_copy(update={"approval": Approval()})
    plan = plan.model_copy(update={"tasks": (gated, plan.tasks[1]), "max_concurrency": 1})
    course = Course(plan, plan_ref="old")
    progress = course.launch(course.begin(START).progress, START).progress
    progress = progress.model_copy(update={"parked": {}, "approved": ("only",), "ready": {"ant": (0,)}})

    step = changed(course, progress, plan, "only")

    assert step.progress.parked["only"].why == "approval"
    assert step.progress.approved == ()


def test_the_event_tells_who_changed_what() -> None:
    """What was added, edited and removed, by whom and why, and the plan by its reference."""
    course, progress = begun()

    step = changed(course, progress, outline({"first": {}, "second": {}, "new": {"second": Policy.OPTIONAL}}))

    [told] = [event.data for event in step.events if event.type is EventType.PLAN_CHANGED]
    assert told == {
        "plan_ref": "new",
        "tasks": 3,
        "added": ["new"],
        "edited": ["second"],
        "removed": ["third"],
        "counts": {"added": 1, "edited": 1, "removed": 1},
        "by": "ann",
        "note": "so",
    }
    assert step.answer is not None
    assert step.answer.done == "added new; edited second; removed third"


# Growing

ITEMS = Grows(kind="items")


def listing(**beside: dict[str, Policy]) -> tuple[Course, Progress]:
    """A run whose first task is at work on a list, over which another one fans out."""
    plan = outline({"list": {}, "each": {"list": Policy.REQUIRE}, "sum": {"each": Policy.OPTIONAL}, **beside})
    first, fan, *rest = plan.tasks
    tasks = first.model_copy(update={"grows": ITEMS}), fan.model_copy(update={"source": "list"}), *rest
    course = Course(plan.model_copy(update={"tasks": tasks}), plan_ref="old")
    return course, course.launch(course.begin(START).progress, START).progress


def growing() -> tuple[Course, Progress]:
    """The same when the list is made."""
    course, progress = listing()
    return course, course.result(progress, "list", answered(), START).progress


def grown_outline(*items: str, **beside: dict[str, Policy]) -> Outline:
    needs = {"list": {}, **{item: {"list": Policy.REQUIRE} for item in items}}
    plan = outline({**needs, "sum": dict.fromkeys(items, Policy.OPTIONAL), **beside})
    return plan.model_copy(update={"tasks": (plan.tasks[0].model_copy(update={"grows": ITEMS}), *plan.tasks[1:])})


def test_a_task_ends_when_the_plan_has_grown_by_its_answer() -> None:
    """Until then it is at work, nothing that needs it starts, and the same answer told twice is heard once."""
    course, progress = growing()

    assert list(progress.active) == ["list"]
    assert not progress.ended
    assert course.result(progress, "list", answered(), START).progress == progress
    amendment = Amendment(plan_ref="new", base_ref="old", outline=grown_outline("each[a]", "each[b]"))
    step = course.grown(progress, "list", Growth(base_ref="old", amendment=amendment), START)
    course.adopt(amendment)

    assert [str(event.type) for event in step.events] == [
        *("plan.changed", "task.created", "task.created", "task.completed", "task.ready", "task.ready")
    ]
    assert step.progress.unmet == {"sum": 2}
    assert course.launch(step.progress, START).starts == ("each[a]", "each[b]")


def retried_list() -> tuple[Course, Progress]:
    """The list has failed, its fan-out was skipped, and a person has both done again: the list is at work once more."""
    course, progress = listing(beside={})
    progress = course.result(progress, "list", failed(), START).progress
    assert progress.ended["each"].status is TaskStatus.SKIPPED
    progress = Requests(course.chart).retry(progress, TaskSteering(by="ann", tasks=("list",)), START).progress
    return course, course.launch(progress, START).progress


def test_a_list_that_is_made_at_the_second_try_grows_the_plan() -> None:
    """Who stands for a fan-out was retried with its list, and was never done: its tasks take its place, and start."""
    course, progress = retried_list()
    progress = course.result(progress, "list", answered(), START).progress

    amendment = Amendment(plan_ref="new", base_ref="old", outline=grown_outline("each[a]", "each[b]", beside={}))
    step = course.grown(progress, "list", Growth(base_ref="old", amendment=amendment), START)
    course.adopt(amendment)

    assert step.progress.ended["list"].status is TaskStatus.SUCCEEDED
    assert course.launch(step.progress, START).starts == ("each[a]", "each[b]")
    assert step.progress.rounds.keys() <= course.chart.tasks.keys()
    assert step.progress.rounds["list"] == 1


def test_a_task_that_was_done_again_is_still_not_removed() -> None:
    """Only who stands for a fan-out may go: any other has been paid for."""
    course, progress = listing(beside={}, after={"beside": Policy.REQUIRE})
    progress = course.result(progress, "beside", failed(), START).progress
    progress = Requests(course.chart).retry(progress, TaskSteering(by="ann", tasks=("beside",)), START).progress
    without = {"list": {}, "sum": {"list": Policy.OPTIONAL}, "beside": {}}

    with pytest.raises(Refused, match="'after' has started: it cannot be removed"):
        changed(course, progress, outline(without))


def test_an_answer_that_cannot_be_used_is_a_failure_with_its_text() -> None:
    """The reason is told, what was answered stays, and what cannot do without it is skipped."""
    course, progress = growing()

    step = course.grown(progress, "list", Growth(base_ref="old", refused="its list has 9 items"), START)

    assert step.progress.ended["list"].status is TaskStatus.FAILED
    assert step.progress.ended["each"].status is TaskStatus.SKIPPED
    [failed] = [event.data for event in step.events if event.type is EventType.TASK_FAILED]
    assert (failed["error"]["type"], failed["output_ref"]) == ("NotGrown", answered().output_ref)  # type: ignore[index,call-overload]


def test_a_fan_out_without_items_is_skipped() -> None:
    """The list is empty: there is nothing to do, and who can do without goes on."""
    course, progress = growing()

    step = course.grown(progress, "list", Growth(base_ref="old", idle={"each": "the list is empty"}), START)

    assert (step.progress.ended["each"].status, step.progress.ended["each"].why) == ("SKIPPED", "the list is empty")
    assert course.launch(step.progress, START).starts == ("sum",)


def test_what_was_worked_out_for_another_plan_is_not_used() -> None:
    """Somebody has changed the plan, or skipped the fan-out, meanwhile: it is asked for once more."""
    course, progress = growing()

    assert course.grown(progress, "list", Growth(base_ref="older"), START).progress == progress
    assert course.grown(progress, "list", Growth(base_ref="old", over=("each",)), START).progress == progress


def test_a_cancel_keeps_the_answer_and_grows_nothing() -> None:
    """What was paid for is there to read. What comes of the list later is heard by nobody; a retry makes it anew."""
    course, progress = growing()

    step = course.cancel(progress, START)
    cancelled = step.progress

    assert cancelled.ended["list"].status is TaskStatus.CANCELLED
    assert step.events[0].data["output_ref"] == answered().output_ref
    assert cancelled.ended["each"].status is TaskStatus.NOT_STARTED
    assert course.is_over(cancelled)
    assert course.grown(cancelled, "list", Growth(base_ref="old", refused="late"), START).progress == cancelled


def test_who_is_skipped_while_the_plan_grows_adds_nothing() -> None:
    """The person was told that it is skipped. What it has cost is told with its end."""
    course, progress = growing()
    skipped = Requests(course.chart).skip(progress, TaskSteering(by="ann", tasks=("list",)), START).progress
    amendment = Amendment(plan_ref="new", base_ref="old", outline=grown_outline("each[a]"))

    step = course.grown(skipped, "list", Growth(base_ref="old", amendment=amendment), START)

    assert step.adopts is None
    assert step.progress.ended["list"].status is TaskStatus.SKIPPED
    assert step.progress.ended["each"].status is TaskStatus.SKIPPED
    assert step.events[0].data["tokens"] == answered().usage.model_dump()


def test_the_word_of_a_person_is_for_the_change_that_was_shown() -> None:
    """Another one, made of the same answer on a plan that was changed meanwhile, is asked about anew."""
    plan = outline({"look": {}, "rest": {"look": Policy.OPTIONAL}})
    grows = Grows(kind="changes", approval=Approval())
    looking = plan.tasks[0].model_copy(update={"grows": grows})
    course = Course(plan.model_copy(update={"tasks": (looking, plan.tasks[1])}), plan_ref="old")
    progress = course.launch(course.begin(START).progress, START).progress
    progress = course.result(progress, "look", answered(), START).progress
    more = outline({"look": {}, "rest": {"look": Policy.OPTIONAL}, "more": {"look": Policy.OPTIONAL}})
    more = more.model_copy(update={"tasks": (looking, *more.tasks[1:])})

    def grown(of: Progress, ref: str) -> Step:
        amendment = Amendment(plan_ref=ref, base_ref="old", outline=more)
        return course.grown(of, "look", Growth(base_ref="old", amendment=amendment), START)

    asked = grown(progress, "shown").progress
    assert asked.parked["look"].why == "approval"
    agreed = Requests(course.chart).approve(asked, TaskSteering(by="ann", tasks=("look",)), START).progress
    assert grown(agreed, "other").progress.parked["look"].why == "approval"
    assert grown(agreed, "shown").adopts is not None
