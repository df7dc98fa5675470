"""A batch that nobody waits for any more is called off at the provider: the simulator's bill says what was paid."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest
from conftest import Bench, Run, eventually
from test_batches import FOUR, made

from activities import batch_calling_off, batch_collecting, batch_lookout, batches
from activities.claude import Claude
from activities.model import ProviderFault
from domain.models import RunStatus, TaskStatus, Usage
from simulator.batches import Batch

HANGS = {"then": {"hangs": True}}
"""A request that the provider does not come to."""


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "LOOK_FIRST", timedelta(milliseconds=200))
    monkeypatch.setattr(batches, "FRESH", 0.1)
    monkeypatch.setattr(batch_lookout, "EVERY", 0.2)
    monkeypatch.setattr(batch_collecting, "MOMENT", 4.0)  # on a busy machine, too, all four go in one batch


async def waiting(bench: Bench, tasks: int = 4) -> tuple[Run, Batch]:
    """A run all of whose tasks wait for one batch."""
    run = await bench.start(FOUR)
    await run.until(lambda picture: len(picture.of(TaskStatus.WAITING)) == tasks)
    (making,) = made(bench)
    batch = bench.simulator._provider.batches.find(making.batch_id or "")
    assert batch is not None
    return run, batch


def ends(batch: Batch) -> Counter[str]:
    return Counter(str(result["type"]) for result in batch.results.values())


def billed(bench: Bench) -> Usage:
    bills = [entry.billed for entry in bench.simulator.log if entry.batch]
    return sum((Usage(input=bill.input, output=bill.output) for bill in bills), Usage())


async def test_a_run_that_is_cancelled_stops_paying_for_its_batch(crew: Bench) -> None:
    """Nothing was done yet: nothing is billed, and nothing is left that may be."""
    crew.simulator.script([], batch_seconds=None)
    run, batch = await waiting(crew)

    await run.handle.cancel()
    report = await run.report()

    assert report.status is RunStatus.CANCELLED
    assert (batch.cancelled is not None, ends(batch)) == (True, Counter(canceled=4))
    assert (report.tokens, report.unsettled) == (Usage(), Usage())
    assert billed(crew) == Usage()


async def test_what_was_done_before_the_cancel_is_billed_and_told(crew: Bench) -> None:
    """Two of four: their cost is in the report, that of the others is nothing."""
    tasks = [{"when": {"task": f"part[{number}]"}, **HANGS} for number in (1, 3)]
    crew.simulator.script(tasks, batch_seconds=0)
    run, batch = await waiting(crew)

    await run.handle.cancel()
    report = await run.report()

    assert ends(batch) == Counter(canceled=2, succeeded=2)
    assert report.tokens == billed(crew) != Usage()
    assert report.unsettled == Usage()
    assert [task.tokens == Usage() for task in report.tasks] == [True, False, True, False]


async def test_a_batch_is_called_off_when_the_last_of_its_tasks_is_skipped(crew: Bench) -> None:
    """Not before: the others still wait for it."""
    crew.simulator.script([], batch_seconds=None)
    run, batch = await waiting(crew)

    await crew.client.skip(run.id, ["part[1]", "part[2]", "part[3]"], by="somebody")
    await run.until(lambda picture: sum(task.unsettled != Usage() for task in picture.tasks.values()) == 3)
    assert batch.cancelled is None
    await crew.client.skip(run.id, ["part[4]"], by="somebody")
    report = await run.report()

    assert ends(batch) == Counter(canceled=4)
    assert [task.status for task in report.tasks] == 4 * [TaskStatus.SKIPPED]
    assert report.tasks[3].unsettled == Usage()


async def test_who_still_waits_for_a_batch_gets_its_answer(crew: Bench) -> None:
    crew.simulator.script([], batch_seconds=None)
    run, batch = await waiting(crew)

    await crew.client.skip(run.id, ["part[1]"], by="somebody")
    crew.simulator.script([], batch_seconds=0)
    report = await run.report()

    assert (batch.cancelled, ends(batch)) == (None, Counter(succeeded=4))
    assert [task.status for task in report.tasks] == [TaskStatus.SKIPPED, *3 * [TaskStatus.SUCCEEDED]]


async def test_the_batch_of_a_run_that_was_terminated_is_called_off(crew: Bench) -> None:
    """By the worker that made it: no workflow is left to do it."""
    crew.simulator.script([], batch_seconds=None)
    run, batch = await waiting(crew)

    await run.handle.terminate(reason="enough")

    async def called_off() -> bool:
        return batch.cancelled is not None

    async def ended() -> bool:
        return batch.ended is not None

    await eventually(called_off)
    crew.simulator.script([], batch_seconds=0)
    await eventually(ended)
    assert ends(batch) == Counter(canceled=4)
    assert billed(crew) == Usage()


async def test_a_provider_that_does_not_answer_holds_up_no_cancel(crew: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked a few times; then what the batch may cost counts."""
    monkeypatch.setattr(batch_lookout, "EVERY", 60.0)
    asked = 0

    async def fails(model: Claude, id: str) -> None:
        nonlocal asked
        asked += 1
        raise ProviderFault("it failed inside")

    monkeypatch.setattr(Claude, "cancel_batch", fails)
    crew.simulator.script([], batch_seconds=None)
    run, batch = await waiting(crew)

    await run.handle.cancel()
    report = await run.report()

    assert report.status is RunStatus.CANCELLED
    assert asked >= 4
    assert batch.cancelled is None
    assert all(task.unsettled.output for task in report.tasks)


async def test_a_batch_that_does_not_end_holds_up_no_cancel(crew: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_calling_off, "PATIENCE", 0.0)
    monkeypatch.setattr(Claude, "cancel_batch", Claude.batch)  # it takes note, and does nothing about it
    crew.simulator.script([], batch_seconds=None)
    run, _ = await waiting(crew)

    await run.handle.cancel()
    report = await run.report()

    assert report.status is RunStatus.CANCELLED
    assert all(task.unsettled.output for task in report.tasks)
