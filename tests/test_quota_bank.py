"""The bank on a real server: durable, flat, and the same for every process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from conftest import Bench, eventually, granted, look
from temporalio.client import Client, WorkflowHandle
from test_web_ui import current_details

from activities.contract import quota_id
from activities.quota_meter import QuotaMeter
from activities.teller import BankTeller
from domain.quota.terms import Limits, Terms
from domain.quota.view import LaneView, QuotaView
from domain.quota.words import Ask, Call
from runtime import Settings, connect
from workflows.quota import DRAWS

LANE = "haiku-4"
EVENTS = 600
"""Of one run of the bank: a worker reads them again in a third of a second, and has two seconds for it."""
QUICK = {"ttft": 0.05, "tokens_per_second": 0, "jitter": 0}


def plan(tasks: int, *, agent: str = "hand", together: int = 22, prompt: str = "Go.") -> str:
    items = ", ".join(map(str, range(tasks)))
    return f"""
max_concurrency: {together}
defaults: {{agent: {agent}, timeout: 60s, max_tokens: 200}}
tasks: [{{id: part, for_each: [{items}], prompt: {prompt}}}]
"""


def bank_of(bench: Bench) -> WorkflowHandle[Any, Any]:
    return bench.temporal.get_workflow_handle(quota_id("default", bench.queue))


async def lane_of(bench: Bench) -> LaneView:
    view: QuotaView = await look(bank_of(bench), "view", result_type=QuotaView)
    return view.lanes[LANE]


async def knows(bench: Bench, limit: int) -> bool:
    """Whether the bank knows this limit: it hears of it after the answer, and so perhaps after the end of the run."""
    lane = await lane_of(bench)
    return "requests" in lane.limits and lane.limits["requests"].limit == limit


async def shows(bench: Bench, *words: str) -> bool:
    """Whether the bank's page has all of these."""
    page = await current_details(bench.temporal, quota_id("default", bench.queue))
    return all(each in page for each in words)


@asynccontextmanager
async def metered(bench: Bench, client: Client, **options: Any) -> AsyncIterator[None]:
    """A worker that draws from the bank of this bench."""
    meter = QuotaMeter(BankTeller(client, account="default", queue=bench.queue), options.pop("terms", Terms()))
    mine = bench.on(client)
    async with meter, mine.worker(meter=meter, **options):
        yield


async def test_limits_are_learned_kept_and_followed(bench: Bench) -> None:
    """From the headers of answers, through the restart of everything that draws."""
    bench.simulator.script([], **QUICK, limits={"requests": 6000})
    async with metered(bench, bench.temporal):
        await (await bench.start(plan(3))).report()
        await eventually(lambda: knows(bench, 6000))
        await eventually(lambda: shows(bench, f"`{LANE}`: limits by", "worker `"))

        bench.simulator.script([], **QUICK, limits={"requests": 3000})
        await (await bench.start(plan(1))).report()
        await eventually(lambda: knows(bench, 3000))

    async with metered(bench, bench.temporal):
        lane = await lane_of(bench)
        assert (lane.source, lane.limits["requests"].limit) == ("provider", 3000)

        bench.simulator.script([], **QUICK, limits={"requests": 6000})
        await (await bench.start(plan(1))).report()
        await eventually(lambda: knows(bench, 6000))


async def test_wrong_guesses_cost_a_few_calls_at_most(bench: Bench) -> None:
    """The settings promise ten times what the provider allows: its first answers correct that."""
    bench.simulator.script([], **QUICK, limits={"requests": 60, "burst": 0.2})
    terms = Terms(limits={"default": Limits(requests=600)})
    async with metered(bench, bench.temporal, terms=terms):
        report = await (await bench.start(plan(20))).report()

    assert report.census.succeeded == 20
    assert sum(entry.status == 429 for entry in bench.simulator.log) <= 4
    assert all(task.attempts == 1 for task in report.tasks)


async def test_set_limits_let_no_burst_through_that_the_provider_refuses(bench: Bench) -> None:
    """A tier tells what a minute allows, and not how much of it at once: that is learned, as without settings."""
    bench.simulator.script([], **QUICK, limits={"requests": 600, "burst": 0.01})
    terms = Terms(limits={"default": Limits(requests=600, input_tokens=450_000, output_tokens=90_000)})
    async with metered(bench, bench.temporal, terms=terms):
        reports = [await (await bench.start(plan(16))).report() for _ in range(2)]
        lane = await lane_of(bench)

    assert [report.census.succeeded for report in reports] == [16, 16]
    assert lane.source == "settings and provider"
    assert sum(entry.status == 429 for entry in bench.simulator.log) == 0


async def test_an_agent_is_at_work_so_many_times_in_all_runs_and_workers(bench: Bench, settings: Settings) -> None:
    """`pair` does two at once: of two runs on two workers together, and those that wait say so."""
    bench.simulator.script([], ttft=1, tokens_per_second=0, jitter=0)
    async with metered(bench, bench.temporal), metered(bench, await connect(settings)):
        runs = [await bench.start(plan(4, agent="pair")) for _ in range(2)]
        waits: set[str] = set()

        async def ended() -> bool:
            pictures = [await run.client.picture(run.id) for run in runs]
            waits.update(reasons(picture.report({}, picture.moved).document() for picture in pictures if picture.moved))
            return all(picture.ended for picture in pictures)

        await eventually(ended)
        reports = [await run.report() for run in runs]

    assert bench.simulator.peak <= 2
    assert bench.simulator.calls() == 8
    assert [report.census.succeeded for report in reports] == [4, 4]
    assert "pool" in waits


def reasons(reports: Iterable[dict[str, Any]]) -> set[str]:
    """What the tasks of these reports wait for."""
    return {task["wait"]["for"] for report in reports for task in report["tasks"] if task["wait"]}


async def test_a_failure_of_a_task_that_waited_for_its_agent_is_told(bench: Bench) -> None:
    """It is not forgotten for having stood in line."""
    bench.simulator.script(
        [{"when": {"task": "part[3]"}, "then": {"stop_reason": "refusal"}}], ttft=0.1, tokens_per_second=0, jitter=0
    )
    async with metered(bench, bench.temporal):
        report = await (await bench.start(plan(4, agent="pair"))).report()

    assert (report.census.succeeded, report.census.failed) == (3, 1)


async def ask_often(teller: BankTeller, count: int) -> None:
    amounts = {"requests": 1.0, "input_tokens": 100.0, "output_tokens": 100.0}
    for number in range(1, count + 1):
        call = Call(number=number, lane=LANE, amounts=amounts, run="run")  # type: ignore[arg-type]
        terms = Terms(limits={"default": Limits(requests=100_000)})
        ask = Ask(worker="w", number=number, clock=float(number), hold=1, terms=terms, calls=(call,))
        await granted(teller, ask)


async def check_that_it_stays_flat(bench: Bench, monkeypatch: pytest.MonkeyPatch, draws: int) -> None:
    monkeypatch.setattr(BankTeller, "_delete", lambda *_: None)  # the test wants to look at all of them
    teller = BankTeller(bench.temporal, account="default", queue=bench.queue)
    async with AsyncExitStack() as workers:
        await workers.enter_async_context(bench.worker())
        await ask_often(teller, draws)
        expected = 1 + (draws - 1) // DRAWS
        histories = [await run.fetch_history() for run in await chain_of(bench, expected)]

    assert len(histories) == expected
    # Whoever takes the bank over from a worker that died reads all of them again while every call waits.
    assert max(len(history.events) for history in histories) <= EVENTS
    sizes = [
        sum(
            len(payload.data)
            for payload in history.events[0].workflow_execution_started_event_attributes.input.payloads
        )
        for history in histories[1:]
    ]
    assert max(sizes) < 2_500  # it grows only until the spans of a whole minute are in it


async def chain_of(bench: Bench, at_least: int = 1) -> list[WorkflowHandle[Any, Any]]:
    id = quota_id("default", bench.queue)

    async def listed() -> bool:  # the list may be a moment behind
        return len([run async for run in bench.temporal.list_workflows(f"WorkflowId = '{id}'")]) >= at_least

    await eventually(listed)
    found = [run async for run in bench.temporal.list_workflows(f"WorkflowId = '{id}'")]
    found.sort(key=lambda run: run.start_time)
    return [bench.temporal.get_workflow_handle(id, run_id=run.run_id) for run in found]


async def test_a_bank_stays_flat(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many draws there were: a new history every so often, and a state that does not grow."""
    await check_that_it_stays_flat(bench, monkeypatch, 2 * DRAWS + 10)


@pytest.mark.soak
async def test_a_bank_stays_flat_for_long(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    await check_that_it_stays_flat(bench, monkeypatch, 5_010)


async def test_what_is_of_no_use_any_more_is_let_go(bench: Bench) -> None:
    """A closed run of the bank is deleted by whoever draws from the next one."""
    teller = BankTeller(bench.temporal, account="default", queue=bench.queue)
    async with bench.worker():
        await ask_often(teller, DRAWS + 2)

        async def alone() -> bool:
            return len(await chain_of(bench)) == 1

        await eventually(alone)
