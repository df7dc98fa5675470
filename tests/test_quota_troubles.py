"""A quota through what happens to it in the middle of a run: other limits, a killed server, a long wait, an outage."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from conftest import look
from processes import Home, home_at
from temporalio.client import WorkflowHandle
from test_quota_runs import LIMITS, PLAN, WORDS, until_answered

from activities.contract import quota_id
from client import RunClient
from domain.quota.view import LaneView, QuotaView
from embedded import up
from runtime import Mode, connect, queue_of
from store import open_store
from temporal_server import Server

LONG = PLAN.replace(", ".join(map(str, range(22))), ", ".join(map(str, range(60))))
ROOM, LEFT = 12, 8
"""Calls under way that a provider takes before all become slower, and what is left of them when answers take twice as
long."""

HALF = {"requests": 60, "input_tokens": 20_000, "output_tokens": 4_500, "burst": 0.1}


def refused(home: Home, since: int = 0) -> int:
    """Calls that the provider did not take for its limits, after so many."""
    return sum(call["status"] == 429 for call in home.calls()[since:])


async def bank_of(home: Home) -> WorkflowHandle[Any, Any]:
    return (await connect(home.settings)).get_workflow_handle(quota_id("default", queue_of(Mode.SIMULATED)))


async def lane_of(bank: WorkflowHandle[Any, Any]) -> LaneView:
    """What the bank knows of the one class of models that is asked."""
    view: QuotaView = await look(bank, "view", result_type=QuotaView)
    return next(iter(view.lanes.values()), LaneView(source=""))


async def until_lane(home: Home, is_so: Callable[[LaneView], bool]) -> LaneView:
    bank = await bank_of(home)
    while not is_so(lane := await lane_of(bank)):
        await asyncio.sleep(0.1)
    return lane


def requests_of(lane: LaneView) -> int | None:
    """The requests a minute that the bank goes by."""
    return lane.limits["requests"].limit if lane.limits else None


async def allowed(home: Home) -> int | None:
    return requests_of(await lane_of(await bank_of(home)))


async def until_allowed(home: Home, limit: int) -> None:
    await until_lane(home, lambda lane: requests_of(lane) == limit)


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


async def test_one_answer_is_enough_to_follow_other_limits(tmp_path: Path) -> None:
    """One call before, one that tells of half, one that tells of all again; in between the worker is another."""
    plan = """
defaults: {agent: writer, max_tokens: 60}
tasks:
  - {id: before, prompt: Go.}
  - {id: halved, needs: [before], approval: true, prompt: Go.}
  - {id: after, needs: [halved], approval: true, prompt: Go.}
"""
    async with home_at(tmp_path / "home") as home:
        home.script(**WORDS, limits=LIMITS)
        async with home.worker() as first:
            run = await home.submit(plan)
            await until_answered(home, 1)
            await until_allowed(home, 120)

            home.script(**WORDS, limits=HALF)
            await approved(home, run, "halved")
            await until_allowed(home, 60)
            assert [call["task"] for call in home.calls()] == ["before", "halved"]
            await until_asked(home, run, "after")  # so that the answer is kept: one under way would be asked for again
            await first.end(signal.SIGKILL)
        async with home.worker():
            assert await allowed(home) == 60

            home.script(**WORDS, limits=LIMITS)
            await approved(home, run, "after")
            await until_allowed(home, 120)
            assert (await home.ended(run))["status"] == "COMPLETED"

        assert Counter(call["task"] for call in home.calls()) == {"before": 1, "halved": 1, "after": 1}


async def until_asked(home: Home, run: str, task: str) -> RunClient:
    """The run waits for a person to approve this task: what it needs has ended."""
    client = RunClient(await connect(home.settings), open_store(home.settings.store))
    while not any(each.task == task for each in (await client.report(await client.picture(run))).attention):
        await asyncio.sleep(0.1)
    return client


async def approved(home: Home, run: str, task: str) -> None:
    """When the run asks for it, and no sooner."""
    await (await until_asked(home, run, task)).approve(run, [task], by="someone")


async def test_a_provider_with_half_the_room_gets_fewer_calls_at_once_after_one_round(tmp_path: Path) -> None:
    """No limit is told: answers become slow, and that is enough. What was learned outlives the worker.

    Those under way are answered as before. Of those that begin in their place about as many are answered as were under
    way, each of which lets one more begin; from then on no more begin at the old width.
    """
    crowd = f"""
max_concurrency: {ROOM}
defaults: {{agent: writer, timeout: 120s, max_tokens: 60}}
tasks: [{{id: part, for_each: {[*range(150)]}, prompt: Go.}}]
"""
    words = {"ttft": 3, "tokens_per_second": 200, "answer_tokens": (20, 40)}  # so slow that a busy machine keeps up
    async with home_at(tmp_path / "home") as home:
        home.script(**words, capacity=ROOM)
        async with home.worker() as first:
            run = await home.submit(crowd)
            await until_answered(home, 1)
            await until_lane(home, lambda lane: lane.flying == ROOM and not lane.narrowed)

            home.script(**words, capacity=ROOM // 2)
            before = len(home.calls())
            narrow = await until_lane(home, lambda lane: lane.narrowed)
            assert narrow.window is not None
            assert narrow.window < ROOM  # who looks late finds that it has grown since
            await first.end(signal.SIGKILL)
            wide = [call for call in home.calls()[before:] if call["in_flight"] >= ROOM - 1]
            assert len(wide) <= 2 * ROOM
        async with home.worker():
            assert (await lane_of(await bank_of(home))).narrowed

            home.script(**words, capacity=100)
            await until_lane(home, lambda lane: lane.window is None or lane.window > LEFT + 1)
            report = await home.ended(run)

        assert (report["status"], report["census"]["succeeded"]) == ("COMPLETED", 150)


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

    One after the other: of two first calls at once the provider would refuse one. With a limit of calls a worker has
    half a minute for its line: it parks the task, however much of the minute a busy machine has used up before.
    """
    plan = "max_concurrency: 1\ntasks: [{id: part, for_each: [1, 2], agent: writer, prompt: Go.}]"
    async with home_at(tmp_path / "home") as home, home.worker(NIGHTCREW_MAX_CALLS="2"):
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


@pytest.mark.parametrize("many", [60, pytest.param(500, marks=pytest.mark.soak)])
async def test_many_that_wait_for_the_end_of_an_outage_do_not_fall_upon_the_provider(tmp_path: Path, many: int) -> None:
    """All of them may start at once when it is over; not one is refused for a limit (H12)."""
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
