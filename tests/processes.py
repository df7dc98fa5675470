"""Real processes for tests of what they leave behind, each in an environment of its own."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
import urllib.request
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from embedded import down, simulator_url, up
from runtime import ROOT, Mode, Settings, load_settings, queue_of

BARE = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
BARE |= {"TEMPORAL_CONFIG_FILE": os.devnull, "PYTHONUNBUFFERED": "1"}

NOTHING: Mapping[str, str] = {}

SUBMIT = """
import asyncio, sys
from pathlib import Path
from client import RunClient
from domain.planning import plan_from_text
from domain.registry import registry_from_text
from folder import PlanFolder
from runtime import Mode, connect, leave, load_settings, queue_of
from store import open_store
from telemetry import exporting

async def submit(home, plan, continue_after):
    settings = load_settings(Path(home))
    exporting.start(exporting.STARTER)
    registry = registry_from_text(Path("agents.yaml").read_text(), file="agents.yaml")
    planned = plan_from_text(plan, file="plan.yaml", registry=registry, folder=PlanFolder(Path(home)))
    client = RunClient(await connect(settings), open_store(settings.store))
    queue = queue_of(Mode.SIMULATED)
    print(await client.submit(planned, id=None, simulated=True, queue=queue, continue_after=continue_after))

asyncio.run(submit(sys.argv[1], sys.argv[2], int(sys.argv[3]) or None))
leave(0)
"""


@dataclass(frozen=True)
class Done:
    """A process that has ended."""

    code: int
    stdout: str
    stderr: str


class Home:
    """A folder with a server and a simulator that answers at once; workers and starters come and go."""

    def __init__(self, settings: Settings, tree: Path = ROOT) -> None:
        self.settings, self.tree = settings, tree
        self.folder = settings.home

    def of(self, tree: Path) -> Home:
        """The same home, for the code of another tree."""
        return Home(self.settings, tree)

    async def starter(self, *words: str, **environment: str) -> Done:
        starter = [sys.executable, str(self.tree / "starter.py"), "--home", str(self.folder)]
        return await run([*starter, *words], environment)

    async def submit(self, plan: str, environment: Mapping[str, str] = NOTHING, *, continue_after: int = 0) -> str:
        """The id of a run that is started and left."""
        done = await run([sys.executable, "-c", SUBMIT, str(self.folder), plan, str(continue_after)], environment)
        assert done.code == 0, done.stderr
        return done.stdout.strip()

    async def ended(self, run: str) -> dict[str, Any]:
        """The report of a run after its end."""
        done = await self.starter("result", run, "--wait", "--json")
        report: dict[str, Any] = json.loads(done.stdout)
        return report

    async def banks(self) -> list[dict[str, Any]]:
        """What `quota` shows as soon as every bank answers: it gives them three seconds, and a busy machine may not."""
        while True:
            shown = json.loads((await self.starter("quota", "--json")).stdout)
            banks: list[dict[str, Any]] = shown.get("banks", [])
            if banks and all(bank["answered"] for bank in banks):
                return banks

    @asynccontextmanager
    async def worker(self, *words: str, **environment: str) -> AsyncIterator[Worker]:
        """A worker of our own until the end of the block, with a log of its own."""
        log = self.folder / "logs" / f"worker-{len([*(self.folder / 'logs').iterdir()])}.log"
        worker = Worker(log, await self._start_worker(log, words, environment))
        try:
            await worker.says("worker_started")
            yield worker
        finally:
            await worker.end(signal.SIGTERM)

    async def run_worker(self, *words: str, **environment: str) -> Done:
        """A worker that ends by itself."""
        return await run([*self._worker_command(), *words], environment)

    def _worker_command(self) -> list[str]:
        options = ["--home", str(self.folder), "--queue", queue_of(Mode.SIMULATED)]
        return [sys.executable, str(self.tree / "worker.py"), *options]

    async def _start_worker(
        self, log: Path, words: tuple[str, ...], environment: Mapping[str, str]
    ) -> asyncio.subprocess.Process:
        with log.open("ab") as said:
            return await asyncio.create_subprocess_exec(
                *(*self._worker_command(), *words),
                cwd=self.tree,
                env={**BARE, **environment},
                stdout=said,
                stderr=said,
            )

    def lines(self, mode: Mode = Mode.SIMULATED) -> list[dict[str, Any]]:
        """The log of the worker that the starter has started."""
        return lines_of(self.folder / "logs" / f"worker-{mode}.log")

    @property
    def simulator(self) -> str:
        url = simulator_url(self.settings)
        assert url is not None
        return url

    def script(self, *rules: dict[str, Any], **config: Any) -> None:
        """Replace the simulator's rules, and change its settings."""
        at_once = {"ttft": 0, "tokens_per_second": 0, "jitter": 0}
        settings: dict[str, Any] = {**at_once, **config}
        self._ask("/script", {"rules": [*rules], "config": settings})

    def calls(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._ask("/log")
        return found

    async def until_called(self, task: str) -> None:
        while not any(call["task"] == task for call in self.calls()):
            await asyncio.sleep(0.02)

    def _ask(self, path: str, body: object = None) -> Any:
        data = json.dumps(body).encode() if body is not None else None
        with urllib.request.urlopen(urllib.request.Request(self.simulator + path, data=data), timeout=60) as reply:
            return json.load(reply)


class Worker:
    """One worker process and what it logs."""

    def __init__(self, log: Path, process: asyncio.subprocess.Process) -> None:
        self.log, self.process = log, process

    def lines(self) -> list[dict[str, Any]]:
        """What it has logged so far."""
        return lines_of(self.log)

    async def says(self, event: str) -> None:
        while not any(line["event"] == event for line in self.lines()):
            assert self.process.returncode is None, self.log.read_text("utf-8")
            await asyncio.sleep(0.02)

    async def end(self, order: signal.Signals) -> int:
        if self.process.returncode is None:
            self.process.send_signal(order)
        return await self.process.wait()


def tree_with(folder: Path, file: str, *edits: tuple[str, str]) -> Path:
    """A copy of our code in which one file was edited: another version of Nightcrew."""
    shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(".*", "tests", "docs", "benchmarks", "__pycache__"))
    (folder / ".venv").symlink_to(ROOT / ".venv")
    text = (folder / file).read_text("utf-8")
    for old, new in edits:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    (folder / file).write_text(text, "utf-8")
    return folder


def lines_of(log: Path) -> list[dict[str, Any]]:
    """Every whole line of a log: each must be a JSON object."""
    return [json.loads(line) for line in log.read_text("utf-8").splitlines(keepends=True) if line[-1] == "\n"]


@asynccontextmanager
async def home_at(folder: Path) -> AsyncIterator[Home]:
    settings = load_settings(folder)
    await up(settings, worker=False)
    try:
        home = Home(settings)
        home.script()
        yield home
    finally:
        await down(settings)


async def run(command: list[str], environment: Mapping[str, str] = NOTHING) -> Done:
    """A process from its start to its end."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=ROOT,
        env={**BARE, **environment},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        stdout, stderr = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return Done(process.returncode, stdout.decode(), stderr.decode())
