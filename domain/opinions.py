"""What a reviewer says of an answer, read off the review."""

from __future__ import annotations

from domain.json_schema import NotJsonError, value_of, violations
from domain.reviewing import SCHEMA
from domain.values import Value


class Opinion(Value):
    """What a reviewer says of an answer."""

    accept: bool
    why: str


def opinion_of(text: str) -> Opinion | None:
    """What a review says; nothing when it is none, which is not to accept."""
    try:
        value = value_of(text)
    except NotJsonError:
        return None
    return None if any(violations(value, SCHEMA)) else Opinion.model_validate(value)
