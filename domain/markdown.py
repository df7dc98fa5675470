"""Markdown for Temporal's pages: names and messages of others stay text, and no page grows without bound.

The Web UI renders summaries and details, HTML included. So what others wrote (ids, messages) is put where no renderer
looks for marks: into code spans. It keeps the ends of lines, too, and puts a gap around every block: a list follows its
title without an empty line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

MAX_LINES = 100
MAX_BYTES = 18_000
"""Of a page as JSON. Temporal's limit for details is 20,000, with what belongs to the payload."""

SUMMARY_BYTES = 300
"""Of a summary as JSON. Temporal's limit for summaries is 400, with what belongs to the payload."""

NAME_WIDTH, MESSAGE_WIDTH = 80, 200

_HARMLESS = re.compile(r"(?!.*www\.)[\w.\-\[\] ]+", re.IGNORECASE | re.DOTALL)


def one_line(text: str, width: int) -> str:
    """The text on one line, without control characters and marks that change the direction, cut to a width."""
    if not text.isprintable():
        text = "".join(letter for letter in text if letter.isspace() or letter.isprintable())
    line = " ".join(text.split())
    return line if len(line) <= width else f"{line[: width - 1]}…"


def code(text: str, width: int = NAME_WIDTH) -> str:
    """The text as a code span: nothing in it is a link, an image, a tag or emphasis."""
    return f"`{one_line(text, width).replace('`', chr(39)) or ' '}`"


def label(text: str, width: int = NAME_WIDTH) -> str:
    """A name for a summary, which some pages render and some do not: bare when that is harmless, else a code span."""
    line = one_line(text, width)
    return line if is_harmless(line) else code(line, width)


def is_harmless(text: str) -> bool:
    """Whether the text means nothing but itself: to Markdown, to HTML, and between quotes in a shell."""
    return _HARMLESS.fullmatch(text) is not None


def summary(text: str) -> str:
    """The text on one line, cut to what Temporal takes as a summary."""
    line = one_line(text, SUMMARY_BYTES)
    while size(line) > SUMMARY_BYTES:
        line = f"{line[:-2]}…"
    return line


def clock(time: datetime, now: datetime) -> str:
    """The time of day in UTC, with the day when it is another one than `now`."""
    time, now = time.astimezone(UTC), now.astimezone(UTC)
    return f"{time:%H:%M:%S} UTC" if time.date() == now.date() else f"{time:%Y-%m-%d %H:%M:%S} UTC"


def plural(count: int, noun: str) -> str:
    """The count with its noun."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def listed(names: Sequence[str], most: int) -> str:
    """Names as code spans, and how many more there are."""
    shown = ", ".join(code(name) for name in names[:most])
    return f"{shown} and {len(names) - most:,} more" if len(names) > most else shown


@dataclass(frozen=True)
class Section:
    """A list under a title: its first lines, and of how many."""

    title: str
    lines: Sequence[str]
    total: int


def page(head: Sequence[str], sections: Iterable[Section], foot: Sequence[str] = ()) -> str:
    """Head, sections and foot within `MAX_LINES` and `MAX_BYTES`; what does not fit is counted, longest list first."""
    shown = [section for section in sections if section.total]
    frame = [*head, *("" for _ in foot[:1]), *foot, *(line for section in shown for line in _listing(section, 0))]
    lines, bytes = MAX_LINES - len(frame), MAX_BYTES - _bytes(frame)
    fitting = [[f"- {line}" for line in section.lines[:lines]] for section in shown]
    lines -= sum(map(len, fitting))
    bytes -= sum(map(_bytes, fitting))
    while (lines < 0 or bytes < 0) and any(fitting):
        last = max(fitting, key=len).pop()
        lines, bytes = lines + 1, bytes + _bytes([last])
    for section, listing in zip(shown, fitting, strict=True):
        head = [*head, *_listing(section, len(listing), listing)]
    return "\n".join([*head, *("" for _ in foot[:1]), *foot])


def _listing(section: Section, count: int, lines: Sequence[str] = ()) -> list[str]:
    rest = section.total - count
    return ["", f"**{section.title}**", *lines, *([f"- and {rest:,} more"] if rest else [])]


def _bytes(lines: Sequence[str]) -> int:
    """Bytes of these lines as a part of a text in JSON, where the end of a line is two."""
    return sum(size(line) for line in lines)


def size(text: str) -> int:
    """Bytes of the text as JSON, which is how Temporal carries it."""
    return len(json.dumps(text, ensure_ascii=False).encode("utf-8", "replace"))
