"""Merging: many inputs in levels, no brief over its limit, every source named, and edges that mean what they meant."""

from __future__ import annotations

import hashlib
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from conftest import Bench
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import START, answered, failed
from test_planning import mistakes, planned, tasks

from domain.briefing import INPUTS_LIMIT, LABELS_ALLOWANCE, brief_for, readable
from domain.course import Course
from domain.estimate import estimate_of
from domain.forecast import Outlook
from domain.items import expanded, withdrawn
from domain.merging import BYTES_A_TOKEN, with_levels, without_levels
from domain.models import (
    Agent,
    Each,
    File,
    Form,
    Grows,
    Input,
    Merged,
    Need,
    Outcome,
    Plan,
    Policy,
    RunStatus,
    Task,
    TaskStatus,
    ref_of,
)
from domain.permits import needs_of
from domain.progress import outline_of
from domain.reads import reads_of
from domain.summaries import SUMMARY_BYTES

HAND = Agent(name="hand", version="1", model="m", instructions="Do it.")
AIDE = Agent(name="aide", version="1", model="m", instructions="Help.")
GOOD, BAD, LATE = answered(), failed(), failed(TaskStatus.TIMED_OUT)


def task(id: str, **more: Any) -> Task:
    values = {"agent": "hand", "timeout": timedelta(seconds=30), "attempts": 4, "max_tokens": 1000, **more}
    return Task(id=id, prompt=("Go.",), **values)


def plan(tasks: tuple[Task, ...]) -> Plan:
    return Plan(name="plan", max_concurrency=100, agents=(HAND, AIDE), tasks=tasks)


def merged(*sources: Task, policy: Policy = Policy.TOLERATE, form: Form = Form.FULL, **more: Any) -> dict[str, Task]:
    """A plan with a task that merges all of these, laid out."""
    needs = tuple(Need(task=source.id, policy=policy, form=form) for source in sources)
    return {task.id: task for task in with_levels([*sources, task("all", merge=True, needs=needs, **more)])}


def large(count: int, **more: Any) -> list[Task]:
    """Tasks of which twelve fit a brief."""
    return [task(f"t{number}", max_tokens=INPUTS_LIMIT // 12 // BYTES_A_TOKEN - 100, **more) for number in range(count)]


# --- how levels are laid out ---


def test_what_fits_one_brief_is_merged_at_once() -> None:
    """Twelve fit: nothing is added. The one more makes two groups, as large as each other."""
    assert [*merged(*large(12))] == [*(f"t{number}" for number in range(12)), "all"]

    found = merged(*large(13))

    groups = [each for each in found.values() if each.id.startswith("all/")]
    assert [group.id for group in groups] == ["all/merge-1-1", "all/merge-1-2"]
    assert [len(group.needs) for group in groups] == [7, 6]
    last = found["all"]
    assert [need.task for need in last.needs if need.form is Form.NAME] == [f"t{number}" for number in range(13)]
    assert [need.task for need in last.needs if need.form is Form.FULL] == ["all/merge-1-1", "all/merge-1-2"]
    assert [*found][-1] == "all", "a group stands before what needs it"


def test_a_level_that_does_not_fit_gets_another_one() -> None:
    """Of 1,200 large results a hundred groups are made, then thirteen of these: the last brief has eight and less."""
    found = merged(*large(1_200), max_tokens=200_000)

    levels = [id.split("-")[1] for id in found if id.startswith("all/")]
    assert levels.count("1") == 100
    assert levels.count("2") == 13
    assert levels.count("3") == 2
    assert {source for text in found["all"].merged for source in text.sources} == {f"t{n}" for n in range(1_200)}


def test_doing_it_again_adds_nothing() -> None:
    """A plan that grows is laid out again, with all that was laid out before."""
    once = with_levels([*merged(*large(200)).values()])

    assert with_levels(once) == once


def test_levels_are_laid_out_with_the_items_of_a_list_and_laid_back() -> None:
    """Before the list is there nobody knows how many there are; when it is made anew they are forgotten."""
    each = task("each", max_tokens=INPUTS_LIMIT // 12 // BYTES_A_TOKEN - 100, each=Each(source="list", most=100))
    file = File(path="f", ref=ref_of(b"f"), size=1)
    whole = task("all", merge=True, files=(file,), needs=(Need(task="each", policy=Policy.OPTIONAL),))
    tasks = with_levels([task("list", grows=Grows(kind="items")), each, whole])
    assert [one.id for one in tasks] == ["list", "each", "all"]
    before = plan(tasks)

    grown, _ = expanded(before, "list", json.dumps({"items": [str(number) for number in range(13)]}))

    assert [one.id for one in grown.tasks if one.merge] == ["all/merge-1-1", "all/merge-1-2", "all"]
    assert withdrawn(grown, ["list"]) == before
    assert with_levels(without_levels(grown.tasks)) == grown.tasks


def test_one_input_is_never_merged_with_itself() -> None:
    """However large it is: then its brief is cut, and says so."""
    file = File(path="large.md", ref=ref_of(b"large"), size=5_000_000)

    (found,) = with_levels([task("all", merge=True, files=(file,))])

    assert found.files == (file,)
    two = with_levels([task("all", merge=True, files=(file, file))])
    assert [each.id for each in two] == ["all/merge-1-1", "all/merge-1-2", "all"]
    assert with_levels(two) == two


def test_summaries_are_reckoned_as_such() -> None:
    """A hundred results of any size fit as summaries."""
    assert 100 * 2 * SUMMARY_BYTES < INPUTS_LIMIT
    assert [*merged(*large(100), form=Form.SUMMARY)] == [*(f"t{number}" for number in range(100)), "all"]


def test_a_group_has_what_is_asked_of_the_whole_and_nothing_that_is_asked_once() -> None:
    more: dict[str, Any] = {
        "payload": {"of": "all"},
        "quorum": 3,
        "summarise": True,
        "part": "inner",
        "deadline": timedelta(hours=1),
    }
    found = merged(*large(13), policy=Policy.OPTIONAL, max_tokens=500, **more)

    group = found["all/merge-1-1"]

    assert (group.agent, group.payload, group.part) == ("hand", {"of": "all"}, "inner")
    assert (group.max_tokens, group.deadline) == (500, timedelta(hours=1))
    assert (group.quorum, group.approval, group.summarise) == (None, None, False)
    assert "".join(map(str, group.prompt)).endswith("The assignment:\n\nGo.")
    assert found["all"].quorum == 3
    assert found["all"].prompt == ("Go.",)


@settings(max_examples=50)
@given(
    files=st.lists(st.integers(0, 3 * INPUTS_LIMIT), max_size=40),
    tokens=st.lists(st.integers(1, 200_000), max_size=40),
    most=st.integers(1, 200_000),
    policies=st.lists(st.sampled_from(Policy), min_size=40, max_size=40),
)
def test_every_source_is_in_exactly_one_text_and_no_brief_is_cut(
    files: list[int], tokens: list[int], most: int, policies: list[Policy]
) -> None:
    """Whatever there is to merge: all of it comes once and in order, unless one input alone is too large."""
    given = tuple(File(path=f"f{n}", ref=ref_of(b"%d" % n), size=size) for n, size in enumerate(files))
    sources = [task(f"t{n}", max_tokens=each) for n, each in enumerate(tokens)]
    needs = tuple(Need(task=each.id, policy=policy) for each, policy in zip(sources, policies, strict=False))
    names = [file.path for file in given] + [need.task for need in needs]

    found = {
        each.id: each
        for each in with_levels([*sources, task("all", merge=True, files=given, needs=needs, max_tokens=most)])
    }

    def sizes(one: Task) -> list[int]:
        results = [found[need.task].max_tokens * BYTES_A_TOKEN for need in one.needs if need.form is Form.FULL]
        return [*(file.size for file in one.files), *(min(size, INPUTS_LIMIT) for size in results)]

    def read(one: Task) -> list[str]:
        passed = [need.task for need in one.needs if need.form is Form.FULL]
        return [*(file.path for file in one.files), *(name for id in passed for name in below(id))]

    def below(id: str) -> list[str]:
        return read(found[id]) if id.startswith("all/") else [id]

    assert read(found["all"]) == names
    for one in found.values():
        if one.merge:
            assert sum(sizes(one)) <= INPUTS_LIMIT or len(sizes(one)) == 1
            told = {text.task: text.sources for text in one.merged}
            assert all(told[id] == tuple(below(id)) for id in told)
            assert set(told) == {need.task for need in one.needs if need.task.startswith("all/")}


# --- what edges mean ---

TABLE = [  # the edge, how one of the sources ends, then: does its group run, and does the task
    (Policy.REQUIRE, GOOD, True, True),
    (Policy.REQUIRE, LATE, False, False),
    (Policy.REQUIRE, BAD, False, False),
    (Policy.TOLERATE, LATE, True, True),
    (Policy.TOLERATE, BAD, False, False),
    (Policy.OPTIONAL, LATE, True, True),
    (Policy.OPTIONAL, BAD, True, True),
]


def run(laid_out: dict[str, Task], **ends: Outcome) -> tuple[Course, Any]:
    """A run of these tasks in which all but the named ones succeed."""
    course = Course(outline_of(plan(tuple(laid_out.values()))))
    progress = course.launch(course.begin(START).progress, START).progress
    while progress.active:
        id = next(iter(progress.active))
        progress = course.result(progress, id, ends.get(id.replace("/", "_").replace("-", "_"), GOOD), START).progress
        progress = course.launch(progress, START).progress
    return course, progress


@pytest.mark.parametrize(("policy", "end", "group", "whole"), TABLE)
def test_a_missing_source_means_what_its_edge_says(policy: Policy, end: Outcome, group: bool, whole: bool) -> None:
    """With levels or without. Nothing is paid for a group whose text nobody will read."""
    course, progress = run(merged(*large(13), policy=policy), t3=end)

    done = {id: ended.status is TaskStatus.SUCCEEDED for id, ended in progress.ended.items()}
    assert (done["all/merge-1-1"], done["all/merge-1-2"], done["all"]) == (group, True, whole)
    if not whole:
        assert progress.ended["all"].cause == "t3"
        assert (progress.ended["all"].why or "").startswith("needs 't3', which ended")
        return
    inputs = {input.task: input for input in course.inputs(progress, "all")}
    assert inputs["t3"].status is (TaskStatus.SUCCEEDED if end is GOOD else progress.ended["t3"].status)
    assert {id for id, input in inputs.items() if input.ref is not None} == {"all/merge-1-1", "all/merge-1-2"}


@pytest.mark.parametrize(
    ("policy", "whole"), [(Policy.REQUIRE, False), (Policy.TOLERATE, False), (Policy.OPTIONAL, True)]
)
def test_a_group_that_fails_is_as_bad_as_the_strictest_of_its_edges(policy: Policy, whole: bool) -> None:
    _, progress = run(merged(*large(13), policy=policy), all_merge_1_2=BAD)

    assert (progress.ended["all"].status is TaskStatus.SUCCEEDED) == whole


def test_one_strict_edge_makes_its_group_strict_and_a_file_is_one() -> None:
    """Of the others nothing is asked: the strict one is in the first group, so the second may fail."""
    sources = large(13)
    needs = [Need(task=each.id, policy=Policy.OPTIONAL) for each in sources]
    strict = [needs[0].model_copy(update={"policy": Policy.REQUIRE}), *needs[1:]]
    file = File(path="f", ref=ref_of(b"f"), size=1)

    by_edge = with_levels([*sources, task("all", merge=True, needs=tuple(strict))])
    by_file = with_levels([*sources, task("all", merge=True, files=(file,), needs=tuple(needs))])

    for found in (by_edge, by_file):
        policies = {need.task: need.policy for need in found[-1].needs}
        assert (policies["all/merge-1-1"], policies["all/merge-1-2"]) == (Policy.REQUIRE, Policy.OPTIONAL)


@pytest.mark.parametrize(("quorum", "whole"), [(12, True), (13, False)])
def test_a_quorum_counts_sources_and_not_groups(quorum: int, whole: bool) -> None:
    _, progress = run(merged(*large(13), policy=Policy.OPTIONAL, quorum=quorum), t3=BAD)

    assert (progress.ended["all"].status is TaskStatus.SUCCEEDED) == whole
    if not whole:
        assert progress.ended["all"].why == "needs 13 of its 13 optional inputs, and 12 succeeded"


# --- what agents are told, may read, and cost ---


def told(tasks: dict[str, Task], id: str, missing: tuple[str, ...] = ()) -> str:
    inputs = tuple(
        Input(task=need.task, status=TaskStatus.FAILED, why="it broke")
        if need.task in missing
        else Input(task=need.task, status=TaskStatus.SUCCEEDED, ref=None if need.form is Form.NAME else "ref")
        for need in tasks[id].needs
    )
    return readable(brief_for(plan(tuple(tasks.values())), tasks[id], inputs, {"ref": "a text"}))


def test_the_last_one_is_told_every_source_and_which_are_missing() -> None:
    tasks = merged(*large(13), policy=Policy.OPTIONAL)

    brief = told(tasks, "all", missing=("t3",))

    assert "as in [t0]" in brief
    assert '{"text": "all/merge-1-2", "sources": ["t7", "t8", "t9", "t10", "t11", "t12"]}' in brief
    assert '{"task": "t3", "status": "FAILED", "reason": "it broke"}' in brief
    assert brief.count("--- document") == 2
    group = told(tasks, "all/merge-1-1", missing=("t3",))
    assert group.count("--- document") == 6
    assert '{"task": "t3", "status": "FAILED", "reason": "it broke"}' in group
    assert "Do not carry it out yourself. The assignment:\n\nGo." in group


def test_a_name_of_ten_thousand_is_at_least_counted() -> None:
    """The list of names has a limit of its own; what a name says stays a text of JSON."""
    names = tuple(f'"]}}{"x" * 90}{number}' for number in range(10_000))
    tasks = {"all": task("all", merge=True, merged=(Merged(task="a", sources=names), Merged(task="b", sources=("c",))))}

    brief = told(tasks, "all")

    lines = [json.loads(line.rstrip(",")) for line in brief.splitlines() if line.startswith('{"text"')]
    assert 900 < len(lines[0]["sources"]) < 1_100
    assert len(lines[0]["sources"]) + lines[0]["more"] == 10_000
    assert lines[1] == {"text": "b", "sources": [], "more": 1}


def test_a_merged_text_needs_the_rights_to_its_sources_and_no_others() -> None:
    """What its own agent has merged is nothing new to it; whose results stand in it is."""
    file = File(path="notes.md", ref=ref_of(b"n"), size=INPUTS_LIMIT)
    tasks = merged(*large(13, agent="aide"), files=(file,))
    inputs = [
        Input(task=need.task, status=TaskStatus.SUCCEEDED, ref=None if need.form is Form.NAME else "r")
        for need in tasks["all"].needs
    ]

    needs = needs_of(HAND, tasks["all"], tasks, inputs)

    assert (needs.files, needs.results) == (("notes.md",), ("aide",))
    reads = reads_of(plan(tuple(tasks.values())), tasks["all"], inputs, None)
    assert [read.task for read in reads.results] == ["all/merge-1-1", "all/merge-1-2", "all/merge-1-3"]


def test_the_estimate_has_the_levels_and_reads_no_source_twice() -> None:
    tasks = merged(*large(13))

    estimate = estimate_of(plan(tuple(tasks.values())), Outlook(simulated=False, texts={}, experience={}))

    tokens = {each.id: each.tokens.input.likely for each in estimate.tasks}
    assert tokens["all/merge-1-1"] > 7 * 1_000 * 2
    assert tokens["all"] < 2_500


# --- in a plan ---


def test_a_plan_inside_a_plan_merges_what_the_outer_one_gives_it() -> None:
    """Its first task needs nobody by itself; the levels are made when all is together."""
    inner = b"tasks: [{id: sum, agent: idle, merge: true, prompt: x}, {id: end, agent: idle, needs: [sum], prompt: x}]"
    text = """
tasks:
  - {id: scan, for_each: [a, b, c], agent: idle, max_tokens: 30000, prompt: "{{ item }}"}
  - {id: part, plan: inner.yaml, needs: {scan: optional}, quorum: 2}
"""
    found = tasks(text, files={"inner.yaml": inner})

    assert [*found] == [
        *("scan[a]", "scan[b]", "scan[c]"),
        *("part/sum/merge-1-1", "part/sum/merge-1-2", "part/sum", "part/end"),
    ]
    assert {each.part for id, each in found.items() if id.startswith("part/")} == {"part"}
    assert [need.task for need in found["part/sum/merge-1-1"].needs] == ["scan[a]", "scan[b]"]
    assert (found["part/sum"].quorum, found["part/sum/merge-1-1"].quorum) == (2, None)
    assert not found["scan[a]"].summarise, "who needs it by name does not make it fan out"


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ("merge: true", "'merge' merges results and files, and this task has neither (add 'needs' or 'files')"),
        ("merge: 1", "'merge' must be true or false"),
        (
            'merge: true, needs: [first], prompt: "Of {{ first }}"',
            "a task that merges cannot place 'first' in its prompt: it may not fit there (remove the placeholder",
        ),
    ],
)
def test_a_merge_that_cannot_be_is_told(written: str, problem: str) -> None:
    prompt = "" if "prompt" in written else ", prompt: x"

    (found,) = mistakes(
        f"tasks:\n  - {{id: first, agent: idle, prompt: x}}\n  - {{id: a, agent: idle, {written}{prompt}}}\n"
    )

    assert found.startswith("p:3:")
    assert problem in found


def test_levels_count_as_tasks() -> None:
    """A plan stays below its limit with them, too."""
    text = """
tasks:
  - {id: scan, for_each: [%s], agent: idle, max_tokens: 200000, prompt: "{{ item }}"}
  - {id: all, agent: idle, needs: [scan], merge: true, prompt: x}
"""
    (found,) = mistakes(text % ", ".join(str(number) for number in range(6_000)))

    assert "with what 'merge' adds the plan has 12," in found


def test_a_file_that_no_brief_holds_is_warned_of() -> None:
    plan = planned("tasks: [{id: a, agent: idle, files: ['*'], merge: true, prompt: x}]", files={"l": b"x" * 400_001})

    assert [warning.message for warning in plan.warnings] == [
        "only the first 400,000 of the 400,001 bytes of 'l' are read"
    ]


# --- on the server ---

SIXTY, DOCUMENT = 60, 20_000


def check_requests(bench: Bench, texts: list[str]) -> None:
    """No request is over the limit of a brief, and each of these texts was read once, whole."""
    assert max(call.prompt_bytes or 0 for call in bench.simulator.log) <= INPUTS_LIMIT + LABELS_ALLOWANCE
    read = [document for call in bench.simulator.log for document in call.documents]
    assert [read.count(hashlib.sha256(text.encode()).hexdigest()) for text in texts] == [1] * len(texts)


async def test_sixty_files_are_merged_and_every_one_is_named(crew: Bench, tmp_path: Path) -> None:
    texts = {f"doc-{number:02}.md": f"{number} says ".ljust(DOCUMENT, "x") for number in range(SIXTY)}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)

    run = await crew.start("""
tasks:
  - {id: digest, agent: hand, files: ["doc-*.md"], merge: true, prompt: What do they say?}
""")
    report = await run.report()

    assert [task.id for task in report.tasks] == [*(f"digest/merge-1-{n}" for n in (1, 2, 3, 4)), "digest"]
    assert (report.census.total, report.census.succeeded) == (5, 5)
    assert [*report.outputs] == ["digest"]
    assert [name for name in texts if f"[{name}]" not in (report.output or "")] == []
    check_requests(crew, [*texts.values()])


async def test_sixty_results_are_merged_and_the_missing_one_is_named(crew: Bench) -> None:
    """The one that fails costs itself: its group and the whole are told, and all others are named."""
    crew.simulator.script(
        [
            {"when": {"task": "scan[7]"}, "then": {"stop_reason": "refusal"}},
            *({"when": {"task": f"scan[{n}]"}, "then": {"answer": said(n)}} for n in range(SIXTY)),
        ]
    )

    run = await crew.start(f"""
defaults: {{agent: hand}}
max_concurrency: 20
tasks:
  - {{id: scan, for_each: [{", ".join(map(str, range(SIXTY)))}], max_tokens: 5120, prompt: "On {{{{ item }}}}."}}
  - {{id: digest, needs: {{scan: optional}}, quorum: 59, merge: true, prompt: What do they say?}}
""")
    report = await run.report()

    assert report.status is RunStatus.DEGRADED
    assert sum(task.id.startswith("digest/") for task in report.tasks) == 5
    others = [number for number in range(SIXTY) if number != 7]
    assert [number for number in others if f"[scan[{number}]]" not in (report.output or "")] == []
    assert "scan[7] was missing" in (report.output or "")
    check_requests(crew, [said(number) for number in others])


def said(number: int) -> str:
    return f"{number} says ".ljust(DOCUMENT, "x")
