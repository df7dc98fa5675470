"""`doctor`: each thing that can be wrong is found, and the remedy that is printed mends it."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from bucket import BUCKET, CARELESS, credentials
from home import ROOT, STARTER, Home

from embedded import Worker, down, up
from ports import choose_ports, listens
from runtime import Mode, load_settings
from store import StoreUnavailable, open_store
from temporal_server import temporal_binary


def examined(home: Path, **environment: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """The exit code, and what each check found."""
    command = [*STARTER, "--home", str(home), "doctor", "--json"]
    done = subprocess.run(
        command, env={**os.environ, **environment}, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.stdout, done.stderr
    return done.returncode, {check["name"]: check for check in json.loads(done.stdout)["checks"]}


def has_its_namespace(address: str) -> bool:
    """Whether a server has come so far: it listens a moment before."""
    command = [temporal_binary(), "operator", "namespace", "describe", "--namespace", "default", "--address", address]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@contextmanager
def bare_server(folder: Path) -> Iterator[str]:
    """The address of a Temporal that nobody has prepared for us."""
    ports = choose_ports(folder / "ports.json", ("grpc", "http", "metrics"))
    words = ["server", "start-dev", "--headless", "--log-level", "error", "--port", str(ports["grpc"])]
    words += ["--http-port", str(ports["http"]), "--metrics-port", str(ports["metrics"])]
    server = subprocess.Popen([temporal_binary(), *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        address = f"127.0.0.1:{ports['grpc']}"
        while not (listens(ports["grpc"]) and has_its_namespace(address)):
            assert server.poll() is None
            time.sleep(0.2)
        yield address
    finally:
        server.kill()
        server.wait()


def test_a_home_that_is_not_up_has_no_server(tmp_path: Path) -> None:
    code, found = examined(tmp_path / "home")

    assert (code, found["temporal"]["state"]) == (1, "problem")
    assert "not up" in found["temporal"]["what"]
    assert found["temporal"]["remedy"].endswith(" up")
    assert not (tmp_path / "home").exists(), "looking makes nothing"


def test_a_wrong_address_is_named(tmp_path: Path) -> None:
    code, found = examined(tmp_path, TEMPORAL_ADDRESS="127.0.0.1:1")

    assert (code, found["temporal"]["state"]) == (1, "problem")
    assert "127.0.0.1:1" in found["temporal"]["what"]
    assert "TEMPORAL_ADDRESS" in found["temporal"]["remedy"]


def test_a_server_without_a_worker(tmp_path: Path) -> None:
    home = Home(tmp_path)
    assert home("up").returncode == 0
    try:
        code, found = examined(tmp_path)
        assert code == 0, found
        assert found["worker, simulated"]["state"] == "ok"
        keeper = json.loads((tmp_path / "services" / "keeper-simulated.json").read_text())["pid"]
        worker = Worker(tmp_path, Mode.SIMULATED).find()
        assert worker is not None
        for pid in (keeper, worker.pid):
            os.kill(pid, signal.SIGKILL)
        while Worker(tmp_path, Mode.SIMULATED).find():
            time.sleep(0.05)

        code, found = examined(tmp_path)

        assert (code, found["worker, simulated"]["state"]) == (1, "problem")
        remedy = shlex.split(found["worker, simulated"]["remedy"])
        assert subprocess.run([sys.executable, *remedy], cwd=ROOT, capture_output=True, check=False).returncode == 0
        assert examined(tmp_path)[0] == 0
    finally:
        home("down")


def test_what_a_namespace_lacks_is_found_and_the_printed_commands_mend_it(tmp_path: Path) -> None:
    with bare_server(tmp_path) as address:
        code, found = examined(tmp_path / "home", TEMPORAL_ADDRESS=address)

        assert code == 1
        assert {name for name, check in found.items() if check["state"] == "problem"} == {
            "retention",
            "search attributes",
            "worker, simulated",
        }
        for name in "retention", "search attributes":
            subprocess.run(shlex.split(found[name]["remedy"]), check=True, capture_output=True)

        _, found = examined(tmp_path / "home", TEMPORAL_ADDRESS=address)

        assert [found[name]["state"] for name in ("retention", "search attributes")] == ["ok", "ok"]


def test_a_home_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    code, found = examined(tmp_path / "file")

    assert (code, found["home"]["state"]) == (1, "problem")
    assert "--home" in found["home"]["remedy"]


@pytest.mark.skipif(os.geteuid() != 0, reason="another user's home needs root to make")
def test_a_home_of_somebody_else() -> None:
    """Root may write anywhere, so another user looks."""
    home = Path(tempfile.mkdtemp())
    home.chmod(0o755)
    code = f"""
import asyncio, os, sys
sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from checkup import examine
import checkup.temporal, psutil
os.seteuid(65534)
async def main():
    async for finding in examine(Path({str(home)!r}), "starter"):
        print(finding.name, finding.state)
asyncio.run(main())
"""
    try:
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    finally:
        home.rmdir()

    assert "home problem" in done.stdout, done.stderr


@pytest.mark.parametrize("answers", [True, False])
def test_a_store_that_does_not_answer(tmp_path: Path, answers: bool) -> None:
    """Somebody takes the connection and says nothing, or there is nobody."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        if not answers:
            silent.close()

        bucket = {"AWS_ENDPOINT": f"http://127.0.0.1:{port}", "AWS_ALLOW_HTTP": "true", "AWS_REGION": "here"}
        keys = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
        code, found = examined(tmp_path, NIGHTCREW_STORE="s3://user:secret@bucket/store?sig=secret", **bucket, **keys)

    assert (code, found["store"]["state"]) == (1, "problem")
    assert "NIGHTCREW_STORE" in found["store"]["remedy"]
    assert "secret" not in json.dumps(found)


def test_a_bucket_that_writes_over_what_was_first(tmp_path: Path, s3: str) -> None:
    """Two workers could both make the same paid call there. One that keeps its promise is fine."""
    careless, sound = (
        examined(tmp_path, NIGHTCREW_STORE=f"s3://{bucket}/store", **credentials(s3))[1]
        for bucket in (CARELESS, BUCKET)
    )

    assert (careless["store"]["state"], sound["store"]["state"]) == ("problem", "ok")
    assert "If-None-Match" in careless["store"]["what"]
    assert "test-secret-key" not in json.dumps([careless, sound])


def test_a_disk_with_less_room_than_the_reserve(tmp_path: Path) -> None:
    code, found = examined(tmp_path, NIGHTCREW_RESERVE_MB=str(10**12))

    assert (code, found["disk"]["state"]) == (1, "problem")
    assert "No call is made" in found["disk"]["what"]


def test_a_store_that_cannot_be_made(tmp_path: Path) -> None:
    """As below the place of a disk that is not mounted; who submits is told in a sentence, too."""
    (tmp_path / "disk").touch()
    store = str(tmp_path / "disk" / "store")

    code, found = examined(tmp_path, NIGHTCREW_STORE=store)

    assert (code, found["store"]["state"]) == (1, "problem")
    assert "NIGHTCREW_STORE" in found["store"]["remedy"]
    with pytest.raises(StoreUnavailable, match="cannot be opened or made"):
        open_store(store)


def test_a_setting_that_cannot_be_read_is_a_finding(tmp_path: Path) -> None:
    (tmp_path / "nightcrew.toml").write_text("sotre = 1\n")

    code, found = examined(tmp_path)

    assert (code, found["settings"]["state"]) == (1, "problem")
    assert "sotre" in found["settings"]["what"]


@pytest.mark.parametrize(
    ("text", "variables", "shown"),
    [
        (
            "",
            {},
            ["limits auto: learned from the provider's answers default", "headroom 10% of every limit is left unused"],
        ),
        (
            "tier = 1",
            {},
            [
                "tier 1: 4 tasks at once by default nightcrew.toml",
                "those of tier 1. default: 50 requests, 30,000 input tokens, 8,000 output tokens a minute; haiku: 50",
            ],
        ),
        ("[limits.haiku]\nrequests = 1000\nburst = 0.5", {}, ["haiku: 1,000 requests a minute, 50% of it at once"]),
        ("daily_usd = 2.50", {}, ["daily_usd all calls of a day, UTC, may cost $2.50 nightcrew.toml"]),
        ("", {"NIGHTCREW_DAILY_USD": "0.1"}, ["may cost $0.10 NIGHTCREW_DAILY_USD"]),
        ("", {"NIGHTCREW_LIMITS": '{"opus": {}}'}, ["limits opus: without limit NIGHTCREW_LIMITS"]),
        (
            "account = 'team-a'\ntier = 2",
            {"NIGHTCREW_LIMITS": "auto"},
            ["account team-a nightcrew.toml", "8 tasks at once"],
        ),
    ],
)
def test_the_settings_of_the_quota_are_told_in_words(
    tmp_path: Path, text: str, variables: dict[str, str], shown: list[str]
) -> None:
    (tmp_path / "nightcrew.toml").write_text(text)
    wide = {**os.environ, **variables, "COLUMNS": "300"}
    command = [*STARTER, "--home", str(tmp_path), "doctor"]

    done = subprocess.run(command, env=wide, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)

    words = " ".join(done.stdout.split())
    assert [line for line in shown if line not in words] == []


async def test_every_setting_has_its_source_and_every_process_its_cost(tmp_path: Path) -> None:
    (tmp_path / "nightcrew.toml").write_text('web_ui = "http://example.invalid"\n')
    settings = load_settings(tmp_path)
    await up(settings)
    try:
        done = Home(tmp_path)("doctor", "--json")
    finally:
        await down(settings)

    document = json.loads(done.stdout)
    sources = {entry["key"]: entry["source"] for entry in document["settings"]}
    assert (sources["home"], sources["web_ui"], sources["store"]) == ("--home", "nightcrew.toml", "default")
    names = {process["name"] for process in document["processes"]}
    assert {"server", "worker-simulated", "simulator", "keeper-simulated"} <= names
    assert all(process["memory_bytes"] > 1e6 and process["cpu_s"] > 0 for process in document["processes"])
