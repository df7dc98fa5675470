"""How many of its optional needs must have succeeded before a task runs."""

from __future__ import annotations

import pytest
from conftest import Bench
from plans import START, answered, failed, outline

from domain.course import Course
from domain.era import NOW, Era
from domain.models import Policy, RunStatus, TaskStatus
from domain.progress import Progress
from domain.requests import Requests
from domain.steering import TaskSteering

GOOD, BAD, LATE = answered(), failed(), failed(TaskStatus.TIMED_OUT)

TABLE = [  # the ends of three optional needs, how many must have succeeded, and whether the dependant runs
    ([GOOD, GOOD, GOOD], 3, True),
    ([GOOD, GOOD, BAD], 3, False),
    ([GOOD, GOOD, LATE], 2, True),
    ([GOOD, BAD, LATE], 2, False),
    ([GOOD, BAD, LATE], 1, True),
    ([BAD, BAD, LATE], 1, False),
    ([BAD, BAD, LATE], None, True),
]


@pytest.mark.parametrize(("ends", "quorum", "runs"), TABLE)
def test_a_quorum_counts_what_has_succeeded(ends: list[object], quorum: int | None, runs: bool) -> None:
    """A skip names a need that is missing, and says how many there were."""
    needs = dict.fromkeys(["a", "b", "c"], Policy.OPTIONAL)
    plan = outline({"a": {}, "b": {}, "c": {}, "end": needs})
    last = plan.tasks[-1].model_copy(update={"quorum": quorum})
    course = Course(plan.model_copy(update={"tasks": (*plan.tasks[:-1], last)}))
    progress = course.launch(course.begin(START).progress, START).progress

    for id, end in zip("abc", ends, strict=True):
        progress = course.result(progress, id, end, START).progress  # type: ignore[arg-type]

    assert (course.launch(progress, START).starts == ("end",)) == runs
    if not runs:
        skipped = progress.ended["end"]
        succeeded = sum(end is GOOD for end in ends)
        assert skipped.status is TaskStatus.SKIPPED
        assert skipped.cause == "abc"[next(place for place, end in enumerate(ends) if end is not GOOD)]
        assert skipped.why == f"needs {quorum} of its 3 optional inputs, and {succeeded} succeeded"


@pytest.mark.parametrize("strict", [Policy.REQUIRE, Policy.TOLERATE])
def test_a_quorum_that_is_met_does_not_make_up_for_a_need_that_must_be_there(strict: Policy) -> None:
    plan = outline({"a": {}, "b": {}, "end": {"a": Policy.OPTIONAL, "b": strict}})
    last = plan.tasks[-1].model_copy(update={"quorum": 1})
    course = Course(plan.model_copy(update={"tasks": (*plan.tasks[:-1], last)}))
    progress = course.launch(course.begin(START).progress, START).progress
    progress = course.result(progress, "a", GOOD, START).progress

    progress = course.result(progress, "b", BAD, START).progress

    assert progress.ended["end"].cause == "b"


async def test_a_run_with_a_quorum_that_is_met_and_one_that_is_missed(crew: Bench) -> None:
    """Who runs is told which inputs it has to do without; who is skipped says how many were missing."""
    crew.simulator.script(
        [{"when": {"task": task}, "then": {"stop_reason": "refusal"}} for task in ("source[2]", "source[3]")]
    )
    run = await crew.start("""
defaults: {agent: hand}
tasks:
  - {id: source, for_each: [1, 2, 3, 4], prompt: Go.}
  - {id: anyway, prompt: Go., needs: {source: optional}}
  - {id: two, prompt: Go., needs: {source: optional}, quorum: 2}
  - {id: three, prompt: Go., needs: {source: optional}, quorum: 3}
  - {id: after, prompt: Go., needs: [three]}
""")

    report = await run.report()

    tasks = {task.id: task for task in report.tasks}
    assert {id: tasks[id].status.value for id in ("anyway", "two", "three", "after")} == {
        "anyway": "SUCCEEDED",
        "two": "SUCCEEDED",
        "three": "SKIPPED",
        "after": "SKIPPED",
    }
    assert tasks["three"].error is not None
    assert tasks["three"].error.message == "needs 3 of its 4 optional inputs, and 2 succeeded"
    assert tasks["three"].cause == tasks["after"].cause == "source[2]"
    picture = await run.client.picture(run.id)
    for id in "anyway", "two":
        brief = await run.client.brief(picture, id)
        assert "source[2]" in brief
        assert "source[3]" in brief
    assert report.status is RunStatus.PARTIAL
    assert crew.simulator.calls() == 6


def missed(era: Era = NOW) -> tuple[Course, Progress]:
    """Both of two optional inputs have failed, one was needed, and what follows is skipped too."""
    optional = dict.fromkeys(["x1", "x2"], Policy.OPTIONAL)
    plan = outline({"after": {"d": Policy.REQUIRE}, "x1": {}, "x2": {}, "d": optional, "goes": {}})
    tasks = tuple(task.model_copy(update={"quorum": 1}) if task.id == "d" else task for task in plan.tasks)
    course = Course(plan.model_copy(update={"tasks": tasks}), era=era)
    progress = course.launch(course.begin(START).progress, START).progress
    for id in optional:
        progress = course.result(progress, id, BAD, START).progress
    assert {id: end.status for id, end in progress.ended.items()} == {
        "x1": TaskStatus.FAILED,
        "x2": TaskStatus.FAILED,
        "d": TaskStatus.SKIPPED,
        "after": TaskStatus.SKIPPED,
    }
    return course, progress


@pytest.mark.parametrize("named", ["x1", "x2"])
def test_whichever_input_is_done_again_who_was_skipped_for_a_quorum_is_judged_anew(named: str) -> None:
    """Of the inputs that are missing a skip names the first, and each of them would have been enough."""
    course, progress = missed()

    step = Requests(course.chart).retry(progress, TaskSteering(by="ann", tasks=(named,)), START)
    progress = course.launch(step.progress, START).progress
    progress = course.result(progress, named, GOOD, START).progress

    assert step.answer is not None
    assert step.answer.tasks == ("after", named, "d")
    assert course.launch(progress, START).starts == ("d",)


def test_who_a_person_has_skipped_stays_so_when_its_input_is_done_again() -> None:
    plan = outline({"x": {}, "y": {}, "d": dict.fromkeys(["x", "y"], Policy.REQUIRE)})
    course = Course(plan)
    requests = Requests(course.chart)
    progress = course.launch(course.begin(START).progress, START).progress
    progress = requests.skip(progress, TaskSteering(by="ann", tasks=("d",)), START).progress
    progress = course.result(progress, "x", BAD, START).progress

    again = requests.retry(progress, TaskSteering(by="ann", tasks=("x",)), START)

    assert again.answer is not None
    assert again.answer.tasks == ("x",)


def test_a_history_of_an_earlier_release_goes_on_with_its_own_retry() -> None:
    """It started no more tasks then: a replay that did would not be the same run."""
    course, progress = missed(Era(before_0_4=True))

    step = Requests(course.chart).retry(progress, TaskSteering(by="ann", tasks=("x2",)), START)

    assert step.answer is not None
    assert step.answer.tasks == ("x2",)
