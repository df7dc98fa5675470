"""Readers with a name: how far each has come in the event log is kept in the store, beside what it reads.

A place is kept after the events before it were dealt with. Who is killed in between reads some of them again, under
the same ids, and misses none. A name is for one process at a time: who begins takes it over, and the one before stops.
"""

from __future__ import annotations

import secrets
from datetime import UTC, datetime

from pydantic import ValidationError

from domain.offsets import Mark, Offsets, ReaderPlace
from event_log import Batch
from store import READER, Store, StoreError


class ReaderRefused(Exception):
    """Nothing is read under this name: why, in a sentence."""


class NoReaderName(ReaderRefused):
    """It is no name."""


class Bookmark:
    """The place of one reader, in the hands of the process that reads."""

    def __init__(self, store: Store, name: str, runs: dict[str, Mark]) -> None:
        self._store, self.name, self._runs = store, name, runs
        self._session = secrets.token_hex(8)

    @staticmethod
    async def take(store: Store, name: str) -> Bookmark:
        """Go on where the reader of this name was; one that is not known begins at the start."""
        if not READER.fullmatch(name):
            message = f"{name!r} is no name for a reader: letters, digits, - and _, 64 at most, and not - or _ first"
            raise NoReaderName(f"{message}.")
        await store.claim()
        place = await place_of(store, name)
        mine = Bookmark(store, name, dict(place.runs) if place is not None else {})
        await mine._write()
        return mine

    @property
    def offsets(self) -> Offsets:
        """How far it has come."""
        return self._runs

    def pass_over(self, batch: Batch) -> None:
        """These events were dealt with. It counts when it is kept."""
        self._runs |= batch.marks
        for run in batch.gone:
            self._runs.pop(run, None)

    async def keep(self) -> None:
        """Write down how far it has come, unless somebody else reads under its name by now."""
        place = await place_of(self._store, self.name)
        if place is None or place.session != self._session:
            who = "another process has begun to read" if place is not None else "somebody had it forgotten that read"
            raise ReaderRefused(f"The reader {self.name!r} stops here: {who} under this name.")
        await self._write()

    async def _write(self) -> None:
        place = ReaderPlace(name=self.name, session=self._session, saved=datetime.now(UTC), runs=self._runs)
        await self._store.put_reader(self.name, place.model_dump_json().encode())


async def place_of(store: Store, name: str) -> ReaderPlace | None:
    """How far a reader has come, as it was kept last."""
    content = await store.reader(name)
    try:
        return None if content is None else ReaderPlace.model_validate_json(content)
    except ValidationError as error:
        raise StoreError(
            f"The place of the reader {name!r} is damaged in the store. `events --forget {name}` lets it begin anew."
        ) from error


async def all_places(store: Store) -> list[ReaderPlace]:
    """Every reader, by name."""
    return [place for name in await store.readers() if (place := await place_of(store, name)) is not None]
