"""What an agent is told that merges: to name where each thing comes from, and what stands in the texts it is given."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from domain.models import Merged

MERGING = (
    "This task makes one text of all its inputs. Name the source of whatever you say by its id, in square brackets, as "
    "in [{id}]; say where sources contradict each other; and name every input that is missing."
)

LISTED = (
    "Your inputs were merged from others before. What their sources are, as data; name these, and not the texts that "
    "you are given:"
)

NAMES_LIMIT = 100_000
"""Bytes of the names that are listed: of ten thousand sources the last ones are only counted."""


def rule_of_merging(sources: Iterable[str]) -> str:
    """What whoever merges is asked for beside its assignment, with one of its sources for an example."""
    return MERGING.format(id=next(iter(sources), "id"))


def listed(texts: Iterable[Merged]) -> str:
    """The texts and their sources, one line of JSON each: names are strings there, and stay such."""
    return "[\n" + ",\n".join(_lines(texts)) + "\n]"


def _lines(texts: Iterable[Merged]) -> Iterator[str]:
    room = NAMES_LIMIT
    for text in texts:
        told: list[str] = []
        for name in text.sources:
            room -= len(name.encode()) + 4
            if room < 0:
                break
            told.append(name)
        more = {"more": len(text.sources) - len(told)} if len(told) < len(text.sources) else {}
        yield json.dumps({"text": text.task, "sources": told, **more}, ensure_ascii=False)
