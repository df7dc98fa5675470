"""Room on the disk of the store: nothing is paid for that could not be kept.

A bucket has no end that can be asked for. A folder has: below the reserve a call is not made, its task waits at a
wall of the whole run, and one task looks again every few minutes. Whoever is under way still has the reserve.
"""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from time import monotonic

from domain.models import Parked

RESERVE = 200_000_000
"""Bytes that calls under way may need for their answers, each at most 8 MB, and the server of the home for its own."""

FRESH = 1.0
"""Seconds for which a figure counts: hundreds of calls may ask within one."""


class Room:
    """Knows whether the disk of a store has room for one more answer."""

    def __init__(self, folder: Path | None, reserve: int = RESERVE) -> None:
        self._folder, self._reserve = folder, reserve
        self._free, self._asked = 0, -FRESH

    async def wall(self) -> Parked | None:
        """What a call meets that cannot be kept, if it cannot."""
        if self._folder is None or await self._has_room(self._folder):
            return None
        what = (
            f"the disk of the store has less than {self._reserve / 1e6:g} MB free, so nothing is paid that could not "
            "be kept: make room there; the run goes on by itself"
        )
        return Parked(why="wall", wall="disk", what=what)

    async def _has_room(self, folder: Path) -> bool:
        if monotonic() - self._asked >= FRESH:
            try:
                self._free = await asyncio.to_thread(free_bytes, folder)
            except OSError:
                return True  # a folder that is gone has no room either, but whoever writes there is told so
            self._asked = monotonic()
        return self._free >= self._reserve


def free_bytes(folder: Path) -> int:
    """Bytes that we may still write there."""
    return shutil.disk_usage(folder).free
