"""Where audit trails are: `audit/RUN/`, beside the runs and not in them, so that they outlive them.

Segments of records are named by their first number, as those of the event log, and written once: whatever dies, and
however often a batch of events is written, what stands there first is the trail, and its head is what the run hears.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

import obstore
from obstore.exceptions import BaseError

from domain.audit import Head, Record, beginning, chained, record_of
from domain.events import Event
from domain.models import ref_of
from store import REF, RUN_ID, Store, StoreError
from write_once import Objects, StoreUnavailable


class OtherCourse(Exception):
    """What stands there tells of other events: it is from before an older database was restored."""

    def __init__(self, record: Record | None) -> None:
        super().__init__("another course of things")
        self.record = record


@dataclass(frozen=True)
class AuditTrail:
    """The trails of one store."""

    store: Store

    @cached_property
    def _kept(self) -> Objects:
        return Objects(self.store.objects, self.store.folder, self.store.keys)

    # Writing

    async def append(self, run: str, head: Head | None, events: tuple[Event, ...]) -> Head:
        """Write events after a head, once; the head after them. Events between the two are taken from the event log.

        There are such when an older worker has written a part of the log, or all of it up to now.
        """
        head = head or beginning(run)
        if (missing := events[0].number - head.number - 1) > 0:
            before = [event async for event in self.store.events(run, after=head.number)][:missing]
            events = (*before, *events)
        while events:
            try:
                head = await self._settle(run, head, events)
            except OtherCourse as other:
                head = await self._supersede(run, head, events, other.record)
            events = tuple(event for event in events if event.number > head.number)
        return head

    async def _settle(self, run: str, head: Head, events: tuple[Event, ...]) -> Head:
        """Write a segment if there is none; the head after the one that stands, if it is of these events."""
        lines, ours = chained(head, events)
        content = _segment(lines)
        stands = await self._kept.settle(_place(run, events[0].number), content)
        if stands == content:
            return ours
        wanted = {event.number: event for event in events}
        for line in stands.splitlines():
            record = record_of(line)
            event = wanted.get(head.number + 1)
            if record is None or event is None or not (record.follows(head) and record.tells(event)):
                raise OtherCourse(record)
            head = record.head
        return head

    async def _supersede(self, run: str, head: Head, events: tuple[Event, ...], other: Record | None) -> Head:
        """Keep aside what stands from here on, and write ours in its place, which says so.

        The last ones go first, and ours comes last: whoever is cut short finds the same again.
        """
        first = events[0].number
        later = [path for path in await self.segments(run) if _first_number(path) >= first]
        for path in reversed(later):
            content = await self.store.content(path)
            aside = f"{_folder(run)}superseded/{_first_number(path):010}-{ref_of(content)[7:19]}.jsonl"
            await self._kept.create(aside, content)
            if _first_number(path) > first:
                await self._kept.remove(path)
        supersedes = other.hash if other is not None else "unreadable"
        lines, ours = chained(head, events, supersedes=supersedes)
        standing = [path for path in later if _first_number(path) == first]
        for path in standing[1:]:
            await self._kept.remove(path)
        await self._kept.replace(standing[0] if standing else _place(run, first), _segment(lines))
        return ours

    async def put_reads(self, run: str, ref: str, content: bytes) -> None:
        """Keep a list of what was read, under its hash."""
        await self._kept.settle(_reads_place(run, ref), content)

    async def put_beside(self, run: str, calls: list[dict[str, Any]]) -> None:
        """Keep what the ledger had of calls that the trail does not tell of. Who came first has had more of it."""
        await self._kept.create(_beside_place(run), json.dumps(calls, ensure_ascii=False).encode())

    # Reading

    async def runs(self) -> list[str]:
        """The runs that have a trail."""
        try:
            listed = await obstore.list_with_delimiter_async(self.store.objects, "audit/")
        except (BaseError, OSError) as error:
            raise StoreUnavailable(f"the store cannot be read ({type(error).__name__})") from error
        return sorted(str(prefix).rstrip("/").rpartition("/")[2] for prefix in listed["common_prefixes"])

    async def segments(self, run: str) -> list[str]:
        """The places of the segments of a trail, in order."""
        paths = await self.store.listed(_folder(run))
        return sorted(path for path in paths if "/" not in path.removeprefix(_folder(run)))

    async def superseded(self, run: str) -> list[str]:
        """The places of what gave way to another course of things."""
        return sorted(await self.store.listed(f"{_folder(run)}superseded/"))

    async def lines(self, run: str) -> list[bytes]:
        """The lines of a trail, as they stand. A segment that does not open is one line that is no record."""
        found: list[bytes] = []
        for path in await self.segments(run):
            try:
                found += (await self.store.content(path)).splitlines()
            except StoreError:
                found.append(b"")
        return found

    async def records(self, run: str, since: datetime | None = None) -> list[Record]:
        """The records of a trail that can be read."""
        records = [record for line in await self.lines(run) if (record := record_of(line)) is not None]
        return [record for record in records if since is None or record.at >= since]

    async def reads(self, run: str, ref: str) -> bytes | None:
        """A list of what was read, as it stands; None when it is not there."""
        if not REF.fullmatch(ref):
            return None
        try:
            return await self._kept.standing(_reads_place(run, ref))
        except StoreError:
            return b""

    async def beside(self, run: str) -> list[dict[str, Any]]:
        """The calls that were kept beside the trail, when the ledger of the run went."""
        content = await self._kept.standing(_beside_place(run))
        found: list[dict[str, Any]] = json.loads(content or b"[]")
        return found

    async def everything(self, run: str) -> list[str]:
        """All places of a trail."""
        return sorted(await self.store.listed(_folder(run)))


def _segment(lines: list[bytes]) -> bytes:
    return b"\n".join(lines) + b"\n"


def _folder(run: str) -> str:
    if not RUN_ID.fullmatch(run):
        raise StoreError(f"not a run id: {run!r}")
    return f"audit/{run}/"


def _place(run: str, number: int) -> str:
    return f"{_folder(run)}{number:010}.jsonl"


def _reads_place(run: str, ref: str) -> str:
    return f"{_folder(run)}reads/{ref.removeprefix('sha256:')}.json"


def _beside_place(run: str) -> str:
    return f"{_folder(run)}beside/calls.json"


def _first_number(path: str) -> int:
    name = path.rpartition("/")[2].partition(".")[0].partition("-")[0]
    return int(name) if name.isdecimal() else 0
