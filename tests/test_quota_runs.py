"""Runs and worker processes that share one quota, as the provider's own log has it."""

from __future__ import annotations

import asyncio
import signal
from contextlib import AsyncExitStack
from pathlib import Path

from processes import Home, home_at

LIMITS = {"requests": 120, "input_tokens": 40_000, "output_tokens": 9_000, "burst": 0.1}
PLAN = f"""
max_concurrency: 22
defaults: {{agent: writer, timeout: 60s, max_tokens: 60}}
tasks:
  - {{id: part, for_each: [{", ".join(map(str, range(22)))}], prompt: Go.}}
"""
WORDS = {"ttft": 0.2, "tokens_per_second": 100, "answer_tokens": (20, 40)}


async def until_answered(home: Home, count: int) -> None:
    while sum(call["stop_reason"] == "end_turn" for call in home.calls()) < count:
        await asyncio.sleep(0.1)


async def test_two_runs_on_three_workers_lose_nothing_to_the_limits(tmp_path: Path) -> None:
    """Both ask for 22 at once; requests and tokens are limited, nothing is told beforehand, and a worker dies."""
    async with home_at(tmp_path / "home") as home, AsyncExitStack() as workers:
        home.script(**WORDS, limits=LIMITS)
        first, *_ = [await workers.enter_async_context(home.worker()) for _ in range(3)]
        runs = [await home.submit(PLAN), await home.submit(PLAN)]

        await until_answered(home, 15)
        await first.end(signal.SIGKILL)
        await workers.enter_async_context(home.worker())
        reports = [await home.ended(run) for run in runs]

        calls = home.calls()
        answered = [call for call in calls if call["stop_reason"] == "end_turn"]
        assert [report["status"] for report in reports] == ["COMPLETED", "COMPLETED"]
        assert [report["census"]["succeeded"] for report in reports] == [22, 22]
        assert {call["task"] for call in answered} == {f"part[{number}]" for number in range(22)}
        # A call that was under way in the worker that died is made again, and no other.
        assert len(calls) - 44 <= sum(call["client_left"] for call in calls)
        assert sum(call["status"] == 429 for call in calls) <= len(calls) // 100
        assert all(task["attempts"] <= 2 for report in reports for task in report["tasks"])
