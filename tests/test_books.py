"""Whoever was held up on its way to a call finds out, at the last moment, that there is nothing to ask for."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from pathlib import Path

import pytest
from conftest import eventually
from doorway import Doorway, opened
from test_ledger import COMPLETION, WORST, intent, setback
from test_right_door import CountingStore

from activities.ledger import Entry, Ledger
from books import AT_ONCE, Books
from domain.costs import charge_of_calls
from domain.models import Answered, Stopped, Usage, ref_of
from domain.prices import Price, cost_of_calls, worst_cost
from domain.witness import call_data
from entries import task_key
from simulator.server import Simulator
from store import Store, open_store


async def held_up(door: Doorway) -> asyncio.Task[object]:
    """An attempt that hangs at the last question before its call, as when the network is cut."""
    door.gate.answers.clear()
    asking: asyncio.Task[object] = asyncio.create_task(door.ask())

    async def asks() -> bool:
        return door.gate.permissions > 0

    await eventually(asks)
    return asking


async def test_no_call_is_made_for_a_task_whose_account_was_made_up(simulator: Simulator, tmp_path: Path) -> None:
    """Its run has given it up and uses the money for others."""
    store = open_store(str(tmp_path / "store"))
    async with opened(store, simulator.url) as door:
        asking = await held_up(door)

        account = await Books(store).account("run", "a", 1)
        door.gate.answers.set()
        outcome = await asking

        assert account.calls == ()
        assert isinstance(outcome, Stopped)
        assert list(simulator.log) == []
        (call,) = await Books(store).calls("run", "a", 1)
        assert (call.usage, call.unsettled) == (Usage(), Usage())
        assert isinstance(await door.ask(step=2), Answered)  # a person has it done again


async def test_what_another_worker_has_brought_meanwhile_is_not_asked_again(
    simulator: Simulator, tmp_path: Path
) -> None:
    store = open_store(str(tmp_path / "store"))
    async with opened(store, simulator.url) as slow, opened(store, simulator.url) as quick:
        asking = await held_up(slow)

        brought = await quick.answered(attempt=2)
        slow.gate.answers.set()
        outcome = await asking

        assert isinstance(outcome, Answered)
        assert outcome.output_ref == brought.output_ref
        assert simulator.calls("a") == 1


@pytest.mark.parametrize("asked", [3, AT_ONCE + 3])
async def test_of_the_tasks_that_are_asked_for_each_entry_is_read_once(store: Store, asked: int) -> None:
    """And of the others none, nor one that is not there."""
    ledger, counting = Ledger(store), CountingStore(store)
    ids = [f"t[{number}]" for number in range(AT_ONCE + 10)]
    for place, id in enumerate(ids):
        entry = Entry(run="run", task=id, step=1, content=ref_of(b"brief"))
        number = await ledger.intend(entry, intent().model_copy(update={"task": id}))
        if place % 2:
            await ledger.complete(entry, COMPLETION, number)
    wanted = ids[:asked]

    accounts = await Books(counting).accounts("run", [*wanted, "made no calls"])

    places = tuple(f"{task_key('run', id)}/" for id in wanted)
    assert sorted(counting.read) == [key for key in await store.records("run") if key.startswith(places)]
    assert set(accounts) == set(wanted)
    assert [accounts[id].calls[0].usage for id in wanted[:2]] == [Usage(), COMPLETION.usage]
    assert [accounts[id].calls[0].unsettled for id in wanted[:2]] == [WORST, Usage()]


@pytest.mark.parametrize("lost", [False, True])
async def test_a_request_in_a_batch_counts_at_half_the_price_also_at_its_worst(store: Store, lost: bool) -> None:
    """Whether it may still be answered, or never will be: in the trail it costs the same."""
    price = Price(input=Decimal(2), output=Decimal(10), cache_read=Decimal(1), cache_write=Decimal(3))
    entry = Entry(run="run", task="a", step=1, content=ref_of(b"brief"))
    number = await Ledger(store).intend(entry, intent().model_copy(update={"task": "a", "batch": "ours"}))
    if lost:
        told = setback(1).told.model_copy(update={"usage": Usage(), "unsettled": WORST})
        await Ledger(store).fail(entry, number, setback(1).model_copy(update={"told": told}))

    (call,) = await Books(store).calls("run", "a", 1)
    (line,) = await Books(store).requests("run")

    assert cost_of_calls({"m": price}, [call]) == worst_cost(price, WORST) / 2
    assert charge_of_calls({"m": price}, [call]).unsettled == worst_cost(price, WORST) / 2
    assert Decimal(str(call_data(line.call, {"m": price}, 1)["unsettled_usd"])) == worst_cost(price, WORST) / 2
