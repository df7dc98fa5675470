"""Text from models, users and providers, made safe for a terminal."""

from __future__ import annotations

import unicodedata

KEPT = "\n\t"
REMOVED = {"Cc", "Cf", "Cs"}


def plain(text: str) -> str:
    """The text without control characters, escape sequences' beginnings and marks that change the direction."""
    return "".join(letter for letter in text if letter in KEPT or unicodedata.category(letter) not in REMOVED)


def one_line(text: str, width: int = 100) -> str:
    """The text on one line, cut to a width."""
    line = " ".join(plain(text).split())
    return line if len(line) <= width else f"{line[: width - 1]}…"


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
