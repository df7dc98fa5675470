"""The chain of an audit trail: whatever is done to one record of a thousand, it is that record that is named."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plans import START, answered

from domain.audit import Anchor, Broken, Fault, Head, beginning, chained, first_fault, record_of
from domain.calls import Call
from domain.course import Course
from domain.events import Event, EventType
from domain.models import Account, Failed, Outcome, Parked, TaskError
from domain.progress import Outline, OutlineTask

RUN, MANY, AT = "a-run", 1000, 500


def events(count: int = MANY) -> list[Event]:
    kinds = [EventType.TASK_STARTED, EventType.CALL_MADE, EventType.TASK_COMPLETED]
    made = [
        Event(number=n, type=kinds[n % 3], time=START + timedelta(seconds=n), task=f"t{n}", data={"figure": n})
        for n in range(1, count)
    ]
    return [*made, Event(number=count, type=EventType.RUN_COMPLETED, time=START, data={"status": "COMPLETED"})]


def trail(count: int = MANY) -> tuple[list[bytes], Head]:
    return chained(beginning(RUN), events(count))


def flip(lines: list[bytes]) -> None:
    lines[AT - 1] = lines[AT - 1].replace(b'"figure":500', b'"figure":501')


def flip_in_the_hash(lines: list[bytes]) -> None:
    line = lines[AT - 1]
    lines[AT - 1] = line[:-3] + (b"0" if line[-3:-2] != b"0" else b"1") + line[-2:]


def spoil(lines: list[bytes]) -> None:
    lines[AT - 1] = lines[AT - 1][:20]


def delete(lines: list[bytes]) -> None:
    del lines[AT - 1]


def swap(lines: list[bytes]) -> None:
    lines[AT - 1], lines[AT] = lines[AT], lines[AT - 1]


def repeat(lines: list[bytes]) -> None:
    lines.insert(AT - 1, lines[AT - 2])


def append(lines: list[bytes]) -> None:
    (more,), _ = chained(record_of(lines[-1]).head, [replace_number(events()[3], MANY + 1)])  # type: ignore[union-attr]
    lines.append(more)


def append_any(lines: list[bytes]) -> None:
    lines.append(lines[3])


def cut(lines: list[bytes]) -> None:
    del lines[AT - 1 :]


def write_anew(lines: list[bytes]) -> None:
    """By somebody who knows the formula, as everybody does."""
    told = events()
    told[AT - 1] = told[AT - 1].model_copy(update={"data": {"figure": 1}})
    lines[:] = chained(beginning(RUN), told)[0]


def replace_number(event: Event, number: int) -> Event:
    return event.model_copy(update={"number": number})


HARM: list[tuple[Callable[[list[bytes]], None], int, Broken]] = [
    (flip, AT, Broken.CHANGED),
    (flip_in_the_hash, AT, Broken.CHANGED),
    (spoil, AT, Broken.CHANGED),
    (delete, AT, Broken.MISSING),
    (swap, AT, Broken.SWAPPED),
    (repeat, AT, Broken.ADDED),
    (append, MANY + 1, Broken.ADDED),
    (append_any, MANY + 1, Broken.ADDED),
    (cut, AT, Broken.CUT_OFF),
    (write_anew, MANY, Broken.CHANGED),
]


@pytest.mark.parametrize(("harm", "number", "broken"), HARM, ids=[harm.__name__ for harm, *_ in HARM])
def test_what_was_done_to_one_record_of_a_thousand_is_named(
    harm: Callable[[list[bytes]], None], number: int, broken: Broken
) -> None:
    lines, head = trail()
    assert first_fault(RUN, lines, Anchor(head, final=True)) is None

    harm(lines)

    fault = first_fault(RUN, lines, Anchor(head, final=True))
    assert fault is not None
    assert (fault.number, fault.broken) == (number, broken)


@pytest.mark.parametrize("harm", [harm for harm, *_ in HARM if harm not in {cut, write_anew}])
def test_without_an_anchor_all_is_found_but_a_cut_tail_and_a_trail_that_was_written_anew(
    harm: Callable[[list[bytes]], None],
) -> None:
    lines, _ = trail()

    harm(lines)

    assert first_fault(RUN, lines) is not None


def test_the_trail_of_another_run_is_none_of_this_one() -> None:
    lines, _ = trail(3)

    fault = first_fault("another", lines)

    assert fault is not None
    assert (fault.number, fault.broken) == (1, Broken.CHANGED)


def test_a_run_that_goes_on_may_have_written_more_than_its_anchor_knows() -> None:
    lines, _ = chained(beginning(RUN), events()[:700])
    known = record_of(lines[599])
    assert known is not None

    assert first_fault(RUN, lines, Anchor(known.head, final=False)) is None


@given(st.data())
def test_any_change_of_any_byte_is_found(data: st.DataObject) -> None:
    lines, head = trail(12)
    at = data.draw(st.integers(0, len(lines) - 1))
    place = data.draw(st.integers(0, len(lines[at]) - 1))
    byte = data.draw(st.integers(32, 126).filter(lambda byte: byte != lines[at][place]))

    lines[at] = lines[at][:place] + bytes([byte]) + lines[at][place + 1 :]

    fault = first_fault(RUN, lines, Anchor(head, final=True))
    assert isinstance(fault, Fault)
    assert fault.number == at + 1


@pytest.mark.parametrize("zone", ["UTC", "Asia/Seoul", "America/St_Johns"])
def test_times_are_utc_wherever_it_is_written(zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "TZ", zone)
    time.tzset()
    try:
        here = datetime(2026, 3, 1, 12, tzinfo=UTC).astimezone(timezone(timedelta(hours=9)))
        lines, _ = chained(beginning(RUN), [replace_time(events(2)[0], here)])
    finally:
        monkeypatch.undo()
        time.tzset()

    assert json.loads(lines[0])["time"] == "2026-03-01T12:00:00.000Z"


def replace_time(event: Event, time: datetime) -> Event:
    return event.model_copy(update={"time": time})


# Which calls are told of


def call(prompt: str = "a", number: int = 1, *, answer: str | None = None, error: str | None = None) -> Call:
    return Call(prompt=f"sha256:{prompt * 64}", number=number, model="m", at=START, answer=answer, error=error)


def told_of(*outcomes: Outcome, account: Account | None = None) -> list[tuple[str, object, object]]:
    """The calls that are told of when a task starts again and again and comes to one outcome after the other."""
    task = OutlineTask(id="a", agent="ant", timeout=timedelta(seconds=30), attempts=4)
    course = Course(Outline(max_concurrency=1, counted=True, tasks=(task,)))
    steps, now = [course.begin(START)], START
    for outcome in outcomes:
        now += timedelta(hours=2)
        steps.append(course.wake(steps[-1].progress, now))
        steps.append(course.launch(steps[-1].progress, now))
        assert steps[-1].starts == ("a",)
        steps.append(course.result(steps[-1].progress, "a", outcome, now))
    if account is not None:
        (owed,) = steps[-1].progress.owing
        steps.append(course.settled(steps[-1].progress, owed, account, now))
        assert not steps[-1].progress.told
    told = [event.data for step in steps for event in step.events if event.type is EventType.CALL_MADE]
    return [(str(data["prompt"])[7], data["request"], data.get("error") or data.get("amends")) for data in told]


def with_calls(outcome: Outcome, *calls: Call) -> Outcome:
    return outcome.model_copy(update={"calls": calls})


LOST = Failed(error=TaskError(type="WorkerLost", message="lost"))
WALLED = call(error="RateLimited")
SECOND = call(number=2, answer="sha256:b")
PARKED = Parked(why="worker", what="stopped", until=START + timedelta(hours=3), accounted=True)


def test_a_wall_and_the_answer_after_it_are_two_calls() -> None:
    told = told_of(with_calls(PARKED, WALLED), with_calls(answered(), SECOND))

    assert told == [("a", 1, "RateLimited"), ("a", 2, None)]


def test_the_ledger_adds_only_what_was_not_told_of() -> None:
    account = Account(requests=(WALLED, call(number=2, error="WorkerLost"), call("b")))

    told = told_of(with_calls(PARKED, WALLED), LOST, account=account)

    assert told == [("a", 1, "RateLimited"), ("a", 2, "WorkerLost"), ("b", 1, None)]


def test_a_call_that_was_told_of_as_lost_and_is_answered_after_all_amends_what_was_said() -> None:
    lost, late = call(error="WorkerStopped"), call(answer="sha256:b")

    told = told_of(with_calls(PARKED, lost), with_calls(answered(), late, late))

    assert told == [("a", 1, "WorkerStopped"), ("a", 1, True)]
