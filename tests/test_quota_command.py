"""`quota` as a process: what it shows while a run draws, and what it says when there is nobody to ask."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Bench, eventually, granted
from home import Home

from activities.teller import BankTeller
from domain.quota.words import Ask
from embedded import Keeper, Worker
from quotas import find_banks
from runtime import Mode

ONE = "tasks: [{id: only, agent: writer, prompt: Say hello.}]\n"
MANY = f"""
name: crowd
max_concurrency: 22
tasks:
  - {{id: part, agent: writer, for_each: {[*range(60)]}, prompt: Go.}}
"""
TIGHT = {"requests": 30, "output_tokens": 60_000, "burst": 0.2}


def shown(home: Home, true: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The quota of the simulated mode as soon as something is true of it. The time limit is that of the test."""
    while True:
        document = json.loads(home("quota", "--json").stdout)
        if "error" in document:
            continue  # no bank has answered in its three seconds
        assert next(iter(document)) == "schema"
        for bank in document["banks"]:
            if bank["mode"] == "simulated" and bank["answered"] and true(bank["quota"]):
                return {**bank, **bank["quota"]}


def waits(quota: dict[str, Any]) -> bool:
    """Whether limits are known, and calls wait for them."""
    lane = quota["lanes"].get("sonnet-5")
    return bool(lane and lane["limits"]) and any(worker["waiting"] for worker in quota["workers"].values())


def modes(shown: str) -> list[str]:
    """Of the banks that are shown."""
    return [line.split()[1] for line in shown.splitlines() if line.startswith("default ")]


def answered(home: Home, banks: int = 1) -> subprocess.CompletedProcess[str]:
    """What `quota` shows as soon as so many banks answer: it gives them three seconds, and a busy machine may not."""
    while (done := home("quota")).returncode or len(modes(done.stdout)) < banks:
        pass
    return done


def test_of_a_home_that_is_down_nothing_is_started(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")

    done, document = home("quota"), home("quota", "--json")

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("This home is not up, so nothing draws on a quota.")
    assert done.stderr.endswith(f"starter.py --home {home.folder} up` starts it.\n")
    assert json.loads(document.stdout)["error"]["code"] == "not_up"
    assert not home.folder.exists()


def test_without_a_bank_and_without_a_worker_it_says_so(tmp_path: Path) -> None:
    with Home(tmp_path) as home:
        before = home("quota")
        assert (before.returncode, before.stderr) == (0, "")
        assert before.stdout.startswith("There is nothing to show of account 'default': its bank opens")
        assert json.loads(home("quota", "--json").stdout) == {"schema": "nightcrew.quota/1", "banks": []}

        assert home("run", "-", input=ONE).returncode == 0
        for service in Keeper(tmp_path, Mode.SIMULATED), Worker(tmp_path, Mode.SIMULATED):
            state = service.find()
            assert state is not None
            os.kill(state.pid, signal.SIGKILL)
            while service.find():
                pass

        done = home("quota")

        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith("No worker answered for quota:default@nightcrew-simulated within 3 s. ")
        assert "up` starts one" in done.stderr


def test_it_shows_limits_use_workers_and_who_waits(home: Home) -> None:
    home.script(ttft=0, tokens_per_second=0, limits=TIGHT)
    run = home("submit", "-", input=MANY).stdout.strip()
    try:
        document = shown(home, waits)
        done = answered(home)
    finally:
        home("cancel", run)

    names = ("account", "mode", "workflow", "answered", "headroom")
    assert [document[name] for name in names] == [
        "default",
        "simulated",
        "quota:default@nightcrew-simulated",
        True,
        0.1,
    ]
    lane = document["lanes"]["sonnet-5"]
    assert lane["source"] == "provider"
    assert {name: (seen["limit"], seen["ours"]) for name, seen in lane["limits"].items()} == {
        "requests": (30, 27),
        "output_tokens": (60_000, 54_000),
    }
    (worker,) = document["workers"].values()
    assert worker["draws"] > 0
    assert worker["runs"].keys() == {run}
    for words in (
        "default SIMULATED  10% headroom",
        "limits learned from the provider",
        "requests",
        "54,000",
        next(iter(document["workers"])),
        "writer",
    ):
        assert words in done.stdout
    assert "input tokens" not in done.stdout, "there is no such limit"


def test_a_narrow_terminal_has_room_for_it(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.script(ttft=0, tokens_per_second=0, limits={"requests": 6000})
    assert home("run", "-", input=ONE).returncode == 0
    monkeypatch.setenv("COLUMNS", "40")

    done = answered(home)

    assert "ours" in done.stdout
    assert "left" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 40


def test_each_mode_has_a_bank_of_its_own(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    assert home("run", "-", input=ONE).returncode == 0
    with monkeypatch.context() as live:
        live.setenv("ANTHROPIC_API_KEY", "a-key")
        live.setenv("ANTHROPIC_BASE_URL", home.url)
        assert home("run", "-", input=ONE).returncode == 0
    alone = answered(home)  # the run has stopped the worker that it had started
    assert modes(alone.stdout) == ["SIMULATED"]
    assert alone.stderr.startswith("No worker answered for quota:default@nightcrew within 3 s. ")

    with monkeypatch.context() as live:
        live.setenv("ANTHROPIC_API_KEY", "a-key")
        live.setenv("ANTHROPIC_BASE_URL", home.url)
        assert home("up").returncode == 0

    both = answered(home, banks=2)
    assert (modes(both.stdout), both.stderr) == (["SIMULATED", "LIVE"], "")


async def test_banks_of_other_accounts_are_found_until_they_are_over(crew: Bench) -> None:
    teller = BankTeller(crew.temporal, account="other", queue=crew.queue)
    await granted(teller, Ask(worker="w", number=1, clock=0, hold=1))

    async def found(account: str) -> set[str]:
        banks = await find_banks(crew.temporal, account, [crew.queue])
        return {bank.workflow for bank in banks if bank.view is not None and bank.queue == crew.queue}

    async def is_found() -> bool:
        return await found("mine") == {f"quota:other@{crew.queue}"}

    await eventually(is_found)
    await crew.temporal.get_workflow_handle(f"quota:other@{crew.queue}").terminate()

    assert await found("other") == set(), "the next call begins a new one"
