"""Deploying while runs are going: changed code goes to work only where every open run can go on with it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from processes import NOTHING, Home, home_at, lines_of, tree_with

from client import RunClient
from domain.models import RunStatus
from edition import edition
from embedded import all_services, down, find_server, up
from runtime import CannotDo, connect
from server_version import check_server, note_server, version_of
from store import open_store
from temporal_server import temporal_binary

PLAN = """
name: deployed
defaults: {agent: writer, timeout: 60s}
tasks:
  - {id: first, prompt: Go.}
  - {id: held, prompt: Go., needs: [first], approval: true}
"""
ONE = "name: one\ntasks: [{id: only, agent: writer, prompt: Go.}]\n"

STORY = "        self._begin()\n        while True:\n"
ANOTHER_STORY = (STORY, f"        await asyncio.sleep(1)\n{STORY}")
"""Other commands: no history of before replays with it."""

MADE = "        self._input = input\n        self._run = workflow.info().workflow_id\n"
BROKEN = (MADE, '        raise KeyError("a bug that stalls")\n')
"""Whatever runs with it stands still: an exception where the workflow is made reaches no boundary of ours."""


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tree_with(tmp_path_factory.mktemp("trees") / "changed", "workflows/supervisor.py", ANOTHER_STORY)


@pytest.fixture(scope="module")
def harmless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    edit = ('"""One run: start what may start', '"""One run, said otherwise: start what may start')
    return tree_with(tmp_path_factory.mktemp("trees") / "harmless", "workflows/supervisor.py", edit)


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tree_with(tmp_path_factory.mktemp("trees") / "broken", "workflows/supervisor.py", BROKEN)


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[Home]:
    async with home_at(tmp_path / "home") as home:
        yield home


async def waiting(home: Home, environment: Mapping[str, str] = NOTHING) -> str:
    """A run that waits for a person, with what it has done behind it."""
    run = await home.submit(PLAN, environment)
    client = RunClient(await connect(home.settings), open_store(home.settings.store))
    while (await client.picture(run)).status is not RunStatus.WAITING:
        await asyncio.sleep(0.1)
    return run


def test_an_edition_is_the_workflow_code_and_nothing_else(tmp_path: Path) -> None:
    same = tree_with(tmp_path / "same", "terminal/words.py", ('"""The words of the', '"""Words of the'))
    other = tree_with(tmp_path / "other", "domain/places.py", ("from __future__", "# other\nfrom __future__"))

    assert edition(same) == edition()
    assert edition(other) != edition()


# One machine


async def test_up_refuses_code_that_an_open_run_does_not_replay_with(home: Home, changed: Path) -> None:
    """In a sentence that names the run; nothing is left running. The old code goes on as if nothing had been."""
    assert (await home.starter("up")).code == 0
    run = await waiting(home)
    assert (await home.starter("down")).code == 0

    refused = await home.of(changed).starter("up")

    assert (refused.code, refused.stdout) == (1, "")
    for words in [repr(run), "does not replay", "TMPRL1100", "Go back to the version", f"cancel {run}", "--anyway"]:
        assert words in refused.stderr
    assert "Traceback" not in refused.stderr
    assert not any(service.is_held() for service in all_services(home.folder))
    back = await home.starter("up")
    assert (back.code, f"goes on: {run}" in back.stdout) == (0, True), back.stderr
    assert (await home.starter("approve", run, "held")).code == 0
    assert (await home.ended(run))["status"] == "COMPLETED"
    assert [call["task"] for call in home.calls()] == ["held"], "in this life of the simulator"


async def test_code_that_replays_starts_and_is_remembered(home: Home, harmless: Path) -> None:
    def rehearsed() -> list[dict[str, Any]]:
        return [line for line in home.lines() if line["event"] == "rehearsed"]

    assert (await home.starter("up")).code == 0
    run = await waiting(home)
    await home.starter("down")
    assert rehearsed() == [], "there was nothing open"

    for _ in range(2):
        again = await home.of(harmless).starter("up")
        assert (again.code, f"goes on: {run}" in again.stdout) == (0, True), again.stderr
        await home.starter("down")

    (said,) = rehearsed()
    assert (said["open"], said["replayed"], said["left"]) == (2, 2, 0), "the run and the bank"


async def test_a_bad_deploy_that_was_wanted_heals_by_going_back(home: Home, changed: Path) -> None:
    """With --anyway it starts, the run stands still, and loses nothing."""
    assert (await home.starter("up")).code == 0
    run = await waiting(home)
    await home.starter("down")

    assert (await home.of(changed).starter("up", "--anyway")).code == 0
    approving = asyncio.create_task(home.starter("approve", run, "held"))
    while not any("Failing workflow task" in line["event"] for line in home.lines()):
        await asyncio.sleep(0.1)
    assert (await home.starter("down")).code == 0
    assert (await home.starter("up")).code == 0

    if (await approving).code != 0:  # it has waited for its answer for as long as it does, and cannot know who has it
        await home.starter("approve", run, "held")  # refused where it was heard; how the run ends tells
    assert (await home.ended(run))["status"] == "COMPLETED"


async def test_a_version_for_one_machine_is_refused(home: Home) -> None:
    done = await home.starter("up", NIGHTCREW_BUILD_ID="v1")

    assert done.code == 1
    assert "unset the variable here" in done.stderr
    assert "last lines" not in done.stderr


# A Temporal that several versions share


Rows = list[dict[str, Any]]


async def table_when(home: Home, there: Mapping[str, str], true: Callable[[Rows], bool]) -> Rows:
    """The table of the versions as soon as this is true of it: Temporal's list may be a moment behind."""
    rows: Rows = []
    while not rows or not true(rows):
        rows = json.loads((await home.starter("workers", "--json", **there)).stdout)["versions"]
    return rows


async def test_two_versions_side_by_side(home: Home, changed: Path) -> None:
    """A run stays with its version while new ones go to the next, and that is not retired too early."""
    server = find_server(home.folder)
    assert server is not None
    there = {"TEMPORAL_ADDRESS": server.address}
    async with home.worker(**there, NIGHTCREW_BUILD_ID="v1") as old:
        run = await waiting(home, there)
        async with home.of(changed).worker(**there, NIGHTCREW_BUILD_ID="v2") as new:
            assert any(line["event"] == "worker_is_not_current" for line in new.lines())
            promoted = await home.starter("workers", "promote", "v2", **there)
            assert promoted.code == 0, promoted.stderr
            other = await home.submit(ONE, there)
            assert (await home.starter("result", other, "--wait", **there)).code == 0

            early = await home.starter("workers", "retire", "v1", **there)
            assert early.code == 1
            assert "1 run of version 'v1'" in early.stderr
            table = await table_when(
                home, there, lambda rows: all(row["open_runs"] == 0 for row in rows if row["current"])
            )
            assert {row["version"]: (row["current"], row["open_runs"]) for row in table} == {
                "v1": (False, 1),
                "v2": (True, 0),
            }
            assert {row["version"]: len(row["workers"]) for row in table} == {"v1": 1, "v2": 1}

            assert (await home.starter("approve", run, "held", **there)).code == 0
            assert (await home.starter("result", run, "--wait", **there)).code == 0
            await table_when(home, there, lambda rows: not any(row["open_runs"] or row["open_tasks"] for row in rows))
            retired = await home.starter("workers", "retire", "v1", **there)
            assert (retired.code, "stop its 1 worker" in retired.stdout) == (0, True), retired.stderr
            assert old.process.returncode is None
    assert {line["run"] for line in lines_of(new.log) if line["event"] == "run_started"} == {other}
    assert {line["run"] for line in lines_of(old.log) if line["event"] == "run_started"} == {run}


async def test_a_bad_version_is_rolled_back(home: Home, broken: Path) -> None:
    """A run that began on it has done nothing yet, and goes to the version that is promoted again."""
    server = find_server(home.folder)
    assert server is not None
    there = {"TEMPORAL_ADDRESS": server.address}
    good = home.worker(**there, NIGHTCREW_BUILD_ID="good")
    async with good, home.of(broken).worker(**there, NIGHTCREW_BUILD_ID="bad") as bad:
        assert (await home.starter("workers", "promote", "bad", **there)).code == 0
        run = await home.submit(ONE, there)
        while "Failed activation" not in bad.log.read_text("utf-8"):
            await asyncio.sleep(0.1)

        assert (await home.starter("workers", "promote", "good", **there)).code == 0

        assert (await home.starter("result", run, "--wait", **there)).code == 0
    assert [call["task"] for call in home.calls()] == ["only"]


async def test_a_version_that_is_not_there(home: Home) -> None:
    done = await home.starter("workers", "retire", "v9")
    wrong = await home.starter("workers", "dismiss", "v9")

    assert (done.code, wrong.code) == (2, 2)
    assert "There is no version 'v9'" in done.stderr


# Another server


@pytest.fixture
def newer(tmp_path: Path) -> str:
    """A command that says it is another version of the server, and is none."""
    command = tmp_path / "temporal"
    command.write_text('#!/bin/sh\necho "temporal version 9.9.9 (Server 9.32.0, UI 2.0.0)"\n')
    command.chmod(0o755)
    return str(command)


async def test_another_server_waits_until_no_run_is_open(home: Home, newer: str) -> None:
    """The server was killed: what it had written last is still beside its database."""
    run = await home.submit(ONE)
    server = find_server(home.folder)
    assert server is not None
    await down(home.settings)

    with pytest.raises(CannotDo, match=rf"changed from {server.version} to 9.32.0, and 1 run is open in this home"):
        check_server(home.folder, newer)
    check_server(home.folder, temporal_binary())
    check_server(home.folder, newer, anyway=True)
    note_server(home.folder, "9.32.0")

    with pytest.raises(CannotDo, match=r"changed from 9\.32\.0"):
        await up(home.settings, worker=False, simulator=False)
    await up(home.settings, worker=False, anyway=True)
    assert run in (await home.starter("list")).stdout


def test_what_a_command_says_of_its_server(newer: str, tmp_path: Path) -> None:
    silent = tmp_path / "silent"
    silent.write_text("#!/bin/sh\necho nothing\n")
    silent.chmod(0o755)

    assert version_of(newer) == "9.32.0"
    assert version_of(temporal_binary()) is not None
    assert version_of(str(silent)) is None
