"""The banks of quota as a reader finds them: those of one account in both modes, and those of other accounts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from temporalio.client import Client, WorkflowQueryFailedError, WorkflowQueryRejectedError
from temporalio.common import QueryRejectCondition
from temporalio.service import RPCError, RPCStatusCode

from activities.contract import QUOTA_BANK, account_and_queue, quota_id
from domain.quota.view import QuotaView
from workflows.quota import QuotaBank

PATIENCE = timedelta(seconds=3)
"""A bank is asked through a worker: without one nobody answers."""


@dataclass(frozen=True)
class FoundBank:
    """One bank that is there, and what it says; nothing when nobody answered for it."""

    account: str
    queue: str
    view: QuotaView | None

    @property
    def workflow(self) -> str:
        """Its name in Temporal."""
        return quota_id(self.account, self.queue)


async def find_banks(client: Client, account: str, queues: Iterable[str]) -> list[FoundBank]:
    """The banks of an account, and those of others that Temporal lists, which may be a moment behind."""
    query = f"WorkflowType = '{QUOTA_BANK}' AND ExecutionStatus = 'Running'"
    listed = [account_and_queue(found.id) async for found in client.list_workflows(query)]
    known = dict.fromkeys([*((account, queue) for queue in queues), *sorted(listed)])
    found = await asyncio.gather(*(_find(client, *parts) for parts in known))
    return [bank for bank in found if bank is not None]


async def _find(client: Client, account: str, queue: str) -> FoundBank | None:
    """A bank, unless there is none, or it is over: then the next call begins a new one."""
    handle = client.get_workflow_handle_for(QuotaBank.run, quota_id(account, queue))
    try:
        view = await handle.query(
            QuotaBank.view,
            datetime.now(UTC),
            reject_condition=QueryRejectCondition.NOT_OPEN,
            rpc_timeout=PATIENCE,
        )
    except WorkflowQueryRejectedError:
        return None
    except WorkflowQueryFailedError:
        view = None
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return None
        view = None
    return FoundBank(account, queue, view)
