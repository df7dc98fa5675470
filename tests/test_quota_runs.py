"""Runs and worker processes that share one quota, as the provider's own log has it."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from contextlib import AsyncExitStack
from decimal import Decimal
from pathlib import Path

from processes import Home, Worker, home_at

from activities.contract import quota_id
from client import RunClient
from domain.picture import Picture
from domain.prices import cost_of
from domain.values import Usage
from prices import price_list
from runtime import Mode, connect, queue_of
from store import open_store

LIMITS = {"requests": 120, "input_tokens": 40_000, "output_tokens": 9_000, "burst": 0.1}
PLAN = f"""
max_concurrency: 22
defaults: {{agent: writer, timeout: 60s, max_tokens: 60}}
tasks:
  - {{id: part, for_each: [{", ".join(map(str, range(22)))}], prompt: Go.}}
"""
DAILY = "0.017"
"""Less than the calls of the plan cost, and enough for two and those of a worker that is killed."""

WORDS = {"ttft": 0.2, "tokens_per_second": 100, "answer_tokens": (20, 40)}


async def until_answered(home: Home, count: int) -> None:
    while sum(call["stop_reason"] == "end_turn" for call in home.calls()) < count:
        await asyncio.sleep(0.1)


async def keeper_of_the_bank(home: Home, workers: list[Worker]) -> Worker:
    """The worker that has the bank in its memory: when it dies, all others wait until one of them has it."""
    bank = (await connect(home.settings)).get_workflow_handle(quota_id("default", queue_of(Mode.SIMULATED)))
    done: list[str] = []
    while not any(done):  # a run of it that has just begun has made no step
        steps = [event.workflow_task_completed_event_attributes for event in (await bank.fetch_history()).events]
        done = [step.identity for step in steps]
    pid = int([identity for identity in done if identity][-1].partition("@")[0])
    return next(worker for worker in workers if worker.process.pid == pid)


async def test_two_runs_on_three_workers_lose_nothing_to_the_limits(tmp_path: Path) -> None:
    """Both ask for 22 at once; requests and tokens are limited, nothing is told beforehand; the bank's worker dies."""
    async with home_at(tmp_path / "home") as home, AsyncExitStack() as workers:
        home.script(**WORDS, limits=LIMITS)
        three = [await workers.enter_async_context(home.worker()) for _ in range(3)]
        runs = [await home.submit(PLAN), await home.submit(PLAN)]

        await until_answered(home, 15)
        await (await keeper_of_the_bank(home, three)).end(signal.SIGKILL)
        await workers.enter_async_context(home.worker())
        reports = [await home.ended(run) for run in runs]

        calls = home.calls()
        answered = [call for call in calls if call["stop_reason"] == "end_turn"]
        assert [report["status"] for report in reports] == ["COMPLETED", "COMPLETED"]
        assert [report["census"]["succeeded"] for report in reports] == [22, 22]
        assert {call["task"] for call in answered} == {f"part[{number}]" for number in range(22)}
        # A call that was under way in the worker that died is made again, once, also if it was answered just before.
        assert max(Counter(call["task"] for call in calls).values()) <= 2 * len(runs)
        assert len(calls) - 44 <= 22
        assert sum(call["status"] == 429 for call in calls) <= len(calls) // 100
        assert all(task["attempts"] <= 2 for report in reports for task in report["tasks"])


async def test_a_worker_that_is_killed_does_not_spend_more_than_a_day_allows(tmp_path: Path) -> None:
    """What was under way in it counts as spent; the others go on with the rest, and then wait for tomorrow."""
    plan = tmp_path / "plan.yaml"
    plan.write_text(PLAN)
    async with home_at(tmp_path / "home") as home, AsyncExitStack() as workers:
        home.script(ttft=0.3, tokens_per_second=100, answer_tokens=(40, 50))
        cap = {"NIGHTCREW_DAILY_USD": DAILY}
        first, _ = [await workers.enter_async_context(home.worker(**cap)) for _ in range(2)]
        run = (await home.starter("submit", str(plan), **cap)).stdout.strip()
        await until_answered(home, 2)
        await first.end(signal.SIGKILL)
        await workers.enter_async_context(home.worker(**cap))
        client = RunClient(await connect(home.settings), open_store(home.settings.store))
        while not has_no_more_money(await client.picture(run)):
            await asyncio.sleep(0.2)

        price = price_list({call["model"] for call in home.calls()})
        bill = sum((cost_of(price.price(call["model"]), Usage(**call["billed"])) for call in home.calls()), Decimal(0))
        (bank,) = await home.banks()
        day = {key: Decimal(value) for key, value in bank["quota"]["day"].items() if key != "date"}
        assert Decimal(0) < bill <= day["spent_usd"] + day["held_usd"] <= day["limit_usd"] == Decimal(DAILY)
        await home.starter("cancel", run)


def has_no_more_money(picture: Picture) -> bool:
    waits = [seen.wait for seen in picture.tasks.values() if seen.ended is None]
    return bool(waits) and all(wait and wait.reason == "budget" and wait.until for wait in waits)
