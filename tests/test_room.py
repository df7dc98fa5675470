"""Room on the disk of the store: nothing is paid for that could not be kept (B2)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from conftest import Bench
from doorway import opened
from temporalio.client import Client

from activities import room
from activities.room import RESERVE, Room
from domain import barriers
from domain.models import Parked, RunStatus, TaskStatus
from domain.registry import Registry
from runtime import load_settings
from simulator import Simulator
from store import open_store

RUN = """
name: full
max_concurrency: 4
defaults: {agent: hand}
tasks:
  - {id: work, for_each: [1, 2, 3, 4, 5, 6], prompt: Go.}
  - {id: last, needs: [work], prompt: Sum up.}
"""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 16 MB, as real as one can be."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", disk], check=False)  # noqa: S607
    if mounted.returncode != 0:
        pytest.skip("nothing can be mounted here")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", disk], check=True)  # noqa: S607


@pytest.fixture(autouse=True)
def looks_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "FRESH", 0.0)


def fill(disk: Path, leave: int) -> Path:
    """A file that leaves so many bytes of a disk."""
    ballast = disk / "ballast"
    ballast.write_bytes(bytes(max(0, room.free_bytes(disk) - leave)))
    return ballast


@pytest.mark.parametrize("leave", [0, 4_000_000])
async def test_below_the_reserve_no_call_is_made_and_with_room_it_is(
    simulator: Simulator, small_disk: Path, leave: int
) -> None:
    """On a disk that is full to the last byte, and on one that only has less than must be left."""
    store = open_store(str(small_disk / "store"))
    async with opened(store, simulator.url, reserve=8_000_000) as door:
        ballast = fill(small_disk, leave)

        parked = [await door.parked(task, probe=probe) for task, probe in (("a", False), ("b", True), ("other", False))]

        assert {(found.why, found.wall, found.until, found.tries) for found in parked} == {("wall", "disk", None, ())}
        assert "less than 8 MB free" in parked[0].what
        assert "make room" in parked[0].what
        assert str(small_disk) not in parked[0].what
        assert simulator.calls() == 0
        assert not (small_disk / "store" / "ledger").exists(), "nobody intends what he does not do"

        ballast.unlink()
        answered = await door.answered("a")

    assert (answered.attempts, simulator.calls()) == (1, 1)


async def test_what_was_answered_before_needs_no_room(simulator: Simulator, small_disk: Path) -> None:
    """A2: the ledger is asked first."""
    async with opened(open_store(str(small_disk / "store")), simulator.url, reserve=8_000_000) as door:
        await door.answered("a")
        fill(small_disk, 1_000_000)

        again = await door.answered("a", attempt=2)

    assert (again.attempts, simulator.calls()) == (1, 1)


async def test_a_bucket_has_no_disk(simulator: Simulator, bucket: str) -> None:
    async with opened(open_store(bucket), simulator.url, reserve=10**18) as door:
        await door.answered("a")


async def test_the_disk_is_not_asked_for_every_call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(room, "FRESH", 1.0)
    asked: list[float] = []
    now = [100.0]
    monkeypatch.setattr(room, "monotonic", lambda: now[0])

    def five_bytes(_: Path) -> int:
        asked.append(now[0])
        return 5

    monkeypatch.setattr(room, "free_bytes", five_bytes)
    looks = Room(tmp_path, reserve=6)

    for now[0] in 100.0, 100.5, 100.9, 101.0, 101.5:
        assert isinstance(await looks.wall(), Parked)

    assert asked == [100.0, 101.0]


async def test_a_folder_that_is_gone_is_told_of_by_whoever_writes_there(tmp_path: Path) -> None:
    assert await Room(tmp_path / "gone").wall() is None


def test_the_setting_and_the_door_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_settings(tmp_path).reserve_mb * 1_000_000 == RESERVE
    monkeypatch.setenv("NIGHTCREW_RESERVE_MB", "7")
    assert load_settings(tmp_path).reserve_mb == 7


# --- a run ---


@pytest.fixture
async def crew_on_a_small_disk(
    temporal: Client, simulator: Simulator, registry: Registry, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Bench]:
    monkeypatch.setattr(barriers, "PROBE_FIRST", timedelta(seconds=1))
    monkeypatch.setattr(barriers, "PROBE_LAST_DISK", timedelta(seconds=1))
    bench = Bench(temporal, simulator, registry, small_disk)
    async with bench.worker(reserve=8_000_000):
        yield bench


async def test_a_run_waits_for_room_and_goes_on_by_itself(crew_on_a_small_disk: Bench, small_disk: Path) -> None:
    """Nothing is asked while it waits, however often it looks; then each call is paid once, and no attempt is lost."""
    bench, ballast = crew_on_a_small_disk, fill(small_disk, 4_000_000)
    run = await bench.start(RUN)

    waiting = await run.until(lambda picture: picture.status is RunStatus.WAITING and bool(picture.walls))

    (wall,) = waiting.walls.values()
    assert (wall.kind, bench.simulator.calls()) == ("disk", 0)
    (asked,) = waiting.attention
    assert asked.do == f"make room on the disk of the store, then retry {run.id}"
    await run.until(lambda picture: any(wall.probe for wall in picture.walls.values()))  # it was looked at once more
    assert bench.simulator.calls() == 0

    ballast.unlink()
    report = await run.report()

    assert (report.status, bench.simulator.calls()) == (RunStatus.COMPLETED, 7)
    assert {(task.status, task.attempts) for task in report.tasks} == {(TaskStatus.SUCCEEDED, 1)}
