"""Texts that are too long together: how much of each is kept, and how the cut is told."""

from __future__ import annotations

NOTE_BYTES = 80
"""What the note of a cut has at most, for texts of any size."""


def fair_share(sizes: list[int], limit: int) -> int:
    """The size at which to cut so that all fit the limit together: short ones stay whole, long ones share the rest."""
    left = limit
    for count, size in enumerate(sorted(sizes)):
        share = left // (len(sizes) - count)
        if size > share:
            return share
        left -= size
    return limit


def shorten(text: str, limit: int) -> str:
    """The text, cut to so many bytes with a note of how much is missing."""
    raw = text.encode()
    if len(raw) <= limit:
        return text
    kept = raw[:limit].decode(errors="ignore")
    return f"{kept}\n[cut here: {len(raw) - limit} of {len(raw)} bytes are left out]"
