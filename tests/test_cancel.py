"""Stopping a run: what was at work ends cancelled, nothing is left, and nobody pays any more."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest
from conftest import Bench
from hypothesis import given
from hypothesis import strategies as st
from temporalio.client import WorkflowExecutionStatus

from audit_trail import AuditTrail
from domain.cancelling import NAME_MOST, SAID, canceller, reason_of
from domain.events import EventType
from domain.models import RunStatus, TaskStatus
from workflows import policies

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


async def test_a_cancel_stops_what_is_at_work(crew: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Children end cancelled, their calls are cut, nothing new is called, and finished work is kept."""
    monkeypatch.setattr(policies, "CANCEL_ON_ITS_WAY", timedelta(minutes=1))  # its cancel comes, however late
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


async def test_who_cancels_a_run_is_told(crew: Bench) -> None:
    """By the run's last word, and by the tasks that it ends; in the trail as in the events."""
    crew.simulator.script([{"when": {"contains": "Hang."}, "then": HANG}])
    run = await crew.start(WIDE)
    await crew.simulator.until(lambda: crew.simulator.in_flight == 6)

    await run.client.cancel(run.id, by="ann\nlee")

    await run.closed()
    for told in await run.events(), await AuditTrail(crew.store).records(run.id):
        who = {(one.type, one.task): one.data["by"] for one in told if "by" in one.data}
        assert set(who.values()) == {"ann lee"}
        assert Counter(type for type, _ in who) == {EventType.RUN_COMPLETED: 1, EventType.TASK_SKIPPED: 3}


async def test_a_cancel_from_elsewhere_is_nobodys(crew: Bench) -> None:
    """Temporal's Web UI and its command know no name of ours, and what is typed there as a reason is not told."""
    run = await crew.start("tasks: [{id: t, agent: hand, prompt: Go., approval: true}]")
    await run.until(lambda picture: picture.status is RunStatus.WAITING)

    await run.handle.cancel(reason="canary reason zq7")

    await run.closed()
    told = [(one.type, one.data) for one in await run.events()]
    assert told[-1][0] is EventType.RUN_COMPLETED
    assert [data for _, data in told if "by" in data or "zq7" in str(data)] == []


@given(st.none() | st.text())
def test_a_name_that_is_sent_is_the_name_that_is_read(by: str | None) -> None:
    """One line without control characters, and not for ever; what is nobody's name is none."""
    reason = reason_of(by)
    found = canceller(reason)

    assert (found is None) is (reason == "")
    assert found is None or (found.isprintable() and 0 < len(found) <= NAME_MOST)
    assert reason_of(found) == reason


@pytest.mark.parametrize("reason", [None, "", "ann", SAID, f"{SAID} ann", f"{SAID}a\nb", SAID + "x" * (NAME_MOST + 1)])
def test_any_other_reason_is_no_name(reason: str | None) -> None:
    """Whoever can reach Temporal can send one."""
    assert canceller(reason) is None


async def test_a_terminated_run_pays_for_nothing_more(crew: Bench) -> None:
    """Terminate leaves no supervisor to stop the tasks: the door cuts calls at work, and lets no attempt follow."""
    crew.simulator.script(
        [
            {"when": {"task": "again"}, "then": {"fault": "overloaded", "retry_after": 16}},
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
    await crew.simulator.until(lambda: crew.simulator.in_flight == 2 and crew.simulator.calls() == 3)  # both hang

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
    assert 1 <= crew.simulator.calls() <= 3  # who comes after the first refusal need not ask


async def test_a_terminated_run_that_only_waits_is_not_woken(crew: Bench) -> None:
    """Whoever waits at a wall, for a person or between two attempts has nobody left to start it again."""
    crew.simulator.script(
        [
            {"when": {"task": "walled"}, "then": {"fault": "rate_limit", "retry_after": 12}},
            {"when": {"task": "again"}, "then": {"fault": "overloaded", "retry_after": 16}},
        ]
    )
    run = await crew.start("""
tasks:
  - {id: again, agent: other, prompt: Go.}
  - {id: walled, agent: hand, prompt: Go.}
  - {id: asks, agent: other, prompt: Go., approval: true}
agents:
  - {name: other, version: "1", model: claude-sonnet-5-5, instructions: Do it.}
""")
    await run.until(lambda picture: picture.census.waiting == 2 and crew.simulator.calls() == 2)

    await run.handle.terminate(reason="a test")

    assert await run.ended_children() == {"again": "COMPLETED", "walled": "COMPLETED"}
    assert crew.simulator.calls() == 2  # no child is left that could call
    report = await run.report()
    assert report.status is RunStatus.CANCELLED
    assert (report.census.cancelled, report.census.not_started) == (2, 1)
