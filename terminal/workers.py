"""`workers`: who works on which version of which queue, and what is open there; a version is promoted, or retired."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text
from temporalio.client import Client

from deployments import Version, VersionRefused, promote, retire, versions_of
from runtime import Mode, connect, queue_of
from terminal.outcome import PIPED, Exit, Refusal, print_json
from terminal.session import Session
from terminal.text import counted, plain

Change = Callable[[Client, str, str], Awaitable[str]]


async def workers(session: Session, verb: str | None, version: str | None, *, as_json: bool) -> Exit:
    """Show every version, or change one in each mode that has it."""
    if verb is not None and (verb not in CHANGES or version is None):
        message = "Say `workers`, `workers promote VERSION` or `workers retire VERSION`."
        raise Refusal(message, code="usage", exit=Exit.WRONG)
    if not session.is_up():
        message = f"This home is not up, so nobody works. `{session.starter} up` starts it."
        raise Refusal(message, code="not_up", exit=Exit.CANNOT)
    client = await connect(session.settings)
    found = {mode: await versions_of(client, queue_of(mode)) for mode in Mode}
    if verb is None or version is None:
        _show(found, as_json=as_json)
        return Exit.DONE
    known = [mode for mode in Mode if any(each.build == version for each in found[mode])]
    if not known:
        builds = sorted({each.build for versions in found.values() for each in versions if each.build is not None})
        message = f"There is no version {version!r} of workers. Versions: {', '.join(builds) or 'none'}."
        raise Refusal(message, code="unknown_version", exit=Exit.WRONG)
    try:
        told = [await CHANGES[verb](client, queue_of(mode), version) for mode in known]
    except VersionRefused as refused:
        raise Refusal(f"{verb} {version} was refused: {refused}.", code="refused", exit=Exit.CANNOT) from refused
    if as_json:
        print_json({"schema": "nightcrew.workers/1", "done": verb, "version": version, "told": told})
    else:
        sys.stdout.write("".join(f"{line}\n" for line in told))
    return Exit.DONE


async def _promote(client: Client, queue: str, version: str) -> str:
    await promote(client, queue, version)
    return f"New runs on {queue} go to version {version}; open ones stay with theirs."


async def _retire(client: Client, queue: str, version: str) -> str:
    retired = await retire(client, queue, version)
    if retired.forgotten:
        return f"Version {version} of {queue} is gone: nothing needed it."
    free = f"Nothing that is open needs version {version} of {queue}"
    if not retired.workers:
        return f"{free}, and it has no workers. Temporal lists it for some minutes more."
    names = ", ".join(plain(name) for name in retired.workers)
    return f"{free}: stop its {counted(len(retired.workers), 'worker')} ({names})."


CHANGES: dict[str, Change] = {"promote": _promote, "retire": _retire}


def _show(found: dict[Mode, list[Version]], *, as_json: bool) -> None:
    if as_json:
        rows = [_document(mode, version) for mode, versions in found.items() for version in versions]
        print_json({"schema": "nightcrew.workers/1", "versions": rows})
        return
    console = Console() if sys.stdout.isatty() or os.environ.get("COLUMNS") else Console(width=PIPED, height=25)
    if not any(found.values()):
        console.print("no workers", style="dim")
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading, justify in ("mode", "left"), ("version", "left"), ("new runs", "left"):
        table.add_column(heading, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    for heading in "workers", "open runs", "open tasks":
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("note")
    for mode, versions in found.items():
        for version in versions:
            counts = (str(number) for number in (len(version.workers), version.runs, version.tasks))
            current = "yes" if version.current else "no"
            table.add_row(mode.value, plain(version.build or "none"), current, *counts, _note(version))
    console.print(table)


def _note(version: Version) -> Text:
    if version.is_needed and not version.workers:
        return Text("nobody works on it: what is open there stands still", "red")
    if not version.is_needed and version.build is not None:
        return Text("nothing needs it: it can be promoted, or retired", "dim")
    return Text("")


def _document(mode: Mode, version: Version) -> dict[str, Any]:
    return {
        "mode": mode.value,
        "version": version.build,
        "current": version.current,
        "workers": [*version.workers],
        "open_runs": version.runs,
        "open_tasks": version.tasks,
    }
