"""The door and summaries: when a second call is made, what it costs, and what becomes of the task without it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from doorway import HAIKU, OPUS, Doorway, opened
from temporalio.activity import ActivityCancellationDetails

from activities import summaries
from activities.gate import Standing
from domain.models import Answered, Spent, Stopped, Usage, ref_of
from domain.summaries import SUMMARY_BYTES, beginning
from simulator import Simulator
from store import Store, StoreUnavailable, open_store

LONG = "The walrus sings. " * 500
SHORT = "Walruses sing."
BARE = {"answer": LONG, "summary": False}
"""An answer whose agent forgot the summary."""


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path / "store"))


@pytest.fixture
async def door(simulator: Simulator, store: Store) -> AsyncIterator[Doorway]:
    """The tasks are done by one model, their summaries are made by another."""
    async with opened(store, simulator.url, max_tokens=4_000, summarizer=OPUS) as door:
        yield door


def script(simulator: Simulator, answer: dict[str, Any], *aside: dict[str, Any]) -> None:
    """What the agent says, always the same, and what the summarizer says, one after the other."""
    rules = [{"when": {"model": OPUS, "nth": number}, "then": then} for number, then in enumerate(aside, 1)]
    simulator.script([*rules, {"when": {"model": HAIKU}, "then": answer}])


def calls(simulator: Simulator) -> list[str | None]:
    return [entry.model for entry in simulator.log]


def billed(simulator: Simulator, model: str) -> Usage:
    entries = [entry.billed for entry in simulator.log if entry.model == model]
    return Usage(input=sum(entry.input for entry in entries), output=sum(entry.output for entry in entries))


async def texts(door: Doorway, outcome: Answered) -> tuple[str, str]:
    """The result and its summary, as the store has them."""
    assert outcome.summary_ref is not None
    text, summary = [(await door.store.artifact(ref)).decode() for ref in (outcome.output_ref, outcome.summary_ref)]
    assert (outcome.output_bytes, outcome.summary_bytes) == (len(text.encode()), len(summary.encode()))
    return text, summary


# --- when no second call is made ---


async def test_a_summary_that_the_agent_gave_is_taken(simulator: Simulator, door: Doorway) -> None:
    script(simulator, {"answer": LONG, "summary": SHORT})

    outcome = await door.answered()

    assert await texts(door, outcome) == (LONG.rstrip(), SHORT)
    assert (calls(simulator), outcome.aside, outcome.spent) == ([HAIKU], (), outcome.usage)


async def test_a_short_text_is_its_own_summary(simulator: Simulator, door: Doorway) -> None:
    script(simulator, {"answer": SHORT, "summary": "Another one."})

    outcome = await door.answered()

    assert await texts(door, outcome) == (SHORT, SHORT)
    assert outcome.summary_ref == outcome.output_ref
    assert calls(simulator) == [HAIKU]


async def test_who_is_not_asked_gives_none(simulator: Simulator, store: Store) -> None:
    simulator.script([{"then": {"answer": LONG}}])
    async with opened(store, simulator.url, max_tokens=4_000) as door:
        outcome = await door.answered()

    assert (outcome.summary_ref, outcome.summary_bytes, outcome.output_ref) == (None, 0, ref_of(LONG.encode()))
    assert simulator.calls() == 1


# --- when one is made ---


@pytest.mark.parametrize("given", [False, "", "x" * (SUMMARY_BYTES + 1)], ids=["none", "empty", "too-long"])
async def test_where_there_is_none_that_fits_the_summarizer_makes_one(
    simulator: Simulator, door: Doorway, given: str | bool
) -> None:
    script(simulator, {"answer": LONG, "summary": given}, {"answer": f" {SHORT}\n"})

    outcome = await door.answered()

    text, summary = await texts(door, outcome)
    assert text.startswith(LONG.rstrip())
    assert summary == SHORT
    assert calls(simulator) == [HAIKU, OPUS]
    assert outcome.usage == billed(simulator, HAIKU)
    assert outcome.aside == (Spent(model=OPUS, usage=billed(simulator, OPUS)),)
    assert outcome.spent == billed(simulator, HAIKU) + billed(simulator, OPUS)
    assert outcome.attempts == 1


@pytest.mark.parametrize("usage", [{"output_tokens": -5}, {"output_tokens": 10**12}, None], ids=str)
async def test_a_summary_of_which_is_not_told_what_it_cost_counts_at_its_worst_case(
    simulator: Simulator, door: Doorway, usage: dict[str, Any] | None
) -> None:
    script(simulator, BARE, {"answer": SHORT, "usage": usage})

    outcome = await door.answered()

    (aside,) = outcome.aside
    limits = [entry.max_tokens for entry in simulator.log if entry.model == OPUS]
    assert [aside.usage.output] == limits
    assert outcome.usage == billed(simulator, HAIKU)


async def test_a_text_that_was_whole_before_the_cut_counts(simulator: Simulator, store: Store) -> None:
    """The summary was cut at max_tokens, and nothing else: another one is made, and the answer is not paid again."""
    room = len(LONG) // 4 + 12  # up to somewhere in the summary
    script(simulator, {"answer": LONG, "summary": SHORT * 20}, {"answer": SHORT})
    async with opened(store, simulator.url, max_tokens=room, summarizer=OPUS) as door:
        outcome = await door.answered()

        assert await texts(door, outcome) == (LONG.rstrip(), SHORT)
    assert [entry.stop_reason for entry in simulator.log] == ["max_tokens", "end_turn"]


async def test_a_text_that_was_cut_itself_is_a_failure(simulator: Simulator, store: Store) -> None:
    script(simulator, {"answer": LONG, "summary": SHORT})
    async with opened(store, simulator.url, max_tokens=100, summarizer=OPUS) as door:
        failed, error = await door.failed()

    assert (failed.error.type, error.non_retryable) == ("AnswerCut", True)
    assert calls(simulator) == [HAIKU]


@pytest.mark.parametrize(
    "said",
    [{"answer": "word " * 300}, {"answer": "word " * 60, "stop_reason": "max_tokens"}],
    ids=["too-long", "cut"],
)
async def test_what_the_summarizer_says_too_much_is_cut(simulator: Simulator, door: Doorway, said: Any) -> None:
    script(simulator, BARE, said)

    outcome = await door.answered()

    _, summary = await texts(door, outcome)
    assert summary.startswith("word word")
    assert outcome.summary_bytes <= SUMMARY_BYTES
    assert calls(simulator) == [HAIKU, OPUS]


# --- when it comes to nothing ---


@pytest.mark.parametrize(
    "said", [{"answer": " "}, {"answer": "I will not.", "stop_reason": "refusal"}], ids=["empty", "refused"]
)
async def test_a_summary_that_is_none_is_counted_and_the_beginning_of_the_text_goes_down(
    simulator: Simulator, door: Doorway, said: Any
) -> None:
    script(simulator, BARE, said)

    outcome = await door.answered()

    assert await texts(door, outcome) == (LONG, beginning(LONG))
    assert outcome.aside == (Spent(model=OPUS, usage=billed(simulator, OPUS)),)


async def test_a_call_that_fails_is_made_again_and_the_first_is_not(simulator: Simulator, door: Doorway) -> None:
    script(simulator, BARE, {"fault": "api_error"}, {"answer": SHORT})

    failed, error = await door.failed(attempt=1)
    outcome = await door.answered(attempt=2)

    assert (failed.error.type, error.non_retryable) == ("ProviderFault", False)
    assert failed.error.message.startswith("for a summary: ")
    assert calls(simulator) == [HAIKU, OPUS, OPUS]
    assert await texts(door, outcome) == (LONG, SHORT)
    assert [(told.attempt, told.error.type, told.model) for told in outcome.tries] == [(1, "ProviderFault", OPUS)]
    assert outcome.attempts == 2


@pytest.mark.parametrize("fault", ["api_error", "invalid_request", "truncate"])
async def test_a_task_succeeds_without_its_summary_when_that_fails_for_good(
    simulator: Simulator, door: Doorway, fault: str
) -> None:
    """At the last attempt, or when asking again would not help; what it cost is told."""
    script(simulator, BARE, {"fault": fault, **({"answer": SHORT * 9} if fault == "truncate" else {})})

    outcome = await door.answered(used=0 if fault == "invalid_request" else 3)

    assert await texts(door, outcome) == (LONG, beginning(LONG))
    assert calls(simulator) == [HAIKU, OPUS]
    (told,) = outcome.tries
    assert (told.model, told.usage.input) == (OPUS, billed(simulator, OPUS).input)
    assert (told.unsettled == Usage()) == (fault != "truncate")
    assert outcome.aside == ()


# --- walls, pauses, ends ---


@pytest.mark.parametrize("fault", ["authentication", "not_found"])
async def test_nobody_waits_for_a_summary_that_a_person_must_mend(
    simulator: Simulator, door: Doorway, fault: str
) -> None:
    script(simulator, BARE, {"fault": fault})

    outcome = await door.answered()

    assert await texts(door, outcome) == (LONG, beginning(LONG))
    assert (outcome.tries, outcome.aside) == ((), ())


async def test_a_rate_limit_of_the_summarizer_is_no_wall_before_the_model_of_the_task(
    simulator: Simulator, door: Doorway
) -> None:
    """The task waits alone, uses no attempt, and pays for its answer once."""
    script(simulator, BARE, {"fault": "rate_limit", "retry_after": 5}, {"answer": SHORT})

    parked = await door.parked()
    async with opened(door.store, simulator.url, max_tokens=4_000, summarizer=OPUS) as later:
        outcome = await later.answered(start="again")

    assert (parked.why, parked.wall, parked.tries) == ("wall", None, ())
    assert parked.until is not None
    assert parked.what.startswith("for its summary: ")
    assert calls(simulator) == [HAIKU, OPUS, OPUS]
    assert await texts(later, outcome) == (LONG, SHORT)
    assert outcome.attempts == 1


async def test_attempts_at_a_summary_are_used_when_its_task_is_parked(simulator: Simulator, door: Doorway) -> None:
    script(simulator, BARE, {"fault": "api_error"}, {"fault": "rate_limit", "retry_after": 5}, {"answer": SHORT})

    await door.failed(attempt=1)
    parked = await door.parked(attempt=2)

    assert [(told.attempt, told.model) for told in parked.tries] == [(1, OPUS)]


async def test_a_pause_and_an_end_hold_for_the_second_call_too(simulator: Simulator, door: Doorway) -> None:
    script(simulator, BARE, {"answer": SHORT})
    simulator_calls: list[int] = []

    async def after_the_first(*_: str) -> Standing:
        simulator_calls.append(simulator.calls())
        return last if simulator.calls() else Standing()

    door.gate.permission = after_the_first  # type: ignore[method-assign]
    last = Standing(paused=True)
    parked = await door.parked()
    last = Standing(over="it was cancelled")
    stopped = await door.ask()

    assert parked.why == "pause"
    assert isinstance(stopped, Stopped)
    assert calls(simulator) == [HAIKU]
    assert simulator_calls == [0, 1, 1]


# --- whatever dies between the two ---


async def test_a_worker_that_is_stopped_between_the_calls_pays_nothing_again(
    simulator: Simulator, door: Doorway
) -> None:
    script(simulator, BARE, {"fault": "hang_before_headers"}, {"answer": SHORT})
    asking = asyncio.create_task(door.ask())
    await simulator.until(lambda: simulator.calls() == 2)

    door.environment.cancel(ActivityCancellationDetails(worker_shutdown=True))
    await asking
    async with opened(door.store, simulator.url, max_tokens=4_000, summarizer=OPUS) as other:
        outcome = await other.answered(start="another")

    assert calls(simulator) == [HAIKU, OPUS, OPUS]
    assert await texts(other, outcome) == (LONG, SHORT)


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_worker_that_dies_around_the_second_call_pays_the_first_once(
    simulator: Simulator, door: Doorway, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Killed before the call: it is made by the next attempt. Killed after it: nothing is."""
    script(simulator, BARE, {"answer": SHORT}, {"answer": "It is never asked for this."})
    name = "_made" if when == "before" else "_in_vain"

    async def dies(*_: object, **__: object) -> None:
        raise asyncio.CancelledError

    with monkeypatch.context() as killed:
        killed.setattr(summaries.Summaries, name, dies)
        with pytest.raises(asyncio.CancelledError):
            await door.ask()
    async with opened(door.store, simulator.url, max_tokens=4_000, summarizer=OPUS) as other:
        outcome = await other.answered(attempt=2)

    assert calls(simulator) == [HAIKU, OPUS]
    assert await texts(other, outcome) == (LONG, SHORT)
    assert outcome.spent == billed(simulator, HAIKU) + billed(simulator, OPUS)


async def test_a_full_store_between_the_calls_loses_nothing(
    simulator: Simulator, door: Doorway, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(simulator, {"answer": LONG, "summary": SHORT})
    put, refused = Store.put_artifact, list[int]()

    async def full_at_first(store: Store, content: bytes) -> str:
        if content == SHORT.encode() and not refused:
            refused.append(1)
            raise StoreUnavailable("no room")
        return await put(store, content)

    monkeypatch.setattr(Store, "put_artifact", full_at_first)

    outcome = await door.answered()

    assert refused
    assert await texts(door, outcome) == (LONG.rstrip(), SHORT)
    assert calls(simulator) == [HAIKU]
