"""Events as lines that a person can read."""

from __future__ import annotations

from typing import Any

import pytest
from plans import START

from domain.events import Event, EventType
from terminal.show_event import event_line

NOTHING = {"input": 0, "output": 0, "cache_read": 0, "cache_write": 0}
AT = "2026-01-01T03:00:00.000Z"
BROKE = {"type": "Overloaded", "message": "full", "attempt": 1, "retryable": True}


@pytest.mark.parametrize(
    ("type", "data", "words"),
    [
        ("run.started", {"tasks": 3, "max_concurrency": 2, "mode": "waves"}, "3 tasks, 2 at once in waves"),
        ("run.paused", {"by": "ann", "note": "lunch"}, "by ann, note lunch"),
        ("run.changed", {"by": "ann", "note": None, "max_concurrency": 8}, "by ann, max_concurrency 8"),
        ("run.changed", {"stops": ["a", "b"], "by": "ann", "note": None}, "stops a b, by ann"),
        ("run.changed", {"asks_at": ["m"], "by": "ann", "note": None}, "asks_at m, by ann"),
        ("run.waiting", {"until": AT}, f"nothing is at work until {AT}"),
        ("run.waiting", {"until": None}, "nothing is at work"),
        ("wave.started", {"number": 2, "tasks": ["a", "b"]}, "wave 2 of 2 tasks: a, b"),
        (
            "quota.wall",
            {"model": None, "kind": "key", "what": "refused", "until": AT, "told": False, "probe": "a"},
            f"the account: key, refused, asked again at {AT}, probe a",
        ),
        (
            "quota.wall",
            {"model": "m", "kind": "rate", "what": "too many", "until": AT, "told": True, "probe": None},
            f"m: rate, too many, until {AT}",
        ),
        ("quota.cleared", {"model": "m"}, "m"),
        ("approval.given", {"by": "ann", "note": "yes"}, "by ann, note yes"),
        ("task.waiting", {"for": "approval", "what": "Shall we?", "until": None}, "approval: Shall we?"),
        (
            "task.retried",
            {"attempt": 1, "error": BROKE, "at": AT, "tokens": NOTHING, "unsettled": {**NOTHING, "output": 7}},
            f"attempt 1 in vain, Overloaded: full, up to 7 more out, at {AT}",
        ),
        ("task.retried", {"by": "ann", "note": None}, "by ann"),
        (
            "task.completed",
            {
                "status": "SUCCEEDED",
                "attempts": 1,
                "tokens": {**NOTHING, "input": 9},
                "summary_ref": "s",
                "summary_bytes": 500,
                "aside": [{"model": "m", "tokens": {**NOTHING, "input": 7}}],
            },
            "SUCCEEDED, 1 attempt, 9 tokens in, 0 out, summed up in 500, 1 call beside it, summary_ref s",
        ),
        (
            "task.completed",
            {"status": "SUCCEEDED", "output_ref": "o", "output_bytes": 9, "summary_ref": "o", "summary_bytes": 9},
            "SUCCEEDED, 9 bytes, output_ref o",
        ),
        (
            "task.skipped",
            {"status": "SKIPPED", "reason": "rejected by ann", "cause": "b", "by": "ann", "note": None},
            "SKIPPED, rejected by ann, cause b, by ann",
        ),
        (
            "right.refused",
            {"agent": "ant", "right": "data", "thing": "files:a.md", "pattern": "files:*", "by": "ann", "at": AT},
            "agent 'ant' may not read the file 'a.md': 'data: files:*' was withdrawn by ann, 2026-01-01 03:00 UTC",
        ),
        (
            "review.given",
            {"by": "judge@1", "accepted": False, "try": 2, "ref": "sha256:0"},
            "judge@1 did not accept answer 2, ref sha256:0",
        ),
        (
            "right.refused",
            {"agent": "ant", "right": None, "thing": "disabled", "by": "ann"},
            "agent 'ant' is disabled (by ann)",
        ),
    ],
)
def test_an_event_is_told_in_words(type: str, data: dict[str, Any], words: str) -> None:
    line = event_line(Event(number=7, type=EventType(type), time=START, data=data))

    assert line.split(type, 1)[1].strip() == words


@pytest.mark.parametrize("type", list(EventType))
def test_an_event_of_another_version_is_told_as_far_as_it_is_understood(type: EventType) -> None:
    line = event_line(Event(number=7, type=type, time=START, task="a", data={"something": "new"}))

    assert type.value in line
    assert "new" in line


def test_an_event_that_only_a_newer_version_knows_is_told_all_the_same() -> None:
    line = event_line(Event(number=7, type="moon.rose", time=START, task="a", data={"phase": "full"}), run="night-1")

    assert line.split(maxsplit=2)[2].split() == ["night-1", "7", "moon.rose", "a", "phase", "full"]


def test_what_has_no_number_shows_none() -> None:
    """As a call that only the ledger knows: it is not chained, and a 0 would look like a place in the trail."""
    numbered, beside = (event_line(Event(number=n, type=EventType.TASK_READY, time=START, task="a")) for n in (7, 0))
    assert " 7  task.ready" in numbered
    assert beside == numbered.replace("7  task.ready", "   task.ready")
