"""The demo and the tests touch nobody, whatever the environment says."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


class StandIn:
    """Somebody else's server: it counts who comes."""

    def __init__(self) -> None:
        self.visits = 0
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._count, daemon=True).start()

    def _count(self) -> None:
        while True:
            try:
                visitor, _ = self._socket.accept()
            except OSError:
                return
            self.visits += 1
            visitor.close()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


@pytest.fixture
def stand_in() -> Iterator[StandIn]:
    stand_in = StandIn()
    yield stand_in
    stand_in.close()


def hostile(stand_in: StandIn, tmp_path: Path) -> dict[str, str]:
    """An environment of somebody who works with a real provider and a company's cluster."""
    profiles = tmp_path / "config" / "temporalio" / "temporal.toml"
    profiles.parent.mkdir(parents=True)
    profiles.write_text(f'[profile.default]\naddress = "{stand_in.address}"\n')
    return {
        "PATH": os.environ["PATH"],
        "HOME": os.environ["HOME"],
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "ANTHROPIC_API_KEY": "sk-ant-canary",
        "ANTHROPIC_BASE_URL": f"http://{stand_in.address}",
        "TEMPORAL_ADDRESS": stand_in.address,
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{stand_in.address}",
        "NIGHTCREW_SIMULATOR_URL": f"http://{stand_in.address}",
        "HTTP_PROXY": f"http://{stand_in.address}",
        "http_proxy": f"http://{stand_in.address}",
    }


def test_the_stand_in_can_be_reached(stand_in: StandIn) -> None:
    """So that its silence means something."""
    host, port = stand_in.address.split(":")
    with socket.create_connection((host, int(port))) as visit:
        visit.recv(1)

    assert stand_in.visits == 1


def test_the_demo_runs_to_its_report_and_touches_nobody(stand_in: StandIn, tmp_path: Path) -> None:
    done = subprocess.run(
        ["make", "demo"],  # noqa: S607
        cwd=ROOT,
        env=hostile(stand_in, tmp_path),
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "COMPLETED" in done.stdout
    assert "SIMULATED" in done.stdout
    assert "./starter.py --home" in done.stdout.splitlines()[-1]
    assert stand_in.visits == 0
    left = subprocess.run(["pgrep", "-f", f"{ROOT}/.nightcrew-demo"], capture_output=True, check=False)  # noqa: S607
    assert left.stdout == b""


def test_the_tests_touch_nobody(stand_in: StandIn, tmp_path: Path) -> None:
    done = subprocess.run(
        ["make", "test", "ARGS=tests/test_runs.py -k diamond -p no:cacheprovider"],  # noqa: S607
        cwd=ROOT,
        env=hostile(stand_in, tmp_path),
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout
    assert stand_in.visits == 0
