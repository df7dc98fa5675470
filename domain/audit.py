"""The audit trail of a run: its events as records in a chain, so that nothing in it can be changed and not be seen.

    hash(n) = SHA-256( hash(n-1) + record n without its hash ),  hash(0) = SHA-256( the id of the run )

A record is one line of JSON whose last key is its hash. What is hashed are the bytes of the line, so nobody who checks
it has to write JSON as we do.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from domain.events import Event, EventType, timestamp
from domain.models import Value

BEFORE_HASH = b',"hash":"'
HASH_BYTES = 64
TAIL = len(BEFORE_HASH) + HASH_BYTES + len(b'"}')


class Head(Value):
    """The last record of a trail: its number, and its hash. Whoever has it sees what was changed or cut off before."""

    number: int = 0
    hash: str


def beginning(run: str) -> Head:
    """The head of a trail in which nothing stands yet: that of another run is another one."""
    return Head(hash=hashlib.sha256(run.encode()).hexdigest())


def chained(head: Head, events: Iterable[Event], *, supersedes: str | None = None) -> tuple[list[bytes], Head]:
    """The events as records after this head, and the head after them.

    `supersedes` is the hash of the record in whose place the first one stands, when there was another.
    """
    lines: list[bytes] = []
    number, hash = head.number, head.hash
    for event in events:
        record: dict[str, Any] = {
            "n": event.number,
            "time": timestamp(event.time),
            "type": str(event.type),
            **({"task": event.task} if event.task is not None else {}),
            "data": event.data,
            **({"supersedes": supersedes} if supersedes is not None else {}),
        }
        supersedes = None
        body = json.dumps(record, separators=(",", ":")).encode()
        number, hash = event.number, _next(hash, body)
        lines.append(b'%s%s%s"}' % (body[:-1], BEFORE_HASH, hash.encode()))
    return lines, Head(number=number, hash=hash)


def _next(hash: str, body: bytes) -> str:
    return hashlib.sha256(hash.encode() + body).hexdigest()


@dataclass(frozen=True)
class Record:
    """One line of a trail, as it stands there."""

    number: int
    type: str
    time: str
    task: str | None
    data: dict[str, Any]
    hash: str
    supersedes: str | None
    body: bytes
    """What is hashed."""

    @property
    def at(self) -> datetime:
        """When it was told."""
        return datetime.fromisoformat(self.time)

    def tells(self, event: Event) -> bool:
        """Whether it is of this event: another version may say more of it, but not when it was or what."""
        return (self.number, self.type, self.time, self.task) == (
            event.number,
            str(event.type),
            timestamp(event.time),
            event.task,
        )

    def follows(self, head: Head) -> bool:
        """Whether it is the next one in the chain."""
        return self.number == head.number + 1 and self.hash == _next(head.hash, self.body)

    @property
    def head(self) -> Head:
        """The head of a trail that ends with it."""
        return Head(number=self.number, hash=self.hash)


def record_of(line: bytes) -> Record | None:
    """The record of a line; None when it is none."""
    try:
        found = json.loads(line)
        record = Record(
            number=int(found["n"]),
            type=str(found["type"]),
            time=str(found["time"]),
            task=found.get("task"),
            data=dict(found["data"]),
            hash=str(found["hash"]),
            supersedes=found.get("supersedes"),
            body=line[:-TAIL] + b"}",
        )
        datetime.fromisoformat(record.time)
    except (ValueError, KeyError, TypeError):
        return None
    ends_with_it = line[-TAIL:] == BEFORE_HASH + record.hash.encode() + b'"}'
    return record if ends_with_it else None


class Broken(StrEnum):
    """What can be wrong with a record."""

    CHANGED = "changed"
    MISSING = "missing"
    SWAPPED = "swapped"
    ADDED = "added"
    CUT_OFF = "cut off"


@dataclass(frozen=True)
class Fault:
    """The first thing that is wrong with a trail."""

    number: int
    """Of the record."""
    broken: Broken
    what: str

    def __str__(self) -> str:
        return f"record {self.number:,} is {self.broken}: {self.what}"


@dataclass(frozen=True)
class Anchor:
    """The head that Temporal has of a trail, and whether the run can still add to it."""

    head: Head
    final: bool


def first_fault(run: str, lines: Sequence[bytes], anchor: Anchor | None = None) -> Fault | None:
    """What is wrong first with the lines of a trail; None when they are as they were written.

    Without an anchor nobody can tell a trail whose tail was cut off, or that was written anew as a whole.
    """
    head, over = beginning(run), False
    records = [record_of(line) for line in lines]
    for at, record in enumerate(records):
        wanted = head.number + 1
        too_many = over or (anchor is not None and anchor.final and wanted > anchor.head.number)
        if record is None or not record.follows(head):
            return _fault(records, at, wanted, too_many=too_many)
        if too_many:
            return Fault(wanted, Broken.ADDED, "the run had ended before it")
        if anchor is not None and record.number == anchor.head.number and record.hash != anchor.head.hash:
            why = "the chain holds, but does not lead to the hash that Temporal has: it was written anew"
            return Fault(wanted, Broken.CHANGED, why)
        head, over = record.head, record.type == EventType.RUN_COMPLETED
    if anchor is not None and anchor.head.number > head.number:
        return Fault(head.number + 1, Broken.CUT_OFF, f"Temporal has the hash of record {anchor.head.number:,}")
    return None


def _fault(records: Sequence[Record | None], at: int, wanted: int, *, too_many: bool) -> Fault:
    """What is wrong with the record that stands where another one was wanted."""
    found = records[at]
    if too_many:
        return Fault(wanted, Broken.ADDED, "the run had ended before it")
    if found is None:
        return Fault(wanted, Broken.CHANGED, "it cannot be read")
    if found.number == wanted:
        return Fault(wanted, Broken.CHANGED, "its hash is not that of what stands there")
    if found.number < wanted:
        return Fault(wanted, Broken.ADDED, f"a record with the number {found.number:,} stands after {wanted - 1:,}")
    if any(later is not None and later.number == wanted for later in records[at:]):
        return Fault(wanted, Broken.SWAPPED, f"record {found.number:,} stands in its place")
    return Fault(wanted, Broken.MISSING, f"record {found.number:,} follows {wanted - 1:,}")
