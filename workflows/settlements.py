"""What tasks have cost that could not tell: the ledger is asked, one activity each, while the run goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from activities.contract import SETTLE, SettleReply, SettleRequest, control_queue
    from domain.models import Account
    from domain.progress import Owed
    from workflows import policies

AT_ONCE = 100
"""Questions under way: the server takes 2,000 activities of a workflow, and a run of thousands may be cancelled."""


class Settlements:
    """Asks once for each. What continue-as-new cuts off is asked again by the next run: it is in the progress."""

    def __init__(self, run: str, tell: Callable[[Owed, Account], None]) -> None:
        self._run = run
        self._tell = tell
        self._asking: dict[tuple[str, int], asyncio.Task[None]] = {}

    def ask(self, owing: Iterable[Owed], *, over: bool = False) -> None:
        """Ask for those that were not asked for yet, a few at a time: whoever asks comes again with the answers.

        `over` says that the run has come to its end: then its batches are called off.
        """
        under_way = sum(not asking.done() for asking in self._asking.values())
        for owed in owing:
            if under_way >= AT_ONCE:
                return
            if (owed.task, owed.step) not in self._asking:
                under_way += 1
                self._asking[owed.task, owed.step] = asyncio.create_task(self._ask(owed, over=over))

    async def _ask(self, owed: Owed, *, over: bool) -> None:
        reply = await workflow.execute_activity(
            SETTLE,
            SettleRequest(run=self._run, task=owed.task, step=owed.step, over=over),
            result_type=SettleReply,
            task_queue=control_queue(workflow.info().task_queue),
            start_to_close_timeout=policies.RECORD_TIMEOUT,
            retry_policy=policies.CONTROL_RETRY,
            summary=f"what {owed.task} has cost",
        )
        self._tell(owed, reply.account)
