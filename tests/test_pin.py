"""A run is pinned to its store: a worker on another one refuses it in a sentence, and the run goes on elsewhere."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from conftest import Bench
from temporalio.testing import ActivityEnvironment

from activities import pin
from activities.board import Board
from activities.contract import AgentRequest
from activities.pulse import Pulse
from domain.models import RunStatus, TaskStatus
from domain.registry import Registry
from runtime import dial
from simulator.server import Simulator
from store import open_store

PLAN = """
max_concurrency: 3
defaults: {agent: hand, attempts: 1}
tasks:
  - {id: part, for_each: [1, 2, 3, 4, 5, 6], prompt: Go.}
  - {id: whole, prompt: Go., needs: [part]}
"""


@pytest.fixture
async def stranger(
    bench: Bench, simulator: Simulator, registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Bench:
    """A worker on the same queue whose store is another folder."""
    monkeypatch.setattr(pin, "WAIT_FIRST", timedelta(milliseconds=300))
    temporal = await dial(bench.temporal.service_client.config.target_host)  # a client has one worker per queue
    other = Bench(temporal, simulator, registry, tmp_path / "other")
    other.queue = bench.queue
    return other


async def test_a_worker_on_another_store_fails_nothing_and_pays_nothing(bench: Bench, stranger: Bench) -> None:
    """The run waits and says why; on a worker with its store it goes on, and no attempt was used."""
    async with stranger.worker():
        run = await bench.start(PLAN)
        waiting = await run.until(lambda picture: picture.status is RunStatus.WAITING)
        wait = waiting.tasks["part[1]"].wait

    assert wait is not None
    assert wait.reason == "worker"
    assert "NIGHTCREW_STORE" in str(wait.what)
    assert await stranger.store.runs() == []
    assert bench.simulator.calls() == 0

    async with bench.worker():
        report = await run.report()

    assert report.status is RunStatus.COMPLETED
    assert {task.attempts for task in report.tasks} == {1}
    assert bench.simulator.calls() == len(report.tasks)


async def test_one_wrong_worker_among_right_ones_leaves_no_hole_in_the_log(bench: Bench, stranger: Bench) -> None:
    """Whatever it takes from the queue it hands back: the run completes while it is still there."""
    async with bench.worker(), stranger.worker():
        run = await bench.start(PLAN)
        report = await run.report()

    assert report.status is RunStatus.COMPLETED
    assert {task.status for task in report.tasks} == {TaskStatus.SUCCEEDED}
    events = await run.events()
    assert [event.number for event in events] == list(range(1, len(events) + 1))
    assert await stranger.store.runs() == []
    assert bench.simulator.calls() == len(report.tasks)


async def test_not_even_a_page_of_its_board_goes_to_the_wrong_store(tmp_path: Path) -> None:
    """A look at the pin may take long; what is at work is shown meanwhile, but only where the run is."""
    store = open_store(str(tmp_path))
    request = AgentRequest(run="run", chain="c", task="a", plan_ref="", timeout=timedelta(seconds=1), attempts=1)

    async def work() -> None:
        board = Board(store)
        async with board.attempt(request, Pulse()):
            await board._write_what_is_new()

    await ActivityEnvironment().run(work)
    assert await store.runs() == []

    await store.put_manifest("run", {"run": "run"})
    await ActivityEnvironment().run(work)
    assert len(await store.list_pages("run")) == 1


@pytest.mark.parametrize(
    ("location", "name"),
    [
        ("/home/somebody/store", "a folder"),
        ("file:///home/somebody/store", "a folder"),
        ("memory:///", "memory:///"),
        ("s3://bucket/crew", "s3://bucket/crew"),
        ("https://user:secret@host:9000/bucket?token=secret", "https://host:9000/bucket"),
    ],
)
async def test_a_store_is_named_without_secrets_and_paths(tmp_path: Path, location: str, name: str) -> None:
    store = open_store(str(tmp_path))

    assert type(store)(store.objects, location).name == name
