"""People change the plan of a run that is going: exactly what they asked for, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
import json
from collections import Counter

import pytest
from conftest import Bench, Run, eventually
from temporalio.client import Client, WorkflowUpdateFailedError

from client import SteeringRefused
from domain.changing import Changed, changed
from domain.events import EventType
from domain.models import RunStatus, TaskStatus
from domain.planning import Planned, plan_from_text
from domain.steering import Steered
from runtime import Settings, connect

FIRST = """
max_concurrency: 2
defaults: {agent: hand}
tasks:
  - {id: begin, prompt: Begin.}
  - {id: gate, needs: [begin], prompt: Go on., approval: true}
  - {id: old, needs: [gate], prompt: Old.}
  - {id: last, needs: [gate, old], prompt: Sum it up.}
"""
THEN = """
max_concurrency: 2
defaults: {agent: hand}
tasks:
  - {id: begin, prompt: Begin.}
  - {id: gate, needs: [begin], prompt: Go on., approval: true}
  - {id: new, for_each: [one, two], needs: [begin], prompt: "New {{ item }}."}
  - {id: last, needs: [gate, new], prompt: Sum it up at length.}
"""
TOLD = ["begin", "gate", "last", "new[one]", "new[two]"]


def planned(bench: Bench, text: str) -> Planned:
    return plan_from_text(text, file="test.yaml", registry=bench._registry, folder=bench.folder)


async def change(bench: Bench, run: Run, text: str, *, started: tuple[str, ...] = ()) -> Steered:
    """Ask for this plan, as `change` does, without what it would refuse by itself."""
    await run.written()  # else a picture knows of an earlier change by a query alone, which may go unanswered
    picture = await run.client.picture(run.id)
    new = planned(bench, text)
    found: Changed = changed(picture.plan, new.plan, dict.fromkeys(started, "has started"), {})
    return await run.client.change(
        run.id, found.plan, picture.plan, picture.plan_ref, contents=new.contents, by="ann", note="better"
    )


def asked(bench: Bench) -> list[str]:
    """The tasks for which the provider was asked, each as often as it was."""
    return sorted(str(call.task) for call in bench.simulator.log if call.task is not None)


@pytest.mark.parametrize("continue_after", [None, 1])
async def test_a_plan_is_changed_while_it_runs(crew: Bench, continue_after: int | None) -> None:
    """Added, edited and removed tasks: each is done once or not at all, also across histories, and on a paused run."""
    run = await crew.start(FIRST, continue_after=continue_after)
    await run.until(lambda picture: picture.status is RunStatus.WAITING)
    await run.client.pause(run.id, by="ann")

    steered = await change(crew, run, THEN, started=("begin",))
    again = await change(crew, run, THEN, started=("begin",))
    await run.client.resume(run.id, by="ann")
    await run.until(lambda picture: picture.tasks["new[two]"].status is TaskStatus.SUCCEEDED)
    await run.client.approve(run.id, ["gate"], by="ann")
    report = await run.report()

    assert (steered.done, again.done) == (
        "added new[one], new[two]; edited last; removed old",
        "the plan is like that already",
    )
    assert (report.status, report.census.total, report.census.succeeded) == (RunStatus.COMPLETED, 5, 5)
    assert [task.id for task in report.tasks] == ["begin", "gate", "new[one]", "new[two]", "last"]
    assert asked(crew) == TOLD
    assert "at length" in await run.client.brief(await run.client.picture(run.id), "last")
    [told] = [event.data for event in await run.events() if event.type is EventType.PLAN_CHANGED]
    assert (told["by"], told["note"], told["removed"]) == ("ann", "better", ["old"])
    if continue_after is not None:

        async def continued() -> bool:
            return len(await run.chain()) > 2

        await eventually(continued)  # Temporal's list may be a moment behind


async def test_what_has_started_cannot_be_otherwise(crew: Bench) -> None:
    """An edit of a task at work is refused with the reason, whoever says that it has not started; nothing changes."""
    crew.simulator.script([{"when": {"task": "begin"}, "then": {"ttft": 10}}])
    first, then = (text.replace("agent: hand", "agent: hand, timeout: 60s") for text in (FIRST, THEN))
    run = await crew.start(first)
    await run.until(lambda picture: picture.tasks["begin"].status is TaskStatus.RUNNING)

    with pytest.raises(SteeringRefused) as edit:
        await change(crew, run, first.replace("Begin.", "Begin anew."))
    with pytest.raises(SteeringRefused) as removal:
        await change(crew, run, then.replace("  - {id: begin, prompt: Begin.}\n", "").replace("[begin]", "[]"))

    assert str(edit.value) == f"change {run.id} was refused: 'begin' is at work: it cannot be changed."
    assert "'begin' is at work: it cannot be removed" in str(removal.value)
    await run.until(lambda picture: picture.status is RunStatus.WAITING)
    await run.client.reject(run.id, ["gate"], by="ann")
    assert [task.id for task in (await run.report()).tasks] == ["begin", "gate", "old", "last"]


async def test_two_people_do_not_overwrite_each_other(crew: Bench) -> None:
    """The second has looked at a plan that is not the run's any more, and is told so."""
    run = await crew.start(FIRST)
    seen = await run.until(lambda picture: picture.status is RunStatus.WAITING)
    await change(crew, run, THEN, started=("begin",))
    more = changed(seen.plan, planned(crew, FIRST + "  - {id: mine, prompt: Mine.}\n").plan, {}, {})

    with pytest.raises(SteeringRefused, match="the plan was changed meanwhile: look at it again"):
        await run.client.change(run.id, more.plan, seen.plan, seen.plan_ref, contents={}, by="bob")

    await run.client.skip(run.id, ["gate"], by="ann")
    assert "mine" not in (await run.report()).census.model_dump_json()


async def test_a_change_is_documented_json(crew: Bench) -> None:
    """As the Web UI or the `temporal` command would send it, and what is no such plan is refused in words."""
    run = await crew.start(FIRST)
    seen = await run.until(lambda picture: picture.status is RunStatus.WAITING)
    found = changed(seen.plan, planned(crew, THEN).plan, {"begin": "has ended"}, {})
    asked = await run.client.amended(found.plan, seen.plan, seen.plan_ref, contents={}, by="ann")
    document = json.loads(asked.model_dump_json())
    broken = json.loads(asked.model_dump_json())
    broken["amendment"]["outline"]["tasks"] = []

    with pytest.raises(WorkflowUpdateFailedError) as refused:
        await run.handle.execute_update("change", broken)
    steered = await run.handle.execute_update("change", document, result_type=Steered)

    assert str(refused.value.cause).endswith("the plan has no tasks, or two of the same id")
    assert steered.done == "added new[one], new[two]; edited last; removed old"
    await run.client.skip(run.id, ["gate"], by="ann")
    await run.closed()


async def test_a_change_comes_through_a_worker_that_is_gone(bench: Bench, settings: Settings) -> None:
    """Asked for while no worker is there, made by the next one, once; tasks of before and after are done once each."""
    async with bench.worker():
        run = await bench.start(FIRST, continue_after=2)
        await run.until(lambda picture: picture.status is RunStatus.WAITING)
    seen = await run.client.glance(run.id)
    found = changed(seen.plan, planned(bench, THEN).plan, {"begin": "has ended"}, {})
    asking = asyncio.create_task(run.client.change(run.id, found.plan, seen.plan, seen.plan_ref, contents={}, by="ann"))
    other: Client = await connect(settings)
    async with bench.on(other).worker():
        steered = await asking
        await run.client.approve(run.id, ["gate"], by="ann")
        report = await run.report()

    assert steered.done == "added new[one], new[two]; edited last; removed old"
    assert report.status is RunStatus.COMPLETED
    assert Counter(asked(bench)) == Counter(TOLD)
