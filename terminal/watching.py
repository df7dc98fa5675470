"""Waiting for a run: what is shown meanwhile, Ctrl-C, a time limit."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from enum import Enum, auto
from time import monotonic
from typing import Any

from rich.console import Console

from client import RunClient
from domain.picture import Picture
from terminal.lines import JsonLines
from terminal.person import person_here
from terminal.plain import PlainLines
from terminal.screen import LiveScreen

SECOND_PRESS = 2.0
"""Seconds in which a second Ctrl-C cancels the run."""

TICK = 0.5
"""Seconds after which whatever is shown may be shown again."""

LOOK_AROUND = 2.0
"""Seconds between two looks at what keeps a run from going on."""


class Left(Enum):
    """Why the wait is over."""

    ENDED = auto()
    TIME = auto()
    DETACHED = auto()


class Watcher:
    """Follows one run until it ends, the time is up, or the person goes away.

    On a terminal it shows the live view, elsewhere plain lines on stderr; with `tell`, documents go there instead.
    """

    def __init__(
        self,
        client: RunClient,
        run: str,
        trouble: Callable[[], str | None],
        *,
        starter: str,
        tell: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self._client, self._run, self._trouble = client, run, trouble
        self._front = JsonLines(tell) if tell is not None else _front(starter)
        self._pressed = asyncio.Event()
        self._sent_away = asyncio.Event()
        self.picture: Picture | None = None

    async def follow(self, limit: timedelta | None) -> Left:
        """Show the run as it goes. One Ctrl-C detaches, a second within two seconds cancels the run."""
        seconds = limit.total_seconds() if limit is not None else None
        with self._front, _hearing(self._signals()):
            following = asyncio.create_task(self._follow())
            ticking = asyncio.create_task(self._tick())
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
                for task in (following, ticking, leaving):
                    task.cancel()
                await asyncio.wait([following, ticking, leaving])

    async def _follow(self) -> None:
        looked, trouble = float("-inf"), None
        async for picture in self._client.watch(self._run):
            self.picture = picture
            if monotonic() - looked >= LOOK_AROUND:
                looked, trouble = monotonic(), self._trouble()
            stall = picture.stall.sentence if picture.stall is not None else None
            self._front.look(picture, trouble or self._client.silent or stall)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK)
            self._front.tick()

    async def _detach_or_cancel(self, following: asyncio.Task[None]) -> Left:
        """Two seconds to press again; while the run is being cancelled, a further press leaves."""
        if self._sent_away.is_set():
            return Left.DETACHED
        self._front.say("Detaching; press Ctrl-C again within 2 s to cancel the run.")
        if not await self._pressed_again(following, SECOND_PRESS):
            return Left.ENDED if following.done() else Left.DETACHED
        if self._sent_away.is_set():
            return Left.DETACHED
        await self._client.cancel(self._run, by=person_here())
        self._front.say("Cancelling; press Ctrl-C again to leave at once.")
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

    def _signals(self) -> dict[signal.Signals, Callable[[], None]]:
        """What is heard meanwhile. A view on a terminal leaves it clean when it is told to end or to stop."""
        heard: dict[signal.Signals, Callable[[], None]] = {signal.SIGINT: self._pressed.set}
        if isinstance(self._front, LiveScreen):
            heard[signal.SIGTERM] = self._send_away
            heard[signal.SIGWINCH] = self._front.repaint
            heard[signal.SIGTSTP] = self._front.suspend
        return heard

    def _send_away(self) -> None:
        self._sent_away.set()
        self._pressed.set()


def _front(starter: str) -> LiveScreen | PlainLines:
    """A live view only where it can be painted and taken away again."""
    console = Console(stderr=True)
    paints = sys.stderr.isatty() and not console.is_dumb_terminal
    return LiveScreen(console, starter) if paints else PlainLines(starter)


@contextmanager
def _hearing(handlers: Mapping[signal.Signals, Callable[[], None]]) -> Iterator[None]:
    """Hear these signals in this block instead of dying of them."""
    loop = asyncio.get_running_loop()
    for number, handler in handlers.items():
        loop.add_signal_handler(number, handler)
    try:
        yield
    finally:
        for number in handlers:
            loop.remove_signal_handler(number)
