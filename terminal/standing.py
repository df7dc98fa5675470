"""`up --foreground`: a home is up as long as this process is, for whoever watches over processes, as systemd does."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from contextlib import suppress

import embedded
from runtime import CannotDo, Mode
from terminal import homing
from terminal.outcome import Exit
from terminal.session import Session
from turns import turn

LOOK = 1.0
"""Seconds between two looks at the keepers. They look after the rest."""


async def stand(session: Session, *, simulate: bool, anyway: bool, as_json: bool) -> Exit:
    """Bring the home up, say so, and stay. SIGTERM brings it down; so does `down`, whoever says it."""
    stop = asyncio.Event()
    for order in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(order, stop.set)
    tell = _Watcher()
    await homing.up(session, simulate=simulate, anyway=anyway, as_json=as_json)
    sys.stdout.flush()
    modes = [mode for mode in Mode if embedded.Keeper(session.settings.home, mode).is_held()]
    tell("READY=1")  # from now on a keeper that dies is started again
    while not stop.is_set():
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), LOOK)
        if not stop.is_set() and not await _is_up(session, modes):
            return Exit.DONE  # somebody else has said `down`
    tell("STOPPING=1")
    return await homing.down(session, as_json=False)


async def _is_up(session: Session, modes: list[Mode]) -> bool:
    """Whether the home is still to be up; a keeper that died is started again, as it starts again what dies."""
    home = session.settings.home
    gone = [mode for mode in modes if not embedded.Keeper(home, mode).is_held()]
    if not gone:
        return True
    async with turn(home):  # who is just stopping everything stops the keepers first
        if not any(service.is_held() for service in embedded.all_services(home)):
            return False
    for mode in gone:
        try:
            await embedded.up(session.settings, mode)
        except CannotDo as problem:  # it may be mended; what runs goes on meanwhile
            sys.stderr.write(f"{problem}\n")
    return True


class _Watcher:
    """Whoever started us and wants to know when we are ready: systemd, by a socket that it names."""

    def __init__(self) -> None:
        place = os.environ.pop("NOTIFY_SOCKET", "")  # it is not for the services
        self._place = f"\0{place[1:]}" if place.startswith("@") else place

    def __call__(self, word: str) -> None:
        if self._place:
            with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as way:
                way.sendto(word.encode(), self._place)
