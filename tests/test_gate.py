"""The gate: whether a run may still pay, asked of a real server."""

from __future__ import annotations

import asyncio
import uuid
from datetime import timedelta
from typing import Any, cast

import pytest
from temporalio.client import Client, WorkflowHandle
from temporalio.service import RPCError, RPCStatusCode

from activities import gate
from activities.gate import Gate, Standing


class Watched:
    """A client that counts descriptions, and may lose some of them."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.asked = 0
        self.described = 0
        self.lose = 0
        self.answers = asyncio.Event()
        self.answers.set()

    def get_workflow_handle(self, id: str) -> Watched:
        self._handle = self._client.get_workflow_handle(id)
        return self

    async def describe(self, **options: Any) -> Any:
        self.asked += 1
        if self.asked <= self.lose:
            raise RPCError("no route to the server", RPCStatusCode.UNAVAILABLE, b"")
        description = await self._handle.describe(**options)
        self.described += 1
        await self.answers.wait()
        return description


class Absent:
    """A client that does not find what it asks about, for one reason after the other."""

    def __init__(self, *reasons: str) -> None:
        self.reasons = [*reasons]

    def get_workflow_handle(self, _id: str) -> Absent:
        return self

    async def describe(self, **_: Any) -> Any:
        raise RPCError(self.reasons.pop(0), RPCStatusCode.NOT_FOUND, b"")


class Clock:
    """A monotonic clock that the test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(gate, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server on a busy machine may take longer to answer: a question is not asked again for that."""
    monkeypatch.setattr(gate, "PATIENCE", timedelta(minutes=1))


@pytest.fixture
def watched(temporal: Client) -> Watched:
    return Watched(temporal)


async def start(temporal: Client, **options: Any) -> tuple[WorkflowHandle[Any, Any], str]:
    """A run that no worker ever touches, and its chain."""
    id = options.pop("id", f"gate-{uuid.uuid4().hex[:8]}")
    handle = await temporal.start_workflow("Nobody", id=id, task_queue="nobody", **options)
    assert handle.first_execution_run_id is not None
    return handle, handle.first_execution_run_id


async def test_a_run_that_goes_may_pay(temporal: Client) -> None:
    run, chain = await start(temporal)

    assert await Gate(temporal).standing(run.id, chain) == Standing()

    await run.terminate()


async def test_a_run_that_nobody_knows_is_over(temporal: Client) -> None:
    standing = await Gate(temporal).standing(f"gate-{uuid.uuid4().hex}", "chain")

    assert standing.over == "the run is no longer there"


async def test_a_run_whose_cancel_was_asked_for_is_over(temporal: Client) -> None:
    """Before its supervisor has heard of it: the cascade of cancels comes later."""
    run, chain = await start(temporal)
    await run.cancel()

    assert (await Gate(temporal).standing(run.id, chain)).over == "the run is being cancelled"

    await run.terminate()


async def test_a_terminated_run_is_over(temporal: Client) -> None:
    run, chain = await start(temporal)
    await run.terminate()

    assert (await Gate(temporal).standing(run.id, chain)).over == "the run is TERMINATED"


async def test_another_run_of_the_same_name_is_not_ours(temporal: Client) -> None:
    first, chain = await start(temporal)
    await first.terminate()
    second, other = await start(temporal, id=first.id)

    gate = Gate(temporal)
    assert (await gate.standing(first.id, chain)).over == "another run of the same name has taken its place"
    assert await gate.standing(second.id, other) == Standing()

    await second.terminate()


@pytest.mark.parametrize("paused", [True, False])
async def test_a_pause_is_read_from_the_memo(temporal: Client, *, paused: bool) -> None:
    run, chain = await start(temporal, memo={"paused": paused, "status": "RUNNING"})

    assert await Gate(temporal).standing(run.id, chain) == Standing(paused=paused)

    await run.terminate()


async def test_one_question_a_second_serves_all_who_ask(temporal: Client, watched: Watched, clock: Clock) -> None:
    run, chain = await start(temporal)
    gate = Gate(cast("Client", watched))

    await asyncio.gather(*(gate.standing(run.id, chain) for _ in range(200)))
    assert watched.asked == 1
    clock.now += 0.99
    await asyncio.gather(*(gate.standing(run.id, chain) for _ in range(200)))
    assert watched.asked == 1
    clock.now += 0.02
    await asyncio.gather(*(gate.standing(run.id, chain) for _ in range(200)))
    assert watched.asked == 2

    await run.terminate()


async def test_the_last_permission_is_asked_for_anew(temporal: Client, watched: Watched) -> None:
    """A pause holds from its acknowledgement on: an answer from before it is not good enough, however fresh."""
    run, chain = await start(temporal)
    gate = Gate(cast("Client", watched))
    assert (await gate.standing(run.id, chain)).over is None

    await run.terminate()

    assert (await gate.permission(run.id, chain)).over == "the run is TERMINATED"
    assert watched.asked == 2


async def test_those_who_wait_share_a_question_that_begins_after_they_have_asked(
    temporal: Client, watched: Watched
) -> None:
    """One that is under way may have been answered before they came: that one they do not take."""
    run, chain = await start(temporal)
    gate = Gate(cast("Client", watched))
    watched.answers.clear()
    first = asyncio.create_task(gate.permission(run.id, chain))
    async with asyncio.timeout(120):
        while not watched.described:
            await asyncio.sleep(0.01)
        others = [asyncio.create_task(gate.permission(run.id, chain)) for _ in range(100)]
        await asyncio.sleep(0)  # they have asked
        await run.terminate()
        watched.answers.set()

        assert (await first).over is None
        assert {(await other).over for other in others} == {"the run is TERMINATED"}

    assert watched.asked == 2


async def test_an_answer_is_never_older_than_a_second(temporal: Client, clock: Clock) -> None:
    run, chain = await start(temporal)
    gate = Gate(temporal)
    assert (await gate.standing(run.id, chain)).over is None

    await run.terminate()
    clock.now += 1.01

    assert (await gate.standing(run.id, chain)).over is not None


async def test_two_runs_are_two_questions(temporal: Client, watched: Watched, clock: Clock) -> None:
    one, chain = await start(temporal)
    other, other_chain = await start(temporal)
    await other.terminate()
    gate = Gate(cast("Client", watched))

    assert (await gate.standing(one.id, chain)).over is None
    assert (await gate.standing(other.id, other_chain)).over is not None
    assert watched.asked == 2

    await one.terminate()


async def test_nobody_pays_on_a_guess_while_the_server_does_not_answer(
    temporal: Client, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "FRESH", 0.01)
    run, chain = await start(temporal)
    await run.terminate()
    watched.lose = 3

    standing = await Gate(cast("Client", watched)).standing(run.id, chain)

    assert standing.over == "the run is TERMINATED"
    assert watched.asked == 4


async def test_a_namespace_that_is_missing_ends_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when a server was moved, or comes up again: it says nothing of the run, and is asked again."""
    monkeypatch.setattr(gate, "FRESH", 0.01)
    absent = Absent("Namespace default is not found.", "namespace not found", "workflow not found for ID: run")

    standing = await Gate(cast("Client", absent)).standing("run", "chain")

    assert standing.over == "the run is no longer there"
    assert absent.reasons == []


async def test_the_gate_closes_when_the_run_ends_and_not_when_it_pauses(
    temporal: Client, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "FRESH", 0.01)
    run, chain = await start(temporal, memo={"paused": True})
    closed = asyncio.create_task(Gate(cast("Client", watched)).closed(run.id, chain))
    async with asyncio.timeout(120):
        while watched.asked < 3:
            await asyncio.sleep(0.01)
        assert not closed.done()

        await run.terminate()

        assert await closed == "the run is TERMINATED"


async def test_runs_that_nobody_asks_about_are_forgotten(temporal: Client, clock: Clock) -> None:
    """A worker lives for weeks."""
    gate = Gate(temporal)
    for number in range(5):
        await gate.standing(f"gate-{uuid.uuid4().hex}", str(number))
    clock.now += 61

    await gate.standing(f"gate-{uuid.uuid4().hex}", "last")

    assert len(gate._known) == 1
