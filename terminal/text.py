"""Text from models, users and providers, made safe for a terminal and fitted to it; figures as people read them."""

from __future__ import annotations

import unicodedata
from datetime import datetime

from rich.cells import cell_len, chop_cells, set_cell_size

KEPT = "\n\t"
REMOVED = {"Cc", "Cf", "Cs"}
VARIATIONS = "\ufe0e\ufe0f"
"""They ask for a picture or a letter of the same sign; terminals do not agree how wide that is."""


def plain(text: str) -> str:
    """The text without control characters, escape sequences' beginnings and marks that change the direction."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(letter for letter in text if letter in KEPT or unicodedata.category(letter) not in REMOVED)


def one_line(text: str, width: int = 100) -> str:
    """The text on one line, cut to a width in cells: letters of some languages take two."""
    line = " ".join(plain(text).split())
    return cut(line if line.isascii() else "".join(letter for letter in line if letter not in VARIATIONS), width)


def cut(line: str, width: int) -> str:
    """A line that fits; what was cut is marked."""
    if cell_len(line) <= width:
        return line
    return f"{set_cell_size(line, width - 1).rstrip()}…" if width > 0 else ""


def wrapped(text: str, width: int, most: int) -> list[str]:
    """The text on several lines, none wider than the width; a long word, as a path, is broken rather than lost."""
    lines = [""]
    for word in " ".join(plain(text).split()).split(" "):
        joined = f"{lines[-1]} {word}".lstrip()
        if cell_len(joined) <= width:
            lines[-1] = joined
            continue
        pieces = chop_cells(word, width)
        lines[-1:] = [lines[-1], *pieces] if lines[-1] else pieces
    return lines if len(lines) <= most else [*lines[: most - 1], cut(" ".join(lines[most - 1 :]), width)]


def seconds(length: float | None) -> str:
    """A duration as people read it: 3.1 s, 2 min 05 s, 1 h 02 min."""
    if length is None:
        return ""
    if length < 60:
        return f"{length:.1f} s"
    minutes, rest = divmod(round(length), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min"


def short(length: float) -> str:
    """A duration in a few cells, in whole seconds: 3s, 2m05s, 1h02m, 2d04h."""
    whole = max(0, int(length))
    for size, unit, rest, part in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if whole >= size:
            return f"{whole // size}{unit}{whole % size // rest:02}{part}"
    return f"{whole}s"


def local_time(time: datetime, now: datetime) -> str:
    """A moment on the wall clock: 21:04:31, and the day when it is not today."""
    here = time.astimezone()
    return f"{here:%H:%M:%S}" if here.date() == now.astimezone().date() else f"{here:%a %d %b %H:%M}"


def until_text(until: datetime, now: datetime) -> str:
    """When a wait ends: in 34s (21:05:00)."""
    left = (until - now).total_seconds()
    return f"in {short(left)} ({local_time(until, now)})" if left >= 1 else "now"


def counted(number: int, one: str, many: str | None = None) -> str:
    """A number with its noun: 1 task, 4,600 tasks."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
