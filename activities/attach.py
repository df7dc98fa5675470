"""Waiting for tasks that an earlier run of the supervisor had started."""

from __future__ import annotations

import asyncio

from temporalio import activity
from temporalio.client import Client, WorkflowFailureError
from temporalio.service import RPCError

from absence import is_unknown
from activities.contract import AWAIT_TASKS, AwaitReply, AwaitRequest, TaskEnd, outcome_of_failure
from activities.pulse import Pulse, beating
from domain.models import Failed, TaskError, TaskResult

GATHER = 0.1
"""Seconds in which further ends are taken along: one reply for many tasks keeps the history short."""


class AttachActivities:
    """After continue-as-new the supervisor cannot await its children as children: this does it through the client."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @activity.defn(name=AWAIT_TASKS)
    async def await_tasks(self, request: AwaitRequest) -> AwaitReply:
        """Wait until at least one has ended, however. Safe to run again: it only reads."""
        async with beating(Pulse(step="waiting")):
            waits = [asyncio.create_task(self._end_of(request.run, task)) for task in request.tasks]
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                await asyncio.wait(waits, timeout=GATHER)
                return AwaitReply(ends=_ended(waits))
            finally:
                for wait in waits:
                    wait.cancel()
                await asyncio.wait(waits)

    async def _end_of(self, run: str, task: str) -> TaskEnd:
        handle = self._client.get_workflow_handle(f"{run}/{task}", result_type=TaskResult)
        try:
            outcome = (await handle.result()).outcome
        except WorkflowFailureError as error:
            outcome = outcome_of_failure(error)
        except RPCError as error:
            if not is_unknown(error):
                raise
            vanished = "the task's workflow was deleted, or its history has expired"
            outcome = Failed(error=TaskError(type="Vanished", message=vanished))
        return TaskEnd(task=task, outcome=outcome)


def _ended(waits: list[asyncio.Task[TaskEnd]]) -> tuple[TaskEnd, ...]:
    """The ends there are. One that could not be asked for is asked for again; an error only when there is no other."""
    done = [wait for wait in waits if wait.done()]
    told = [wait.result() for wait in done if wait.exception() is None]
    return tuple(told or [wait.result() for wait in done])
