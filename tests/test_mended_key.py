"""A key that was mended is picked up by `up`: the live worker and its keeper give way to ones that have it."""

from __future__ import annotations

import json
import os
import signal
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from time import sleep

import psutil
import pytest
from canaries import CANARIES
from home import Home

from embedded import Keeper, Worker, simulator_url
from fingerprint import fingerprint
from runtime import Mode, load_settings
from services import Service

OLD, NEW = f"{CANARIES['key']}-old", f"{CANARIES['key']}-new"
PLAN = "tasks: [{id: only, agent: writer, prompt: Say hello., timeout: 60s}]\n"
REPLACED = "The worker was started with another key: replaced."


class LiveHome(Home):
    """A home that pays the simulator of its own with the key in the environment."""

    @property
    def worker(self) -> Worker:
        return Worker(self.folder, Mode.LIVE)

    @property
    def keeper(self) -> Keeper:
        return Keeper(self.folder, Mode.LIVE)

    def in_flight(self) -> int:
        with urllib.request.urlopen(f"{self.url}/in-flight", timeout=10) as reply:
            return int(json.load(reply)["now"])

    def pids(self) -> tuple[int, int]:
        return self.pid(self.worker), self.pid(self.keeper)

    def pid(self, service: Service) -> int:
        state = service.find()
        assert state is not None, f"{service.name} is not up"
        return state.pid

    def keys(self) -> set[str]:
        return {psutil.Process(pid).environ()["ANTHROPIC_API_KEY"] for pid in self.pids()}


@pytest.fixture(scope="module")
def live_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveHome]:
    """A home that is up, with its simulator."""
    with LiveHome(tmp_path_factory.mktemp("live")) as home:
        yield home


@pytest.fixture
def live(live_home: LiveHome, monkeypatch: pytest.MonkeyPatch) -> LiveHome:
    """That home with a live worker that has the old key."""
    url = simulator_url(load_settings(live_home.folder))
    assert url is not None
    monkeypatch.setenv("ANTHROPIC_BASE_URL", url)
    monkeypatch.setenv("ANTHROPIC_API_KEY", OLD)
    assert live_home("up").returncode == 0
    live_home.script(ttft=0, tokens_per_second=0)
    return live_home


def until(condition: Callable[[], object]) -> None:
    while not condition():
        sleep(0.05)


def test_a_call_at_work_ends_with_the_old_key_and_the_next_one_has_the_new(
    live: LiveHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = live.pids()
    live.script({"when": {"task": "only"}, "then": {"ttft": 12}})
    (tmp_path / "plan.yaml").write_text(PLAN)
    run = live("submit", str(tmp_path / "plan.yaml")).stdout.strip()
    until(live.in_flight)
    monkeypatch.setenv("ANTHROPIC_API_KEY", NEW)

    up = live("up")

    assert up.returncode == 0, up.stderr
    assert up.stdout.splitlines()[0] == REPLACED
    assert not {*before} & {*live.pids()}
    assert live.keys() == {NEW}
    assert live("watch", run).returncode == 0
    assert len(live.calls(run)) == 1  # it was not cut off and paid again
    killed = live.pid(live.worker)
    os.kill(killed, signal.SIGKILL)
    until(lambda: (state := live.worker.find()) is not None and state.pid != killed)
    assert live.keys() == {NEW}


def test_the_same_key_or_none_changes_nothing(live: LiveHome, monkeypatch: pytest.MonkeyPatch) -> None:
    before = live.pids()

    assert REPLACED not in live("up").stdout
    assert REPLACED not in live("up", "--simulate").stdout
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    assert json.loads(live("up", "--json").stdout)["replaced"] == []

    assert live.pids() == before


@pytest.mark.parametrize(
    "change",
    [
        {"ANTHROPIC_API_KEY": "", "ANTHROPIC_AUTH_TOKEN": NEW},
        {"ANTHROPIC_BASE_URL": "http://127.0.0.1:1"},
    ],
)
def test_a_token_or_another_address_is_another_key(
    live: LiveHome, monkeypatch: pytest.MonkeyPatch, change: dict[str, str]
) -> None:
    for variable, value in change.items():
        monkeypatch.setenv(variable, value)

    up = json.loads(live("up", "--json").stdout)

    assert up["replaced"] == ["keeper-live", "worker-live"]
    assert {*up["replaced"]} <= {*up["started"]}
    has = psutil.Process(live.pid(live.worker)).environ()
    assert {variable: has[variable] for variable in change} == change


def test_a_run_leaves_a_worker_with_another_key_at_its_work(
    live: LiveHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two people may share a home: who only starts a run does not take the worker away from the other."""
    before = live.pids()
    monkeypatch.setenv("ANTHROPIC_API_KEY", NEW)
    (tmp_path / "plan.yaml").write_text(PLAN)

    assert live("run", str(tmp_path / "plan.yaml")).returncode == 0

    assert live.pids() == before


def test_nothing_that_a_home_keeps_or_shows_has_the_key_in_it(live: LiveHome, tmp_path: Path) -> None:
    """But every screen says who is asked, and paid."""
    (tmp_path / "plan.yaml").write_text(PLAN)
    assert live("run", str(tmp_path / "plan.yaml")).returncode == 0

    shown = live("status", "latest").stdout
    assert f"LIVE {os.environ['ANTHROPIC_BASE_URL'].removeprefix('http://')}" in shown
    assert not [path for path in live.folder.rglob("*") if CANARIES["key"].encode() in content_of(path)]
    assert not [word for pid in live.pids() for word in psutil.Process(pid).cmdline() if CANARIES["key"] in word]
    assert {mode for path in live.folder.glob("services/*") if (mode := mode_of(path)) is not None} == {0o600}


def content_of(path: Path) -> bytes:
    """What is in a file; nothing where it has just gone, as the files of a home do that is up."""
    try:
        return path.read_bytes() if path.is_file() else b""
    except FileNotFoundError:
        return b""


def mode_of(path: Path) -> int | None:
    try:
        return path.stat().st_mode & 0o777
    except FileNotFoundError:
        return None


def test_a_fingerprint_tells_keys_apart_in_one_home_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "a", "b":
        (tmp_path / name / "services").mkdir(parents=True)
    for variable in [name for name in os.environ if name.startswith("ANTHROPIC_")]:
        monkeypatch.delenv(variable)

    assert fingerprint(tmp_path / "a") is None
    monkeypatch.setenv("ANTHROPIC_API_KEY", OLD)
    first = fingerprint(tmp_path / "a")
    assert first == fingerprint(tmp_path / "a")
    assert first != fingerprint(tmp_path / "b")
    monkeypatch.setenv("ANTHROPIC_API_KEY", NEW)
    assert first != fingerprint(tmp_path / "a")
