"""Where a trail is kept: written once whatever is cut short, never silently replaced, and readable with a key alone."""

from __future__ import annotations

import base64
from datetime import timedelta
from pathlib import Path

import pytest
from plans import START

from audit_trail import AuditTrail
from domain.audit import first_fault, record_of
from domain.events import Event, EventType
from domain.models import ref_of
from sealing import KEY, Keyring
from store import Store, open_store

RUN = "a-run"
KEYS = Keyring.from_environment({KEY: base64.b64encode(b"k" * 32).decode()})


def events(first: int, last: int, *, later: float = 0.0) -> tuple[Event, ...]:
    return tuple(
        Event(number=n, type=EventType.TASK_READY, time=START + timedelta(seconds=n + later), task=f"t{n}")
        for n in range(first, last + 1)
    )


@pytest.fixture(params=[False, True], ids=["plain", "with a key"])
def store(tmp_path: Path, request: pytest.FixtureRequest) -> Store:
    keys = KEYS if request.param else Keyring()
    return open_store(str(tmp_path / "store"), keys)


async def numbers(trail: AuditTrail) -> list[int]:
    return [record.number for record in await trail.records(RUN)]


async def test_a_batch_that_is_written_again_is_written_once(store: Store) -> None:
    trail = AuditTrail(store)
    head = await trail.append(RUN, None, events(1, 3))

    again = await trail.append(RUN, None, events(1, 3))
    more = await trail.append(RUN, None, events(1, 5))  # as by a worker that was lost before it could say what it wrote

    assert (head.number, again) == (3, head)
    assert await numbers(trail) == [1, 2, 3, 4, 5]
    assert first_fault(RUN, await trail.lines(RUN)) is None
    assert more == await trail.append(RUN, head, events(4, 5))


async def test_what_another_version_said_of_the_same_events_stands(store: Store) -> None:
    """A worker that was upgraded between two tries: what the run hears is the head of what stands."""
    trail = AuditTrail(store)
    head = await trail.append(RUN, None, events(1, 2))

    richer = tuple(event.model_copy(update={"data": {"more": True}}) for event in events(1, 2))

    assert await trail.append(RUN, None, richer) == head
    assert await trail.superseded(RUN) == []


async def test_what_an_older_release_has_written_is_taken_from_the_event_log(store: Store) -> None:
    """A run that began before there were trails has a whole one from its next batch on."""
    trail = AuditTrail(store)
    await store.append_events(RUN, events(1, 4))

    head = await trail.append(RUN, None, events(5, 6))

    assert head.number == 6
    assert await numbers(trail) == [1, 2, 3, 4, 5, 6]
    assert first_fault(RUN, await trail.lines(RUN)) is None


@pytest.mark.parametrize("dies_in", [None, "remove", "replace"])
async def test_another_course_of_things_is_kept_aside_and_told_of(
    store: Store, monkeypatch: pytest.MonkeyPatch, dies_in: str | None
) -> None:
    """An older database was restored: what the run then tells stands in the trail, and says what it took the place of.

    Also when the worker is lost on the way.
    """
    trail = AuditTrail(store)
    head = await trail.append(RUN, None, events(1, 2))
    await trail.append(RUN, await trail.append(RUN, head, events(3, 4)), events(5, 6))
    replaced = record_of((await trail.lines(RUN))[2])
    assert replaced is not None
    if dies_in:
        with monkeypatch.context() as patched:
            patched.setattr(f"write_once.Objects.{dies_in}", _die)
            with pytest.raises(SystemExit):
                await trail.append(RUN, head, events(3, 5, later=60))

    new = await trail.append(RUN, head, events(3, 5, later=60))
    await trail.append(RUN, new, events(6, 8, later=60))

    assert await numbers(trail) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert first_fault(RUN, await trail.lines(RUN)) is None
    assert [record.supersedes for record in await trail.records(RUN)][2] == replaced.hash
    aside = [await store.content(path) for path in await trail.superseded(RUN)]
    kept = [record.number for part in aside for line in part.splitlines() if (record := record_of(line))]
    assert kept == [3, 4, 5, 6]


async def _die(*_: object) -> None:
    raise SystemExit


async def test_a_list_of_what_was_read_is_kept_under_its_hash(store: Store) -> None:
    trail, content = AuditTrail(store), b'{"files": []}'

    for _ in range(2):
        await trail.put_reads(RUN, ref_of(content), content)

    assert await trail.reads(RUN, ref_of(content)) == content
    assert await trail.reads(RUN, "sha256:../../manifest") is None


async def test_a_segment_that_does_not_open_is_a_record_that_was_changed(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "store"), KEYS)
    trail = AuditTrail(store)
    head = await trail.append(RUN, None, events(1, 2))
    await trail.append(RUN, head, events(3, 4))
    file = tmp_path / "store" / (await trail.segments(RUN))[1]

    file.write_bytes(file.read_bytes()[:-1] + b"x")

    fault = first_fault(RUN, await trail.lines(RUN))
    assert fault is not None
    assert str(fault) == "record 3 is changed: it cannot be read"
