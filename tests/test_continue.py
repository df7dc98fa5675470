"""Continue-as-new with tasks in flight: a long run gets a fresh history, and nothing is lost, doubled or terminated."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta

import pytest
from conftest import Bench, Run, eventually
from temporalio.client import WorkflowExecutionStatus

from domain import carrying
from domain.models import RunStatus, TaskStatus
from workflows import policies

HANG = {"fault": "hang_before_headers"}


async def runs_of(run: Run) -> list[WorkflowExecutionStatus | None]:
    """The state of every run in the chain, in order."""
    return [(await handle.describe()).status for handle in await run.chain()]


async def in_another_run(run: Run) -> None:
    """Wait until the supervisor has continued as new."""
    first = (await run.handle.describe()).raw_description.workflow_execution_info.first_run_id

    async def continued() -> bool:
        return (await run.handle.describe()).run_id != first

    await eventually(continued)


async def test_three_hundred_tasks_over_many_histories(crew: Bench) -> None:
    """Every task is called exactly once, no child is terminated, and the report has them all."""
    run = await crew.start(
        f"""
max_concurrency: 24
defaults: {{agent: hand}}
tasks:
  - {{id: root, prompt: Begin.}}
  - {{id: leaf, for_each: [{", ".join(map(str, range(298)))}], prompt: Work., needs: [root]}}
  - {{id: join, prompt: Gather., needs: [leaf]}}
""",
        continue_after=50,
    )

    summary = await run.handle.result()
    report = await run.report()

    calls = Counter(entry.task for entry in crew.simulator.log)
    assert len(calls) == 300
    assert set(calls.values()) == {1}
    assert summary.status is report.status is RunStatus.COMPLETED
    assert summary.census.succeeded == report.census.succeeded == 300
    children = await run.ended_children()
    assert Counter(children.values()) == {"COMPLETED": 300}
    chain = await runs_of(run)
    assert len(chain) >= 5
    assert set(chain[:-1]) == {WorkflowExecutionStatus.CONTINUED_AS_NEW}
    events = await run.events()
    assert [event.number for event in events] == list(range(1, len(events) + 1))


@pytest.mark.parametrize("columns_from", [carrying.COLUMNS_FROM, 1])
async def test_tasks_in_flight_go_through_continue_as_new(
    crew: Bench, columns_from: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slow, failing and parked tasks with dependants: their ends reach a supervisor that did not start them."""
    monkeypatch.setattr(carrying.packed, "__defaults__", (columns_from,))
    crew.simulator.script(
        [
            {"when": {"task": "slow[1]"}, "then": {"ttft": 1.5}},
            {"when": {"task": "slow[2]"}, "then": {"ttft": 2.0, "stop_reason": "refusal"}},
            {"when": {"task": "slow[3]", "nth": 1}, "then": {"fault": "rate_limit", "retry_after": 2}},
        ],
        ttft=0.1,
    )
    run = await crew.start(
        """
max_concurrency: 4
defaults: {agent: hand}
tasks:
  - {id: slow, for_each: [1, 2, 3], prompt: Work.}
  - {id: quick, for_each: [1, 2, 3, 4, 5, 6, 7, 8], prompt: Work.}
  - {id: after1, prompt: Go., needs: ["slow[1]"]}
  - {id: after2, prompt: Go., needs: {"slow[2]": require}}
  - {id: after3, prompt: Go., needs: ["slow[3]"]}
  - {id: join, prompt: Gather., needs: {after1: optional, after2: optional, after3: optional, quick: optional}}
""",
        continue_after=2,
    )

    report = await run.report()

    states = {task.id: task.status for task in report.tasks}
    assert report.status is RunStatus.DEGRADED
    assert states.pop("slow[2]") is TaskStatus.FAILED
    assert states.pop("after2") is TaskStatus.SKIPPED
    assert set(states.values()) == {TaskStatus.SUCCEEDED}
    calls = Counter(entry.task for entry in crew.simulator.log)
    assert calls.pop("slow[3]") == 2  # the wall, and the call after it
    assert "after2" not in calls
    assert set(calls.values()) == {1}
    assert len(await run.chain()) >= 4
    assert set((await run.ended_children()).values()) == {"COMPLETED"}


async def test_a_pause_goes_through_continue_as_new(crew: Bench) -> None:
    """Paused before, paused after: in the supervisor, and at the door for attempts that were already scheduled."""
    crew.simulator.script(
        [
            {"when": {"task": "again", "nth": 1}, "then": {"fault": "overloaded", "retry_after": 8}},
            {"when": {"task": "slow"}, "then": {"ttft": 6}},
        ]
    )
    run = await crew.start(
        """
max_concurrency: 2
defaults: {agent: hand, timeout: 60s}
tasks:
  - {id: again, prompt: Work.}
  - {id: slow, prompt: Work.}
  - {id: later, for_each: [1, 2], prompt: Work.}
""",
        continue_after=1,
    )
    await crew.simulator.until(lambda: crew.simulator.calls("again") == crew.simulator.calls("slow") == 1)

    await run.client.pause(run.id, by="a test")
    await in_another_run(run)
    parked = await run.until(lambda picture: picture.tasks["again"].status is TaskStatus.WAITING)

    assert parked.status is RunStatus.PAUSED
    assert parked.tasks["again"].wait is not None
    assert parked.tasks["again"].wait.reason == "pause"
    assert crew.simulator.calls("again") == 1
    assert crew.simulator.calls() == 2

    await run.client.resume(run.id, by="a test")

    assert (await run.report()).status is RunStatus.COMPLETED
    assert Counter(entry.task for entry in crew.simulator.log) == {"again": 2, "slow": 1, "later[1]": 1, "later[2]": 1}


async def test_a_cancel_reaches_tasks_of_an_earlier_history(crew: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Right after continue-as-new the tasks in flight are not children of this run any more, and are stopped too."""
    monkeypatch.setattr(policies, "CANCEL_ON_ITS_WAY", timedelta(minutes=1))  # its cancel comes, however late
    crew.simulator.script([{"when": {"contains": "Hang."}, "then": HANG}])
    run = await crew.start(
        """
max_concurrency: 8
defaults: {agent: hand, timeout: 60s}
tasks:
  - {id: hang, for_each: [1, 2, 3, 4, 5], prompt: Hang.}
  - {id: quick, for_each: [1, 2], prompt: Go.}
  - {id: join, prompt: Gather., needs: [hang]}
""",
        continue_after=2,
    )
    await in_another_run(run)

    await run.client.cancel(run.id)

    closed = await run.closed()
    report = await run.report()
    children = await run.ended_children()
    assert closed.status is WorkflowExecutionStatus.CANCELED
    assert {children.pop(f"quick[{n}]") for n in (1, 2)} == {"COMPLETED"}
    assert Counter(children.values()) == {"CANCELED": 5}
    assert report.census.cancelled == 5
    assert report.census.succeeded == 2
    assert report.census.not_started == 1
    await crew.simulator.until(lambda: crew.simulator.in_flight == 0)
    assert all(entry.client_left for entry in crew.simulator.log if (entry.task or "").startswith("hang"))


async def test_a_cancel_may_meet_continue_as_new(crew: Bench) -> None:
    """Whichever comes first, the run ends cancelled and leaves no task behind."""
    crew.simulator.script([{"when": {"contains": "Hang."}, "then": HANG}])
    plan = """
max_concurrency: 8
defaults: {agent: hand, timeout: 60s}
tasks:
  - {id: hang, for_each: [1, 2, 3], prompt: Hang.}
  - {id: quick, for_each: [1, 2, 3, 4, 5, 6], prompt: Go.}
"""

    async def cancel_after(calls: int) -> Run:
        run = await crew.start(plan, id=f"meets-{calls}", continue_after=1)
        await run.until(lambda picture: picture.census.succeeded >= calls)
        await run.client.cancel(run.id)
        return run

    runs = await asyncio.gather(*(cancel_after(calls) for calls in range(6)))

    for run in runs:
        assert (await run.closed()).status is WorkflowExecutionStatus.CANCELED
        assert set((await run.ended_children()).values()) <= {"CANCELED", "COMPLETED"}
        census = (await run.report()).census
        assert census.cancelled + census.succeeded + census.not_started == 9
    await crew.simulator.until(lambda: crew.simulator.in_flight == 0)
