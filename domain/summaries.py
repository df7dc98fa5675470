"""Summaries: what one may be long, how an answer is parted from its own, and what goes down where there is none.

A result that fans out goes down as a summary. Its agent is asked to close its answer with one, below a line that
nobody else can know. A short text is its own summary. Only where neither is so another call makes one.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from domain.cutting import NOTE_BYTES, shorten

SUMMARY_BYTES = 600
"""A summary has at most 200 tokens. Nobody here can count a provider's tokens; prose has three bytes and more to each
of them, in most languages, so 600 bytes are at most about 200."""

SUMMARY_WORDS = 80
"""What agents are asked for, as models count words and not bytes: English prose of 80 words has about 500 bytes."""

SUMMARIZER = "summarizer"
"""The agent that makes summaries, when a registry or a plan has one of this name."""


class Parted(NamedTuple):
    """An answer without its summary, and the summary when it can be used."""

    text: str
    summary: str | None
    closed: bool
    """Whether the line above a summary was written: the text before it is whole, also when what follows is not."""


def parted(answer: str, mark: str | None) -> Parted:
    """The answer of an agent that was asked to close it with a summary below this mark.

    Nothing that was said is lost. A summary that is too long to be one stays in the text, because it may be the text:
    of an agent that wrote the mark too early. An answer that is nothing but a summary is the text.
    """
    if mark is None:
        return Parted(answer, None, closed=False)
    opening = rf"^[ \t`*_>#]*{re.escape(mark)}[ \t`*_]*"
    first, *pieces = re.split(opening, answer, flags=re.MULTILINE)
    if not pieces:
        text = _before_the_beginning_of(mark, answer)
        return Parted(answer if text is None else text, None, closed=bool(text))
    pieces[-1] = re.sub(r"</summary[^<>\n]*>\s*`*\s*$", "", pieces[-1])
    told = [piece for piece in (first.rstrip(), *(piece.strip() for piece in pieces)) if piece]
    if len(told) < 2:
        return Parted("".join(told), None, closed=bool(first.strip()))
    *texts, summary = told
    if len(summary.encode()) > SUMMARY_BYTES:
        return Parted("\n\n".join(told), None, closed=False)
    return Parted("\n\n".join(texts), summary, closed=True)


def is_its_own(text: str) -> bool:
    """Whether a text is short enough to go down as it is."""
    return len(text.encode()) <= SUMMARY_BYTES


def beginning(text: str) -> str:
    """The beginning of a text in place of its summary, with a note of what is missing."""
    return text if is_its_own(text) else shorten(text, SUMMARY_BYTES - NOTE_BYTES)


def _before_the_beginning_of(mark: str, answer: str) -> str | None:
    """What stands before the mark in an answer that breaks off within it, as one that was cut may."""
    text, _, last = answer.rpartition("\n")
    return text.rstrip() if last.startswith("<summary") and mark.startswith(last) else None
