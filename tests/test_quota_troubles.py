"""A quota through what happens to it in the middle of a run: other limits, a killed server, a long wait, an outage."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

from processes import Home, home_at
from test_quota_runs import LIMITS, PLAN, WORDS, until_answered

from activities.contract import quota_id
from domain.quota.view import QuotaView
from embedded import up
from runtime import Mode, connect, queue_of
from temporal_server import Server

LONG = PLAN.replace(", ".join(map(str, range(22))), ", ".join(map(str, range(60))))
HALF = {"requests": 60, "input_tokens": 20_000, "output_tokens": 4_500, "burst": 0.1}


def refused(home: Home, since: int = 0) -> int:
    """Calls that the provider did not take for its limits, after so many."""
    return sum(call["status"] == 429 for call in home.calls()[since:])


async def allowed(home: Home) -> int | None:
    """The requests a minute that the bank goes by."""
    bank = (await connect(home.settings)).get_workflow_handle(quota_id("default", queue_of(Mode.SIMULATED)))
    view: QuotaView = await bank.query("view", result_type=QuotaView)
    return next((lane.limits["requests"].limit for lane in view.lanes.values() if lane.limits), None)


async def until_allowed(home: Home, limit: int) -> None:
    while await allowed(home) != limit:
        await asyncio.sleep(0.1)


async def test_limits_that_are_halved_under_load_are_followed_and_outlive_a_worker(tmp_path: Path) -> None:
    """From the first answer that tells them, and again when they are as before. What is asked after that is allowed."""
    async with home_at(tmp_path / "home") as home:
        home.script(**WORDS, limits=LIMITS)
        async with home.worker() as first:
            run = await home.submit(LONG)
            await until_answered(home, 1)
            await until_allowed(home, 120)

            home.script(**WORDS, limits=HALF)
            await until_allowed(home, 60)
            asked = len(home.calls())
            await first.end(signal.SIGKILL)
        async with home.worker():
            assert await allowed(home) == 60
            home.script(**WORDS, limits=LIMITS)
            await until_allowed(home, 120)
            report = await home.ended(run)

        assert (report["status"], report["census"]["succeeded"]) == ("COMPLETED", 60)
        assert refused(home, since=asked) == 0
        # Again only what the killed worker had under way, also if it had just been answered: at most a place each.
        made = Counter(call["task"] for call in home.calls() if call["status"] != 429)
        assert max(made.values()) <= 2
        assert made.total() - 60 <= 22


async def test_a_killed_server_leads_to_no_call_too_many(tmp_path: Path) -> None:
    """What was granted before counts after it: the provider refuses nothing, and every call is made once."""
    async with home_at(tmp_path / "home") as home, home.worker():
        home.script(**WORDS, limits=LIMITS)
        run = await home.submit(PLAN)
        await until_answered(home, 6)

        server = Server(home.folder).find()
        assert server is not None
        os.kill(server.pid, signal.SIGKILL)
        while (now := Server(home.folder).find()) is not None and now.pid == server.pid:
            await asyncio.sleep(0.01)
        await up(home.settings, worker=False)
        report = await home.ended(run)

        assert (report["status"], report["census"]["succeeded"]) == ("COMPLETED", 22)
        assert refused(home) == 0
        assert Counter(call["task"] for call in home.calls()) == dict.fromkeys((t["id"] for t in report["tasks"]), 1)


async def test_a_long_wait_for_quota_is_told_and_uses_no_attempt(tmp_path: Path) -> None:
    """One call a minute: the second task gives its place back, says which limit and until when, and is done then.

    One after the other: of two first calls at once the provider would refuse one.
    """
    plan = "max_concurrency: 1\ntasks: [{id: part, for_each: [1, 2], agent: writer, prompt: Go.}]"
    async with home_at(tmp_path / "home") as home, home.worker():
        home.script(limits={"requests": 1})
        run = await home.submit(plan)
        wait = await parked(home, run)
        report = await home.ended(run)

        assert wait["what"] == "the quota is used up: requests a minute of sonnet-5"
        assert 30 < seconds(wait["since"], wait["until"]) < 80  # of a minute that began with the first call
        assert [task["attempts"] for task in report["tasks"]] == [1, 1]
        assert [call["status"] for call in home.calls()] == [200, 200]


async def parked(home: Home, run: str) -> dict[str, Any]:
    """The wait of the first task of a run that waits outside."""
    while True:
        done = await home.starter("status", run, "--json")
        for task in json.loads(done.stdout)["tasks"]:
            if task["status"] == "WAITING":
                found: dict[str, Any] = task["wait"]
                return found
        await asyncio.sleep(0.1)


def seconds(since: str, until: str) -> float:
    return (datetime.fromisoformat(until) - datetime.fromisoformat(since)).total_seconds()


async def test_many_that_wait_for_the_end_of_an_outage_do_not_fall_upon_the_provider(tmp_path: Path) -> None:
    """All of them may start at once when it is over; not one is refused for a limit."""
    many = 60
    plan = f"""
max_concurrency: {many}
defaults: {{agent: writer, timeout: 60s, max_tokens: 60}}
tasks:
  - {{id: part, for_each: [{", ".join(map(str, range(many)))}], prompt: Go.}}
"""
    limits = {"requests": 600, "burst": 0.02}
    async with home_at(tmp_path / "home") as home, home.worker():
        home.script({"then": {"fault": "overloaded"}}, limits=limits)
        run = await home.submit(plan)
        await parked(home, run)
        home.script(**WORDS, limits=limits)
        await home.starter("retry", run)
        report = await home.ended(run)

        assert (report["status"], report["census"]["succeeded"]) == ("COMPLETED", many)
        assert refused(home) == 0
        answered = Counter(call["task"] for call in home.calls() if call["stop_reason"] == "end_turn")
        assert (len(answered), answered.total()) == (many, many)
