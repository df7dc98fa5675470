"""How long a run stands still after a crash: from the kill to the next call at the provider.

    python benchmarks/recovery.py --repeat 3

A home of its own, with the keeper that a user has. The simulator holds the calls of a few tasks; a process is killed
with -9; the next call of any of them is waited for. What docs/what-happens-when.md promises: after the worker within
its heartbeat timeout and 5 s, after the server within 10 s. After the server no call is made anew while its worker
lives: there the next task is what comes next.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from client import RunClient  # noqa: E402
from domain.planning import plan_from_text  # noqa: E402
from domain.registry import registry_from_text  # noqa: E402
from embedded import Worker, down, simulator_url, up  # noqa: E402
from folder import PlanFolder  # noqa: E402
from runtime import Mode, Settings, connect, leave, load_settings, queue_of  # noqa: E402
from services import Service  # noqa: E402
from store import open_store  # noqa: E402
from temporal_server import Server  # noqa: E402
from workflows.policies import HEARTBEAT_TIMEOUT  # noqa: E402

PLAN = """
max_concurrency: 1
defaults: {agent: writer, timeout: 120s}
tasks:
  - {id: first, prompt: Go.}
  - {id: second, prompt: Go., needs: [first]}
"""
HELD = {"worker": 60.0, "server": 1.0}
"""Seconds that the first call takes. A dead worker's is made anew; under a dead server it ends, and the next begins."""

LIMITS = {"worker": HEARTBEAT_TIMEOUT.total_seconds() + 5, "server": 10.0}


class Home:
    """A home that is up, and what its simulator was asked."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def ask(self, path: str, body: object = None) -> Any:
        """What the simulator answers."""
        url = f"{simulator_url(self.settings)}{path}"
        data = json.dumps(body).encode() if body is not None else None
        with urllib.request.urlopen(urllib.request.Request(url, data=data), timeout=30) as reply:  # noqa: S310 - it is ours
            return json.load(reply)

    def calls(self) -> int:
        """How many calls have begun, ended or not."""
        return len(self.ask("/log"))

    async def submit(self) -> str:
        """The id of a run that has begun."""
        client = RunClient(await connect(self.settings), open_store(self.settings.store))
        registry = registry_from_text((ROOT / "agents.yaml").read_text("utf-8"), file="agents.yaml")
        planned = plan_from_text(PLAN, file="plan.yaml", registry=registry, folder=PlanFolder(self.settings.home))
        return await client.submit(planned, id=None, simulated=True, queue=queue_of(Mode.SIMULATED))


async def measure(home: Home, dies: str) -> float:
    """Seconds from the kill to the next call."""
    services: dict[str, Service] = {
        "worker": Worker(home.settings.home, Mode.SIMULATED),
        "server": Server(home.settings.home),
    }
    home.ask("/script", {"rules": [{"when": {"task": "first", "nth": 1}, "then": {"ttft": HELD[dies]}}]})
    before = home.calls()
    run = await home.submit()
    while home.calls() == before:  # noqa: ASYNC110 - it is another process
        await asyncio.sleep(0.05)
    if (pid := services[dies].pid()) is not None:
        os.kill(pid, signal.SIGKILL)
    killed = time.perf_counter()
    while home.calls() == before + 1:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    took = time.perf_counter() - killed
    while services["server"].find() is None:  # noqa: ASYNC110 - its worker may be quicker than its keeper
        await asyncio.sleep(0.05)
    temporal = await connect(home.settings)
    await temporal.get_workflow_handle(run).result()
    return took


async def main(repeat: int) -> int:
    """Measure, print, and say whether the promises are kept; the exit code."""
    with tempfile.TemporaryDirectory() as folder:
        settings = load_settings(Path(folder) / "home")
        pace = ("--ttft", "0.1", "--tokens-per-second", "0", "--jitter", "0")
        await up(settings, simulator_options=pace)
        home = Home(settings)
        kept = True
        try:
            for dies, limit in LIMITS.items():
                took = [await measure(home, dies) for _ in range(repeat)]
                kept &= max(took) <= limit
                each = ", ".join(f"{seconds:.1f}" for seconds in took)
                median = statistics.median(took)
                print(f"{dies} killed: next call after {each} s; median {median:.1f}, limit {limit:g}")
        finally:
            await down(settings)
    return 0 if kept else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repeat", type=int, default=3, help="kills of each kind")
    leave(asyncio.run(main(parser.parse_args().repeat)))
