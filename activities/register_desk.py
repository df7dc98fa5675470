"""The register as the door asks for it: how an agent stands, at most a second ago.

What is taken away from an agent holds for the next call of every run, so it is looked up before each call; one question
to the store serves all calls of a process.
"""

from __future__ import annotations

import asyncio
from time import monotonic

from domain.models import Agent
from domain.register import Register, Standing
from registers import Registers
from store import Store

FRESH = 1.0
"""Seconds for which an answer of the store is good."""


class RegisterDesk:
    """One per worker process."""

    def __init__(self, store: Store) -> None:
        self._registers = Registers(store)
        self._register = Register()
        self._lock = asyncio.Lock()
        self._asked = float("-inf")

    async def standing(self, agent: Agent) -> Standing:
        """How an agent stands, at most a second ago. A store that does not answer raises: nobody pays on a guess."""
        since = monotonic() - FRESH
        async with self._lock:
            if self._asked < since:
                asked = monotonic()
                self._register = await self._registers.register()
                self._asked = asked
        return self._register.of(agent)
