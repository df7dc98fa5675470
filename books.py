"""The books: what the calls of one step of a task have cost, as the ledger has it, whoever made them.

A task that ends normally tells that itself. They are asked when it could not, and before a call that must be covered;
of a whole run, when that was ended from outside and is looked at or done again, or when somebody asks what it did.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from domain.models import Account, Call, Spent
from entries import NEVER_SENT, NOBODY, Intent, Kept, Setback, step_key, task_key
from store import Store, StoreError

CLOSED = "closed"
"""The entry that says that the account of a step, or of a whole run, was made up."""

AT_ONCE = 32
"""Calls whose entries are read at the same time, and tasks whose calls are looked for one by one."""

NOBODY_KNOWS = "WorkerLost"
"""Why a request brought no answer of which nobody wrote down what it came to."""

Entry = TypeVar("Entry", Intent, Kept, Setback)


@dataclass(frozen=True)
class Line:
    """A request that was intended, what it has used, and how it was cut short, if it was."""

    place: str
    """Where its call is in the ledger."""
    number: int
    """Which request of that call it is."""
    intent: Intent
    spent: Spent
    setback: Setback | None
    answer: Kept | None

    @property
    def is_answered(self) -> bool:
        """Whether the answer to it is the one that stands."""
        return self.answer is not None

    @property
    def is_settled(self) -> bool:
        """Whether it is known what came of it."""
        return self.answer is not None or self.setback is not None

    @property
    def start(self) -> str:
        """The start of the task that it counts for."""
        return self.intent.start if self.setback is None else self.setback.start

    @property
    def attempt(self) -> int:
        """Which attempt of the task it was."""
        return self.intent.attempt if self.setback is None else self.setback.told.attempt

    @property
    def used_an_attempt(self) -> bool:
        """Whether it was in vain, as far as anybody knows."""
        if self.is_answered:
            return False
        return self.setback.used if self.setback is not None else self.intent.batch is None

    @property
    def was_sent(self) -> bool:
        """Whether the provider was asked, as far as anybody knows."""
        return self.is_answered or self.setback is None or self.setback.told.error.type not in NEVER_SENT

    @property
    def call(self) -> Call:
        """It as the trail tells of it."""
        error = None
        if self.answer is None:
            error = NOBODY_KNOWS if self.setback is None else self.setback.told.error.type
        return Call(
            prompt=f"sha256:{self.place.rpartition('/')[2]}",
            number=self.number,
            attempt=self.attempt,
            agent=self.intent.agent,
            model=self.intent.model,
            at=self.intent.at,
            usage=self.spent.usage,
            unsettled=self.spent.unsettled,
            answer=self.answer.text_ref if self.answer is not None else None,
            error=error,
            reads=self.intent.reads,
            batched=self.spent.batched or self.intent.batch is not None,
        )


class Books:
    """Reads what the ledger keeps of a step: intents, and what came of them."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def calls(self, run: str, task: str, step: int) -> tuple[Spent, ...]:
        """Every call of a step: what it used; at its worst case while nobody has told."""
        return tuple([line.spent for line in await self._lines(step_key(run, task, step))])

    async def in_vain(self, run: str, task: str, step: int, start: str) -> list[Line]:
        """The calls of one start of a task that used an attempt: those that failed, and those that were lost.

        What went into a batch is not lost with the worker that sent it; it belongs to the start that hears its end.
        """
        lines = await self._lines(step_key(run, task, step))
        return [line for line in lines if line.start == start and line.used_an_attempt]

    async def told_in_passing(self, run: str, task: str, step: int, start: str) -> tuple[Call, ...]:
        """The requests that a start of a task tells of which has not come to an end: its own, in vain."""
        lines = await self._lines(step_key(run, task, step))
        return tuple(
            line.call
            for line in lines
            if line.was_sent and not line.is_answered and line.setback is not None and line.start == start
        )

    async def told_at_the_end(self, run: str, task: str, step: int, start: str) -> tuple[Call, ...]:
        """The requests that the last start of a task tells of: its own, the answer, and what no earlier one told.

        One of an earlier start without a word was cut off with its worker. One of a batch may still be answered.
        """
        lines = await self._lines(step_key(run, task, step))

        def is_told_now(line: Line) -> bool:
            if line.setback is None:
                return line.is_answered or (line.intent.start != start and line.intent.batch is None)
            return line.is_answered or line.start in {start, NOBODY}

        return tuple(line.call for line in lines if line.was_sent and is_told_now(line))

    async def calls_of_run(self, run: str) -> dict[str, tuple[Spent, ...]]:
        """By task, every call of a run that will make no more: it is closed, and who intends one later makes none."""
        await self.close_run(run)
        found: dict[str, tuple[Spent, ...]] = {}
        for line in await self._lines(run):
            found[line.intent.task] = (*found.get(line.intent.task, ()), line.spent)
        return found

    async def requests(self, run: str) -> list[Line]:
        """Every request of a run that was sent, as far as anybody knows, in the order in which they were intended."""
        return [line for line in await self._lines(run) if line.was_sent]

    async def account(self, run: str, task: str, step: int) -> Account:
        """All that is known of a step that is over. It is closed first: whoever intends a call later makes none."""
        await self.close(run, task, step)
        return _account(await self._lines(step_key(run, task, step)))

    async def accounts(self, run: str, tasks: Collection[str]) -> dict[str, Account]:
        """The same of those of these tasks that made calls, in whatever step. Nothing is closed: who reads, may look.

        Of the others nothing is read: a run may have made tens of thousands of calls, and be looked at often.
        """
        found: defaultdict[str, list[Line]] = defaultdict(list)
        for line in await self._lines_of(await self._names_of_tasks(run, tasks)):
            found[line.intent.task].append(line)
        return {task: _account(lines) for task, lines in found.items()}

    async def close(self, run: str, task: str, step: int) -> None:
        """Make up the account of a step: whoever intends a call in it later makes none."""
        await self._store.record(f"{step_key(run, task, step)}/{CLOSED}", {"closed": True})

    async def close_run(self, run: str) -> None:
        """The same for all steps of a run that is over."""
        await self._store.record(f"{run}/{CLOSED}", {"closed": True})

    async def is_closed(self, run: str, task: str, step: int) -> bool:
        """Whether the account of a step was made up. Who has written an intent before it was is in that account."""
        places = step_key(run, task, step), run
        return any([await self._store.recorded(f"{place}/{CLOSED}") is not None for place in places])

    async def _lines(self, place: str) -> list[Line]:
        """The requests in the order in which they were intended."""
        return await self._lines_of(await self.names(place))

    async def _lines_of(self, names: Mapping[str, list[str]]) -> list[Line]:
        calls = await self.of_calls(names)
        return sorted((line for lines in calls.values() for line in lines), key=lambda line: line.intent.at)

    async def _names_of_tasks(self, run: str, tasks: Collection[str]) -> dict[str, list[str]]:
        """The same as `names` of all that these tasks did. Few are listed each by itself, many with all of the run."""
        places = {task_key(run, task) for task in tasks}
        if len(places) > AT_ONCE:
            names = await self.names(run)
            return {content: there for content, there in names.items() if content.rsplit("/", 2)[0] in places}
        listed = await asyncio.gather(*map(self.names, sorted(places)))
        return {content: there for names in listed for content, there in names.items()}

    async def names(self, place: str) -> dict[str, list[str]]:
        """The places of all calls below a place, and under which names something is written down of each."""
        names: defaultdict[str, list[str]] = defaultdict(list)
        for key in await self._store.records(place):
            content, _, name = key.rpartition("/")
            names[content].append(name)
        return names

    async def of_calls(self, names: Mapping[str, list[str]]) -> dict[str, list[Line]]:
        """The requests of logical calls, by their places. Several are read at once."""
        found: dict[str, list[Line]] = {}
        places = [*names]
        for first in range(0, len(places), AT_ONCE):
            some = places[first : first + AT_ONCE]
            lines = await asyncio.gather(*(self._of_call(place, names[place]) for place in some))
            found |= dict(zip(some, lines, strict=True))
        return found

    async def _of_call(self, content: str, names: Collection[str]) -> list[Line]:
        """The requests of one logical call. One whose intent is damaged costs what its neighbours may cost."""
        given = (name.removeprefix("intent-") for name in names if name.startswith("intent-"))
        numbers = sorted(int(number) for number in given if number.isdecimal())

        async def read(kind: type[Entry], name: str) -> Entry | None:
            return await self._read(kind, f"{content}/{name}") if name in names else None

        answer = await read(Kept, "completion")
        intents = [await read(Intent, f"intent-{number}") for number in numbers]
        known = [intent for intent in intents if intent is not None]
        found: list[Line] = []
        for number, written in zip(numbers, intents, strict=True):
            intent = written or (known[0] if known else None)
            if intent is None:
                continue  # nothing is known of it, and nobody could say what it was
            setback = await read(Setback, f"setback-{number}")
            answered = answer if answer is not None and answer.number == number else None
            spent = _spent(intent, answered, setback)
            found.append(Line(content, number, intent, spent, setback, answered))
        return found

    async def _read(self, kind: type[Entry], key: str) -> Entry | None:
        """An entry; what is damaged is none, and the request counts at its worst case."""
        try:
            written = await self._store.recorded(key)
            return None if written is None else kind.model_validate(written)
        except (StoreError, ValueError):
            return None


def _account(lines: Sequence[Line]) -> Account:
    """The calls of one task together. Attempts, and what there is of an answer, are those of its last step."""
    last = [line for line in lines if line.intent.step == lines[-1].intent.step]
    cut = [line.setback for line in last if line.setback is not None and line.setback.output_ref is not None]
    return Account(
        calls=tuple(line.spent for line in lines),
        attempts=max((line.intent.attempt for line in last), default=0),
        output_ref=cut[-1].output_ref if cut else None,
        output_bytes=cut[-1].output_bytes if cut else 0,
        requests=tuple(line.call for line in lines if line.was_sent),
    )


def _spent(intent: Intent, answer: Kept | None, setback: Setback | None) -> Spent:
    if answer is not None:
        return Spent(model=intent.model, usage=answer.usage, batched=answer.batched)
    batched = intent.batch is not None
    if setback is not None:
        told = setback.told
        return Spent(model=intent.model, usage=told.usage, unsettled=told.unsettled, batched=batched)
    return Spent(model=intent.model, unsettled=intent.worst, batched=batched)
