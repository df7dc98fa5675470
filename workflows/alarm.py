"""One alarm: everything that waits for a time shares a single timer."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

from temporalio import workflow


class Alarm:
    """Rings at the earliest time it was set to.

    A timer that is already earlier is left alone: it rings too soon, someone looks, and sets it again. That costs two
    events where a timer per wait would cost two for every task.
    """

    def __init__(self) -> None:
        self.rings = False
        self._time: datetime | None = None
        self._timer: asyncio.Task[None] | None = None

    def set(self, *reasons: tuple[datetime | None, str]) -> None:
        """Ring at the earliest of these times, or earlier if it is set so already. The reason is for people to read."""
        times = [(time, why) for time, why in reasons if time is not None]
        if not times:
            return
        time, why = min(times)
        if self._time is not None and self._time <= time:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._time = time
        self._timer = asyncio.create_task(self._ring_at(time, why))

    def ring(self) -> None:
        """Ring now."""
        self.rings = True

    async def _ring_at(self, time: datetime, why: str) -> None:
        await workflow.sleep(max(time - workflow.now(), timedelta(0)), summary=why)
        self._time = self._timer = None
        self.ring()
