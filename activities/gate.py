"""The gate: whether a run may still pay.

Children outlive a terminated supervisor, and a cascade of cancels takes seconds under load. So before a call, and once
a second during it, a worker asks Temporal about the run itself; one question serves all calls of a run in this process.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from time import monotonic

import structlog
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError

from absence import is_unknown

FRESH = 1.0
"""Seconds for which an answer is good: paying stops within about two of them."""

PATIENCE = timedelta(seconds=3)
"""For one question; it is asked again."""

ALIVE = {WorkflowExecutionStatus.RUNNING, WorkflowExecutionStatus.CONTINUED_AS_NEW}

log = structlog.get_logger()


@dataclass(frozen=True)
class Standing:
    """Whether a run may pay: it lives and is not paused, or why not."""

    over: str | None = None
    paused: bool = False
    replaced: bool = False
    """Whether it is over because another run has its name, and with it what is written down of the two."""


@dataclass
class _Known:
    lock: asyncio.Lock
    asked: float = float("-inf")
    standing: Standing = Standing()


class Gate:
    """One per worker process."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._known: dict[tuple[str, str], _Known] = {}

    async def standing(self, run: str, chain: str) -> Standing:
        """How a run stands, at most a second ago. Waits while the server does not answer: nobody pays on a guess.

        A pause is asked for again before it is believed: the run may have been resumed a moment ago, and a task that is
        sent back then would only come again.
        """
        now = monotonic()
        standing = await self._answer(run, chain, since=now - FRESH)
        return await self._answer(run, chain, since=now) if standing.paused else standing

    async def permission(self, run: str, chain: str) -> Standing:
        """How a run stands now: asked after this moment, so that a pause holds from its acknowledgement on.

        Those who wait share a question that begins after all of them have asked.
        """
        return await self._answer(run, chain, since=monotonic())

    async def _answer(self, run: str, chain: str, *, since: float) -> Standing:
        while True:
            try:
                return await self._ask(run, chain, since)
            except RPCError as error:
                log.warning("gate_unanswered", status=error.status.name)
                await asyncio.sleep(FRESH)

    async def closed(self, run: str, chain: str) -> str:
        """Waits until the run must not pay any more, and gives the reason. A pause lets calls at work finish."""
        while True:
            standing = await self.standing(run, chain)
            if standing.over is not None:
                return standing.over
            await asyncio.sleep(FRESH)

    async def _ask(self, run: str, chain: str, since: float) -> Standing:
        known = self._known.setdefault((run, chain), _Known(asyncio.Lock()))
        async with known.lock:
            if known.asked < since:
                asked = monotonic()
                known.standing = await self._describe(run, chain)
                known.asked = asked
                self._forget_old()
        return known.standing

    async def _describe(self, run: str, chain: str) -> Standing:
        try:
            description = await self._client.get_workflow_handle(run).describe(rpc_timeout=PATIENCE)
        except RPCError as error:
            if is_unknown(error):
                return Standing(over="the run is no longer there")
            raise
        raw = description.raw_description
        if raw.workflow_execution_info.first_run_id != chain:
            return Standing(over="another run of the same name has taken its place", replaced=True)
        if description.status not in ALIVE:
            return Standing(over=f"the run is {description.status.name if description.status else 'gone'}")
        if raw.workflow_extended_info.cancel_requested:
            return Standing(over="the run is being cancelled")
        return Standing(paused=bool(await description.memo_value("paused", default=False)))

    def _forget_old(self) -> None:
        now = monotonic()
        for key in [key for key, known in self._known.items() if now - known.asked > 60 and not known.lock.locked()]:
            del self._known[key]
