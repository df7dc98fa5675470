"""What was not paid, in money: the simulator's bill says what the same tokens would have cost otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from conftest import Bench, Run
from hypothesis import given
from hypothesis import strategies as st
from test_batches import FOUR
from test_one_cache_write import FILES, LONG

from activities import batches
from catalog import run_list
from domain.consent import dollars
from domain.costs import Savings
from domain.planning import plan_from_text
from domain.prices import Rates, Tier, cost_of, spared_by_batch, spared_by_cache
from domain.registry import Registry
from domain.report import Report
from domain.spending import SpendingLine
from domain.values import Usage
from heritage import NOTHING, reused
from prices import price_list, priced
from simulator.log import Entry
from terminal.show_cost import cost_lines
from terminal.show_reuse import reuse_lines
from terminal.spending import _sentences as sentences

MODEL = "claude-haiku-4-5"
PRICE = price_list({MODEL}).price(MODEL)
MILLION = 1_000_000
DEARER_WHEN_LONG = PRICE.model_copy(
    update={
        "tiers": (
            Tier(
                above=200_000,
                rates=Rates(input=Decimal(2), output=Decimal(9), cache_read=Decimal(1), cache_write=Decimal(5)),
            ),
        )
    }
)


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "LOOK_FIRST", timedelta(milliseconds=200))
    monkeypatch.setattr(batches, "FRESH", 0.1)


async def run_of(bench: Bench, registry: Registry, plan: str, *, before: str | None = None) -> Run:
    """A run with the prices of the day, as the command line starts it."""
    read = plan_from_text(plan, file="test.yaml", registry=registry, folder=bench.folder)
    planned, client = replace(read, plan=priced(read.plan)), bench.client
    heritage = NOTHING
    if before is not None:
        heritage = await reused(client, planned.plan, await client.picture(before), simulated=True)
    id = await client.submit(planned, id=None, simulated=True, queue=bench.queue, heritage=heritage)
    return Run(id, client, bench.temporal)


async def report_of(bench: Bench, registry: Registry, plan: str, *, before: str | None = None) -> Report:
    async with asyncio.timeout(100):
        return await (await run_of(bench, registry, plan, before=before)).report()


def billed(entries: Iterable[Entry], *, cached: bool = True, batched: bool = True) -> Decimal:
    """The bill; or what it would have been without a cache, or without batches."""
    whole = Decimal(0)
    for entry in entries:
        used = entry.billed
        read, write = (PRICE.cache_read, PRICE.cache_write) if cached else (PRICE.input, PRICE.input)
        cost = PRICE.input * used.input + PRICE.output * used.output + read * used.cache_read + write * used.cache_write
        whole += cost / (2 if entry.batch and batched else 1) / MILLION
    return whole


def savings_of(report: Report) -> Savings:
    assert report.cost.savings is not None
    return report.cost.savings


def test_what_the_cache_saved_is_less_than_nothing_when_nobody_has_read() -> None:
    """A quarter more for each token that was written."""
    assert spared_by_cache(PRICE, Usage(cache_write=MILLION)) == -PRICE.input / 4
    assert spared_by_cache(PRICE, Usage(cache_read=MILLION)) == PRICE.input * Decimal("0.9")
    assert spared_by_cache(PRICE, Usage(input=MILLION, output=MILLION)) == 0
    assert spared_by_batch(PRICE, Usage(output=MILLION)) == PRICE.output / 2


tokens = st.integers(0, 400_000)


@given(st.builds(Usage, input=tokens, output=tokens, cache_read=tokens, cache_write=tokens), st.booleans())
def test_whatever_was_saved_would_have_been_paid(usage: Usage, batched: bool) -> None:
    """Also where a long prompt is dearer."""
    price = DEARER_WHEN_LONG
    uncached = Usage(input=usage.input + usage.cache_read + usage.cache_write, output=usage.output)
    cost = cost_of(price, usage, batched=batched)

    assert cost + spared_by_cache(price, usage, batched=batched) == cost_of(price, uncached, batched=batched)
    assert cost_of(price, usage, batched=True) + spared_by_batch(price, usage) == cost_of(price, usage)


async def test_what_the_cache_saved_is_on_the_bill(crew: Bench, registry: Registry, tmp_path: Path) -> None:
    """Twelve siblings: eleven reads, less what the one write cost on top. For each task and in all."""
    (tmp_path / "guide.md").write_text(LONG)
    crew.simulator.script([], ttft=0.3)

    report = await report_of(crew, registry, FILES)

    bill = billed(crew.simulator.log)
    saved = billed(crew.simulator.log, cached=False) - bill
    assert report.cost.actual_usd == bill
    assert savings_of(report) == Savings(cache_usd=saved)
    assert saved > 0
    each = [task.savings.cache_usd for task in report.tasks if task.savings is not None]
    assert sum(each) == saved
    assert sorted(amount < 0 for amount in each) == 11 * [False] + [True]
    assert any("The prompt cache saved $0.0" in line for line in cost_lines(report))


async def test_a_cache_that_cost_more_than_it_saved_is_told_so(crew: Bench, registry: Registry) -> None:
    crew.simulator.script([{"then": {"cache_write": 100}}])

    report = await report_of(crew, registry, "tasks: [{id: only, agent: hand, prompt: Go.}]")

    lost = billed(crew.simulator.log) - billed(crew.simulator.log, cached=False)
    assert lost > 0
    assert savings_of(report) == Savings(cache_usd=-lost)
    assert any(f"cache cost {dollars(lost)} more than reading it saved" in line for line in cost_lines(report))


async def test_what_batches_and_reuse_saved_is_on_the_bill(crew: Bench, registry: Registry) -> None:
    """Half of the price; and what is taken over is worth what it cost there, through any number of runs."""
    crew.simulator.script([], batch_seconds=0)
    first = await report_of(crew, registry, FOUR)
    requests = [entry for entry in crew.simulator.log if entry.batch]
    crew.simulator.forget()

    more = f"{FOUR[:-2]}, {{id: more, agent: hand, prompt: More.}}]"
    second = await report_of(crew, registry, more, before=first.run)
    third = await report_of(crew, registry, more, before=second.run)

    bill, price = billed(requests), billed(requests, batched=False)
    assert first.cost.actual_usd == bill > 0
    assert savings_of(first) == Savings(batches_usd=price - bill)
    assert any(line.startswith("Batches saved $0.0") for line in cost_lines(first))
    assert savings_of(second).reuse_usd == bill
    assert savings_of(third).reuse_usd == bill + (second.cost.actual_usd or 0)
    assert third.cost.actual_usd == 0
    assert sum(task.savings.reuse_usd for task in third.tasks if task.savings) == savings_of(third).reuse_usd
    assert "which saved $0.0" in next(reuse_lines(second))
    (entry,) = [each for each in await run_list(crew.client, since=None) if each.run == third.run]
    assert [share.savings for share in entry.agents] == [savings_of(third)]
    assert [share.tasks for share in entry.agents] == [0]


def test_costs_tell_what_was_saved_of_live_and_of_simulated_runs() -> None:
    saved = Savings(reuse_usd=Decimal("0.02"), cache_usd=Decimal("-0.001"), batches_usd=Decimal("0.3"))
    line = SpendingLine(name="all", savings=saved, simulated_retries_usd=Decimal(2))

    live, simulated = sentences(line)

    assert live == (
        "paid: reused results saved $0.020, writing the prompt cache cost $0.0010 more than reading it saved, "
        "batches saved $0.30"
    )
    assert simulated == "simulated: attempts in vain cost $2.00"
    assert list(sentences(SpendingLine(name="all"))) == []
