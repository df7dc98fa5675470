"""A run is pinned to the store it was submitted to: a worker on another store refuses it, and nothing is lost.

The manifest that submit writes is the pin. So the same place may have another address on every machine, and a place
that merely has the same address does not pass for it.
"""

from __future__ import annotations

import platform
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog

from store import Store

WAIT_FIRST, WAIT_LAST = timedelta(seconds=15), timedelta(minutes=1)
"""A refused task comes again when its run has been refused for twice as long, and never waits long: it may be that
others on the queue have the right store, or that ours is mended meanwhile."""

RUNS_KNOWN = 1000
"""Runs that a process remembers, so that not every call asks for the manifest."""

log = structlog.get_logger()


class OtherStore(Exception):
    """Our store does not have the run. Another worker's may, or ours is mended: `until` is when to ask again."""

    def __init__(self, message: str, until: datetime) -> None:
        super().__init__(message)
        self.until = until


class Pin:
    """Knows which runs belong to the store of this process."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, None] = {}
        self._refused: dict[str, datetime] = {}

    async def check(self, run: str) -> None:
        """Pass a run of this store, refuse any other."""
        if run in self._known:
            return
        if not await self._store.has_run(run):
            raise self._refusal(run)
        self._refused.pop(run, None)
        self._known[run] = None
        forget_the_oldest(self._known)

    def _refusal(self, run: str) -> OtherStore:
        now = datetime.now(UTC)
        since = self._refused.setdefault(run, now)
        forget_the_oldest(self._refused)
        log.warning("run_of_another_store", run=run, store=self._store.name)
        message = (
            f"the worker on {platform.node()} has another store ({self._store.name}), which does not have this run: "
            "start it with the NIGHTCREW_STORE that the run was submitted with"
        )
        return OtherStore(message, now + min(max(now - since, WAIT_FIRST), WAIT_LAST))


def forget_the_oldest(runs: dict[str, Any]) -> None:
    """Keep what is remembered of runs within bounds."""
    if len(runs) > RUNS_KNOWN:
        del runs[next(iter(runs))]
