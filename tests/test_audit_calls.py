"""What the door tells of its calls: every request that the provider has had, each once, whatever became of it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path

from doorway import HAIKU, OPUS, Doorway, opened

from books import Books
from domain.models import Answered, Call, Failed, Outcome, Parked, ref_of
from domain.witness import calls_of
from simulator.server import Simulator
from store import Store, open_store


def told(outcome: Outcome) -> tuple[Call, ...]:
    return calls_of(outcome, HAIKU)


def in_the_end(outcomes: Iterable[Outcome], requests: Iterable[Call] = ()) -> dict[str, Call]:
    """The calls that are told of, those of the ledger where they were not; a test fails when one is told of twice."""
    calls = [call for outcome in outcomes for call in told(outcome)]
    keys = Counter(call.key for call in calls)
    assert set(keys.values()) <= {1}, keys
    return {call.key: call for call in (*requests, *calls)}


def check_against(simulator: Simulator, calls: Iterable[Call]) -> None:
    """Call by call: tokens of what was answered, and no request that is not told of."""
    calls = list(calls)
    asked = [entry for entry in simulator.log if entry.path == "/v1/messages"]
    assert len(calls) == len(asked)
    told = Counter((call.model, call.usage.input, call.usage.output) for call in calls if call.answer)
    billed = Counter((entry.model, entry.billed.input, entry.billed.output) for entry in asked if entry.stop_reason)
    assert told == billed


def store_in(folder: Path) -> Store:
    return open_store(str(folder / "store"))


async def test_an_answer_tells_of_its_call(simulator: Simulator, tmp_path: Path) -> None:
    simulator.script([{"then": {"answer": "the walrus sings"}}])
    async with opened(store_in(tmp_path), simulator.url) as door:
        answer = await door.answered()

    (call,) = told(answer)
    assert (call.agent, call.model, call.number, call.attempt) == ("ant@1", "claude-haiku-4-5", 1, 1)
    assert (call.answer, call.error, call.reads) == (ref_of(b"the walrus sings"), None, None)
    assert call.usage == answer.usage
    assert "walrus" not in call.model_dump_json()
    check_against(simulator, told(answer))


async def test_a_wall_is_a_call_too(simulator: Simulator, tmp_path: Path) -> None:
    """The provider was asked, and said no. It cost nothing and used no attempt, and nobody else tells of it."""
    simulator.script([{"when": {"nth": 1}, "then": {"fault": "rate_limit"}}])
    async with opened(store_in(tmp_path), simulator.url) as door:
        parked = await door.parked(start="first")
    async with opened(store_in(tmp_path), simulator.url) as door:
        answer = await door.answered(start="second")

    calls = in_the_end([parked, answer])
    assert [(call.number, call.error) for call in calls.values()] == [(1, "RateLimited"), (2, None)]
    assert parked.tries == ()
    check_against(simulator, calls.values())


async def test_attempts_in_vain_are_told_of_at_the_end(simulator: Simulator, tmp_path: Path) -> None:
    simulator.script([{"when": {"nth": 1}, "then": {"fault": "api_error"}}])
    async with opened(store_in(tmp_path), simulator.url) as door:
        failed, _ = await door.failed()
        answer = await door.answered(attempt=2)

    assert [call.error for call in failed.calls] == ["ProviderFault"]
    assert [(call.attempt, call.error) for call in answer.calls] == [(1, "ProviderFault"), (2, None)]
    check_against(simulator, told(answer))


async def test_a_call_that_was_lost_with_its_worker_is_told_of_by_the_next(
    simulator: Simulator, tmp_path: Path
) -> None:
    """And one of a worker that was stopped, by whoever ends the task."""
    store = store_in(tmp_path)
    simulator.script([{"when": {"nth": 1}, "then": {"ttft": 3600}}])
    async with opened(store, simulator.url) as door:
        asking = asyncio.create_task(door.ask())
        await simulator.until(lambda: simulator.in_flight == 1)
        asking.cancel()  # without a word, as when it is killed
        await asyncio.wait([asking])
    async with opened(store, simulator.url) as door:
        answer = await door.answered(attempt=2)
        other_start = await door.answered("b", start="first")

    assert [(call.number, call.error) for call in answer.calls] == [(1, "WorkerLost"), (2, None)]
    assert answer.calls[0].unsettled.output > 0
    check_against(simulator, (*told(answer), *told(other_start)))


async def test_an_answer_that_was_paid_before_is_told_of_once(simulator: Simulator, tmp_path: Path) -> None:
    """The first worker died between the ledger and Temporal: what it told nobody has heard."""
    store = store_in(tmp_path)
    async with opened(store, simulator.url) as door:
        await door.answered()
    async with opened(store, simulator.url) as door:
        answer = await door.answered(attempt=2)

    assert len(answer.calls) == simulator.calls("a") == 1
    check_against(simulator, told(answer))


async def test_a_summary_is_a_call_by_whoever_made_it_of_what_it_read(simulator: Simulator, tmp_path: Path) -> None:
    store = store_in(tmp_path)
    simulator.script(
        [
            {"when": {"model": OPUS}, "then": {"answer": "Short."}},
            {"then": {"answer": "Long. " * 600, "summary": False}},
        ]
    )
    async with opened(store, simulator.url, summarizer=OPUS, max_tokens=5000) as door:
        answer = await door.answered()

    (own, aside) = answer.calls
    assert (own.agent, own.model, own.reads) == ("ant@1", "claude-haiku-4-5", None)
    assert (aside.agent, aside.model) == ("summarizer@1", OPUS)
    assert aside.reads is not None
    check_against(simulator, told(answer))


async def test_what_nobody_told_of_is_in_the_account(simulator: Simulator, tmp_path: Path) -> None:
    """A task that was cancelled at work: its run asks the ledger."""
    store = store_in(tmp_path)
    simulator.script([{"when": {"nth": 1}, "then": {"fault": "api_error"}}, {"then": {"ttft": 3600}}])
    async with opened(store, simulator.url) as door:
        failed, _ = await door.failed()
        asking = asyncio.create_task(door.ask(attempt=2))
        await simulator.until(lambda: simulator.in_flight == 1)
        asking.cancel()
        await asyncio.wait([asking])

    account = await Books(store).account("run", "a", 1)

    assert isinstance(failed, Failed)
    assert [call.error for call in account.requests] == ["ProviderFault", "WorkerLost"]
    check_against(simulator, account.requests)


async def test_a_call_that_was_not_made_is_none(simulator: Simulator, tmp_path: Path) -> None:
    """Its run has given the task up before the request: there is an intent, and nothing that was asked."""
    store = store_in(tmp_path)
    async with opened(store, simulator.url) as door:
        await Books(store).account("run", "a", 1)
        outcome = await door.ask()

    assert not isinstance(outcome, Answered | Parked)
    assert (await Books(store).account("run", "a", 1)).requests == ()
    assert list(simulator.log) == []


async def test_who_was_overtaken_has_paid_for_a_call_of_its_own(simulator: Simulator, tmp_path: Path) -> None:
    store = store_in(tmp_path)
    simulator.script([{"when": {"nth": 1}, "then": {"ttft": 8}}], ttft=0)
    async with opened(store, simulator.url) as slow, opened(store, simulator.url) as quick:
        late = asyncio.create_task(_answered(slow))
        await simulator.until(lambda: simulator.in_flight == 1)
        await quick.answered()
        answer = await late

    assert sorted(call.error or "" for call in answer.calls) == ["", "Overtaken"]
    check = [call for call in answer.calls if call.error is None]
    assert len(check) == 1
    assert simulator.calls("a") == len(answer.calls) == 2


async def _answered(door: Doorway) -> Answered:
    return await door.answered(timeout=timedelta(seconds=60))  # it is not given up for its silence
