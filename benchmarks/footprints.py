"""What processes use while something is measured."""

from __future__ import annotations

import asyncio
from typing import Self

from footprint import Footprint, footprint


class Footprints:
    """CPU and memory of processes while a block runs. Memory is looked at five times a second."""

    def __init__(self, *pids: int) -> None:
        self._pids = pids

    async def __aenter__(self) -> Self:
        self._before = self._now()
        self._peaks = [found.rss_bytes for found in self._before]
        self._looking = asyncio.create_task(self._look())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._after = self._now()
        self._looking.cancel()

    async def _look(self) -> None:
        while True:
            self._peaks = [max(peak, found.rss_bytes) for peak, found in zip(self._peaks, self._now(), strict=True)]
            await asyncio.sleep(0.2)

    def _now(self) -> list[Footprint]:
        found = [footprint(pid) for pid in self._pids]
        return [one for one in found if one is not None]

    def cpu_seconds(self) -> list[float]:
        """CPU used in the block, by process."""
        return [after.cpu_seconds - before.cpu_seconds for before, after in zip(self._before, self._after, strict=True)]

    def peak_mb(self) -> list[float]:
        """The most memory held in the block, by process."""
        return [peak / 1e6 for peak in self._peaks]
