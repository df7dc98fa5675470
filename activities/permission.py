"""Whether an agent may make a call: asked before every request, because what it may do can be taken away at any time.

Here the two halves meet: what was pinned with the agent when its run was submitted, and what the register says now.
"""

from __future__ import annotations

import structlog

from activities.attempts import Attempt, TurnedAway
from activities.briefs import Briefs
from activities.contract import MESSAGE_LIMIT
from activities.register_desk import RegisterDesk
from domain.models import Failed, TaskError
from domain.permits import refusals
from domain.refusals import MOST_TOLD, REFUSED, Refusal, told

log = structlog.get_logger()


class Permission:
    """One per worker process; `region` is the one that it was started for."""

    def __init__(self, desk: RegisterDesk, briefs: Briefs, *, region: str | None, governed: bool) -> None:
        self._desk, self._briefs = desk, briefs
        self._region, self._governed = region, governed

    async def check(self, attempt: Attempt) -> None:
        """Turn a call away that its agent has no right to: nothing is asked, and no attempt is used."""
        needs = await self._briefs.needs(attempt.request, self._region, attempt.purpose)
        standing = await self._desk.standing(attempt.agent)
        if found := refusals(attempt.agent, needs, standing, governed=self._governed):
            log.warning("right_refused", agent=attempt.agent.name, right=found[0].right or found[0].thing)
            raise TurnedAway(_refused(attempt, found))


def _refused(attempt: Attempt, found: list[Refusal]) -> Failed:
    message = told(found)[:MESSAGE_LIMIT]
    error = TaskError(type=REFUSED, message=message, attempt=attempt.number - 1, retryable=False)
    return Failed(error=error, refused=tuple(found[:MOST_TOLD]))
