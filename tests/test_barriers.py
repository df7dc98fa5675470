"""Walls as a whole run meets them: who waits, who goes on, and who asks again."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest
from clocks import Skipper
from conftest import Bench, Run
from doorway import HAIKU

from domain.events import EventType
from domain.models import RunStatus, TaskStatus
from domain.picture import Picture
from simulator.config import Config
from simulator.server import Simulator

SONNET = "claude-sonnet-5-5"
MINUTE = timedelta(minutes=1)
UNHURRIED = timedelta(seconds=2)
"""So long that no task has used up its attempts before three of them were refused, which is a wall."""
OTHER = f"""
agents:
  - {{name: other, version: "1", model: {SONNET}, instructions: Do it.}}
"""
ONE_THEN_FIVE = """
max_concurrency: 3
defaults: {agent: hand}
tasks:
  - {id: first, prompt: Go.}
  - {id: t, for_each: [1, 2, 3, 4, 5], prompt: Go., needs: [first]}
"""
"""One call that is answered, so that what follows is a wall and no mistake in the plan."""


async def waiting(run: Run) -> Picture:
    return await run.until(lambda picture: picture.status is RunStatus.WAITING)


async def walls(run: Run) -> list[tuple[object, ...]]:
    """What the run tells of its walls: model, kind, and which task is to ask."""
    told = [event for event in await run.events() if event.type is EventType.QUOTA_WALL]
    return [(event.data["model"], event.data["kind"], event.data["probe"]) for event in told]


# --- one model, or the account ---


async def test_a_wall_before_one_model_lets_the_tasks_of_another_go_on(crew: Bench) -> None:
    """E1: of the walled model only what was under way has asked, and everything else is done meanwhile."""
    crew.simulator.script(
        [{"when": {"model": HAIKU}, "then": {"fault": "rate_limit", "retry_after": 3600, "ttft": 0}}], ttft=0.01
    )
    run = await crew.start(
        """
max_concurrency: 2
tasks:
  - {id: mine, for_each: [1, 2, 3, 4, 5, 6], agent: hand, prompt: Go.}
  - {id: theirs, for_each: [1, 2, 3, 4, 5, 6], agent: other, prompt: Go.}
  - {id: after, agent: other, prompt: Go., needs: [theirs]}
"""
        + OTHER
    )

    picture = await waiting(run)

    assert picture.census.succeeded == 7
    assert {task.status for id, task in picture.tasks.items() if id.startswith("mine")} <= {
        TaskStatus.WAITING,
        TaskStatus.READY,
    }
    models = Counter(entry.model for entry in crew.simulator.log)
    assert models[SONNET] == 7
    assert models[HAIKU] <= 2
    assert set(await walls(run)) == {(HAIKU, "rate", None)}
    await run.client.cancel(run.id)
    await run.closed()


@pytest.mark.parametrize(
    ("fault", "wall", "kind", "does"),
    [
        ("authentication", "key", "key", "set a key"),
        ("spend_limit", "spend", "budget", "spend limit"),
        ("not_found", "model", "key", HAIKU),
    ],
)
async def test_what_is_withdrawn_in_the_middle_of_a_run_waits_until_it_is_mended(
    crew: Bench, fault: str, wall: str, kind: str, does: str
) -> None:
    """E3, E15, E16: what was under way has asked, nobody else does; a person mends it and says so, and it goes on."""
    crew.simulator.script([{"when": {"nth": 1}, "then": {}}, {"then": {"fault": fault}}])
    run = await crew.start(ONE_THEN_FIVE)

    picture = await waiting(run)
    assert picture.tasks["first"].status is TaskStatus.SUCCEEDED
    (attention,) = (await run.client.report(picture)).attention
    assert attention.kind == kind
    assert does in attention.do
    assert attention.do.endswith(f"then retry {run.id}")
    in_vain = crew.simulator.calls() - 1
    assert 1 <= in_vain <= 3
    crew.simulator.script([])
    await run.client.retry(run.id, [], by="ann")
    report = await run.report()

    assert report.status is RunStatus.COMPLETED
    assert {task.attempts for task in report.tasks} == {1}
    assert crew.simulator.calls() == 6 + in_vain
    told = [(event.data["kind"], event.data["told"]) for event in await run.events() if event.type == "quota.wall"]
    assert set(told) == {(wall, False)}


async def test_who_says_too_early_that_a_wall_is_gone_costs_one_request(crew: Bench) -> None:
    crew.simulator.script([{"when": {"nth": 1}, "then": {}}, {"then": {"fault": "spend_limit"}}])
    run = await crew.start(ONE_THEN_FIVE)
    await waiting(run)
    before = crew.simulator.calls()

    await run.client.retry(run.id, [], by="ann")
    await crew.simulator.until(lambda: crew.simulator.calls() > before)
    await waiting(run)

    assert crew.simulator.calls() == before + 1
    await run.client.cancel(run.id)
    report = await run.report()
    assert report.census.cancelled + report.census.not_started == 5


@pytest.mark.parametrize(("fault", "type"), [("authentication", "KeyRefused"), ("not_found", "ModelUnknown")])
async def test_what_was_never_right_fails_at_once(crew: Bench, fault: str, type: str) -> None:
    """On the first call of a run it is a mistake: one request for each task that was started, and no wall."""
    crew.simulator.script([{"then": {"fault": fault}}])
    run = await crew.start(ONE_THEN_FIVE)

    report = await run.report()

    first, *rest = report.tasks
    assert report.status is RunStatus.FAILED
    assert first.error is not None
    assert (first.status, first.error.type, first.attempts) == (TaskStatus.FAILED, type, 1)
    assert {(task.status, task.cause) for task in rest} == {(TaskStatus.SKIPPED, "first")}
    assert crew.simulator.calls() == 1
    assert await walls(run) == []


async def test_a_model_that_was_never_known_does_not_hold_up_the_others(crew: Bench) -> None:
    """E15: only its own tasks fail, and the error names the model."""
    crew.simulator.script([{"when": {"model": SONNET}, "then": {"fault": "not_found"}}])
    run = await crew.start(
        "tasks: [{id: known, agent: hand, prompt: Go.}, {id: unknown, agent: other, prompt: Go.}]" + OTHER
    )

    report = await run.report()

    known, unknown = report.tasks
    assert (known.status, unknown.status) == (TaskStatus.SUCCEEDED, TaskStatus.FAILED)
    assert unknown.error is not None
    assert SONNET in unknown.error.message
    assert report.status is RunStatus.PARTIAL


# --- walls without a told end ---


async def test_a_provider_that_cannot_be_reached_is_awaited(days: Skipper) -> None:
    """Nobody is there: everybody parks. After a minute one task finds out that it is back, and the others follow."""
    port = days.simulator.port
    await days.simulator.__aexit__(None, None, None)
    run = await days.hand_over("tasks: [{id: t, for_each: [1, 2, 3], agent: hand, prompt: Go.}]")
    picture = await waiting(run)
    assert picture.census.waiting == 3
    assert {wall[:2] for wall in await walls(run)} == {(None, "unreachable")}

    async with Simulator(Config(ttft=0, tokens_per_second=0), port=port) as back:
        await days.wait(run, MINUTE)
        report = await run.report()
        log = list(back.log)

    assert report.status is RunStatus.COMPLETED
    assert {task.attempts for task in report.tasks} == {1}
    assert len(log) == 3
    assert (log[0].in_flight, log[0].task) == (1, "t[1]")
    assert log[0].ended is not None
    assert all(entry.started >= log[0].ended for entry in log[1:])


async def test_two_hours_without_capacity_fail_nothing(skipper: Skipper) -> None:
    """E4: three tasks that are refused are a wall; one task asks after 1, 2, 4, 8, 15 minutes, and uses no attempt."""
    async with skipper.worker(backoff=UNHURRIED):
        skipper.simulator.script([{"then": {"fault": "overloaded"}}])
        run = await skipper.hand_over(
            "max_concurrency: 6\ntasks: [{id: t, for_each: [1, 2, 3, 4, 5, 6, 7, 8], agent: hand, prompt: Go.}]"
        )
        await waiting(run)
        before = Counter(entry.task or "" for entry in skipper.simulator.log)

        assert await skipper.wait(run, timedelta(seconds=5))  # so that no look is at the very moment
        for minutes in (1, 2, 4, 8, 15, 15, 15, 15, 15, 15, 15):
            asked = skipper.simulator.calls()
            assert await skipper.wait(run, minutes * MINUTE - timedelta(seconds=30))
            assert skipper.simulator.calls() == asked
            assert await skipper.wait(run, timedelta(seconds=30))
            await skipper.simulator.until(lambda asked=asked: skipper.simulator.calls() > asked)  # type: ignore[misc]
            await waiting(run)
            assert skipper.simulator.calls() == asked + 1
        probes = Counter(entry.task or "" for entry in skipper.simulator.log) - before
        assert len(probes) == 1
        skipper.simulator.script([])
        await skipper.wait(run, 16 * MINUTE)
        report = await run.report()

        assert report.status is RunStatus.COMPLETED
        assert {task.attempts for task in report.tasks if task.id not in before} == {1}
        (prober,) = probes
        attempts = {task.id: task.attempts for task in report.tasks}
        assert attempts[prober] <= 1 + before[prober]
        assert {wall[:2] for wall in await walls(run)} == {(HAIKU, "overload")}


async def test_a_new_worker_that_is_sent_to_a_wall_knows_why(bench: Bench) -> None:
    """It has not seen the others being refused: one more refusal is that wall, and no failed attempt."""
    bench.simulator.script([{"then": {"fault": "overloaded"}}])
    async with bench.worker(backoff=UNHURRIED):
        run = await bench.start("tasks: [{id: t, for_each: [1, 2, 3], agent: hand, prompt: Go.}]")
        await waiting(run)
    before = bench.simulator.calls()
    async with bench.worker():
        await run.client.retry(run.id, [], by="ann")
        await bench.simulator.until(lambda: bench.simulator.calls() > before)
        await waiting(run)

        assert bench.simulator.calls() == before + 1
        bench.simulator.script([])
        await run.client.retry(run.id, [], by="ann")
        assert (await run.report()).status is RunStatus.COMPLETED
    assert bench.simulator.calls() == before + 4


# --- one bad task ---


async def test_a_task_that_always_fails_takes_only_its_dependants_with_it(crew: Bench) -> None:
    """G12: it is tried as often as its plan says, and everything beside it is done."""
    crew.simulator.script([{"when": {"task": "poison"}, "then": {"fault": "api_error"}}])
    run = await crew.start(
        """
max_concurrency: 2
defaults: {agent: hand}
tasks:
  - {id: poison, prompt: Go., attempts: 3}
  - {id: ill, prompt: Go., needs: [poison]}
  - {id: iller, prompt: Go., needs: [ill]}
  - {id: well, for_each: [1, 2, 3, 4], prompt: Go.}
  - {id: end, prompt: Go., needs: [well]}
"""
    )

    report = await run.report()

    assert {task.id: task.status.value for task in report.tasks if task.status is not TaskStatus.SUCCEEDED} == {
        "poison": "FAILED",
        "ill": "SKIPPED",
        "iller": "SKIPPED",
    }
    assert {task.cause for task in report.tasks if task.status is TaskStatus.SKIPPED} == {"poison"}
    assert crew.simulator.calls("poison") == 3
    assert crew.simulator.calls() == 8
    assert report.status is RunStatus.PARTIAL
