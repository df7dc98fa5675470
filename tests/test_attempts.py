"""Attempts at a call: which one it is, what it may have cost, what is kept of it, and when the next one comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from doorway import HAIKU, MAX_TOKENS, Doorway, opened
from structlog.testing import capture_logs
from temporalio.activity import ActivityCancellationDetails
from test_costs import PRICE

from activities import patience
from activities.attempts import Attempt
from activities.briefs import Briefs
from activities.gate import Standing
from activities.keeping import Keeper
from activities.reading import ANSWER_LIMIT
from books import Books
from domain import purse
from domain.models import Stopped, TaskError, TaskStatus, Try, Usage
from domain.prices import cost_of_calls, worst_cost
from domain.witness import call_data
from entries import Kept, Setback
from simulator import Simulator
from store import Store, StoreUnavailable, open_store

CUT = {"fault": "truncate", "at": 0.8, "answer": "the walrus sings " * 20}
SECOND = timedelta(seconds=1)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path / "store"))


@pytest.fixture
async def door(simulator: Simulator, store: Store) -> AsyncIterator[Doorway]:
    async with opened(store, simulator.url) as door:
        yield door


def faults(*thens: dict[str, Any]) -> list[dict[str, Any]]:
    """One after the other, then answers."""
    return [{"when": {"nth": number}, "then": then} for number, then in enumerate(thens, 1)]


# --- which one it is ---


async def test_the_count_goes_on_where_earlier_starts_have_left_it(simulator: Simulator, door: Doorway) -> None:
    simulator.script(faults({"fault": "api_error"}))

    failed, error = await door.failed(attempt=1, used=2)
    answered = await door.answered(attempt=2, used=2)

    assert failed.error.attempt == 3
    assert error.message == failed.error.message == "the provider failed inside (status 500), attempt 3 of 4"
    assert answered.attempts == 4


async def test_a_worker_that_is_lost_before_its_call_uses_no_attempt(simulator: Simulator, door: Doorway) -> None:
    """Temporal counts how often somebody began; the ledger knows how often the provider was asked."""
    simulator.script(faults({"fault": "api_error"}, {"fault": "api_error"}))

    first, again = await door.failed(attempt=3, attempts=3)
    second, _ = await door.failed(attempt=5, attempts=3)
    answered = await door.answered(attempt=9, attempts=3)

    assert (first.error.attempt, again.non_retryable, second.error.attempt) == (1, False, 2)
    assert (answered.attempts, [told.attempt for told in answered.tries]) == (3, [1, 2])


async def test_the_answer_of_a_lost_worker_is_used_even_if_it_was_the_last_attempt(
    simulator: Simulator, door: Doorway
) -> None:
    first = await door.answered(attempts=1)
    async with opened(door.store, simulator.url) as later:
        again = await later.answered(attempt=2, attempts=1)

    assert (again.output_ref, again.attempts, simulator.calls()) == (first.output_ref, 1, 1)


async def test_the_last_attempt_may_be_lost_too(simulator: Simulator, door: Doorway) -> None:
    simulator.script(faults({"fault": "api_error"}, {"fault": "hang_before_headers"}))
    await door.failed(attempt=1, attempts=2)
    asked = asyncio.create_task(door.ask(attempt=2, attempts=2))
    await simulator.until(lambda: simulator.calls() == 2)
    asked.cancel()  # as good as lost, for who comes later
    await asyncio.wait([asked])

    failed, error = await door.failed(attempt=3, attempts=2)

    assert (failed.error.type, error.non_retryable, failed.accounted) == ("WorkerLost", True, False)
    assert failed.error.message == "the worker was lost in the last of 2 attempts"
    assert simulator.calls() == 2


async def test_a_lost_call_that_had_met_a_wall_does_not_keep_the_count_back(
    simulator: Simulator, door: Doorway
) -> None:
    """A frozen worker wakes up to a 429, which uses no attempt: the numbers that were given meanwhile stay given."""
    slowly = {"fault": "reset_mid_stream", "ttft": 5}  # so late that all is written before it ends
    simulator.script(faults({"ttft": 3600}, slowly, {"fault": "api_error"}))
    frozen = asyncio.create_task(door.ask(attempt=1, attempts=3))
    await simulator.until(lambda: simulator.calls() == 1)
    async with opened(door.store, simulator.url) as other:
        asked = asyncio.create_task(other.failed(attempt=2, attempts=3))
        await simulator.until(lambda: simulator.calls() == 2)
        intent = next(key for key in await door.store.records("run") if key.endswith("/intent-1"))
        told = Try(attempt=1, error=TaskError(type="RateLimited", message="full"), at=datetime.now(UTC))
        walled = Setback(told=told, start="start", used=False).model_dump(mode="json")
        assert await door.store.record(f"{intent.rpartition('/')[0]}/setback-1", walled)
        first, _ = await asked
        second, last = await other.failed(attempt=3, attempts=3)
    frozen.cancel()
    await asyncio.wait([frozen])

    assert (first.error.attempt, second.error.attempt, last.non_retryable) == (2, 3, True)


async def test_of_two_workers_with_the_last_attempt_one_steps_back(simulator: Simulator, door: Doorway) -> None:
    """One was frozen before it wrote down its call, and the other has made it meanwhile."""
    intend, waiting, go_on = Keeper.intend, asyncio.Event(), asyncio.Event()

    async def frozen(self: Keeper, attempt: Attempt, *, batch: str | None = None) -> int:
        waiting.set()
        await go_on.wait()
        return await intend(self, attempt, batch=batch)

    simulator.script(faults({"fault": "hang_before_headers"}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Keeper, "intend", frozen)
        late = asyncio.create_task(door.failed(attempt=1, attempts=1))
        await waiting.wait()
    async with opened(door.store, simulator.url) as other:
        asked = asyncio.create_task(other.ask(attempt=2, attempts=1))
        await simulator.until(lambda: simulator.calls() == 1)
        go_on.set()
        failed, error = await late
        asked.cancel()
        await asyncio.wait([asked])

    assert (failed.error.type, error.non_retryable, simulator.calls()) == ("WorkerLost", True, 1)


async def test_who_joins_a_call_that_fails_has_the_number_of_the_call(simulator: Simulator, door: Doorway) -> None:
    """After a cut of the network both are in one process: it was one call, and there is another attempt."""
    simulator.script(faults({"fault": "hang_before_headers"}))
    first = asyncio.create_task(door.failed(attempt=1, attempts=2))
    await simulator.until(lambda: simulator.calls() == 1)
    second = asyncio.create_task(door.failed(attempt=2, attempts=2))
    (flight,) = door._activities._calls._flights._flying.values()
    while flight.passengers < 2:
        await asyncio.sleep(0.01)
    for conversation in simulator._conversations:
        conversation.cancel()  # the provider hangs up
    joined, error = await second
    await first

    assert (joined.error.attempt, error.non_retryable, simulator.calls()) == (1, False, 1)


# --- when the next one comes ---


async def test_the_wait_doubles_and_varies(simulator: Simulator, store: Store) -> None:
    simulator.script([{"then": {"fault": "api_error"}}])
    async with opened(store, simulator.url, backoff=SECOND) as door:
        waits = [(await door.failed(used=used, attempts=99))[1].next_retry_delay for used in (0, 1, 2, 3, 49)]

    for attempt, wait in enumerate(waits[:4]):
        assert wait is not None
        assert SECOND * 2**attempt * 0.5 <= wait <= SECOND * 2**attempt * 1.5
    assert waits[4] == timedelta(minutes=1)


@pytest.mark.parametrize(("told", "kept"), [(0, SECOND), (7, 7 * SECOND), (86400, 60 * SECOND)])
async def test_the_delay_of_the_provider_is_kept_within_reason(
    simulator: Simulator, door: Doorway, told: int, kept: timedelta
) -> None:
    simulator.script([{"then": {"fault": "unavailable", "retry_after": told}}])

    _, error = await door.failed()

    assert error.next_retry_delay == kept


async def test_garbage_is_asked_for_at_most_twice_more(simulator: Simulator, door: Doorway) -> None:
    """Whatever other faults came between."""
    garbage = {"fault": "garbage_json"}
    simulator.script(faults(garbage, {"fault": "api_error"}, garbage, garbage))

    ends = [(await door.failed(attempt=attempt, attempts=9))[1].non_retryable for attempt in (1, 2, 3, 4)]

    assert ends == [False, False, False, True]


# --- what it may have cost ---

REFUSED = ["api_error", "bad_gateway", "unavailable", "overloaded", "invalid_request", "request_too_large"]


@pytest.mark.parametrize("fault", REFUSED)
async def test_what_was_refused_before_it_was_read_costs_nothing(
    simulator: Simulator, door: Doorway, fault: str
) -> None:
    simulator.script([{"then": {"fault": fault}}])

    failed, _ = await door.failed()

    assert (failed.usage, failed.unsettled) == (Usage(), Usage())


@pytest.mark.parametrize("fault", ["reset_before_headers", "html_200", "empty_stream", "wrong_shape"])
async def test_a_call_of_which_nothing_is_known_counts_at_its_worst_case(
    simulator: Simulator, door: Doorway, fault: str
) -> None:
    """Every byte of the brief may be a token, and the answer as long as it is allowed to be."""
    simulator.script([{"then": {"fault": fault}}])

    failed, _ = await door.failed()

    (entry,) = simulator.log
    assert failed.usage == Usage()
    assert failed.unsettled.output == MAX_TOKENS
    assert failed.unsettled.input >= (entry.prompt_bytes or 0) > 0
    assert entry.billed.input <= failed.unsettled.input


@pytest.mark.parametrize(
    "then",
    [
        CUT,
        {**CUT, "fault": "reset_mid_stream"},
        {"fault": "error_event", "answer": "the walrus"},
        {"fault": "bad_utf8"},
    ],
    ids=lambda then: str(then["fault"]),
)
async def test_of_an_answer_that_broke_off_the_input_is_known_and_the_output_bounded(
    simulator: Simulator, door: Doorway, then: dict[str, Any]
) -> None:
    simulator.script([{"then": then}])

    failed, _ = await door.failed()

    (entry,) = simulator.log
    assert failed.usage.input == entry.billed.input > 0
    assert failed.unsettled == Usage(output=MAX_TOKENS - failed.usage.output)
    assert entry.billed.output <= failed.usage.output + failed.unsettled.output


async def test_an_answer_that_came_to_its_end_and_does_not_count_is_settled(
    simulator: Simulator, door: Doorway
) -> None:
    simulator.script([{"then": {"answer": "I will not do that.", "stop_reason": "refusal"}}])

    failed, error = await door.failed()
    again, _ = await door.failed(attempt=2)

    (entry,) = simulator.log
    assert (failed.usage, failed.unsettled) == (Usage(input=entry.billed.input, output=entry.billed.output), Usage())
    assert error.non_retryable
    assert again.usage == failed.usage  # out of the ledger: it is not asked, or billed, again
    assert again.tries == ()


@pytest.mark.parametrize(
    ("usage", "told"),
    [
        ({"output_tokens": -5}, {"input"}),
        ({"output_tokens": 10**12}, {"input"}),
        ({"output_tokens": 0}, {"input"}),
        ({"input_tokens": "many"}, {"output"}),
        ({"input_tokens": 10**12}, {"output"}),
        (None, set()),
    ],
    ids=str,
)
async def test_an_answer_of_which_is_not_told_what_it_cost_counts_at_its_worst_case(
    simulator: Simulator, door: Doorway, usage: dict[str, Any] | None, told: set[str]
) -> None:
    """It is used, and paid once; what can be believed is believed. A log line says so (E14)."""
    simulator.script([{"then": {"usage": usage}}])

    with capture_logs() as logs:
        answered = await door.answered()
        again = await door.answered(attempt=2)

    (entry,) = simulator.log
    if "output" in told:
        assert answered.usage.output == entry.billed.output
    else:
        assert answered.usage.output == MAX_TOKENS
    if "input" in told:
        assert answered.usage.input == entry.billed.input
    else:
        assert 10**6 > answered.usage.input >= (entry.prompt_bytes or 0) > 0
    assert again.usage == answered.usage  # out of the ledger, where it stands with what it counts
    lines = [line for line in logs if line["event"] == "usage_not_told"]
    assert [(line["input"], line["output"]) for line in lines] == [("input" in told, "output" in told)]


@pytest.mark.parametrize("usage", [{"output_tokens": 10**12}, {"input_tokens": 10**12}, {"input_tokens": -5}, None])
async def test_what_cannot_be_is_not_believed_of_an_answer_that_broke_off(
    simulator: Simulator, door: Doorway, usage: dict[str, Any] | None
) -> None:
    simulator.script([{"then": {**CUT, "usage": usage}}])

    failed, _ = await door.failed()

    (entry,) = simulator.log
    counted = failed.usage + failed.unsettled
    assert counted.output == MAX_TOKENS
    assert 10**6 > counted.input >= entry.billed.input > 0
    if usage != {"output_tokens": 10**12}:
        assert failed.usage.input == 0 < (entry.prompt_bytes or 0) <= failed.unsettled.input


# --- what is told of the attempts before ---


async def test_an_answer_comes_with_what_was_spent_before_it(simulator: Simulator, door: Doorway) -> None:
    simulator.script(faults({"fault": "overloaded"}, CUT))
    await door.failed(attempt=1)
    await door.failed(attempt=2)

    answered = await door.answered(attempt=3)
    again = await door.answered(attempt=4)

    _, second, paid = simulator.log
    assert [(told.attempt, told.error.type) for told in answered.tries] == [(1, "Overloaded"), (2, "StreamCut")]
    assert [told.error.retryable for told in answered.tries] == [True, True]
    assert answered.tries[1].error.message == "the answer broke off before its end, attempt 2 of 4"
    assert (answered.tries[0].usage, answered.tries[0].unsettled) == (Usage(), Usage())
    assert answered.tries[1].usage.input == second.billed.input
    assert answered.usage == Usage(input=paid.billed.input, output=paid.billed.output)
    assert again.tries == answered.tries
    assert simulator.calls() == 3


async def test_a_failure_comes_with_those_before_the_last(simulator: Simulator, door: Doorway) -> None:
    simulator.script([{"then": CUT}])
    for attempt in 1, 2, 3:
        await door.failed(attempt=attempt)

    failed, _ = await door.failed(attempt=4)

    assert [told.attempt for told in failed.tries] == [1, 2, 3]
    assert failed.error.attempt == 4
    assert failed.unsettled.output > 0


async def test_every_attempt_is_told_once_over_all_starts_of_a_task(simulator: Simulator, door: Doorway) -> None:
    """What was told when the task was parked is not told again at its end; a wall is no attempt."""
    simulator.script(faults(CUT, {"fault": "rate_limit"}))
    await door.failed(attempt=1, start="one")
    parked = await door.parked(attempt=2, start="one")
    async with opened(door.store, simulator.url) as later:
        answered = await later.answered(attempt=1, used=1, start="two")

    assert [told.attempt for told in parked.tries] == [1]
    assert answered.tries == ()
    assert answered.attempts == 2


async def test_a_wall_in_the_middle_of_an_answer_uses_no_attempt_but_its_tokens_count(
    simulator: Simulator, door: Doorway
) -> None:
    simulator.script(faults({"fault": "error_event", "error_type": "rate_limit_error"}))
    parked = await door.parked(start="one")
    async with opened(door.store, simulator.url) as later:
        answered = await later.answered(start="two")

    (told,) = parked.tries
    assert (told.error.type, told.used, parked.accounted) == ("RateLimited", False, True)
    assert told.usage.input == simulator.log[0].billed.input
    assert answered.tries == ()
    assert answered.attempts == 1


async def test_a_pause_between_two_attempts_gives_none_back(simulator: Simulator, door: Doorway) -> None:
    simulator.script([{"then": {"fault": "api_error"}}])
    await door.failed(attempt=1)
    door.gate.first = Standing(paused=True)

    parked = await door.parked(attempt=2)

    assert (parked.why, [told.attempt for told in parked.tries]) == ("pause", [1])


async def test_a_call_that_was_lost_with_its_worker_is_told_at_its_worst_case(
    simulator: Simulator, door: Doorway
) -> None:
    """The ledger has an intent, and no word of what came of it."""
    simulator.script(faults({"fault": "hang_before_headers"}))
    asked = asyncio.create_task(door.ask(attempt=1))
    await simulator.until(lambda: simulator.calls() == 1)
    asked.cancel()  # as good as lost, for who comes later
    await asyncio.wait([asked])

    answered = await door.answered(attempt=2)

    (lost,) = answered.tries
    assert (lost.attempt, lost.error.type, lost.unsettled.output) == (1, "WorkerLost", MAX_TOKENS)
    assert lost.unsettled.input > 0


async def test_a_call_that_a_stopped_worker_cut_off_uses_no_attempt_and_is_told_at_once(
    simulator: Simulator, door: Doorway
) -> None:
    """What it may have cost is what the provider has not said yet, and no more: the rest is free for the restart."""
    simulator.script(faults({"fault": "api_error"}, {"fault": "hang_mid_stream"}, {"fault": "rate_limit"}))
    await door.failed(attempt=1, start="one")
    asked = asyncio.create_task(door.parked(attempt=2, start="one"))
    await simulator.until(lambda: simulator.calls() == 2)
    door.environment.cancel(ActivityCancellationDetails(worker_shutdown=True))

    stopped = await asked
    walled = await door.parked(attempt=1, used=1, start="two")
    async with opened(door.store, simulator.url) as later:
        answered = await later.answered(attempt=1, used=1, start="three")

    assert (stopped.why, stopped.accounted) == ("worker", True)
    told = [(each.attempt, each.error.type, each.used) for each in stopped.tries]
    assert told == [(1, "ProviderFault", True), (2, "WorkerStopped", False)]
    cut_off = stopped.tries[1]
    assert 0 < cut_off.unsettled.output <= MAX_TOKENS
    assert (walled.wall, walled.tries, walled.accounted) == ("rate", (), True)
    assert (answered.attempts, answered.tries, answered.accounted) == (2, (), True)


async def test_a_worker_that_is_stopped_before_a_word_came_tells_the_worst_of_one_call(
    simulator: Simulator, door: Doorway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when it could not write down what became of the call: then the intent says what it may have cost."""
    simulator.script(faults({"fault": "hang_before_headers"}))

    async def not_kept(*_: object) -> None: ...

    monkeypatch.setattr(Keeper, "note", not_kept)
    asked = asyncio.create_task(door.parked(start="one"))
    await simulator.until(lambda: simulator.calls() == 1)
    door.environment.cancel(ActivityCancellationDetails(worker_shutdown=True))

    stopped = await asked
    answered = await door.answered(start="two")

    (told,) = stopped.tries
    assert (told.error.type, told.used, stopped.accounted) == ("WorkerStopped", False, True)
    assert told.unsettled.output == MAX_TOKENS
    assert told.unsettled.input + told.unsettled.cache_write > 0
    assert (answered.tries, answered.accounted) == ((), True)


async def test_a_request_that_was_told_as_lost_and_is_answered_after_all_counts_once(
    simulator: Simulator, door: Doorway
) -> None:
    """A frozen worker wakes up after it was told of at its worst case: the ledger is asked which of the two it is."""
    simulator.script(faults({"ttft": 3600}, {"fault": "rate_limit"}))
    frozen = asyncio.create_task(door.ask(attempt=1, start="one"))
    await simulator.until(lambda: simulator.calls() == 1)
    async with opened(door.store, simulator.url) as other:
        parked = await other.parked(attempt=2, start="one")
    number = 1
    entry = next(key for key in await door.store.records("run") if key.endswith(f"/intent-{number}"))
    kept = Kept(text_ref=await door.store.put_artifact(b"late"), usage=Usage(input=7, output=9), stop_reason="end_turn")
    await door.store.record(f"{entry.rpartition('/')[0]}/completion", kept.model_dump())
    async with opened(door.store, simulator.url) as later:
        answered = await later.answered(attempt=1, used=1, start="two")
    frozen.cancel()
    await asyncio.wait([frozen])

    assert [told.error.type for told in parked.tries] == ["WorkerLost"]
    assert simulator.calls() == 2
    assert (answered.usage, answered.tries) == (kept.usage, ())
    assert not answered.accounted
    (lost, walled) = await Books(door.store).calls("run", "a", 1)
    assert (lost.usage, lost.unsettled) == (kept.usage, Usage())
    assert (walled.usage, walled.unsettled) == (Usage(), Usage())


async def test_whoever_is_parked_with_a_request_in_a_batch_says_so(
    simulator: Simulator, door: Doorway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its run keeps the money for it, whatever it was parked for."""

    async def relaxed(*_: object) -> bool:
        return True

    monkeypatch.setattr(Briefs, "is_relaxed", relaxed)
    simulator.script([], batch_seconds=None)

    waiting = await door.parked(start="one")
    door.gate.first = Standing(paused=True)
    paused = await door.parked(start="two")
    door.gate.first = Standing()
    simulator.script([], batch_seconds=0)
    async with opened(door.store, simulator.url) as later:
        answered = await later.answered(start="three")

    assert (waiting.why, waiting.in_batch, waiting.accounted) == ("batch", True, True)
    assert (paused.why, paused.in_batch, paused.accounted) == ("pause", True, True)
    assert (answered.batched, answered.accounted) == (True, True)


async def test_a_request_that_is_lost_with_its_batch_costs_the_same_whoever_tells_of_it(
    simulator: Simulator, door: Doorway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trail, the run and its ledger: half its worst case, as when it was open."""

    async def relaxed(*_: object) -> bool:
        return True

    monkeypatch.setattr(Briefs, "is_relaxed", relaxed)
    simulator.script([], batch_seconds=None)
    await door.parked(attempt=1)
    batches = simulator._provider.batches._all
    batches.clear()

    async with opened(door.store, simulator.url) as later:
        lost, _ = await later.failed(attempt=1)
        await later.parked(attempt=2)
        batches.clear()
    async with opened(door.store, simulator.url) as later:
        lost_again, _ = await later.failed(attempt=2)
    account = await Books(door.store).account("run", "a", 1)

    assert (lost.error.type, lost.batched) == ("BatchLost", True)
    assert [each.batched for each in lost_again.tries] == [True]
    half = worst_cost(PRICE, lost.unsettled, batched=True)
    told = [call_data(call, {HAIKU: PRICE}, 1)["unsettled_usd"] for call in lost_again.calls]
    assert half > 0
    assert [Decimal(str(usd)) for usd in told] == [half, half]
    assert cost_of_calls({HAIKU: PRICE}, purse.calls_of(HAIKU, lost_again)) == 2 * half
    assert cost_of_calls({HAIKU: PRICE}, account.calls) == 2 * half


async def test_two_tasks_of_the_same_words_do_not_share_their_attempts(simulator: Simulator, door: Doorway) -> None:
    simulator.script([{"when": {"task": "a"}, "then": {"fault": "api_error"}}])
    await door.failed("a")

    simulator.script([])

    assert (await door.answered("b", attempt=2)).tries == ()
    assert (await door.answered("a", attempt=2, step=2)).tries == ()
    assert [told.attempt for told in (await door.answered("a", attempt=2)).tries] == [1]


async def test_a_store_that_is_away_does_not_change_what_a_call_came_to(
    simulator: Simulator, door: Doorway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refusal stays final, though neither its text nor its cost can be written down."""
    simulator.script([{"then": CUT}])
    record = Store.record

    async def away(store: Store, key: str, entry: dict[str, Any]) -> bool:
        if "/setback-" in key:
            raise StoreUnavailable("away")
        return await record(store, key, entry)

    async def full(store: Store, content: bytes) -> str:
        raise StoreUnavailable("full")

    monkeypatch.setattr(Store, "record", away)
    monkeypatch.setattr(Store, "put_artifact", full)
    failed, _ = await door.failed()

    assert (failed.error.type, failed.output_ref, failed.output_bytes) == ("StreamCut", None, 0)


# --- what is kept of it ---


@pytest.mark.parametrize(
    "then",
    [
        CUT,
        {**CUT, "fault": "close_mid_chunk"},
        {**CUT, "fault": "hang_mid_stream"},
        {"answer": "the walrus sings " * 20, "stop_reason": "refusal"},
        {"answer": "the walrus sings " * 200},
    ],
    ids=["cut", "closed", "timeout", "refusal", "max_tokens"],
)
async def test_a_partial_answer_is_kept_for_people_and_is_no_answer(
    simulator: Simulator, door: Doorway, then: dict[str, Any]
) -> None:
    simulator.script(faults({**then, "tokens_per_second": 2000}))

    failed, _ = await door.failed(timeout=5 * SECOND)

    assert failed.output_ref is not None
    text = await door.store.artifact(failed.output_ref)
    assert text.startswith(b"the walrus sings the walrus")
    assert len(text) == failed.output_bytes


async def test_an_answer_without_end_is_cut_off_at_its_limit(simulator: Simulator, store: Store) -> None:
    """E13: what came before the limit is kept; the rest is not read, and it is not asked for again."""
    simulator.script([{"then": {"answer_bytes": 10_000_000}}])
    async with opened(store, simulator.url, max_tokens=3_000_000) as door:
        failed, error = await door.failed(timeout=120 * SECOND)

    assert (failed.error.type, error.non_retryable) == ("AnswerTooLarge", True)
    assert failed.output_ref is not None
    assert ANSWER_LIMIT - 10_000 < failed.output_bytes <= ANSWER_LIMIT
    assert len(await store.artifact(failed.output_ref)) == failed.output_bytes
    assert simulator.calls() == 1


async def test_a_call_without_a_word_keeps_nothing(simulator: Simulator, door: Doorway) -> None:
    simulator.script([{"then": {"fault": "reset_before_headers"}}])

    failed, _ = await door.failed()

    assert (failed.output_ref, failed.output_bytes) == (None, 0)


# --- how long it may take ---


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "LEAST_SILENCE", 0.2)


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize(
    "then",
    [
        {"fault": "hang_before_headers"},
        {"fault": "hang_after_headers"},
        {"fault": "hang_mid_stream", "answer": "the walrus sings " * 20},
        {"fault": "ping_forever", "seconds": 0.05},
    ],
    ids=lambda then: str(then["fault"]),
)
async def test_no_new_text_for_half_the_timeout_is_no_progress(
    simulator: Simulator, door: Doorway, then: dict[str, Any]
) -> None:
    """Pings are not progress (E6)."""
    simulator.script([{"then": then}])

    failed, error = await door.failed(timeout=16 * SECOND, used=3)

    assert (failed.status, failed.error.type) == (TaskStatus.TIMED_OUT, "NoProgress")
    assert failed.error.message == "No new text for 8 s, attempt 4 of 4"
    assert (failed.error.retryable, error.non_retryable) == (True, True)
    assert failed.unsettled.output > 0
    assert simulator.log[0].client_left


@pytest.mark.usefixtures("hasty")
async def test_an_answer_that_goes_on_is_progress_until_the_timeout(simulator: Simulator, door: Doorway) -> None:
    simulator.script([{"then": {"answer": "on and on " * 100, "tokens_per_second": 10}}])

    failed, _ = await door.failed(timeout=16 * SECOND, used=3)

    assert (failed.status, failed.error.type) == (TaskStatus.TIMED_OUT, "TaskTimeout")
    assert failed.error.message == "Task timeout after 16 s, attempt 4 of 4"
    assert failed.output_bytes > 0


async def test_a_short_timeout_comes_before_any_talk_of_progress(simulator: Simulator, door: Doorway) -> None:
    """Half of it would be hasty: ten seconds at least."""
    simulator.script([{"then": {"fault": "hang_before_headers"}}])

    failed, _ = await door.failed(timeout=SECOND)

    assert failed.error.message == "Task timeout after 1 s, attempt 1 of 4"


async def test_a_run_that_ends_stops_its_call(simulator: Simulator, door: Doorway) -> None:
    simulator.script([{"then": {"fault": "hang_mid_stream"}}])
    asked = asyncio.create_task(door.ask())
    await simulator.until(lambda: simulator.in_flight == 1)

    door.gate.over.set_result("the run is TERMINATED")

    assert await asked == Stopped(why="the run is TERMINATED")
    await simulator.until(lambda: simulator.in_flight == 0)
