"""The way to the bank: one update of a durable workflow, which is started when it is not there."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import Protocol

import structlog
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.client import (
    Client,
    WithStartWorkflowOperation,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.service import RPCError, RPCStatusCode

from activities.contract import DRAW, QUOTA_BANK, quota_id, quota_queue
from domain.quota.bank import Bank
from domain.quota.words import Ask, Grant

PATIENCE = 4.0
"""Seconds for one draw. A grant that comes later than that would not be used any more."""

BANK_TASK_TIMEOUT = timedelta(seconds=2)
"""How long the server waits for a worker that was handed the bank and died: everybody else waits for it meanwhile."""

log = structlog.get_logger()


class Unanswered(Exception):
    """The bank did not answer. Whether it has granted something is not known: then that is lost."""


class Teller(Protocol):
    """Whoever brings an ask to the bank."""

    async def draw(self, ask: Ask) -> Grant:
        """What the bank answers."""
        ...


class BankTeller:
    """The bank of one account and one queue, on Temporal."""

    def __init__(self, client: Client, *, account: str, queue: str) -> None:
        self._client = client
        self._id = quota_id(account, queue)
        self._account, self._queue = account, queue
        self._before: str | None = None
        self._deleting: set[asyncio.Task[None]] = set()

    async def draw(self, ask: Ask) -> Grant:
        """One update of the bank. Its id is that of the ask: Temporal makes it once, however often it is sent."""
        try:
            async with asyncio.timeout(PATIENCE):
                grant = await self._update(ask)
        except (RPCError, WorkflowUpdateRPCTimeoutOrCancelledError, TimeoutError) as error:
            raise Unanswered(type(error).__name__) from None
        except WorkflowUpdateFailedError as error:
            log.warning("bank_refused", error=type(error.cause).__name__)
            raise Unanswered("the bank refused") from None
        self._delete(grant.before)
        return grant

    async def _update(self, ask: Ask) -> Grant:
        id = f"{ask.worker}-{ask.number}"
        try:
            handle = self._client.get_workflow_handle(self._id)
            drawn: Grant = await handle.execute_update(DRAW, ask, id=id, result_type=Grant)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
        else:
            return drawn
        start: WithStartWorkflowOperation[object, None] = WithStartWorkflowOperation(
            QUOTA_BANK,
            Bank(),
            id=self._id,
            task_queue=quota_queue(self._queue),
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            task_timeout=BANK_TASK_TIMEOUT,
            static_summary=f"The quota of account {self._account!r}: requests and tokens a minute, for all runs",
        )
        found: Grant = await self._client.execute_update_with_start_workflow(
            DRAW, ask, start_workflow_operation=start, id=id, result_type=Grant
        )
        return found

    def _delete(self, before: str | None) -> None:
        """Let go of the bank's last run: what it knew is in this one, and a busy bank begins a new one every minute."""
        if before is None or before == self._before:
            return
        self._before = before
        deleting = asyncio.create_task(self._delete_run(before))
        self._deleting.add(deleting)
        deleting.add_done_callback(self._deleting.discard)

    async def _delete_run(self, run: str) -> None:
        execution = WorkflowExecution(workflow_id=self._id, run_id=run)
        with suppress(RPCError):  # another process was quicker, or may not: then it goes with its retention
            await self._client.workflow_service.delete_workflow_execution(
                DeleteWorkflowExecutionRequest(namespace=self._client.namespace, workflow_execution=execution)
            )
