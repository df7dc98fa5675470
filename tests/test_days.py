"""Days in seconds: what waits for a person, a wall or a time, with the clock of the server wound forward."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta

from clocks import Skipper
from conftest import Run
from temporalio.client import WorkflowExecutionStatus

from domain.events import EventType
from domain.models import RunStatus, TaskStatus
from domain.picture import Picture
from domain.steering import Steered, TaskSteering

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
UNHURRIED = timedelta(seconds=2)
"""So long that no task has used up its attempts before three of them were refused, which is a wall."""


def steer(run: Run, verb: str, *tasks: str) -> Callable[[], Awaitable[Steered]]:
    async def ask() -> Steered:
        asked = TaskSteering(tasks=tasks, by="me")
        answer: Steered = await run.handle.execute_update(verb, asked, result_type=Steered)
        return answer

    return ask


async def waiting(run: Run) -> Picture:
    return await run.until(lambda picture: picture.status is RunStatus.WAITING)


async def test_a_wall_of_six_hours_is_slept_through(days: Skipper) -> None:
    """One call before it, none during it, the answer after it; and no attempt was used."""
    days.simulator.script([{"when": {"task": "a", "nth": 1}, "then": {"fault": "rate_limit", "retry_after": 21600}}])
    run = await days.hand_over(
        "tasks: [{id: a, agent: hand, prompt: Go.}, {id: b, agent: hand, prompt: Go., needs: [a]}]"
    )

    wait = (await waiting(run)).tasks["a"].wait
    assert wait is not None
    assert (wait.reason, wait.until is not None) == ("wall", True)
    assert days.simulator.calls() == 1
    assert await days.wait(run, 5 * HOUR)
    assert days.simulator.calls() == 1
    await days.wait(run, 2 * HOUR)
    report = await run.report()

    assert report.status is RunStatus.COMPLETED
    assert [task.attempts for task in report.tasks] == [1, 1]
    assert days.simulator.calls() == 3


async def test_an_overload_is_waited_out_also_by_a_worker_that_did_not_see_it_come(skipper: Skipper) -> None:
    """E4: one task asks after 1, 2, 4 ... minutes, and uses no attempt by it."""
    skipper.simulator.script([{"when": {"nth": [1, 8]}, "then": {"fault": "overloaded"}}])
    async with skipper.worker(backoff=UNHURRIED):
        run = await skipper.hand_over("tasks: [{id: t, for_each: [1, 2, 3], agent: hand, prompt: Go.}]")
        await waiting(run)
        met = skipper.simulator.calls()
    refused = Counter(entry.task for entry in skipper.simulator.log[:met])

    async with skipper.worker():
        await skipper.wait(run, timedelta(seconds=90))
        await skipper.simulator.until(lambda: skipper.simulator.calls() > met)
        assert skipper.simulator.calls() == met + 1
        await skipper.wait(run, HOUR)
        report = await run.report()

    assert report.status is RunStatus.COMPLETED
    assert all(task.attempts <= refused[task.id] + 1 for task in report.tasks)
    assert skipper.simulator.calls() == 8 + 3


async def test_an_approval_that_nobody_gives_expires_as_the_plan_says(days: Skipper) -> None:
    run = await days.hand_over(
        """
defaults: {agent: hand}
tasks:
  - {id: pay, prompt: Go., approval: {ask: Pay the bill?, expires: 12h}}
  - {id: file, prompt: Go., approval: {expires: 2d, on_expiry: approve}}
  - {id: note, prompt: Go., needs: {pay: optional}}
"""
    )

    await waiting(run)
    assert days.simulator.calls() == 0
    await days.wait(run, 11 * HOUR)
    assert (await run.client.picture(run.id)).census.waiting == 2
    await days.wait(run, 2 * HOUR)
    await run.until(lambda picture: picture.tasks["note"].status is TaskStatus.SUCCEEDED)
    await days.wait(run, 2 * DAY)
    report = await run.report()

    by_id = {task.id: task for task in report.tasks}
    assert by_id["pay"].status is TaskStatus.SKIPPED
    assert by_id["pay"].error is not None
    assert "in time" in by_id["pay"].error.message
    assert by_id["file"].status is by_id["note"].status is TaskStatus.SUCCEEDED
    expired = [event for event in await run.events() if event.type is EventType.APPROVAL_EXPIRED]
    assert [(event.task, event.data["then"]) for event in expired] == [("pay", "reject"), ("file", "approve")]


async def test_the_deadline_of_a_run_ends_it_with_what_there_is(days: Skipper) -> None:
    run = await days.hand_over(
        """
deadline: 2d
defaults: {agent: hand}
tasks:
  - {id: draft, prompt: Go.}
  - {id: publish, prompt: Go., needs: [draft], approval: true}
  - {id: tell, prompt: Go., needs: [publish]}
"""
    )

    await waiting(run)
    await days.wait(run, DAY)
    assert (await run.client.picture(run.id)).status is RunStatus.WAITING
    await days.wait(run, 2 * DAY)
    report = await run.report()

    assert report.status is RunStatus.DEADLINE_PASSED
    assert {task.id: task.status for task in report.tasks} == {
        "draft": TaskStatus.SUCCEEDED,
        "publish": TaskStatus.NOT_STARTED,
        "tell": TaskStatus.NOT_STARTED,
    }
    assert (await run.closed()).status is WorkflowExecutionStatus.COMPLETED
    assert (await run.handle.result()).status is RunStatus.DEADLINE_PASSED


async def test_limits_and_deadlines_of_tasks_reach_those_that_wait(days: Skipper) -> None:
    """One at a wall, one that waits for a person: both time out, and who tolerates it runs and is told."""
    days.simulator.script([{"when": {"task": "slow"}, "then": {"fault": "rate_limit", "retry_after": 86400}}])
    run = await days.hand_over(
        """
defaults: {agent: hand}
tasks:
  - {id: slow, prompt: Go., time_limit: 8h}
  - {id: asks, agent: other, prompt: Go., approval: true, deadline: 6h}
  - {id: end, agent: other, prompt: Go., needs: [slow, asks]}
agents:
  - {name: other, version: "1", model: claude-sonnet-5-5, instructions: Do it.}
"""
    )

    await waiting(run)
    await days.wait(run, 7 * HOUR)
    await run.until(lambda picture: picture.tasks["asks"].status is TaskStatus.TIMED_OUT)
    await days.wait(run, 2 * HOUR)
    report = await run.report()

    slow, asks, end = report.tasks
    assert slow.status is asks.status is TaskStatus.TIMED_OUT
    assert slow.error is not None
    assert asks.error is not None
    assert slow.error.message == "Task time limit of 8h passed"
    assert asks.error.message.startswith("Task deadline ")
    assert end.status is TaskStatus.SUCCEEDED
    assert report.status is RunStatus.DEGRADED
    assert "8h" in await run.client.brief(await run.client.picture(run.id), "end")


async def test_a_fortnight(days: Skipper) -> None:
    """Approvals, a wall, a retry, a pause and a deadline, over several histories: all of it on one clock."""
    days.simulator.script(
        [
            {"when": {"task": "collect[2]", "nth": 1}, "then": {"fault": "rate_limit", "retry_after": 80000}},
            {"when": {"task": "merge", "nth": 1}, "then": {"stop_reason": "refusal"}},
        ]
    )
    run = await days.hand_over(
        """
deadline: 14d
defaults: {agent: hand}
tasks:
  - {id: collect, for_each: [1, 2, 3], prompt: Go.}
  - {id: merge, prompt: Go., needs: [collect]}
  - {id: budget, prompt: Go., needs: [merge], approval: true}
  - {id: publish, prompt: Go., needs: [budget], approval: true}
  - {id: never, prompt: Go., approval: {ask: And now?}}
""",
        continue_after=2,
    )
    steps = [steer(run, "retry", "merge"), steer(run, "approve", "budget"), steer(run, "approve", "publish")]
    ready = [("merge", TaskStatus.FAILED), ("budget", TaskStatus.WAITING), ("publish", TaskStatus.WAITING)]

    await waiting(run)
    while await days.wait(run, DAY):
        picture = await run.client.picture(run.id)
        if ready and picture.tasks[ready[0][0]].status is ready[0][1]:
            ready.pop(0)
            await steps.pop(0)()
    report = await run.report()

    assert report.status is RunStatus.DEADLINE_PASSED
    assert report.duration_s is not None
    assert timedelta(seconds=report.duration_s) // DAY == 14
    assert [task.status.value for task in report.tasks] == [*["SUCCEEDED"] * 6, "NOT_STARTED"]
    assert days.simulator.calls() == 8  # six answers, the wall once, the refusal once
    assert len(await run.chain()) >= 3


async def test_one_task_alone_waits_a_fortnight_for_a_person(days: Skipper) -> None:
    """Nobody looks at it, nothing is asked, and no history grows meanwhile."""
    run = await days.hand_over("tasks: [{id: only, agent: hand, prompt: Go., approval: true}]")
    await waiting(run)
    before = (await run.handle.describe()).history_length
    for _ in range(14):
        assert await days.wait(run, DAY)
    after = (await run.handle.describe()).history_length
    calls = days.simulator.calls()

    await steer(run, "approve", "only")()
    report = await run.report()

    assert (calls, days.simulator.calls()) == (0, 1)
    assert after - before < 14 * 3
    assert report.status is RunStatus.COMPLETED
    assert report.duration_s is not None
    assert timedelta(seconds=report.duration_s) // DAY == 14
