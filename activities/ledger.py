"""The call ledger: what was going to be paid, and what came of it.

An intent is written before a request; after it, and before Temporal hears of it, the completion, or the setback that
it was. A second attempt finds the completion and pays nothing. An intent with neither may have been billed: it counts
at its worst case.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime

from activities.model import Completion
from domain.models import TaskError, Try, Usage, Value
from store import Store


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
        task = hashlib.sha256(self.task.encode()).hexdigest()[:32]
        return f"{self.run}/{task}/{self.step}/{self.content.removeprefix('sha256:')}"


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
    batch: str | None = None
    """The batch in which it goes, by our own name for it; none for a call."""


class Setback(Value):
    """A request that brought no answer, or none that is known of."""

    told: Try
    start: str
    used: bool = True
    """Whether it used an attempt of its task. A wall uses none, nor does a worker that is stopped."""


class Landed(Value):
    """A completion, and the number of the request that brought it."""

    completion: Completion
    number: int
    waited: float = 0.0
    """Seconds for which the call waited for its part of the quota. Known only to the attempt that made it."""


class Ledger:
    """The entries of all calls, in the store that all workers share."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def landed(self, entry: Entry) -> Landed | None:
        """What the provider has already said to this call."""
        found = await self._store.recorded(f"{entry.key}/completion")
        if found is None:
            return None
        text = (await self._store.artifact(found["text_ref"])).decode()
        usage = Usage.model_validate(found["usage"])
        batched = found.get("batched", False)
        completion = Completion(text=text, usage=usage, stop_reason=found["stop_reason"], batched=batched)
        return Landed(completion=completion, number=found.get("number", 1))

    async def intend(self, entry: Entry, intent: Intent) -> int:
        """Write down that a request is about to be made; gives its number. No two requests have the same one."""
        number = 1
        while not await self._store.record(f"{entry.key}/intent-{number}", intent.model_dump(mode="json")):
            number += 1
        return number

    async def open_batch(self, entry: Entry) -> tuple[int, Intent] | None:
        """The last intent, when it went into a batch of which nothing has come yet."""
        number, last = 0, None
        while (written := await self._store.recorded(f"{entry.key}/intent-{number + 1}")) is not None:
            number, last = number + 1, Intent.model_validate(written)
        if last is None or last.batch is None or await self._store.recorded(f"{entry.key}/setback-{number}"):
            return None
        return number, last

    async def complete(self, entry: Entry, completion: Completion, number: int) -> None:
        """Keep what the provider said. The first word stands."""
        text_ref = await self._store.put_artifact(completion.text.encode())
        usage = completion.usage.model_dump()
        found = {"text_ref": text_ref, "usage": usage, "stop_reason": completion.stop_reason, "number": number}
        found |= {"batched": True} if completion.batched else {}
        await self._store.record(f"{entry.key}/completion", found)

    async def fail(self, entry: Entry, number: int, setback: Setback) -> None:
        """Keep what a request came to that brought no answer. The first word stands."""
        await self._store.record(f"{entry.key}/setback-{number}", setback.model_dump(mode="json"))

    async def setbacks(self, entry: Entry, *, start: str, attempt: int, but: int | None = None) -> tuple[Setback, ...]:
        """The requests before this attempt that brought nothing, in order; `but` is one that is told of elsewhere.

        One of this very start that nobody told of was lost with its worker, and is written down as that. One of an
        earlier start was cut off when its worker was stopped.
        """
        found: list[Setback] = []
        number = 0
        while (written := await self._store.recorded(f"{entry.key}/intent-{(number := number + 1)}")) is not None:
            if number == but:
                continue
            intent = Intent.model_validate(written)
            told = await self._store.recorded(f"{entry.key}/setback-{number}")
            if told is not None:
                found.append(Setback.model_validate(told))
            elif intent.batch is not None:
                continue  # it is open: the provider has it, or whoever looks finds out that it has not
            elif intent.start != start:
                found.append(_cut_off(intent))
            elif intent.attempt < attempt:
                found.append(_lost(intent))
                await self.fail(entry, number, found[-1])
        return tuple(found)


def _lost(intent: Intent) -> Setback:
    return _untold(intent, "WorkerLost", "the worker was lost", used=True)


def _cut_off(intent: Intent) -> Setback:
    return _untold(intent, "WorkerStopped", "the worker was stopped", used=False)


def _untold(intent: Intent, type: str, what: str, *, used: bool) -> Setback:
    message = f"{what}, attempt {intent.attempt} of {intent.attempts}"
    error = TaskError(type=type, message=message, attempt=intent.attempt, retryable=True)
    told = Try(attempt=intent.attempt, error=error, at=intent.at, unsettled=intent.worst)
    return Setback(told=told, start=intent.start, used=used)
