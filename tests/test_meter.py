"""Calls that wait inside a worker: they use no attempt, runs take turns, and a pause or an end reaches them there."""

from __future__ import annotations

import pytest
from conftest import Bench, Run

from activities.meter import NarrowMeter
from domain.models import RunStatus

HOLD = "tasks: [{id: hold, agent: hand, prompt: Hold., timeout: 60s}]"
LARGE = """
max_concurrency: 6
tasks: [{id: large, for_each: [1, 2, 3, 4, 5, 6], agent: hand, prompt: Go.}]
"""
SMALL = "tasks: [{id: small, agent: hand, prompt: Go.}]"


async def held(bench: Bench) -> Run:
    """A run that has the only place for as long as it is not cancelled."""
    bench.simulator.script([{"when": {"task": "hold"}, "then": {"fault": "hang_before_headers"}}])
    run = await bench.start(HOLD)
    await bench.simulator.until(lambda: bench.simulator.in_flight == 1)
    return run


async def in_line(run: Run, number: int) -> None:
    """All its calls wait for the meter."""
    await run.until(
        lambda picture: (
            number == sum(task.live is not None and task.live.note.step == "quota" for task in picture.tasks.values())
        )
    )


async def test_a_small_run_does_not_wait_behind_a_large_one(bench: Bench) -> None:
    async with bench.worker(meter=NarrowMeter(1)):
        hold = await held(bench)
        large = await bench.start(LARGE)
        await in_line(large, 6)
        small = await bench.start(SMALL)
        await in_line(small, 1)

        await hold.client.cancel(hold.id)

        for run in large, small:
            assert (await run.report()).status is RunStatus.COMPLETED
    assert "small" in [entry.task for entry in bench.simulator.log[1:3]]


async def test_a_long_wait_uses_no_attempt(bench: Bench) -> None:
    async with bench.worker(meter=NarrowMeter(1, patience=0.05)):
        bench.simulator.script([], ttft=0.3)
        run = await bench.start(f"defaults: {{attempts: 1}}\n{LARGE}")

        report = await run.report()

    assert report.status is RunStatus.COMPLETED
    assert {task.attempts for task in report.tasks} == {1}
    assert bench.simulator.calls() == 6


@pytest.mark.parametrize("end", ["pause", "terminate"])
async def test_what_waits_in_the_line_is_not_called_any_more(bench: Bench, end: str) -> None:
    async with bench.worker(meter=NarrowMeter(1)):
        hold = await held(bench)
        run = await bench.start(SMALL)
        await in_line(run, 1)
        if end == "pause":
            await run.client.pause(run.id, by="a test")
        else:
            await run.handle.terminate(reason="a test")

        await hold.client.cancel(hold.id)

        await hold.report()
        await run.until(lambda picture: picture.tasks["small"].live is None)
        assert bench.simulator.calls("small") == 0
        if end == "pause":
            await run.client.resume(run.id, by="a test")
            assert (await run.report()).status is RunStatus.COMPLETED
