"""Calls that begin alike: one goes first, the others when the provider has begun to answer it.

From then on the provider has their common beginning in its cache: it is written once, and read by all others. One per
worker process. Several workers write it once each at worst, which is what all calls would cost without this.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from time import monotonic

PATIENCE = 15.0
"""Seconds that a call waits for another one, in all: the saving is not worth more, and nobody is held up by a fault."""

LIFE = 270.0
"""Seconds for which a prefix is believed to be kept after its last use. The provider keeps it for five minutes."""

WHAT = "the first words of a call that begins with the same documents: they are then read once for all"

Waits = Callable[[str, datetime | None], None]


@dataclass
class _Prefix:
    """A common beginning: who goes first with it, and until when the provider has it."""

    leader: Turn | None = None
    kept_until: float = 0.0
    users: int = 0
    news: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_kept(self) -> bool:
        return self.kept_until > monotonic()

    def tell(self) -> None:
        self.news.set()
        self.news = asyncio.Event()


class Turn:
    """One call's leave to go. This one shares nothing with anybody."""

    reads = False
    """Whether the provider has its beginning in the cache."""

    def begun(self) -> None:
        """The provider has begun to answer."""


class _Shared(Turn):
    """One that does."""

    def __init__(self, prefix: _Prefix) -> None:
        self._prefix = prefix
        self.reads = prefix.is_kept

    def begun(self) -> None:
        """From now on the others may go."""
        self._prefix.kept_until = monotonic() + LIFE
        self._prefix.tell()

    def over(self) -> None:
        """The call is over. If it came to nothing before a word of an answer, the next one goes first."""
        if self._prefix.leader is self:
            self._prefix.leader = None
            self._prefix.tell()


class Prefixes:
    """The common beginnings that are in use, or kept."""

    def __init__(self, patience: float = PATIENCE) -> None:
        self._patience = patience
        self._known: dict[str, _Prefix] = {}

    @asynccontextmanager
    async def turn(self, key: str | None, waits: Waits) -> AsyncIterator[Turn]:
        """A block in which this call may be made. `waits` is told what it waits for, if it must."""
        if key is None:
            yield Turn()
            return
        prefix = self._known.setdefault(key, _Prefix())
        prefix.users += 1
        try:
            await self._wait(prefix, waits)
            turn = _Shared(prefix)
            if prefix.leader is None and not turn.reads:
                prefix.leader = turn
            try:
                yield turn
            finally:
                turn.over()
        finally:
            prefix.users -= 1
            self._forget_old()

    async def _wait(self, prefix: _Prefix, waits: Waits) -> None:
        """Until nobody goes first, or it is kept, or it takes too long."""
        late = monotonic() + self._patience
        while prefix.leader is not None and not prefix.is_kept and (left := late - monotonic()) > 0:
            waits(WHAT, None)
            try:
                async with asyncio.timeout(left):
                    await prefix.news.wait()
            except TimeoutError:
                return

    def _forget_old(self) -> None:
        for key in [key for key, prefix in self._known.items() if not (prefix.users or prefix.is_kept)]:
            del self._known[key]
