"""The services of a home besides its Temporal server: simulator, worker, keeper. How each is launched, and is ready."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fingerprint import fingerprint
from ports import choose_ports
from runtime import REGION_VARIABLE, ROOT, Mode, queue_of
from sealing import VARIABLES, Keyring
from services import FINGERPRINT, READY_FILE, Service, State, environment_without
from temporal_server import Server


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
        """Ours without credentials and keys."""
        return {**environment_without("ANTHROPIC_", *VARIABLES), "PYTHONUNBUFFERED": "1"}

    async def ready(self) -> dict[str, Any] | None:
        """What it printed: its URL."""
        return self.announced()


class Worker(Service):
    """A worker of one mode. It says that it is ready by `services.announce_ready`, once it polls its queues."""

    start_seconds = 180.0  # with changed code it replays the open runs first
    stop_seconds = 40  # it lets agents at work come to an end

    def __init__(self, home: Path, mode: Mode, *, anyway: bool = False) -> None:
        super().__init__(home, f"worker-{mode}")
        self.mode = mode
        self.anyway = anyway

    def command(self) -> list[str]:
        """`worker.py` on the queue of its mode."""
        who = [sys.executable, str(ROOT / "worker.py"), "--home", str(self.home), "--queue", queue_of(self.mode)]
        return [*who, "--anyway"] if self.anyway else who

    def environment(self) -> dict[str, str]:
        """Ours; a simulated worker cannot spend money, because it has no credentials."""
        return {**_environment_of(self.home, self.mode), READY_FILE: str(self.file("ready"))}

    async def ready(self) -> dict[str, Any] | None:
        """What it announced, and the addresses it was started with: it does not notice when a service moves."""
        said = self.announced()
        return None if said is None else {**said, "reaches": self._addresses()}

    def fits(self, state: State) -> bool:
        """Whether what it reaches is still there."""
        then = state.details.get("reaches", {})
        return all(now is None or now == then.get(name, now) for name, now in self._addresses().items())

    def _addresses(self) -> dict[str, str | None]:
        server = Server(self.home).find()
        simulator = Simulator(self.home).find() if self.mode is Mode.SIMULATED else None
        return {
            "server": str(server.details["address"]) if server else None,
            "simulator": str(simulator.details["url"]) if simulator else None,
        }


class Keeper(Service):
    """Starts again what dies of the services it was told to keep. One for each mode: it has what that worker needs."""

    stop_seconds = 5

    def __init__(
        self, home: Path, mode: Mode, keeps: Sequence[str] = (), simulator_options: Sequence[str] = ()
    ) -> None:
        super().__init__(home, f"keeper-{mode}")
        self.mode = mode
        self.keeps = keeps
        self.simulator_options = simulator_options

    def command(self) -> list[str]:
        """`keeper.py` with the names of what it keeps."""
        who = [sys.executable, str(ROOT / "keeper.py"), "--home", str(self.home), "--mode", self.mode]
        options = [f"--simulator-option={option}" for option in self.simulator_options]
        return [*who, *(f"--keep={name}" for name in self.keeps), *options]

    def environment(self) -> dict[str, str]:
        """That of its worker: it hands it on."""
        return {**_environment_of(self.home, self.mode), READY_FILE: str(self.file("ready"))}

    async def ready(self) -> dict[str, Any] | None:
        """What it announced: what it keeps."""
        return self.announced()

    def fits(self, state: State) -> bool:
        """Whether it keeps all that it should."""
        return {*self.keeps} <= {*state.details["keeps"]}

    def kept(self) -> list[str]:
        """What it keeps, in the order of starting, if it runs."""
        state = self.find()
        return list(state.details["keeps"]) if state else []


def has_another_key(service: Worker | Keeper) -> bool:
    """Whether it runs with other credentials than this process has. Who has none does not judge."""
    if encrypts_otherwise(service):
        return True
    state = service.find()
    if state is None or service.mode is Mode.SIMULATED:
        return False
    return fingerprint(service.home) not in {None, state.details.get("fingerprint")}


def encrypts_otherwise(service: Worker | Keeper) -> bool:
    """Whether it runs with other keys of encryption than this process has. Who has none does not judge."""
    ours, state = Keyring.from_environment().ids, service.find()
    return bool(ours) and state is not None and tuple(state.details.get("keys", ())) != ours


def _environment_of(home: Path, mode: Mode) -> dict[str, str]:
    """Ours, with the fingerprint of what is in it; of a simulated service, without credentials.

    Without a region, too: the worker of a home is there for every run that is bound to none.
    """
    unbuffered = {"PYTHONUNBUFFERED": "1"}
    if mode is Mode.SIMULATED:
        return {**environment_without("ANTHROPIC_", REGION_VARIABLE), **unbuffered}
    mark = fingerprint(home)
    return {**environment_without(REGION_VARIABLE), **unbuffered, **({FINGERPRINT: mark} if mark else {})}
