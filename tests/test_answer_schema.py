"""Schemas of answers: what may stand in one, what is sent of it, and what the simulator makes of that."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_planning import mistakes, planned

from activities.claude import request_of
from domain.answer_schema import MOST_PARTS, field, fields, reduced
from domain.answer_schema import mistakes as mistakes_of
from domain.briefing import Brief, Turn, said
from domain.checks import complaint
from domain.json_schema import mistake_of_schema, value_of, violations
from domain.models import Plan, Task
from domain.weighing import weight
from simulator.prompt import InvalidRequestError, read_prompt
from simulator.script import Then
from simulator.structured import by_schema

TEXT = {"type": "string"}
BRIEF = Brief(model="m", max_tokens=100, system="s", content=(said("Task: a\nPlan: p"),))


def chance(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311


def an(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def named(depth: int) -> dict[str, Any]:
    """A schema of a few lines whose check looks at 2 ** depth places."""
    twice = {
        f"d{at}": {"anyOf": [{"$ref": f"#/$defs/d{at + 1}"}, {"$ref": f"#/$defs/d{at + 1}"}]} for at in range(depth)
    }
    return {**an(a={"$ref": "#/$defs/d0"}), "$defs": {**twice, f"d{depth}": TEXT}}


@st.composite
def schemas(draw: st.DrawFn, depth: int = 3) -> dict[str, Any]:
    """A schema that a task may have."""
    bounds = st.integers(0, 20)
    low = draw(bounds)
    high = low + draw(bounds)
    single: list[dict[str, Any]] = [
        {"type": "string", "minLength": low, "maxLength": high},
        {"type": "string", "format": draw(st.sampled_from(("date", "date-time", "email", "uuid")))},
        {"type": "integer", "minimum": low, "maximum": high + 1, "description": "How many"},
        {"type": "number", "exclusiveMinimum": low, "maximum": high + 2},
        {"type": "integer", "multipleOf": 5, "minimum": low, "maximum": high + 5},
        {"type": "boolean"},
        {"type": ["string", "null"]},
        {"enum": ["a", "b", 3, None]},
        {"const": draw(st.integers() | st.text(max_size=5))},
        {"$ref": "#/$defs/named"},
    ]
    if not depth:
        return draw(st.sampled_from(single))
    nested = schemas(depth - 1)
    kind = draw(st.sampled_from(("single", "object", "array", "anyOf", "oneOf")))
    match kind:
        case "object":
            names = draw(st.lists(st.sampled_from("pqrs"), min_size=1, unique=True))
            return an(**{name: draw(nested) for name in names})
        case "array":
            return {"type": "array", "items": draw(nested), "minItems": min(low, 6), "maxItems": high + 6}
        case "anyOf" | "oneOf":
            return {kind: [draw(nested), {"type": "object", "properties": {"other": TEXT}, "required": ["other"]}]}
    return draw(st.sampled_from(single))


@given(st.lists(schemas(), min_size=1, max_size=3), st.integers())
def test_the_simulator_answers_by_what_is_sent_as_the_whole_schema_says(parts: list[Any], seed: int) -> None:
    """Bounds are told in words; and what is sent is a schema that the provider takes."""
    schema = {**an(**{f"f{at}": part for at, part in enumerate(parts)}), "$defs": {"named": an(x=TEXT)}}
    assert mistakes_of(schema) == []
    assert mistake_of_schema(schema) is None
    prompt = read_prompt(request_of(BRIEF.model_copy(update={"schema_": reduced(schema)})))

    answer = by_schema(prompt, Then(), chance(seed))

    assert list(violations(value_of(answer), schema)) == []
    assert by_schema(prompt, Then(), chance(seed)) == answer
    assert list(violations(value_of(by_schema(prompt, Then(violates=True), chance(seed))), schema))


def test_the_simulator_refuses_what_the_provider_refuses() -> None:
    whole = BRIEF.model_copy(update={"schema_": an(a={"type": "integer", "minimum": 1})})

    with pytest.raises(InvalidRequestError, match="additionalProperties"):
        read_prompt(request_of(whole))


def test_a_list_has_as_many_items_as_a_rule_says() -> None:
    schema = reduced(an(items={"type": "array", "items": TEXT}))
    prompt = read_prompt(request_of(BRIEF.model_copy(update={"schema_": schema})))

    items = json.loads(by_schema(prompt, Then(items=500), chance(1)))["items"]

    assert (len(items), len(set(items))) == (500, 500)


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "array", "items": TEXT}, "must be of type object"),
        (an(a={"type": "string", "pattern": "(a+)+$"}), "'pattern', which the schema of an answer cannot have"),
        (an(a={"$ref": "https://example.com/s.json"}), "nothing is fetched from elsewhere"),
        (an(a={"$ref": "#/$defs/none"}), "'none', which is not in $defs"),
        (an(a={"type": "object"}), "an object without properties"),
        ({**an(a=TEXT), "additionalProperties": True}, "can only be false"),
        (an(a={"type": "array"}), "an array without items"),
        (an(a={"description": "anything"}), "does not say what it is"),
        (an(a={"type": "string", "format": "regex"}), "must be one of date"),
        (an(a={"enum": [[1]]}), "texts, numbers, true, false and null only"),
        (an(a={"type": "string", "description": "x" * 20_000}), "larger than 20,000 bytes"),
        ({**an(a={"$ref": "#/$defs/d"}), "$defs": {"d": an(a={"$ref": "#/$defs/d"})}}, "or contains itself"),
        (named(40), f"more than {MOST_PARTS:,} parts"),
    ],
)
def test_what_the_schema_of_an_answer_cannot_have(schema: dict[str, Any], words: str) -> None:
    assert words in str(mistakes_of(schema))


def test_a_schema_that_is_nested_beyond_reason_is_refused() -> None:
    deep: dict[str, Any] = TEXT
    for _ in range(300):
        deep = {"type": "array", "items": deep}

    assert "nested too deeply" in str(mistakes_of(an(a=deep)))


def test_mistakes_in_a_schema_are_told_where_they_stand() -> None:
    plan = """
tasks:
  - id: a
    agent: writer
    prompt: x
    schema: {type: object, properties: {n: {type: nmber}}}
  - id: b
    agent: writer
    prompt: x
    schema: [1]
  - id: c
    agent: writer
    prompt: x
    schema:
      type: object
      properties:
        n: {type: string, pattern: a}
"""
    found = mistakes(plan)

    assert [line.split(" ", 1)[0] for line in found] == ["p:6:51:", "p:10:13:", "p:17:36:"]
    assert "'schema.properties.n.type' is no JSON Schema: 'nmber'" in found[0]
    assert "must be a mapping" in found[1]


def test_a_schema_of_the_defaults_is_told_of_once() -> None:
    head = "defaults: {agent: writer, schema: {type: object}}\n"

    found = mistakes(f"{head}tasks: [{{id: a, prompt: x}}, {{id: b, prompt: x}}]")

    assert len(found) == 1
    assert "'schema' is an object without properties" in found[0]


def test_a_task_with_a_schema_is_repaired_once_and_others_are_as_they_were() -> None:
    first, second = planned(
        "tasks:\n  - {id: a, agent: writer, prompt: x, schema: {type: object, properties: {n: {type: integer}}}}\n"
        "  - {id: b, agent: writer, prompt: x}\n"
    ).plan.tasks

    assert (first.schema_, first.repairs) == ({"type": "object", "properties": {"n": {"type": "integer"}}}, 1)
    assert {"schema_", "repairs", "review"} & second.model_dump().keys() == set()


def test_fields_are_found_through_references() -> None:
    schema = {**an(a={"$ref": "#/$defs/d"}), "$defs": {"d": an(b=TEXT)}}

    assert field(schema, ("a", "b")) == TEXT
    assert field(schema, ("a", "c")) is None
    assert (fields(schema), fields(schema, ("a",)), fields(schema, ("x",))) == (("a",), ("b",), ())


SCORED = planned(
    "tasks: [{id: a, agent: writer, prompt: x, schema: "
    "{type: object, properties: {n: {type: integer, minimum: 1}}, required: [n]}}]"
).plan


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"n": 1}', None),
        ('{"n": 0}', "n: 0 is less than the minimum of 1"),
        ("{}", "'n' is a required property"),
        ("Here you are: {}", "not one JSON document"),
        ('```json\n{"n": 1}\n```', "not one JSON document"),
        ('{"n": NaN}', "not one JSON document"),
        ("[" * 100_000, "not one JSON document"),
        ('{"n": 1, "s": "\\ud800"}', "not one JSON document"),
        ("", "not one JSON document"),
        ('{"n": ' + "9" * 5000 + "}", "not one JSON document"),
    ],
)
def test_what_is_wrong_with_an_answer(text: str, words: str | None) -> None:
    found = complaint(SCORED, SCORED.tasks[0], text)

    assert (found is None) == (words is None)
    assert (words or "") in (found or "")
    assert len(found or "") < 2_000


def test_a_text_is_an_answer_where_no_schema_is() -> None:
    plan = planned("tasks: [{id: a, agent: writer, prompt: x}]").plan

    assert complaint(plan, plan.tasks[0], "anything") is None


def test_turns_and_the_schema_are_sent_weighed_and_hashed_only_where_they_are() -> None:
    turned = BRIEF.model_copy(update={"turns": (Turn(role="assistant", text="No."), Turn(role="user", text="Again."))})
    asked = turned.model_copy(update={"schema_": reduced(an(a=TEXT))})

    assert [message["role"] for message in request_of(asked)["messages"]] == ["user", "assistant", "user"]
    assert request_of(asked)["output_config"] == {"format": {"type": "json_schema", "schema": reduced(an(a=TEXT))}}
    assert "output_config" not in request_of(turned)
    assert {"turns", "schema_"} & BRIEF.model_dump().keys() == set()
    assert len({BRIEF.hash, turned.hash, asked.hash}) == 3
    assert weight(BRIEF) + len("No.Again.") < weight(turned) < weight(asked)


def test_old_plans_are_read_as_they_were() -> None:
    plan = planned("tasks: [{id: a, agent: writer, prompt: x}]").plan

    assert Plan.model_validate_json(plan.model_dump_json()) == plan
    assert Task.model_validate(SCORED.tasks[0].model_dump(mode="json")) == SCORED.tasks[0]
