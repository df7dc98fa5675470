"""A rehearsal replays what is open with the code of today: all that matters, each kind once, within a bound."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest
from conftest import Bench, Run, eventually
from temporalio.client import Client

import rehearsal
from domain.course import Course
from domain.models import TaskStatus
from domain.progress import Progress
from domain.step import Step
from edition import edition
from rehearsal import Rehearsed, rehearse, replay_open
from runtime import CannotDo

HANG = {"fault": "hang_before_headers"}
PLAN = """
max_concurrency: 4
defaults: {agent: hand, timeout: 60s}
tasks:
  - {id: first, prompt: Go.}
  - {id: long, for_each: [1, 2, 3], prompt: Wait., needs: [first]}
"""


@pytest.fixture
async def left(bench: Bench) -> Run:
    """A run with three tasks at work, whose worker is gone."""
    bench.simulator.script([{"when": {"contains": "Wait."}, "then": HANG}])
    async with bench.worker():
        run = await bench.start(PLAN)
        await bench.simulator.until(lambda: bench.simulator.in_flight == 3)
        await run.until(lambda picture: len(picture.of(TaskStatus.RUNNING)) == 3)

    async def listed() -> bool:
        query = f"TaskQueue = '{bench.queue}' AND ExecutionStatus = 'Running'"
        return (await bench.temporal.count_workflows(query)).count == 4

    await eventually(listed)  # Temporal's list may be a moment behind
    return run


@pytest.fixture
def otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Code that starts tasks in another order."""
    honest = Course.launch

    def launch(self: Course, progress: Progress, now: datetime, unconfirmed: int | None = None) -> Step:
        step = honest(self, progress, now, unconfirmed)
        return replace(step, starts=tuple(reversed(step.starts)))

    monkeypatch.setattr(Course, "launch", launch)


async def test_a_run_and_its_tasks_are_replayed_and_tasks_that_are_alike_once(bench: Bench, left: Run) -> None:
    done = await replay_open(bench.temporal, bench.queue)

    assert (done.open, done.left) == (4, 0)
    assert done.replayed + done.alike == 4
    assert 2 <= done.replayed <= 3, "one of the tasks may have been about to end"
    await left.handle.terminate()


async def test_what_would_take_too_long_is_left(bench: Bench, left: Run) -> None:
    assert await replay_open(bench.temporal, bench.queue, patience=0) == Rehearsed(open=4)
    await left.handle.terminate()


async def test_changed_code_is_refused_until_it_is_changed_back(
    bench: Bench, left: Run, tmp_path: Path, otherwise: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "services").mkdir()
    memory = tmp_path / "services" / f"{bench.queue}.edition"
    memory.write_text("the code before")

    with pytest.raises(CannotDo, match=f"history of '{left.id}'.*TMPRL1100.*cancel {left.id}"):
        await rehearse(bench.temporal, bench.queue, tmp_path)
    assert memory.read_text() == "the code before"

    monkeypatch.undo()
    await rehearse(bench.temporal, bench.queue, tmp_path)
    assert memory.read_text() == edition()
    await left.handle.terminate()


async def test_code_that_worked_last_is_not_rehearsed(
    temporal: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(client: Client, queue: str) -> Rehearsed:
        raise AssertionError("it was remembered")

    (tmp_path / "services").mkdir()
    await rehearse(temporal, "nobody", tmp_path)
    monkeypatch.setattr(rehearsal, "replay_open", never)

    await rehearse(temporal, "nobody", tmp_path)
    with pytest.raises(AssertionError, match="remembered"):
        await rehearse(temporal, "another queue", tmp_path)
    await rehearse(temporal, "another queue", tmp_path, anyway=True)
    await rehearse(temporal, "another queue", tmp_path)
