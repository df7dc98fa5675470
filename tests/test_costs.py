"""What a run has cost, by its events and the prices that were pinned, and what many have cost together."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import START, Voyage, answered, failed, in_vain, outline, outlines, plan_of

from domain.catalog import RunEntry, entry_of
from domain.course import Course
from domain.events import Event, EventType
from domain.models import Plan, Usage
from domain.picture import Picture
from domain.prices import Price, PriceList
from domain.progress import Outline
from domain.report import Report
from domain.spending import By, spending_of, sum_of

PRICE = Price(input=Decimal(1), output=Decimal(10), cache_read=Decimal("0.1"), cache_write=Decimal(2))
MILLIONTH = Decimal("0.000001")


def priced(plan: Plan, *but: str) -> Plan:
    models = {agent.model: PRICE for agent in plan.agents if agent.model not in but}
    return plan.model_copy(update={"prices": PriceList(source="a list", date="2026-01-01", models=models)})


def report_of(outcomes: dict[str, Any], *, but: str = "") -> Report:
    """The report of a run of tasks that came to this."""
    return picture_of(outcomes, but=but).report({}, START + timedelta(minutes=1))


def picture_of(outcomes: dict[str, Any], *, but: str = "") -> Picture:
    course = Course(outline({id: {} for id in outcomes}))
    picture = Picture("run", priced(plan_of(course.chart.outline), but), simulated=True)
    steps = [course.begin(START)]
    steps.append(course.launch(steps[-1].progress, START))
    for place, (id, outcome) in enumerate(outcomes.items(), start=1):
        steps.append(course.result(steps[-1].progress, id, outcome, START + timedelta(seconds=place)))
    for step in steps:
        picture.add(step.events)
    return picture


def test_every_attempt_is_in_the_cost_and_those_in_vain_are_told_apart() -> None:
    """Two attempts in vain of 3 tokens in and up to 5 more out, then an answer of 4 in and 8 out; and a failure."""
    report = report_of({"a": answered(4, in_vain(2)), "b": failed()})

    a, b = report.tasks
    assert a.cost_usd == (2 * 3 + 4 + 8 * 10) * MILLIONTH
    assert a.unsettled_usd == 2 * 5 * 10 * MILLIONTH
    assert (b.cost_usd, b.unsettled_usd) == (1 * MILLIONTH, 7 * 10 * MILLIONTH)
    assert report.cost.actual_usd == (90 + 1) * MILLIONTH
    assert report.cost.retries_usd == (2 * 3 + 1) * MILLIONTH
    assert report.cost.unsettled_usd == (100 + 70) * MILLIONTH
    assert report.cost.price_source == "a list, prices of 2026-01-01"
    assert report.document()["cost"]["actual_usd"] == "0.000091"


def test_attempts_in_vain_that_were_in_a_batch_may_cost_half() -> None:
    """Two before the last one, and the last one itself."""
    tries = tuple(each.model_copy(update={"batched": True}) for each in in_vain(2))

    report = report_of({"a": failed().model_copy(update={"tries": tries, "batched": True})})

    assert report.cost.unsettled_usd == (2 * 5 + 7) * 10 * MILLIONTH / 2
    assert report.cost.actual_usd == (2 * 3 + 1) * MILLIONTH / 2


def test_with_a_model_that_has_no_price_nobody_knows_what_it_cost() -> None:
    report = report_of({"a": answered()}, but="m")

    assert (report.cost.actual_usd, report.tasks[0].cost_usd) == (None, None)
    assert report.cost.unpriced == ("m",)


@settings(max_examples=50, deadline=None)
@given(outlines(max_tasks=6), st.data())
def test_the_cost_of_any_run_is_that_of_its_tasks_and_of_its_agents(outline: Outline, data: st.DataObject) -> None:
    """At every moment; and it only grows."""
    picture = Picture("run", priced(plan_of(outline)), simulated=True)
    before = Decimal(0)
    for moment in Voyage(outline, data.draw, turns=15).moments():
        picture.add(moment.step.events)

        report = picture.report({}, moment.now)
        cost, entry = report.cost, entry_of(picture, report)
        assert cost.actual_usd == sum(task.cost_usd or 0 for task in report.tasks)
        assert cost.actual_usd == sum(share.cost_usd or 0 for share in entry.agents)
        assert cost.unsettled_usd == sum(task.unsettled_usd or 0 for task in report.tasks)
        assert cost.retries_usd is not None
        assert before <= cost.actual_usd
        assert cost.retries_usd <= cost.actual_usd
        before = cost.actual_usd


def test_an_end_that_an_older_release_wrote_has_no_cost() -> None:
    """And still is one."""
    end = {"run": "r", "name": "n", "status": "COMPLETED", "simulated": True, "census": None}

    entry = RunEntry.model_validate({**end, "started": None, "finished": None})

    assert (entry.cost.actual_usd, entry.agents) == (None, ())


@pytest.mark.parametrize("by", ["run", "plan", "agent", "day"])
def test_what_was_paid_and_what_was_simulated_never_mix(by: By) -> None:
    picture = picture_of({"a": answered(1)})
    simulated = entry_of(picture, picture.report({}, START))
    live = simulated.model_copy(update={"run": "live", "simulated": False})
    unknown = live.model_copy(update={"run": "old", "cost": RunEntry.model_fields["cost"].default})

    lines = spending_of([simulated, live, unknown], by, lambda moment: f"{moment:%d %B}")

    whole = sum_of(lines)
    assert whole.simulated_usd == 21 * MILLIONTH
    assert whole.usd == (42 if by == "agent" else 21) * MILLIONTH
    assert whole.unpriced == (0 if by == "agent" else 1)
    assert [line.name for line in lines] == {
        "run": ["run", "live", "old"],
        "plan": ["plan"],
        "agent": ["ant@1"],
        "day": ["01 January"],
    }[by]


def test_what_the_ledger_tells_of_a_task_is_in_its_cost_as_it_was_priced() -> None:
    """By whoever knew which call went to which model; events of before 0.6.0 are priced at the model of the task."""
    picture = picture_of({"a": failed()})
    before = picture.bills.of("a")
    assert before is not None
    tokens, more = Usage(input=5), Usage(output=-7)
    settled: dict[str, Any] = {"attempts": 1, "tokens": tokens.model_dump(), "unsettled": more.model_dump()}

    event = Event(number=picture.last + 1, type=EventType.TASK_SETTLED, time=START, task="a", data=settled)
    priced_there = event.model_copy(update={"data": {**settled, "cost_usd": "0.25", "unsettled_usd": "-0.00007"}})
    picture.add([priced_there])

    after = picture.bills.of("a")
    assert after is not None
    assert after.actual - before.actual == after.retries - before.retries == Decimal("0.25")
    assert after.unsettled == 0
    assert (picture.tokens, picture.unsettled) == (Usage(input=6), Usage())
    picture.add([event.model_copy(update={"number": picture.last + 1})])
    old = picture.bills.of("a")
    assert old is not None
    assert old.actual - after.actual == 5 * MILLIONTH
