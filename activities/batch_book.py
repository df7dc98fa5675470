"""What is written down of a batch: what is about to be sent, and what the provider calls it.

The provider takes no idempotency key. So a batch is announced in the store, whole, before it is made, and its id is
written there after that. Whoever finds the first without the second must look for it at the provider. An announcement
is written once: who must know that a batch was never made writes a void one, and nobody makes it any more.
"""

from __future__ import annotations

from datetime import UTC, datetime

from domain.models import Value
from store import Store


class Member(Value):
    """Whose request is in a batch: a task, and its step."""

    task: str
    step: int


class Announced(Value):
    """A batch that is about to be made: the custom ids of its requests, and whose they are."""

    at: datetime
    ids: tuple[str, ...] = ()
    members: tuple[Member, ...] = ()
    """Nobody before 0.6.0."""

    @property
    def is_void(self) -> bool:
        """Whether it shall not be made."""
        return not self.ids


class BatchBook:
    """The batches of all runs, by our own names for them."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def announce(self, run: str, name: str, ids: tuple[str, ...], members: tuple[Member, ...] = ()) -> bool:
        """Write down what will be sent; False when it must not be."""
        announced = Announced(at=datetime.now(UTC), ids=ids, members=members)
        return await self._store.record(f"{run}/batches/{name}/announced", announced.model_dump(mode="json"))

    async def announced(self, run: str, name: str) -> Announced:
        """What was to be sent. If nothing was announced, nothing will be."""
        await self.announce(run, name, ())
        return Announced.model_validate(await self._store.recorded(f"{run}/batches/{name}/announced"))

    async def known(self, run: str, name: str) -> Announced | None:
        """What was to be sent, if it was announced; it may still be."""
        found = await self._store.recorded(f"{run}/batches/{name}/announced")
        return None if found is None else Announced.model_validate(found)

    async def made(self, run: str, name: str, id: str) -> None:
        """Write down what the provider calls it."""
        await self._store.record(f"{run}/batches/{name}/made", {"id": id})

    async def id(self, run: str, name: str) -> str | None:
        """What the provider calls it, if that was written down."""
        found = await self._store.recorded(f"{run}/batches/{name}/made")
        return None if found is None else str(found["id"])
