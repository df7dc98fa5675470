"""What a run shows of itself in Temporal: current details on its page, the memo and a search attribute in lists.

Current details cost nothing: they are asked for, not sent. The memo and the attribute are commands, so when they are
given is part of what a history must replay: see `WINDOW`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from temporalio import workflow
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes

with workflow.unsafe.imports_passed_through():
    import attributes
    from domain.audit import Head
    from domain.course import Course
    from domain.details import details_of
    from domain.models import RunStatus
    from domain.progress import Progress
    from domain.runs import RunInput, RunSummary
    from workflows import policies

STATUS = SearchAttributeKey.for_keyword(attributes.STATUS)
PLAN = SearchAttributeKey.for_keyword(attributes.PLAN)
COST = SearchAttributeKey.for_float(attributes.COST)

WINDOW = "window"
"""The patch since which the memo is refreshed with every batch of events, and search attributes are put in.

Asked for once, when the workflow is made: a history that release 0.1.0 began goes on as it began.
"""


class Window:
    """Shows how far a run has come, no oftener than its events are written, and always when it has come to rest."""

    def __init__(self, run: str, input: RunInput, course: Course, progress: Progress) -> None:
        self._run = run
        self._input = input
        self._course = course
        self._patched = workflow.patched(WINDOW)
        self._attributes = input.attributes and self._patched
        self._memo_due = workflow.now()
        self._status = course.status(progress)  # as it was put in at the start of this history
        self._told_at: datetime | None = None

    def look(self, progress: Progress, now: datetime) -> None:
        """Write the page when it is old: before the first events are written, and while the store takes none."""
        if self._told_at is None or now - self._told_at >= policies.WRITE_AFTER:
            self.tell(progress)

    def refresh(self, progress: Progress, now: datetime, head: Head | None) -> None:
        """Show the state at the moment when a batch of events is written: whatever comes later is in a later batch."""
        self.tell(progress)
        if self._patched or now >= self._memo_due:
            self._memo_due = now + policies.MEMO_EVERY
            workflow.upsert_memo(self._memo(progress, head))
        self._put(self._course.status(progress))

    def tell(self, progress: Progress, *, bug: str | None = None) -> None:
        """Write the page anew. It is a courtesy: a mistake in it must neither fail nor stall a run."""
        self._told_at = workflow.now()
        try:
            page = details_of(
                self._course,
                progress,
                workflow.now(),
                run=self._run,
                simulated=self._input.simulated,
                continued=self._input.progress is not None,
                bug=bug,
            )
        except Exception as error:  # noqa: BLE001
            page = f"This page cannot be shown ({type(error).__name__}). The run is not concerned."
        workflow.set_current_details(page)

    def close(self, progress: Progress, summary: RunSummary) -> None:
        """Show how the run ended."""
        self.tell(progress)
        workflow.upsert_memo({"status": summary.status.value, "summary": summary, **_anchor(summary.audit)})
        self._put(summary.status)
        # Histories of before 0.5.0 have no cost in the reply that closes them, and replay without this.
        if self._attributes and summary.cost_usd is not None:
            workflow.upsert_search_attributes([COST.value_set(float(summary.cost_usd))])

    def close_after_bug(self, progress: Progress, bug: str, head: Head | None) -> None:
        """Show that the run failed, and why."""
        self.tell(progress, bug=bug)
        workflow.upsert_memo({"status": RunStatus.FAILED.value, **_anchor(head)})
        self._put(RunStatus.FAILED)

    def carried(self, progress: Progress, head: Head | None) -> dict[str, Any]:
        """What continue-as-new must be given so that the next history shows the same.

        By itself only the memo of the start would go along, and the door would miss a pause.
        """
        if not self._patched:
            return {"memo": workflow.memo()}
        found = {"memo": {**workflow.memo(), **self._memo(progress, head)}}
        if self._attributes:
            return {**found, "search_attributes": attributes_of(self._input.name, self._course.status(progress))}
        return found

    def _memo(self, progress: Progress, head: Head | None) -> dict[str, Any]:
        return {
            "status": self._course.status(progress).value,
            "census": self._course.census(progress).model_dump(),
            **_anchor(head),
        }

    def _put(self, status: RunStatus) -> None:
        if self._attributes and status is not self._status:
            self._status = status
            workflow.upsert_search_attributes([STATUS.value_set(status.value)])


def _anchor(head: Head | None) -> dict[str, Any]:
    """The head of the audit trail, where whoever verifies it looks."""
    return {} if head is None else {"audit": head.model_dump()}


def attributes_of(plan: str, status: RunStatus, *, priced: bool = False) -> TypedSearchAttributes:
    """The search attributes of a run in this state.

    One whose models all have a price begins with a cost of nothing, and is told the true one at its end: so a server
    that does not know that attribute says so at submit, and not when the run ends.
    """
    found = [SearchAttributePair(PLAN, plan), SearchAttributePair(STATUS, status.value)]
    return TypedSearchAttributes([*found, SearchAttributePair(COST, 0.0)] if priced else found)
