"""Who goes first among tasks that could start: priority, the earlier deadline, the longer way that is left."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from conftest import Bench
from plans import START
from temporalio.api.enums.v1 import EventType as HistoryEvent
from temporalio.client import WorkflowHandle

from domain.chart import Chart
from domain.models import Deadline, Policy, Priority, RunStatus
from domain.progress import Outline, OutlineTask

SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)


def task(
    id: str,
    *needs: str,
    priority: Priority = Priority.NORMAL,
    deadline: Deadline | None = None,
    timeout: timedelta = MINUTE,
) -> OutlineTask:
    policies = dict.fromkeys(needs, Policy.REQUIRE)
    return OutlineTask(
        id=id, agent="ant", needs=policies, priority=priority, deadline=deadline, timeout=timeout, attempts=4
    )


def order(*tasks: OutlineTask) -> list[str]:
    return Chart(Outline(max_concurrency=1, by_urgency=True, tasks=tasks)).order(START).ids


def test_priority_goes_before_everything() -> None:
    assert order(
        task("low", priority=Priority.LOW, deadline=MINUTE, timeout=60 * MINUTE),
        task("normal", deadline=MINUTE),
        task("high", priority=Priority.HIGH),
    ) == ["high", "normal", "low"]


def test_the_earlier_deadline_goes_first_and_none_is_the_latest() -> None:
    """However it is written: as a length from the start of the run, or as a time."""
    assert order(
        task("none", timeout=60 * MINUTE),
        task("late", deadline=3 * MINUTE),
        task("fixed", deadline=START + 2 * MINUTE),
        task("early", deadline=MINUTE),
    ) == ["early", "fixed", "late", "none"]


def test_the_longer_way_that_is_left_goes_first() -> None:
    """It is measured by the timeouts along the longest way, and not by the number of tasks."""
    assert order(
        task("short"),
        task("many"),
        task("m1", "many", timeout=SECOND),
        task("m2", "many", timeout=SECOND),
        task("m3", "many", timeout=SECOND),
        task("long"),
        task("l1", "long", timeout=2 * SECOND),
        task("l2", "l1", timeout=2 * SECOND),
    ) == ["long", "many", "short", "l1", "l2", "m1", "m2", "m3"]


def test_equals_stay_in_the_order_of_the_plan() -> None:
    assert order(task("b"), task("a"), task("c")) == ["b", "a", "c"]


async def test_one_after_the_other_they_are_called_by_urgency(crew: Bench) -> None:
    run = await crew.start("""
max_concurrency: 1
defaults: {agent: hand, timeout: 10s}
tasks:
  - {id: low, prompt: Go., priority: low}
  - {id: short, prompt: Go.}
  - {id: long, prompt: Go.}
  - {id: later, prompt: Go., deadline: 2h}
  - {id: soon, prompt: Go., deadline: 1h}
  - {id: high, prompt: Go., priority: high}
  - {id: end, prompt: Go., needs: [long], priority: high}
""")

    report = await run.report()

    assert report.status is RunStatus.COMPLETED
    called = [entry.task for entry in crew.simulator.log]
    assert called == ["high", "soon", "later", "long", "end", "short", "low"]


async def scheduled(handle: WorkflowHandle[Any, Any], type: HistoryEvent.ValueType, attributes: str) -> list[Any]:
    """What a workflow told the server about the work that it gave out."""
    return [getattr(event, attributes) async for event in handle.fetch_history_events() if event.event_type == type]


async def test_the_server_is_told_of_priority_and_of_the_run(crew: Bench) -> None:
    """Where a queue is not empty it orders by these: on the run, on its children, and on their activities."""
    plan = "tasks: [{id: a, agent: hand, prompt: Go., priority: high}, {id: b, agent: hand, prompt: Go.}]"
    run, other = await crew.start(plan), await crew.start(plan)
    await run.report()
    await other.report()

    keys = set()
    for each in run, other:
        (start,) = await scheduled(
            each.handle,
            HistoryEvent.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED,
            "workflow_execution_started_event_attributes",
        )
        keys.add((each.id, start.priority.fairness_key))
        children = await scheduled(
            each.handle,
            HistoryEvent.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_INITIATED,
            "start_child_workflow_execution_initiated_event_attributes",
        )
        assert {child.workflow_id[-1]: child.priority.priority_key for child in children} == {"a": 2, "b": 3}
        for child in children:
            handle = crew.temporal.get_workflow_handle(child.workflow_id)
            (call,) = await scheduled(
                handle, HistoryEvent.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED, "activity_task_scheduled_event_attributes"
            )
            assert call.priority == child.priority
            keys.add((each.id, call.priority.fairness_key))
    assert len({key for _, key in keys}) == len(keys) == 2
