"""How results reach those that need them: the word of the edge, and what is in effect without one."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from conftest import Bench
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from test_planning import planned

from domain.briefing import INPUTS_LIMIT, LABELS_ALLOWANCE
from domain.models import Form, RunStatus, Task
from domain.progress import outline_of
from domain.summaries import SUMMARY_BYTES
from domain.summarizing import SUMMARIZED_BYTES
from terminal.show_task import show_task

B = "{id: b, agent: writer, prompt: x"
FULL, SUMMARY = Form.FULL, Form.SUMMARY
BRIEF = 3_000
"""Bytes that a brief has at most whose only inputs are a few summaries."""


def heading_of(request: Any) -> str:
    return str(request["messages"][0]["content"][0]["text"])


def forms(task: Task) -> dict[str, Form]:
    return {need.task: need.form for need in task.needs}


# --- what is in effect ---


@pytest.mark.parametrize(
    ("dependants", "form"),
    [
        ("- {id: b, agent: writer, prompt: x, needs: [a]}", [FULL]),
        ("- {id: b, agent: writer, prompt: x, needs: {a: {pass: summary}}}", [SUMMARY]),
        ("- {id: b, agent: writer, prompt: x, needs: {a: {policy: require, pass: full}}}", [FULL]),
        ("- {id: b, agent: writer, prompt: x, for_each: [1, 2], needs: [a]}", [SUMMARY, SUMMARY]),
        ("- {id: b, agent: writer, prompt: x, for_each: [1], needs: [a]}", [FULL]),
        ("- {id: b, agent: writer, prompt: x, for_each: [1, 2], needs: {a: {pass: full}}}", [FULL, FULL]),
        (
            f"- {B}, needs: [a]}}\n  - {{id: c, agent: writer, prompt: x, needs: {{a: {{pass: full}}}}}}",
            [SUMMARY, FULL],
        ),
        (
            f"- {B}, needs: [a]}}\n  - {{id: c, agent: writer, prompt: x, needs: {{a: optional}}}}",
            [SUMMARY, SUMMARY],
        ),
    ],
)
def test_the_form_of_an_edge(dependants: str, form: list[Form]) -> None:
    first, *others = planned(f"tasks:\n  - {{id: a, agent: writer, prompt: x}}\n  {dependants}\n").plan.tasks

    assert [forms(task)["a"] for task in others] == form
    assert first.summarise == (SUMMARY in form)
    assert not any(task.summarise for task in others)


def test_the_precise_edge_wins_with_all_that_it_says() -> None:
    made = planned("""
tasks:
  - {id: a, for_each: [x, y, z], agent: writer, prompt: p}
  - {id: b, agent: writer, prompt: p, needs: {a: {pass: summary}, 'a[x]': {pass: full}, 'a[y]': require}}
  - {id: c, agent: writer, prompt: p, needs: {'a[x]': {pass: summary}, a: {pass: full}}}
""").plan.tasks

    b, c = (next(task for task in made if task.id == id) for id in "bc")
    assert forms(b) == {"a[x]": FULL, "a[y]": SUMMARY, "a[z]": SUMMARY}  # a[y] fans out: b and c need it
    assert forms(c) == {"a[x]": SUMMARY, "a[y]": FULL, "a[z]": FULL}


@settings(deadline=None)
@given(st.data())
def test_whoever_has_several_dependants_goes_down_as_a_summary_unless_an_edge_says_otherwise(data: Any) -> None:
    count = data.draw(st.integers(1, 6))
    words = {
        (of, need): data.draw(st.sampled_from([None, None, FULL, SUMMARY]))
        for of in range(count)
        for need in range(of)
        if data.draw(st.booleans())
    }
    width = {number: data.draw(st.sampled_from([0, 0, 1, 3])) for number in range(count)}
    lines = []
    for number in range(count):
        edges = {need: word for (of, need), word in words.items() if of == number}
        needs = ", ".join(f"t{need}: {{{f'pass: {word}' if word else ''}}}" for need, word in edges.items())
        each = f"for_each: {list(range(width[number]))}, " if width[number] else ""
        lines.append(f"  - {{id: t{number}, {each}agent: writer, prompt: 'x', needs: {{{needs}}}}}")
    plan = planned("tasks:\n" + "\n".join(lines) + "\n").plan

    written = {task.id: int(task.id[1]) for task in plan.tasks}
    counted = {id: sum(id in forms(task) for task in plan.tasks) for id in written}
    for task in plan.tasks:
        for need, form in forms(task).items():
            word = words[written[task.id], written[need]]
            assert form is (word or (SUMMARY if counted[need] > 1 else FULL))
        assert task.summarise == any(forms(other).get(task.id) is SUMMARY for other in plan.tasks)
    outline = {task.id: task.summaries for task in outline_of(plan).tasks}
    assert outline == {
        task.id: tuple(need for need, form in forms(task).items() if form is SUMMARY) for task in plan.tasks
    }


AGENTS = """
agents:
  - {name: summarizer, version: "1", model: cheap, instructions: Sum up.}
"""


def test_the_summarizer_travels_with_a_plan_that_may_need_it() -> None:
    twice = "{id: b, agent: writer, prompt: 'x {{ item }}', for_each: [1, 2], needs: [a]}"
    fan = f"tasks: [{{id: a, agent: writer, prompt: x}}, {twice}]"
    chain = "tasks: [{id: a, agent: writer, prompt: x}, {id: b, agent: writer, prompt: x, needs: [a]}]"

    assert [agent.name for agent in planned(AGENTS + fan).plan.agents] == ["summarizer", "writer"]
    assert not planned(AGENTS + fan).warnings
    assert [agent.name for agent in planned(AGENTS + chain).plan.agents] == ["writer"]
    assert [agent.name for agent in planned(fan).plan.agents] == ["writer"]


# --- a real run ---

FAN = """
max_concurrency: 3
defaults: {agent: hand}
tasks:
  - {id: big, prompt: Go., max_tokens: 100000}
  - {id: one, prompt: Read it., needs: [big]}
  - {id: two, prompt: "Read it: {{ big }}", needs: [big]}
  - {id: all, prompt: Read all of it., needs: {big: {pass: full}}}
"""


async def test_a_long_result_with_three_dependants_costs_two_of_them_little(crew: Bench) -> None:
    """Its own agent sums it up, so nobody else is asked; the edge that wants the whole gets it."""
    crew.simulator.script([{"when": {"task": "big"}, "then": {"answer": "x" * 50_000, "summary": "Much."}}])
    run = await crew.start(FAN)

    report = await run.report()

    assert report.status is RunStatus.COMPLETED
    assert crew.simulator.calls() == 4
    sizes = {entry.task: entry.prompt_bytes or 0 for entry in crew.simulator.log}
    assert sizes["one"] < BRIEF
    assert sizes["two"] < BRIEF
    assert sizes["all"] > 50_000
    big = report.tasks[0]
    assert (big.output, big.summary) == ("x" * 50_000, "Much.")
    assert [task.summary for task in report.tasks[1:]] == [None] * 3
    told = await crew.client.brief(await crew.client.picture(run.id), "one")
    assert "Much." in told
    assert f"{big.output_ref}" in told
    picture = await crew.client.picture(run.id)
    (given,) = picture.inputs("one")
    assert (given.whole, given.whole_bytes) == (big.output_ref, 50_000)
    console = Console(record=True, file=StringIO(), width=200)
    for id in ("big", "one"):
        shown = next(task for task in report.tasks if task.id == id)
        show_task(console, shown, picture.planned[id], picture.inputs(id), "")
    words = console.export_text()
    assert f"as a summary, {given.ref}; the whole has 50,000 bytes, {big.output_ref}" in words
    assert "summary    Much." in words


async def test_where_the_agent_gives_no_summary_one_call_makes_it(crew: Bench) -> None:
    """All three briefs are small, the call is counted with its task, and asked for with a part of the text at most."""
    crew.simulator.script(
        [
            {"when": {"task": "big", "nth": 1}, "then": {"answer": "x" * 200_000, "summary": False}},
            {"when": {"task": "big", "nth": 2}, "then": {"answer": "In short: x."}},
        ]
    )
    run = await crew.start(FAN.replace("{big: {pass: full}}", "[big]"))

    report = await run.report()

    entries = crew.simulator.log
    first, second = (entry for entry in entries if entry.task == "big")
    assert SUMMARIZED_BYTES < (second.prompt_bytes or 0) < SUMMARIZED_BYTES + BRIEF
    assert all((entry.prompt_bytes or 0) < BRIEF for entry in entries if entry.task != "big")
    big = report.tasks[0]
    assert (report.status, big.summary, big.attempts) == (RunStatus.COMPLETED, "In short: x.", 1)
    assert big.tokens.input == first.billed.input + second.billed.input
    assert big.tokens.output == first.billed.output + second.billed.output
    assert report.tokens.input == sum(entry.billed.input for entry in entries)
    picture = await crew.client.picture(run.id)
    assert [(call.model, call.usage.input) for call in picture.tasks["big"].aside] == [
        ("claude-haiku-4-5", second.billed.input)
    ]


async def test_a_short_result_is_its_own_summary(crew: Bench) -> None:
    crew.simulator.script([{"when": {"task": "big"}, "then": {"answer": "s" * SUMMARY_BYTES, "summary": False}}])
    run = await crew.start(FAN)

    report = await run.report()

    assert crew.simulator.calls() == 4
    assert report.tasks[0].summary == report.tasks[0].output == "s" * SUMMARY_BYTES
    assert "the result of task 'big'" in await crew.client.brief(await crew.client.picture(run.id), "one")


async def test_twenty_long_results_and_a_short_one_reach_one_task(crew: Bench) -> None:
    """The brief stays under its limit, the short one is whole, all 21 are there."""
    crew.simulator.script(
        [
            {"when": {"task": "short"}, "then": {"answer": "s" * 300}},
            {"when": {"task": "end"}, "then": {"answer": "Done."}},
            {"then": {"answer_bytes": 50_000}},
        ]
    )
    run = await crew.start(f"""
max_concurrency: 8
defaults: {{agent: hand, max_tokens: 20000}}
tasks:
  - {{id: long, for_each: {list(range(20))}, prompt: "Write much about {{{{ item }}}}."}}
  - {{id: short, prompt: Write little.}}
  - {{id: end, prompt: Join them., needs: [long, short]}}
""")

    report = await run.report()

    assert report.status is RunStatus.COMPLETED
    (end,) = (entry for entry in crew.simulator.log if entry.task == "end")
    assert (end.prompt_bytes or 0) < INPUTS_LIMIT + LABELS_ALLOWANCE
    requests: list[Any] = [*crew.simulator.requests]
    (asked,) = (each for each in requests if heading_of(each).startswith("Task: end\n"))
    documents = [block for block in asked["messages"][0]["content"] if block["type"] == "document"]
    assert [block["title"] for block in documents] == [*(f"long[{number}]" for number in range(20)), "short"]
    assert documents[-1]["source"]["data"] == "s" * 300
    assert all("[cut here: " in block["source"]["data"] for block in documents[:-1])
