"""How long a call may take: to its end, and without a word."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from datetime import timedelta
from time import monotonic
from typing import Any, TypeVar

from activities.model import NoProgress, TaskTimeout
from activities.pulse import Pulse

LEAST_SILENCE = 10.0
"""Seconds without new text that any call may have: half of a short timeout would be hasty."""

T = TypeVar("T")


class RunIsOver(Exception):
    """The run ended while its call was under way."""


async def within(
    limit: timedelta, calling: Coroutine[Any, Any, T], *, closed: Coroutine[Any, Any, str], pulse: Pulse
) -> T:
    """What a call comes to within its time, and for as long as its run may pay. Else it is called off.

    Pings are no progress: they would keep a call alive that never says a word.
    """
    call, end = asyncio.create_task(calling), asyncio.create_task(closed)
    seconds = limit.total_seconds()
    silence = max(seconds / 2, LEAST_SILENCE)
    began = monotonic()
    try:
        while True:
            late, silent = began + seconds, max(began, pulse.heard_at) + silence
            left = min(late, silent) - monotonic()
            await asyncio.wait([call, end], timeout=max(left, 0), return_when=asyncio.FIRST_COMPLETED)
            if call.done():
                return call.result()
            if end.done():
                raise RunIsOver(end.result())
            now = monotonic()
            if now >= late:
                raise TaskTimeout(f"Task timeout after {seconds:g} s")
            if now >= max(began, pulse.heard_at) + silence:
                raise NoProgress(f"No new text for {silence:g} s")
    finally:
        call.cancel()
        end.cancel()
        await asyncio.wait([call, end])
