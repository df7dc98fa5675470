"""A disk of its own, as real as one can be, that can be full without a byte being written to it."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

MEGABYTE = 1_000_000
TRIES = 20


class NoDisk(Exception):
    """Nothing can be mounted here."""


class Disk:
    """A tmpfs."""

    def __init__(self, place: Path, megabytes: int) -> None:
        self.place, self._size = place, megabytes * MEGABYTE

    @asynccontextmanager
    async def mounted(self) -> AsyncIterator[None]:
        """There for as long as the block runs."""
        self.place.mkdir(parents=True)
        await self._mount(f"size={self._size}")
        try:
            yield
        finally:
            await _command("umount", "-l", str(self.place))

    async def fill(self, *, leave: int) -> None:
        """Leave so many bytes of it, by making it as small as what is in it."""
        for _ in range(TRIES):
            try:
                await self._mount(f"remount,size={shutil.disk_usage(self.place).used + leave}")
            except NoDisk:
                continue  # somebody wrote to it meanwhile: it cannot be smaller than what is in it
            return
        raise NoDisk("the disk cannot be made smaller")

    async def free(self) -> None:
        """Make it as large as it was."""
        await self._mount(f"remount,size={self._size}")

    async def _mount(self, options: str) -> None:
        await _command("mount", "-t", "tmpfs", "-o", options, "tmpfs", str(self.place))


async def _command(*words: str) -> None:
    try:
        process = await asyncio.create_subprocess_exec(*words, stderr=asyncio.subprocess.DEVNULL)
        code = await process.wait()
    except OSError:
        code = 1
    if code:
        raise NoDisk(f"{words[0]} is not permitted here")
