"""The call ledger: what was going to be paid, and what came of it."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime

import obstore
import pytest

from activities.ledger import Entry, Landed, Ledger
from activities.model import Completion
from domain.models import TaskError, Try, Usage, ref_of
from entries import Intent, Setback
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

    found = (await ledger.setbacks(ENTRY, start="now", attempt=4)).all

    assert found == (setback(1, start="before"), setback(2, used=False), setback(3))


async def test_the_first_word_on_a_request_stands(ledger: Ledger) -> None:
    await ledger.intend(ENTRY, intent())
    await ledger.fail(ENTRY, 1, setback(1))
    await ledger.fail(ENTRY, 1, setback(2))

    assert (await ledger.setbacks(ENTRY, start="now", attempt=2)).all == (setback(1),)


async def test_a_request_that_was_lost_with_its_worker_counts_at_its_worst_case(ledger: Ledger) -> None:
    """Nobody came to say what it was: it may have been answered, and billed."""
    await ledger.intend(ENTRY, intent(1))

    (lost,) = (await ledger.setbacks(ENTRY, start="now", attempt=2)).all

    assert lost.used
    assert (lost.told.attempt, lost.told.error.type, lost.told.at) == (1, "WorkerLost", NOON)
    assert lost.told.error.message == "the worker was lost, attempt 1 of 4"
    assert (lost.told.usage, lost.told.unsettled) == (Usage(), WORST)
    later = await ledger.setbacks(ENTRY, start="later", attempt=2)
    assert later.all == (lost,)  # it was of that start, and is told once


async def test_a_request_of_an_earlier_start_that_nobody_told_of_used_no_attempt(ledger: Ledger) -> None:
    """Its worker was stopped in the middle of it: the attempt was given back, the tokens were not."""
    await ledger.intend(ENTRY, intent(1, start="before"))

    (cut_off,) = (await ledger.setbacks(ENTRY, start="now", attempt=1)).all

    assert not cut_off.used
    assert (cut_off.told.error.type, cut_off.told.unsettled) == ("WorkerStopped", WORST)


async def test_what_is_under_way_or_told_of_elsewhere_is_no_setback(ledger: Ledger) -> None:
    await ledger.intend(ENTRY, intent(1))
    await ledger.intend(ENTRY, intent(2))

    assert [found.told.attempt for found in (await ledger.setbacks(ENTRY, start="now", attempt=2)).all] == [1]
    assert (await ledger.setbacks(ENTRY, start="now", attempt=2, but=1)).all == ()


async def test_a_setback_is_no_completion(ledger: Ledger) -> None:
    await ledger.intend(ENTRY, intent())
    await ledger.fail(ENTRY, 1, setback())

    assert await ledger.landed(ENTRY) is None


async def test_what_an_older_version_wrote_can_be_read(ledger: Ledger, store: Store) -> None:
    """A run may be older than its worker."""
    older = {"run": "run", "task": "t", "step": 1, "attempt": 1, "model": "m", "max_tokens": 5, "at": NOON.isoformat()}
    await store.record(f"{ENTRY.key}/intent-1", older)
    assert len((await ledger.setbacks(ENTRY, start="now", attempt=1)).all) == 1
    text_ref = await store.put_artifact(COMPLETION.text.encode())
    usage = COMPLETION.usage.model_dump()
    await store.record(f"{ENTRY.key}/completion", {"text_ref": text_ref, "usage": usage, "stop_reason": "max_tokens"})

    assert await ledger.landed(ENTRY) == LANDED
    assert (await ledger.setbacks(ENTRY, start="now", attempt=1)).all == ()


async def test_a_completion_whose_text_was_changed_is_refused(ledger: Ledger, store: Store) -> None:
    """F13: no wrong text is handed on."""
    await ledger.complete(ENTRY, COMPLETION, 1)
    digest = ref_of(COMPLETION.text.encode()).removeprefix("sha256:")
    await obstore.put_async(store.objects, f"artifacts/{digest[:2]}/{digest}", b"tampered", use_multipart=False)

    with pytest.raises(StoreError):
        await ledger.landed(ENTRY)


ENTRY_OF_ANSWER = {"text_ref": ref_of(b"x"), "usage": {"input": 1}, "stop_reason": "end_turn", "number": 1}
DAMAGED: dict[str, object] = {
    "no JSON": b'{"text_ref": "sha',
    "no text": b"\xff\xfe",
    "zeros": b"\x00" * 64,
    "no object": [ENTRY_OF_ANSWER],
    "nothing in it": {},
    "no usage": {**ENTRY_OF_ANSWER, "usage": None},
    "usage in words": {**ENTRY_OF_ANSWER, "usage": {"input": "many"}},
    "a refund": {**ENTRY_OF_ANSWER, "usage": {"input": -1}},
    "number 0": {**ENTRY_OF_ANSWER, "number": 0},
    "a path": {**ENTRY_OF_ANSWER, "text_ref": "../../../etc/passwd"},
    "a path as a hash": {**ENTRY_OF_ANSWER, "text_ref": "sha256:../../../../../../etc/passwd"},
    "an address": {**ENTRY_OF_ANSWER, "text_ref": "file:///etc/passwd"},
    "a hash and a line": {**ENTRY_OF_ANSWER, "text_ref": f"{ref_of(b'x')}\n"},
    "no reference": {**ENTRY_OF_ANSWER, "text_ref": 7},
    "a text that is not there": {**ENTRY_OF_ANSWER, "text_ref": ref_of(b"never written")},
    "a text that is none": {**ENTRY_OF_ANSWER, "text_ref": ref_of(b"\xff\xfe")},
}
"""F13 and S7: what may stand in the place of an answer, by accident or because somebody put it there."""


@pytest.mark.parametrize("written", DAMAGED.values(), ids=DAMAGED.keys())
async def test_of_a_damaged_entry_nothing_is_used(ledger: Ledger, store: Store, written: object) -> None:
    """It is said in a sentence that shows nothing of it; the call in its next round is another one, and is asked."""
    await store.put_artifact(b"x")
    await store.put_artifact(b"\xff\xfe")
    await put(store, f"ledger/{ENTRY.key}/completion.json", written)

    with pytest.raises(StoreError, match=r"damaged in the store.*`retry`") as told:
        await ledger.landed(ENTRY)

    assert "passwd" not in str(told.value)
    again = replace(ENTRY, step=2)
    assert await ledger.landed(again) is None
    assert await ledger.complete(again, COMPLETION, 1) == LANDED


@pytest.mark.parametrize("written", [b"{", b"\xff", {}, {"attempt": "x"}, []])
async def test_a_request_whose_intent_is_damaged_counts_at_its_worst_case(
    ledger: Ledger, store: Store, written: object
) -> None:
    """Also its number is taken: it was asked, whatever it was."""
    await put(store, f"ledger/{ENTRY.key}/intent-1.json", written)

    assert await ledger.intend(ENTRY, intent(2)) == 2
    (found,) = (await ledger.setbacks(ENTRY, start="now", attempt=2, worst=WORST)).all

    assert (found.told.error.type, found.told.unsettled, found.used) == ("EntryDamaged", WORST, False)


async def test_a_setback_that_is_damaged_is_no_word_at_all(ledger: Ledger, store: Store) -> None:
    await ledger.intend(ENTRY, intent(1))
    await put(store, f"ledger/{ENTRY.key}/setback-1.json", b"{")

    (lost,) = (await ledger.setbacks(ENTRY, start="now", attempt=2, worst=WORST)).all

    assert (lost.told.error.type, lost.told.unsettled) == ("WorkerLost", WORST)


async def test_who_comes_second_hears_what_the_first_has_kept(ledger: Ledger) -> None:
    another = COMPLETION.model_copy(update={"text": "another", "stop_reason": "end_turn"})

    first = await ledger.complete(ENTRY, COMPLETION, 1)
    second = await ledger.complete(ENTRY, another, 2)
    again = await ledger.complete(ENTRY, COMPLETION, 1)

    assert first == again == LANDED
    assert second == LANDED.model_copy(update={"overtaken": True})


async def put(store: Store, key: str, written: object) -> None:
    """Write an entry as no code of ours does."""
    content = written if isinstance(written, bytes) else json.dumps(written).encode()
    await obstore.put_async(store.objects, key, content, use_multipart=False)


@pytest.mark.parametrize("task", ["../../x", "..", "a/../b", "scan[ü]", "x" * 500, "a\x00b"])
async def test_any_task_id_has_its_place(ledger: Ledger, store: Store, task: str) -> None:
    """Ids of a fan-out have the item in them; a path must not be made of it."""
    entry = replace(ENTRY, task=task)
    await ledger.complete(entry, COMPLETION, 1)

    assert await ledger.landed(entry) == LANDED
    written = [str(found["path"]) async for batch in obstore.list(store.objects) for found in batch]
    assert all(key.startswith(("ledger/run/", "artifacts/")) and ".." not in key for key in written)


async def test_a_call_that_was_answered_was_not_lost(ledger: Ledger) -> None:
    """Also when its worker died before anybody heard of it: it is paid for, and not counted at its worst case."""
    await ledger.intend(ENTRY, intent(1))
    await ledger.intend(ENTRY, intent(2))
    await ledger.complete(ENTRY, COMPLETION, 2)

    (lost,) = (await ledger.setbacks(ENTRY, start="now", attempt=3)).all

    assert (lost.told.attempt, lost.told.unsettled) == (1, WORST)
