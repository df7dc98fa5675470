"""One worker process: what it answers to whoever watches over it, and how it ends."""

from __future__ import annotations

import asyncio
import signal
import socket
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from processes import Home, home_at

from health import Address, address
from ports import choose_ports


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[Home]:
    async with home_at(tmp_path / "home") as home:
        yield home


async def health(port: int) -> tuple[int, str]:
    def ask() -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=10) as reply:
                return reply.status, reply.read().decode().strip()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode().strip()

    return await asyncio.to_thread(ask)


@pytest.mark.parametrize("where", ["{port}", "0.0.0.0:{port}"])
async def test_a_worker_answers_and_drains(home: Home, tmp_path: Path, where: str) -> None:
    """200 while it takes work; after SIGTERM 503 until the call at work has ended, and its answer is kept; exit 0."""
    home.script({"when": {"task": "only"}, "then": {"ttft": 16}})
    port = choose_ports(tmp_path / "ports.json", ("health",))["health"]
    async with home.worker("--health", where.format(port=port)) as worker:
        assert await health(port) == (200, "working")
        run = await home.submit("tasks: [{id: only, agent: writer, prompt: Go.}]")
        await home.until_called("only")

        worker.process.send_signal(signal.SIGTERM)
        await worker.says("worker_draining")

        assert await health(port) == (503, "draining")
        assert await worker.process.wait() == 0
    told = [line["event"] for line in worker.lines() if line["event"].startswith(("worker_", "run_", "task_"))]
    events = [*dict.fromkeys(told)]  # the start is told again where a busy machine had its step done again
    assert events == ["worker_started", "run_started", "worker_draining", "task_answered", "worker_stopped"]
    assert told.count("task_answered") == 1
    async with home.worker():
        assert (await home.ended(run))["status"] == "COMPLETED"
    assert len(home.calls()) == 1


async def test_a_port_that_is_taken_is_said(home: Home) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]

        done = await home.run_worker("--health", str(port))

    assert done.code == 1
    assert done.stderr.startswith(f"Health checks cannot be answered at 127.0.0.1:{port}: ")
    assert "Choose another --health" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("wrong", ["x", "-1", "70000", "host:", "::", "127.0.0.1"])
async def test_an_address_that_is_none_is_said(home: Home, wrong: str) -> None:
    done = await home.run_worker(f"--health={wrong}")

    assert done.code == 2
    assert f"{wrong!r} is not an address: write PORT, or HOST:PORT" in done.stderr


def test_an_address_is_of_this_machine_alone_unless_it_says_otherwise() -> None:
    assert address("8080") == Address("127.0.0.1", 8080)
    assert address("0.0.0.0:8080") == Address("0.0.0.0", 8080)  # noqa: S104
    assert address("[::]:8080") == Address("::", 8080)
    assert address("localhost:0") == Address("localhost", 0)
