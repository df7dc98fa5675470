"""The names that a goal lists: lines with marks, what stands after a colon, or proper names in a row. By form alone."""

from __future__ import annotations

import re

LONGEST = 60
"""Characters of a name. What is longer is a sentence."""

WORDS = 4
"""Words of a name."""

READ = 4_000
"""Characters of a goal that are looked through: enough for a list, and little for patterns that look twice."""

_LINE = re.compile(r"^\s*(?:[-*•]|\d{1,3}[.)])\s+(.+?)[\s.,;]*$", re.MULTILINE)
_AFTER_COLON = re.compile(r":\s+([^:?!;\n]+?)(?:[.?!;](?:\s|$)|\n|$)")
_WORD = r"[A-Z][\w'-]{0,40}"
_PROPER = rf"{_WORD}(?: (?:(?:of|on|upon|am|de|la|the) )?{_WORD}){{0,3}}"
_IN_A_ROW = re.compile(rf"{_PROPER}(?:, {_PROPER})+,? (?:and|or|&) {_PROPER}|{_PROPER}(?:, {_PROPER}){{2,}}")
_BETWEEN = re.compile(r",?\s+(?:and|or|&)\s+|,\s*")
_VERB = re.compile(r"(?:Ask|Check|Compare|Describe|Find|List|Name|Rank|Research|Review|Summari[sz]e|Visit|Weigh) ")


def names_in(goal: str) -> list[str]:
    """The names that a goal lists, each once; none when it lists nothing that can be told apart.

    Of several lists it is the longest: proper names in a row may be the end of one that has others, too.
    """
    goal = goal[:READ]
    rows = [match[0] for match in _IN_A_ROW.finditer(goal)] + [match[1] for match in _AFTER_COLON.finditer(goal)]
    lists = [_LINE.findall(goal), *(_BETWEEN.split(_VERB.sub("", row, count=1)) for row in rows)]
    return max(map(_names, lists), key=len)


def _names(pieces: list[str]) -> list[str]:
    """The pieces, when each of them can be a name."""
    names = list(dict.fromkeys(piece.strip() for piece in pieces if piece.strip()))
    return names if len(names) > 1 and all(map(_is_name, names)) else []


def _is_name(text: str) -> bool:
    return len(text) <= LONGEST and len(text.split()) <= WORDS and not set(text) & set("[]{}")
