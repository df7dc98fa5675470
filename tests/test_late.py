"""What is at work when its time is over: the call is cut, the end says which time it was, and the cost is counted."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

from conftest import Bench, Run
from test_budget import billed

from domain.events import EventType, timestamp
from domain.models import RunStatus, TaskStatus
from domain.planning import plan_from_text
from domain.registry import Registry
from domain.report import Report, TaskReport
from prices import priced

DRIP = {"answer": "one two three " * 200, "ttft": 0, "tokens_per_second": 4}
"""An answer that goes on for minutes: no limit but the one that is meant can end it."""


async def start(crew: Bench, registry: Registry, plan: str) -> Run:
    """Hand over a plan whose cost is known."""
    read = plan_from_text(plan, file="test.yaml", registry=registry, folder=crew.folder)
    planned = replace(read, plan=priced(read.plan))
    run = await crew.client.submit(planned, id=None, simulated=True, queue=crew.queue)
    return Run(run, crew.client, crew.temporal)


async def check_the_cut(crew: Bench, run: Run, report: Report, *cut: str) -> None:
    """The calls of these tasks were under way and were cut; nothing follows them, and they are in the books."""
    await crew.simulator.until(lambda: crew.simulator.in_flight == 0)
    last = {entry.task: entry for entry in crew.simulator.log}
    children = await run.ended_children()
    for task in (task for task in report.tasks if task.id in cut):
        entry = last[task.id]
        assert (task.status, children[task.id]) == (TaskStatus.TIMED_OUT, "CANCELED")
        assert entry.client_left
        assert 0 < entry.billed.output < 600
        assert task.partial
        assert (task.output or "").startswith("one two")
    assert report.cost.actual_usd is not None
    assert report.cost.unsettled_usd is not None
    assert report.unsettled.output > 0
    assert Decimal(0) < billed(crew.simulator) <= report.cost.actual_usd + report.cost.unsettled_usd


def told(task: TaskReport) -> tuple[str, str, int]:
    """Why a task did not succeed."""
    assert task.error is not None
    return task.error.type, task.error.message, task.attempts


async def test_the_time_limit_and_the_deadline_of_a_task_cut_its_call(crew: Bench, registry: Registry) -> None:
    """The limit is that of the whole task: the second attempt has time of its own left when it passes."""
    crew.simulator.script(
        [
            {"when": {"task": "limited", "nth": 1}, "then": {"fault": "unavailable", "retry_after": 3}},
            {"when": {"contains": "Drip."}, "then": DRIP},
        ]
    )
    run = await start(
        crew,
        registry,
        """
defaults: {agent: hand}
tasks:
  - {id: limited, prompt: Drip., timeout: 20s, time_limit: 20s}
  - {id: late, prompt: Drip., timeout: 5m, deadline: 20s}
  - {id: end, prompt: Go., needs: [limited, late]}
  - {id: strict, prompt: Go., needs: {limited: require}}
""",
    )
    report = await run.report()

    limited, late, end, strict = report.tasks
    began = next(event.time for event in await run.events() if event.type is EventType.RUN_STARTED)
    assert told(limited) == ("TimedOut", "Task time limit of 20s passed", 2)
    assert told(late) == ("TimedOut", f"Task deadline {timestamp(began + timedelta(seconds=20))} passed", 1)
    assert (end.status, strict.status, strict.cause) == (TaskStatus.SUCCEEDED, TaskStatus.SKIPPED, "limited")
    assert report.status is RunStatus.PARTIAL
    assert crew.simulator.calls() == 4
    await check_the_cut(crew, run, report, "limited", "late")
    brief = await run.client.brief(await run.client.picture(run.id), "end")
    assert "Task time limit of 20s passed" in brief
    assert "one two" not in brief


async def test_the_deadline_of_a_run_cuts_what_is_at_work(crew: Bench, registry: Registry) -> None:
    crew.simulator.script([{"when": {"contains": "Drip."}, "then": DRIP}])
    run = await start(
        crew,
        registry,
        """
deadline: 20s
defaults: {agent: hand, timeout: 5m}
tasks:
  - {id: first, prompt: Go.}
  - {id: slow, prompt: Drip., needs: [first]}
  - {id: never, prompt: Go., needs: {slow: optional}}
""",
    )
    report = await run.report()

    first, slow, never = report.tasks
    began = next(event.time for event in await run.events() if event.type is EventType.RUN_STARTED)
    assert report.status is RunStatus.DEADLINE_PASSED
    assert (first.status, never.status) == (TaskStatus.SUCCEEDED, TaskStatus.NOT_STARTED)
    assert told(slow) == ("TimedOut", f"Run deadline {timestamp(began + timedelta(seconds=20))} passed", 1)
    assert crew.simulator.calls() == 2
    await check_the_cut(crew, run, report, "slow")
    assert (await run.handle.result()).status is RunStatus.DEADLINE_PASSED
