"""Wide plans: what one workflow task can carry, and what readers see meanwhile."""

from __future__ import annotations

import pytest
from conftest import Bench, eventually
from temporalio.api.enums.v1 import EventType as HistoryEvent

from domain import places
from domain.events import EventType
from domain.models import RunStatus
from workflows import policies


async def test_events_are_written_while_all_tasks_are_at_work(crew: Bench) -> None:
    """Also those beyond one batch, and those that came while a batch was written: no end of a task is needed for it."""
    crew.simulator.script([{"when": {}, "then": {"fault": "hang_before_headers"}}])
    count = policies.BATCH
    run = await crew.start(
        f"tasks: [{{id: t, agent: hand, prompt: Go., timeout: 1h, for_each: {[str(n) for n in range(count)]}}}]"
    )

    async def all_ready() -> bool:
        stored = [event async for event in crew.store.events(run.id)]
        return sum(event.type is EventType.TASK_READY for event in stored) == count

    await eventually(all_ready)
    await run.client.cancel(run.id)
    assert (await run.report()).status is RunStatus.CANCELLED


async def test_a_wide_fan_in_is_started_in_portions(crew: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve tasks that need the same forty: more inputs than one workflow task may carry."""
    monkeypatch.setattr(places, "INPUTS_AT_ONCE", 200)
    run = await crew.start(
        f"""
max_concurrency: 50
defaults: {{agent: hand}}
tasks:
  - {{id: part, prompt: Go., for_each: {[str(n) for n in range(40)]}}}
  - {{id: whole, prompt: Join., for_each: {[str(n) for n in range(12)]}, needs: [part]}}
""",
    )

    report = await run.report()

    assert report.status is RunStatus.COMPLETED
    assert len(crew.simulator.log) == 52
    started: dict[int, int] = {}
    for handle in await run.chain():
        for event in (await handle.fetch_history()).events:
            if event.event_type == HistoryEvent.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_INITIATED:
                initiated = event.start_child_workflow_execution_initiated_event_attributes
                if "/whole" in initiated.workflow_id:
                    number = initiated.workflow_task_completed_event_id
                    started[number] = started.get(number, 0) + 1
    assert sum(started.values()) == 12
    assert max(started.values()) <= 5


async def test_a_run_is_only_a_few_starts_ahead_of_the_server(crew: Bench) -> None:
    """However many places it has: what the server is not ready for waits in the run, and not before others."""
    run = await crew.start(
        f"max_concurrency: 30\ntasks: [{{id: t, agent: hand, prompt: Go., for_each: {[*range(60)]}}}]"
    )

    report = await run.report()

    ahead, most = 0, 0
    for event in (await run.handle.fetch_history()).events:
        ahead += event.event_type == HistoryEvent.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_INITIATED
        ahead -= event.event_type == HistoryEvent.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_STARTED
        most = max(most, ahead)
    assert (report.status, report.census.succeeded) == (RunStatus.COMPLETED, 60)
    assert (ahead, most) == (0, places.STARTS_AHEAD)
