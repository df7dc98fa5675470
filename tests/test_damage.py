"""Damage in the store: a clear end, nothing wrong is used, nothing is paid for it, and it can be done again (F13)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import obstore
import pytest
from conftest import Bench
from doorway import opened
from temporalio.exceptions import ApplicationError

from domain.models import TaskStatus, ref_of
from simulator import Simulator
from store import Store, open_store

CHAIN = """
name: chain
defaults: {agent: hand}
tasks:
  - {id: first, prompt: Begin.}
  - {id: pause, needs: [first], approval: true, prompt: Go on.}
"""
DAMAGE = [b"", b"{", b'{"text_ref": "../../x", "usage": {}, "stop_reason": "end_turn"}', b"\x00" * 99]


async def entries(store: Store, name: str) -> list[str]:
    found = [str(each["path"]) async for batch in obstore.list(store.objects, "ledger/") for each in batch]
    return [key for key in found if name in key]


async def put(store: Store, key: str, content: bytes) -> None:
    await obstore.put_async(store.objects, key, content, use_multipart=False)


@pytest.mark.parametrize("damage", DAMAGE[1:])
async def test_an_answer_that_is_damaged_ends_the_task_and_is_not_asked_again_by_itself(
    simulator: Simulator, store: Store, damage: bytes
) -> None:
    """Its next round asks anew."""
    async with opened(store, simulator.url) as door:
        await door.answered("a")
        (entry,) = await entries(store, "completion")
        await put(store, entry, damage)

        with pytest.raises(ApplicationError, match=r"nothing of it is used.*`retry`") as told:
            await door.ask("a", attempt=2)

        assert (told.value.type, told.value.non_retryable, simulator.calls()) == ("StoreError", True, 1)
        await door.answered("a", step=2)
        assert simulator.calls() == 2


async def test_an_answer_that_a_power_cut_left_empty_was_never_acknowledged(simulator: Simulator, store: Store) -> None:
    """It is asked again, and its successor is found."""
    async with opened(store, simulator.url) as door:
        await door.answered("a")
        (entry,) = await entries(store, "completion")
        await put(store, entry, b"")

        second, third = await door.answered("a", attempt=2), await door.answered("a", attempt=3)

    assert (second.output_ref, simulator.calls()) == (third.output_ref, 2)


async def test_an_intent_that_is_damaged_changes_no_answer_and_counts_at_its_worst(
    simulator: Simulator, store: Store
) -> None:
    async with opened(store, simulator.url) as door:
        simulator.script([{"when": {"nth": 1}, "then": {"fault": "api_error"}}])
        await door.failed("a")
        for name in "intent-1", "setback-1":
            (entry,) = await entries(store, name)
            await put(store, entry, b"\x00")

        answered = await door.answered("a", attempt=2)

    (told,) = answered.tries
    assert (told.error.type, told.unsettled.output) == ("EntryDamaged", 300)
    assert simulator.calls() == 2


async def test_of_two_workers_who_both_paid_the_second_uses_the_answer_of_the_first(
    simulator: Simulator, store: Store
) -> None:
    """A frozen worker and its successor. What the second has paid is told, to the token."""
    simulator.script(
        [
            {"when": {"nth": 1}, "then": {"answer": "The word of the one who was slow.", "ttft": 5}},
            {"then": {"answer": "The first word."}},
        ]
    )
    async with opened(store, simulator.url) as slow, opened(store, simulator.url) as quick:
        late = asyncio.create_task(slow.answered("a", start="before"))
        await simulator.until(lambda: simulator.calls() == 1)

        first, second = await quick.answered("a", attempt=2), await late

    assert first.output_ref == second.output_ref == ref_of(b"The first word.")
    assert first.usage == second.usage
    (paid,) = second.tries
    assert (paid.error.type, paid.unsettled.output) == ("Overtaken", 0)
    assert paid.usage.output == simulator.log[0].billed.output != second.usage.output


@pytest.mark.parametrize("damage", ["gone", "changed"])
async def test_a_result_that_is_damaged_is_given_to_nobody(
    crew: Bench, simulator: Simulator, tmp_path: Path, damage: str
) -> None:
    """The task that needs it fails and says which, and the report of all others can be read."""
    run = await crew.start(CHAIN)
    picture = await run.until(lambda picture: bool(picture.attention))
    ref = picture.tasks["first"].output_ref
    assert ref is not None
    digest = ref.removeprefix("sha256:")
    file = Path(crew.store.location) / "artifacts" / digest[:2] / digest
    content = file.read_bytes()
    file.unlink() if damage == "gone" else file.write_bytes(bytes([content[0] ^ 1]) + content[1:])

    await crew.client.approve(run.id, ("pause",), by="test")
    report = await run.report()

    first, failed = report.tasks
    assert (first.status, first.output, first.output_ref) == (TaskStatus.SUCCEEDED, None, ref)
    assert (failed.status, failed.error and failed.error.type) == (TaskStatus.FAILED, "StoreError")
    assert failed.error is not None
    assert "the result of task 'first'" in failed.error.message
    assert simulator.calls() == 1


def test_a_store_knows_whether_it_is_on_a_disk(tmp_path: Path) -> None:
    assert open_store(str(tmp_path)).folder == tmp_path
    assert open_store(tmp_path.as_uri()).folder == tmp_path
    assert open_store("s3://bucket/path").folder is None
