"""The call ledger: what was going to be paid, and what came of it.

An intent is written before a request, the completion after it and before Temporal hears of it. A second attempt finds
the completion and pays nothing; an intent without a completion may have been billed.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from activities.model import Completion
from domain.models import Usage
from store import Store


@dataclass(frozen=True)
class Entry:
    """The place of one logical call: run, task, step and content."""

    run: str
    task: str
    step: int
    content: str

    @property
    def key(self) -> str:
        """Where it is in the store. The task's id is hashed: it may contain what a path must not."""
        task = hashlib.sha256(self.task.encode()).hexdigest()[:32]
        return f"{self.run}/{task}/{self.step}/{self.content.removeprefix('sha256:')}"


class Ledger:
    """The entries of all calls, in the store that all workers share."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def completion(self, entry: Entry) -> Completion | None:
        """What the provider has already said to this call."""
        found = await self._store.recorded(f"{entry.key}/completion")
        if found is None:
            return None
        text = (await self._store.artifact(found["text_ref"])).decode()
        return Completion(text=text, usage=Usage.model_validate(found["usage"]), stop_reason=found["stop_reason"])

    async def intend(self, entry: Entry, details: dict[str, Any]) -> int:
        """Write down that a request is about to be made; gives its number. No two requests have the same one."""
        number = 1
        while not await self._store.record(f"{entry.key}/intent-{number}", details):
            number += 1
        return number

    async def complete(self, entry: Entry, completion: Completion) -> None:
        """Keep what the provider said. The first word stands."""
        text_ref = await self._store.put_artifact(completion.text.encode())
        found = {"text_ref": text_ref, "usage": completion.usage.model_dump(), "stop_reason": completion.stop_reason}
        await self._store.record(f"{entry.key}/completion", found)
