"""What belongs to a run, asked of the histories themselves or waited for: Temporal's list may be a moment behind."""

from __future__ import annotations

import asyncio
from typing import Any

from conftest import Run, eventually
from temporalio.client import WorkflowExecutionStatus, WorkflowHandle, WorkflowHistoryEventFilterType

from workflows.supervisor import SupervisorWorkflow


async def chain_of(run: Run) -> list[WorkflowHandle[Any, Any]]:
    """Every run of the supervisor, from continue-as-new to continue-as-new: each names the one that follows."""
    id = (await run.handle.describe()).raw_description.workflow_execution_info.first_run_id
    found: list[WorkflowHandle[Any, Any]] = []
    while id:
        found.append(run.temporal.get_workflow_handle(run.id, run_id=id))
        id = await _successor_of(found[-1])
    return found


async def _successor_of(handle: WorkflowHandle[Any, Any]) -> str:
    """The id of the next run; nothing when this one is the last."""
    if (await handle.describe()).status is not WorkflowExecutionStatus.CONTINUED_AS_NEW:
        return ""
    end = WorkflowHistoryEventFilterType.CLOSE_EVENT
    (last,) = [event async for event in handle.fetch_history_events(event_filter_type=end)]
    return last.workflow_execution_continued_as_new_event_attributes.new_execution_run_id


async def children_of(run: Run, *tasks: str) -> dict[str, str]:
    """The state of every child workflow once all of these are listed and none is open."""
    while not set(tasks) <= (children := await run.children()).keys() or "RUNNING" in children.values():
        await asyncio.sleep(0.05)
    return children


async def all_is_written(run: Run) -> None:
    """Wait until the store has every event of an open run, and the run knows it."""

    async def has_no_more() -> bool:
        return (await run.handle.query(SupervisorWorkflow.view)).events == ()

    await eventually(has_no_more)
