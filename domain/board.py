"""What is at work right now, as the workers tell it: notes of attempts, and how the notes of many workers become one.

Events tell what has happened; notes tell what is happening. A note is a courtesy: it may be late or missing, so it
never decides anything, and only tasks that the events call RUNNING are looked up here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Literal

from pydantic import Field

from domain.models import Value

SILENT_AFTER = timedelta(seconds=15)
"""A worker with something at work writes every five seconds: without a word for three times that, it may be gone."""

BACKOFF = "backoff"
"""The step between two attempts: nobody is at work, Temporal will ask again."""


class Note(Value):
    """One attempt at a task, in the words of its worker. It holds names and figures, never a prompt or an answer."""

    task: str
    attempt: int
    step: str
    """What is being done: permission, joining, cache, quota, calling, answering; or backoff."""
    started: datetime
    """When the attempt began, by Temporal's clock: the one clock that all workers and the events share."""
    since: datetime
    """When the step began."""
    output: int = 0
    """About how many tokens have been heard of the answer."""
    what: str | None = None
    """In a backoff: the error of the attempt that failed. Waiting for quota: which limit. Before `cache`: for whom."""
    until: datetime | None = None
    """In a backoff: when the next attempt is due. Waiting for quota: when it may come, as things stand."""


class Page(Value):
    """All notes of one worker process on one run, at one time."""

    schema_name: Literal["nightcrew.board/1"] = Field("nightcrew.board/1", serialization_alias="schema")
    at: datetime
    notes: tuple[Note, ...] = ()
    omitted: int = 0
    """Tasks at work in that process for which there was no room."""


class Live(Value):
    """The latest note of a task that is at work, and when its worker was last heard."""

    note: Note
    heard: datetime

    def silent(self, now: datetime) -> bool:
        """Whether its worker should have said something since. In a backoff nobody speaks before its end."""
        last = max(self.heard, self.note.until) if self.note.until is not None else self.heard
        return now - last > SILENT_AFTER


def latest(pages: Iterable[Page]) -> dict[str, Live]:
    """Of each task the note of its latest attempt; of the same attempt told twice, the later word."""
    found: dict[str, Live] = {}
    for page in pages:
        for note in page.notes:
            found[note.task] = later(found.get(note.task), Live(note=note, heard=page.at))
    return found


def later(known: Live | None, told: Live) -> Live:
    """Which of two words about one task stands.

    The attempt that began last wins; the count alone would not do, because it starts again after a wall or a reset.
    """
    if known is None:
        return told
    return max(known, told, key=lambda live: (live.note.started, live.note.attempt, live.heard))


def of_this_start(found: Mapping[str, Live], task: str, started: datetime | None) -> Live | None:
    """The word about a task, unless it is about its life before its last start, as before a wall."""
    live = found.get(task)
    if live is None or (started is not None and live.note.started < started):
        return None
    return live
