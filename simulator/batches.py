"""Message batches as the provider keeps them: taken at once, worked on later, read by whoever has the id.

They live in memory, like the cache and the buckets: a simulator that is started again knows none of them. Only the
bill outlives it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import BaseModel, Field, JsonValue, ValidationError

from simulator.messages import Json
from simulator.prompt import InvalidRequestError

MOST_REQUESTS = 100_000
EXPIRE_AFTER = timedelta(hours=24)
_CUSTOM_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class _Request(BaseModel):
    custom_id: str = Field(pattern=_CUSTOM_ID.pattern)
    params: dict[str, Any]


class _Body(BaseModel):
    requests: list[_Request] = Field(min_length=1, max_length=MOST_REQUESTS)


def read_batch(document: object) -> dict[str, dict[str, Any]]:
    """The params of each request by its custom id. What is wrong inside them is found when they are worked on."""
    try:
        requests = _Body.model_validate(document).requests
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        raise InvalidRequestError(f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}") from error
    for custom_id, count in Counter(request.custom_id for request in requests).items():
        if count > 1:
            raise InvalidRequestError(f"requests: custom_id {custom_id!r} is not unique")
        if not _CUSTOM_ID.fullmatch(custom_id):
            raise InvalidRequestError(f"requests: custom_id {custom_id!r} is not 1 to 64 of a-z, A-Z, 0-9, _ and -")
    return {request.custom_id: request.params for request in requests}


@dataclass
class Batch:
    """One batch. It has results when it has ended, and not before."""

    id: str
    requests: Mapping[str, dict[str, Any]]
    began: float
    created: datetime
    cancelled: datetime | None = None
    ended: datetime | None = None
    results: dict[str, Json] = field(default_factory=dict)
    worked: bool = False
    """Whether its time has come: every request that can be done is done."""

    def document(self, base: str) -> Json:
        """The batch as the API shows it; `base` is where its results are served."""
        counts = Counter(str(result["type"]) for result in self.results.values())
        waiting = 0 if self.ended else len(self.requests)
        kinds = ("succeeded", "errored", "canceled", "expired")
        shown: dict[str, JsonValue] = {kind: counts[kind] if self.ended else 0 for kind in kinds}
        status = "ended" if self.ended else "canceling" if self.cancelled else "in_progress"
        return {
            "id": self.id,
            "type": "message_batch",
            "processing_status": status,
            "request_counts": {"processing": waiting, **shown},
            "created_at": _stamp(self.created),
            "expires_at": _stamp(self.created + EXPIRE_AFTER),
            "cancel_initiated_at": _stamp(self.cancelled),
            "ended_at": _stamp(self.ended),
            "archived_at": None,
            "results_url": f"{base}/{self.id}/results" if self.ended else None,
        }

    def lines(self) -> Iterator[Json]:
        """The results, one to a line, last first: nobody may count on an order."""
        return ({"custom_id": id, "result": result} for id, result in reversed(self.results.items()))


class Batches:
    """All batches, in the order in which they were made."""

    def __init__(self) -> None:
        self._all: dict[str, Batch] = {}

    def make(self, requests: Mapping[str, dict[str, Any]], *, now: float, at: datetime) -> Batch:
        """Take a batch. The same requests again are another batch: the API knows no idempotency key."""
        id = f"msgbatch_simulated_{len(self._all) + 1:08d}"
        self._all[id] = Batch(id, requests, began=now, created=at)
        return self._all[id]

    def find(self, id: str) -> Batch | None:
        """The batch of this id."""
        return self._all.get(id)

    def cancel(self, batch: Batch, at: datetime) -> None:
        """What was not worked on will not be. It has not ended yet: that is seen at a later look."""
        if batch.ended:
            raise InvalidRequestError(f"Batch {batch.id} has ended and cannot be canceled")
        batch.cancelled = batch.cancelled or at

    def page(self, *, limit: int, after: str | None, before: str | None) -> tuple[list[Batch], bool]:
        """A page, newest first, and whether there is more that way: older than `after`, or newer than `before`."""
        ids = [*reversed(self._all)]
        for cursor in (after, before):
            if cursor is not None and cursor not in self._all:
                raise InvalidRequestError(f"There is no batch {cursor!r}")
        if before is not None:
            newer = ids[: ids.index(before)]
            chosen, rest = newer[-limit:], newer[:-limit]
        else:
            older = ids[ids.index(after) + 1 :] if after is not None else ids
            chosen, rest = older[:limit], older[limit:]
        return [self._all[id] for id in chosen], bool(rest)

    def work(
        self,
        seconds: float | None,
        *,
        now: float,
        at: datetime,
        do: Callable[[Batch, str, dict[str, Any]], Json | None],
    ) -> None:
        """Work on the batches whose time has come; `do` makes the result of one request, once, or none that comes.

        What is done stays done when the batch is cancelled, and is billed; the others are cancelled. A batch ends when
        it has a result for every request.
        """
        for batch in self._open():
            if batch.cancelled:
                batch.results |= {id: {"type": "canceled"} for id in batch.requests if id not in batch.results}
            elif not batch.worked and seconds is not None and now >= batch.began + seconds:
                batch.worked = True
                done = {id: do(batch, id, params) for id, params in batch.requests.items()}
                batch.results |= {id: result for id, result in done.items() if result is not None}
            if len(batch.results) == len(batch.requests):
                batch.ended = at

    def next_end(self, seconds: float | None) -> float | None:
        """When the next batch has to be worked on, unless something happens before."""
        if seconds is None:
            return None
        return min((batch.began + seconds for batch in self._open() if not batch.worked), default=None)

    def _open(self) -> list[Batch]:
        return [batch for batch in self._all.values() if batch.ended is None]


def _stamp(time: datetime | None) -> str | None:
    return None if time is None else time.astimezone(UTC).isoformat().replace("+00:00", "Z")
