"""The floor: a bare Temporal parent and child with one activity. Beside `overhead.py`, because the sandbox reads it."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from temporalio import workflow


@workflow.defn
class BareTask:
    """A child with one activity."""

    @workflow.run
    async def run(self, number: int, activity: str) -> str:
        """Do it."""
        patience = timedelta(minutes=2)
        return str(await workflow.execute_activity(activity, number, start_to_close_timeout=patience))


@workflow.defn
class BareParent:
    """As many children as there are tasks, so many at once."""

    @workflow.run
    async def run(self, tasks: int, places: int, activity: str) -> int:
        """Start them all, await them all."""
        place = asyncio.Semaphore(places)

        async def child(number: int) -> None:
            async with place:
                id = f"{workflow.info().workflow_id}/{number}"
                await workflow.execute_child_workflow(BareTask.run, args=[number, activity], id=id)

        await asyncio.gather(*(child(number) for number in range(tasks)))
        return tasks
