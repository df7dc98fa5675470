"""The register in the store: acts are added under the next free number, and read on from where one was.

Two who write at once are both heard: put-if-absent gives a number to one of them, and the other takes the next.
"""

from __future__ import annotations

from datetime import UTC, datetime

from pydantic import JsonValue

from domain.register import Act, Register, Verb
from store import Store

AT_ONCE = 256
"""Acts that are asked for together, at most."""


class Registers:
    """Reads and writes the register of one store. What was read is kept, so that reading again costs one question."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._register = Register()

    async def register(self) -> Register:
        """The register as it is now. It is the same object each time, with what has come since."""
        ahead = 1
        while True:
            numbers = range(self._register.last + 1, self._register.last + 1 + ahead)
            acts = [Act.model_validate(found) for found in await self._store.acts(numbers)]
            for act in acts:
                if act.number > self._register.last:  # another reader of this object may have been faster
                    self._register.add(act)
            if len(acts) < len(numbers):
                return self._register
            ahead = min(4 * ahead, AT_ONCE)

    async def add(
        self, verb: Verb, agent: str, version: str | None, *, by: str, data: dict[str, JsonValue] | None = None
    ) -> Act:
        """Write down that somebody did something to an agent. It counts when this returns."""
        while True:
            number = (await self.register()).last + 1
            act = Act(
                number=number,
                time=datetime.now(UTC),
                by=by,
                verb=verb,
                agent=agent,
                version=version,
                data=data or {},
            )
            if await self._store.put_act(number, act.model_dump(mode="json")):
                await self.register()
                return act
