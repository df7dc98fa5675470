"""The call ledger: what was going to be paid, and what came of it.

An intent is written before a request; after it, and before Temporal hears of it, the completion, or the setback that
it was. A second attempt finds the completion and pays nothing. An intent with neither may have been billed: it counts
at its worst case.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from activities.model import Completion
from domain.models import Account, Spent, TaskError, Try, Usage, Value
from store import Store

Covers = Callable[[Sequence[Spent]], None]
"""Raises when there is no money for a call beside these."""


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
        completion = Completion(text=text, usage=usage, stop_reason=found["stop_reason"])
        return Landed(completion=completion, number=found.get("number", 1))

    async def intend(self, entry: Entry, intent: Intent, covers: Covers | None = None) -> int:
        """Write down that a request is about to be made; gives its number. No two requests have the same one.

        `covers` says whether there is money for it beside the calls that were intended before. It is asked again
        whenever somebody else was quicker, so that of two attempts at the last of the money one is refused.
        """
        number = 1
        while True:
            if covers is not None:
                covers(await self.calls(intent.run, intent.task, intent.step))
            if await self._store.record(f"{entry.key}/intent-{number}", intent.model_dump(mode="json")):
                return number
            number += 1

    async def calls(self, run: str, task: str, step: int) -> tuple[Spent, ...]:
        """Every call of a step of a task: what it used; at its worst case while nobody has told."""
        return tuple([spent for _, spent, _ in await self._lines(run, task, step)])

    async def account(self, run: str, task: str, step: int) -> Account:
        """All that is known of a step of a task."""
        lines = await self._lines(run, task, step)
        cut = [setback for _, _, setback in lines if setback is not None and setback.output_ref is not None]
        return Account(
            calls=tuple(spent for _, spent, _ in lines),
            attempts=max((intent.attempt for intent, _, _ in lines), default=0),
            output_ref=cut[-1].output_ref if cut else None,
            output_bytes=cut[-1].output_bytes if cut else 0,
        )

    async def _lines(self, run: str, task: str, step: int) -> list[tuple[Intent, Spent, Setback | None]]:
        """What was intended, in order, and what came of it."""
        names: dict[str, set[str]] = {}
        for key in await self._store.records(step_key(run, task, step)):
            content, _, name = key.rpartition("/")
            names.setdefault(content, set()).add(name)
        found: list[tuple[Intent, Spent, Setback | None]] = []
        for content, there in names.items():
            answer = await self._store.recorded(f"{content}/completion") if "completion" in there else None
            for number in sorted(int(name.removeprefix("intent-")) for name in there if name.startswith("intent-")):
                if (written := await self._store.recorded(f"{content}/intent-{number}")) is None:
                    continue
                intent = Intent.model_validate(written)
                told = await self._store.recorded(f"{content}/setback-{number}")
                setback = Setback.model_validate(told) if told is not None else None
                answered = answer is not None and answer.get("number", 1) == number
                found.append((intent, _spent(intent, answer if answered else None, setback), setback))
        return sorted(found, key=lambda line: line[0].at)

    async def complete(self, entry: Entry, completion: Completion, number: int) -> None:
        """Keep what the provider said. The first word stands."""
        text_ref = await self._store.put_artifact(completion.text.encode())
        usage = completion.usage.model_dump()
        found = {"text_ref": text_ref, "usage": usage, "stop_reason": completion.stop_reason, "number": number}
        await self._store.record(f"{entry.key}/completion", found)

    async def fail(self, entry: Entry, number: int, setback: Setback) -> None:
        """Keep what a request came to that brought no answer. The first word stands."""
        await self._store.record(f"{entry.key}/setback-{number}", setback.model_dump(mode="json"))

    async def setbacks(self, entry: Entry, *, start: str, attempt: int, but: int | None = None) -> Setbacks:
        """The requests before this attempt that brought nothing, in order; `but` is one that is told of elsewhere.

        One of this very start that nobody told of was lost with its worker, and is written down as that. One of an
        earlier start was cut off when its worker was stopped. One of this very attempt may still be under way.
        """
        whole = True
        found: list[Setback] = []
        number = 0
        while (written := await self._store.recorded(f"{entry.key}/intent-{(number := number + 1)}")) is not None:
            if number == but:
                continue
            intent = Intent.model_validate(written)
            told = await self._store.recorded(f"{entry.key}/setback-{number}")
            if told is not None:
                found.append(Setback.model_validate(told))
            elif intent.start != start:
                found.append(_cut_off(intent))
            elif intent.attempt < attempt:
                found.append(_lost(intent))
                await self.fail(entry, number, found[-1])
            else:
                whole = False
        return Setbacks(tuple(found), whole=whole)


def _spent(intent: Intent, answer: dict[str, Any] | None, setback: Setback | None) -> Spent:
    if answer is not None:
        return Spent(model=intent.model, usage=Usage.model_validate(answer["usage"]))
    if setback is not None:
        return Spent(model=intent.model, usage=setback.told.usage, unsettled=setback.told.unsettled)
    return Spent(model=intent.model, unsettled=intent.worst)


def _lost(intent: Intent) -> Setback:
    return _untold(intent, "WorkerLost", "the worker was lost", used=True)


def _cut_off(intent: Intent) -> Setback:
    return _untold(intent, "WorkerStopped", "the worker was stopped", used=False)


def _untold(intent: Intent, type: str, what: str, *, used: bool) -> Setback:
    message = f"{what}, attempt {intent.attempt} of {intent.attempts}"
    error = TaskError(type=type, message=message, attempt=intent.attempt, retryable=True)
    told = Try(attempt=intent.attempt, error=error, at=intent.at, unsettled=intent.worst)
    return Setback(told=told, start=intent.start, used=used)
