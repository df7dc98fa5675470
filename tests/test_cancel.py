"""Stopping a run: what was at work ends cancelled, nothing is left, and nobody pays any more."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

from conftest import Bench, Run
from temporalio.client import WorkflowExecutionStatus

from domain.events import EventType
from domain.models import RunStatus, TaskStatus

HANG = {"fault": "hang_before_headers"}
WIDE = """
max_concurrency: 6
defaults: {agent: hand, timeout: 60s}
tasks:
  - {id: done, for_each: [1, 2], prompt: Go.}
  - {id: hang, for_each: [1, 2, 3, 4], prompt: Hang., needs: [done]}
  - {id: queued, for_each: [1, 2, 3, 4], prompt: Hang., needs: [done]}
  - {id: last, prompt: Gather., needs: [hang, queued]}
"""


async def test_a_cancel_stops_what_is_at_work(crew: Bench) -> None:
    """Children end cancelled, their calls are cut, nothing new is called, and finished work is kept."""
    crew.simulator.script([{"when": {"contains": "Hang."}, "then": HANG}])
    run = await crew.start(WIDE)
    await crew.simulator.until(lambda: crew.simulator.in_flight == 6)

    await run.client.cancel(run.id)

    closed = await run.closed()
    children = await run.ended_children()
    report = await run.report()
    assert closed.status is WorkflowExecutionStatus.CANCELED
    assert {children.pop(f"done[{n}]") for n in (1, 2)} == {"COMPLETED"}
    assert Counter(children.values()) == {"CANCELED": 6}
    await crew.simulator.until(lambda: crew.simulator.in_flight == 0)
    assert crew.simulator.calls() == 8  # no child is left that could call
    assert all(entry.client_left for entry in crew.simulator.log if not (entry.task or "").startswith("done"))
    assert report.status is RunStatus.CANCELLED
    assert (report.census.succeeded, report.census.cancelled, report.census.not_started) == (2, 6, 3)
    kept = [task for task in report.tasks if task.status is TaskStatus.SUCCEEDED]
    assert [bool(task.output) for task in kept] == [True, True]
    assert (await run.events())[-1].type is EventType.RUN_COMPLETED


async def test_a_terminated_run_pays_for_nothing_more(crew: Bench) -> None:
    """Terminate leaves no supervisor to stop the tasks: the door cuts calls at work, and lets no attempt follow."""
    crew.simulator.script(
        [
            {"when": {"task": "again"}, "then": {"fault": "overloaded", "retry_after": 2}},
            {"when": {"contains": "Hang."}, "then": HANG},
        ]
    )
    run = await crew.start("""
max_concurrency: 3
defaults: {agent: hand, timeout: 60s}
tasks:
  - {id: again, prompt: Go.}
  - {id: hang, for_each: [1, 2, 3], prompt: Hang.}
""")
    await crew.simulator.until(lambda: crew.simulator.in_flight == 2 and crew.simulator.calls("again") == 1)

    await run.handle.terminate(reason="a test")

    await crew.simulator.until(lambda: crew.simulator.in_flight == 0)
    children = await run.ended_children()
    assert children == {"again": "COMPLETED", "hang[1]": "COMPLETED", "hang[2]": "COMPLETED"}
    assert crew.simulator.calls() == 3  # no child is left that could call
    assert all(entry.client_left for entry in crew.simulator.log if entry.task != "again")
    report = await run.report()
    assert report.status is RunStatus.CANCELLED
    assert (report.census.cancelled, report.census.not_started) == (3, 1)


async def test_a_cancel_may_come_before_everything(bench: Bench) -> None:
    """A run that is cancelled before any worker saw it starts no task."""
    run = await bench.start(WIDE)
    await run.client.cancel(run.id)

    async with bench.worker():
        closed = await run.closed()
        report = await run.report()

    assert closed.status is WorkflowExecutionStatus.CANCELED
    assert report.census.not_started == report.census.total
    assert await run.children() == {}
    assert bench.simulator.calls() == 0


async def test_a_cancel_reaches_a_run_that_only_waits(crew: Bench) -> None:
    """With every task before a wall there is nobody to stop: they end cancelled, for they had been started."""
    crew.simulator.script([{"then": {"fault": "rate_limit", "retry_after": 3600}}])
    run = await crew.start("tasks: [{id: t, for_each: [1, 2, 3], agent: hand, prompt: Go.}]")
    await run.until(lambda picture: picture.status is RunStatus.WAITING)

    await run.client.cancel(run.id)

    closed = await run.closed()
    report = await run.report()
    assert closed.status is WorkflowExecutionStatus.CANCELED
    assert report.census.cancelled == 3
    assert set((await run.ended_children()).values()) == {"COMPLETED"}
    assert crew.simulator.calls() == 3


async def test_a_storm_of_cancels_leaves_nothing(crew: Bench) -> None:
    """Whenever the cancel comes: no child is terminated or left, and every task has one last word."""
    chance = random.Random(7)  # noqa: S311
    crew.simulator.script([], ttft=0.15, jitter=1)
    plan = """
max_concurrency: 4
defaults: {agent: hand}
tasks:
  - {id: one, for_each: [1, 2, 3, 4], prompt: Go.}
  - {id: two, for_each: [1, 2, 3, 4, 5, 6, 7], prompt: Go., needs: [one]}
  - {id: end, prompt: Go., needs: [two]}
"""

    async def cancelled_at(moment: float, id: str) -> Run:
        run = await crew.start(plan, id=id)
        await asyncio.sleep(moment)  # the moment itself is what is varied
        await run.client.cancel(run.id)
        return run

    runs = await asyncio.gather(*(cancelled_at(chance.uniform(0, 1.2), f"storm-{n}") for n in range(5)))

    for run in runs:
        closed = await run.closed()
        children = await run.ended_children()
        report = await run.report()
        assert closed.status is WorkflowExecutionStatus.CANCELED, run.id
        assert set(children.values()) <= {"CANCELED", "COMPLETED"}, run.id
        assert report.status is RunStatus.CANCELLED
        states = report.census
        assert states.succeeded + states.cancelled + states.not_started == 12
        last_words = [
            event.task
            for event in await run.events()
            if event.type in {EventType.TASK_COMPLETED, EventType.TASK_FAILED, EventType.TASK_SKIPPED}
        ]
        assert len(last_words) == len(set(last_words)) == 12
    await crew.simulator.until(lambda: crew.simulator.in_flight == 0)
    paid = Counter((entry.user, entry.task) for entry in crew.simulator.log)
    assert set(paid.values()) <= {1}
