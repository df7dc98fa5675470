"""Heartbeats from the background, so that a slow answer is never taken for a dead worker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from time import monotonic

from temporalio import activity

BEAT = 1.0
"""Seconds between heartbeats: a cancel is heard as quickly, and ten of them fit the heartbeat timeout."""


MARGIN = 2 * BEAT
"""So much earlier than the server, an attempt takes itself for lost: a heartbeat needs its time."""


class Pulse:
    """What an attempt says of itself while it works: to Temporal by heartbeats, to people by the board."""

    def __init__(self, step: str = "permission", *, attempt: int = 1) -> None:
        self._step = step
        self.attempt = attempt
        """Which one it is, as far as is known: the ledger is asked on the way."""
        self.since = datetime.now(UTC)
        self.progressed: datetime | None = None
        self.heard_at = float("-inf")
        """When new text came last, on the monotonic clock."""
        self._characters = 0
        self.what: str | None = None
        """What the step waits for."""
        self.until: datetime | None = None
        self._patience = float("inf")
        self._beat_at = monotonic()
        self._lost = False

    def begin(self, patience: timedelta | None) -> None:
        """The start is a sign of life. For so long the server waits for the next one."""
        self._patience = patience.total_seconds() - MARGIN if patience else float("inf")
        self._beat_at = monotonic()

    def beat(self) -> None:
        """A sign of life is given."""
        self._lost, self._beat_at = self.is_lost, monotonic()

    @property
    def is_lost(self) -> bool:
        """Whether the server may have given the attempt to another worker: this one was silent for too long.

        As one that was frozen: it wakes up in the middle of what it did, and must not begin a call.
        """
        return self._lost or monotonic() - self._beat_at > self._patience

    @property
    def step(self) -> str:
        """What is being done."""
        return self._step

    @step.setter
    def step(self, step: str) -> None:
        if step != self._step:
            self._step = step
            self.since = datetime.now(UTC)
            self.what = self.until = None

    @property
    def tokens(self) -> int:
        """About four characters are a token; the exact count comes with the answer."""
        return self._characters // 4

    def waits(self, what: str, until: datetime | None) -> None:
        """The step waits for this, until then at the earliest."""
        self.what, self.until = what, until

    def heard(self, text: str) -> None:
        """New text has come."""
        if text:
            self.step = "answering"
            self._characters += len(text)
            self.progressed = datetime.now(UTC)
            self.heard_at = monotonic()

    def details(self) -> dict[str, object]:
        """For the heartbeat."""
        progressed = self.progressed.isoformat(timespec="seconds") if self.progressed else None
        return {"step": self.step, "tokens": self.tokens, "last_progress": progressed}


@asynccontextmanager
async def beating(pulse: Pulse) -> AsyncIterator[None]:
    """Heartbeat once a second while the block runs."""

    async def beat() -> None:
        while True:
            await asyncio.sleep(BEAT)  # the start itself is a sign of life
            pulse.beat()
            activity.heartbeat(pulse.details())

    pulse.begin(activity.info().heartbeat_timeout)
    beats = asyncio.create_task(beat())
    try:
        yield
    finally:
        beats.cancel()
        await asyncio.gather(beats, return_exceptions=True)
