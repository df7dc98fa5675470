"""The tree of a document: nodes that know where they were written, and what stands there in words."""

from __future__ import annotations

import bisect
import functools
import re
from dataclasses import dataclass

from domain.problems import Place, quoted

_LINE_END = re.compile("\r\n|\r|\n")


class Source:
    """A text and the places of its characters."""

    def __init__(self, text: str) -> None:
        self.text = text

    @functools.cached_property
    def _starts(self) -> list[int]:
        return [0, *(end.end() for end in _LINE_END.finditer(self.text))]

    def place(self, index: int) -> Place:
        """The line and column of the character at this index."""
        line = bisect.bisect_right(self._starts, index)
        return Place(line, index - self._starts[line - 1] + 1)


@dataclass(frozen=True, slots=True)
class Scalar:
    """A text, a number, a truth value or nothing.

    `odd` tells what YAML 1.1 makes of a plain text ("a date"): where a text is required it must be quoted, since the
    next tool to read the file may take it for something else.
    """

    value: str | int | float | bool | None
    line: int
    column: int
    start: int
    end: int
    odd: str | None = None

    def places(self, source: Source, mark: str) -> list[Place]:
        """Where each `mark` of this text stands in the source, whichever way the text was quoted or folded."""
        start = self.start
        if source.text[start : start + 1] in "|>" and start < self.end:
            line_end = _LINE_END.search(source.text, start)
            start = line_end.end() if line_end else self.end
        marks = re.compile(re.escape(mark))
        return [source.place(found.start()) for found in marks.finditer(source.text, start, self.end)]


@dataclass(frozen=True, slots=True)
class Sequence:
    """A list."""

    items: list[Node]
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Entry:
    """One key of a mapping and its value."""

    key: Scalar
    value: Node


@dataclass(frozen=True, slots=True)
class Mapping:
    """A mapping; its keys are texts, each there once."""

    entries: dict[str, Entry]
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Broken:
    """Something whose mistake is already reported: no second complaint about it."""

    line: int
    column: int


Node = Scalar | Sequence | Mapping | Broken


def describe(node: Node) -> str:
    """What stands there, in words: "a list", "the number 5"."""
    if isinstance(node, Sequence):
        return "a list"
    if isinstance(node, Mapping):
        return "a mapping"
    if isinstance(node, Broken):
        return "something else"
    if node.value is None:
        return "nothing"
    if isinstance(node.value, bool):
        return str(node.value).lower()
    return f"the text {quoted(node.value)}" if isinstance(node.value, str) else f"the number {node.value}"
