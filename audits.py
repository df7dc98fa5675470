"""Trails looked at: whether one is as it was written, what an agent did and read, and which are old enough to go."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from audit_trail import AuditTrail
from domain.audit import Broken, Fault, Record, first_fault, record_of
from domain.events import Event, EventType
from domain.models import ref_of
from reader import Anchorage, RunReader, UnknownRun
from store import Store, StoreError
from untold import Untold

LAST_WORDS = {EventType.TASK_COMPLETED.value, EventType.TASK_FAILED.value, EventType.TASK_SKIPPED.value}


class NoTrail(Exception):
    """The run has none."""

    def __init__(self, run: str) -> None:
        why = "it ran before 0.7.0, was terminated before the first batch of it, or its trail was pruned"
        super().__init__(f"The run {run} has no audit trail: {why}.")


@dataclass(frozen=True)
class Verdict:
    """What was found of a trail."""

    run: str
    records: int
    calls: int
    fault: Fault | None
    anchorage: Anchorage
    superseded: int
    """Segments that gave way when an older database was restored, and are kept aside."""
    untold: int
    """Calls that stand in the ledger alone: those of a run that was ended from outside, or goes on."""


@dataclass(frozen=True)
class Seen:
    """A record of a run, with what was read for it where it is a call."""

    run: str
    record: Record
    reads: dict[str, Any] | None = None


@dataclass
class Pruned:
    """The trails that were removed, or would be."""

    runs: list[str] = field(default_factory=list)
    objects: int = 0
    bytes: int = 0
    kept: int = 0


class Audits:
    """The trails of one store, and what Temporal has to say to them."""

    def __init__(self, reader: RunReader, store: Store) -> None:
        self._reader, self._store = reader, store
        self._trail = AuditTrail(store)
        self._untold = Untold(store)

    async def resolve(self, words: str) -> str:
        """The run that is meant; its trail may be all that is left of it."""
        fitting = [run for run in await self._trail.runs() if run.startswith(words)]
        if words in fitting:
            return words
        try:
            return await self._reader.resolve(words)
        except UnknownRun:
            if len(fitting) != 1:
                raise
            return fitting[0]

    async def lines(self, run: str) -> list[bytes]:
        """The lines of a trail as they stand; `NoTrail` when there are none."""
        if not (lines := await self._trail.lines(run)):
            raise NoTrail(run)
        return lines

    async def unreadable(self, run: str) -> int:
        """How many lines of a trail are no records: they are in no list of them."""
        return sum(record_of(line) is None for line in await self._trail.lines(run))

    async def verify(self, run: str) -> Verdict:
        """Whether a trail is as it was written, by itself and by what Temporal and the event log know of it."""
        anchorage = await self._reader.anchorage(run)
        logged = await self._logged(run)  # before the trail is read: that is written first, and a run may go on
        lines = await self._trail.lines(run) if anchorage.anchor is not None else await self.lines(run)
        records = [record for line in lines if (record := record_of(line)) is not None]
        superseded = await self._trail.superseded(run)
        return Verdict(
            run=run,
            records=len(lines),
            calls=sum(record.type == EventType.CALL_MADE for record in records),
            fault=await self._chain_fault(run, lines, logged, anchorage)
            or await self._other_fault(run, records, superseded)
            or _tail_fault(records, logged),
            anchorage=anchorage,
            superseded=len(superseded),
            untold=len(await self._untold.calls(run, records)),
        )

    async def _chain_fault(
        self, run: str, lines: Sequence[bytes], logged: Sequence[Event], anchorage: Anchorage
    ) -> Fault | None:
        """What is wrong with the chain. Of a trail that was written anew the event log may know where that began."""
        fault = first_fault(run, lines, anchorage.anchor)
        if fault is None or fault.broken is not Broken.CHANGED or first_fault(run, lines) is not None:
            return fault
        for event, line in zip(logged, lines, strict=False):
            record = record_of(line)
            if record is not None and not (record.tells(event) and record.data == event.data):
                return Fault(record.number, Broken.CHANGED, f"{fault.what}; the event log says otherwise from here on")
        return fault

    async def _logged(self, run: str) -> list[Event]:
        """The event log, where it is still there and can be read: a second witness, and no more."""
        try:
            return [event async for event in self._store.events(run)]
        except (StoreError, ValueError, KeyError):
            return []

    async def _other_fault(self, run: str, records: Sequence[Record], superseded: Sequence[str]) -> Fault | None:
        """What is wrong beside the chain: with the lists of what was read, and with what was kept aside."""
        sound: set[str] = set()
        for record in records:
            if record.supersedes is not None and not superseded:
                return Fault(record.number, Broken.MISSING, "what it took the place of is not there any more")
            ref = record.data.get("reads")
            if ref is None or ref in sound:
                continue
            content = await self._trail.reads(run, str(ref))
            if content is None:
                return Fault(record.number, Broken.MISSING, "the list of what was read for it is not there")
            if ref_of(content) != ref:
                return Fault(record.number, Broken.CHANGED, "the list of what was read for it has another hash")
            sound.add(str(ref))
        return None

    # What was done

    async def of_run(self, run: str, agent: str | None, since: datetime | None) -> list[Seen]:
        """The records of a run and, behind them, calls that only the ledger knows.

        Of an agent its calls, its refusals, and how its tasks have ended.
        """
        lines = await self._trail.lines(run)
        records = [record for line in lines if (record := record_of(line)) is not None]
        untold = await self._untold.calls(run, records)
        if not lines and not untold:
            raise NoTrail(run)
        shown = [record for record in records if agent is None or _is_by(record, agent)]
        if agent is not None:
            tasks = {record.task for record in shown if record.type == EventType.CALL_MADE}
            ends = [record for record in records if record.type in LAST_WORDS and record.task in tasks]
            shown = sorted((*shown, *ends), key=lambda record: record.number)
        shown.extend(record for record in untold if agent is None or _is_by(record, agent))
        return [
            Seen(run, record, await self._reads(run, record)) for record in shown if since is None or record.at >= since
        ]

    async def of_agent(self, agent: str, since: datetime | None) -> list[Seen]:
        """What an agent did in all runs that have a trail, in the order of time."""
        found = [seen for run in await self._trail.runs() for seen in await self._of_agent(run, agent, since)]
        return sorted(found, key=lambda seen: (seen.record.time, seen.run, seen.record.number))

    async def _of_agent(self, run: str, agent: str, since: datetime | None) -> list[Seen]:
        try:
            return await self.of_run(run, agent, since)
        except NoTrail:
            return []

    async def _reads(self, run: str, record: Record) -> dict[str, Any] | None:
        ref = record.data.get("reads")
        content = await self._trail.reads(run, str(ref)) if ref is not None else None
        if not content or ref_of(content) != ref:
            return None
        found: dict[str, Any] = json.loads(content)
        return found

    # Their own rule of age

    async def prune(self, older_than: timedelta, *, dry_run: bool) -> Pruned:
        """Remove the trails that say nothing since. Of one without an end Temporal must say that it is over."""
        before, pruned = datetime.now(UTC) - older_than, Pruned()
        for run in await self._trail.runs():
            if not await self._may_go(run, before):
                pruned.kept += 1
                continue
            pruned.runs.append(run)
            for path in await self._trail.everything(run):
                pruned.bytes += await self._store.size(path)
                pruned.objects += 1
                if not dry_run:
                    await self._store.discard(path)
            if not dry_run:
                await self._store.tidy(f"audit/{run}")
        return pruned

    async def _may_go(self, run: str, before: datetime) -> bool:
        records = await self._trail.records(run)
        if (last := await self._last(run, records)) is None or last >= before:
            return False
        anchorage = await self._reader.anchorage(run)
        if anchorage.answered:
            return anchorage.closed
        return bool(records) and records[-1].type == EventType.RUN_COMPLETED

    async def _last(self, run: str, records: Sequence[Record]) -> datetime | None:
        """When a trail says something last. Of one that was never begun there may be calls that `prune` has kept."""
        if records:
            return records[-1].at
        kept = [datetime.fromisoformat(str(each["data"]["at"])) for each in await self._trail.beside(run)]
        return max(kept, default=None)


def _tail_fault(records: Sequence[Record], logged: Sequence[Event]) -> Fault | None:
    """Whether the event log has more than the trail: without Temporal nobody else could tell."""
    last = records[-1].number if records else 0
    if logged and logged[-1].number > last:
        return Fault(last + 1, Broken.CUT_OFF, f"the event log goes on to {logged[-1].number:,}")
    return None


def _is_by(record: Record, agent: str) -> bool:
    """Whether it tells what an agent did, or was refused: by its name, in whatever version, or by both."""
    label = record.data.get("agent")
    kinds = {EventType.CALL_MADE.value, EventType.RIGHT_REFUSED.value}
    return record.type in kinds and isinstance(label, str) and agent in {label, label.partition("@")[0]}
