"""Who uses a home: several commands may run at once, and the last one to leave puts out the light."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Collection
from pathlib import Path
from types import TracebackType
from typing import Self


class Lease:
    """Held while a command needs the home; `up` does not hold one, so what it started stays.

    A shared lock on a file is held by every user. What was started for users stands in another file.
    """

    def __init__(self, home: Path) -> None:
        self._lock = (home / "services" / "users.lock").open("a+")
        self._started = home / "services" / "started-for-users.json"

    def __enter__(self) -> Self:
        fcntl.flock(self._lock, fcntl.LOCK_SH)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.close()

    def add(self, services: Collection[str]) -> None:
        """Remember what this user has started."""
        if services:
            self._started.write_text(json.dumps(sorted({*self.started(), *services})))

    def started(self) -> list[str]:
        """What users have started, and nobody has stopped since."""
        try:
            names: list[str] = json.loads(self._started.read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return []
        return names

    def is_last(self) -> bool:
        """Whether there is no other user; if so, none can come until we have left."""
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def forget(self) -> None:
        """What users had started is stopped, or belongs to somebody who keeps it."""
        self._started.unlink(missing_ok=True)
