"""How a progress travels to the next history: as it is or, when very many tasks have ended, with the ends in columns.

References do not compress, so what else there is of an end must cost next to nothing: tasks are told by their number in
the outline, hashes by 43 letters instead of 71, and names of fields once.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable
from typing import NamedTuple

from pydantic import TypeAdapter

from domain.models import Value
from domain.progress import Ended, Outline, Progress

COLUMNS_FROM = 1_000
"""Ended tasks from which on they go in columns. Below that people can read them, and so can releases up to 0.6.0."""

HASH = "sha256:"
REFERENCES = frozenset({"ref", "summary_ref"})
ENDS = TypeAdapter(list[Ended])

Column = str | list[str | int | None]


class Ends(Value):
    """How tasks have ended, in the order in which they did."""

    numbers: list[int]
    columns: dict[str, Column]
    """By the name of the field. One that no end has a value in is left out; references are one text."""


class Carried(NamedTuple):
    """A progress without its ends, and the ends.

    In JSON that is a list, which an older release refuses. An object it would read, and do everything once more.
    """

    progress: Progress
    ends: Ends


def packed(outline: Outline, progress: Progress, columns_from: int = COLUMNS_FROM) -> Progress | Carried:
    """What goes along."""
    if len(progress.ended) < columns_from:
        return progress
    number = {task.id: place for place, task in enumerate(outline.tasks)}
    ends = progress.ended.values()
    columns = {name: [getattr(end, name) for end in ends] for name in Ended.model_fields}
    written = {name: _written(name, column) for name, column in columns.items() if any(column)}
    numbers = [number[id] for id in progress.ended]
    return Carried(progress.model_copy(update={"ended": {}}), Ends(numbers=numbers, columns=written))


def unpacked(outline: Outline, carried: Progress | Carried | None) -> Progress | None:
    """The progress that went along."""
    if not isinstance(carried, Carried):
        return carried
    numbers, columns = carried.ends.numbers, carried.ends.columns
    rows = zip(*map(_read, columns.values()), strict=True)
    ends = ENDS.validate_python([dict(zip(columns, row, strict=True)) for row in rows])
    ids = [outline.tasks[number].id for number in numbers]
    return carried.progress.model_copy(update={"ended": dict(zip(ids, ends, strict=True))})


def _written(name: str, column: list[str | int | None]) -> Column:
    return " ".join(_short(ref) for ref in column) if name in REFERENCES else column


def _read(column: Column) -> Iterable[str | int | None]:
    return (_long(ref) for ref in column.split(" ")) if isinstance(column, str) else column


def _short(ref: str | int | None) -> str:
    """A hash in base64; nothing as nothing."""
    return urlsafe_b64encode(bytes.fromhex(str(ref).removeprefix(HASH))).decode().rstrip("=") if ref else ""


def _long(text: str) -> str | None:
    return f"{HASH}{urlsafe_b64decode(f'{text}=').hex()}" if text else None
