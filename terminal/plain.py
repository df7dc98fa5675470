"""A run in plain lines, for output that is not a terminal: what changed, what failed, how it ended."""

from __future__ import annotations

import sys
from itertools import islice
from time import monotonic
from types import TracebackType
from typing import Self

from domain.models import TaskStatus
from domain.picture import Picture
from domain.report import Attention
from terminal.remedies import STARTER, remedy
from terminal.signs import mode_words
from terminal.text import one_line, plain

PACE = 1.0
"""Seconds between two lines on the progress of a run."""

TOLD = (TaskStatus.FAILED, TaskStatus.TIMED_OUT, TaskStatus.SKIPPED)
"""Ends that have a line each, with the reason."""


class PlainLines:
    """Lines on stderr: at most one a second on how far the run is, and one for every task that failed or is skipped."""

    def __init__(self, starter: str = STARTER) -> None:
        self._starter = starter
        self._picture: Picture | None = None
        self._trouble: str | None = None
        self._told = dict.fromkeys(TOLD, 0)
        self._asked: set[Attention] = set()
        self._last: str | None = None
        self._written = float("-inf")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._written = float("-inf")
        self.tick()

    def look(self, picture: Picture, trouble: str | None) -> None:
        """Tell what failed and what is in the way at once, the rest when it is time."""
        self._picture = picture
        if trouble != self._trouble:
            self._trouble = trouble
            self.say(trouble or "The run goes on.")
        for status in TOLD:
            for id in islice(picture.of(status), self._told[status], None):
                error = picture.tasks[id].error
                self.say(f"{picture.run} {plain(id)} {status}: {one_line(error.message, 300) if error else ''}")
            self._told[status] = len(picture.of(status))
        for found in picture.attention:
            if found.kind not in {"failure", "stall"} and found not in self._asked:
                self._asked.add(found)
                what = one_line(": ".join(word for word in (found.task, found.what) if word), 200)
                self.say(f"{picture.run} {found.kind.upper()} {what}; to go on: {remedy(found, self._starter)}")
        self.tick()

    def say(self, words: str) -> None:
        """One line, at once."""
        sys.stderr.write(f"{words}\n")
        sys.stderr.flush()

    def tick(self) -> None:
        """Tell how far the run is, when that has changed and the last time is long enough ago."""
        now = monotonic()
        if self._picture is None or now - self._written < PACE:
            return
        line = plain_line(self._picture)
        if line != self._last:
            self._last, self._written = line, now
            self.say(line)

    def repaint(self) -> None:
        """Lines stay as they are."""


def plain_line(picture: Picture) -> str:
    """The run in one line."""
    census = {name: count for name, count in picture.census.model_dump().items() if count}
    figures = ", ".join(f"{name} {count}" for name, count in census.items())
    mode = mode_words(simulated=picture.simulated, provider=picture.provider)
    return f"{picture.run} {picture.status}: {figures} ({mode})"
