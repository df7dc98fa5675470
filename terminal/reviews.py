"""The words of reviewers: they are in the store, and a person who looks at a task reads them there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from client import RunClient
from domain.opinions import opinion_of
from domain.report import TaskReport
from store import StoreError


async def words_of_reviews(client: RunClient, task: TaskReport) -> list[str | None]:
    """Why each review was as it was, in their order; nothing of one whose words are not there any more."""
    return [await _why(client, review.ref) for review in task.reviews]


def with_words(document: dict[str, Any], words: Sequence[str | None]) -> dict[str, Any]:
    """The document of a task with the words of its reviews beside their verdicts."""
    if not words:
        return document
    reviews = [{**review, "why": why} for review, why in zip(document["reviews"], words, strict=True)]
    return {**document, "reviews": reviews}


async def _why(client: RunClient, ref: str | None) -> str | None:
    if ref is None:
        return None
    try:
        opinion = opinion_of(await client.text(ref))
    except StoreError:
        return None
    return opinion.why if opinion is not None else None
