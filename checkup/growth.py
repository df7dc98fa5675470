"""How large a home has become, and what a task adds to it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import database
from checkup.findings import Finding, note, ok
from runtime import Settings, temporal_settings
from store import Store, StoreError, StoreUnavailable, folder_of, open_store

EMPTY = 5_000_000
"""Bytes of a database with its journal in which there is no run yet."""

ENOUGH = 20
"""Tasks from which on a figure for one of them means something."""


async def growth(settings: Settings) -> Finding:
    """Sizes of database and store, and bytes per task. The database does not shrink: it uses again what became free."""
    own = temporal_settings() is None
    folder = folder_of(settings.store)
    base = database.size_of(settings.home) if own else 0
    stored = await asyncio.to_thread(_size, folder) if folder is not None else 0
    parts = [f"database {base / 1e6:,.1f} MB"] if own else []
    parts += [f"store {stored / 1e6:,.1f} MB"] if folder is not None else []
    if not parts:
        return note("size", "Temporal and the store are elsewhere.")
    try:
        tasks = await _tasks(open_store(settings.store))
    except (StoreError, StoreUnavailable):
        return ok("size", ", ".join(parts))
    if tasks >= ENOUGH and own and folder is not None:
        each = max(0, base - EMPTY) + stored
        parts.append(f"about {each / tasks / 1e3:,.0f} KB for each of {tasks:,} tasks")
    return ok("size", ", ".join(parts))


async def _tasks(store: Store) -> int:
    """The tasks of all runs."""
    count = 0
    for run in await store.runs():
        if (end := await store.end(run)) is not None:
            count += int((end.get("census") or {}).get("total", 0))
        elif (manifest := await store.manifest(run)) is not None:
            count += len(json.loads(await store.artifact(manifest["plan_ref"]))["tasks"])
    return count


def _size(folder: Path) -> int:
    """What the disk gives for it: most files are smaller than the smallest piece of a disk."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())
