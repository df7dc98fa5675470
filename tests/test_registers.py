"""The register in the store: who writes at once is heard, and the door reads it cheaply."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from activities import register_desk
from activities.register_desk import RegisterDesk
from domain.models import Agent
from domain.register import Verb
from registers import Registers
from store import Store, StoreError, StoreUnavailable

WRITER = Agent(name="writer", version="1", model="claude-sonnet-4-5", instructions="Write.")


async def test_acts_are_read_back_in_the_order_in_which_they_came(store: Store) -> None:
    ours = Registers(store)
    for version in ("1", "2", "3"):
        await ours.add(Verb.REGISTERED, "writer", version, by="ana", data={"definition": f"sha256:{version}"})
    await ours.add(Verb.DISABLED, "writer", "2", by="ben")

    register = await Registers(store).register()

    assert register.versions("writer") == ("1", "2", "3")
    assert [act.number for act in register.acts_of("writer")] == [1, 2, 3, 4]
    assert [register.standing("writer", version).may_work for version in ("1", "2", "3")] == [True, False, True]
    assert register.standing("writer", "2").barred_by == "ben"


async def test_those_who_write_at_once_are_all_heard(store: Store) -> None:
    writers = [Registers(store) for _ in range(20)]

    acts = await asyncio.gather(*(each.add(Verb.DISABLED, f"a{n}", None, by="me") for n, each in enumerate(writers)))

    assert sorted(act.number for act in acts) == list(range(1, 21))
    register = await Registers(store).register()
    assert register.last == 20
    assert {name for name in register.agents if not register.standing(name, "1").may_work} == {
        f"a{n}" for n in range(20)
    }


async def test_two_readers_of_one_register_count_no_act_twice(store: Store) -> None:
    for _ in range(10):
        await Registers(store).add(Verb.DISABLED, "writer", None, by="me")
    ours = Registers(store)

    await asyncio.gather(*(ours.register() for _ in range(5)))

    assert len((await ours.register()).acts_of("writer")) == 10


async def test_an_act_that_a_power_cut_left_empty_loses_none_after_it(store: Store) -> None:
    ours = Registers(store)
    await ours.add(Verb.DISABLED, "writer", None, by="me")
    await store._kept.create("register/acts/00000002.json", b"")

    await ours.add(Verb.ENABLED, "writer", None, by="me")

    assert (await Registers(store).register()).standing("writer", "1").may_work


async def test_a_damaged_act_is_told_of_and_nobody_is_let_pass(store: Store) -> None:
    await store._kept.create("register/acts/00000001.json", b"{")

    with pytest.raises(StoreError, match="act 1 of the register is damaged"):
        await RegisterDesk(store).standing(WRITER)


class Counting:
    """A store that counts what it is asked."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.asked = 0
        self.broken = False

    async def acts(self, numbers: range) -> list[dict[str, Any]]:
        self.asked += 1
        if self.broken:
            raise StoreUnavailable("the store cannot be read")
        return await self._store.acts(numbers)


async def test_one_question_serves_all_calls_of_a_second(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(register_desk, "monotonic", lambda: now)
    counting = Counting(store)
    desk = RegisterDesk(counting)  # type: ignore[arg-type]

    await asyncio.gather(*(desk.standing(WRITER) for _ in range(50)))
    assert counting.asked == 1
    await Registers(store).add(Verb.DISABLED, "writer", "1", by="ana")
    now += 0.9
    assert (await desk.standing(WRITER)).may_work
    now += 0.2
    assert not (await desk.standing(WRITER)).may_work


async def test_a_store_that_does_not_answer_lets_nobody_pass(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(register_desk, "monotonic", lambda: now)
    counting = Counting(store)
    desk = RegisterDesk(counting)  # type: ignore[arg-type]
    await desk.standing(WRITER)

    counting.broken = True
    now += 2
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            await desk.standing(WRITER)

    counting.broken = False
    assert (await desk.standing(WRITER)).may_work


async def test_an_agent_of_a_plan_has_a_standing_of_its_own(store: Store) -> None:
    own = WRITER.of_a_plan()
    desk, ours = RegisterDesk(store), Registers(store)
    await ours.add(Verb.DISABLED, "writer", "1", by="ana")
    assert (await desk.standing(own)).may_work

    await ours.add(Verb.DISABLED, "writer", None, by="ana")
    assert not (await RegisterDesk(store).standing(own)).may_work
    await ours.add(Verb.ENABLED, "writer", own.pool.partition("@")[2], by="ana")

    assert (await RegisterDesk(store).standing(own)).may_work
    assert not (await RegisterDesk(store).standing(WRITER)).may_work


async def test_acts_of_another_time_zone_and_version_load(store: Store) -> None:
    """What a later version adds to an act's data is no reason to refuse it."""
    act = {"number": 1, "time": datetime.now(UTC).isoformat(), "by": "x", "verb": "disabled", "agent": "writer"}
    assert await store.put_act(1, {**act, "data": {"note": "why", "more": [1]}})

    assert not (await Registers(store).register()).standing("writer", "7").may_work
