"""The bill: every request that came, and what was really produced for it. Never a word of a prompt or an answer."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass(slots=True)
class Billed:
    """Tokens really read and produced, whatever the client was told."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0


@dataclass(slots=True)
class Entry:
    """One request. `ended` is None while it is being answered; `status` is None when no headers were sent."""

    number: int
    path: str
    started: float
    in_flight: int
    task: str | None = None
    user: str | None = None
    model: str | None = None
    max_tokens: int | None = None
    prompt_hash: str | None = None
    prompt_bytes: int | None = None
    documents: tuple[str, ...] = ()
    """The documents that came with the prompt, by the hash of their text."""
    ended: float | None = None
    status: int | None = None
    fault: str | None = None
    stop_reason: str | None = None
    billed: Billed = field(default_factory=Billed)
    client_left: bool = False
    batch: bool = False
    """Whether it came in a batch: everything in it costs half."""
    batch_id: str | None = None
    """Of a request in a batch, and of the call that made the batch."""
    custom_id: str | None = None


class Log:
    """Entries in order of arrival, in memory; and in order of their end, one line each, in a file when there is one.

    A line is written whole when its request ends, so a file outlives its simulator with nothing half-said.
    """

    def __init__(self, file: Path | None = None) -> None:
        self.entries: list[Entry] = []
        self._arrived = 0
        self._file = file.open("a", encoding="utf-8", buffering=1) if file else None

    def open(self, path: str, *, started: float, in_flight: int) -> Entry:
        """A new entry, numbered from 1."""
        self._arrived += 1
        entry = Entry(number=self._arrived, path=path, started=started, in_flight=in_flight)
        self.entries.append(entry)
        return entry

    def end(self, entry: Entry, ended: float) -> None:
        """Seal an entry."""
        entry.ended = ended
        if self._file:
            self._file.write(json.dumps(asdict(entry)) + "\n")

    def after(self, number: int) -> list[dict[str, object]]:
        """Entries with a greater number, as JSON."""
        return [asdict(entry) for entry in self.entries if entry.number > number]

    def close(self) -> None:
        """Close the file."""
        if self._file:
            self._file.close()
