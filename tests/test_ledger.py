"""The call ledger: what was going to be paid, and what came of it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from activities.ledger import Entry, Intent, Landed, Ledger, Setback
from activities.model import Completion
from domain.models import TaskError, Try, Usage, ref_of
from store import Store, StoreError, open_store

ENTRY = Entry(run="run", task="scan[a/b]", step=1, content=ref_of(b"brief"))
COMPLETION = Completion(
    text="Half é 😀\n", usage=Usage(input=1, output=2, cache_read=3, cache_write=4), stop_reason="max_tokens"
)
LANDED = Landed(completion=COMPLETION, number=1)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
WORST = Usage(input=500, output=300)


def intent(attempt: int = 1, *, start: str = "now") -> Intent:
    return Intent(
        run="run",
        task="scan[a/b]",
        step=1,
        start=start,
        attempt=attempt,
        attempts=4,
        model="m",
        max_tokens=300,
        worst=WORST,
        at=NOON,
    )


def setback(attempt: int = 1, *, start: str = "now", used: bool = True) -> Setback:
    error = TaskError(type="StreamCut", message="it broke", attempt=attempt, retryable=True)
    told = Try(attempt=attempt, error=error, at=NOON, usage=Usage(input=7), unsettled=Usage(output=299))
    return Setback(told=told, start=start, used=used)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path / "store"))


@pytest.fixture
def ledger(store: Store) -> Ledger:
    return Ledger(store)


async def test_a_completion_comes_back_as_it_was(ledger: Ledger) -> None:
    """Whatever it stopped for: it was paid, so it is not asked again."""
    assert await ledger.landed(ENTRY) is None

    await ledger.complete(ENTRY, COMPLETION, 1)

    assert await ledger.landed(ENTRY) == LANDED


async def test_another_process_finds_it(store: Store, ledger: Ledger) -> None:
    await ledger.complete(ENTRY, COMPLETION, 1)

    assert await Ledger(open_store(store.location)).landed(ENTRY) == LANDED


async def test_the_first_word_stands(ledger: Ledger) -> None:
    """A frozen worker's late answer does not replace what dependants have read."""
    await ledger.complete(ENTRY, COMPLETION, 1)
    await ledger.complete(ENTRY, COMPLETION.model_copy(update={"text": "another", "stop_reason": "end_turn"}), 2)

    assert await ledger.landed(ENTRY) == LANDED


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
    await ledger.complete(ENTRY, COMPLETION, 1)
    await ledger.intend(ENTRY, intent())

    assert await ledger.landed(other) is None
    assert await ledger.intend(other, intent()) == 1


async def test_every_intent_has_a_number_of_its_own(ledger: Ledger, store: Store) -> None:
    """Also of two workers at once: no request goes unwritten."""
    numbers = await asyncio.gather(*(ledger.intend(ENTRY, intent(attempt)) for attempt in range(20)))

    assert sorted(numbers) == list(range(1, 21))
    for attempt, number in enumerate(numbers):
        assert await store.recorded(f"{ENTRY.key}/intent-{number}") == intent(attempt).model_dump(mode="json")


async def test_an_intent_is_no_completion(ledger: Ledger) -> None:
    await ledger.intend(ENTRY, intent())

    assert await ledger.landed(ENTRY) is None


# --- what came to nothing ---


async def test_a_setback_comes_back_as_it_was(ledger: Ledger) -> None:
    """Also one of an earlier start of the task, and one that used no attempt: who asks decides what to tell."""
    for number, told in enumerate([setback(1, start="before"), setback(2, used=False), setback(3)], 1):
        assert await ledger.intend(ENTRY, intent(number)) == number
        await ledger.fail(ENTRY, number, told)

    found = await ledger.setbacks(ENTRY, start="now", attempt=4)

    assert found == (setback(1, start="before"), setback(2, used=False), setback(3))


async def test_the_first_word_on_a_request_stands(ledger: Ledger) -> None:
    await ledger.intend(ENTRY, intent())
    await ledger.fail(ENTRY, 1, setback(1))
    await ledger.fail(ENTRY, 1, setback(2))

    assert await ledger.setbacks(ENTRY, start="now", attempt=2) == (setback(1),)


async def test_a_request_that_was_lost_with_its_worker_counts_at_its_worst_case(ledger: Ledger) -> None:
    """Nobody came to say what it was: it may have been answered, and billed."""
    await ledger.intend(ENTRY, intent(1))

    (lost,) = await ledger.setbacks(ENTRY, start="now", attempt=2)

    assert lost.used
    assert (lost.told.attempt, lost.told.error.type, lost.told.at) == (1, "WorkerLost", NOON)
    assert lost.told.error.message == "the worker was lost, attempt 1 of 4"
    assert (lost.told.usage, lost.told.unsettled) == (Usage(), WORST)
    assert await ledger.setbacks(ENTRY, start="later", attempt=2) == (lost,)  # it was of that start, and is told once


async def test_a_request_of_an_earlier_start_that_nobody_told_of_used_no_attempt(ledger: Ledger) -> None:
    """Its worker was stopped in the middle of it: the attempt was given back, the tokens were not."""
    await ledger.intend(ENTRY, intent(1, start="before"))

    (cut_off,) = await ledger.setbacks(ENTRY, start="now", attempt=1)

    assert not cut_off.used
    assert (cut_off.told.error.type, cut_off.told.unsettled) == ("WorkerStopped", WORST)


async def test_what_is_under_way_or_told_of_elsewhere_is_no_setback(ledger: Ledger) -> None:
    await ledger.intend(ENTRY, intent(1))
    await ledger.intend(ENTRY, intent(2))

    assert [found.told.attempt for found in await ledger.setbacks(ENTRY, start="now", attempt=2)] == [1]
    assert await ledger.setbacks(ENTRY, start="now", attempt=2, but=1) == ()


async def test_a_setback_is_no_completion(ledger: Ledger) -> None:
    await ledger.intend(ENTRY, intent())
    await ledger.fail(ENTRY, 1, setback())

    assert await ledger.landed(ENTRY) is None


async def test_what_an_older_version_wrote_can_be_read(ledger: Ledger, store: Store) -> None:
    """A run may be older than its worker."""
    older = {"run": "run", "task": "t", "step": 1, "attempt": 1, "model": "m", "max_tokens": 5, "at": NOON.isoformat()}
    await store.record(f"{ENTRY.key}/intent-1", older)
    assert len(await ledger.setbacks(ENTRY, start="now", attempt=1)) == 1
    text_ref = await store.put_artifact(COMPLETION.text.encode())
    usage = COMPLETION.usage.model_dump()
    await store.record(f"{ENTRY.key}/completion", {"text_ref": text_ref, "usage": usage, "stop_reason": "max_tokens"})

    assert await ledger.landed(ENTRY) == LANDED
    assert await ledger.setbacks(ENTRY, start="now", attempt=1) == ()


async def test_a_completion_whose_text_was_changed_is_refused(ledger: Ledger, store: Store) -> None:
    """F13: no wrong text is handed on."""
    await ledger.complete(ENTRY, COMPLETION, 1)
    digest = ref_of(COMPLETION.text.encode()).removeprefix("sha256:")
    (Path(store.location) / "artifacts" / digest[:2] / digest).write_bytes(b"tampered")

    with pytest.raises(StoreError):
        await ledger.landed(ENTRY)


@pytest.mark.parametrize("task", ["../../x", "..", "a/../b", "scan[ü]", "x" * 500, "a\x00b"])
async def test_any_task_id_has_its_place(ledger: Ledger, store: Store, task: str) -> None:
    """Ids of a fan-out have the item in them; a path must not be made of it."""
    entry = replace(ENTRY, task=task)
    await ledger.complete(entry, COMPLETION, 1)

    assert await ledger.landed(entry) == LANDED
    assert all(file.is_relative_to(Path(store.location) / "ledger" / "run") for file in _entries(store))


def _entries(store: Store) -> list[Path]:
    return [file for file in Path(store.location).parent.rglob("*.json") if file.is_file()]


async def test_a_call_that_was_answered_was_not_lost(ledger: Ledger) -> None:
    """Also when its worker died before anybody heard of it: it is paid for, and not counted at its worst case."""
    await ledger.intend(ENTRY, intent(1))
    await ledger.intend(ENTRY, intent(2))
    await ledger.complete(ENTRY, COMPLETION, 2)

    (lost,) = await ledger.setbacks(ENTRY, start="now", attempt=3)

    assert (lost.told.attempt, lost.told.unsettled) == (1, WORST)
