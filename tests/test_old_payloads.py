"""What earlier releases have sent still loads: a worker of today takes what one of yesterday has scheduled.

A replay reads what a workflow was given and what came back. What it asked of others, activities and children, is read
by whoever takes it, perhaps after an upgrade: that is looked at here, in the same histories.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError
from temporalio.api.common.v1 import Payloads
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowHistory
from test_histories import PLACE, RECORDED, RELEASES, known_to, read

from activities.contract import (
    APPEND_EVENTS,
    AWAIT_TASKS,
    CLOSE_RUN,
    DRAW,
    GROW_PLAN,
    QUOTA_BANK,
    RUN_AGENT,
    SETTLE,
    AgentRequest,
    AwaitRequest,
    CloseRequest,
    EventsRequest,
    GrowRequest,
    SettleRequest,
)
from domain.amendments import Change
from domain.quota.bank import Bank
from domain.quota.words import Ask
from domain.runs import RunInput, TaskInput
from domain.steering import Setting, Steering, TaskSteering
from payloads import DATA_CONVERTER

READS: dict[str, type[BaseModel]] = {
    RUN_AGENT: AgentRequest,
    AWAIT_TASKS: AwaitRequest,
    APPEND_EVENTS: EventsRequest,
    SETTLE: SettleRequest,
    CLOSE_RUN: CloseRequest,
    GROW_PLAN: GrowRequest,
    "SupervisorWorkflow": RunInput,
    "TaskWorkflow": TaskInput,
    QUOTA_BANK: Bank,
    DRAW: Ask,
    **dict.fromkeys(("pause", "resume"), Steering),
    **dict.fromkeys(("approve", "reject", "skip", "retry"), TaskSteering),
    "set": Setting,
    "change": Change,
}
"""What each of them takes, by its name in Temporal."""


def sent(event: HistoryEvent) -> Iterator[tuple[str, Payloads]]:
    """What an event hands to somebody, and to whom."""
    if event.HasField("activity_task_scheduled_event_attributes"):
        scheduled = event.activity_task_scheduled_event_attributes
        yield scheduled.activity_type.name, scheduled.input
    if event.HasField("start_child_workflow_execution_initiated_event_attributes"):
        child = event.start_child_workflow_execution_initiated_event_attributes
        yield child.workflow_type.name, child.input
    if event.HasField("workflow_execution_started_event_attributes"):
        began = event.workflow_execution_started_event_attributes
        yield began.workflow_type.name, began.input
    if event.HasField("workflow_execution_continued_as_new_event_attributes"):
        again = event.workflow_execution_continued_as_new_event_attributes
        yield again.workflow_type.name, again.input
    if event.HasField("workflow_execution_update_accepted_event_attributes"):
        update = event.workflow_execution_update_accepted_event_attributes.accepted_request.input
        yield update.name, update.args


async def loaded(content: dict[str, Any]) -> Counter[str]:
    """How many of each kind were read; what cannot be is an error."""
    history = WorkflowHistory.from_json(content["id"], content["history"])
    found: Counter[str] = Counter()
    for event in history.events:
        for name, payloads in sent(event):
            if name in READS:
                (value,) = await DATA_CONVERTER.decode(payloads.payloads, [READS[name]])
                assert type(value) is READS[name]
                found[name] += 1
    return found


SINCE = {
    "0.1.0": {RUN_AGENT, AWAIT_TASKS, APPEND_EVENTS, CLOSE_RUN, "SupervisorWorkflow", "TaskWorkflow", "pause"},
    "0.3.0": {"set", "approve", "reject", "skip", "retry"},
    "0.4.0": {QUOTA_BANK},
    "0.7.0": {GROW_PLAN, "change"},
}
"""What a release has sent, by the first one that did."""


@pytest.mark.parametrize("release", RELEASES)
async def test_everything_that_a_release_has_sent_loads(release: str) -> None:
    found: Counter[str] = Counter()
    for file in RECORDED:
        if file.parent.name == release:
            found += await loaded(read(file))

    assert known_to(release, SINCE) <= found.keys()


def test_the_release_of_today_was_recorded() -> None:
    """Else its runs could not go on under the next one without anybody noticing."""
    project = (PLACE.parent.parent / "pyproject.toml").read_text("utf-8")
    version = next(line.split('"')[1] for line in project.splitlines() if line.startswith("version = "))

    assert version in RELEASES


async def test_a_new_field_without_a_default_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test can fail."""

    class Wanting(AgentRequest):
        new: str

    monkeypatch.setitem(READS, RUN_AGENT, Wanting)

    with pytest.raises((ValidationError, RuntimeError), match="new"):
        await loaded(read(PLACE / RELEASES[0] / "fan-task.json.gz"))
