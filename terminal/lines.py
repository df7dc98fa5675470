"""`watch --json`: a run as JSON Lines, one compact document for every change."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from itertools import chain, islice
from types import TracebackType
from typing import Any, Self

from client import RunClient
from domain.models import TaskStatus
from domain.picture import Picture

MOST = 100
"""Tasks in one document: those at work, then those that wait, then those that failed; the census counts the others."""

SHOWN = (TaskStatus.RUNNING, TaskStatus.WAITING, TaskStatus.FAILED, TaskStatus.TIMED_OUT)
LEFT_OUT = {
    *(
        "output",
        "output_ref",
        "summary",
        "type",
        "success",
        "timeout_s",
        "cause",
        "tries",
        "approval",
        "reviews",
        "partial",
        "saved",
    ),
}


async def watch_lines(client: RunClient, run: str) -> AsyncIterator[dict[str, Any]]:
    """The documents of a run, one for every change, the last one when it has ended."""
    changes = Changes()
    async for picture in client.watch(run):
        if (document := changes.document(picture)) is not None:
            yield document


class Changes:
    """Tells a document from the one before. That time has passed is no change."""

    def __init__(self) -> None:
        self._last: dict[str, Any] | None = None

    def document(self, picture: Picture) -> dict[str, Any] | None:
        """The document of a picture, unless nothing but time has passed since the last one."""
        document = watch_document(picture, datetime.now(UTC))
        timeless = {**document, "duration_s": None, "tasks": [_timeless(task) for task in document["tasks"]]}
        if timeless == self._last:
            return None
        self._last = timeless
        return document


class JsonLines:
    """The front of a watcher for scripts: documents go where they are wanted, words for people to stderr."""

    def __init__(self, tell: Callable[[dict[str, Any]], None]) -> None:
        self._tell = tell
        self._changes = Changes()
        self._trouble: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def look(self, picture: Picture, trouble: str | None) -> None:
        """Tell what has changed."""
        if trouble != self._trouble:
            self._trouble = trouble
            self.say(trouble or "The run goes on.")
        if (document := self._changes.document(picture)) is not None:
            self._tell(document)

    def say(self, words: str) -> None:
        """A word to whoever reads stderr."""
        sys.stderr.write(f"{words}\n")
        sys.stderr.flush()

    def tick(self) -> None:
        """Nothing changes between two looks."""

    def repaint(self) -> None:
        """Lines stay as they are."""


def watch_document(picture: Picture, now: datetime) -> dict[str, Any]:
    """A run in a compact document: its figures, and the tasks that there is something to say of."""
    report = picture.summary(now)
    tasks = islice(chain.from_iterable(picture.of(status) for status in SHOWN), MOST)
    return {
        "schema": "nightcrew.watch/1",
        **report,
        "tasks": [picture.task(id, now).model_dump(mode="json", by_alias=True, exclude=LEFT_OUT) for id in tasks],
    }


def _timeless(task: dict[str, Any]) -> dict[str, Any]:
    progress = task["progress"] and {**task["progress"], "heard": None}
    return {**task, "duration_s": None, "progress": progress}
