"""`audit show`, `audit verify`: what stands in a trail, and whether it still stands as it was written."""

from __future__ import annotations

import sys
from datetime import datetime
from typing import Any

from temporalio.service import RPCError

from audits import Audits, NoTrail, Seen, Verdict
from client import RunClient
from domain.audit import Record
from domain.events import Event, EventType
from runtime import CannotDo
from store import open_store
from terminal.outcome import Exit, Refusal, print_json
from terminal.session import Session
from terminal.show_event import event_line
from terminal.text import counted, one_line, plain
from untold import BESIDE

SCHEMA = "nightcrew.audit/1"


async def audits_of(session: Session) -> Audits:
    """The trails of a home. Whether its server answers or not: then nothing is said of anchors."""
    store = open_store(session.settings.store)
    try:
        return Audits(await session.reader(), store)
    except (CannotDo, RPCError):
        return Audits(RunClient(None, store), store)


async def show(
    session: Session, words: str | None, *, agent: str | None, since: datetime | None, as_json: bool
) -> Exit:
    """The records of a run, or what an agent did in all runs."""
    audits = await audits_of(session)
    if words is not None:
        run: str | None = await audits.resolve(words)
        seen = await _or_refuse(audits, run or "", agent, since)
    elif agent is not None:
        run, seen = None, await audits.of_agent(agent, since)
    else:
        raise Refusal("Name a RUN, or an agent by --agent NAME.", code="usage", exit=Exit.WRONG)
    if as_json:
        document = {"schema": SCHEMA, "run": run, "agent": agent, "records": [_document(each) for each in seen]}
        print_json(document)
        return Exit.DONE
    beside = False
    for each in seen:
        if each.record.number == BESIDE and not beside and run is not None:
            beside = True
            sys.stdout.write("In the ledger alone: calls of which the trail has not told.\n")
        place = f"{plain(each.run)}  " if run is None else ""
        sys.stdout.write(f"{place}{_line(each.record)}\n")
        for read in _read(each.reads):
            sys.stdout.write(f"{'':10}read {one_line(read, 160)}\n")
    if run is not None and (damaged := await audits.unreadable(run)):
        sys.stderr.write(f"{counted(damaged, 'line')} of the trail cannot be read: audit verify names the first.\n")
    if not seen:
        what = f"Nothing of {agent!r} stands" if agent else "Nothing stands"
        sys.stderr.write(f"{what} in {'the trail' if run else 'any trail'}{' since then' if since else ''}.\n")
    return Exit.DONE


async def _or_refuse(audits: Audits, run: str, agent: str | None, since: datetime | None) -> list[Seen]:
    try:
        return await audits.of_run(run, agent, since)
    except NoTrail as none:
        raise Refusal(str(none), code="no_trail", exit=Exit.CANNOT) from None


async def verify(session: Session, words: str, *, as_json: bool) -> Exit:
    """Whether a trail is as it was written."""
    audits = await audits_of(session)
    try:
        verdict = await audits.verify(await audits.resolve(words))
    except NoTrail as none:
        raise Refusal(str(none), code="no_trail", exit=Exit.CANNOT) from None
    if as_json:
        print_json(_verdict(verdict))
    else:
        _tell(verdict)
    return Exit.DONE if verdict.fault is None else Exit.CANNOT


def _tell(verdict: Verdict) -> None:
    anchor, fault = verdict.anchorage.anchor, verdict.fault
    if anchor is None:
        anchored = f"Not anchored: {verdict.anchorage.why_none}."
    elif anchor.final:
        anchored = f"Anchored: Temporal has the hash of the last record, {anchor.head.number:,}."
    else:
        anchored = f"Anchored up to record {anchor.head.number:,}, as far as Temporal has heard."
    what = f"{counted(verdict.records, 'record')}, {counted(verdict.calls, 'call')}"
    if fault is None:
        sys.stdout.write(f"{verdict.run}: whole. {what}, each chained to the one before.\n{anchored}\n")
    else:
        sys.stdout.write(f"{verdict.run}: BROKEN. {str(fault)[0].upper()}{str(fault)[1:]}.\n{anchored}\n")
    if verdict.untold:
        calls = counted(verdict.untold, "call")
        sys.stdout.write(f"{calls} of which the trail has not told: in the ledger alone, and shown by audit show.\n")
    if verdict.superseded:
        parts = counted(verdict.superseded, "part")
        sys.stdout.write(f"{parts} of it gave way when an older database was restored, and kept in superseded/.\n")


def _verdict(verdict: Verdict) -> dict[str, Any]:
    anchor, fault = verdict.anchorage.anchor, verdict.fault
    return {
        "schema": "nightcrew.audit-verdict/1",
        "run": verdict.run,
        "whole": fault is None,
        "fault": None if fault is None else {"record": fault.number, "kind": fault.broken.value, "what": fault.what},
        "records": verdict.records,
        "calls": verdict.calls,
        "anchor": None if anchor is None else {**anchor.head.model_dump(), "final": anchor.final},
        "not_anchored": verdict.anchorage.why_none or None,
        "superseded": verdict.superseded,
        "untold_calls": verdict.untold,
    }


def _document(seen: Seen) -> dict[str, Any]:
    record = seen.record
    found = {"run": seen.run, "n": record.number or None, "time": record.time, "type": record.type}
    rest = {"task": record.task, "data": record.data, "hash": record.hash or None}
    return {**found, **rest, **({"read": seen.reads} if seen.reads else {})}


def _line(record: Record) -> str:
    """A record as a line, as `events` shows it; one of a newer release with what stands in it."""
    known = record.type in {type.value for type in EventType}
    if not known:
        return f"{record.time}  {record.number:>5}  {plain(record.type)} {plain(record.task or '')}"
    type = EventType(record.type)
    return event_line(Event(number=record.number, type=type, time=record.at, task=record.task, data=record.data))


def _read(reads: dict[str, Any] | None) -> list[str]:
    """What was read for a call, a line each."""
    if reads is None:
        return []
    files = [f"file {file['path']} {_short(file['ref'])}" for file in reads.get("files", ())]
    results = [
        f"{_part(result)} of {result['task']} by {result['agent']} {_short(result['ref'])}"
        for result in reads.get("results", ())
    ]
    return [*files, *results, *(["the note of whoever approved it"] if reads.get("note") else [])]


def _part(result: dict[str, Any]) -> str:
    if result.get("review"):
        return "review"
    if result.get("item"):
        return "item of the list"
    return "summary of the result" if result["form"] == "summary" else "result"


def _short(ref: str) -> str:
    return ref[:19]
