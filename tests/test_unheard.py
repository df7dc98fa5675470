"""Answers that only the ledger of a terminated run has are taken over; the provider's own bill says what was paid."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from conftest import Bench, Run, eventually
from temporalio.client import WorkflowExecutionStatus
from test_budget import Payer
from test_reuse_runs import again, by_id, paid, start_with
from test_workflow_bugs import fail_on_quick

from activities.attempts import Attempt
from activities.keeping import Keeper
from activities.ledger import Landed
from domain.models import RunStatus, Usage
from domain.registry import Registry
from heritage import HeritageRefused
from simulator.server import Simulator

CHAIN = """
max_concurrency: 2
defaults: {agent: hand, timeout: 60s}
tasks:
  - {id: done, prompt: Go.}
  - {id: cut, prompt: Go on., needs: [done]}
  - {id: end, prompt: End., needs: [cut]}
"""

MANY = """
max_concurrency: 20
defaults: {agent: hand, timeout: 60s}
tasks:
  - {id: plain, prompt: Go.}
  - {id: fits, prompt: Go., expect: {mentions: [rain]}}
  - {id: lacks, prompt: Go., expect: {mentions: [snow]}}
  - {id: short, prompt: Go., max_tokens: 50}
  - {id: refused, prompt: Go.}
  - {id: reviewed, prompt: Go., review: {by: critic}}
  - {id: closed, prompt: Go.}
  - {id: open, prompt: Go.}
  - {id: reader, prompt: Read., needs: {closed: {policy: require, pass: summary}}}
  - {id: other, prompt: Read., needs: {open: {policy: require, pass: summary}}}
agents:
  - {name: critic, version: "3", model: claude-opus-4-5, instructions: Be strict.}
"""

SAID: list[dict[str, Any]] = [
    {"when": {"task": "fits"}, "then": {"answer": "There is rain."}},
    {"when": {"task": "lacks", "nth": 1}, "then": {"answer": "There is rain."}},
    {"when": {"task": "lacks"}, "then": {"answer": "There is snow."}},
    {"when": {"task": "short", "nth": 1}, "then": {"answer": "Too much of it", "stop_reason": "max_tokens"}},
    {"when": {"task": "refused", "nth": 1}, "then": {"answer": "", "stop_reason": "refusal"}},
    {"when": {"task": "closed"}, "then": {"answer": "Word. " * 200, "summary": "In short."}},
    {"when": {"task": "open", "nth": 1}, "then": {"answer": "Word. " * 200, "summary": False}},
]
"""What each comes to: two that are complete, and those that are wrong, cut, declined, closed with a summary or not."""

Cut = Callable[[Run, int], Awaitable[Usage]]


@pytest.fixture
def cut(crew: Bench, monkeypatch: pytest.MonkeyPatch) -> Cut:
    """Terminates a run when so many answers of tasks that are not `done` are in its ledger, and Temporal knows none.

    Gives what the provider has billed for the task `cut`.
    """
    keep, kept, told = Keeper.keep, list[str](), asyncio.Event()

    async def keep_and_say_nothing(self: Keeper, attempt: Attempt, landed: Landed) -> Landed:
        stands = await keep(self, attempt, landed)
        if attempt.request.task != "done":
            kept.append(attempt.request.task)
            await told.wait()
        return stands

    monkeypatch.setattr(Keeper, "keep", keep_and_say_nothing)

    async def terminate(run: Run, answers: int) -> Usage:
        async def are_there() -> bool:
            return len(kept) == answers

        await eventually(are_there)
        await run.handle.terminate(reason="a test")
        told.set()
        await run.until(lambda picture: picture.ended)
        bill = billed(crew.simulator, "cut")
        crew.simulator.forget()
        return bill

    return terminate


def billed(simulator: Simulator, task: str) -> Usage:
    """What the provider has billed for a task."""
    bills = [entry.billed for entry in simulator.log if entry.task == task]
    return sum((Usage(input=bill.input, output=bill.output) for bill in bills), Usage())


@pytest.mark.parametrize("how", ["retry", "reuse"])
async def test_an_answer_that_only_the_ledger_has_is_taken_over(
    crew: Bench, registry: Registry, cut: Cut, how: str
) -> None:
    """It was paid, and nothing but the run itself did not know: nobody pays it again, and the report says who has."""
    before = await crew.start(CHAIN)
    bill = await cut(before, 1)

    run = await (again(crew, before.id) if how == "retry" else start_with(crew, registry, CHAIN, before))
    report = await run.report()

    assert (report.status, paid(crew)) == (RunStatus.COMPLETED, Counter(end=1))
    task = by_id(report.tasks)["cut"]
    assert (task.reused, task.saved, task.tokens, task.attempts) == (before.id, bill, Usage(), 0)
    assert task.output
    assert report.reuse is not None
    assert report.reuse.tasks == 2


async def test_what_it_has_cost_counts_once(crew: Bench, registry: Registry, cut: Cut) -> None:
    """A family has one budget: the call is in what was spent before, and in nothing that the retry spends."""
    payer = Payer(crew, registry)
    before = await payer.start(CHAIN, calls=20)
    await cut(before, 1)
    spent = (await before.until(lambda picture: picture.ended)).cost.actual_usd

    report = await (await again(crew, before.id)).report()

    assert (report.status, report.cost.before_usd) == (RunStatus.COMPLETED, spent)
    costs = by_id(report.tasks)
    assert costs["cut"].cost_usd == 0
    assert report.cost.actual_usd == costs["end"].cost_usd
    assert report.cost.savings is not None
    assert report.cost.savings.reuse_usd == spent


async def test_a_task_that_is_named_is_asked_again(crew: Bench, cut: Cut) -> None:
    before = await crew.start(CHAIN)
    await cut(before, 1)

    report = await (await again(crew, before.id, "cut")).report()

    assert (report.status, paid(crew)) == (RunStatus.COMPLETED, Counter(cut=1, end=1))


async def test_a_retry_with_nothing_to_pay_brings_the_report(crew: Bench, cut: Cut) -> None:
    """The run that was terminated has none with this result, so the retry is not refused; the next one is."""
    before = await crew.start("tasks: [{id: cut, agent: hand, prompt: Go., timeout: 60s}]")
    await cut(before, 1)

    report = await (await again(crew, before.id)).report()

    assert (report.status, paid(crew)) == (RunStatus.COMPLETED, Counter())
    assert report.output
    with pytest.raises(HeritageRefused, match="every task has succeeded"):
        await again(crew, before.id)


async def test_an_answer_over_which_a_bug_of_ours_ended_the_run_is_taken_over(
    crew: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_on_quick(monkeypatch)
    plan = "tasks: [{id: quick, agent: hand, prompt: Go.}, {id: later, agent: hand, prompt: Go., needs: [quick]}]"
    before = await crew.start(plan)
    assert (await before.closed()).status is WorkflowExecutionStatus.FAILED
    crew.simulator.forget()

    report = await (await again(crew, before.id)).report()

    assert (report.status, paid(crew)) == (RunStatus.COMPLETED, Counter(later=1))


async def test_the_answer_counts_that_the_last_step_has_brought(crew: Bench, cut: Cut) -> None:
    """A person had the task done again while the run went: that answer has a place of its own."""
    crew.simulator.script(
        [
            {"when": {"task": "cut", "nth": 1}, "then": {"fault": "invalid_request"}},
            {"when": {"task": "hold"}, "then": {"ttft": 3600}},
        ]
    )
    before = await crew.start(CHAIN + "  - {id: hold, prompt: Hold.}\n")
    await before.until(lambda picture: picture.tasks["cut"].ended is not None)
    await crew.client.retry(before.id, ["cut"], by="ann")
    await cut(before, 1)
    crew.simulator.script([])

    report = await (await again(crew, before.id)).report()

    assert (report.status, paid(crew)) == (RunStatus.COMPLETED, Counter(end=1, hold=1))


async def test_what_cannot_end_a_task_is_asked_again(crew: Bench, cut: Cut) -> None:
    """Answers that are wrong, cut or declined, and those that a review or a summary was still to be made of."""
    crew.simulator.script(SAID)
    before = await crew.start(MANY)
    await cut(before, 8)

    run = await again(crew, before.id)
    report = await run.report()

    assert report.status is RunStatus.COMPLETED
    assert [id for id, task in by_id(report.tasks).items() if task.reused] == ["plain", "fits", "closed"]
    assert set(paid(crew)) == {"lacks", "short", "refused", "reviewed", "open", "reader", "other"}
    closed = by_id(report.tasks)["closed"]
    assert (closed.output, closed.summary) == (("Word. " * 200).strip(), "In short.")
    assert "In short." in await crew.client.brief(await crew.client.picture(run.id), "reader")
