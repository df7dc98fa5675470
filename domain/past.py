"""What a run has come to, for another one that takes over its results."""

from __future__ import annotations

from domain.fold import Fold, TaskPicture
from domain.reuse import Kept, Past

WHY_LIMIT = 200
"""Characters of a reason that is taken along: ten thousand of them must fit one payload."""


def past_of(run: Fold) -> dict[str, Past]:
    """The tasks of a run that have ended: how, and what they had been given."""
    return {id: Past(_kept(run.run, seen), run.inputs(id)) for id, seen in run.tasks.items() if seen.ended or run.ended}


def _kept(run: str, seen: TaskPicture) -> Kept:
    """Of a result that was itself taken over, the run that paid for it stays named."""
    return Kept(
        status=seen.status,
        run=seen.reused or run,
        ref=seen.output_ref,
        bytes=seen.output_bytes,
        summary_ref=seen.summary_ref,
        summary_bytes=seen.summary_bytes,
        tokens=seen.worth,
        usd=seen.worth_usd,
        why=seen.error.message[:WHY_LIMIT] if seen.error else None,
        error=seen.error.type if seen.error else None,
        cause=seen.cause,
        approval=seen.approval,
    )
