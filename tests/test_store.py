"""The store: everything is written once, and checked when it is read."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import obstore
import pytest
from bucket import CARELESS, FORGETFUL

from domain.events import Event, EventType
from domain.models import ref_of
from store import Store, StoreError, open_store, shown_location

NOT_REFS = [
    "../../x",
    "sha256:../../../../etc/passwd",
    f"sha256:{'0' * 63}",
    f"sha256:{'0' * 65}",
    f"sha256:{'A' * 64}",
    f"sha256:{'0' * 64}\n",
    f"{'0' * 64}",
    "",
]
NOT_RUNS = ["../../x", "..", ".", "", "a/b", "/etc", "a\n", "-x", "x" * 201, "a\x00b", "é"]


def events(first: int, last: int) -> tuple[Event, ...]:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    return tuple(
        Event(number=number, type=EventType.TASK_READY, time=start + timedelta(seconds=number), task=f"t{number}")
        for number in range(first, last + 1)
    )


async def read(store: Store, after: int = 0) -> list[int]:
    return [event.number async for event in store.events("run", after)]


def key_of(ref: str) -> str:
    digest = ref.removeprefix("sha256:")
    return f"artifacts/{digest[:2]}/{digest}"


async def keys(store: Store) -> list[str]:
    """All that is in a store."""
    return sorted([str(found["path"]) async for batch in obstore.list(store.objects) for found in batch])


async def put(store: Store, key: str, content: bytes) -> None:
    """Write an object as no code of ours does."""
    await obstore.put_async(store.objects, key, content, use_multipart=False)


# --- artifacts ---


@pytest.mark.parametrize("content", [b"", b"text", bytes(range(256)), b"x" * 3_000_000])
async def test_a_content_comes_back_as_it_was(store: Store, content: bytes) -> None:
    ref = await store.put_artifact(content)

    assert ref == ref_of(content)
    assert await store.artifact(ref) == content


async def test_a_content_may_be_put_again_at_any_time(store: Store) -> None:
    refs = await asyncio.gather(*(store.put_artifact(b"same") for _ in range(20)))

    assert len(set(refs)) == 1
    assert await store.artifact(refs[0]) == b"same"


async def test_a_content_that_was_changed_is_refused(store: Store) -> None:
    """F13: one flipped bit is enough."""
    ref = await store.put_artifact(b"a result")
    await put(store, key_of(ref), b"a resulu")

    with pytest.raises(StoreError, match="changed"):
        await store.artifact(ref)


async def test_a_content_that_is_gone_is_named(store: Store) -> None:
    """F13."""
    ref = await store.put_artifact(b"a result")
    await obstore.delete_async(store.objects, key_of(ref))

    with pytest.raises(StoreError, match=ref):
        await store.artifact(ref)


async def test_a_content_that_was_damaged_is_mended_by_whoever_brings_it_again(store: Store) -> None:
    """F13: its name says what it must be, so it can be done again."""
    ref = await store.put_artifact(b"a result")
    for damaged in (b"", b"a resulu"):
        await put(store, key_of(ref), damaged)

        assert await store.put_artifact(b"a result") == ref

        assert await store.artifact(ref) == b"a result"


@pytest.mark.parametrize("ref", NOT_REFS)
async def test_what_is_no_reference_is_not_looked_for(store: Store, ref: str) -> None:
    with pytest.raises(StoreError, match="not a reference"):
        await store.artifact(ref)


# --- runs ---


async def test_the_first_manifest_of_a_run_stands(store: Store) -> None:
    assert await store.manifest("run") is None

    assert await store.put_manifest("run", {"plan": 1}) == {"plan": 1}
    assert await store.put_manifest("run", {"plan": 2}) == {"plan": 1}

    assert await store.manifest("run") == {"plan": 1}


async def test_of_many_who_write_a_manifest_at_once_all_hear_the_same_one(store: Store) -> None:
    heard = await asyncio.gather(*(store.put_manifest("run", {"plan": number}) for number in range(20)))

    assert heard == [heard[0]] * 20


async def test_runs_are_listed_by_their_ids(store: Store) -> None:
    assert await store.runs() == []
    for run in ("b.1", "a_2", "c-3"):
        await store.put_manifest(run, {})
    await store.append_events("a_2", events(1, 1))

    assert await store.runs() == ["a_2", "b.1", "c-3"]


@pytest.mark.parametrize("run", NOT_RUNS)
async def test_what_is_no_run_id_is_not_looked_for(store: Store, run: str) -> None:
    with pytest.raises(StoreError, match="not a run id"):
        await store.manifest(run)
    with pytest.raises(StoreError, match="not a run id"):
        await store.put_manifest(run, {})
    with pytest.raises(StoreError, match="not a run id"):
        await store.append_events(run, events(1, 1))
    with pytest.raises(StoreError, match="not a run id"):
        [event async for event in store.events(run)]


# --- events ---


async def test_events_come_back_whole_and_in_order(store: Store) -> None:
    told = events(1, 12)

    await store.append_events("run", told[:5])
    await store.append_events("run", told[5:6])
    await store.append_events("run", told[6:])

    assert [event async for event in store.events("run")] == list(told)
    assert await read(store, after=5) == [6, 7, 8, 9, 10, 11, 12]
    assert await read(store, after=12) == []


async def test_appending_again_changes_nothing(store: Store) -> None:
    """A retry after a lost reply."""
    for _ in range(3):
        await store.append_events("run", events(1, 5))

    assert await read(store) == [1, 2, 3, 4, 5]


async def test_events_of_another_course_give_way(store: Store) -> None:
    """After an older database was restored: what Temporal says now stands, and what followed the old word is gone."""
    await store.append_events("run", events(1, 3))
    await store.append_events("run", events(4, 6))
    await store.append_events("run", events(7, 8))
    await store.put_end("run", {"status": "COMPLETED"})
    now = tuple(event.model_copy(update={"time": event.time + timedelta(hours=1)}) for event in events(5, 6))

    await store.append_events("run", (*events(4, 4), *now))
    await store.append_events("run", events(1, 3))  # a frozen worker wakes up and writes what it had

    found = [event async for event in store.events("run")]
    assert [event.number for event in found] == [1, 2, 3, 4, 5, 6]
    assert tuple(found[4:]) == now
    assert await store.end("run") is None


@pytest.mark.parametrize("is_same_worker", [True, False])
async def test_the_rest_of_a_segment_of_another_course_gives_way(store: Store, is_same_worker: bool) -> None:
    """The database is of the middle of a batch that stands in the store whole: a bucket is not restored with it."""
    old, again = events(1, 12), open_store(store.location)
    for batch in (old[:4], old[4:8], old[8:]):
        await store.append_events("run", batch)
    await store.put_end("run", {"status": "COMPLETED"})
    now = tuple(event.model_copy(update={"time": event.time + timedelta(hours=1)}) for event in events(7, 11))
    teller = store if is_same_worker else again

    await teller.append_events("run", old[4:6])
    await teller.append_events("run", now[:3])
    await teller.append_events("run", now[3:])

    assert [event async for event in store.events("run")] == [*old[:6], *now]
    assert await store.end("run") is None


async def test_a_segment_that_is_damaged_keeps_nobody_from_going_on(store: Store) -> None:
    await store.append_events("run", events(1, 3))
    await obstore.put_async(store.objects, "runs/run/events/0000000001.jsonl", b"{not json\n")

    await open_store(store.location).append_events("run", events(4, 5))

    assert await read(store, after=3) == [4, 5]


async def test_who_goes_on_with_what_it_told_looks_for_no_other_course(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listing for each batch would be as dear as the batches themselves."""
    listings: list[str] = []
    listed = Store.listed

    async def counted(self: Store, prefix: str) -> list[str]:
        listings.append(prefix)
        return await listed(self, prefix)

    monkeypatch.setattr(Store, "listed", counted)
    for first in range(1, 100, 10):
        await store.append_events("run", events(first, first + 9))

    assert listings == []


async def test_an_event_that_another_version_tells_more_of_is_the_same(store: Store) -> None:
    """Nothing gives way to it."""
    await store.append_events("run", events(1, 3))
    await store.append_events("run", events(4, 5))

    await store.append_events("run", tuple(each.model_copy(update={"data": {"new": 1}}) for each in events(1, 3)))

    assert await read(store) == [1, 2, 3, 4, 5]


async def test_a_retry_that_has_more_adds_what_is_new(store: Store) -> None:
    await store.append_events("run", events(1, 5))
    await store.append_events("run", events(1, 8))
    await store.append_events("run", events(1, 8))
    await store.append_events("run", events(6, 10))

    assert await read(store) == [*range(1, 11)]
    assert await read(store, after=8) == [9, 10]


async def test_a_retry_that_has_less_takes_nothing_away(store: Store) -> None:
    await store.append_events("run", events(1, 5))
    await store.append_events("run", events(1, 3))
    await store.append_events("run", events(6, 7))

    assert await read(store) == [1, 2, 3, 4, 5, 6, 7]


async def test_two_attempts_at_once_make_one_log(store: Store) -> None:
    """A frozen worker's append and its successor's."""
    await asyncio.gather(*(store.append_events("run", events(1, last)) for last in (5, 8, 5, 8, 3)))

    assert await read(store) == [*range(1, 9)]


async def test_nothing_to_append_is_nothing(store: Store) -> None:
    await store.append_events("run", ())

    assert await read(store) == []


async def test_any_text_in_an_event_survives_its_line(store: Store) -> None:
    """Line breaks of every kind stay inside their event."""
    text = "a\nb\r\nc\u2028d\u2029e\x85f\x0bg\x0ch\x1ci\x00j 😀 \\n"
    told = Event(number=1, type=EventType.TASK_FAILED, time=datetime.now(UTC), task="scan[a/b]", data={"why": text})
    await store.append_events("run", (told, *events(2, 3)))

    await store.append_events("run", (told, *events(2, 4)))

    (first, *rest) = [event async for event in store.events("run")]

    assert (first.task, first.data) == ("scan[a/b]", {"why": text})
    assert rest == list(events(2, 4))


async def test_the_log_of_one_run_is_not_that_of_another(store: Store) -> None:
    await store.append_events("run", events(1, 2))

    assert [event async for event in store.events("run2")] == []


@pytest.mark.parametrize("harm", [b"", b"other words"])
async def test_the_same_content_again_mends_a_damaged_one(store: Store, harm: bytes) -> None:
    """Of a power cut, or of somebody who wrote into it."""
    ref = await store.put_artifact(b"kept")
    digest = ref.removeprefix("sha256:")
    await obstore.put_async(store.objects, f"artifacts/{digest[:2]}/{digest}", harm, use_multipart=False)

    assert await store.put_artifact(b"kept") == ref

    assert await store.artifact(ref) == b"kept"


# --- ledger ---


async def test_the_first_entry_of_the_ledger_stands(store: Store) -> None:
    assert await store.recorded("run/task/1") is None

    wrote = await asyncio.gather(*(store.record("run/task/1", {"by": number}) for number in range(20)))

    assert sum(wrote) == 1
    assert await store.recorded("run/task/1") == {"by": wrote.index(True)}


async def test_an_entry_that_a_power_cut_left_empty_is_none_and_has_one_successor(store: Store) -> None:
    """Not the last of those who find it empty: the first, as everywhere."""
    await put(store, "ledger/run/task/1.json", b"")
    assert await store.recorded("run/task/1") is None

    wrote = await asyncio.gather(*(store.record("run/task/1", {"by": number}) for number in range(20)))

    assert sum(wrote) == 1
    assert await store.recorded("run/task/1") == {"by": wrote.index(True)}
    assert not await store.record("run/task/1", {"by": "a late one"})


async def test_also_twice_in_the_same_place(store: Store) -> None:
    await put(store, "ledger/run/task/1.json", b"")
    await put(store, "ledger/run/task/1.json.2", b"")

    assert await store.record("run/task/1", {"by": 1})
    assert not await store.record("run/task/1", {"by": 2})

    assert await store.recorded("run/task/1") == {"by": 1}


async def test_a_manifest_and_a_segment_that_a_power_cut_left_empty_are_written_again(store: Store) -> None:
    await put(store, "runs/run/manifest.json", b"")
    await put(store, "runs/run/events/0000000001.jsonl", b"")

    heard = await asyncio.gather(*(store.put_manifest("run", {"plan": number}) for number in range(20)))
    await store.append_events("run", events(1, 3))
    await store.append_events("run", events(1, 5))

    assert heard == [heard[0]] * 20
    assert await read(store) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("damaged", [b"{", b"\xff\xfe", b"[]", b"null", b"1", b'"text"', b"\x00" * 40])
async def test_what_is_damaged_is_named_and_not_used(store: Store, damaged: bytes) -> None:
    for key in "ledger/run/task/1.json", "runs/run/manifest.json", "runs/run/end.json":
        await put(store, key, damaged)

    for asked in store.recorded("run/task/1"), store.manifest("run"), store.end("run"):
        with pytest.raises(StoreError, match="damaged in the store"):
            await asked
    assert not await store.record("run/task/1", {})


@pytest.mark.parametrize("key", ["../x", "run/../../x", "run/./x"])
async def test_no_key_leads_out_of_the_ledger(store: Store, key: str) -> None:
    with pytest.raises(Exception, match=r"(?i)path"):
        await store.record(key, {})

    assert await keys(store) == []


async def test_a_store_is_the_same_after_it_was_opened_again(store: Store) -> None:
    ref = await store.put_artifact(b"kept")
    await store.append_events("run", events(1, 2))

    again = open_store(store.location)

    assert await again.artifact(ref) == b"kept"
    assert await read(again) == [1, 2]


# --- the promise ---


async def test_a_store_that_keeps_what_was_first_passes_the_probe(store: Store) -> None:
    await store.probe("mark")

    assert await keys(store) == []


async def test_a_bucket_that_has_never_heard_of_the_condition_is_found_out(bucket: str) -> None:
    """As `rclone serve s3`: it takes If-None-Match, and writes over what is there all the same."""
    careless = open_store(bucket.replace("//nightcrew/", f"//{CARELESS}/"))

    with pytest.raises(StoreError, match="does not keep what was written first"):
        await careless.probe("mark")

    assert await keys(careless) == []


async def test_who_heard_no_reply_and_asks_again_finds_that_it_was_he(bucket: str) -> None:
    """The server wrote the entry and answered with an error; the library asks again, and is told that there is one."""
    forgetful = open_store(bucket.replace("//nightcrew/", f"//{FORGETFUL}/"))

    assert await forgetful.record("run/task/1", {"by": 1})
    assert not await forgetful.record("run/task/1", {"by": 2})

    assert await forgetful.recorded("run/task/1") == {"by": 1}


def test_no_secret_of_a_location_is_shown() -> None:
    store = open_store("s3://user:secret@bucket/store?sig=secret")

    assert "secret" not in f"{store!r} {store.name} {shown_location(store.location)} {store._kept!r}"
