"""Heartbeats from the background, so that a slow answer is never taken for a dead worker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from temporalio import activity

BEAT = 1.0
"""Seconds between heartbeats: a cancel is heard as quickly, and ten of them fit the heartbeat timeout."""


@dataclass
class Pulse:
    """What an attempt says of itself while it works."""

    step: str = "permission"
    characters: int = 0
    progressed: datetime | None = None

    def heard(self, text: str) -> None:
        """New text has come."""
        if text:
            self.step = "answering"
            self.characters += len(text)
            self.progressed = datetime.now(UTC)

    def details(self) -> dict[str, object]:
        """For the heartbeat: about four characters are a token; the exact count comes with the answer."""
        progressed = self.progressed.isoformat(timespec="seconds") if self.progressed else None
        return {"step": self.step, "tokens": self.characters // 4, "last_progress": progressed}


@asynccontextmanager
async def beating(pulse: Pulse) -> AsyncIterator[None]:
    """Heartbeat once a second while the block runs."""

    async def beat() -> None:
        while True:
            await asyncio.sleep(BEAT)  # the start itself is a sign of life
            activity.heartbeat(pulse.details())

    beats = asyncio.create_task(beat())
    try:
        yield
    finally:
        beats.cancel()
        await asyncio.gather(beats, return_exceptions=True)
