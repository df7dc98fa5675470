"""Temporal server, simulator and workers of one home folder: background processes to start, find and stop.

How they are kept apart from other homes and from each other is in `services.py`.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ports import choose_ports
from runtime import ROOT, CannotDo, Mode, Settings, queue_of, temporal_settings
from services import READY_FILE, Service, environment_without
from temporal_server import Server


@dataclass(frozen=True)
class ServerState:
    """A running Temporal server of a home."""

    pid: int
    address: str
    web_ui: str
    version: str
    log: Path


@dataclass(frozen=True)
class Up:
    """What a home has running, and which of it this very call started."""

    found: tuple[str, ...]
    started: tuple[str, ...]


class Simulator(Service):
    """The stand-in for the provider."""

    announces_on_stdout = True
    launches = 2
    stop_seconds = 5

    def __init__(self, home: Path, options: Sequence[str] = ()) -> None:
        super().__init__(home, "simulator")
        self.options = options

    def command(self) -> list[str]:
        """The package `simulator`, on the port it had before if that is free."""
        port = choose_ports(self.file("ports.json"), ("http",))["http"]
        log = str(self.home / "simulator.jsonl")
        return [sys.executable, "-m", "simulator", "--port", str(port), "--log", log, *self.options]

    def environment(self) -> dict[str, str]:
        """Ours without credentials."""
        return {**environment_without("ANTHROPIC_"), "PYTHONUNBUFFERED": "1"}

    async def ready(self) -> dict[str, Any] | None:
        """What it printed: its URL."""
        return self.announced()


class Worker(Service):
    """A worker of one mode. It says that it is ready by `services.announce_ready`, once it polls its queues."""

    stop_seconds = 40  # it lets agents at work come to an end

    def __init__(self, home: Path, mode: Mode) -> None:
        super().__init__(home, f"worker-{mode}")
        self.mode = mode

    def command(self) -> list[str]:
        """`worker.py` on the queue of its mode."""
        return [sys.executable, str(ROOT / "worker.py"), "--home", str(self.home), "--queue", queue_of(self.mode)]

    def environment(self) -> dict[str, str]:
        """Ours; a simulated worker cannot spend money, because it has no credentials."""
        kept = environment_without(*(["ANTHROPIC_"] if self.mode is Mode.SIMULATED else []))
        return {**kept, "PYTHONUNBUFFERED": "1", READY_FILE: str(self.file("ready"))}

    async def ready(self) -> dict[str, Any] | None:
        """What it announced."""
        return self.announced()


async def up(
    settings: Settings,
    mode: Mode = Mode.SIMULATED,
    *,
    worker: bool = True,
    simulator: bool = True,
    simulator_options: Sequence[str] = (),
) -> Up:
    """Everything that runs of this mode need, running and ready; after an error nothing of it is left behind.

    A configured Temporal replaces the home's server, a configured simulator the home's; a live run has no simulator.
    """
    prepare_home(settings.home)
    wanted: list[Service] = []
    if temporal_settings() is None:
        wanted.append(Server(settings.home))
    if simulator and mode is Mode.SIMULATED and settings.simulator_url is None:
        wanted.append(Simulator(settings.home, simulator_options))
    if worker:
        wanted.append(Worker(settings.home, mode))
    found: list[str] = []
    started: list[str] = []
    try:
        for service in wanted:
            (started if await service.start() else found).append(service.name)
    except BaseException:
        await down(settings, started)
        raise
    return Up(tuple(found), tuple(started))


async def down(settings: Settings, names: Collection[str] | None = None) -> list[str]:
    """The names of what was stopped: of all services of the home, or of those named. Workers first, the server last."""
    return [s.name for s in all_services(settings.home) if (names is None or s.name in names) and await s.stop()]


def all_services(home: Path) -> list[Service]:
    """Every service a home can have, in the order in which they are stopped."""
    return [*(Worker(home, mode) for mode in Mode), Simulator(home), Server(home)]


def find_server(home: Path) -> ServerState | None:
    """The home's own Temporal server, when it runs. Quick: asks nobody."""
    server = Server(home)
    state = server.find()
    return ServerState(state.pid, log=server.log, **state.details) if state else None


def web_ui_url(home: Path) -> str | None:
    """The address of the home's Temporal Web UI, when it runs."""
    return server.web_ui if (server := find_server(home)) else None


def simulator_url(settings: Settings) -> str | None:
    """The simulator to use: the configured one, else the home's own when it runs."""
    if settings.simulator_url:
        return settings.simulator_url
    state = Simulator(settings.home).find()
    return str(state.details["url"]) if state else None


def prepare_home(home: Path) -> None:
    """Create the home with its folders, private to this user. The mode of a folder with other content is left alone."""
    try:
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not any(home.iterdir()):
            home.chmod(0o700)
        for name in "services", "logs", "store":
            (home / name).mkdir(exist_ok=True)
            (home / name).chmod(0o700)
        if not os.access(home, os.R_OK | os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise CannotDo(
            f"The home {home} cannot be used: {error.strerror}. "
            "Choose another folder by --home or NIGHTCREW_HOME, or make this one writable for you."
        ) from error
