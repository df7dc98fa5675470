"""A home on a disk that is full, or cannot be written: refused in a sentence, nothing lost, nothing paid twice."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
from processes import Home

import database
from embedded import all_services, down
from runtime import load_settings

PLAN = """
name: full
max_concurrency: 2
tasks:
  - {id: work, agent: writer, for_each: [1, 2, 3, 4], prompt: Go.}
  - {id: asked, agent: writer, needs: [work], approval: true, prompt: Go on.}
"""
SMALL = {"NIGHTCREW_RESERVE_MB": "20"}


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[Home]:
    """A home on a disk of its own, of 96 MB."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=96m", "tmpfs", disk], check=False)  # noqa: S607, ASYNC221
    if mounted.returncode != 0:
        pytest.skip("nothing can be mounted here")
    home = Home(load_settings(disk / "home"))
    try:
        yield home
    finally:
        await remount(disk, "rw")
        await down(home.settings)
        subprocess.run(["umount", "-l", disk], check=True)  # noqa: S607, ASYNC221


async def remount(disk: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", disk], check=True)  # noqa: S607, ASYNC221


def plan(folder: Path) -> str:
    file = folder / "plan.yaml"
    file.write_text(PLAN)
    return str(file)


def fill_up(ballast: Path) -> None:
    """Write until nothing more can be written."""
    with suppress(OSError), ballast.open("ab", buffering=0) as filler:
        while True:
            filler.write(bytes(4096))


async def test_on_a_full_disk_no_run_is_begun_and_open_ones_go_on_with_room(home: Home, tmp_path: Path) -> None:
    """B1: to the last byte, under a server that writes. The database is sound after it, and each call was paid once."""
    file = plan(tmp_path)
    assert (await home.starter("submit", file, "--id", "open", **SMALL)).code == 0
    while '"WAITING"' not in (await home.starter("status", "open", "--json")).stdout:
        pass
    ballast = home.folder.parent / "ballast"
    with ballast.open("wb") as filler:
        filler.write(bytes(max(0, shutil.disk_usage(home.folder).free - 10_000_000)))

    refused = await home.starter("submit", file, "--id", "new", **SMALL)
    asked = await home.starter("run", file, "--json", **SMALL)
    fill_up(ballast)
    full = await home.starter("submit", file, "--id", "new", **SMALL)
    told = await home.starter("doctor", **SMALL)
    ballast.unlink()
    approved = await home.starter("approve", "open", "asked", **SMALL)
    ended = await home.starter("result", "open", "--wait", "--json", **SMALL)

    assert (refused.code, asked.code, full.code, told.code) == (1, 1, 1, 1)
    assert "MB are free on the disk of the home" in refused.stderr
    assert "Nothing was started" in refused.stderr
    assert json.loads(asked.stdout)["error"]["code"] == "no_room"
    assert "Traceback" not in full.stderr + told.stderr
    assert (approved.code, ended.code) == (0, 0), approved.stderr
    assert sorted(call["task"] for call in home.calls()) == ["asked", "work[1]", "work[2]", "work[3]", "work[4]"]
    assert [path.name for path in (home.folder / "store" / "runs").iterdir()] == ["open"]
    await home.starter("down")
    assert database.why_damaged(home.folder / database.NAME, thorough=True) is None


async def test_a_home_that_cannot_be_written_says_so_and_starts_nothing(home: Home, tmp_path: Path) -> None:
    """B9. What can be read is read."""
    file = plan(tmp_path)
    assert (await home.starter("submit", file, "--id", "open", **SMALL)).code == 0
    assert (await home.starter("down")).code == 0
    await remount(home.folder.parent, "ro")

    for words in ("up",), ("submit", file), ("run", file), ("restore", file):
        told = await home.starter(*words, **SMALL)
        assert (told.code, "Traceback" in told.stderr) == (1, False), (words, told.stdout, told.stderr)
        assert "Read-only file system" in told.stderr or "not empty" in told.stderr, (words, told.stderr)
    listed = await home.starter("list", "--json")

    assert '"open"' in listed.stdout
    assert not any(service.is_held() for service in all_services(home.folder))
