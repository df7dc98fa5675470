"""Every type of event is described, the page tells the same, and what was ever written is as it is described."""

from __future__ import annotations

from collections import Counter

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pages import ROOT
from plans import START, Voyage, outlines, plan_of
from temporalio.client import WorkflowHistory
from test_histories import RECORDED, RELEASES, read
from test_old_payloads import sent

from activities.contract import APPEND_EVENTS, EventsRequest
from domain.event_types import TYPES, table
from domain.events import Event, EventType, from_envelope, to_envelope
from domain.picture import Picture
from domain.progress import Outline
from domain.schemas import json_schema
from payloads import DATA_CONVERTER

SCHEMA = jsonschema.Draft202012Validator(json_schema("event"))


def wrong_with(event: Event) -> list[str]:
    """What an event has that is not described, or lacks."""
    assert isinstance(event.type, EventType)
    described = TYPES[event.type]
    found = [error.message for error in SCHEMA.iter_errors(to_envelope("run", event))]
    found += [f"{name} is not described" for name in event.data if name not in {fact.name for fact in described.facts}]
    found += [] if described.of_task is (event.task is not None) else ["of a task or not"]
    return [f"{event.type}: {each}" for each in found]


def test_every_type_is_described() -> None:
    assert list(TYPES) == list(EventType)


def test_the_page_has_the_table_that_the_code_has() -> None:
    page = (ROOT / "docs" / "events.md").read_text("utf-8")
    rows = "\n".join(table())

    assert rows in page, f"docs/events.md should have:\n{rows}"


@settings(max_examples=30, deadline=None)
@given(outlines(max_tasks=6), st.data())
def test_whatever_happens_is_told_as_described(outline: Outline, data: st.DataObject) -> None:
    for moment in Voyage(outline, data.draw, turns=15).moments():
        assert [wrong for event in moment.step.events for wrong in wrong_with(event)] == []


@pytest.mark.parametrize("release", RELEASES)
async def test_what_earlier_releases_have_written_is_as_described(release: str) -> None:
    """The log of an old home passes the schema of today."""
    seen: Counter[str] = Counter()
    for file in RECORDED:
        history = read(file) if file.parent.name == release else None
        for entry in WorkflowHistory.from_json(history["id"], history["history"]).events if history else ():
            for name, payloads in sent(entry):
                if name == APPEND_EVENTS:
                    (request,) = await DATA_CONVERTER.decode(payloads.payloads, [EventsRequest])
                    assert [wrong for event in request.events for wrong in wrong_with(event)] == []
                    seen.update(event.type for event in request.events)

    assert {"run.started", "task.completed", "run.completed"} <= seen.keys()


@pytest.mark.parametrize(
    ("event", "wrong"),
    [
        (
            Event(number=1, type=EventType.WAVE_STARTED, time=START, data={"number": 1}),
            "'tasks' is a required property",
        ),
        (Event(number=1, type=EventType.RUN_WAITING, time=START, data={"until": 7}), "is not valid under any"),
        (Event(number=1, type=EventType.RUN_SUBMITTED, time=START, data={"new": 1}), "new is not described"),
        (Event(number=1, type=EventType.RUN_SUBMITTED, time=START, task="a"), "of a task or not"),
    ],
)
def test_what_is_not_as_described_is_noticed(event: Event, wrong: str) -> None:
    assert any(wrong in each for each in wrong_with(event))


def test_an_envelope_of_before_is_shown_as_a_cloud_event() -> None:
    """Without what 0.7.0 has added."""
    told = Event(number=3, type=EventType.TASK_READY, time=START, task="scan[a/b]")
    now = to_envelope("run", told)
    before = {name: now[name] for name in ("id", "type", "source", "subject", "time", "correlationid", "data")}

    again = from_envelope(before)

    assert again == told
    assert SCHEMA.is_valid(to_envelope("run", again))
    assert to_envelope("run", again)["specversion"] == "1.0"
    assert not SCHEMA.is_valid(before)


@settings(max_examples=10, deadline=None)
@given(outlines(max_tasks=4), st.data())
def test_an_older_reader_passes_over_a_newer_type(outline: Outline, data: st.DataObject) -> None:
    """Of the run, of a task, and of a task that it has never heard of: the picture is that of the rest."""
    plan = plan_of(outline)
    known, newer = Picture("run", plan, simulated=True), Picture("run", plan, simulated=True)
    number = 0
    for moment in Voyage(outline, data.draw, turns=6).moments():
        known.add(moment.step.events)
        for event in moment.step.events:
            for type, task in (("moon.rose", None), ("task.polished", plan.tasks[0].id), ("task.grown", "of-tomorrow")):
                number += 1
                envelope = to_envelope("run", Event(number=number, type=type, time=event.time, task=task))
                newer.add([from_envelope(envelope)])
            number += 1
            newer.add([event.model_copy(update={"number": number})])

        assert newer.report({}, moment.now) == known.report({}, moment.now)
