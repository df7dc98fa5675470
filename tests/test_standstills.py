"""What does not die but stands still, crawls or sleeps: it goes on where it was, and nothing is paid twice."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial

import pytest
from conftest import Bench, Run, eventually
from temporalio.api.enums.v1 import EventType as HistoryEvent
from test_crashes import Home
from test_crashes import home as home  # noqa: PLC0414  a fixture of that file

from domain.events import EventType
from domain.models import RunStatus, TaskStatus
from embedded import Worker
from proof.link import Link
from runtime import Mode, Settings, dial
from temporal_server import Server
from workflows import policies

PLAN = """
max_concurrency: 3
defaults: {agent: hand, timeout: 200s, attempts: 1}
tasks:
  - {id: slow, for_each: [1, 2, 3], prompt: Think.}
  - {id: last, for_each: [1, 2, 3], prompt: Go., needs: [slow]}
"""


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    """A process that is stopped, and goes on after the block."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


async def check_all_went_well(bench: Bench, run: Run) -> None:
    """Every task was paid for once, with one attempt; no child was lost, and the event log has no gap."""
    report = await run.report()
    assert report.status is RunStatus.COMPLETED
    assert Counter(entry.task for entry in bench.simulator.log) == {task.id: 1 for task in report.tasks}
    assert {task.attempts for task in report.tasks} == {1}
    assert set((await run.ended_children()).values()) == {"COMPLETED"}
    numbers = [event.number for event in await run.events()]
    assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize(
    ("heartbeat", "freeze"),
    [(2, 4), pytest.param(policies.HEARTBEAT_TIMEOUT.total_seconds(), 60, marks=pytest.mark.soak)],
)
async def test_a_server_stands_still_for_longer_than_a_heartbeat(
    bench: Bench, settings: Settings, monkeypatch: pytest.MonkeyPatch, heartbeat: float, freeze: float
) -> None:
    """A8: whether or not it then takes the worker for dead, the calls that were under way are the only ones."""
    monkeypatch.setattr(policies, "HEARTBEAT_TIMEOUT", timedelta(seconds=heartbeat))
    bench.simulator.script([{"when": {"contains": "Think."}, "then": {"ttft": 1.5 * freeze}}])
    server = Server(settings.home).find()
    assert server is not None
    async with bench.worker():
        run = await bench.start(PLAN)
        await bench.simulator.until(lambda: bench.simulator.in_flight == 3)

        with frozen(server.pid):
            await asyncio.sleep(freeze)  # the fault itself

        await check_all_went_well(bench, run)


async def attempts_of_activities(run: Run, task: str) -> set[int]:
    """What Temporal has counted: more than one where it gave one up."""
    history = await run.temporal.get_workflow_handle(f"{run.id}/{task}").fetch_history()
    started = HistoryEvent.EVENT_TYPE_ACTIVITY_TASK_STARTED
    return {
        event.activity_task_started_event_attributes.attempt for event in history.events if event.event_type == started
    }


async def test_a_slow_network_is_no_dead_worker(bench: Bench) -> None:
    """C4: heartbeats that crawl come in time all the same, and no attempt is given up."""
    bench.simulator.script([{"when": {"contains": "Think."}, "then": {"ttft": 4}}])
    link = Link(bench.temporal.service_client.config.target_host)
    async with link.serve() as address:
        direct, bench.temporal = bench.temporal, await dial(address)
        async with bench.worker():
            link.slow(8_000)
            run = await bench.start(PLAN)
            run = Run(run.id, run.client, direct)

            await check_all_went_well(bench, run)

    for task in "slow[1]", "slow[2]", "slow[3]":
        assert await attempts_of_activities(run, task) == {1}


@pytest.mark.soak
async def test_a_network_on_which_no_heartbeat_comes_through_in_time(bench: Bench) -> None:
    """C4 at 50 bytes a second: attempts are given up, and joined by the next."""
    bench.simulator.script([{"when": {"contains": "Think."}, "then": {"ttft": 45}}])
    link = Link(bench.temporal.service_client.config.target_host)
    async with link.serve() as address:
        bench.temporal = await dial(address)
        async with bench.worker():
            run = await bench.start(PLAN)
            await bench.simulator.until(lambda: bench.simulator.in_flight == 3)

            link.slow(50)
            await asyncio.sleep(40)  # the fault itself
            link.slow(None)

            await check_all_went_well(bench, run)


OVERDUE = """
max_concurrency: 4
defaults: {agent: hand, attempts: 1}
tasks:
  - {id: walled, prompt: Go.}
  - {id: asked, prompt: Go., approval: {expires: 20s}}
  - {id: agreed, prompt: Go., approval: {expires: 20s, on_expiry: approve}}
  - {id: due, prompt: Go., approval: {}, deadline: 20s}
"""
LATE = """
deadline: 20s
defaults: {agent: hand, timeout: 60s}
tasks: [{id: hung, prompt: Hang.}, {id: never, prompt: Go., needs: [hung]}]
"""


async def is_told(run: Run, type: EventType) -> bool:
    return any(event.type is type for event in await run.events())


async def test_a_machine_that_slept_past_all_deadlines(home: Home) -> None:
    """D2: whatever was due meanwhile happens when it wakes up, and once; nothing that is late is started."""
    simulator = home.simulator
    await home.up()
    simulator.script(
        [
            {"when": {"task": "walled", "nth": 1}, "then": {"fault": "rate_limit", "retry_after": 20}},
            {"when": {"contains": "Hang."}, "then": {"fault": "hang_before_headers"}},
        ]
    )
    last = await home.submit(LATE)
    await simulator.until(lambda: simulator.calls("hung") == 1)  # once there is a wall, it would wait there
    first = await home.submit(OVERDUE)
    await eventually(partial(is_told, first, EventType.QUOTA_WALL))

    await home.kill(Worker(home.settings.home, Mode.SIMULATED), Server(home.settings.home))
    await asyncio.sleep(20)  # the fault itself
    await home.up()
    overdue, late = await first.report(), await last.report()

    ends = {task.id: task.status for task in overdue.tasks}
    assert ends == {
        "walled": TaskStatus.SUCCEEDED,
        "asked": TaskStatus.SKIPPED,
        "agreed": TaskStatus.SUCCEEDED,
        "due": TaskStatus.TIMED_OUT,
    }
    assert late.status is RunStatus.DEADLINE_PASSED
    assert {task.id: task.status for task in late.tasks} == {
        "hung": TaskStatus.TIMED_OUT,
        "never": TaskStatus.NOT_STARTED,
    }
    told = Counter((event.type, event.task) for event in await first.events())
    once = {
        (EventType.QUOTA_CLEARED, None),
        (EventType.APPROVAL_EXPIRED, "asked"),
        (EventType.APPROVAL_EXPIRED, "agreed"),
        (EventType.TASK_FAILED, "due"),
    }
    assert {told[what] for what in once} == {1}
    calls = Counter(entry.task for entry in simulator.log)
    assert calls.keys() == {"walled", "agreed", "hung"}
    assert (calls["walled"], calls["agreed"]) == (2, 1)
    assert calls["hung"] <= 2  # it was at work when its worker was lost: one more call may begin before it is stopped
