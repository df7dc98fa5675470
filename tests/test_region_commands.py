"""A region as a person meets it: at submit, in `doctor`, and in the command that starts a worker there."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from processes import Done, Home, home_at, run

from runtime import ROOT

PLAN = """
name: mixed
agents: [{name: berliner, version: "1", model: claude-haiku-4-5, instructions: Do it., region: eu}]
tasks:
  - {id: here, agent: writer, prompt: Go.}
  - {id: there, agent: berliner, prompt: Go.}
"""


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[Home]:
    async with home_at(tmp_path / "home") as home:
        yield home


async def examined(home: Home) -> dict[str, dict[str, Any]]:
    found = json.loads((await home.starter("doctor", "--json")).stdout)
    return {check["name"]: check for check in found["checks"]}


async def test_a_region_that_nobody_works_for_is_told_and_the_remedy_mends_it(home: Home, tmp_path: Path) -> None:
    """The worker of a home is of no region, whatever the variable says that is there for containers."""
    plan = tmp_path / "plan.yaml"
    plan.write_text(PLAN, "utf-8")
    assert (await home.starter("up", NIGHTCREW_REGION="us")).code == 0

    submitted = await home.starter("submit", str(plan))
    id = submitted.stdout.strip()
    assert submitted.code == 0
    assert "Nobody works for the region eu yet (queue nightcrew-simulated@eu)" in submitted.stderr
    await home.until_called("here")
    found = (await examined(home))["worker, simulated, eu"]
    assert (found["state"], "nightcrew-simulated@eu" in found["what"]) == ("problem", True)
    command = found["remedy"].removeprefix("In that region: ")
    python, worker, *words = shlex.split(command)
    assert (Path(python).name, Path(worker).name) == ("python", "worker.py")
    assert command in submitted.stderr
    assert {call["task"] for call in home.calls()} == {"here"}

    async with home.worker(*words) as there:
        assert (await home.starter("result", id, "--wait")).code == 0
        task = json.loads((await home.starter("status", id, "there", "--json")).stdout)
        assert (task["status"], task["region"]) == ("SUCCEEDED", "eu")
        while (await examined(home)).get("worker, simulated, eu") is not None:
            pass  # until Temporal has closed the run, too, and nothing is open any more
        assert [line["task"] for line in there.lines() if line["event"] == "task_answered"] == ["there"]
        assert len(await home.banks()) == 1, "both have drawn from it"

        bound = await home.starter("run", str(plan), "--region", "eu", "--json")
        assert (bound.code, json.loads(bound.stdout)["region"]) == (0, "eu")
        answered = [line["task"] for line in there.lines() if line["event"] == "task_answered"]
        assert sorted(answered) == ["here", "there", "there"], "this one whole"
    assert [call["task"] for call in home.calls()].count("there") == 2


async def test_a_name_that_is_none(tmp_path: Path) -> None:
    """Nothing is started, so nothing needs to be up."""
    plan = tmp_path / "plan.yaml"
    plan.write_text(PLAN, "utf-8")

    async def say(program: str, *words: str, **environment: str) -> Done:
        return await run([sys.executable, str(ROOT / program), "--home", str(tmp_path / "home"), *words], environment)

    refused, elsewhere, resolved, started, contained = await asyncio.gather(
        say("starter.py", "submit", str(plan), "--region", "EU West"),
        say("starter.py", "validate", str(plan), "--region", "us"),
        say("starter.py", "validate", str(plan), "--region", "eu", "--resolved"),
        say("worker.py", "--region", "../eu"),
        say("worker.py", NIGHTCREW_REGION="EU"),
    )

    assert (refused.code, refused.stderr.startswith("--region 'EU West' must be lower-case letters")) == (2, True)
    assert (elsewhere.code, "its agent 'berliner' is bound to the region 'eu'" in elsewhere.stderr) == (2, True)
    assert (resolved.code, "  region: eu  (option)\n" in resolved.stdout) == (0, True)
    for done, name in (started, "'../eu'"), (contained, "'EU'"):
        assert (done.code, f"The region {name} (--region, or NIGHTCREW_REGION) must be" in done.stderr) == (1, True)
