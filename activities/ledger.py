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

from pydantic import Field

from activities.model import Completion
from domain.models import TaskError, Try, Usage, Value
from store import REF, Store, StoreError

Covered = Callable[[], Awaitable[None]]
"""Raises when there is no money for one more call."""


def step_key(run: str, task: str, step: int) -> str:
    """Where the calls of one step of a task are."""
    return f"{run}/{hashlib.sha256(task.encode()).hexdigest()[:32]}/{step}"


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


class Intent(Value):
    """A request that is about to be made: by whom, and what it may cost at most."""

    run: str
    task: str
    step: int
    start: str = ""
    """Which start of the task: the run id of its workflow. A task that was parked is started again."""
    attempt: int
    attempts: int = 0
    model: str
    max_tokens: int
    worst: Usage = Usage()
    at: datetime
    aside: bool = False
    """Whether it is for a call beside that of the agent: for a summary."""
    batch: str | None = None
    """The batch in which it goes, by our own name for it; none for a call."""


class Setback(Value):
    """A request that brought no answer, or none that is known of."""

    told: Try
    start: str
    used: bool = True
    """Whether it used an attempt of its task. A wall uses none, nor does a worker that is stopped."""
    output_ref: str | None = None
    """What there was of an answer that was called off."""
    output_bytes: int = 0


@dataclass(frozen=True)
class Setbacks:
    """The requests of a call that brought nothing."""

    all: tuple[Setback, ...] = ()
    whole: bool = True
    """Whether these are all that there were: one may still be under way, or the store did not answer."""


class Kept(Value):
    """What is written down of a completion. Its text is beside it, by hash."""

    text_ref: str = Field(pattern=f"^{REF.pattern}$")
    usage: Usage
    stop_reason: str
    number: int = Field(default=1, ge=1)
    batched: bool = False


class Landed(Value):
    """A completion, and the number of the request that brought it."""

    completion: Completion
    number: int
    overtaken: bool = False
    """Whether it is the word of another request, which came while ours was under way, and stands."""
    waited: float = 0.0
    """Seconds for which the call waited for its part of the quota. Known only to the attempt that made it."""


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
        self, entry: Entry, *, start: str, attempt: int, but: int | None = None, worst: Usage = NOTHING
    ) -> Setbacks:
        """The requests before this attempt that brought nothing, in order; `but` is one that is told of elsewhere.

        The one that brought the completion is none of them, whoever died before it could be handed on.
        One of this very start that nobody told of was lost with its worker, and is written down as that. One of an
        earlier start was cut off when its worker was stopped. One of this very attempt may still be under way. Of one
        whose entry is damaged nobody knows what it came to: it counts at `worst`, the same for all requests of a call.
        """
        found: list[Setback] = []
        answered = await self._answered(entry)
        whole = answered in {None, but}
        number = 0
        while (intent := await self._intent(entry, number := number + 1)) is not None:
            if number in {but, answered}:
                continue
            if (told := await self._told(entry, number)) is not None:
                found.append(told)
            elif isinstance(intent, Damaged):
                found.append(_unknown(worst))
            elif intent.batch is not None:
                whole = False  # it is open: the provider has it, or whoever looks finds out that it has not
            elif intent.start != start:
                found.append(_cut_off(intent))
            elif intent.attempt < attempt:
                found.append(_lost(intent))
                await self.fail(entry, number, found[-1])
            else:
                whole = False
        return Setbacks(tuple(found), whole=whole)

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
    return Setback(told=Try(attempt=0, error=error, at=datetime.now(UTC), unsettled=worst), start="", used=False)


def _lost(intent: Intent) -> Setback:
    return _untold(intent, "WorkerLost", "the worker was lost", used=True)


def _cut_off(intent: Intent) -> Setback:
    return _untold(intent, "WorkerStopped", "the worker was stopped", used=False)


def _untold(intent: Intent, type: str, what: str, *, used: bool) -> Setback:
    message = f"{what}, attempt {intent.attempt} of {intent.attempts}"
    error = TaskError(type=type, message=message, attempt=intent.attempt, retryable=True)
    model = intent.model if intent.aside else None
    told = Try(attempt=intent.attempt, error=error, at=intent.at, unsettled=intent.worst, model=model)
    return Setback(told=told, start=intent.start, used=used)
