"""Mistakes of our own in workflow code: they fail a run with the reason, and leave no task paying in the dark."""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from conftest import Bench, Run, was_interrupted
from temporalio.api.enums.v1 import EventType as HistoryEvent
from temporalio.api.enums.v1 import WorkflowTaskFailedCause
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError
from temporalio.exceptions import ApplicationError
from temporalio.worker import Replayer, Worker
from test_audit_runs import check_calls

from activities.contract import RUN_AGENT
from audit_trail import AuditTrail
from audits import Audits
from domain.course import Course
from domain.events import EventType
from domain.models import Outcome, RunStatus, Usage
from domain.progress import Progress
from domain.step import Step
from payloads import DATA_CONVERTER
from untold import BESIDE, Untold
from versioning import unversioned_runner
from workflows import policies
from workflows.supervisor import SupervisorWorkflow
from workflows.task import TaskWorkflow

HANG = {"fault": "hang_before_headers"}
PLAN = """
max_concurrency: 4
defaults: {agent: hand, timeout: 60s}
tasks:
  - {id: quick, prompt: Go.}
  - {id: hang, for_each: [1, 2, 3], prompt: Hang.}
  - {id: later, prompt: Go., needs: [quick]}
"""
WHEN_ASKED = PLAN.replace("{id: quick, prompt: Go.}", "{id: quick, prompt: Go., approval: true}")
HANGING = ("hang[1]", "hang[2]", "hang[3]")


async def bug_that_ended(run: Run) -> ApplicationError:
    """What the run failed with."""
    with pytest.raises(WorkflowFailureError) as failure:
        await run.handle.result()
    assert isinstance(failure.value.cause, ApplicationError)
    return failure.value.cause


async def all_hang(bench: Bench) -> None:
    """Wait until the provider has been asked by all that get no answer."""
    await bench.simulator.until(lambda: all(bench.simulator.calls(id) == 1 for id in HANGING))


def fail_on_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug that shows when the task `quick` has ended."""
    honest = Course.result

    def result(self: Course, progress: Progress, id: str, outcome: Outcome, now: datetime) -> Step:
        if id == "quick":
            raise KeyError(id)
        return honest(self, progress, id, outcome, now)

    monkeypatch.setattr(Course, "result", result)


async def test_a_bug_in_the_first_decision_fails_the_run(crew: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the boundary the run would be RUNNING for ever."""

    def launch(self: Course, progress: Progress, now: datetime, unconfirmed: int | None = None) -> Step:
        raise KeyError("launch")

    monkeypatch.setattr(Course, "launch", launch)
    run = await crew.start(PLAN)

    bug = await bug_that_ended(run)

    assert (bug.type, bug.non_retryable) == ("WorkflowBug", True)
    assert "KeyError('launch')" in bug.message
    assert crew.simulator.calls() == 0
    assert await run.children() == {}


async def test_a_bug_stops_the_tasks_at_work(crew: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Children are abandoned by design: a run that fails must stop them itself. The event log has the reason."""
    crew.simulator.script([{"when": {"contains": "Hang."}, "then": HANG}])
    fail_on_quick(monkeypatch)
    run = await crew.start(WHEN_ASKED)
    await all_hang(crew)
    await run.client.approve(run.id, ["quick"], by="ann")

    bug = await bug_that_ended(run)

    assert bug.type == "WorkflowBug"
    children = await run.ended_children()
    assert children == {"quick": "COMPLETED", **dict.fromkeys(HANGING, "CANCELED")}
    await crew.simulator.until(lambda: crew.simulator.in_flight == 0)
    assert crew.simulator.calls("later") == 0
    last = (await run.events())[-1]
    assert (last.type, last.data["status"]) == (EventType.RUN_COMPLETED, RunStatus.FAILED)
    assert "KeyError('quick')" in str(last.data["error"])
    closed = await run.closed()
    assert await closed.memo_value("status") == RunStatus.FAILED
    assert (await run.report()).status is RunStatus.FAILED


async def test_calls_that_a_bug_has_cut_are_counted_and_told(crew: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run settles nothing any more: report and audit have it from the ledger, and `prune` keeps it."""
    crew.simulator.script([{"when": {"contains": "Hang."}, "then": HANG}])
    fail_on_quick(monkeypatch)
    run = await crew.start(WHEN_ASKED)
    await all_hang(crew)
    await run.client.approve(run.id, ["quick"], by="ann")
    await bug_that_ended(run)
    await run.ended_children()

    glance, picture = await run.client.glance(run.id), await run.client.picture(run.id)
    watched = [seen async for seen in run.client.watch(run.id)][-1]
    audits = Audits(run.client, crew.store)
    seen = [each.record for each in await audits.of_run(run.id, None, None)]
    verdict = await audits.verify(run.id)
    await Untold(crew.store).keep(run.id)

    assert not check_calls(run, crew.simulator.log, seen)
    beside = [record for record in seen if record.number == BESIDE]
    assert Counter(record.task for record in beside) == Counter(["quick", *HANGING])
    assert (verdict.fault, verdict.untold) == (None, 4)
    assert len(await AuditTrail(crew.store).beside(run.id)) == 4
    for told in glance, picture, watched:
        accounts = await run.client.books.accounts(run.id, list(told.tasks))
        calls = [call for account in accounts.values() for call in account.calls]
        assert told.tokens == sum((call.usage for call in calls), Usage()) != Usage()
        assert told.unsettled == sum((call.unsettled for call in calls), Usage()) != Usage()
        assert [told.tasks[id].attempts for id in HANGING] == 3 * [1]


async def test_a_bug_after_a_cancel_stops_the_tasks_too(crew: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last decisions of a run are guarded like the first."""
    monkeypatch.setattr(policies, "CANCEL_ON_ITS_WAY", timedelta(minutes=1))  # its cancel comes, however late
    crew.simulator.script([{"when": {"contains": "Hang."}, "then": HANG}])

    def cancel(self: Course, progress: Progress, now: datetime, by: str | None = None) -> Step:
        raise KeyError("cancel")

    monkeypatch.setattr(Course, "cancel", cancel)
    run = await crew.start(PLAN)
    await all_hang(crew)

    await run.client.cancel(run.id)
    bug = await bug_that_ended(run)

    assert (bug.type, "KeyError('cancel')" in bug.message) == ("WorkflowBug", True)
    states = Counter((await run.ended_children()).values())
    assert states["CANCELED"] >= 3
    assert set(states) <= {"CANCELED", "COMPLETED"}
    await crew.simulator.until(lambda: crew.simulator.in_flight == 0)
    assert (await run.events())[-1].type is EventType.RUN_COMPLETED


async def test_a_cancel_during_the_end_of_a_bug_leaves_nothing(crew: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A person sees a run that hangs on in its failure and cancels it: the bug stays the reason, no task is left."""
    crew.simulator.script([{"when": {"contains": "Hang."}, "then": HANG}])
    fail_on_quick(monkeypatch)
    run = await crew.start(WHEN_ASKED)
    await all_hang(crew)
    await run.client.approve(run.id, ["quick"], by="ann")
    await crew.simulator.until(lambda: any(entry.client_left for entry in crew.simulator.log))

    await run.client.cancel(run.id)

    assert (await bug_that_ended(run)).type == "WorkflowBug"
    assert set((await run.ended_children()).values()) <= {"CANCELED", "COMPLETED"}
    assert (await run.events())[-1].type is EventType.RUN_COMPLETED


async def test_a_workflow_that_imports_the_sdk_does_not_start(
    temporal: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fails where a worker is built, not in the middle of a run."""
    (tmp_path / "paying_workflow.py").write_text(
        """
import anthropic
from temporalio import workflow


@workflow.defn
class PayingWorkflow:
    @workflow.run
    async def run(self) -> None:
        anthropic.Anthropic()
""",
        "utf-8",
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("paying_workflow")

    try:
        with pytest.raises(RuntimeError, match="PayingWorkflow"):
            Worker(temporal, task_queue="none", workflows=[module.PayingWorkflow])
    finally:
        del sys.modules["paying_workflow"]


async def test_every_paid_activity_is_watched(crew: Bench) -> None:
    """A lost worker is noticed by its heartbeat; nothing that costs money is without one, or without an end."""
    run = await crew.start("tasks: [{id: a, agent: hand, prompt: Go., timeout: 20s, attempts: 3}]")
    await run.report()

    history = await crew.temporal.get_workflow_handle(f"{run.id}/a").fetch_history()

    scheduled = [event.activity_task_scheduled_event_attributes for event in history.events]
    (paid,) = [attributes for attributes in scheduled if attributes.activity_type.name == RUN_AGENT]
    assert 0 < paid.heartbeat_timeout.ToSeconds() <= 10
    assert 20 < paid.start_to_close_timeout.ToSeconds() <= 20 + 240
    assert paid.retry_policy.maximum_attempts == 3 + policies.LOSSES  # the calls are counted by the door


async def test_histories_replay(crew: Bench) -> None:
    """What runs did, the same code does again: through retries, walls, pauses, continue-as-new and a cancel."""
    crew.simulator.script(
        [
            {"when": {"task": "wall", "nth": 1}, "then": {"fault": "rate_limit", "retry_after": 1}},
            {"when": {"task": "again", "nth": 1}, "then": {"fault": "overloaded"}},
            {"when": {"task": "bad"}, "then": {"stop_reason": "refusal"}},
            {"when": {"contains": "Hang."}, "then": HANG},
        ],
    )
    run = await crew.start(
        """
max_concurrency: 4
defaults: {agent: hand, timeout: 60s}
tasks:
  - {id: wall, prompt: Go.}
  - {id: again, prompt: Go.}
  - {id: bad, prompt: Go.}
  - {id: after, for_each: [1, 2, 3], prompt: Go., needs: {bad: optional, wall: require}}
  - {id: hang, prompt: Hang., needs: [after]}
""",
        continue_after=2,
    )
    await run.client.pause(run.id, by="a test")
    await run.client.resume(run.id, by="a test")
    await crew.simulator.until(lambda: crew.simulator.calls("hang") == 1)
    await run.client.cancel(run.id)
    assert (await run.closed()).status is WorkflowExecutionStatus.CANCELED

    chain: list[Any] = await run.chain()
    tasks = [crew.temporal.get_workflow_handle(f"{run.id}/{task}") for task in await run.ended_children()]
    histories = [await handle.fetch_history() for handle in (*chain, *tasks)]
    replayer = Replayer(
        workflows=[SupervisorWorkflow, TaskWorkflow],
        workflow_runner=unversioned_runner(),
        data_converter=DATA_CONVERTER,
        debug_mode=True,  # a replay that is slow has not failed
    )

    for history in histories:
        await replayer.replay_workflow(history)

    assert len(chain) >= 3
    assert len(tasks) == 7
    failed = HistoryEvent.EVENT_TYPE_WORKFLOW_TASK_FAILED
    came_late = WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_COMMAND  # the server says: look again
    failures = [event for history in histories for event in history.events if event.event_type == failed]
    ours = [event for event in failures if not was_interrupted(event)]
    assert not [event for event in ours if event.workflow_task_failed_event_attributes.cause != came_late]
