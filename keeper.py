"""One keeper: a background process that starts again what dies of the services of a home, until it is told to end.

It looks at their locks twice a second. SIGTERM ends it at once, and leaves the services as they are: they are not bound
to it. What it has seen is in its log, and in `services/keeper-MODE.state.json` for whoever asks (`embedded.troubles`).
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import monotonic

import structlog

from restarts import Crashes
from runtime import Mode, configure_logs, leave, private_umask
from service_kinds import Keeper, Simulator, Worker
from services import Service, announce_ready, reap
from temporal_server import Server
from troubles import Account, Told

LOOK = 0.5
"""Seconds between two looks. One costs well under a millisecond."""

LONGEST_WORDS = 300

log = structlog.get_logger()


class Kept:
    """One service under the eye of a keeper."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.account = Account(log=service.log)
        self._crashes = Crashes()

    def is_up(self) -> bool:
        """Whether it is up; if not, that is noted."""
        state = self.service.find()
        if state is None and self._crashes.next_try is None and not self.service.is_held():
            self._note_crash(self.service.last_lines(1))
        if state is None or not self.service.fits(state):
            return False
        self._note_up()
        return True

    def is_due(self) -> bool:
        """Whether it should be started now."""
        return self._crashes.next_try is None or monotonic() >= self._crashes.next_try

    async def start(self) -> bool:
        """Whether it is up again. Whatever goes wrong is a crash of the service, not of its keeper."""
        try:
            mine = await self.service.start()
        except Exception as problem:  # noqa: BLE001 - the other services are to be kept all the same
            self._note_crash(str(problem).splitlines() or [type(problem).__name__])
            return False
        self.account.restarts += mine
        self._note_up()
        event = "started_again" if mine else "found_again"
        _say(event, logging.INFO, service=self.service.name, restarts=self.account.restarts)
        return True

    def _note_up(self) -> None:
        self._crashes = self._crashes.seen_up(monotonic())
        self.account.next_try = None
        self._count()

    def _note_crash(self, last_words: Sequence[str]) -> None:
        now, clock = datetime.now(UTC), monotonic()
        self._crashes = self._crashes.crashed(clock)
        wait = (self._crashes.next_try or clock) - clock
        self.account.last_crash, self.account.next_try = now, now + timedelta(seconds=wait)
        self.account.last_words = last_words[-1].strip()[:LONGEST_WORDS] if last_words else ""
        self._count()
        event, level = ("crash_loop", logging.ERROR) if self._crashes.loop else ("crashed", logging.WARNING)
        _say(event, level, service=self.service.name, crashes=self._crashes.count, next_try_in_s=wait)

    def _count(self) -> None:
        self.account.crashes, self.account.crash_loop = self._crashes.count, self._crashes.loop


class Watch:
    """What one keeper does."""

    def __init__(self, keeper: Keeper, services: Sequence[Service]) -> None:
        self._keeper = keeper
        self._kept = [Kept(service) for service in services]
        self._told: Told | None = None

    async def keep(self) -> None:
        """Look again and again, until the home is gone or has another keeper."""
        self._tell()
        announce_ready(keeps=[kept.service.name for kept in self._kept])
        stumbled: str | None = None
        while self._keeper.pid() == os.getpid():
            try:
                await self._look()
                stumbled = None
            except Exception as problem:  # noqa: BLE001 - whatever it is, it may be mended
                if stumbled != type(problem).__name__:  # once, not twice a second
                    stumbled = type(problem).__name__
                    _say("cannot_look", logging.ERROR, error=stumbled)
            await asyncio.sleep(LOOK)

    async def _look(self) -> None:
        """Mend the first service that is down; those after it need it, and wait."""
        reap()
        for kept in self._kept:
            up = kept.is_up()
            self._tell()
            if not up and kept.is_due():
                up = await kept.start()
                self._tell()
            if not up:
                return

    def _tell(self) -> None:
        """Write what has changed."""
        told = Told(pid=os.getpid(), services={kept.service.name: kept.account.model_copy() for kept in self._kept})
        if told != self._told:
            with suppress(OSError):  # no room on the disk, say: to start a service again matters more
                told.write(self._keeper.file("state.json"))
                self._told = told


def _say(event: str, level: int, **data: object) -> None:
    """Log a line; a disk without room for it must not end the keeper."""
    with suppress(OSError):
        log.log(level, event, **data)


def main() -> int:
    """Run one keeper; the exit code."""
    parser = argparse.ArgumentParser(description="Starts again what dies of a home's services. Started by `up`.")
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--mode", type=Mode, required=True)
    parser.add_argument("--keep", action="append", default=[], metavar="SERVICE", help="a service to keep; repeatable")
    parser.add_argument("--simulator-option", action="append", default=[], help="for the simulator; repeatable")
    options = parser.parse_args()
    private_umask()
    configure_logs()
    keeper = Keeper(options.home, options.mode)
    if keeper.pid() != os.getpid():
        sys.stderr.write("A keeper is started by `./starter.py up`, which gives it the lock it needs.\n")
        return 1
    services = [
        Server(options.home),
        Simulator(options.home, options.simulator_option),
        Worker(options.home, options.mode),
    ]
    asyncio.run(Watch(keeper, [service for service in services if service.name in options.keep]).keep())
    return 0


if __name__ == "__main__":
    leave(main())
