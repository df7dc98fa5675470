"""Rights on the real server: what is withdrawn between two tasks of a run stops the second, and `retry` does it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from io import StringIO
from typing import Any

import pytest
from conftest import Bench
from rich.console import Console

from activities import register_desk
from audits import Audits
from domain.events import EventType
from domain.models import Failed, RunStatus, TaskResult, TaskStatus, ref_of
from domain.planning import Invalid
from domain.refusals import Refusal
from domain.register import Verb
from domain.report import Report, TaskReport
from domain.rights import Right
from registers import Registers
from terminal.show_task import show_task

TWO = """
defaults: {agent: hand}
tasks:
  - {id: first, prompt: Go.}
  - {id: second, needs: {first: require}, approval: true, prompt: Go on.}
  - {id: after, needs: {second: optional}, approval: true, prompt: Go on without it.}
"""
WITHDRAWN: dict[str, Any] = {"right": "models", "pattern": "claude-*"}


@pytest.fixture(autouse=True)
def always_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """The register is asked at every call, so that no test waits for a second."""
    monkeypatch.setattr(register_desk, "FRESH", 0.0)


def task_of(report: Report, id: str) -> TaskReport:
    return next(task for task in report.tasks if task.id == id)


async def test_a_right_that_is_withdrawn_mid_run_stops_the_next_call_and_retry_does_it(crew: Bench) -> None:
    """No call, no cost, no attempt; the run goes on, says what to do, and does it when the right is back."""
    register = Registers(crew.store)
    run = await crew.start(TWO)
    await run.until(lambda picture: picture.tasks["second"].status is TaskStatus.WAITING)
    await register.add(Verb.WITHDRAWN, "hand", None, by="mo", data=WITHDRAWN)
    await run.client.approve(run.id, ["second"], by="ann")

    picture = await run.until(lambda picture: picture.tasks["second"].status is TaskStatus.FAILED)
    picture = await run.until(lambda picture: picture.status is RunStatus.WAITING)  # the next one asks in its turn
    (asked,) = (found for found in picture.attention if found.task == "second")
    assert (asked.kind, asked.do) == ("right", f"agents grant hand models 'claude-*', then retry {run.id} second")
    shown = Console(file=(page := StringIO()), width=300)
    show_task(shown, picture.task("second", datetime.now(UTC)), picture.planned["second"], (), "")
    why = "refused    agent 'hand' may not use the model 'claude-haiku-4-5': 'models: claude-*' was withdrawn by mo"
    assert why in page.getvalue()
    assert "./starter.py agents grant hand models 'claude-*'" in page.getvalue()
    assert crew.simulator.calls() == 1
    assert picture.status is RunStatus.WAITING, "the run goes on"
    child = run.temporal.get_workflow_handle(f"{run.id}/second", result_type=TaskResult)
    outcome = (await child.result()).outcome
    assert isinstance(outcome, Failed)
    assert (outcome.error.type, outcome.error.attempt, outcome.error.retryable) == ("RightRefused", 0, False)

    await register.add(Verb.GRANTED, "hand", None, by="mo", data=WITHDRAWN)
    await run.client.retry(run.id, ["second"], by="ann")
    await run.until(lambda picture: picture.tasks["second"].status is TaskStatus.SUCCEEDED)
    await run.until(lambda picture: picture.tasks["after"].status is TaskStatus.WAITING)
    await run.client.approve(run.id, ["after"], by="ann")
    report = await run.report()

    assert report.status is RunStatus.COMPLETED
    assert (crew.simulator.calls("second"), task_of(report, "second").refused) == (1, ())
    events = [(event.type, event.data) for event in await run.events() if event.task == "second"]
    types = [type for type, _ in events]
    assert types.count(EventType.RIGHT_REFUSED) == 1
    place = types.index(EventType.RIGHT_REFUSED)
    assert types[place + 1] is EventType.TASK_FAILED, "the refusal is told before the end"
    told = Refusal.model_validate(events[place][1])
    assert (told.agent, told.right, told.thing) == ("hand", Right.MODELS, "claude-haiku-4-5")
    assert (told.pattern, told.by) == ("claude-*", "mo")


ITEMS = """
agents:
  - name: taker
    version: "1"
    model: claude-haiku-4-5
    instructions: x
    rights: {models: [claude-*], data: ["results:hand"], budget_usd: 1}
tasks:
  - {id: list, agent: hand, prompt: List them.}
  - {id: each, agent: taker, for_each: {from: list}, approval: true, prompt: "Look at {{ item }}."}
"""


async def test_the_items_of_a_list_are_results_of_whoever_made_it(crew: Bench) -> None:
    """What is withdrawn stops the next item of a plan that has grown, and the trail has who read which."""
    crew.simulator.script([{"when": {"task": "list"}, "then": {"answer": '{"items": ["one", "two"]}'}}])
    run = await crew.start(ITEMS)
    await run.until(lambda picture: len(picture.of(TaskStatus.WAITING)) == 2)
    await run.client.approve(run.id, ["each[1]"], by="ann")
    await run.until(lambda picture: picture.tasks["each[1]"].status is TaskStatus.SUCCEEDED)
    taken: dict[str, Any] = {"right": "data", "pattern": "results:hand"}
    await Registers(crew.store).add(Verb.WITHDRAWN, "taker", None, by="mo", data=taken)
    await run.client.approve(run.id, ["each[2]"], by="ann")

    report = await run.report()

    assert [(each.right, each.thing) for each in task_of(report, "each[2]").refused] == [(Right.DATA, "results:hand")]
    assert (crew.simulator.calls("each[1]"), crew.simulator.calls("each[2]")) == (1, 0)
    seen = await Audits(run.client, crew.store).of_run(run.id, "taker", None)
    (reads,) = [each.reads for each in seen if each.reads]
    item = {"task": "list", "agent": "hand@1", "ref": ref_of(b"one"), "form": "full", "item": True}
    assert reads == {"results": [item]}


async def test_a_model_that_asks_for_a_tool_ends_its_task_and_no_other(crew: Bench) -> None:
    """It is billed once, nothing is done, and those beside it have what they had."""
    crew.simulator.script([{"when": {"task": "bad"}, "then": {"tool": "grant_me_all", "answer": "{}"}}])
    run = await crew.start("defaults: {agent: hand}\ntasks: [{id: bad, prompt: Go.}, {id: good, prompt: Go.}]")

    report = await run.report()

    bad = task_of(report, "bad")
    assert (bad.error.type if bad.error else None, bad.attempts, crew.simulator.calls("bad")) == ("RightRefused", 1, 1)
    assert (bad.tokens.output > 0, [each.right for each in bad.refused]) == (True, [Right.TOOLS])
    assert task_of(report, "good").status is TaskStatus.SUCCEEDED
    events = await run.events()
    assert EventType.RIGHT_REFUSED in [event.type for event in events if event.task == "bad"]
    assert "grant_me_all" not in "".join(event.model_dump_json() for event in events)


async def test_who_is_disabled_stops_in_every_run_that_is_going(crew: Bench) -> None:
    """On every worker that reads the same store; another agent of the same run goes on."""
    plan = "tasks: [{id: a, agent: hand, approval: true, prompt: x}, {id: b, agent: pair, approval: true, prompt: x}]"
    runs = [await crew.start(plan) for _ in range(2)]
    for run in runs:
        await run.until(lambda picture: len(picture.of(TaskStatus.WAITING)) == 2)
    await Registers(crew.store).add(Verb.DISABLED, "hand", None, by="mo")
    await asyncio.gather(*(run.client.approve(run.id, ["a", "b"], by="ann") for run in runs))

    reports = [await run.report() for run in runs]

    assert [[task.status for task in report.tasks] for report in reports] == [
        [TaskStatus.FAILED, TaskStatus.SUCCEEDED]
    ] * 2
    assert {found.do.partition(",")[0] for report in reports for found in report.attention} == {"agents enable hand"}
    assert crew.simulator.calls() == 2


async def test_a_plan_that_lacks_a_right_starts_nothing(bench: Bench) -> None:
    own = "agents: [{name: own, version: '1', model: m, instructions: x, rights: {models: [m]}}]\n"

    with pytest.raises(Invalid, match="agent 'own' may not spend money"):
        await bench.start(f"{own}tasks: [{{id: a, agent: own, prompt: x}}]")

    assert bench.simulator.calls() == 0
