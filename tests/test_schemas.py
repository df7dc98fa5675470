"""JSON Schemas: what they let pass is what the code takes, and what the code prints passes them."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import Voyage, outlines, plan_of

from domain.durations import duration
from domain.events import to_envelope
from domain.picture import Picture
from domain.progress import Outline
from domain.schemas import SCHEMAS, json_schema

ROOT = Path(__file__).resolve().parent.parent
PLANS = [*ROOT.glob("examples/*.yaml"), ROOT / "terminal" / "first-plan.yaml"]
TASK = {"id": "a", "agent": "writer", "prompt": "Hello."}


VALIDATORS = {name: jsonschema.Draft202012Validator(json_schema(name)) for name in SCHEMAS}


def accepts(name: str, document: Any) -> bool:
    return VALIDATORS[name].is_valid(document)


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_schema_is_one(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(json_schema(name))


@pytest.mark.parametrize("file", [file for file in PLANS if ".script." not in file.name], ids=lambda file: file.name)
def test_a_plan_of_ours_passes(file: Path) -> None:
    assert accepts("plan", yaml.safe_load(file.read_text()))


def test_our_agents_pass() -> None:
    assert accepts("agents", yaml.safe_load((ROOT / "agents.yaml").read_text()))


@pytest.mark.parametrize(
    "wrong",
    [
        {"tasks": []},
        {"tasks": [TASK], "budget": 1},
        {"tasks": [{**TASK, "timeout": "soon"}]},
        {"tasks": [{**TASK, "timeout": ""}]},
        {"tasks": [{**TASK, "attempts": 9}]},
        {"tasks": [{**TASK, "needs": {"b": "perhaps"}}]},
        {"tasks": [{**TASK, "needs": {"b": {"pass": "half"}}}]},
        {"tasks": [{**TASK, "needs": {"b": {"form": "full"}}}]},
        {"tasks": [{**TASK, "prompt": None}]},
        {"tasks": [{"agent": "writer"}]},
        {"tasks": [TASK], "mode": "wave"},
        {"tasks": [TASK], "deadline": "soon"},
        {"tasks": [TASK], "deadline": ""},
        {"tasks": [TASK], "deadline": "2026-12-01T08:00:00"},
        {"tasks": [TASK], "deadline": "2026-12-01"},
        {"tasks": [TASK], "defaults": {"quorum": 1}},
        {"tasks": [{**TASK, "mode": "waves"}]},
        {"tasks": [{**TASK, "priority": "urgent"}]},
        {"tasks": [{**TASK, "quorum": 0}]},
        {"tasks": [{**TASK, "time_limit": "2026-12-01T08:00:00Z"}]},
        {"tasks": [{**TASK, "approval": "yes"}]},
        {"tasks": [{**TASK, "approval": {"aks": "Go?"}}]},
        {"tasks": [{**TASK, "approval": {"ask": "x" * 501}}]},
        {"tasks": [{**TASK, "approval": {"on_expiry": "approve"}}]},
        {"tasks": [{**TASK, "approval": {"expires": "1h", "on_expiry": "perhaps"}}]},
    ],
)
def test_a_wrong_plan_does_not_pass(wrong: dict[str, Any]) -> None:
    assert not accepts("plan", wrong)


@pytest.mark.parametrize(
    "more",
    [
        {"for_each": ["a", 7]},
        {"for_each": {"files": "*.md"}},
        {"for_each": {"from": "b", "max": 9, "at_once": 2, "label": "number"}},
        {"capability": "writing"},
        {"capability": ["writing", "research"]},
        {"needs": ["b"]},
        {"needs": {"b": "optional", "c": {"policy": "require"}}},
        {"needs": {"b": {"pass": "summary"}, "c": {"policy": "require", "pass": "full"}}},
        {"timeout": "1m30s"},
        {"priority": "low"},
        {"deadline": "6h"},
        {"deadline": "2026-12-01T08:00:00Z"},
        {"deadline": "2026-12-01T08:00:00.5+02:00"},
        {"time_limit": "14d"},
        {"needs": {"b": "optional"}, "quorum": 1},
        {"budget_usd": 0.5},
        {"approval": True},
        {"approval": False},
        {"approval": {"ask": "Go?", "expires": "12h", "on_expiry": "approve"}},
    ],
)
def test_every_way_to_write_a_key_passes(more: dict[str, Any]) -> None:
    assert accepts("plan", {"tasks": [{**TASK, **more}]})


@pytest.mark.parametrize(
    "top", [{"mode": "waves"}, {"deadline": "2d"}, {"defaults": {"priority": "high", "approval": {}, "deadline": "1h"}}]
)
def test_every_key_of_the_plan_passes(top: dict[str, Any]) -> None:
    assert accepts("plan", {"tasks": [TASK], **top})


@pytest.mark.parametrize("text", ["30s", "1m30s", "0.5s", "2h", "1d", "", "s", "1h2", "1s1m"])
def test_durations_are_those_of_the_code(text: str) -> None:
    try:
        means = duration(text) > timedelta()
    except ValueError:
        means = False

    assert accepts("plan", {"tasks": [{**TASK, "timeout": text}]}) == means


@settings(max_examples=30, deadline=None)
@given(outlines(max_tasks=5), st.data())
def test_reports_and_events_of_any_run_pass(outline: Outline, data: st.DataObject) -> None:
    picture = Picture("run-1", plan_of(outline), simulated=True)
    for moment in Voyage(outline, data.draw, turns=10).moments():
        picture.add(moment.step.events)

        assert accepts("report", picture.report({}, moment.now).document())
        assert all(accepts("event", to_envelope("run-1", event)) for event in moment.step.events)
