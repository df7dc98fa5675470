"""What a list makes of a plan, and what it cannot make of it. An item is the text of an agent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import AGENTS
from hypothesis import given
from hypothesis import strategies as st

from domain.amending import Difference, difference
from domain.changing import changed
from domain.chart import Chart
from domain.estimate import estimate_of
from domain.forecast import Outlook
from domain.graph import cycles, needs_of
from domain.growing import NotGrown, grown
from domain.items import expanded, listed, source_of_item, withdrawn
from domain.models import Form, Plan, Policy
from domain.notation import item_label
from domain.planning import Invalid, plan_from_text
from domain.progress import outline_of
from domain.registry import Registry, registry_from_text
from folder import PlanFolder
from prices import priced

PLAN = """
name: plan
defaults: {agent: hand}
tasks:
  - {id: list, prompt: List them.}
  - {id: other, prompt: Other.}
  - id: each
    for_each: {from: list, max: 9, at_once: 2, label: item}
    needs: {other: optional}
    prompt: 'Look at {{ item }}, \\{{ item }}.'
    payload: {about: 'the {{ item }}!', plain: '\\{{ item }}', list: [1, '{{ item }}']}
    approval: {ask: 'Look at {{ item }}?'}
  - {id: sum, needs: {each: optional, other: require}, quorum: 2, prompt: 'Of {{ each }}: sum it up.'}
"""


NUMBERED = PLAN.replace(", label: item", "")

REGISTRY = registry_from_text(AGENTS, file="agents.yaml")
SEEN = Outlook(simulated=True, texts={}, experience={})


def plan_of(text: str, registry: Registry) -> Plan:
    return priced(plan_from_text(text, file="test.yaml", registry=registry, folder=PlanFolder(Path.cwd())).plan)


def items(*texts: object) -> str:
    return json.dumps({"items": texts})


def test_one_task_stands_for_the_fan_out(registry: Registry) -> None:
    """It needs the list, whose task answers by a schema that bounds it; results that all items take are summed up."""
    plan = plan_of(PLAN, registry)

    source, _, fan, last = plan.tasks
    assert source.grows is not None
    assert source.schema_ is not None
    assert source.schema_["properties"]["items"]["maxItems"] == 9  # type: ignore[index,call-overload]
    assert [(need.task, need.policy, need.form) for need in fan.needs] == [
        ("other", Policy.OPTIONAL, Form.SUMMARY),
        ("list", Policy.REQUIRE, Form.NAME),
    ]
    assert [need.task for need in last.needs] == ["each", "other"]


def test_items_take_the_place_of_the_task_that_stood_for_them(registry: Registry) -> None:
    """Ids are plain, items stand where they belong, dependants need each of them, and the way back leads back."""
    plan = plan_of(PLAN, registry)

    found = grown(plan, plan.tasks[0], items("a", "{{ list }}", "A", {"url": "b"}, "x" * 61)).plan

    new = {task.id: task for task in found.tasks if task.fan == "each"}
    assert list(new) == ["each[a]", "each[2]", "each[A #2]", "each[4]", "each[5]"]
    assert new["each[2]"].item == "{{ list }}"
    assert new["each[2]"].prompt == ("Look at ", plan.tasks[2].prompt[1], ", {{ item }}.")
    assert new["each[2]"].payload == {
        "about": "the {{ list }}!",
        "plain": "{{ item }}",
        "list": [1, "{{ list }}"],
    }
    assert new["each[4]"].item == '{"url": "b"}'
    assert [task.approval.ask for task in new.values() if task.approval][:2] == ["Look at a?", "Look at {{ list }}?"]
    last = found.tasks[-1]
    assert [need.task for need in last.needs] == [*new, "other"]
    assert not isinstance(last.prompt[1], str)
    assert last.prompt[1].tasks == tuple(new)
    assert withdrawn(found, ["list"]) == plan
    assert withdrawn(found, ["other"]) == found


def test_tasks_go_by_number(registry: Registry) -> None:
    """No word of an item is in an id unless a plan asks for it; it stands in prompt, payload and question as ever."""
    plan = plan_of(NUMBERED, registry)
    assert plan == plan_of(PLAN.replace("label: item", "label: number"), registry)

    found = grown(plan, plan.tasks[0], items("b", "2", "b")).plan

    new = [task for task in found.tasks if task.fan == "each"]
    assert [(task.id, task.item) for task in new] == [("each[1]", "b"), ("each[2]", "2"), ("each[3]", "b")]
    assert new[0].payload["about"] == "the b!"
    assert new[0].approval is not None
    assert new[0].approval.ask == "Look at b?"
    assert [need.task for need in found.tasks[-1].needs] == ["each[1]", "each[2]", "each[3]", "other"]
    assert withdrawn(found, ["list"]) == plan
    again = plan_of(NUMBERED.replace("sum it up", "sum it up well"), registry)
    change = changed(found, again, {"each[1]": "is at work"}, {"list": items("b", "2", "b")})
    assert (change.difference.added, change.difference.edited, change.refused) == ((), ("sum",), ())


def test_no_word_of_an_item_travels_in_the_outline(registry: Registry) -> None:
    """Ids, and what is asked, go into events, logs and the trail by it. Who is asked finds the question in the plan."""
    plan = plan_of(NUMBERED, registry)

    found = grown(plan, plan.tasks[0], items("canary one", "canary two")).plan

    outline = outline_of(found)
    asks = {task.id: task.approval.ask for task in outline.tasks if task.approval is not None}
    assert asks == {"each[1]": "Look at (item)?", "each[2]": "Look at (item)?"}
    assert "canary" not in outline.model_dump_json()
    approval = next(task.approval for task in found.tasks if task.id == "each[2]")
    assert approval is not None
    assert approval.ask == "Look at canary two?"


def test_a_run_of_a_plan_from_before_goes_on_as_it_was_submitted(registry: Registry) -> None:
    """Its plan says nothing of numbers: items are in its ids. The same file, read now, is no other plan."""
    stored = json.loads(plan_of(PLAN, registry).model_dump_json())
    assert "numbered" not in stored["tasks"][2]["each"]
    then = Plan.model_validate(stored)
    now = plan_of(NUMBERED, registry)
    started = {"list": "has ended SUCCEEDED", "each[a]": "is at work"}

    old = grown(then, then.tasks[0], items("a", "b")).plan

    assert [task.id for task in old.tasks if task.fan] == ["each[a]", "each[b]"]
    assert changed(then, now, {}, {}).plan is then
    assert changed(old, now, started, {"list": items("a", "b")}).plan is old
    edited = changed(old, plan_of(NUMBERED.replace("up.", "up well."), registry), started, {"list": items("a", "b")})
    assert (edited.difference, edited.refused) == (Difference(edited=("sum",)), ())


def test_a_question_that_was_told_with_its_item_is_no_edit(registry: Registry) -> None:
    """A run whose outline has it from before can be changed, though what it asks about was begun."""
    plan = plan_of(PLAN, registry)
    found = grown(plan, plan.tasks[0], items("a", "b")).plan
    now = outline_of(found)
    approvals = {task.id: task.approval for task in found.tasks}
    tasks = (task.model_copy(update={"approval": approvals[task.id]}) for task in now.tasks)
    then = now.model_copy(update={"tasks": tuple(tasks)})
    assert then != now

    assert not difference(Chart(then), Chart(now), edited=())


def test_a_plan_with_items_in_ids_is_written_as_before(registry: Registry) -> None:
    """By the hash of what was written a paid answer is found again."""
    plan = plan_of(PLAN, registry)

    assert plan.tasks[2].each is not None
    assert set(plan.tasks[2].each.model_dump(mode="json")) == {"source", "most", "at_once", "ask"}
    assert Plan.model_validate_json(plan.model_dump_json()) == plan


@given(st.lists(st.text(min_size=1, max_size=80).filter(str.strip), min_size=1, max_size=9))
def test_any_list_makes_a_valid_plan(texts: list[str]) -> None:
    """Whatever an agent writes: ids are safe and unique, items stay what they are, the graph stays one."""
    plan = plan_of(PLAN, REGISTRY)

    found, _ = expanded(plan, "list", items(*texts))

    new = [task for task in found.tasks if task.fan == "each"]
    assert [task.item for task in new] == texts
    assert len({task.id.casefold() for task in found.tasks}) == len(found.tasks)
    for task in new:
        assert item_label(task.id[len("each[") : -1])
    assert not cycles(needs_of(found))
    assert withdrawn(found, ["list"]) == plan


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("no list", "its answer is no JSON: a list such as"),
        ("{}", "its answer has no list of items"),
        ('{"a": [1], "b": [2]}', "its answer has no list of items"),
        (items("a", " "), "item 2 of its list is empty"),
        (items("x" * 10_001), "item 1 of its list has 10,001 characters; at most 10,000"),
        (items(*"abcdefghij"), "its list has 10 items, and 'each' takes at most 9: ask for fewer, or give 'for_each'"),
    ],
)
def test_a_list_that_cannot_be_used(registry: Registry, answer: str, why: str) -> None:
    """What is wrong is told in a sentence; nothing has grown."""
    plan = plan_of(PLAN, registry)

    with pytest.raises(NotGrown, match=why.replace("'", ".")):
        grown(plan, plan.tasks[0], answer)


def test_lists_in_other_words() -> None:
    """A fence around it, a list alone, one list by another name: it is clear what is meant."""
    assert listed('```json\n{"items": ["a"]}\n```') == ["a"]
    assert listed('["a", 2]') == ["a", "2"]
    assert listed('{"cities": ["a"], "count": 1}') == ["a"]


def test_what_is_over_stays_as_it_is(registry: Registry) -> None:
    """A fan-out that a person has skipped meanwhile gets no items."""
    plan = plan_of(PLAN, registry)

    assert expanded(plan, "list", items("a"), over=["each"]) == (plan, {})
    assert expanded(plan, "list", items())[1] == {"each": "the list of 'list' is empty"}


def test_a_file_with_the_fan_out_is_the_plan_that_has_grown(registry: Registry) -> None:
    """Who changes a plan after its list was made writes it as before: the items are those of the list."""
    plan = plan_of(PLAN, registry)
    now = grown(plan, plan.tasks[0], items("a", "b")).plan
    new = plan_of(PLAN.replace("sum it up", "sum it up well"), registry)

    found = changed(now, new, {"list": "has ended SUCCEEDED", "each[a]": "is at work"}, {"list": items("a", "b")})

    assert (found.difference.added, found.difference.edited, found.difference.removed) == ((), ("sum",), ())
    assert found.refused == ()
    assert changed(now, plan, {}, {"list": items("a", "b")}).plan is now


@pytest.mark.parametrize(
    ("each", "why"),
    [
        ("{from: nobody}", "needs 'nobody', which is no task of this plan"),
        ("{from: each}", "the task needs itself"),
        ("{from: many}", "'many' makes no list by itself: it stands for several tasks"),
        ("{from: list, max: 501}", "must be at most 500"),
        ("{from: list, most: 5}", "unknown key 'most'"),
        ("{from: list, label: name}", "'for_each.label' must be item or number"),
        ("{from: shaped}", "'each' fans out over its list, and 'schema' has none"),
    ],
)
def test_fan_outs_that_cannot_be(registry: Registry, each: str, why: str) -> None:
    """A mistake is told where it is written."""
    text = f"""
defaults: {{agent: hand}}
tasks:
  - {{id: list, prompt: List them.}}
  - {{id: many, for_each: [a], prompt: "{{{{ item }}}}"}}
  - {{id: shaped, prompt: Go., schema: {{type: object, properties: {{a: {{type: string}}}}, required: [a]}}}}
  - {{id: each, for_each: {each}, prompt: "{{{{ item }}}}"}}
"""
    with pytest.raises(Invalid) as invalid:
        plan_of(text, registry)

    assert any(why in problem.message for problem in invalid.value.problems), invalid.value.problems


def test_an_estimate_counts_what_a_list_may_bring(registry: Registry) -> None:
    """At least one item, likely a third, at most all: in money, and under the id of the fan-out."""
    plan = plan_of(PLAN, registry)
    one, three, nine = (
        estimate_of(
            expanded(plan, "list", items(*(f"item {n} of the list, in some words" for n in range(count))))[0], SEEN
        )
        for count in (1, 3, 9)
    )

    found = estimate_of(plan, SEEN)

    assert found.usd is not None
    assert one.usd is not None
    assert three.usd is not None
    assert nine.usd is not None
    assert (found.usd.low, found.usd.likely, found.usd.high) == (one.usd.low, three.usd.likely, nine.usd.high)
    assert [task.id for task in found.tasks] == ["list", "other", "each", "sum"]
    assert found.tokens.output.high == nine.tokens.output.high


# --- who is read of ---


def test_an_item_is_of_the_task_whose_list_it_stands_in(registry: Registry) -> None:
    """Also when there are several lists, and for what is merged first for a task that has an item."""
    text = """
defaults: {agent: hand}
tasks:
  - {id: one, prompt: List.}
  - {id: two, prompt: List.}
  - {id: notes, for_each: [%s], max_tokens: 16000, prompt: 'Of {{ item }}.'}
  - {id: first, for_each: {from: one}, prompt: 'Of {{ item }}.'}
  - id: second
    for_each: {from: two}
    needs: {one: {pass: full}, notes: {pass: full}}
    merge: true
    prompt: 'Of {{ item }}.'
"""
    plan = plan_of(text % ", ".join(map(str, range(20))), registry)
    tasks = {task.id: task for task in plan.tasks}
    for name in ("one", "two"):
        plan = grown(plan, tasks[name], items("a")).plan

    found = {task.id: source_of_item(plan, task) for task in plan.tasks}

    groups = {id for id in found if id.startswith("second[1]/merge-")}
    assert len(groups) > 1
    assert {id for id, source in found.items() if source == "two"} == {"second[1]", *groups}
    assert {id for id, source in found.items() if source == "one"} == {"first[1]"}
