"""The ways of today: plain asyncio on the provider's SDK, all at once, in waves, or behind a semaphore; and LangGraph.

What is lost is left out: the synthesis is told which answers are missing, as careful people would do it. Without that
care the first lost call would end the whole run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

import anthropic
from anthropic.types import MessageParam
from trap_graph import on_langgraph
from trap_sample import ALL, LANGGRAPH, SEMAPHORE, UNTIL_DONE, WAVES, Arm
from trap_scene import TIMEOUT, Work

from domain.briefing import Brief
from domain.models import Task

ENDLESS = 1000
"""Retries of the SDK that stand for "until it is done"; each waits for as long as the provider says."""


class Crew:
    """The work, and a client of the SDK to do it with."""

    def __init__(self, url: str, arm: Arm) -> None:
        self._work = Work()
        self.tasks = self._work.tasks
        self.answers: dict[str, str | None] = {}
        self._client = anthropic.AsyncAnthropic(
            api_key="simulated",
            base_url=url,
            timeout=TIMEOUT.total_seconds(),
            max_retries=ENDLESS if arm.retries == UNTIL_DONE else anthropic.DEFAULT_MAX_RETRIES,
            http_client=anthropic.DefaultAsyncHttpxClient(trust_env=False),
        )

    async def do(self, task: Task) -> None:
        """One task of the fan-out."""
        self.answers[task.id] = await self._ask(self._work.brief(task))

    async def synthesise(self) -> None:
        """The last task, from what there is."""
        self.answers[self._work.synthesis.id] = await self._ask(self._work.synthesis_brief(self.answers))

    @property
    def lost(self) -> int:
        """Tasks whose call was lost."""
        return sum(answer is None for answer in self.answers.values())

    async def close(self) -> None:
        """Give the connections back."""
        await self._client.close()

    async def _ask(self, brief: Brief) -> str | None:
        """The answer, or None when the SDK has given up."""
        asked = cast("MessageParam", {"role": "user", "content": list(brief.content)})
        try:
            message = await self._client.messages.create(
                model=brief.model, max_tokens=brief.max_tokens, system=brief.system, messages=[asked]
            )
        except anthropic.APIError:
            return None
        return "".join(block.text for block in message.content if block.type == "text")


async def all_at_once(crew: Crew, _: int) -> None:
    """Nobody waits for anybody."""
    await asyncio.gather(*(crew.do(task) for task in crew.tasks))
    await crew.synthesise()


async def in_waves(crew: Crew, size: int) -> None:
    """So many, and when all of them have ended the next so many: what the article recommends."""
    for start in range(0, len(crew.tasks), size):
        await asyncio.gather(*(crew.do(task) for task in crew.tasks[start : start + size]))
    await crew.synthesise()


async def behind_a_semaphore(crew: Crew, size: int) -> None:
    """So many at any time."""
    places = asyncio.Semaphore(size)

    async def do(task: Task) -> None:
        async with places:
            await crew.do(task)

    await asyncio.gather(*(do(task) for task in crew.tasks))
    await crew.synthesise()


WAYS: dict[str, Callable[[Crew, int], Awaitable[None]]] = {
    ALL: all_at_once,
    WAVES: in_waves,
    SEMAPHORE: behind_a_semaphore,
    LANGGRAPH: on_langgraph,
}
