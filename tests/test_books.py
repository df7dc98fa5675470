"""Whoever was held up on its way to a call finds out, at the last moment, that there is nothing to ask for."""

from __future__ import annotations

import asyncio
from pathlib import Path

from conftest import eventually
from doorway import Doorway, opened

from books import Books
from domain.models import Answered, Stopped, Usage
from simulator.server import Simulator
from store import open_store


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
