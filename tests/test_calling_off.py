"""A batch that nobody waits for any more is called off at the provider: the simulator's bill says what was paid."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import cast

import pytest
from conftest import Bench, Run, eventually
from test_batches import FOUR, made, send_all_four
from test_budget import MODEL, Payer

from activities import batch_calling_off, batch_lookout, batches
from activities.claude import Claude
from activities.gate import Gate, Standing
from activities.model import LanguageModel, ProviderFault
from domain.models import RunStatus, TaskStatus, Usage
from domain.picture import Picture
from domain.planning import Planned
from domain.prices import NOTHING, cost_of
from domain.registry import Registry
from domain.report import Report
from heritage import successor
from prices import price_list
from simulator.batches import Batch
from store import Store

HANGS = {"then": {"hangs": True}}
"""A request that the provider does not come to."""


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "LOOK_FIRST", timedelta(milliseconds=200))
    monkeypatch.setattr(batches, "FRESH", 0.1)
    monkeypatch.setattr(batch_lookout, "EVERY", 0.2)
    send_all_four(monkeypatch)


async def waiting(bench: Bench, tasks: int = 4, of: Run | None = None) -> tuple[Run, Batch]:
    """A run all of whose tasks wait for one batch."""
    run = of or await bench.start(FOUR)
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


async def test_what_was_done_before_the_cancel_and_is_not_told_counts_at_its_worst(crew: Bench) -> None:
    """Nobody asks again for it: what is written down of it stands (E14)."""
    hang = [{"when": {"task": f"part[{number}]"}, **HANGS} for number in (1, 3, 4)]
    crew.simulator.script([*hang, {"then": {"usage": {"output_tokens": -5}}}], batch_seconds=0)
    run, batch = await waiting(crew)

    await run.handle.cancel()
    report = await run.report()

    assert ends(batch) == Counter(canceled=3, succeeded=1)
    assert report.tokens == Usage(input=billed(crew).input, output=1024)
    assert report.unsettled == Usage()


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


async def told_at_last(bench: Bench, run: Run) -> Picture:
    """A run that was terminated, when nothing of it may be billed any more."""
    found: list[Picture] = []

    async def nothing_is_open() -> bool:
        found.append(await bench.client.glance(run.id))
        return found[-1].ended and found[-1].unsettled == Usage()

    await eventually(nothing_is_open)
    return found[-1]


async def done_again(bench: Bench, run: Run) -> Report:
    """What becomes of the retry of a run."""
    follows = await successor(bench.client, run.id, (), {})
    planned = Planned(plan=follows.plan, contents={}, sources={}, warnings=())
    id = await bench.client.submit(planned, id=follows.id, simulated=True, queue=bench.queue, heritage=follows.heritage)
    return await Run(id, bench.client, bench.temporal).report()


async def test_the_batch_of_a_run_that_was_terminated_is_called_off(crew: Bench, registry: Registry) -> None:
    """By the worker that made it: no workflow is left to do it. A retry has its whole budget."""
    crew.simulator.script([], batch_seconds=None)
    payer = Payer(crew, registry)
    run, batch = await waiting(crew, of=await payer.start(FOUR, calls=20))

    await run.handle.terminate(reason="enough")
    told = await told_at_last(crew, run)

    assert ends(batch) == Counter(canceled=4)
    assert (told.ended, told.tokens, billed(crew)) == (True, Usage(), Usage())
    crew.simulator.script([], batch_seconds=0)
    report = await done_again(crew, run)
    assert (report.status, report.cost.before_usd) == (RunStatus.COMPLETED, NOTHING)


async def test_what_was_done_before_a_terminate_is_billed_and_told(crew: Bench, registry: Registry) -> None:
    """Two of four: what they have cost is in the report and in what a retry begins with, at the price of a batch.

    The retry has their answers, and pays for the other two.
    """
    tasks = [{"when": {"task": f"part[{number}]"}, **HANGS} for number in (1, 3)]
    crew.simulator.script(tasks, batch_seconds=0)
    payer = Payer(crew, registry)
    run, batch = await waiting(crew, of=await payer.start(FOUR, calls=20))

    await run.handle.terminate()
    told = await told_at_last(crew, run)

    assert ends(batch) == Counter(canceled=2, succeeded=2)
    assert told.tokens == billed(crew) != Usage()
    assert [told.tasks[f"part[{number}]"].tokens == Usage() for number in (1, 2, 3, 4)] == [True, False, True, False]
    crew.simulator.script([], batch_seconds=0)
    report = await done_again(crew, run)
    price = price_list({MODEL}).price(MODEL)
    assert (report.status, report.cost.before_usd) == (RunStatus.COMPLETED, told.cost.actual_usd)
    assert told.cost.actual_usd == cost_of(price, told.tokens, batched=True)
    assert [task.reused for task in report.tasks] == [None, run.id, None, run.id]
    assert report.reuse is not None
    assert (report.reuse.tokens, report.cost.savings and report.cost.savings.reuse_usd) == (
        told.tokens,
        told.cost.actual_usd,
    )


async def test_where_another_run_has_taken_the_name_its_ledger_is_left_alone(store: Store) -> None:
    """The batch of the one before is called off all the same."""
    called_off: list[str] = []

    class Provider:
        async def cancel_batch(self, id: str) -> None:
            called_off.append(id)

    class Replaced:
        async def standing(self, *_: str) -> Standing:
            return Standing(over="another has its name", replaced=True)

    lookout = batch_lookout.Lookout(cast("LanguageModel", Provider()), store, cast("Gate", Replaced()))
    async with lookout:
        lookout.mind("run", "chain", "ours", "theirs")

        async def is_done() -> bool:
            return not lookout._minded

        await eventually(is_done)

    assert called_off == ["theirs"]
    assert await store.records("run") == []


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
