"""Temporal server, simulator, workers and keepers of one home folder: background processes to start, find and stop.

How each is launched is in `service_kinds.py`, how they are kept apart in `services.py`; `keeper.py` is what keepers do.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from runtime import CannotDo, Mode, Settings, temporal_settings
from sealing import KEY
from service_kinds import Keeper, Simulator, Worker, encrypts_otherwise, has_another_key
from services import Service
from temporal_server import Server
from troubles import Account, Trouble, told_by
from turns import turn

__all__ = [
    "Keeper",
    "ServerState",
    "Simulator",
    "Trouble",
    "Up",
    "Worker",
    "all_services",
    "down",
    "find_server",
    "has_another_key",
    "prepare_home",
    "services_for",
    "simulator_url",
    "troubles",
    "up",
    "web_ui_url",
]


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
    owned: tuple[str, ...]
    """Of what was started, all that no keeper was keeping before: it belongs to whoever called."""
    replaced: tuple[str, ...] = ()
    """What was stopped first, because it had been started with other credentials than ours."""


async def up(
    settings: Settings,
    mode: Mode = Mode.SIMULATED,
    *,
    worker: bool = True,
    simulator: bool = True,
    simulator_options: Sequence[str] = (),
    keep: bool = True,
    renew_key: bool = False,
    anyway: bool = False,
) -> Up:
    """Everything that runs of this mode need, running, ready and kept so; after an error nothing new is left behind.

    With `renew_key`, a worker that was started with other credentials than ours gives way to one with ours. With
    `anyway`, code and server that were changed start also where open runs may not go on with them.
    """
    home = settings.home
    prepare_home(home)
    async with turn(home):
        wanted = services_for(
            settings, mode, worker=worker, simulator=simulator, simulator_options=simulator_options, anyway=anyway
        )
        kept = {name for keeper in _keepers(home) if keeper.find() for name in (keeper.name, *keeper.kept())}
        names = [*(service.name for service in wanted), *Keeper(home, mode).kept()]
        found: list[str] = []
        started: list[str] = []
        if worker and not renew_key and encrypts_otherwise(Worker(home, mode)):
            raise CannotDo(
                f"The worker of this home was started with other keys of encryption than are set here ({KEY}). "
                f"`./starter.py --home {home} up` replaces it by one that has yours."
            )
        replaced = await _stop_with_another_key(home, mode) if renew_key else []
        try:
            for service in wanted:
                (started if await service.start() else found).append(service.name)
            if keep and wanted:
                keeper = await _successor(home, mode, names, simulator_options, renew=bool(started))
                (started if await keeper.start() else found).append(keeper.name)
        except BaseException:
            await _stop(home, {*started} - kept)  # a keeper would start again what it keeps
            raise
    return Up(tuple(found), tuple(started), tuple(name for name in started if name not in kept), tuple(replaced))


def services_for(
    settings: Settings,
    mode: Mode,
    *,
    worker: bool = True,
    simulator: bool = True,
    simulator_options: Sequence[str] = (),
    anyway: bool = False,
) -> list[Service]:
    """What runs of this mode need, in the order of starting: each needs those before it.

    A configured Temporal replaces the home's server, a configured simulator the home's; a live run has no simulator.
    """
    wanted: list[Service] = []
    if temporal_settings() is None:
        wanted.append(Server(settings.home, anyway=anyway))
    if simulator and mode is Mode.SIMULATED and settings.simulator_url is None:
        wanted.append(Simulator(settings.home, simulator_options))
    if worker:
        wanted.append(Worker(settings.home, mode, anyway=anyway))
    return wanted


async def _successor(home: Path, mode: Mode, names: list[str], options: Sequence[str], *, renew: bool) -> Keeper:
    """The keeper to start, after one that is to be renewed has ended.

    Who had to start a service has an environment in which it works; that of the keeper before is perhaps why it died.
    """
    before = Keeper(home, mode)
    order = [service.name for service in reversed(all_services(home))]
    keeper = Keeper(home, mode, sorted({*names}, key=order.index), options)
    if renew:
        await before.stop()
    return keeper


async def _stop_with_another_key(home: Path, mode: Mode) -> list[str]:
    """The names of what was stopped, because it was started with other credentials than we have.

    The keeper first, whatever it has: it would start the worker again, or take its end for a crash.
    """
    keeper, worker = Keeper(home, mode), Worker(home, mode)
    if not (has_another_key(keeper) or has_another_key(worker)):
        return []
    stopped = [keeper.name] if await keeper.stop() else []
    starting = worker.find() is None  # if so, it has what its keeper had
    if (starting or has_another_key(worker)) and await worker.stop():
        stopped.append(worker.name)
    return stopped


async def down(settings: Settings, names: Collection[str] | None = None) -> list[str]:
    """The names of what was stopped: of all services of the home, or of those named.

    Keepers first, else they would start again what is being stopped; then workers, and the server last.
    """
    if not (settings.home / "services").is_dir():
        return []
    async with turn(settings.home):
        return await _stop(settings.home, names)


async def _stop(home: Path, names: Collection[str] | None) -> list[str]:
    return [s.name for s in all_services(home) if (names is None or s.name in names) and await s.stop()]


def all_services(home: Path) -> list[Service]:
    """Every service a home can have, in the order in which they are stopped."""
    return [*_keepers(home), *(Worker(home, mode) for mode in Mode), Simulator(home), Server(home)]


def _keepers(home: Path) -> list[Keeper]:
    return [Keeper(home, mode) for mode in Mode]


def troubles(home: Path) -> list[Trouble]:
    """What is down but kept, and what goes up and down, in the order of need. Quick: it reads a few files."""
    services = {service.name: service for service in all_services(home)}
    found: dict[str, Trouble] = {}
    for keeper in _keepers(home):
        pid = keeper.pid()
        told = told_by(keeper.file("state.json"), pid) if pid else {}
        missing: str | None = None
        for name in keeper.kept():
            up = services[name].find() is not None
            account = told.get(name, Account(log=services[name].log))
            known = found.get(name)
            if (not up or account.crash_loop) and (known is None or known.account.crashes < account.crashes):
                found[name] = Trouble(name, up=up, waits_for=None if up else missing, account=account)
            missing = missing or (None if up else name)
    return list(found.values())


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
