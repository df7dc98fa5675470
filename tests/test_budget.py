"""A budget on the real server, with the simulator's bill as the truth: it cannot be overspent, and nothing is lost."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial

import pytest
from conftest import Bench, Run, eventually
from temporalio.common import SearchAttributeKey
from test_crashes import Home
from test_crashes import home as home  # noqa: PLC0414  a fixture of that file

import attributes
from domain import purse
from domain.consent import dollars
from domain.course import Course
from domain.events import EventType
from domain.models import Plan, RunStatus, TaskStatus, Usage
from domain.planning import Planned, plan_from_text
from domain.prices import cost_of
from domain.progress import outline_of
from domain.registry import Registry
from domain.report import Report
from embedded import Worker
from folder import PlanFolder
from heritage import successor
from prices import price_list, priced
from reader import RunReader
from runtime import Mode
from simulator.server import Simulator
from temporal_server import Server

MODEL = "claude-haiku-4-5"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)

FIFTY = f"""
max_concurrency: 20
defaults: {{agent: hand, attempts: 2, max_tokens: 100}}
tasks: [{{id: t, for_each: {[*range(50)]}, prompt: Go.}}]
"""

TWELVE = f"""
max_concurrency: 2
defaults: {{agent: hand, attempts: 4, max_tokens: 100}}
tasks: [{{id: t, for_each: {[*range(12)]}, prompt: Go.}}]
"""


def worst_call(plan: Plan) -> Decimal:
    """What the first task of a plan can cost with one call."""
    course = Course(outline_of(plan))
    cost = purse.worst_call(course.chart, course.begin(NOON).progress, plan.tasks[0].id)
    assert cost is not None
    return cost


def billed(simulator: Simulator) -> Decimal:
    """What the provider charges for all that was ever asked."""
    price = price_list({MODEL}).price(MODEL)
    bills = [entry.billed for entry in simulator.log]
    return sum((cost_of(price, Usage(input=bill.input, output=bill.output)) for bill in bills), Decimal(0))


class Payer:
    """Submits plans with a budget for so many calls at their worst."""

    def __init__(self, bench: Bench, registry: Registry) -> None:
        self._bench, self._registry = bench, registry
        self.budget = self.worst = Decimal(0)

    async def start(self, plan: str, *, calls: float, continue_after: int | None = None) -> Run:
        read = plan_from_text(plan, file="test.yaml", registry=self._registry, folder=self._bench.folder)
        known = priced(read.plan)
        self.worst = worst_call(known)
        self.budget = self.worst * Decimal(str(calls))
        planned = replace(read, plan=known.model_copy(update={"budget": self.budget}))
        client = self._bench.client
        run = await client.submit(
            planned, id=None, simulated=True, queue=self._bench.queue, continue_after=continue_after
        )
        return Run(run, client, self._bench.temporal)


@pytest.fixture
def payer(crew: Bench, registry: Registry) -> Payer:
    return Payer(crew, registry)


def is_asked_again(simulator: Simulator, seen: int) -> bool:
    return simulator.in_flight > 0 and len(simulator.log) > seen


def check_the_books(report: Report, simulator: Simulator, budget: Decimal) -> None:
    """What was billed is what is told, within the budget, and nothing is left set aside."""
    cost = report.cost
    assert cost.actual_usd is not None
    assert cost.unsettled_usd is not None
    assert billed(simulator) <= cost.actual_usd + cost.unsettled_usd <= budget
    assert (cost.budget_usd, cost.reserved_usd) == (budget, Decimal(0))


async def test_a_cap_of_ten_calls_holds_for_fifty_tasks(payer: Payer, simulator: Simulator) -> None:
    """Twenty at once: what does not fit waits until others have settled, and the rest is not started (H4)."""
    run = await payer.start(FIFTY, calls=10)

    report = await run.report()

    check_the_books(report, simulator, payer.budget)
    assert report.status is RunStatus.BUDGET_STOPPED
    assert report.census.succeeded == len(simulator.log) >= 10
    assert report.census.succeeded + report.census.not_started == 50
    summary = await run.handle.result()
    assert (summary.status, Decimal(summary.cost_usd or 0)) == (RunStatus.BUDGET_STOPPED, report.cost.actual_usd)
    types = [event.type for event in await run.events()]
    assert types.count(EventType.BUDGET_LOW) == types.count(EventType.BUDGET_STOPPED) == 1
    (attention,) = report.attention
    assert (attention.kind, attention.do) == ("budget", f"retry {run.id} --budget USD")
    assert attention.what == f"the budget of {dollars(payer.budget)} does not cover what is left"
    described = await run.closed()
    assert described.typed_search_attributes[SearchAttributeKey.for_keyword(attributes.STATUS)] == "BUDGET_STOPPED"


async def test_the_books_are_carried_through_continue_as_new(payer: Payer, simulator: Simulator) -> None:
    run = await payer.start(FIFTY, calls=10, continue_after=5)

    report = await run.report()

    check_the_books(report, simulator, payer.budget)
    assert report.status is RunStatus.BUDGET_STOPPED

    async def continued() -> bool:
        return len(await run.chain()) > 2

    await eventually(continued)  # Temporal's list may be a moment behind


async def test_failures_are_paid_from_the_same_purse(payer: Payer, simulator: Simulator) -> None:
    """Streams that break off cost at most what they may have cost, and that is what is counted."""
    simulator.script([{"when": {}, "then": {"fault": "reset_mid_stream"}}])
    run = await payer.start(FIFTY, calls=7)

    report = await run.report()

    check_the_books(report, simulator, payer.budget)
    assert report.census.succeeded == 0
    assert report.cost.unsettled_usd


ABSURD = [{"output_tokens": -5}, {"output_tokens": 10**12}, {"input_tokens": 10**12}, {"input_tokens": 0}, None]


@pytest.mark.parametrize("usage", ABSURD, ids=str)
async def test_a_provider_that_does_not_tell_what_a_call_cost_gives_nothing_away(
    payer: Payer, simulator: Simulator, usage: dict[str, int] | None
) -> None:
    """Nor does it take more than was set aside: what it says that cannot be counts at its worst (E14, V6)."""
    simulator.script([{"then": {"usage": usage, "answer_tokens": 90}}])
    run = await payer.start(FIFTY, calls=10)

    report = await run.report()

    check_the_books(report, simulator, payer.budget)
    assert report.status is RunStatus.BUDGET_STOPPED
    assert report.census.succeeded == len(simulator.log) >= 10


async def test_a_run_that_waits_for_money_goes_on_when_the_budget_is_raised(payer: Payer, simulator: Simulator) -> None:
    simulator.script([{"when": {}, "then": {"answer_tokens": 90}}])
    run = await payer.start(f"on_budget: wait{FIFTY}", calls=3)
    waiting = await run.until(lambda picture: picture.status is RunStatus.WAITING)
    (attention,) = waiting.attention
    assert (attention.kind, attention.do) == ("budget", f"set {run.id} --budget USD")
    before = len(simulator.log)
    wait = waiting.wait(attention.task or "", datetime.now(UTC))
    assert wait is not None
    assert wait.reason == "budget"

    answer = await run.client.set(run.id, by="someone", budget=payer.budget * 30)
    report = await run.report()

    assert answer.done.startswith("the budget is $")
    check_the_books(report, simulator, payer.budget * 30)
    assert report.status is RunStatus.COMPLETED
    assert len(simulator.log) == 50 > before


async def test_a_task_that_is_stopped_at_work_tells_what_it_may_have_cost(payer: Payer, simulator: Simulator) -> None:
    """And what there was of its answer: the supervisor asks the ledger, because a cancelled task says nothing."""
    words = "one two three four five six " * 20  # more than there is time for
    simulator.script([{"when": {}, "then": {"answer": words, "ttft": 0, "tokens_per_second": 2}}])
    run = await payer.start("tasks: [{id: a, agent: hand, prompt: Go.}]", calls=4)
    await run.until(lambda picture: (live := picture.tasks["a"].live) is not None and live.note.output > 0)

    await run.client.cancel(run.id)
    report = await run.report()

    (task,) = report.tasks
    assert (report.status, task.status, task.attempts) == (RunStatus.CANCELLED, TaskStatus.CANCELLED, 1)
    assert task.partial
    assert (task.output or "").startswith("one")
    assert report.unsettled.output > 0
    check_the_books(report, simulator, payer.budget)


async def test_the_buttons_of_the_web_ui_do_not_buy_more_than_was_set_aside(payer: Payer, crew: Bench) -> None:
    """A reset of the activity begins its attempts anew: the door counts the calls themselves (temporal.md, Budget)."""
    from temporalio.api.common.v1 import WorkflowExecution
    from temporalio.api.workflowservice.v1 import ResetActivityRequest

    simulator = crew.simulator
    simulator.script([{"when": {}, "then": {"fault": "reset_mid_stream"}}])
    run = await payer.start("tasks: [{id: a, agent: hand, prompt: Go., attempts: 3}]", calls=3)

    while (await run.client.picture(run.id)).ended is False:
        request = ResetActivityRequest(
            namespace=crew.temporal.namespace,
            execution=WorkflowExecution(workflow_id=f"{run.id}/a"),
            type="run_agent",
            identity="a person",
        )
        try:
            await crew.temporal.workflow_service.reset_activity(request)
        except Exception:  # noqa: BLE001, S112  it has ended, or is not there yet
            continue
    report = await run.report()

    assert report.status is not RunStatus.COMPLETED
    check_the_books(report, simulator, payer.budget)


@pytest.mark.parametrize("dies", ["worker", "server", "both"])
async def test_no_kill_overspends_or_forgets(home: Home, registry: Registry, dies: str) -> None:
    """Twice in the middle of calls: what they may have cost is counted, once, and the cap holds (H5)."""
    await home.up()
    simulator = home.simulator
    simulator.script([{"when": {}, "then": {"ttft": 0.7, "answer_tokens": 80}}])
    read = plan_from_text(TWELVE, file="test.yaml", registry=registry, folder=PlanFolder(home.settings.home))
    known = priced(read.plan)
    budget = worst_call(known) * 12
    run = await home.submit_planned(replace(read, plan=known.model_copy(update={"budget": budget})))
    services = {"worker": Worker(home.settings.home, Mode.SIMULATED), "server": Server(home.settings.home)}

    for _ in range(2):
        seen = len(simulator.log)
        await simulator.until(partial(is_asked_again, simulator, seen))
        await home.kill(*(service for name, service in services.items() if dies in (name, "both")))
        await home.up()
    report = await run.report()

    assert report.census.succeeded >= 1
    check_the_books(report, simulator, budget)


@pytest.mark.parametrize("events", ["told", "lost"])
async def test_a_retry_knows_of_calls_that_only_the_ledger_has(
    payer: Payer, crew: Bench, events: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that is terminated tells nothing of calls under way: what they may have cost counts all the same."""
    simulator = crew.simulator
    simulator.script([{"when": {}, "then": {"ttft": 3600}}])
    first = await payer.start(FIFTY.replace("agent: hand", "agent: hand, timeout: 60s"), calls=5)
    await simulator.until(lambda: simulator.in_flight == 3)  # all that start: they set aside two calls, two and one
    if events == "lost":  # no worker answers: not even what was not written yet is known

        async def nothing(*_: object) -> None: ...

        monkeypatch.setattr(RunReader, "_add_unwritten", nothing)

    await first.handle.terminate()
    await simulator.until(lambda: simulator.in_flight == 0)  # the gate has cut them off
    asked = len(simulator.log)
    simulator.script([])
    found = await successor(crew.client, first.id, (), {})

    assert found.heritage.before >= payer.worst * asked / 2
    assert billed(simulator) <= found.heritage.before <= payer.budget
    ended = await first.until(lambda picture: picture.ended)
    told = await crew.client.report(ended)  # the report of the first knows of them, too
    assert (told.cost.actual_usd or 0) + (told.cost.unsettled_usd or 0) == found.heritage.before
    assert told.census.cancelled == asked
    assert not told.cost.reserved_usd
    planned = Planned(plan=found.plan, contents={}, sources={}, warnings=())
    id = await crew.client.submit(planned, id=found.id, simulated=True, queue=crew.queue, heritage=found.heritage)
    report = await Run(id, crew.client, crew.temporal).report()
    assert report.status is RunStatus.BUDGET_STOPPED
    assert report.cost.before_usd == found.heritage.before
    assert billed(simulator) <= report.cost.before_usd + (report.cost.actual_usd or 0) <= payer.budget


async def test_restarts_of_a_worker_leave_the_budget_for_the_work(
    bench: Bench, registry: Registry, simulator: Simulator
) -> None:
    """Each cuts one call off, and one call is what it takes: with a reservation each there would be nothing left."""
    payer = Payer(bench, registry)
    simulator.script([{"when": {"nth": [1, 3]}, "then": {"ttft": 3600}}])
    run = await payer.start("tasks: [{id: a, agent: hand, prompt: Go., attempts: 3, max_tokens: 100}]", calls=5)

    async def asks_or_is_over(seen: int) -> bool:
        return is_asked_again(simulator, seen) or (await run.client.glance(run.id)).ended

    for restart in range(3):
        async with bench.worker(grace=timedelta(0)):
            await eventually(partial(asks_or_is_over, restart))
    async with bench.worker():
        report = await run.report()

    assert (report.status, report.tasks[0].attempts) == (RunStatus.COMPLETED, 1)
    assert [each.error.type for each in report.tasks[0].tries] == 3 * ["WorkerStopped"]
    check_the_books(report, simulator, payer.budget)
    assert (report.cost.unsettled_usd or 0) <= 3 * payer.worst


async def test_a_retry_goes_on_with_the_money_of_its_family(payer: Payer, crew: Bench) -> None:
    """What the first run has spent counts, and what it has done is not paid again."""
    first = await payer.start(FIFTY, calls=5)
    before = await first.report()
    done = len(crew.simulator.log)
    budget = payer.budget * 2

    found = await successor(crew.client, first.id, (), {"budget": budget})
    planned = Planned(plan=found.plan, contents={}, sources={}, warnings=())
    queue = crew.queue
    id = await crew.client.submit(planned, id=found.id, simulated=True, queue=queue, heritage=found.heritage)
    report = await Run(id, crew.client, crew.temporal).report()

    assert before.status is RunStatus.BUDGET_STOPPED
    assert report.cost.before_usd == before.cost.actual_usd
    assert report.census.succeeded == len(crew.simulator.log) > done
    assert billed(crew.simulator) == report.cost.before_usd + (report.cost.actual_usd or 0) <= budget
