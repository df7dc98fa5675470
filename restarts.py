"""When a dead service is started again: at once, then ever later; and from when on that is a crash loop.

Pure: times are seconds of a clock that never goes back, and come as arguments.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

LONGEST_WAIT = 60.0
"""Seconds between two tries at most: a service that was mended is up within a minute."""

PROVEN = 300.0
"""A service that was up for so many seconds works: its earlier crashes are forgotten."""

LOOP = 5
"""So many crashes without being proven in between are a crash loop."""


@dataclass(frozen=True)
class Crashes:
    """The crashes of one service since it last was proven to work."""

    count: int = 0
    last: float | None = None
    up_since: float | None = None

    def crashed(self, now: float) -> Crashes:
        """It was seen dead, or a try to start it failed."""
        return Crashes(self._known(now).count + 1, last=now)

    def seen_up(self, now: float) -> Crashes:
        """It was seen up."""
        return replace(self._known(now), up_since=now if self.up_since is None else self.up_since)

    def _known(self, now: float) -> Crashes:
        """What is still held against it."""
        proven = self.up_since is not None and now - self.up_since >= PROVEN
        return Crashes(up_since=self.up_since) if proven else self

    @property
    def next_try(self) -> float | None:
        """When to start it again; `None` while nothing is known against it."""
        if self.last is None or self.up_since is not None:
            return None
        return self.last + wait_after(self.count)

    @property
    def loop(self) -> bool:
        """Whether somebody should look: starting it again does not help. It stays so until the service is proven."""
        return self.count >= LOOP


def wait_after(crashes: int) -> float:
    """Seconds until the next try: none after the first crash, then 1, 2, 4 and so on."""
    return 0.0 if crashes <= 1 else min(LONGEST_WAIT, 2.0 ** min(crashes - 2, 10))
