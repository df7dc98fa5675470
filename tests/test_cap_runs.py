"""Caps of tasks, of agents and of a day on the real server, with the simulator's bill as the truth."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from conftest import Bench, Run, eventually, look
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode
from test_budget import MODEL, billed, worst_call

from activities.contract import quota_id
from activities.meter import PATIENCE
from activities.quota_meter import QuotaMeter
from activities.teller import BankTeller
from domain.models import Plan, RunStatus, TaskStatus, Usage
from domain.picture import Picture
from domain.planning import plan_from_text
from domain.prices import cost_of
from domain.quota import bank as banking
from domain.quota.day import midnight_after
from domain.quota.terms import Terms
from domain.quota.view import DayView, QuotaView
from domain.registry import Registry
from heritage import successor
from prices import price_list, priced
from runtime import Settings, connect
from workflows import quota

SIX = """
max_concurrency: 6
defaults: {agent: hand, attempts: 2, max_tokens: 100}
tasks: [{id: t, for_each: [1, 2, 3, 4, 5, 6], prompt: Go.}]
"""

TWO_AGENTS = """
max_concurrency: 8
defaults: {attempts: 2, max_tokens: 100}
tasks:
  - {id: small, agent: hand, prompt: Go.}
  - {id: t, for_each: [1, 2, 3, 4, 5, 6, 7, 8], agent: hand, prompt: Go.}
  - {id: other, agent: pair, prompt: Go.}
"""


@pytest.fixture(autouse=True)
async def not_at_midnight() -> None:
    """A day that ends during a test would be two."""
    while midnight_after(now := datetime.now(UTC)) - now < timedelta(minutes=3):
        await asyncio.sleep(1)


class Till:
    """Submits plans with prices, and whatever caps a test wants."""

    def __init__(self, bench: Bench, registry: Registry) -> None:
        self.bench, self._registry = bench, registry

    def plan(self, text: str) -> Plan:
        return priced(self._read(text).plan)

    async def start(self, text: str, plan: Plan | None = None) -> Run:
        client, queue = self.bench.client, self.bench.queue
        planned = replace(self._read(text), plan=plan or self.plan(text))
        run = await client.submit(planned, id=None, simulated=True, queue=queue)
        return Run(run, client, self.bench.temporal)

    def _read(self, text: str) -> Any:
        return plan_from_text(text, file="test.yaml", registry=self._registry, folder=self.bench.folder)


@pytest.fixture
def till(bench: Bench, registry: Registry) -> Till:
    return Till(bench, registry)


def capped(plan: Plan, *, agents: dict[str, Decimal], tasks: dict[str, Decimal]) -> Plan:
    return plan.model_copy(
        update={
            "agents": tuple(a.model_copy(update={"budget": agents.get(a.name)}) for a in plan.agents),
            "tasks": tuple(t.model_copy(update={"budget": tasks.get(t.id)}) for t in plan.tasks),
        }
    )


def bills(bench: Bench) -> dict[str, Decimal]:
    """What was billed for each task."""
    price, found = price_list({MODEL}).price(MODEL), dict[str, Decimal]()
    for entry in bench.simulator.log:
        cost = cost_of(price, Usage(input=entry.billed.input, output=entry.billed.output))
        found[entry.task or ""] = found.get(entry.task or "", Decimal(0)) + cost
    return found


# Tasks and agents


async def test_no_task_and_no_agent_is_billed_more_than_its_cap(till: Till) -> None:
    """Every stream breaks off: what it may have cost counts. The other agent does not notice."""
    bench = till.bench
    bench.simulator.script(
        [{"when": {"task": "other"}, "then": {}}, {"when": {}, "then": {"fault": "reset_mid_stream"}}]
    )
    plan = till.plan(TWO_AGENTS)
    call = worst_call(plan)
    plan = capped(plan, agents={"hand": call * 5}, tasks={"small": call * Decimal("1.5"), "t[2]": call / 2})

    async with bench.worker():
        report = await (await till.start(TWO_AGENTS, plan)).report()

    found = bills(bench)
    assert found["small"] <= call * Decimal("1.5")
    assert sum(cost for task, cost in found.items() if task != "other") <= call * 5
    assert "t[2]" not in found
    ends = {task.id: task for task in report.tasks}
    assert (report.status, ends["other"].status) == (RunStatus.PARTIAL, TaskStatus.SUCCEEDED)
    assert ends["small"].attempts == 1
    uncovered = [task for task in report.tasks if task.error is not None and task.error.type == "NotCovered"]
    assert {"t[2]"} < {task.id for task in uncovered}
    assert "task 't[2]'" in (ends["t[2]"].error.message if ends["t[2]"].error else "")
    assert all("budget_usd" in (task.error.message if task.error else "") for task in uncovered)


async def test_a_retry_goes_on_with_what_is_left_of_the_caps(till: Till) -> None:
    bench = till.bench
    bench.simulator.script([{"when": {}, "then": {"fault": "reset_mid_stream"}}])
    plan = till.plan(SIX)
    call = worst_call(plan)
    plan = capped(plan, agents={"hand": call * 3}, tasks={})

    async with bench.worker():
        first = await till.start(SIX, plan)
        await first.report()
        next_one = await successor(bench.client, first.id, [], {})
        planned = replace(till._read(SIX), plan=next_one.plan)
        again = await bench.client.submit(
            planned, id=next_one.id, simulated=True, queue=bench.queue, heritage=next_one.heritage
        )
        report = await Run(again, bench.client, bench.temporal).report()

    assert billed(bench.simulator) <= call * 3
    assert next_one.heritage.capped["agent hand"] > call * 2
    assert report.census.failed == 6


# A day


@asynccontextmanager
async def metered(bench: Bench, client: Client, daily: Decimal, *, patience: float = PATIENCE) -> AsyncIterator[None]:
    """A worker that draws from the bank of this bench, with so much for a day."""
    teller = BankTeller(client, account="default", queue=bench.queue)
    meter = QuotaMeter(teller, Terms(daily=daily), patience=patience)
    async with meter, bench.on(client).worker(meter=meter):
        yield


async def day_of(bench: Bench) -> DayView:
    bank = bench.temporal.get_workflow_handle(quota_id("default", bench.queue))
    view: QuotaView = await look(bank, "view", datetime.now(UTC), result_type=QuotaView)
    assert view.day is not None
    return view.day


def has_no_more_money(picture: Picture) -> bool:
    waits = [seen.wait for seen in picture.tasks.values() if seen.ended is None]
    return picture.ended or (bool(waits) and all(wait and wait.reason == "budget" and wait.until for wait in waits))


async def until_no_more_money(runs: list[Run]) -> list[Picture]:
    """When no task waits for anything but another day, and every run itself says so.

    By its events alone: a worker tells on its board that a call waits, a moment before the run hears of it.
    """

    async def all_of_them() -> bool:
        return all([has_no_more_money(await run.client.glance(run.id)) for run in runs])

    await eventually(all_of_them)
    return [await run.client.glance(run.id) for run in runs]


async def test_ten_runs_on_two_workers_share_the_money_of_a_day(
    till: Till, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H7: to the last digit, through continue-as-new of the bank; who is left waits for tomorrow, and used nothing."""
    bench = till.bench
    monkeypatch.setattr(quota, "DRAWS", 7)
    bench.simulator.script([{"when": {}, "then": {"answer_tokens": 90}}], ttft=0.05)
    call = worst_call(till.plan(SIX))
    daily = call * 9

    async with metered(bench, bench.temporal, daily), metered(bench, await connect(settings), daily):
        runs = [await till.start(SIX) for _ in range(10)]

        async def used_up() -> bool:
            try:
                day = await day_of(bench)
            except RPCError as error:
                if error.status is not RPCStatusCode.NOT_FOUND:
                    raise
                return False  # nobody has drawn yet
            return day.held_usd == 0 and daily - day.spent_usd < call

        await eventually(used_up)  # what calls did not use comes back, and serves for others
        pictures = await until_no_more_money(runs)
        day = await day_of(bench)

        assert day.spent_usd == billed(bench.simulator) <= day.limit_usd == daily
        assert daily - day.spent_usd < call
        answered = sum(len(picture.of(TaskStatus.SUCCEEDED)) for picture in pictures)
        assert answered == len(bench.simulator.log) > 9
        waiting = [seen for picture in pictures for seen in picture.tasks.values() if seen.ended is None]
        assert len(waiting) == 60 - answered > 0
        assert {seen.wait.until for seen in waiting if seen.wait} == {midnight(day)}
        assert all(seen.attempts == 0 for seen in waiting)
        assert not any(picture.of(TaskStatus.RUNNING) for picture in pictures)
        for run in runs:
            await run.handle.cancel()
            await run.closed()


def midnight(day: DayView) -> str:
    after = datetime.fromisoformat(day.date) + timedelta(days=1)
    return f"{after:%Y-%m-%dT%H:%M:%S}.000Z"


async def test_a_higher_cap_is_used_when_a_person_says_so(till: Till, monkeypatch: pytest.MonkeyPatch) -> None:
    """The workers are begun anew with it: what was spent before is not forgotten."""
    bench = till.bench
    bench.simulator.script([{"when": {}, "then": {"answer_tokens": 90}}])
    call = worst_call(till.plan(SIX))
    async with metered(bench, bench.temporal, call * 2):
        run = await till.start(SIX)
        await until_no_more_money([run])
        before = (await day_of(bench)).spent_usd

    monkeypatch.setattr(banking, "SILENT", timedelta(0))
    async with metered(bench, bench.temporal, call * 20):
        await bench.client.retry(run.id, (), by="someone")
        report = await run.report()
        day = await day_of(bench)

    assert report.status is RunStatus.COMPLETED
    assert all(task.attempts == 1 for task in report.tasks)
    assert before <= billed(bench.simulator) <= day.spent_usd + day.held_usd


async def test_relaxed_tasks_are_in_the_money_of_a_day(till: Till) -> None:
    bench = till.bench
    relaxed = f"latency: relaxed\n{SIX}"
    call = worst_call(till.plan(relaxed)) / 2

    async with metered(bench, bench.temporal, call * 3, patience=3):
        run = await till.start(relaxed)

        async def sent() -> bool:
            waits = [seen.wait for seen in (await run.client.picture(run.id)).tasks.values()]
            return sum(wait is not None and wait.reason == "budget" and wait.until is not None for wait in waits) >= 3

        await eventually(sent)
        day = await day_of(bench)
        await run.handle.cancel()
        await run.closed()

    assert day.spent_usd + day.held_usd <= call * 3
