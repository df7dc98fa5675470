"""A bank across the counter: its arithmetic without a server, for the meters of a test."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime

from activities.teller import Unanswered
from domain.quota.bank import Bank, draw
from domain.quota.lane import Lane
from domain.quota.words import Ask, Grant

LANE = "haiku-4"


@dataclass
class Counter:
    """A bank across the counter, whose answers the test may hold back."""

    bank: Bank = field(default_factory=lambda: Bank(lanes={LANE: Lane()}))
    asks: list[Ask] = field(default_factory=list)
    grants: list[Grant] = field(default_factory=list)
    slow: float = 0.0
    fails: int = 0

    async def draw(self, ask: Ask) -> Grant:
        self.asks.append(ask)
        if self.fails:
            self.fails -= 1
            raise Unanswered("as the test says")
        self.bank, grant = draw(self.bank, ask, datetime.now(UTC))
        self.grants.append(grant)
        await asyncio.sleep(self.slow)
        return grant
