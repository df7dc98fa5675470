"""Whether an agent may make a call: asked before every request, because what it may do can be taken away at any time.

Here the two halves meet: what was pinned with the agent when its run was submitted, and what the register says now.
"""

from __future__ import annotations

from decimal import Decimal

import structlog

from activities.attempts import Attempt, TurnedAway
from activities.briefs import Briefs
from activities.contract import MESSAGE_LIMIT
from activities.register_desk import RegisterDesk
from activities.spending import Spending
from domain.models import Failed, TaskError
from domain.permits import lowered, refusals
from domain.prices import money
from domain.refusals import MOST_TOLD, REFUSED, Refusal, told
from domain.rights import ANYTHING, Right

log = structlog.get_logger()


class Permission:
    """One per worker process; `region` is the one that it was started for."""

    def __init__(
        self, desk: RegisterDesk, briefs: Briefs, spending: Spending, *, region: str | None, governed: bool
    ) -> None:
        self._desk, self._briefs, self._spending = desk, briefs, spending
        self._region, self._governed = region, governed

    async def check(self, attempt: Attempt, intent: int | None = None) -> None:
        """Turn a call away that its agent has no right to: nothing is asked, and no attempt is used.

        With the number of its intent, if that was written down for a grant that came too late.
        """
        needs = await self._briefs.needs(attempt.request, self._region, attempt.purpose)
        standing = await self._desk.standing(attempt.agent)
        found = refusals(attempt.agent, needs, standing, governed=self._governed)
        if not found and (most := lowered(attempt.agent, standing)) is not None:
            found = await self._beyond(attempt, most, intent)
        if found:
            log.warning("right_refused", agent=attempt.agent.name, right=found[0].right or found[0].thing)
            raise TurnedAway(_refused(attempt, found))

    async def _beyond(self, attempt: Attempt, most: Decimal, intent: int | None) -> list[Refusal]:
        """What a call costs too much, when its agent has less money by now than its run has set aside for it.

        The ledger knows what it has spent in this run, with all that is under way at its worst. It is asked in this
        case alone.
        """
        agent, prices = attempt.agent, attempt.prices
        if prices is None or attempt.worst_usd is None:
            return [Refusal(agent=agent.name, right=Right.BUDGET, thing=ANYTHING)]
        own = attempt.entry.key, intent
        before = await self._spending.of_agent(attempt.request.run, agent.label, prices, but_for=own)
        cost = before + attempt.worst_usd
        return [Refusal(agent=agent.name, right=Right.BUDGET, thing=money(cost))] if cost > most else []


def _refused(attempt: Attempt, found: list[Refusal]) -> Failed:
    message = told(found)[:MESSAGE_LIMIT]
    error = TaskError(type=REFUSED, message=message, attempt=attempt.number - 1, retryable=False)
    return Failed(error=error, refused=tuple(found[:MOST_TOLD]))
