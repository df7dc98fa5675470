"""The books: what the calls of one step of a task have cost, as the ledger has it, whoever made them.

A task that ends normally tells that itself. They are asked when it could not, and before a call that must be covered.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TypeVar

from activities.ledger import Intent, Kept, Setback, step_key
from domain.models import Account, Spent
from store import Store, StoreError

CLOSED = "closed"
"""The entry that says that the account of a step was made up."""

Entry = TypeVar("Entry", Intent, Kept, Setback)


@dataclass(frozen=True)
class Line:
    """A request that was intended, what it has used, and how it was cut short, if it was."""

    intent: Intent
    spent: Spent
    setback: Setback | None


class Books:
    """Reads what the ledger keeps of a step: intents, and what came of them."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def calls(self, run: str, task: str, step: int) -> tuple[Spent, ...]:
        """Every call of a step: what it used; at its worst case while nobody has told."""
        return tuple([line.spent for line in await self._lines(run, task, step)])

    async def account(self, run: str, task: str, step: int) -> Account:
        """All that is known of a step that is over. It is closed first: whoever intends a call later makes none."""
        await self._store.record(f"{step_key(run, task, step)}/{CLOSED}", {"closed": True})
        lines = await self._lines(run, task, step)
        cut = [line.setback for line in lines if line.setback is not None and line.setback.output_ref is not None]
        return Account(
            calls=tuple(line.spent for line in lines),
            attempts=max((line.intent.attempt for line in lines), default=0),
            output_ref=cut[-1].output_ref if cut else None,
            output_bytes=cut[-1].output_bytes if cut else 0,
        )

    async def is_closed(self, run: str, task: str, step: int) -> bool:
        """Whether the account of a step was made up. Who has written an intent before it was is in that account."""
        return await self._store.recorded(f"{step_key(run, task, step)}/{CLOSED}") is not None

    async def _lines(self, run: str, task: str, step: int) -> list[Line]:
        """The requests in the order in which they were intended."""
        names: defaultdict[str, list[str]] = defaultdict(list)
        for key in await self._store.records(step_key(run, task, step)):
            content, _, name = key.rpartition("/")
            names[content].append(name)
        found: list[Line] = []
        for content, there in names.items():
            given = (name.removeprefix("intent-") for name in there if name.startswith("intent-"))
            numbers = [int(number) for number in given if number.isdecimal()]
            found += await self._of_call(content, sorted(numbers))
        return sorted(found, key=lambda line: line.intent.at)

    async def _of_call(self, content: str, numbers: list[int]) -> list[Line]:
        """The requests of one logical call. One whose intent is damaged costs what its neighbours may cost."""
        answer = await self._read(Kept, f"{content}/completion")
        intents = [await self._read(Intent, f"{content}/intent-{number}") for number in numbers]
        known = [intent for intent in intents if intent is not None]
        found: list[Line] = []
        for number, written in zip(numbers, intents, strict=True):
            intent = written or (known[0] if known else None)
            if intent is None:
                continue  # nothing is known of it, and nobody could say what it was
            setback = await self._read(Setback, f"{content}/setback-{number}")
            answered = answer if answer is not None and answer.number == number else None
            found.append(Line(intent, _spent(intent, answered, setback), setback))
        return found

    async def _read(self, kind: type[Entry], key: str) -> Entry | None:
        """An entry; what is damaged is none, and the request counts at its worst case."""
        try:
            written = await self._store.recorded(key)
            return None if written is None else kind.model_validate(written)
        except (StoreError, ValueError):
            return None


def _spent(intent: Intent, answer: Kept | None, setback: Setback | None) -> Spent:
    if answer is not None:
        return Spent(model=intent.model, usage=answer.usage, batched=answer.batched)
    if setback is not None:
        return Spent(model=intent.model, usage=setback.told.usage, unsettled=setback.told.unsettled)
    return Spent(model=intent.model, unsettled=intent.worst)
