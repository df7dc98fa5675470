"""The pages of a run and a task in the Temporal Web UI: bounded for any plan, true, and harmless whatever the names."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import START, Voyage, outline, outlines, plan_of

from domain.course import Course
from domain.details import details_of, outcome_details, work_details
from domain.leaflet import run_details, run_summary, task_details, task_summary, update_input
from domain.markdown import MAX_LINES, SUMMARY_BYTES, Section, code, label, one_line, page, size, summary
from domain.models import (
    Agent,
    Answered,
    Approval,
    Failed,
    Goal,
    Need,
    Outcome,
    Parked,
    Plan,
    Policy,
    Stopped,
    Task,
    TaskError,
    TaskStatus,
    Usage,
)
from domain.progress import Ended, Ordered, Outline, OutlineTask, Progress, Waiting, Wall
from domain.runs import TaskInput
from domain.steering import Setting, Steering, TaskSteering

LATER = START + timedelta(hours=3)
NASTY = st.text(alphabet="`*_[]()<>!&#|~\\:/.\n\r\t\0\u202e\u2028ab月🌙 ", max_size=300) | st.text(max_size=300)
STATES = st.sampled_from(["active", "parked", "failed", "timed_out", "succeeded", "ready", "pending"])


def fits(text: str) -> bool:
    """What Temporal and its page can take."""
    return len(text.encode()) < 20_000 and size(text) < 20_000 and len(text.split("\n")) <= 100


def outside_code(text: str) -> str:
    """The text without its code spans; a line without a partner for one of its marks would be a mistake."""
    for line in text.split("\n"):
        assert line.count("`") % 2 == 0, line
    return re.sub(r"`[^`]*`", "", text)


@st.composite
def progresses(draw: st.DrawFn) -> tuple[Outline, Progress]:
    """Any state of any plan, with names and messages as bad as they can be."""
    names = draw(st.lists(NASTY.filter(bool), min_size=1, max_size=40, unique=True))
    copies = draw(st.sampled_from([1, 1, 5, 50]))
    ids = [f"{name}{number}" for name in names for number in range(copies)]
    agent, message = draw(NASTY.filter(bool)), draw(NASTY)
    plan = Outline(
        max_concurrency=500,
        tasks=tuple(OutlineTask(id=id, agent=agent, timeout=timedelta(seconds=30), attempts=4) for id in ids),
    )
    progress = Progress(paused=draw(st.booleans()), cancelled=draw(st.booleans()))
    until = draw(st.none() | st.just(LATER))
    why: Any = draw(st.sampled_from(["wall", "wall", "approval"]))
    for place in draw(st.lists(NASTY, max_size=3)):
        progress.barriers[place] = Wall(kind="model", what=message, since=START, until=LATER, told=draw(st.booleans()))
    for name in names:
        state = draw(STATES)
        for id in (f"{name}{number}" for number in range(copies)):
            match state:
                case "active":
                    progress.active[id] = START
                case "parked":
                    progress.parked[id] = Waiting(why=why, what=message, since=START, until=until)
                case "failed" | "timed_out" | "succeeded":
                    progress.ended[id] = Ended(status=TaskStatus(state.upper()), why=message or None)
                case "ready":
                    progress.ready[agent] = (*progress.ready.get(agent, ()), 0)
                case _:
                    progress.unmet[id] = 1
    return plan, progress


@given(state=progresses(), simulated=st.booleans(), continued=st.booleans(), bug=st.none() | NASTY.filter(bool))
@settings(max_examples=200, deadline=None)
def test_the_page_of_a_run_is_bounded_and_harmless(
    state: tuple[Outline, Progress], simulated: bool, continued: bool, bug: str | None
) -> None:
    plan, progress = state
    course = Course(plan)

    text = details_of(course, progress, LATER, run="run-1", simulated=simulated, continued=continued, bug=bug)

    assert fits(text)
    assert not set(outside_code(text)) & set("<>[]!&|~\\#\r\t\0\u202e\u2028")
    first = text.split("\n")[0]
    assert ("SIMULATED" if simulated else "LIVE") in first
    assert f"{len(progress.ended):,} of {len(plan.tasks):,} task" in first


@given(state=progresses())
@settings(max_examples=100, deadline=None)
def test_every_task_that_needs_a_look_is_shown_or_counted(state: tuple[Outline, Progress]) -> None:
    plan, progress = state

    text = details_of(Course(plan), progress, LATER, run="run-1", simulated=True)

    failed = [id for id, end in progress.ended.items() if end.status is not TaskStatus.SUCCEEDED]
    asked = [id for id, wait in progress.parked.items() if wait.why == "approval"]
    waiting = [id for id in progress.parked if id not in asked]
    sections = {"Waits for your approval": asked, "At work": progress.active, "Waiting": waiting, "Failed": failed}
    for title, tasks in sections.items():
        lines = list(section(text, f"**{title} ({len(tasks):,})**"))
        hidden = [line for line in lines if line.startswith("- and ")]
        more = int(hidden[0].removeprefix("- and ").removesuffix(" more").replace(",", "")) if hidden else 0
        assert len(lines) - len(hidden) + more == len(tasks)
        assert len(lines) > bool(hidden) or not tasks or size(text) > 10_000, (
            "a part of each is shown while there is room"
        )


def section(text: str, title: str) -> Iterator[str]:
    """The lines under a title."""
    _, found, rest = text.partition(f"{title}\n")
    for line in rest.split("\n") if found else ():
        if not line:
            return
        yield line


@given(data=st.data(), plan=outlines())
@settings(max_examples=50, deadline=None)
def test_the_page_agrees_with_the_course_at_every_moment(data: st.DataObject, plan: Outline) -> None:
    voyage = Voyage(plan, data.draw)
    for moment in voyage.moments():
        progress = moment.step.progress

        text = details_of(voyage.course, progress, moment.now, run="run-1", simulated=True)

        assert text.startswith(f"**{voyage.course.status(progress)}** ")
        census = voyage.course.census(progress)
        assert (f"{census.running} at work" in text) == bool(census.running)
        asked = sum(wait.why == "approval" for wait in progress.parked.values())
        assert (f"**Waits for your approval ({asked})**" in text) == bool(asked)
        assert (f"**Waiting ({census.waiting - asked})**" in text) == bool(census.waiting - asked)
        assert (f"**Walls ({len(progress.barriers)})**" in text) == bool(progress.barriers)
        assert (f"**Failed ({census.failed + census.timed_out})**" in text) == bool(census.failed + census.timed_out)


def test_ten_thousand_tasks_fit() -> None:
    """All of them failed, with long names of four bytes a letter: the page still opens with the census."""
    ids = [f"{'🌒' * 100}[{number}{'🌙' * 90}]" for number in range(10_000)]
    plan = outline({id: {} for id in ids})
    progress = Progress(ended={id: Ended(status=TaskStatus.FAILED, why="🌙" * 500) for id in ids})

    text = details_of(Course(plan), progress, LATER, run="r" * 200, simulated=True, continued=True)

    assert fits(text)
    assert "10,000 of 10,000 tasks ended" in text
    assert "**Failed (10,000)**" in text
    assert re.search(r"- and 9,9\d\d more", text)


def test_what_is_at_work_does_not_hide_what_failed() -> None:
    """Five hundred at work and a hundred failures: a part of each, and how many more there are."""
    plan = outline({f"t{number}": {} for number in range(600)})
    failed = Ended(status=TaskStatus.FAILED, why="no")
    progress = Progress(
        active={f"t{number}": START for number in range(500)},
        ended={f"t{number}": failed for number in range(500, 600)},
    )

    text = details_of(Course(plan), progress, LATER, run="run-1", simulated=True)

    assert list(section(text, "**At work (500)**"))[-2:] == ["- `t29` by `ant`, since 00:00:00 UTC", "- and 470 more"]
    assert list(section(text, "**Failed (100)**"))[-2:] == ["- `t529` by `ant`, failed: `no`", "- and 70 more"]


def test_a_page_is_filled_but_not_more() -> None:
    """The longest list gives way first."""
    lines = [str(number) for number in range(200)]

    text = page(["head"], [Section("short", lines[:10], 10), Section("long", lines, 200)], ["foot"])

    assert MAX_LINES - 1 <= len(text.split("\n")) <= MAX_LINES
    assert list(section(text, "**short**")) == [f"- {number}" for number in range(10)]
    assert list(section(text, "**long**"))[-2:] == ["- 80", "- and 119 more"]


def test_the_page_of_a_run_reads_like_this() -> None:
    plan = outline({"a": {}, "b": {}, "c": {}, "d": {}, "e": {}})
    progress = Progress(
        ended={
            "a": Ended(status=TaskStatus.SUCCEEDED),
            "b": Ended(status=TaskStatus.TIMED_OUT, why="Task timeout after 30 s, attempt 4 of 4"),
        },
        active={"c": START},
        parked={"d": Waiting(why="wall", what="the rate limit", since=START, until=START + timedelta(days=1))},
        unmet={"e": 1},
    )

    text = details_of(Course(plan), progress, START + timedelta(seconds=5), run="night-1", simulated=True)

    assert text == (
        "**RUNNING** · SIMULATED · 2 of 5 tasks ended · last change 00:00:05 UTC\n"
        "1 task at work. `./starter.py watch night-1` shows it live in a terminal.\n"
        "\n"
        "1 succeeded, 1 timed out, 1 at work, 1 waiting, 1 to come after other tasks\n"
        "\n"
        "**At work (1)**\n"
        "- `c` by `ant`, since 00:00:00 UTC\n"
        "\n"
        "**Waiting (1)**\n"
        "- `d` by `ant` waits until 2026-01-02 00:00:00 UTC for the provider to take calls again (`the rate limit`),"
        " since 00:00:00 UTC\n"
        "\n"
        "**Failed (1)**\n"
        "- `b` by `ant`, timed out: `Task timeout after 30 s, attempt 4 of 4`"
    )


@pytest.mark.parametrize(
    ("progress", "words"),
    [
        (Progress(paused=True, active={"a": START}), "**PAUSED** · LIVE"),
        (Progress(paused=True, active={"a": START}), "Nothing new starts; 1 task at work may finish."),
        (
            Progress(parked={"a": Waiting(why="wall", what="x", since=START, until=LATER)}),
            "Nothing is at work until 03:00:00 UTC.",
        ),
        (
            Progress(parked={"a": Waiting(why="approval", what="x", since=START, until=LATER)}),
            "Nothing is at work. 1 task waits for a person.",
        ),
        (
            Progress(active={"a": START}, stopping={"a": Ordered(status=TaskStatus.TIMED_OUT, why="too late")}),
            "- `a` by `ant`, since 00:00:00 UTC, is being stopped: `too late`",
        ),
        (Progress(late=True, active={"a": START}), "The deadline of the run has passed; 1 task must stop first."),
        (Progress(cancelled=True, active={"a": START}), "The run is being cancelled; 1 task must stop first."),
        (Progress(ended={"a": Ended(status=TaskStatus.SUCCEEDED)}), "`./starter.py result night-1` shows the report."),
    ],
)
def test_the_state_is_told_in_a_sentence(progress: Progress, words: str) -> None:
    text = details_of(Course(outline({"a": {}})), progress, START, run="night-1", simulated=False)

    assert words in text


def test_a_question_stands_first_with_how_to_answer_it() -> None:
    plan = outline({"a": {}, "publish": {}})
    wait = Waiting(why="approval", what="Send it to 40,000 people?", since=START, until=LATER)
    progress = Progress(parked={"publish": wait}, active={"a": START})

    text = details_of(Course(plan), progress, START, run="night-1", simulated=True)

    assert list(section(text, "**Waits for your approval (1)**")) == [
        "- `publish` by `ant`: `Send it to 40,000 people?` (asked at 00:00:00 UTC, until 03:00:00 UTC)"
    ]
    assert text.index("Waits for your approval") < text.index("At work")
    assert text.endswith(
        "To answer: *Send an Update* named `approve` or `reject`, "
        'with the input `{"tasks": ["publish"], "note": "why", "by": "your name"}`.'
    )


def test_walls_tell_before_what_they_stand_and_until_when() -> None:
    told = Wall(kind="rate", what="too many", since=START, until=LATER, told=True)
    unknown = Wall(kind="key", what="the key is refused", since=START, until=LATER, told=False)
    progress = Progress(barriers={"claude-haiku-4-5": told, "": unknown}, unmet={"a": 1})

    text = details_of(Course(outline({"a": {}})), progress, START, run="night-1", simulated=True)

    assert list(section(text, "**Walls (2)**")) == [
        "- `claude-haiku-4-5`, rate: until 03:00:00 UTC (`too many`), since 00:00:00 UTC",
        "- the account, key: is asked again at 03:00:00 UTC (`the key is refused`), since 00:00:00 UTC",
    ]


def test_the_inputs_to_copy_are_those_that_the_updates_take() -> None:
    """What stands on the page is JSON, and the run takes it as it is."""
    plan = plan_of(outline({"a": {}}))
    asked = plan.tasks[0].model_copy(update={"id": "publish", "approval": Approval()})

    text = run_details("night-1", plan.model_copy(update={"tasks": (plan.tasks[0], asked)}), simulated=True)

    *spans, command = re.findall(r"`([^`]*\{[^`]*)`", text)
    steering, setting, money, tasks = (json.loads(span) for span in spans)
    assert Steering.model_validate(steering).note == "why"
    assert Setting.model_validate(setting).max_concurrency == 8
    assert Setting.model_validate(money).budget_usd == 5
    assert TaskSteering.model_validate(tasks).tasks == ("publish",)
    words = shlex.split(command)
    assert words[:4] == ["temporal", "workflow", "update", "execute"]
    assert Steering.model_validate_json(words[-1]).by == "me"


@given(task=NASTY.filter(bool))
def test_an_input_to_copy_holds_no_name_that_would_not_survive_it(task: str) -> None:
    given = update_input(task)

    assert given.count("`") == 2
    (name,) = json.loads(given.strip("`"))["tasks"]
    assert name in {task, "TASK"}


def test_a_task_that_must_be_approved_says_so_on_its_page() -> None:
    approval = Approval(ask="Really?", expires=timedelta(hours=12))
    task = OutlineTask(id="a", agent="ant", timeout=timedelta(seconds=30), attempts=4, approval=approval)

    text = task_details("run-1", task, simulated=True)

    assert "A person must approve its start: `Really?`; without an answer for 12h: reject." in text


@given(text=NASTY, width=st.integers(2, 300))
def test_text_of_others_is_one_line(text: str, width: int) -> None:
    line = one_line(text, width)

    assert len(line) <= width
    assert line.isprintable()


@given(text=NASTY)
def test_a_code_span_cannot_be_left(text: str) -> None:
    span = code(text)

    assert span.startswith("`")
    assert span.endswith("`")
    assert span.count("`") == 2
    assert "\n" not in span


@pytest.mark.parametrize(
    "text", ["http://x.example", "www.x.example", "<b>", "[a](b)", "a`b", "&amp;", "a@b.example", "*"]
)
def test_a_label_that_means_something_becomes_a_code_span(text: str) -> None:
    assert label(text) == f"`{text.replace('`', chr(39))}`"


@given(text=NASTY)
def test_a_summary_fits(text: str) -> None:
    assert size(summary(text * 5)) <= SUMMARY_BYTES
    assert size(task_summary(text, text)) <= SUMMARY_BYTES


@given(plan=outlines(), simulated=st.booleans())
@settings(max_examples=50, deadline=None)
def test_the_static_page_of_a_run_tells_the_plan(plan: Outline, simulated: bool) -> None:
    whole = plan_of(plan)

    text = run_details("run-1", whole, simulated=simulated)

    assert fits(text)
    assert all(f"`{id}`" in text for id in list_of_first_layer(whole)[:6])
    assert f"at most {plan.max_concurrency} at work" in text
    assert "`./starter.py pause run-1`" in text
    mode = "SIMULATED" if simulated else "LIVE"
    assert mode in text
    assert mode in run_summary(whole, simulated=simulated)


def test_the_static_page_of_a_run_reads_like_this() -> None:
    plan = outline({"a": {}, "b[1]": {}, "b[2]": {}, "c": {"a": Policy.REQUIRE}}, max_concurrency=4)

    text = run_details("night-1", plan_of(plan), simulated=True)

    assert text.startswith(
        "The plan `plan`: 4 tasks, at most 4 at work at once.\n"
        "SIMULATED: a stand-in answers, nothing is paid.\n"
        "\n"
        "**Layers: each needs what is before it**\n"
        "- 1: `a`, `b` (2)\n"
        "- 2: `c`\n"
        "\n"
        "**In a terminal**\n"
        "- `./starter.py watch night-1` shows it live, `status` once, `result` the report.\n"
    )


def list_of_first_layer(plan: Plan) -> list[str]:
    return [task.id for task in plan.tasks if not task.needs]


@pytest.mark.parametrize("chain", [True, False])
def test_the_static_page_of_a_large_plan_is_bounded(chain: bool) -> None:
    """A layer of ten thousand names, or ten thousand layers of one."""
    names = [f"{number}{'🌙' * 90}" for number in range(10_000)]
    tasks = tuple(
        Task(
            id=name,
            agent="ant",
            prompt=("p",),
            needs=(Need(task=names[number - 1]),) if chain and number else (),
            timeout=timedelta(seconds=30),
            attempts=4,
            max_tokens=1,
        )
        for number, name in enumerate(names)
    )
    agent = Agent(name="ant", version="1", model="m", instructions="i")
    plan = Plan(name="n" * 100, max_concurrency=500, agents=(agent,), tasks=tasks)

    text = run_details("r" * 200, plan, simulated=True)

    assert fits(text)
    assert "more" in text
    assert "*Request Cancellation* is `cancel`" in text


@given(id=NASTY.filter(bool), agent=NASTY.filter(bool), needs=st.lists(NASTY.filter(bool), max_size=30, unique=True))
def test_the_pages_of_a_task_are_bounded_and_harmless(id: str, agent: str, needs: list[str]) -> None:
    task = OutlineTask(
        id=id, agent=agent, needs=dict.fromkeys(needs, Policy.REQUIRE), timeout=timedelta(seconds=30), attempts=4
    )
    input = TaskInput(
        run="run-1", chain="c", task=id, agent=agent, plan_ref="r", timeout=timedelta(seconds=30), attempts=4
    )

    for text in task_details("run-1", task, simulated=True), work_details(input, LATER):
        assert len(text.encode()) < 6_000
        assert not set(outside_code(text)) & set("<>[]!&|~\\#\r\t\0\u202e\u2028")


@pytest.mark.parametrize("id", ["a[$(reboot)]", "a['b']", "a[`x`]", 'a["]', "a" * 200])
def test_a_command_to_copy_has_no_name_that_a_shell_would_change(id: str) -> None:
    task = OutlineTask(id=id, agent="ant", timeout=timedelta(seconds=30), attempts=4)

    assert "`./starter.py status run-1 TASK`" in task_details("run-1", task, simulated=True)


def test_a_command_to_copy_names_its_task() -> None:
    task = OutlineTask(id="scan[agent frameworks]", agent="ant", timeout=timedelta(seconds=30), attempts=4)

    text = task_details("run-1", task, simulated=True)

    assert "`./starter.py status run-1 'scan[agent frameworks]'`" in text
    assert "Needs no other task." in text
    assert "4 attempts of at most 30 s" in text


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (
            Answered(output_ref="r", output_bytes=1, usage=Usage(input=1000, output=20), attempts=2),
            "**SUCCEEDED** · at 03:00:00 UTC, attempt 2, 1,000 tokens in, 20 out",
        ),
        (
            Failed(status=TaskStatus.TIMED_OUT, error=TaskError(type="T", message="too <b>slow")),
            "**TIMED_OUT** · at 03:00:00 UTC: `too <b>slow`",
        ),
        (
            Parked(why="wall", what="too many", until=LATER + timedelta(minutes=1)),
            (
                "**WAITING** · until 03:01:00 UTC for the provider to take calls again (`too many`),"
                " since 03:00:00 UTC. The run starts this task again."
            ),
        ),
        (Stopped(why="the run was cancelled"), "**CANCELLED** · at 03:00:00 UTC: `the run was cancelled`"),
    ],
)
def test_the_page_of_a_task_tells_how_it_ended(outcome: Outcome, words: str) -> None:
    assert outcome_details(outcome, LATER) == words


def test_a_page_without_room_still_has_its_frame() -> None:
    long = "x" * 30_000

    text = page(["head"], [Section("title", [long, "short"], 2)], ["foot"])

    assert text == "head\n\n**title**\n- and 2 more\n\nfoot"


def test_a_goal_tells_that_its_plan_is_yet_to_be_made() -> None:
    """The plan that it is submitted with has one task, and that is not what comes of it."""
    plan = plan_of(outline({"plan": {}})).model_copy(update={"name": "goal", "goal": Goal(max_tasks=9)})
    whole = plan_of(outline({"plan": {}, "look": {}})).model_copy(update={"name": "goal", "goal": Goal(max_tasks=9)})

    assert run_summary(plan, simulated=True) == "SIMULATED: goal, its plan is made by its first task"
    text = run_details("night-1", plan, simulated=True)
    assert text.startswith("A goal: its plan is made by its first task, `plan`, with at most 100 at work at once.")
    assert ("1 task" in text, "Layers" in text) == (False, False)
    assert run_summary(whole, simulated=True) == "SIMULATED: goal, 2 tasks", "a retry has all of them from the start"
