"""The call ledger: what was going to be paid, and what came of it.

An intent is written before a request; after it, and before Temporal hears of it, the completion, or the setback that
it was. A second attempt finds the completion and pays nothing. An intent with neither may have been billed: it counts
at its worst case.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from activities.model import Completion
from domain.models import TaskError, Try, Usage, Value
from entries import NOBODY, Intent, Kept, Setback, step_key
from store import Store, StoreError

Covered = Callable[[], Awaitable[None]]
"""Raises when there is no money for one more call."""


@dataclass(frozen=True)
class Entry:
    """The place of one logical call: run, task, step and content."""

    run: str
    task: str
    step: int
    content: str

    @property
    def key(self) -> str:
        """Where it is in the store. The task's id is hashed: it may contain what a path must not."""
        return f"{step_key(self.run, self.task, self.step)}/{self.content.removeprefix('sha256:')}"


def custom_id(entry: Entry, number: int) -> str:
    """What the provider knows a request of a batch by: a hash of its place in the ledger, and which one it is."""
    return f"{hashlib.sha256(entry.key.encode()).hexdigest()[:40]}-{number}"


@dataclass(frozen=True)
class Setbacks:
    """The requests of a call that brought nothing."""

    all: tuple[Setback, ...] = ()
    known: bool = True
    """Whether these are all that there were, but for one in a batch: the store may not have answered."""
    open: bool = False
    """Whether a request is in a batch, of which nothing has come yet."""

    @property
    def whole(self) -> bool:
        """Whether these are all that there were."""
        return self.known and not self.open


class Landed(Value):
    """A completion, and the number of the request that brought it."""

    completion: Completion
    number: int
    overtaken: bool = False
    """Whether it is the word of another request, which came while ours was under way, and stands."""
    waited: float = 0.0
    """Seconds for which the call waited for its part of the quota. Known only to the attempt that made it."""
    at: datetime | None = None
    """When the request was made. Known only to the attempt that made it."""


class Damaged:
    """An entry that says that there was a request, and nothing else that could be believed."""


NOTHING = Usage()


class Ledger:
    """The entries of all calls, in the store that all workers share."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def landed(self, entry: Entry) -> Landed | None:
        """What the provider has already said to this call. Of what is damaged nothing is used."""
        try:
            found = await self._store.recorded(f"{entry.key}/completion")
            if found is None:
                return None
            kept = _sound(Kept.model_validate(found))
            text = (await self._store.artifact(kept.text_ref)).decode()
        except StoreError as error:
            raise _damaged(str(error)) from error
        except ValueError:  # also what pydantic says, which has the entry in it
            raise _damaged("it is not what we write") from None
        completion = Completion(text=text, usage=kept.usage, stop_reason=kept.stop_reason, batched=kept.batched)
        return Landed(completion=completion, number=kept.number)

    async def intend(self, entry: Entry, intent: Intent, covered: Covered | None = None) -> int:
        """Write down that a request is about to be made; gives its number. No two requests have the same one.

        `covered` raises when there is no money for it beside the calls that were intended before. It is asked again
        whenever somebody else was quicker, so that of two attempts at the last of the money one is refused.
        """
        number = 1
        while True:
            if covered is not None:
                await covered()
            if await self._store.record(f"{entry.key}/intent-{number}", intent.model_dump(mode="json")):
                return number
            number += 1

    async def open_batch(self, entry: Entry) -> tuple[int, Intent] | None:
        """The last intent, when it went into a batch of which nothing has come yet."""
        number, last = 0, None
        while (intent := await self._intent(entry, number + 1)) is not None:
            number, last = number + 1, intent
        if not isinstance(last, Intent) or last.batch is None or await self._told(entry, number) is not None:
            return None
        return number, last

    async def open_batches(self, run: str, task: str, step: int) -> list[tuple[Entry, int, Intent]]:
        """The calls of a step that went into a batch of which nothing has come yet."""
        keys = [key for key in await self._store.records(step_key(run, task, step)) if "/intent-" in key]
        contents = dict.fromkeys(key.rpartition("/")[0].rpartition("/")[2] for key in keys)
        entries = [Entry(run, task, step, content) for content in contents]
        found = [(entry, await self.open_batch(entry)) for entry in entries if await self._answered(entry) is None]
        return [(entry, *last) for entry, last in found if last is not None]

    async def complete(self, entry: Entry, completion: Completion, number: int) -> Landed:
        """Keep what the provider said. The first word stands, and is what everybody gets to hear."""
        text_ref = await self._store.put_artifact(completion.text.encode())
        kept = Kept(
            text_ref=text_ref,
            usage=completion.usage,
            stop_reason=completion.stop_reason,
            number=number,
            batched=completion.batched,
        )
        ours = Landed(completion=completion, number=number)
        if await self._store.record(f"{entry.key}/completion", kept.model_dump()):
            return ours
        first = await self.landed(entry)
        return ours if first is None else first.model_copy(update={"overtaken": True})

    async def fail(self, entry: Entry, number: int, setback: Setback) -> None:
        """Keep what a request came to that brought no answer. The first word stands."""
        await self._store.record(f"{entry.key}/setback-{number}", setback.model_dump(mode="json"))

    async def setbacks(
        self,
        entry: Entry,
        *,
        start: str,
        attempt: int,
        but: int | None = None,
        worst: Usage = NOTHING,
        over: bool = False,
    ) -> Setbacks:
        """The requests before this attempt that brought nothing, in order; `but` is one that is told of elsewhere.

        The one that brought the completion is none of them, whoever died before it could be handed on.
        One of this very start that nobody told of was lost with its worker, and is written down as that. One of an
        earlier start was cut off when its worker was stopped, and so is one of this very attempt when that is `over`;
        until then it may still be under way. Of one whose entry is damaged nobody knows what it came to: it counts at
        `worst`, the same for all requests of a call.
        """
        found: list[Setback] = []
        answered = await self._answered(entry)
        known, open = answered in {None, but}, False
        number = 0
        while (intent := await self._intent(entry, number := number + 1)) is not None:
            told = await self._told(entry, number)
            if number in {but, answered}:
                # An earlier start has told of it as lost, and it was answered after all: the books know both.
                known = known and (told is None or told.start == start)
            elif told is not None:
                found.append(told)
            elif isinstance(intent, Damaged):
                found.append(_unknown(worst))
            elif intent.batch is not None:
                open = True  # the provider has it, or whoever looks finds out that it has not
            elif intent.start != start:
                found.append(_cut_off(intent, told_by=NOBODY))
            elif intent.attempt < attempt or over:
                found.append(_lost(intent) if intent.attempt < attempt else _cut_off(intent, told_by=start))
                await self.fail(entry, number, found[-1])
            else:
                known = False
        return Setbacks(tuple(found), known=known, open=open)

    async def _answered(self, entry: Entry) -> int | None:
        """The number of the request that was answered. Of a damaged entry nobody knows."""
        try:
            found = await self._store.recorded(f"{entry.key}/completion")
            return None if found is None else Kept.model_validate(found).number
        except (StoreError, ValueError):
            return None

    async def _intent(self, entry: Entry, number: int) -> Intent | Damaged | None:
        try:
            written = await self._store.recorded(f"{entry.key}/intent-{number}")
            return None if written is None else Intent.model_validate(written)
        except (StoreError, ValueError):
            return Damaged()

    async def _told(self, entry: Entry, number: int) -> Setback | None:
        """What a request came to. A word that is damaged is none: the request counts at its worst case."""
        try:
            written = await self._store.recorded(f"{entry.key}/setback-{number}")
            return None if written is None else Setback.model_validate(written)
        except (StoreError, ValueError):
            return None


def _sound(kept: Kept) -> Kept:
    """The entry, when its figures can be: nobody is ever paid for a call."""
    if min(kept.usage.model_dump().values()) < 0:
        raise ValueError
    return kept


def _damaged(how: str) -> StoreError:
    return StoreError(
        f"the answer to this call was paid, but is damaged in the store ({how}): nothing of it is used, and it is not "
        "asked again by itself; have the task done again by `retry`"
    )


def _unknown(worst: Usage) -> Setback:
    error = TaskError(type="EntryDamaged", message="what the ledger has of this request is damaged", retryable=True)
    return Setback(told=Try(attempt=0, error=error, at=datetime.now(UTC), unsettled=worst), start=NOBODY, used=False)


def _lost(intent: Intent) -> Setback:
    return _untold(intent, "WorkerLost", "the worker was lost", used=True)


def _cut_off(intent: Intent, *, told_by: str) -> Setback:
    untold = _untold(intent, "WorkerStopped", "the worker was stopped", used=False)
    return untold.model_copy(update={"start": told_by})


def _untold(intent: Intent, type: str, what: str, *, used: bool) -> Setback:
    message = f"{what}, attempt {intent.attempt} of {intent.attempts}"
    error = TaskError(type=type, message=message, attempt=intent.attempt, retryable=True)
    model = intent.model if intent.aside else None
    told = Try(attempt=intent.attempt, error=error, at=intent.at, unsettled=intent.worst, model=model)
    return Setback(told=told, start=intent.start, used=used)
