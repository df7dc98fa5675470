"""Mistakes in what people write: where, what, and what was probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple, Protocol

MAX_PROBLEMS = 1_000


class Place(NamedTuple):
    """A line and a column, both counted from 1."""

    line: int
    column: int


class Located(Protocol):
    """Anything that knows where it was written."""

    @property
    def line(self) -> int: ...  # noqa: D102
    @property
    def column(self) -> int: ...  # noqa: D102


TOP = Place(1, 1)


@dataclass(frozen=True)
class Problem:
    """One mistake, in one line a person can act on."""

    file: str
    line: int
    column: int
    task: str | None
    message: str
    hint: str | None = None

    def __str__(self) -> str:
        task = f"task {self.task!r}: " if self.task is not None else ""
        hint = f" ({self.hint})" if self.hint else ""
        return f"{self.file}:{self.line}:{self.column}: {task}{self.message}{hint}"


class Mistake(ValueError):
    """Why a value is refused, and what to do about it: the place is known to whoever asked."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class Invalid(ValueError):
    """What was written cannot be used; `problems` holds every mistake, in the order of the file."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


class Problems:
    """The mistakes found so far in one file and the files it names. The same one is kept once."""

    def __init__(self, file: str) -> None:
        self.file = file
        self._found: dict[Problem, None] = {}
        self._more = 0

    def add(
        self, at: Located, message: str, *, task: str | None = None, hint: str | None = None, file: str | None = None
    ) -> None:
        """Remember a mistake. Past a thousand they are only counted: nobody reads more, and memory is finite."""
        problem = Problem(file or self.file, at.line, at.column, task and shorten(task), message, hint)
        if len(self._found) < MAX_PROBLEMS:
            self._found[problem] = None
        elif problem not in self._found:
            self._more += 1

    def __len__(self) -> int:
        return len(self._found)

    def in_order(self) -> tuple[Problem, ...]:
        """All of them by position, those of the file itself before those of the files it names."""
        found = sorted(self._found, key=lambda p: (p.file != self.file, p.file, p.line, p.column))
        if self._more:
            last = found[-1]
            found.append(Problem(last.file, last.line, last.column, None, f"and {self._more} more mistakes"))
        return tuple(found)

    def raise_if_any(self) -> None:
        """Raise `Invalid` with every mistake, if there is one."""
        if self._found:
            raise Invalid(self.in_order())


def shorten(text: str, limit: int = 80) -> str:
    """The text, or its beginning when it is too long for a message."""
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def quoted(text: str) -> str:
    """The text in quotes on one line, unprintable characters escaped."""
    return repr(shorten(text))


def did_you_mean(word: str, known: Collection[str]) -> str | None:
    """A hint naming the known word most like this one, or nothing when none is close.

    Comparing is slow, so only words of about the same length are compared, and none with a very long one.
    """
    if len(word) > 120:
        return None
    folded = {name.casefold(): name for name in known if abs(len(name) - len(word)) <= 3}
    close = difflib.get_close_matches(word.casefold(), folded, n=1, cutoff=0.6)
    return f"did you mean {quoted(folded[close[0]])}?" if close else None


class Suggestions:
    """Hints from a large set of names, for the first few wrong words: with thousands of both, looking is slow."""

    def __init__(self, known: Collection[str], patience: int = 50) -> None:
        self._known = known
        self._patience = patience

    def hint(self, word: str) -> str | None:
        """What was probably meant, while patience lasts."""
        self._patience -= 1
        return did_you_mean(word, self._known) if self._patience >= 0 else None
