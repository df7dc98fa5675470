"""`audit export`, `audit prune`: a trail taken elsewhere, and old ones removed by a rule of their own."""

from __future__ import annotations

import csv
import io
import json
import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

from audits import NoTrail
from domain.audit import Record, record_of
from domain.problems import did_you_mean
from terminal.audit_looks import audits_of
from terminal.keeping import amount
from terminal.outcome import Exit, Refusal, print_json
from terminal.session import Session
from terminal.text import counted, plain

FORMATS = ("jsonl", "csv")

LEAST = timedelta(days=30)
"""Trails are there to be looked at when somebody asks, which is rarely at once."""

COLUMNS = ("agent", "model", "step", "attempt", "request", "at")
TOKENS = ("input", "output", "cache_read", "cache_write")
HASHES = ("prompt", "answer", "reads")

FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
"""What makes a spreadsheet take the text of a cell for a formula."""


async def export(session: Session, words: str, *, format: str, output: Path | None, as_json: bool) -> Exit:
    """Write a trail to stdout or into a new file."""
    if format not in FORMATS:
        hint = did_you_mean(format, FORMATS)
        message = f"--format {format!r} must be {' or '.join(FORMATS)}{f' ({hint})' if hint else ''}."
        raise Refusal(message, code="usage", exit=Exit.WRONG)
    if as_json and output is None:
        raise Refusal("With --json, name the file by -o FILE.", code="usage", exit=Exit.WRONG)
    audits = await audits_of(session)
    run = await audits.resolve(words)
    try:
        lines = await audits.lines(run)
    except NoTrail as none:
        raise Refusal(str(none), code="no_trail", exit=Exit.CANNOT) from None
    content = b"".join(line + b"\n" for line in lines) if format == "jsonl" else _table(run, lines)
    if output is None:
        sys.stdout.write(content.decode())
        return Exit.DONE
    _write(output, content)
    if as_json:
        document = {"run": run, "file": str(output), "format": format, "records": len(lines), "bytes": len(content)}
        print_json({"schema": "nightcrew.audit-export/1", **document})
    else:
        sys.stdout.write(f"{output}: {counted(len(lines), 'record')}, {amount(len(content))}\n")
    return Exit.DONE


def _write(output: Path, content: bytes) -> None:
    """Into a file that is not there yet, which nobody else may read."""
    try:
        with os.fdopen(os.open(output, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
            file.write(content)
    except FileExistsError:
        raise Refusal(
            f"{output} is there: nothing was written. Name another file.", code="exists", exit=Exit.CANNOT
        ) from None
    except OSError as error:
        why = error.strerror or str(error)
        raise Refusal(f"{output} cannot be written: {why}.", code="not_written", exit=Exit.CANNOT) from None


def _table(run: str, lines: list[bytes]) -> bytes:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    kinds = [f"{kind}_tokens" for kind in TOKENS]
    writer.writerow(
        ["run", "n", "time", "type", "task", *COLUMNS, *kinds, "cost_usd", *HASHES, "error", "by", "data", "hash"]
    )
    for line in lines:
        if (record := record_of(line)) is not None:
            writer.writerow([_cell(value) for value in (run, *_row(record))])
    return out.getvalue().encode()


def _row(record: Record) -> list[Any]:
    data = dict(record.data)
    tokens = data.get("tokens") or {}
    error = data.get("error")
    return [
        record.number,
        record.time,
        record.type,
        record.task,
        *(data.get(name) for name in COLUMNS),
        *(tokens.get(kind) for kind in TOKENS),
        data.get("cost_usd"),
        *(data.get(name) for name in HASHES),
        error.get("type") if isinstance(error, dict) else error,
        data.get("by"),
        json.dumps(record.data, ensure_ascii=False),
        record.hash,
    ]


def _cell(value: Any) -> str:
    """A value as a cell that no spreadsheet takes for a formula."""
    text = "" if value is None else plain(str(value))
    return f"'{text}" if text.startswith(FORMULA) else text


async def prune(session: Session, older_than: timedelta, *, dry_run: bool, yes: bool, as_json: bool) -> Exit:
    """Remove the trails of runs that ended before that."""
    if older_than < LEAST and not yes:
        message = (
            f"An audit trail of less than {LEAST.days} days goes only with --yes: nothing else tells who did what."
        )
        raise Refusal(message, code="too_young", exit=Exit.WRONG)
    found = await (await audits_of(session)).prune(older_than, dry_run=dry_run)
    if as_json:
        document = {"dry_run": dry_run, "runs": found.runs, "objects": found.objects, "bytes": found.bytes}
        print_json({"schema": "nightcrew.audit-pruned/1", **document, "kept": found.kept})
        return Exit.DONE
    for run in found.runs:
        sys.stdout.write(f"{'would remove' if dry_run else 'removed'} the trail of {run}\n")
    free = "would become free" if dry_run else "free again"
    trails, kept = counted(len(found.runs), "trail"), counted(found.kept, "trail")
    sys.stdout.write(f"{trails}, {counted(found.objects, 'file')}, {amount(found.bytes)} {free}; {kept} kept\n")
    return Exit.DONE
