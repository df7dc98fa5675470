"""Waves: the first ready tasks in plan order, together; the next ones when all of them have ended, however."""

from __future__ import annotations

from itertools import pairwise

import pytest
from conftest import Bench, Run

from domain.events import EventType
from domain.models import RunStatus, TaskStatus

OTHER = """
agents:
  - {name: other, version: "1", model: claude-sonnet-5-5, instructions: Do it.}
"""


async def waves(run: Run) -> list[list[str]]:
    """The tasks of each wave as the run told them; they are numbered from 1."""
    told = [event.data for event in await run.events() if event.type is EventType.WAVE_STARTED]
    assert [data["number"] for data in told] == [*range(1, len(told) + 1)]
    return [[str(id) for id in tasks] for data in told if isinstance(tasks := data["tasks"], list)]


async def test_a_wave_begins_when_the_last_one_has_ended(crew: Bench) -> None:
    """Ten tasks in waves of 4, 4 and 2; one of them fails, and one is called for as long as it may be."""
    crew.simulator.script(
        [
            {"when": {"task": "t[2]"}, "then": {"stop_reason": "refusal"}},
            {"when": {"task": "t[5]"}, "then": {"fault": "hang_before_headers"}},
        ],
        ttft=0.1,
        jitter=1,
    )
    run = await crew.start("""
mode: waves
max_concurrency: 4
defaults: {agent: hand, timeout: 8s, attempts: 1}
tasks: [{id: t, for_each: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9], prompt: Go.}]
""")

    report = await run.report()

    ids = [f"t[{number}]" for number in range(10)]
    found = await waves(run)
    assert found == [ids[:4], ids[4:8], ids[8:]]
    assert [task.id for task in report.tasks] == ids
    odd = {task.id: task.status for task in report.tasks if task.status is not TaskStatus.SUCCEEDED}
    assert odd == {"t[2]": TaskStatus.FAILED, "t[5]": TaskStatus.TIMED_OUT}
    calls = {entry.task: entry for entry in crew.simulator.log}
    assert len(calls) == len(crew.simulator.log) == 10
    for wave, following in pairwise(found):
        ends = [calls[id].ended for id in wave]
        assert all(end is not None and end <= calls[id].started for end in ends for id in following)
    assert crew.simulator.peak <= 4


async def test_what_becomes_ready_meanwhile_comes_with_the_next_wave(crew: Bench) -> None:
    """Though there is a free place, and though it stands before others in the plan."""
    run = await crew.start("""
mode: waves
max_concurrency: 3
defaults: {agent: hand}
tasks:
  - {id: early, prompt: Go., needs: [a]}
  - {id: a, prompt: Go.}
  - {id: b, prompt: Go.}
  - {id: c, prompt: Go.}
  - {id: d, prompt: Go.}
  - {id: last, prompt: Go., needs: [d, early]}
""")

    report = await run.report()

    assert report.status is RunStatus.COMPLETED
    assert await waves(run) == [["a", "b", "c"], ["early", "d"], ["last"]]


async def test_a_task_at_a_wall_leaves_its_wave_and_comes_with_a_later_one(crew: Bench) -> None:
    crew.simulator.script([{"when": {"task": "walled", "nth": 1}, "then": {"fault": "rate_limit", "retry_after": 8}}])
    run = await crew.start(
        """
mode: waves
max_concurrency: 2
defaults: {agent: hand}
tasks:
  - {id: a, prompt: Go.}
  - {id: walled, agent: other, prompt: Go.}
  - {id: b, prompt: Go.}
  - {id: c, prompt: Go.}
"""
        + OTHER
    )

    report = await run.report()

    first, second, *later = await waves(run)
    assert (first, second) == (["a", "walled"], ["b", "c"])
    assert later == [["walled"]]
    assert report.status is RunStatus.COMPLETED
    assert {task.attempts for task in report.tasks} == {1}


async def test_a_task_that_waits_for_a_person_holds_no_wave_up(crew: Bench) -> None:
    run = await crew.start("""
mode: waves
max_concurrency: 2
defaults: {agent: hand}
tasks:
  - {id: asks, prompt: Go., approval: true}
  - {id: a, prompt: Go.}
  - {id: b, prompt: Go.}
  - {id: c, prompt: Go.}
""")

    await run.until(lambda picture: picture.status is RunStatus.WAITING)
    await run.written()
    before = await waves(run)
    await run.client.approve(run.id, ["asks"], by="ann")
    report = await run.report()

    assert before == [["a", "b"], ["c"]]
    assert await waves(run) == [*before, ["asks"]]
    assert report.status is RunStatus.COMPLETED


@pytest.mark.parametrize("stop", ["skip", "pause"])
async def test_a_wave_goes_on_after_a_person_has_intervened(crew: Bench, stop: str) -> None:
    """One of it is skipped at work, or the run is paused between two waves."""
    crew.simulator.script([{"when": {"task": "stuck", "nth": 1}, "then": {"fault": "hang_before_headers"}}])
    run = await crew.start("""
mode: waves
max_concurrency: 2
defaults: {agent: hand}
tasks:
  - {id: stuck, prompt: Go., timeout: 10m}
  - {id: a, prompt: Go.}
  - {id: b, prompt: Go.}
""")
    await run.until(lambda picture: picture.tasks["a"].status is TaskStatus.SUCCEEDED)
    await crew.simulator.until(lambda: crew.simulator.calls("stuck") == 1)
    assert crew.simulator.calls("b") == 0

    if stop == "pause":
        await run.client.pause(run.id, by="ann")
    await run.client.skip(run.id, ["stuck"], by="ann")
    if stop == "pause":
        await run.until(lambda picture: picture.tasks["stuck"].status is TaskStatus.SKIPPED)
        assert crew.simulator.calls("b") == 0
        await run.client.resume(run.id, by="ann")
    report = await run.report()

    assert await waves(run) == [["stuck", "a"], ["b"]]
    assert [task.status.value for task in report.tasks] == ["SKIPPED", "SUCCEEDED", "SUCCEEDED"]
