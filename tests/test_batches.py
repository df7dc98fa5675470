"""Relaxed tasks on the real server: they go in batches, wait outside, and cost half."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from conftest import Bench
from pydantic import JsonValue

from activities import batch_collecting, batches
from activities.batch_collecting import Collector
from activities.claude import Claude
from activities.meter import Hold, OpenMeter, Wish
from activities.model import BatchStanding, KeyRefused, ProviderFault
from domain.models import RunStatus, TaskStatus, Usage
from domain.report import Report
from simulator.batches import Batch
from simulator.log import Entry

FOUR = """
max_concurrency: 8
latency: relaxed
tasks: [{id: part, for_each: [1, 2, 3, 4], agent: hand, prompt: "Go {{ item }}."}]
"""
ONE = "tasks: [{id: only, agent: hand, prompt: Go., latency: relaxed}]"


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch is looked at again and again at once: nobody waits five seconds for it here."""
    monkeypatch.setattr(batches, "LOOK_FIRST", timedelta(milliseconds=200))
    monkeypatch.setattr(batches, "LOOK_AFTER_AN_ERROR", timedelta(milliseconds=200))
    monkeypatch.setattr(batches, "FRESH", 0.1)


def send_all_four(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all tasks of FOUR go in one batch, however far apart a busy machine lets them come.

    Once for each run: what goes again goes alone, also in its retry, which may have less to do.
    """
    send_soon, went = Collector._send_soon, set[str]()

    async def send_together(collector: Collector, run: str, group: batch_collecting._Open) -> None:
        family = run.removesuffix("-r2")
        expected = 1 if family in went else 4
        went.add(family)
        while len(group.members) < expected:
            await asyncio.sleep(0.01)
        await send_soon(collector, run, group)

    monkeypatch.setattr(Collector, "_send_soon", send_together)
    monkeypatch.setattr(batch_collecting, "MOMENT", 0.1)


@pytest.fixture
def together(monkeypatch: pytest.MonkeyPatch) -> None:
    send_all_four(monkeypatch)


def made(bench: Bench) -> list[Entry]:
    """The requests that made a batch, or tried to."""
    return [entry for entry in bench.simulator.log if entry.path.endswith("/batches")]


def billed(bench: Bench) -> list[Entry]:
    return [entry for entry in bench.simulator.log if entry.batch]


async def report_of(bench: Bench, plan: str) -> Report:
    async with asyncio.timeout(200):
        return await (await bench.start(plan)).report()


@pytest.mark.usefixtures("together")
async def test_tasks_that_come_together_go_in_one_batch(crew: Bench) -> None:
    """No call is made for them; what they cost is on the bill as part of a batch, and the report says so."""
    crew.simulator.script([{"when": {"task": "part[2]"}, "then": {"answer": "Two."}}], batch_seconds=0.5)

    report = await report_of(crew, FOUR)

    assert report.status is RunStatus.COMPLETED
    assert [task.batched for task in report.tasks] == 4 * [True]
    assert report.outputs["part[2]"] == "Two."
    assert [entry.batch_id for entry in billed(crew)] == 4 * [made(crew)[0].batch_id]
    assert (len(made(crew)), crew.simulator.calls(), crew.simulator.peak) == (1, 4, 0)
    assert report.tokens == Usage(
        input=sum(entry.billed.input for entry in billed(crew)),
        output=sum(entry.billed.output for entry in billed(crew)),
    )
    assert [task.attempts for task in report.tasks] == 4 * [1]


async def test_a_task_waits_outside_for_its_batch(crew: Bench) -> None:
    """It holds no place, and says what it waits for and until when; others go on, one at a time."""
    crew.simulator.script([], batch_seconds=None)
    plan = f"max_concurrency: 1\n{ONE[:-1]}, {{id: other, agent: hand, prompt: Go.}}]"
    run = await crew.start(plan)

    picture = await run.until(
        lambda picture: (
            picture.tasks["other"].status is TaskStatus.SUCCEEDED and picture.tasks["only"].status is TaskStatus.WAITING
        )
    )

    wait = picture.tasks["only"].wait
    assert wait is not None
    assert wait.reason == "batch"
    assert str(made(crew)[0].batch_id) in (wait.what or "")
    assert wait.until is not None
    crew.simulator.script([], batch_seconds=0)
    report = await run.report()
    assert [task.batched for task in report.tasks] == [True, False]


@pytest.mark.usefixtures("together")
@pytest.mark.parametrize("then", [{"fault": "api_error"}, {"expires": True}], ids=["errored", "expired"])
async def test_a_request_that_a_batch_did_not_answer_is_an_attempt(crew: Bench, then: dict[str, Any]) -> None:
    """The others keep their answers; it goes into another batch."""
    crew.simulator.script([{"when": {"task": "part[3]", "nth": 1}, "then": then}], batch_seconds=0)

    report = await report_of(crew, FOUR)

    assert report.status is RunStatus.COMPLETED
    assert [task.attempts for task in report.tasks] == [1, 1, 2, 1]
    assert len(made(crew)) == 2
    (vain,) = report.tasks[2].tries
    assert vain.unsettled == vain.tokens == Usage()


@pytest.mark.usefixtures("together")
async def test_a_line_that_is_no_answer_is_an_attempt_of_its_task_alone(
    crew: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The three others were paid, and are used: there is no second request for them (E14)."""
    lines = Batch.lines

    def with_a_bad_one(batch: Batch) -> Iterator[dict[str, JsonValue]]:
        for place, line in enumerate(lines(batch)):
            bad = len(batch.requests) == 4 and place == 2
            yield {**line, "result": {"type": "succeeded", "message": None}} if bad else line

    monkeypatch.setattr(Batch, "lines", with_a_bad_one)
    crew.simulator.script([], batch_seconds=0)

    report = await report_of(crew, FOUR)

    assert report.status is RunStatus.COMPLETED
    assert sorted(task.attempts for task in report.tasks) == [1, 1, 1, 2]
    (vain,) = [each for task in report.tasks for each in task.tries]
    assert (vain.error.type, vain.unsettled.output) == ("Garbled", 1024)
    assert (len(made(crew)), len(billed(crew))) == (2, 5)


@pytest.mark.usefixtures("together")
@pytest.mark.parametrize("usage", [{"output_tokens": -5}, {"output_tokens": 10**12}, None], ids=str)
async def test_an_answer_in_a_batch_of_which_is_not_told_what_it_cost_counts_at_its_worst(
    crew: Bench, usage: dict[str, Any] | None
) -> None:
    """It is used all the same, as are the others (E14)."""
    crew.simulator.script([{"when": {"task": "part[3]"}, "then": {"usage": usage}}], batch_seconds=0)

    report = await report_of(crew, FOUR)

    assert report.status is RunStatus.COMPLETED
    bills = {entry.task: entry.billed.output for entry in billed(crew)}
    assert {task.id: task.tokens.output for task in report.tasks} == {**bills, "part[3]": 1024}
    assert (len(made(crew)), report.unsettled) == (1, Usage())


async def test_an_answer_that_was_cut_in_a_batch_is_a_failure_at_half_the_price(crew: Bench) -> None:
    crew.simulator.script([{"then": {"answer_tokens": 2000}}], batch_seconds=0)

    report = await report_of(crew, ONE)

    (task,) = report.tasks
    assert task.error is not None
    assert (task.status, task.error.type, task.batched) == (TaskStatus.FAILED, "AnswerCut", True)
    assert task.tokens.output == billed(crew)[0].billed.output == 1024


@pytest.mark.usefixtures("together")
async def test_a_batch_whose_making_was_not_confirmed_is_found_again(crew: Bench) -> None:
    """The connection broke before the answer came, and the batch is there: it is not made twice."""
    lost = {"when": {"batch": "create"}, "then": {"fault": "reset_before_headers"}}
    crew.simulator.script([lost], batch_seconds=0.5)

    report = await report_of(crew, FOUR)

    assert report.status is RunStatus.COMPLETED
    assert (len(made(crew)), len(billed(crew))) == (1, 4)
    assert report.unsettled == Usage()


async def test_a_batch_of_somebody_else_is_not_taken_for_ours(crew: Bench) -> None:
    """Of the same size and the same time: its results tell that it is another one."""
    model = crew.simulator
    model.script([{"when": {"batch": "create", "nth": 1}, "then": {"fault": "reset_before_headers"}}], batch_seconds=0)

    one, two = await asyncio.gather(report_of(crew, ONE), report_of(crew, ONE))

    assert one.status is two.status is RunStatus.COMPLETED
    assert (len(made(crew)), len(billed(crew))) == (2, 2)
    assert one.unsettled == two.unsettled == Usage()


async def test_when_no_batch_is_found_another_is_made_and_both_count(
    crew: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The provider failed inside, and nobody knows whether it took it: the report says what it may have cost."""
    monkeypatch.setattr(batches, "ON_ITS_WAY", timedelta())
    crew.simulator.script([{"when": {"batch": "create", "nth": 1}, "then": {"fault": "bad_gateway"}}], batch_seconds=0)

    report = await report_of(crew, ONE)

    assert report.status is RunStatus.COMPLETED
    assert [entry.status for entry in made(crew)] == [502, 200]
    assert report.tasks[0].tries[0].error.type == "BatchLost"
    assert report.unsettled.input > 0


async def test_a_batch_that_the_provider_has_forgotten_is_made_again(crew: Bench) -> None:
    crew.simulator.script([], batch_seconds=None)
    run = await crew.start(ONE)
    await run.until(lambda picture: picture.tasks["only"].status is TaskStatus.WAITING)

    crew.simulator._provider.batches._all.clear()
    crew.simulator.script([], batch_seconds=0)
    report = await run.report()

    assert report.status is RunStatus.COMPLETED
    assert [task.attempts for task in report.tasks] == [2]
    assert report.tasks[0].tries[0].error.type == "BatchLost"


async def test_a_limit_at_the_making_is_a_wall_and_no_attempt(crew: Bench) -> None:
    limit = {"when": {"batch": "create", "nth": 1}, "then": {"fault": "rate_limit", "retry_after": 1}}
    crew.simulator.script([limit], batch_seconds=0)

    report = await report_of(crew, ONE)

    assert [entry.status for entry in made(crew)] == [429, 200]
    assert (report.status, report.tasks[0].attempts) == (RunStatus.COMPLETED, 1)


async def test_a_provider_that_cannot_be_looked_at_costs_nothing(crew: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch is not touched by it: the task comes again, with no attempt used."""
    look, troubles = Claude.batch, [ProviderFault("it failed"), KeyRefused("no")]

    async def at_first_not(model: Claude, id: str) -> BatchStanding | None:
        if troubles:
            raise troubles.pop()
        return await look(model, id)

    monkeypatch.setattr(Claude, "batch", at_first_not)
    crew.simulator.script([], batch_seconds=0)

    report = await report_of(crew, ONE)

    assert not troubles
    assert (report.status, report.tasks[0].attempts, len(made(crew))) == (RunStatus.COMPLETED, 1, 1)


async def test_a_pause_holds_also_for_a_batch_that_is_being_collected(
    crew: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From its acknowledgement on nothing is sent."""
    monkeypatch.setattr(batch_collecting, "MOMENT", 30.0)  # so long that the pause comes before its end
    crew.simulator.script([], batch_seconds=0)
    run = await crew.start(FOUR)
    await run.until(lambda picture: len(picture.of(TaskStatus.RUNNING)) == 4)

    await crew.client.pause(run.id, by="somebody")
    picture = await run.until(lambda picture: len(picture.of(TaskStatus.WAITING)) == 4)
    assert {task.wait.reason for task in picture.tasks.values() if task.wait} == {"pause"}
    assert made(crew) == []
    send_all_four(monkeypatch)
    await crew.client.resume(run.id, by="somebody")
    report = await run.report()

    assert (report.status, len(made(crew))) == (RunStatus.COMPLETED, 1)


class SlowTill(OpenMeter):
    """The money of one of them is drawn last, when somebody says so."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.opened = asyncio.Event()

    @asynccontextmanager
    async def pay(self, wish: Wish) -> AsyncIterator[Hold]:
        self.asked.append(wish.run)
        if len(self.asked) == 4:
            await self.opened.wait()
        yield Hold()


@pytest.mark.usefixtures("together")
async def test_a_pause_holds_while_the_money_of_one_request_is_awaited(bench: Bench) -> None:
    """What keeps the others from being sent is asked when all have paid, however long that took."""
    bench.simulator.script([], batch_seconds=0)
    till = SlowTill()
    async with bench.worker(meter=till):
        run = await bench.start(FOUR)
        while len(till.asked) < 4:
            await asyncio.sleep(0.05)

        await bench.client.pause(run.id, by="somebody")
        till.opened.set()
        await run.until(lambda picture: len(picture.of(TaskStatus.WAITING)) == 4)
        assert made(bench) == []
        await bench.client.resume(run.id, by="somebody")
        report = await run.report()

    assert report.status is RunStatus.COMPLETED
    assert [task.attempts for task in report.tasks] == 4 * [1]


async def test_a_cancelled_run_does_not_wait_for_its_batch(crew: Bench) -> None:
    crew.simulator.script([], batch_seconds=None)
    run = await crew.start(ONE)
    await run.until(lambda picture: picture.tasks["only"].status is TaskStatus.WAITING)

    await run.handle.cancel()
    closed: Awaitable[object] = run.closed()
    await asyncio.wait_for(closed, 200)

    assert (await run.report()).status is RunStatus.CANCELLED
