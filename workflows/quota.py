"""The bank: what an account may use, granted to every worker process of a deployment."""

from __future__ import annotations

from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.common import VersioningBehavior
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from activities.contract import DRAW, MESSAGE_LIMIT, QUOTA_BANK
    from domain.quota.bank import Bank, draw, stands_still
    from domain.quota.view import QuotaView, page_of, view_of
    from domain.quota.words import Ask, Grant

DRAWS = 100
"""Draws in one run of the bank, about five events each.

When the worker that had the bank dies, another one reads them all again, 3 ms each on a quiet machine, while every call
of every run waits; and it has no more time for that than a workflow task may take.
"""

SHORT, DRAWS_TO_0_6 = "short", 500
"""The patch since which a run of the bank is that short. Asked for once, when the workflow is made: a run that began
under an earlier release goes on for as long as it would have.
"""

PAGE_EVERY = timedelta(seconds=5)
"""The page is a courtesy: it is not written anew for every draw."""


@workflow.defn(name=QUOTA_BANK, versioning_behavior=VersioningBehavior.AUTO_UPGRADE)
class QuotaBank:
    """One account in one mode: a value, and one update that never waits.

    It has no timer and starts nothing, so a history of it replays on any code that can read its words. Its state is as
    large as there are processes, classes and agents, however many calls there were.
    """

    @workflow.init
    def __init__(self, bank: Bank) -> None:
        self._bank = bank
        self._draws = 0
        self._most = DRAWS if workflow.patched(SHORT) else DRAWS_TO_0_6
        self._shown: datetime | None = None

    @workflow.run
    async def run(self, bank: Bank) -> None:
        """Stand ready; after so many draws go on with a fresh history."""
        await workflow.wait_condition(lambda: self._draws >= self._most and workflow.all_handlers_finished())
        workflow.continue_as_new(self._bank)

    @workflow.update(name=DRAW, description="What a worker process asks for its calls. Not for people.")
    def draw(self, ask: Ask) -> Grant:
        """What a process may call now. A mistake of ours fails the draw, not the bank: the process asks again."""
        self._draws += 1
        now = workflow.now()
        try:
            if stands_still(self._bank, ask, now):
                self._draws = self._most  # a new run has the new time
            self._bank, grant = draw(self._bank, ask, now)
            self._show(now)
        except Exception as bug:
            raise ApplicationError(f"bug in the bank: {bug!r}"[:MESSAGE_LIMIT], type="BankBug") from bug
        return grant.model_copy(update={"before": workflow.info().continued_run_id})

    @workflow.query
    def view(self, now: datetime | None = None) -> QuotaView:
        """Limits, use, who draws and who waits. A question does not move our clock: whoever asks knows the time."""
        return view_of(self._bank, now or workflow.now())

    def _show(self, now: datetime) -> None:
        if self._shown is None or now - self._shown >= PAGE_EVERY:
            self._shown = now
            workflow.set_current_details(page_of(view_of(self._bank, now)))
