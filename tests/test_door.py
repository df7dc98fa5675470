"""The door under bad luck: what is paid for is kept, and asked for once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from conftest import Bench
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import ResetActivityRequest

from activities.meter import Hold
from domain.models import Answered, RunStatus, TaskResult, TaskStatus
from store import Store, StoreUnavailable

ONE = "tasks: [{id: only, agent: hand, prompt: Go.}]"
ONCE = "tasks: [{id: only, agent: hand, prompt: Go., attempts: 1}]"


async def test_an_activity_that_somebody_resets_pays_once(crew: Bench) -> None:
    """The button in the Web UI begins a new attempt: it joins the call that is under way."""
    crew.simulator.script([{"when": {"task": "only"}, "then": {"ttft": 4}}])
    run = await crew.start(ONE)
    await crew.simulator.until(lambda: crew.simulator.calls("only") == 1)

    await crew.temporal.workflow_service.reset_activity(
        ResetActivityRequest(
            namespace="default", execution=WorkflowExecution(workflow_id=f"{run.id}/only"), type="run_agent"
        )
    )

    report = await run.report()
    assert report.status is RunStatus.COMPLETED
    assert crew.simulator.calls("only") == 1


async def test_a_store_that_is_full_for_a_moment_costs_no_second_call(
    crew: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer is there and paid for: it is kept as soon as there is room."""
    record = Store.record
    refused: list[str] = []

    async def full_at_first(store: Store, key: str, entry: dict[str, Any]) -> bool:
        if key.endswith("/completion") and not refused:
            refused.append(key)
            raise StoreUnavailable("no room")
        return await record(store, key, entry)

    monkeypatch.setattr(Store, "record", full_at_first)
    run = await crew.start(ONCE)

    report = await run.report()

    assert refused
    assert (report.status, crew.simulator.calls("only")) == (RunStatus.COMPLETED, 1)


async def test_a_worker_that_is_stopped_uses_no_attempt(bench: Bench) -> None:
    """A deploy cuts a long call after its grace; the task goes on elsewhere, though it may fail but once."""
    bench.simulator.script([{"when": {"task": "only", "nth": 1}, "then": {"fault": "hang_before_headers"}}])
    async with bench.worker(grace=timedelta(milliseconds=100)):
        run = await bench.start(ONCE)
        await bench.simulator.until(lambda: bench.simulator.calls("only") == 1)

    async with bench.worker():
        report = await run.report()

    assert report.tasks[0].status is TaskStatus.SUCCEEDED
    assert bench.simulator.calls("only") == 2


async def test_an_answer_that_comes_within_the_grace_is_not_paid_again(bench: Bench) -> None:
    bench.simulator.script([{"when": {"task": "only"}, "then": {"ttft": 1}}])
    async with bench.worker(grace=timedelta(seconds=20)):
        run = await bench.start(ONE)
        await bench.simulator.until(lambda: bench.simulator.calls("only") == 1)

    async with bench.worker():
        report = await run.report()

    assert (report.status, bench.simulator.calls("only")) == (RunStatus.COMPLETED, 1)


class Turnstile:
    """A meter that lets calls through when the test says so."""

    def __init__(self) -> None:
        self.waiting, self.open = asyncio.Event(), asyncio.Event()

    @asynccontextmanager
    async def draw(self, *_: object) -> AsyncIterator[Hold]:
        self.waiting.set()
        await self.open.wait()
        yield Hold()


async def test_a_pause_holds_from_its_acknowledgement_on(bench: Bench) -> None:
    """Also for a call that had been permitted already, and only waited for its turn (H11)."""
    turnstile = Turnstile()
    async with bench.worker(meter=turnstile):
        run = await bench.start(ONE)
        await turnstile.waiting.wait()

        await run.client.pause(run.id, by="someone")
        turnstile.open.set()
        paused = await run.until(lambda picture: picture.tasks["only"].status is TaskStatus.WAITING)
        assert paused.status is RunStatus.PAUSED
        assert bench.simulator.calls() == 0
        await run.client.resume(run.id, by="someone")
        report = await run.report()

    assert (report.status, bench.simulator.calls()) == (RunStatus.COMPLETED, 1)
    assert report.tasks[0].attempts == 1


async def test_a_run_that_is_cancelled_while_its_call_waits_pays_nothing(bench: Bench) -> None:
    turnstile = Turnstile()
    async with bench.worker(meter=turnstile):
        run = await bench.start(ONE)
        await turnstile.waiting.wait()

        await run.handle.cancel()
        turnstile.open.set()
        report = await run.report()

    assert (report.status, bench.simulator.calls()) == (RunStatus.CANCELLED, 0)


async def test_what_failed_attempts_may_have_cost_reaches_the_result_of_the_task(crew: Bench) -> None:
    crew.simulator.script(
        [{"when": {"nth": [1, 2]}, "then": {"fault": "truncate", "answer": "the walrus sings " * 20}}]
    )
    run = await crew.start(ONE)
    await run.report()

    task = crew.temporal.get_workflow_handle(f"{run.id}/only", result_type=TaskResult)
    outcome = (await task.result()).outcome

    assert isinstance(outcome, Answered)
    assert [(told.attempt, told.error.type) for told in outcome.tries] == [(1, "StreamCut"), (2, "StreamCut")]
    assert all(told.usage.input > 0 and told.unsettled.output > 0 for told in outcome.tries)
    assert outcome.attempts == 3


async def test_at_once_is_not_asked_at_once(crew: Bench) -> None:
    """A provider that says "retry after 0" would make a loop without an end."""
    crew.simulator.script([{"when": {"nth": [1, 2]}, "then": {"fault": "rate_limit", "retry_after": 0}}])
    run = await crew.start(ONE)

    report = await run.report()

    first, second, third = (entry.started for entry in crew.simulator.log)
    assert report.tasks[0].attempts == 1
    assert second - first >= 1
    assert third - second >= 1
