"""A grant that was overtaken on its way through the door: the provider's buckets have not waited for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from conftest import eventually
from counter import LANE, Counter
from doorway import HAIKU, MAX_TOKENS, Doorway, opened

from activities import calling, pulse, quota_meter
from activities.gate import Standing
from activities.meter import Hold, OpenMeter, Wish
from activities.quota_meter import QuotaMeter
from domain.models import Answered, Outcome
from domain.prices import Price, PriceList
from domain.quota.terms import Limits, Terms
from domain.quota.view import view_of
from domain.register import Verb
from domain.rights import Rights, Role
from registers import Registers
from simulator.server import Simulator
from store import Store, open_store

ALLOWED: dict[str, Any] = {"requests": 300, "burst": 0.04}
TERMS = Terms(headroom=0.1, limits={"default": Limits(**ALLOWED)})
MANY = 9
"""Calls of one process, of 12 that the bucket holds."""


async def ask_for_all(door: Doorway) -> list[Outcome]:
    return await asyncio.gather(*(door.ask("a", step=step) for step in range(MANY)))


async def test_a_grant_that_a_silent_server_has_held_back_is_not_used(simulator: Simulator, tmp_path: Path) -> None:
    """One process hangs at the last question; until it is answered the bank has filled, and given to another."""
    simulator.script([], limits=ALLOWED)
    bank = Counter()

    async with AsyncExitStack() as open_doors:

        async def door(name: str) -> Doorway:
            meter = await open_doors.enter_async_context(QuotaMeter(bank, TERMS))
            store = open_store(str(tmp_path / name))
            return await open_doors.enter_async_context(opened(store, simulator.url, meter=meter))

        async def full_again() -> bool:
            return view_of(bank.bank, datetime.now(UTC)).lanes[LANE].limits["requests"].left == 12

        hangs, other = await door("hangs"), await door("other")
        hangs.gate.answers.clear()
        held_up = asyncio.create_task(ask_for_all(hangs))
        await eventually(lambda: _all_permitted(hangs))
        await eventually(full_again)
        others = asyncio.create_task(ask_for_all(other))
        await eventually(lambda: _all_permitted(other))
        hangs.gate.answers.set()
        outcomes = [*await held_up, *await others]

    # Each call that was made has a grant of its own that was fresh; those that were held back are burnt.
    assert sum(len(grant.numbers) for grant in bank.grants) >= len(simulator.log) + MANY
    assert all(outcome.attempts == 1 for outcome in outcomes if isinstance(outcome, Answered))


async def test_a_worker_that_was_silent_for_too_long_begins_no_call(
    simulator: Simulator, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was frozen between two steps, and another one has the task: the call would be made again."""
    asleep = 0.0
    monkeypatch.setattr(pulse, "monotonic", lambda: monotonic() + asleep)
    async with opened(store, simulator.url) as door:
        door.gate.answers.clear()
        waking = asyncio.create_task(door.parked())
        await eventually(lambda: _asked(door))
        asleep = 13.0
        door.gate.answers.set()
        parked = await waking

        assert (parked.why, parked.tries) == ("worker", ())
        assert simulator.log == []
        asleep = 0.0
        assert (await door.answered()).attempts == 1


async def _asked(door: Doorway) -> bool:
    return door.gate.permissions == 1


async def _all_permitted(door: Doorway) -> bool:
    return door.gate.permissions >= MANY  # one whose grant came too late asks again


class SlowStore(Store):
    """A store that takes longer to write the first intents than any grant keeps."""

    slow = 1

    async def record(self, key: str, entry: dict[str, Any]) -> bool:
        if "/intent-" in key and SlowStore.slow:
            SlowStore.slow -= 1
            await asyncio.sleep(1.5)
        return await super().record(key, entry)


@pytest.fixture
def keeps_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """No grant keeps for longer, also where a busy machine makes the way to the bank look long."""
    monkeypatch.setattr(quota_meter, "HOLD_MOST", 1.0)


@pytest.fixture
async def slow(simulator: Simulator, tmp_path: Path, keeps_a_second: None) -> AsyncIterator[Doorway]:
    SlowStore.slow = 1
    store = open_store(str(tmp_path / "store"))
    async with (
        QuotaMeter(Counter(), TERMS) as meter,
        opened(SlowStore(store.objects, store.location), simulator.url, meter=meter) as door,
    ):
        yield door


async def intents(door: Doorway) -> list[str]:
    """What the ledger has of calls, by their last names."""
    folder = Path(door.store.location) / "ledger"
    return sorted(file.stem for file in folder.rglob("*.json"))


async def test_an_intent_whose_grant_is_too_late_serves_for_the_next(slow: Doorway) -> None:
    """One call, one intent: nothing else may have been billed."""
    outcome = await slow.answered()

    assert (outcome.attempts, outcome.tries) == (1, ())
    assert slow.gate.permissions >= 2
    assert await intents(slow) == ["completion", "intent-1"]


@pytest.mark.usefixtures("keeps_a_second")
async def test_an_intent_that_serves_for_the_next_grant_is_not_counted_twice(
    simulator: Simulator, tmp_path: Path
) -> None:
    """A role was taken, and what money is left is just enough for this one call at its worst."""
    SlowStore.slow = 1
    store = open_store(str(tmp_path / "store"))
    rates = Price(input=Decimal(0), output=Decimal(200), cache_read=Decimal(0), cache_write=Decimal(0))
    rights = Rights(models=("*",), data=("*",), budget_usd=rates.output * MAX_TOKENS / 1_000_000)
    means: dict[str, Any] = {
        "rights": rights,
        "roles": (Role(name="rich", rights=Rights(budget_usd=Decimal(50))),),
        "prices": PriceList(source="test", date="2026-01-01", models={HAIKU: rates}),
    }
    await Registers(store).add(Verb.ROLE_TAKEN, "ant", None, by="mo", data={"role": "rich"})
    async with (
        QuotaMeter(Counter(), TERMS) as meter,
        opened(SlowStore(store.objects, store.location), simulator.url, meter=meter, **means) as door,
    ):
        outcome = await door.answered()

        assert (outcome.attempts, door.gate.permissions >= 2) == (1, True)
        assert await intents(door) == ["completion", "intent-1"]


async def test_an_intent_that_no_call_has_followed_costs_nothing(slow: Doorway) -> None:
    """The run was paused while its call was drawn for anew."""
    asked = asyncio.create_task(slow.parked())
    await eventually(lambda: _has_intended(slow))
    slow.gate.last = Standing(paused=True)

    assert (await asked).why == "pause"
    assert await intents(slow) == ["intent-1", "setback-1"]
    slow.gate.last = Standing()
    outcome = await slow.answered(start="another")
    assert (outcome.attempts, outcome.tries) == (1, ())


async def _has_intended(door: Doorway) -> bool:
    return SlowStore.slow == 0


class Late(Hold):
    """A grant that is too old whenever it is looked at."""

    def is_late(self) -> bool:
        return True


class LateMeter(OpenMeter):
    """Grants always too late: each takes a second, by a clock of its own."""

    clock = 0.0

    @asynccontextmanager
    async def draw(self, wish: Wish) -> AsyncIterator[Hold]:  # noqa: ARG002
        self.clock += 1
        yield Late()


async def test_a_call_whose_grants_are_always_too_late_goes_back_to_its_run(
    simulator: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It uses no attempt, and holds no worker up for ever."""
    meter = LateMeter()
    monkeypatch.setattr(calling, "DRAW_AGAIN", 2.5)
    monkeypatch.setattr(calling, "monotonic", lambda: meter.clock)
    async with opened(open_store(str(tmp_path / "store")), simulator.url, meter=meter) as door:
        parked = await door.parked()

    assert (parked.why, parked.until, parked.tries) == ("worker", None, ())
    assert door.gate.permissions == 3
    assert simulator.calls() == 0
