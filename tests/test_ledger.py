"""The call ledger: what was going to be paid, and what came of it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from activities.ledger import Entry, Ledger
from activities.model import Completion
from domain.models import Usage, ref_of
from store import Store, StoreError, open_store

ENTRY = Entry(run="run", task="scan[a/b]", step=1, content=ref_of(b"brief"))
COMPLETION = Completion(
    text="Half é 😀\n", usage=Usage(input=1, output=2, cache_read=3, cache_write=4), stop_reason="max_tokens"
)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path / "store"))


@pytest.fixture
def ledger(store: Store) -> Ledger:
    return Ledger(store)


async def test_a_completion_comes_back_as_it_was(ledger: Ledger) -> None:
    """Whatever it stopped for: it was paid, so it is not asked again."""
    assert await ledger.completion(ENTRY) is None

    await ledger.complete(ENTRY, COMPLETION)

    assert await ledger.completion(ENTRY) == COMPLETION


async def test_another_process_finds_it(store: Store, ledger: Ledger) -> None:
    await ledger.complete(ENTRY, COMPLETION)

    assert await Ledger(open_store(store.location)).completion(ENTRY) == COMPLETION


async def test_the_first_word_stands(ledger: Ledger) -> None:
    """A frozen worker's late answer does not replace what dependants have read."""
    await ledger.complete(ENTRY, COMPLETION)
    await ledger.complete(ENTRY, COMPLETION.model_copy(update={"text": "another", "stop_reason": "end_turn"}))

    assert await ledger.completion(ENTRY) == COMPLETION


@pytest.mark.parametrize(
    "other",
    [
        replace(ENTRY, run="run2"),
        replace(ENTRY, task="scan[a"),
        replace(ENTRY, task="scan[a/c]"),
        replace(ENTRY, step=2),
        replace(ENTRY, content=ref_of(b"another brief")),
    ],
)
async def test_a_call_is_known_by_run_task_step_and_content(ledger: Ledger, other: Entry) -> None:
    await ledger.complete(ENTRY, COMPLETION)
    await ledger.intend(ENTRY, {})

    assert await ledger.completion(other) is None
    assert await ledger.intend(other, {}) == 1


async def test_every_intent_has_a_number_of_its_own(ledger: Ledger, store: Store) -> None:
    """Also of two workers at once: no request goes unwritten."""
    numbers = await asyncio.gather(*(ledger.intend(ENTRY, {"attempt": attempt}) for attempt in range(20)))

    assert sorted(numbers) == list(range(1, 21))
    for attempt, number in enumerate(numbers):
        assert await store.recorded(f"{ENTRY.key}/intent-{number}") == {"attempt": attempt}


async def test_an_intent_is_no_completion(ledger: Ledger) -> None:
    await ledger.intend(ENTRY, {})

    assert await ledger.completion(ENTRY) is None


async def test_a_completion_whose_text_was_changed_is_refused(ledger: Ledger, store: Store) -> None:
    """F13: no wrong text is handed on."""
    await ledger.complete(ENTRY, COMPLETION)
    digest = ref_of(COMPLETION.text.encode()).removeprefix("sha256:")
    (Path(store.location) / "artifacts" / digest[:2] / digest).write_bytes(b"tampered")

    with pytest.raises(StoreError):
        await ledger.completion(ENTRY)


@pytest.mark.parametrize("task", ["../../x", "..", "a/../b", "scan[ü]", "x" * 500, "a\x00b"])
async def test_any_task_id_has_its_place(ledger: Ledger, store: Store, task: str) -> None:
    """Ids of a fan-out have the item in them; a path must not be made of it."""
    entry = replace(ENTRY, task=task)
    await ledger.complete(entry, COMPLETION)

    assert await ledger.completion(entry) == COMPLETION
    assert all(file.is_relative_to(Path(store.location) / "ledger" / "run") for file in _entries(store))


def _entries(store: Store) -> list[Path]:
    return [file for file in Path(store.location).parent.rglob("*.json") if file.is_file()]
