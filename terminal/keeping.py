"""`backup`, `restore`, `prune`: what a home has, kept elsewhere, brought back, cleared up."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path

import pruning
import restoring
from backing_up import back_up
from runtime import CannotDo, temporal_settings
from store import open_store
from terminal.outcome import Exit, print_json
from terminal.session import Session
from terminal.text import counted


def backup(session: Session, file: Path, *, as_json: bool) -> Exit:
    """Write a backup of the home, up or down."""
    from terminal.commands import VERSION  # noqa: PLC0415 - it is what imports us

    if temporal_settings() is not None:
        message = (
            "The Temporal that is configured is not this home's own server, and has its own backup: docs/deploy.md."
        )
        raise CannotDo(message)
    found = back_up(session.settings, file.expanduser().absolute(), VERSION)
    if as_json:
        document = {"file": str(found.file), "bytes": found.bytes, "made": found.made.isoformat()}
        print_json(
            {
                "schema": "nightcrew.backup/1",
                **document,
                "runs": found.runs,
                "open_runs": found.open_runs,
                "store": found.store,
            }
        )
        return Exit.DONE
    going = f", {len(found.open_runs)} of them open" if found.open_runs else ""
    what = counted(found.runs, "run") + going if found.store is None else f"{counted(len(found.open_runs), 'open run')}"
    sys.stdout.write(f"{found.file}: {what}, {amount(found.bytes)}\n")
    if found.store is not None:
        sys.stderr.write(f"The store is {found.store}, and was not copied: keep it by the means of its provider.\n")
    return Exit.DONE


async def restore(session: Session, file: Path, *, as_json: bool) -> Exit:
    """Make the home what it was."""
    found = await restoring.restore(session.settings, file.expanduser().absolute())
    if as_json:
        document = {"made": found.made, "runs": found.runs, "open_runs": found.open_runs, "store": found.store}
        print_json({"schema": "nightcrew.restored/1", "home": str(session.settings.home), **document})
        return Exit.DONE
    sys.stdout.write(f"Restored to {session.settings.home}: {counted(found.runs, 'run')}, as of {found.made[:19]}Z.\n")
    if found.store is not None:
        sys.stdout.write(f"The store is {found.store}, and must still be there.\n")
    for run in found.open_runs:
        sys.stdout.write(f"open: {run}\n")
    sys.stderr.write(
        f"`{session.starter} up` goes on with what was open. The home that it was written from must never be up again: "
        "both would do the same work, and pay for it.\n"
    )
    return Exit.DONE


async def prune(session: Session, older_than: timedelta, *, dry_run: bool, as_json: bool) -> Exit:
    """Remove what has ended long ago; Temporal is asked whether a run is open."""
    client = await session.client()
    found = await pruning.prune(client, open_store(session.settings.store), older_than, dry_run=dry_run)
    if as_json:
        document = {"dry_run": dry_run, "runs": found.runs, "objects": found.objects, "bytes": found.bytes}
        print_json({"schema": "nightcrew.pruned/1", **document, "kept": found.kept, "waiting": found.waiting})
        return Exit.DONE
    for run in found.runs:
        sys.stdout.write(f"{'would remove' if dry_run else 'removed'} {run}\n")
    free = "would become free" if dry_run else "free again"
    files = counted(found.objects, "file")
    sys.stdout.write(
        f"{counted(len(found.runs), 'run')}, {files}, {amount(found.bytes)} {free}; {counted(found.kept, 'run')} kept\n"
    )
    if found.waiting:
        sys.stderr.write(f"{counted(found.waiting, 'result')} too new to be removed; say it again in an hour.\n")
    return Exit.DONE


def amount(size: int) -> str:
    """Bytes, as people say them."""
    return f"{size / 1e6:,.1f} MB" if size >= 100_000 else f"{size / 1e3:,.1f} KB"
