"""The prompt cache as the provider keeps it: by model and exact prefix, for some minutes. Pure: time comes in.

A mark (`cache_control`) on a block of tools, system or messages ends a prefix that shall be kept. Reading finds the
longest kept prefix that ends at a mark, or at one of the blocks shortly before it. What is written can be read only
once the answer that writes it has begun: calls that leave together all pay for writing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

MOST_MARKS = 4
"""The provider refuses a request with more."""

LOOKS_BACK = 20
"""Blocks before a mark at which a kept prefix is still found."""

HOUR = 3600.0


@dataclass(frozen=True)
class Boundary:
    """The end of a block: what the model has read up to there, and for how long the mark on it wants it kept."""

    key: str
    tokens: int
    ttl: str | None = None


def boundaries(model: str, blocks: Iterable[tuple[str, int, str | None]]) -> tuple[Boundary, ...]:
    """Where prefixes may end. A block is what identifies it, the tokens up to its end, and the life that is asked."""
    digest = hashlib.sha256(model.encode())
    found: list[Boundary] = []
    for identity, tokens, ttl in blocks:
        digest.update(b"\0" + identity.encode())
        found.append(Boundary(digest.hexdigest(), tokens, ttl))
    return tuple(found)


@dataclass(frozen=True)
class Cached:
    """What the cache means for one request: tokens read from it and written to it, and what is kept from now on."""

    read: int = 0
    written: int = 0
    touched: str | None = None
    keeps: tuple[Boundary, ...] = ()


NOTHING = Cached()


@dataclass
class _Kept:
    life: float
    until: float


@dataclass
class Cache:
    """The prefixes that are kept."""

    _kept: dict[str, _Kept] = field(default_factory=dict)

    def look(self, prefix: Sequence[Boundary], *, minimum: int, now: float) -> Cached:
        """What a request would read and write now. Nothing changes by looking: it may still be refused."""
        marks = [index for index, boundary in enumerate(prefix) if boundary.ttl and boundary.tokens >= minimum]
        candidates = {at for mark in marks for at in range(max(0, mark - LOOKS_BACK), mark + 1)}
        hits = [prefix[at] for at in sorted(candidates) if self._is_kept(prefix[at].key, now)]
        hit = hits[-1] if hits else None
        read = hit.tokens if hit else 0
        keeps = tuple(prefix[mark] for mark in marks if prefix[mark].tokens > read)
        written = keeps[-1].tokens - read if keeps else 0
        return Cached(read=read, written=written, touched=hit.key if hit else None, keeps=keeps)

    def use(self, cached: Cached, *, now: float) -> None:
        """A request that reads was let through: what it reads lives on from now."""
        if cached.touched is not None and (kept := self._kept.get(cached.touched)) is not None:
            kept.until = now + kept.life

    def begin(self, cached: Cached, *, life: float, now: float) -> None:
        """The answer has begun: what its request wrote can be read."""
        for boundary in cached.keeps:
            lives = HOUR if boundary.ttl == "1h" else life
            self._kept[boundary.key] = _Kept(lives, now + lives)
        for key in [key for key, kept in self._kept.items() if kept.until <= now]:
            del self._kept[key]

    def _is_kept(self, key: str, now: float) -> bool:
        kept = self._kept.get(key)
        return kept is not None and kept.until > now
