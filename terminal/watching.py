"""Waiting for a run on a terminal: the live view, Ctrl-C, a time limit."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from enum import Enum, auto

from rich.console import Console
from rich.live import Live

from client import RunClient
from domain.report import Picture
from terminal.show import live_view, plain_line

SECOND_PRESS = 2.0
"""Seconds in which a second Ctrl-C cancels the run."""


class Left(Enum):
    """Why the wait is over."""

    ENDED = auto()
    TIME = auto()
    DETACHED = auto()


class Watcher:
    """Follows one run until it ends, the time is up, or the person goes away."""

    def __init__(self, client: RunClient, run: str, trouble: Callable[[], str | None]) -> None:
        self._client, self._run, self._trouble = client, run, trouble
        self._console = Console(stderr=True)
        self._pressed = asyncio.Event()
        self._told: str | None = None
        self.picture: Picture | None = None

    async def follow(self, limit: timedelta | None) -> Left:
        """Show the run as it goes. One Ctrl-C detaches, a second within two seconds cancels the run."""
        seconds = limit.total_seconds() if limit is not None else None
        with _hearing_interrupts(self._pressed.set):
            following = asyncio.create_task(self._show())
            leaving = asyncio.create_task(self._pressed.wait())
            try:
                await asyncio.wait([following, leaving], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
                if following.done():
                    following.result()
                    return Left.ENDED
                if not leaving.done():
                    return Left.TIME
                return await self._detach_or_cancel(following)
            finally:
                for task in (following, leaving):
                    task.cancel()
                await asyncio.wait([following, leaving])

    async def _detach_or_cancel(self, following: asyncio.Task[None]) -> Left:
        """Two seconds to press again; while the run is being cancelled, a further press leaves."""
        self._console.print("Detaching; press Ctrl-C again within 2 s to cancel the run.")
        if not await self._pressed_again(following, SECOND_PRESS):
            return Left.ENDED if following.done() else Left.DETACHED
        await self._client.cancel(self._run)
        self._console.print("Cancelling; press Ctrl-C again to leave at once.")
        if await self._pressed_again(following, None):
            return Left.DETACHED
        following.result()
        return Left.ENDED

    async def _pressed_again(self, following: asyncio.Task[None], seconds: float | None) -> bool:
        self._pressed.clear()
        pressing = asyncio.create_task(self._pressed.wait())
        await asyncio.wait([pressing, following], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        pressing.cancel()
        return self._pressed.is_set()

    async def _show(self) -> None:
        if self._console.is_terminal:
            with Live(console=self._console, refresh_per_second=4, transient=True) as live:
                async for picture in self._pictures():
                    live.update(live_view(picture))
        else:
            async for picture in self._pictures():
                sys.stderr.write(f"{plain_line(picture)}\n")
                sys.stderr.flush()

    async def _pictures(self) -> AsyncIterator[Picture]:
        """Every look on a terminal, where a clock runs; elsewhere only what is new."""
        last = -1
        async for picture in self._client.watch(self._run):
            self.picture = picture
            self._tell_trouble()
            if picture.last > last or picture.ended or self._console.is_terminal:
                last = picture.last
                yield picture

    def _tell_trouble(self) -> None:
        """Say once what keeps the run from going on, and once that it is mended."""
        trouble = self._trouble() or ("Temporal does not answer." if self._client.silent else None)
        if trouble != self._told:
            self._told = trouble
            self._console.print(trouble or "The run goes on.", style="yellow", markup=False, highlight=False)


@contextmanager
def _hearing_interrupts(handler: Callable[[], None]) -> Iterator[None]:
    """Hear Ctrl-C in this block instead of dying of it."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, handler)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
