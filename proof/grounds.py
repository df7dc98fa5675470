"""A home to do harm to: its processes, a network between worker and server, a provider whose bill is out of reach."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.service import RPCError

from client import RunClient
from domain.planning import plan_from_text
from domain.registry import registry_from_text
from embedded import Simulator, prepare_home
from folder import PlanFolder
from prices import priced
from proof.disk import Disk
from proof.evidence import LAST_WORDS, Canary, Fault, Look
from proof.link import Link
from proof.plans import ATTEMPTS, PLANS, PROMPT_CANARY, SCRIPT, SECRET_CANARY
from proof.processes import LinkedWorker, kill, started
from runtime import ROOT, Mode, Settings, connect, load_settings, queue_of
from store import open_store
from temporal_server import Server

PATIENCE = 600.0
"""Seconds in which everything must have ended after the last fault; whatever has not is lost."""

RESERVE_MB = 8
"""What must be free on the disk of the store: the disks of a proof are small."""


@dataclass
class Started:
    """A run that was acknowledged."""

    run: str
    plan: str
    again: str
    calls_before: int
    """How many calls the provider had had of others before it."""
    closed: str | None = None
    head: dict[str, Any] | None = None
    """That of its audit trail, as its workflow has it."""


@dataclass
class Grounds:
    """One home under fire, and everything that is written down of it."""

    settings: Settings
    provider: Simulator
    server: Server
    worker: LinkedWorker
    second: LinkedWorker
    link: Link
    temporal: Client
    disk: Disk | None = None
    """A disk that can be filled."""
    runs: list[Started] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)

    @property
    def client(self) -> RunClient:
        """What a person would use."""
        return RunClient(self.temporal, open_store(self.settings.store))

    def handle(self, run: str) -> WorkflowHandle[Any, Any]:
        """The workflow of a run, or of a task."""
        return self.temporal.get_workflow_handle(run)

    def of_run(self, run: str) -> Path:
        """Where the store has what is known of a run."""
        return Path(self.settings.store) / "runs" / run

    async def submit(self, plan: str, again: str) -> str:
        """Start a run, however often that must be asked for, and give its id."""
        reference = PLANS[plan]
        registry = registry_from_text((ROOT / "agents.yaml").read_text("utf-8"), file="agents.yaml")
        folder = PlanFolder(self.settings.home)
        planned = plan_from_text(reference.text, file=f"{plan}.yaml", registry=registry, folder=folder)
        planned = replace(planned, plan=priced(planned.plan))
        id = f"{plan}-{len(self.runs) + 1}-{os.urandom(2).hex()}"
        before = self._last_call()
        while True:
            with suppress(RPCError):
                await self.client.submit(
                    planned,
                    id=id,
                    simulated=True,
                    queue=queue_of(Mode.SIMULATED),
                    continue_after=reference.continue_after,
                )
                break
            await asyncio.sleep(0.2)
        self.runs.append(Started(id, plan, again, before))
        return id

    def calls(self, run: str) -> int:
        """How many requests of a run the provider has seen."""
        before = next(started.calls_before for started in self.runs if started.run == run)
        user = _user(run)
        return sum(call["user"] == user for call in self.ask(f"/log?after={before}"))

    def _last_call(self) -> int:
        known = self.runs[-1].calls_before if self.runs else 0
        numbers = [int(call["number"]) for call in self.ask(f"/log?after={known}")]
        return max(numbers, default=known)

    async def restart(self) -> None:
        """Start again what is down: the server, then who needs it."""
        for service in self.server, self.worker:
            await started(service)

    async def spare(self, patience: float = PATIENCE) -> None:
        """Wait until no task is in its last attempt: one more loss would end it as failed, and rightly so.

        On a machine so busy that what was killed does not come to a call before the next fault, wait for that, too.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(patience):
                while await self._at_their_last():
                    await asyncio.sleep(0.2)

    async def _at_their_last(self) -> bool:
        store = open_store(self.settings.store)
        asked = Counter((call["user"], call["task"]) for call in self.ask("/log?after=0"))
        recent = self.faults[-(ATTEMPTS - 1) :]
        for run in self.runs:
            log = [event async for event in store.events(run.run)]
            if log and log[-1].type == "run.completed":
                continue
            user, ended = _user(run.run), {event.task for event in log if event.type in LAST_WORDS}
            often = {task for (who, task), calls in asked.items() if who == user and calls >= ATTEMPTS - 1}
            silent = len(recent) == ATTEMPTS - 1 and log and log[-1].time.timestamp() < recent[0].began
            if often - ended or silent:
                return True
        return False

    async def all_closed(self, patience: float = PATIENCE) -> None:
        """Wait until every run has ended and the provider has nothing to do; whatever does not in time is left."""
        with suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await asyncio.gather(*(self._close(run) for run in self.runs if run.closed is None))
                while self.ask("/in-flight")["now"]:
                    await asyncio.sleep(0.1)

    async def _close(self, run: Started) -> None:
        while run.closed is None:
            with suppress(RPCError):
                with suppress(WorkflowFailureError):
                    await self.handle(run.run).result()
                found = await self.handle(run.run).describe()
                run.head = await found.memo_value("audit", None)
                run.closed = found.status.name if found.status else None
            if run.closed is None:
                await asyncio.sleep(0.5)

    def ask(self, path: str, body: object = None, *, method: str | None = None) -> Any:
        """The provider's own routes."""
        state = self.provider.find()
        assert state is not None  # noqa: S101 - nobody does harm to it
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(  # noqa: S310 - the address is that of our own process
            urllib.request.Request(state.details["url"] + path, data=data, method=method),  # noqa: S310
            timeout=10,
        ) as reply:
            return json.load(reply)

    def note(self, least: int) -> dict[str, Any]:
        """What was done here, for the checker."""
        return {
            "home": str(self.settings.home),
            "store": self.settings.store,
            "bill": str(self.provider.home / "simulator.jsonl"),
            "runs": [{"run": run.run, "again": run.again, "closed": run.closed, "head": run.head} for run in self.runs],
            "faults": [asdict(fault) for fault in self.faults],
            "looks": [asdict(look) for look in self.looks],
            "canaries": [
                asdict(Canary(PROMPT_CANARY, in_artifacts=True)),
                asdict(Canary(SECRET_CANARY, in_artifacts=False)),
            ],
            "least": least,
        }

    async def check(self, least: int) -> dict[str, Any]:
        """The judgement of the checker, which is another process."""
        note = self.provider.home.parent / "note.json"
        note.write_text(json.dumps(self.note(least)), "utf-8")
        checker = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "proof.check", str(note)), cwd=ROOT, stdout=asyncio.subprocess.PIPE
        )
        said, _ = await checker.communicate()
        verdict: dict[str, Any] = json.loads(said)
        return verdict


@asynccontextmanager
async def grounds_at(
    folder: Path,
    *,
    small: str | None = None,
    megabytes: int = 96,
    worker_environment: Mapping[str, str] | None = None,
) -> AsyncIterator[Grounds]:
    """A home that is up, until the end of the block.

    `small` says what is on a disk of its own: the `store`, or the `home` with the database in it.
    """
    disk = Disk(folder / "disk", megabytes) if small else None
    home = folder / "disk" / "home" if small == "home" else folder / "home"
    store = folder / "disk" / "store" if small == "store" else folder / "store"
    async with AsyncExitStack() as stack:
        if disk is not None:
            await stack.enter_async_context(disk.mounted())
        provider = Simulator(folder / "provider")
        prepare_home(provider.home)
        await started(provider)
        stack.push_async_callback(provider.stop)
        state = provider.find()
        assert state is not None  # noqa: S101 - it has just become ready
        prepare_home(home)
        lines = [f'simulator_url = "{state.details["url"]}"', f'store = "{store}"', f"reserve_mb = {RESERVE_MB}"]
        (home / "nightcrew.toml").write_text("\n".join([*lines, ""]), "utf-8")
        settings = load_settings(home)
        server = Server(home)
        await started(server)
        stack.push_async_callback(server.stop)
        temporal = await connect(settings)
        link = Link(temporal.service_client.config.target_host)
        address = await stack.enter_async_context(link.serve())
        worker = LinkedWorker(home, address, extra=worker_environment)
        second = LinkedWorker(home, address, number=2, extra=worker_environment)
        stack.push_async_callback(kill, worker, second)
        grounds = Grounds(settings, provider, server, worker, second, link, temporal, disk)
        grounds.ask("/script", SCRIPT)
        await started(worker)
        yield grounds


def _user(run: str) -> str:
    """What the provider is told of a run."""
    return hashlib.sha256(run.encode()).hexdigest()[:32]


def moment() -> float:
    """Now, on the clock that the bill and the event log are written by."""
    return time.time()
