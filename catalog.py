"""The runs of a store as a list: those that have ended tell so themselves, of the others Temporal is asked.

What has ended is one small file each, so a list costs the same whether a run had five tasks or ten thousand, and
works without a server. Temporal's own list lags behind, so it is not used: every open run is asked for by its id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from domain.catalog import RunEntry, entry_of
from domain.events import timestamp
from domain.models import GOING_RUN
from reader import RunReader

AT_ONCE = 16
"""Questions to store and server in flight: a bucket answers many as quickly as one."""

T = TypeVar("T")


async def run_list(reader: RunReader, *, since: timedelta | None) -> list[RunEntry]:
    """Runs by the time of their submit, newest last: all, or the open ones and those submitted or ended since."""
    manifests = await _all(await reader.runs(), reader.manifest)
    entries = await _all([manifest for manifest in manifests if manifest], lambda found: _entry(reader, found))
    start = timestamp(datetime.now(UTC) - since) if since is not None else ""
    shown = [entry for entry in entries if is_open(entry) or (entry.finished or entry.submitted or "") >= start]
    return sorted(shown, key=lambda entry: (entry.submitted or "", entry.run))


def is_open(entry: RunEntry) -> bool:
    """Whether the run goes on."""
    return entry.status in GOING_RUN


async def _entry(reader: RunReader, manifest: dict[str, Any]) -> RunEntry:
    if end := await reader.end(manifest["run"]):
        return RunEntry.model_validate({**end, "submitted": manifest["submitted"]})
    picture = await reader.glance(manifest["run"])
    entry = entry_of(picture, picture.report({}, datetime.now(UTC)))
    return entry.model_copy(update={"submitted": manifest["submitted"]})


async def _all(items: list[Any], ask: Callable[[Any], Awaitable[T]]) -> list[T]:
    """The answers to all questions, in order, a bounded number of them at a time."""
    places = asyncio.Semaphore(AT_ONCE)

    async def one(item: Any) -> T:
        async with places:
            return await ask(item)

    return list(await asyncio.gather(*(one(item) for item in items)))
