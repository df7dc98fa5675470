"""What counts as a stall: judged from plain facts and a time, without a server."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from checkup.runs import remedy_of
from domain.board import Live, Note
from domain.stalls import (
    FAILURES,
    QUIET_AFTER,
    STALLED_AFTER,
    TIMED_OUT,
    WORDS,
    Cause,
    Errand,
    Failure,
    NextStep,
    Stall,
    Workers,
    cause_of,
    first_line,
    silent_tasks,
    stall_of_errand,
    stall_of_step,
    telling,
)

START = datetime(2026, 11, 1, tzinfo=UTC)
MOMENT = timedelta(milliseconds=1)
SOMEBODY = Workers(queue="crew", polling=(None,))
NOBODY = Workers(queue="crew")
BUG = Failure(cause="WORKFLOW_WORKER_UNHANDLED_FAILURE", message="KeyError: 'a'", at=START)


def step(*, attempt: int = 1, started: bool = False) -> NextStep:
    return NextStep(attempt=attempt, scheduled=START, started=started)


def cause(stall: Stall | None) -> Cause | None:
    return stall.cause if stall else None


@pytest.mark.parametrize(
    ("after", "workers", "expected"),
    [
        (STALLED_AFTER - MOMENT, NOBODY, None),
        (STALLED_AFTER, NOBODY, Cause.NO_WORKER),
        (STALLED_AFTER - MOMENT, SOMEBODY, None),
        (STALLED_AFTER, SOMEBODY, Cause.NOT_TAKEN),
        (STALLED_AFTER, Workers(queue="crew", polling=("crew.2",), pinned="crew.1"), Cause.NO_VERSION),
        (STALLED_AFTER, Workers(queue="crew", polling=(None,), pinned="crew.1"), Cause.NO_VERSION),
        (STALLED_AFTER, Workers(queue="crew", polling=("crew.2", "crew.1"), pinned="crew.1"), Cause.NOT_TAKEN),
        (STALLED_AFTER, Workers(queue="crew", pinned="crew.1"), Cause.NO_WORKER),
    ],
)
def test_a_step_that_nobody_takes(after: timedelta, workers: Workers, expected: Cause | None) -> None:
    assert cause(stall_of_step(None, step(), None, workers, START + after)) is expected


@pytest.mark.parametrize(
    ("failed", "after", "expected"),
    [
        (FAILURES - 1, STALLED_AFTER - MOMENT, None),
        (FAILURES, timedelta(0), Cause.BUG),
        (1, STALLED_AFTER, Cause.BUG),
        (0, STALLED_AFTER, None),
    ],
)
def test_a_step_that_fails_is_told_early(failed: int, after: timedelta, expected: Cause | None) -> None:
    """As soon as it has failed often enough, or long enough; a step at its first attempt has not failed."""
    at_work = step(attempt=failed + 1, started=True)

    assert cause(stall_of_step("a", at_work, BUG, SOMEBODY, START + after)) is expected


def test_a_failing_step_that_nobody_takes_any_more_needs_a_worker_first() -> None:
    """A person has stopped the worker to mend it, or it was stopped by the bug."""
    later = START + STALLED_AFTER

    assert cause(stall_of_step(None, step(attempt=9), BUG, NOBODY, later)) is Cause.NO_WORKER
    assert cause(stall_of_step(None, step(attempt=9), BUG, SOMEBODY, later)) is Cause.BUG


@pytest.mark.parametrize(
    ("server", "message", "expected"),
    [
        ("WORKFLOW_WORKER_UNHANDLED_FAILURE", "KeyError: 'a'", Cause.BUG),
        ("WORKFLOW_WORKER_UNHANDLED_FAILURE", "[TMPRL1101] Potential deadlock", Cause.SLOW_CODE),
        ("NON_DETERMINISTIC_ERROR", "[TMPRL1100] Nondeterminism", Cause.CHANGED_CODE),
        ("PAYLOADS_TOO_LARGE", "[TMPRL1103] Attempted to upload", Cause.TOO_LARGE),
        ("GRPC_MESSAGE_TOO_LARGE", "", Cause.TOO_LARGE),
        ("PENDING_CHILD_WORKFLOWS_LIMIT_EXCEEDED", "2000", Cause.TOO_MANY),
        (TIMED_OUT, "", Cause.NO_ANSWER),
        ("BAD_START_TIMER_ATTRIBUTES", "", Cause.BUG),
    ],
)
def test_what_the_server_says_is_named_and_told(server: str, message: str, expected: Cause) -> None:
    failure = Failure(cause=server, message=message, at=START)

    stall = stall_of_step(None, step(attempt=FAILURES + 1), failure, SOMEBODY, START)

    assert stall is not None
    assert stall.cause is cause_of(failure) is expected
    assert server in stall.what
    assert message in stall.what
    assert (stall.since, stall.do) == (START, "doctor")


def test_what_a_worker_said_counts_more_than_that_time_ran_out() -> None:
    late = Failure(cause=TIMED_OUT, message="", at=START + MOMENT * 2)
    bug = BUG.model_copy(update={"at": START + MOMENT})
    early = Failure(cause=TIMED_OUT, message="", at=START)

    assert telling([late, bug, early]) == BUG
    assert telling([late, early]) == early
    assert telling([]) is None


def errand(**facts: object) -> Errand:
    failing = {
        "name": "append_events",
        "queue": "crew-control",
        "attempt": FAILURES + 1,
        "scheduled": START + STALLED_AFTER * 2,
        "since": START,
        "started": False,
        "endless": True,
        "error": "StoreUnavailable: gone",
    }
    return Errand.model_validate({**failing, **facts})


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({}, Cause.ACTIVITY_FAILS),
        ({"started": True}, Cause.ACTIVITY_FAILS),
        ({"started": True, "beats": True}, None),
        ({"endless": False}, None),
        ({"attempt": FAILURES}, None),
        ({"error": None}, None),
        ({"since": START + MOMENT}, None),
    ],
)
def test_an_activity_that_fails_without_end(facts: dict[str, object], expected: Cause | None) -> None:
    """A paid call has a last attempt, and one that is heard of is at work: neither is a stall."""
    assert cause(stall_of_errand(None, errand(**facts), SOMEBODY, START + STALLED_AFTER)) is expected


@pytest.mark.parametrize(
    ("started", "workers", "expected"),
    [(False, NOBODY, Cause.NO_WORKER), (True, NOBODY, None), (False, SOMEBODY, None)],
)
def test_an_activity_that_nobody_takes(started: bool, workers: Workers, expected: Cause | None) -> None:
    """Workers that are there have enough to do: that is no stall."""
    waiting = errand(scheduled=START, attempt=1, error=None, endless=False, started=started)

    assert cause(stall_of_errand("a", waiting, workers, START + STALLED_AFTER)) is expected


@pytest.mark.parametrize(
    ("lost", "after", "expected"),
    [
        (None, STALLED_AFTER - MOMENT, None),
        (timedelta(seconds=15), STALLED_AFTER - MOMENT, Cause.NO_WORKER),
        (timedelta(seconds=15), STALLED_AFTER - timedelta(seconds=16), None),
        (STALLED_AFTER, -MOMENT, None),
    ],
)
def test_the_time_until_a_lost_worker_is_missed_counts(
    lost: timedelta | None, after: timedelta, expected: Cause | None
) -> None:
    """Nobody works from when it was last heard of. An attempt that is still to come is not waited for."""
    last = None if lost is None else START - lost
    waiting = errand(scheduled=START, attempt=2, endless=False, started=False, lost=last)

    assert cause(stall_of_errand("a", waiting, NOBODY, START + after)) is expected


def test_only_a_run_of_which_nothing_is_heard_has_its_tasks_looked_at() -> None:
    note = Note(task="a", attempt=1, step="calling", started=START, since=START)
    later = START + QUIET_AFTER
    heard, silent = Live(note=note, heard=later), Live(note=note, heard=START)

    assert silent_tasks({"a": silent, "b": None}, START, later) == ("a", "b")
    assert silent_tasks({"a": silent, "b": None}, START + MOMENT, later) == (), "something has happened"
    assert silent_tasks({"a": heard, "b": None}, START, later) == (), "somebody is at work"
    assert silent_tasks({}, START, later) == ()
    assert silent_tasks({"a": None}, None, later) == ("a",)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("KeyError: 'a'\nsecond line", "KeyError: 'a'"),
        ("\n  \n first\n", "first"),
        ("red \x1b[31m and \x07bell\u202e", "red [31m and bell"),
        ("", ""),
        ("x" * (WORDS + 1), "x" * (WORDS - 1) + "…"),
        ("x" * WORDS, "x" * WORDS),
    ],
)
def test_an_error_is_shown_in_one_clean_line(text: str, shown: str) -> None:
    assert first_line(text) == shown


@pytest.mark.parametrize("cause", Cause)
def test_every_cause_has_its_remedy(cause: Cause) -> None:
    stall = Stall(task=None, cause=cause, what="It stands.", since=START, do="doctor")

    assert remedy_of(stall, "./starter.py")
    if cause not in {Cause.NO_VERSION, Cause.ACTIVITY_FAILS}:
        assert "./starter.py up" in remedy_of(stall, "./starter.py")
