"""`list`: the runs of a home, the open ones and the recent ones."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

import embedded
from catalog import is_open, run_list
from client import UnknownRun
from domain.catalog import RunEntry
from domain.consent import dollars
from domain.models import RunStatus
from domain.problems import did_you_mean
from terminal.outcome import PIPED, Exit, Refusal, print_json
from terminal.session import Session
from terminal.signs import RUN_SIGNS, STYLES, status_text
from terminal.text import one_line, plain, seconds

RECENT = timedelta(hours=24)

ATTENTION = {
    "stall": "stalled",
    "key": "mend",
    "budget": "limit",
    "approval": "approve",
    "right": "no right",
    "failure": "failed",
}
"""What a run asks attention for, in the few words of a list."""


async def list_runs(
    session: Session, *, every: bool, status: str | None, plan: str | None, attention: bool, as_json: bool
) -> Exit:
    """Open runs and those of the last day, or all; newest last, where a person looks first."""
    wanted = _status(status)
    try:
        reader = await session.reader()
        entries = await run_list(reader, since=None if every or wanted or plan or attention else RECENT)
        up = reader.online
    except UnknownRun:
        entries, up = [], session.is_up()
    shown = [
        entry
        for entry in entries
        if (wanted is None or entry.status is wanted)
        and (plan is None or entry.name == plan)
        and (not attention or entry.attention)
    ]
    if as_json:
        print_json({"schema": "nightcrew.list/1", "up": up, "runs": [_document(entry) for entry in shown]})
    else:
        filtered = bool(wanted or plan or attention)
        _show(shown, hidden=0 if filtered or every else await _older(session, entries))
    for trouble in embedded.troubles(session.settings.home):
        sys.stderr.write(f"{trouble.sentence(session.starter)}\n")
    if not up:
        sys.stderr.write(f"{_not_up(session, [entry for entry in shown if is_open(entry)])}\n")
    return Exit.DONE


def _status(name: str | None) -> RunStatus | None:
    if name is None:
        return None
    known = [status.value for status in RunStatus]
    if name.upper() not in known:
        hint = did_you_mean(name.upper(), known) or f"Known: {', '.join(known)}"
        raise Refusal(f"--status {name!r} is no state of a run. {hint}.", code="usage", exit=Exit.WRONG)
    return RunStatus(name.upper())


async def _older(session: Session, shown: list[RunEntry]) -> int:
    try:
        return len(await (await session.reader()).runs()) - len(shown)
    except UnknownRun:
        return 0


def _show(entries: list[RunEntry], *, hidden: int) -> None:
    console = Console() if sys.stdout.isatty() or os.environ.get("COLUMNS") else Console(width=PIPED, height=25)
    if not entries:
        console.print("no runs", style="dim")
    else:
        console.print(_table(entries, narrow=console.width < 90))
    if hidden:
        console.print(Text(f"and {hidden} older that have ended; --all shows them", "dim"))


def _table(entries: list[RunEntry], *, narrow: bool) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("", no_wrap=True)
    table.add_column("run", overflow="fold")
    table.add_column("state", no_wrap=True)
    for heading in ("ended",) if narrow else ("ended", "started", "took", "cost"):
        table.add_column(heading, justify="right", no_wrap=True)
    if not narrow:
        table.add_column("note")
    for entry in entries:
        table.add_row(*_cells(entry, narrow=narrow))
    return table


def _cells(entry: RunEntry, *, narrow: bool) -> list[Text]:
    census = entry.census
    ended = ""
    if census is not None:
        going = census.pending + census.ready + census.waiting + census.running
        ended = f"{census.total - going}/{census.total}"
    cells = [
        Text(RUN_SIGNS[entry.status], STYLES[entry.status]),
        Text(plain(entry.run)),
        status_text(entry.status),
        Text(ended),
    ]
    if narrow:
        return cells
    cost = dollars(entry.cost.actual_usd) if entry.cost.actual_usd else ""
    return [*cells, Text(_local(entry.started)), Text(_took(entry)), Text(cost), Text(_note(entry), "dim")]


def _note(entry: RunEntry) -> str:
    notes = [] if entry.simulated else ["LIVE"]
    for kind, words in ATTENTION.items():
        asked = [attention for attention in entry.attention if attention.kind == kind]
        found = [(kind != "stall" and attention.task) or attention.what or "" for attention in asked]
        if any(found):
            notes.append(f"{words}: {', '.join(found)}")
    if not entry.attention and (census := entry.census):
        notes += [
            f"{count} {name}" for name, count in (("running", census.running), ("waiting", census.waiting)) if count
        ]
    return one_line("; ".join(notes), 60)


def _took(entry: RunEntry) -> str:
    if entry.started is None:
        return ""
    end = datetime.fromisoformat(entry.finished) if entry.finished else datetime.now(UTC)
    return seconds((end - datetime.fromisoformat(entry.started)).total_seconds())


def _local(time: str | None) -> str:
    """A time of today by its hour, another by its day as well."""
    if time is None:
        return ""
    local = datetime.fromisoformat(time).astimezone()
    return f"{local:%H:%M}" if local.date() == datetime.now().astimezone().date() else f"{local:%d %b %H:%M}"


def _document(entry: RunEntry) -> dict[str, Any]:
    return entry.model_dump(mode="json", exclude={"agents"})


def _not_up(session: Session, open_runs: list[RunEntry]) -> str:
    if not open_runs:
        return "This home is not up; nothing was open."
    names = ", ".join(entry.run for entry in open_runs[:5]) + (" ..." if len(open_runs) > 5 else "")
    what = f"{names} was open" if len(open_runs) == 1 else f"{len(open_runs)} runs were open: {names}"
    return f"This home is not up. {what}; states are those of its last moment. `{session.starter} up` goes on with it."
