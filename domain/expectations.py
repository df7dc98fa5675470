"""Whether an answer has what its task expects of it: plain conditions that need no second opinion."""

from __future__ import annotations

from domain.models import Expectation
from domain.problems import quoted

SHOWN = 20
"""Missing texts that are named, at most."""


def unmet(expected: Expectation, text: str) -> str | None:
    """What an answer lacks, in a sentence for whoever wrote it; None when it lacks nothing."""
    found = text.casefold()
    missing = [wanted for wanted in expected.mentions if wanted.casefold() not in found]
    words = len(text.split())
    lacks = []
    if missing:
        more = f" and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
        lacks.append(f"does not mention {', '.join(map(quoted, missing[:SHOWN]))}{more}")
    if words < expected.min_words:
        lacks.append(f"has {words:,} words, and must have at least {expected.min_words:,}")
    return f"The answer {' and '.join(lacks)}" if lacks else None
