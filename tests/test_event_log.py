"""The events of all runs as one sequence: in order, by time, from where somebody was, and no run asked in vain."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing
from datetime import timedelta
from typing import Any

import obstore
import pytest
from conftest import Bench
from plans import START

import event_log
from bookmarks import Bookmark, ReaderRefused, place_of
from domain.event_filter import EVERYTHING, Wanted
from domain.events import Event, EventType, timestamp
from domain.offsets import Offsets
from event_log import NOWHERE, Batch, EventLog, look_again
from reader import RunReader
from sealing import Keyring, WrongKey
from store import Store, StoreError, StoreUnavailable, open_store


def event(number: int, at: float, type: EventType = EventType.TASK_READY) -> Event:
    return Event(number=number, type=type, time=START + timedelta(seconds=at), task="a")


async def submit(store: Store, run: str, family: str | None = None) -> None:
    await store.put_manifest(run, {"run": run, "submitted": timestamp(START), "family": family or run})


async def tell(store: Store, run: str, *times: float, first: int = 1, end: bool = False) -> None:
    """One segment of a run, with an event at each of these times."""
    told = [event(number, at) for number, at in enumerate(times, first)]
    if end:
        told[-1] = told[-1].model_copy(update={"type": EventType.RUN_COMPLETED, "task": None})
    await store.append_events(run, tuple(told))
    if end:
        await store.put_end(run, {"finished": timestamp(told[-1].time)})


async def prune(store: Store, run: str) -> None:
    for path in await store.listed(f"runs/{run}/"):
        await store.discard(path)
    await store.tidy(f"runs/{run}")


async def read(store: Store, wanted: Wanted = EVERYTHING, after: Offsets = NOWHERE) -> list[Batch]:
    return [batch async for batch in EventLog(store, wanted, after).batches()]


def ids(batches: Iterable[Batch]) -> list[str]:
    return [logged.envelope["id"] for batch in batches for logged in batch.events]


def marks(batches: Iterable[Batch]) -> Offsets:
    found: dict[str, Any] = {}
    for batch in batches:
        found |= batch.marks
    return found


async def take(batches: AsyncIterator[Batch], number: int) -> list[str]:
    """The first so many events of one who follows."""
    found: list[str] = []
    while len(found) < number:
        found += ids([await anext(batches)])
    return found


# --- read once ---


async def test_events_of_several_runs_come_by_time_and_those_of_one_in_order(store: Store) -> None:
    for run in "a", "b", "c":
        await submit(store, run)
    await tell(store, "a", 1, 4)
    await tell(store, "a", 7, 8, first=3)
    await tell(store, "b", 2, 3, 9)
    await tell(store, "c", 5, 5)

    batches = await read(store)

    assert ids(batches) == ["a/1", "b/1", "b/2", "a/2", "c/1", "c/2", "a/3", "a/4", "b/3"]
    assert {run: mark.number for run, mark in marks(batches).items()} == {"a": 4, "b": 3, "c": 2}
    assert not batches[-1].more


async def test_an_empty_store_has_no_events(store: Store) -> None:
    assert await read(store) == []


async def test_only_what_is_asked_for_is_told_and_what_is_passed_over_was_read(store: Store) -> None:
    await submit(store, "a")
    await tell(store, "a", 1, 2, 3, end=True)

    batches = await read(store, Wanted(types=["run."]))

    assert ids(batches) == ["a/3"]
    assert marks(batches)["a"].number == 3


@pytest.mark.parametrize("place", ["folder"], indirect=True)
async def test_of_runs_that_are_not_asked_for_no_event_is_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """By name, by family, and because they had ended by then."""
    for run, family in ("a", "a"), ("a-r2", "a"), ("b", "b"):
        await submit(store, run, family)
        await tell(store, run, 1, 2, end=True)
    opened = counted_segments(monkeypatch)

    assert ids(await read(store, Wanted(runs=["b"]))) == ["b/1", "b/2"]
    assert set(opened) == {"b"}
    opened.clear()
    await read(store, Wanted(correlations=["a"]))
    assert set(opened) == {"a", "a-r2"}
    opened.clear()
    assert ids(await read(store, Wanted(since=START + timedelta(seconds=3)))) == []
    assert opened == []


async def test_the_events_of_a_retry_have_the_family_in_common(store: Store) -> None:
    await submit(store, "a-r2", family="a")
    await store.append_events("a-r2", (event(1, 1),), "a")

    (batch,) = await read(store, Wanted(correlations=["a"]))

    assert batch.events[0].envelope["correlationid"] == "a"
    assert batch.events[0].envelope["subject"] == "a-r2/a"


@pytest.mark.parametrize("left", [0, 1, 100])
async def test_a_batch_is_bounded_and_the_last_one_says_that_it_is(store: Store, left: int) -> None:
    await submit(store, "a")
    await tell(store, "a", *range(2 * event_log.BATCH + left))

    sizes = [(len(batch.events), batch.more) for batch in await read(store)]

    assert sizes == [(event_log.BATCH, True), (event_log.BATCH, True), (left, False)]


# --- again, from where somebody was ---


async def test_a_reader_goes_on_in_the_middle_of_a_segment(store: Store) -> None:
    await submit(store, "a")
    await tell(store, "a", *range(500))
    async with aclosing(EventLog(store).batches()) as batches:
        first = [await anext(batches)]
    await tell(store, "a", 501, 502, first=501)

    rest = await read(store, after=marks(first))

    assert ids([*first, *rest]) == [f"a/{number}" for number in range(1, 503)]


@pytest.mark.parametrize("place", ["folder"], indirect=True)
async def test_a_run_that_was_read_to_its_end_is_not_opened_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await submit(store, "a")
    await tell(store, "a", 1, 2, end=True)
    before = marks(await read(store))
    await submit(store, "b")
    await tell(store, "b", 3)
    opened = counted_segments(monkeypatch)

    assert ids(await read(store, after=before)) == ["b/1"]
    assert set(opened) == {"b"}


async def test_what_an_older_database_tells_otherwise_is_read_from_the_start(store: Store) -> None:
    """Also of a run that had ended, and whatever the numbers are."""
    await submit(store, "a")
    await tell(store, "a", 1, 2, 3)
    await tell(store, "a", 4, 5, first=4, end=True)
    before = marks(await read(store))
    await store.append_events("a", (event(4, 40), event(5, 50), event(6, 60)))

    assert ids(await read(store, after=before)) == [f"a/{number}" for number in range(1, 7)]


async def test_a_run_that_was_pruned_is_forgotten_and_one_that_gets_its_name_is_another(store: Store) -> None:
    for run in "a", "b":
        await submit(store, run)
        await tell(store, run, 1, 2, end=True)
    before = marks(await read(store))
    await prune(store, "a")

    (batch,) = await read(store, after=before)
    await submit(store, "a")
    await tell(store, "a", 7, 8, 9)

    assert (batch.gone, batch.events) == (("a",), ())
    assert ids(await read(store, after=before)) == ["a/1", "a/2", "a/3"]


# --- follow ---


async def test_who_follows_hears_of_runs_that_begin_later(store: Store) -> None:
    async with aclosing(EventLog(store).batches(follow=True)) as batches:
        first = asyncio.create_task(take(batches, 2))
        await submit(store, "a")
        await tell(store, "a", 1, 2)
        heard = await first
        await submit(store, "b")
        await tell(store, "a", 3, first=3, end=True)
        await tell(store, "b", 4, 5)

        heard += await take(batches, 3)

    assert sorted(heard) == ["a/1", "a/2", "a/3", "b/1", "b/2"]
    assert [id for id in heard if id.startswith("a/")] == ["a/1", "a/2", "a/3"]


async def test_a_run_that_is_pruned_while_somebody_follows_is_gone_without_a_word(store: Store) -> None:
    await submit(store, "a")
    await tell(store, "a", 1)
    async with aclosing(EventLog(store).batches(follow=True)) as batches:
        await take(batches, 1)
        await prune(store, "a")

        batch = await anext(batches)

        assert (batch.gone, batch.events, batch.troubles) == (("a",), (), ())
        await submit(store, "a")
        await tell(store, "a", 5, 6)
        assert await take(batches, 2) == ["a/1", "a/2"]


@pytest.mark.parametrize("place", ["folder"], indirect=True)
async def test_of_many_runs_only_the_open_ones_are_asked(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(40):
        await submit(store, f"old-{number}")
        await tell(store, f"old-{number}", number, number, end=True)
    await submit(store, "open")
    async with aclosing(EventLog(store).batches(follow=True)) as batches:
        await take(batches, 80)
        opened = counted_segments(monkeypatch)
        await tell(store, "open", 100)
        await take(batches, 1)
        await tell(store, "open", 101, first=2)
        await take(batches, 1)

    assert set(opened) == {"open"}


@pytest.mark.parametrize(
    ("silent_for", "asked_again_after"), [(0, 0.5), (10, 0.5), (60, 3), (120, 6), (3600, 15), (1e7, 15)]
)
def test_the_longer_a_run_is_silent_the_less_often_it_is_asked(silent_for: float, asked_again_after: float) -> None:
    assert look_again(silent_for) == asked_again_after


# --- what goes wrong ---


@pytest.mark.parametrize("damage", [b"{", b"\xff\xfe", b"[]\n", b'{"id": "x"}\n'])
async def test_a_run_that_is_damaged_hides_no_other(store: Store, damage: bytes) -> None:
    for run in "a", "b":
        await submit(store, run)
        await tell(store, run, 1, 2)
    await obstore.put_async(store.objects, "runs/a/events/0000000001.jsonl", damage, use_multipart=False)

    batches = await read(store)

    assert ids(batches) == ["b/1", "b/2"]
    assert [trouble for batch in batches for trouble in batch.troubles] == [
        "a is passed over: the events of run 'a' are damaged in the store."
    ]


@pytest.mark.parametrize("place", ["folder"], indirect=True)
async def test_a_store_that_is_away_for_a_moment_ends_no_subscription(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told of once. Who reads once is refused."""
    await submit(store, "a")
    await tell(store, "a", 1)
    away, segment = [True], Store.segment

    async def unsure(self: Store, run: str, after: int = 0) -> Any:
        if away[0]:
            raise StoreUnavailable("the store cannot be read (Weather)")
        return await segment(self, run, after)

    monkeypatch.setattr(Store, "segment", unsure)
    with pytest.raises(StoreUnavailable):
        await read(store)
    async with aclosing(EventLog(store).batches(follow=True)) as batches:
        troubles = (await anext(batches)).troubles
        away[0] = False

        assert await take(batches, 1) == ["a/1"]
    assert troubles == ("The store cannot be read (Weather). It is asked again.",)


async def test_what_is_written_while_the_log_of_a_run_is_read_is_in_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run has told the store, and has it no more when it is asked: the store is read after that."""
    run = await bench.start("tasks: [{id: a, agent: hand, prompt: Go.}]")  # nobody works on it

    async def written_meanwhile(_: RunReader, id: str) -> tuple[Event, ...]:
        await tell(bench.store, id, 1, 2)
        return ()

    monkeypatch.setattr(RunReader, "_unwritten", written_meanwhile)

    assert [event.number for event in await run.events()] == [1, 2]
    await run.handle.terminate()


# --- readers with a name ---


async def test_readers_go_their_own_ways(store: Store) -> None:
    await submit(store, "a")
    await tell(store, "a", 1, 2)
    one, two = await Bookmark.take(store, "one"), await Bookmark.take(store, "two")
    await consume(store, one)
    await tell(store, "a", 3, first=3)

    assert await consume(store, one) == ["a/3"]
    assert await consume(store, two) == ["a/1", "a/2", "a/3"]
    assert await consume(store, await Bookmark.take(store, "one")) == []
    assert await store.readers() == ["one", "two"]


async def test_a_reader_that_died_before_it_kept_its_place_repeats_and_misses_nothing(store: Store) -> None:
    await submit(store, "a")
    await tell(store, "a", 1, 2)
    await consume(store, await Bookmark.take(store, "one"))
    await tell(store, "a", 3, 4, first=3)
    dying = await Bookmark.take(store, "one")
    batches = await read(store, after=dying.offsets)
    dying.pass_over(batches[0])

    assert ids(batches) == ["a/3", "a/4"]
    assert await consume(store, await Bookmark.take(store, "one")) == ["a/3", "a/4"]


async def test_a_name_is_for_one_process_at_a_time(store: Store) -> None:
    """The one that was there stops before it could set back the other's place."""
    first = await Bookmark.take(store, "one")
    second = await Bookmark.take(store, "one")

    with pytest.raises(ReaderRefused, match="'one' stops here: another process"):
        await first.keep()
    await second.keep()
    await store.remove_reader("one")
    with pytest.raises(ReaderRefused, match="forgotten"):
        await second.keep()


async def test_the_place_of_a_run_that_is_gone_is_forgotten(store: Store) -> None:
    for run in "a", "b":
        await submit(store, run)
        await tell(store, run, 1, end=True)
    await consume(store, await Bookmark.take(store, "one"))
    await prune(store, "a")

    await consume(store, await Bookmark.take(store, "one"))

    place = await place_of(store, "one")
    assert place is not None
    assert set(place.runs) == {"b"}


@pytest.mark.parametrize("name", ["", "../x", "a/b", "a b", "-a", "x" * 65, "a.json"])
async def test_a_name_that_could_be_a_path_is_refused(store: Store, name: str) -> None:
    with pytest.raises(ReaderRefused, match="no name for a reader"):
        await Bookmark.take(store, name)


async def test_a_place_that_is_damaged_is_told_of_and_one_that_a_power_cut_left_empty_is_none(store: Store) -> None:
    await submit(store, "a")
    await tell(store, "a", 1)
    await obstore.put_async(store.objects, "readers/one.json", b"{", use_multipart=False)
    with pytest.raises(StoreError, match="events --forget one"):
        await Bookmark.take(store, "one")
    await obstore.put_async(store.objects, "readers/one.json", b"", use_multipart=False)

    assert await consume(store, await Bookmark.take(store, "one")) == ["a/1"]


async def test_an_encrypted_store_is_read_with_its_key_and_by_nobody_else(place: str) -> None:
    locked = open_store(place, Keyring((b"k" * 32,)))
    await submit(locked, "a")
    await tell(locked, "a", 1, 2)

    assert await consume(locked, await Bookmark.take(locked, "one")) == ["a/1", "a/2"]

    stands = bytes(await (await obstore.get_async(locked.objects, "readers/one.json")).bytes_async())
    assert b"runs" not in stands
    with pytest.raises(WrongKey):
        await Bookmark.take(open_store(place, Keyring()), "two")


# --- how it is done ---


async def consume(store: Store, bookmark: Bookmark) -> list[str]:
    """Read all that is new under a name, and keep the place."""
    found: list[str] = []
    async for batch in EventLog(store, EVERYTHING, bookmark.offsets).batches():
        found += ids([batch])
        bookmark.pass_over(batch)
        await bookmark.keep()
    return found


def counted_segments(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The runs whose log is opened from now on."""
    opened: list[str] = []
    segment = Store.segment

    async def noted(self: Store, run: str, after: int = 0) -> Any:
        opened.append(run)
        return await segment(self, run, after)

    monkeypatch.setattr(Store, "segment", noted)
    return opened
