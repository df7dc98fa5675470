"""The faults: how each is done to a home, and what it may cost."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from proof.disk import MEGABYTE
from proof.evidence import Fault
from proof.grounds import Grounds, moment
from proof.processes import kill
from services import Service

LONG = 13.0
"""Seconds: longer than the heartbeat timeout of ten, so that the server gives the attempts up."""

SHORT = 4.0
"""Seconds: shorter than that, so that nobody should notice."""


@dataclass(frozen=True)
class Kind:
    """A kind of fault."""

    what: str
    strike: Callable[[Grounds], Awaitable[tuple[float, float]]]
    loses_calls: bool = False
    second_worker: bool = False
    """Whether another worker is there to take over."""
    disk: str | None = None
    """What must be on a small disk."""


async def strike(grounds: Grounds, kind: str) -> None:
    """Do it, see to it that everything is up again, and write down when it was."""
    began, over = await KINDS[kind].strike(grounds)
    grounds.faults.append(Fault(kind, began, over, KINDS[kind].loses_calls))


def _killing(worker: bool, server: bool) -> Callable[[Grounds], Awaitable[tuple[float, float]]]:  # noqa: FBT001
    async def kill_them(grounds: Grounds) -> tuple[float, float]:
        began = moment()
        await kill(*([grounds.worker] if worker else []), *([grounds.server] if server else []))
        over = moment()
        await grounds.restart()
        return began, over

    return kill_them


async def _freeze(service: Service, seconds: float) -> tuple[float, float]:
    state = service.find()
    assert state is not None  # noqa: S101 - it is up between two faults
    began = moment()
    os.kill(state.pid, signal.SIGSTOP)
    try:
        await asyncio.sleep(seconds)
    finally:
        os.kill(state.pid, signal.SIGCONT)
    return began, moment()


async def _freeze_worker(grounds: Grounds) -> tuple[float, float]:
    return await _freeze(grounds.worker, LONG)


async def _freeze_server(grounds: Grounds) -> tuple[float, float]:
    return await _freeze(grounds.server, LONG)


def _cutting(seconds: float) -> Callable[[Grounds], Awaitable[tuple[float, float]]]:
    async def cut(grounds: Grounds) -> tuple[float, float]:
        began = moment()
        grounds.link.cut()
        try:
            await asyncio.sleep(seconds)
        finally:
            grounds.link.mend()
        return began, moment()

    return cut


async def _reset(grounds: Grounds) -> tuple[float, float]:
    began = moment()
    grounds.link.reset()
    return began, moment()


def _filling(leave_mb: int) -> Callable[[Grounds], Awaitable[tuple[float, float]]]:
    async def fill(grounds: Grounds) -> tuple[float, float]:
        assert grounds.disk is not None  # noqa: S101 - such a fault is done to a home that has one
        began = moment()
        await grounds.disk.fill(leave=leave_mb * MEGABYTE)
        try:
            await asyncio.sleep(SHORT)
        finally:
            await grounds.disk.free()
        over = moment()
        await grounds.restart()
        return began, over

    return fill


KINDS: dict[str, Kind] = {
    "kill-worker": Kind("kill -9 of the worker", _killing(worker=True, server=False), loses_calls=True),
    "kill-server": Kind("kill -9 of the server", _killing(worker=False, server=True)),
    "kill-both": Kind("kill -9 of both at once", _killing(worker=True, server=True), loses_calls=True),
    "freeze-worker": Kind(
        f"the worker stopped (SIGSTOP) for {LONG:.0f} s, beside another one",
        _freeze_worker,
        loses_calls=True,
        second_worker=True,
    ),
    "freeze-server": Kind(f"the server stopped (SIGSTOP) for {LONG:.0f} s", _freeze_server),
    "cut-short": Kind(f"no network between worker and server for {SHORT:.0f} s", _cutting(SHORT)),
    "cut-long": Kind(f"no network for {LONG:.0f} s, longer than a heartbeat may take", _cutting(LONG)),
    "reset": Kind("every connection of the worker to the server broken off", _reset),
    "full-store": Kind("the disk of the store filled to below its reserve", _filling(4), disk="store"),
    "full-database": Kind("the disk of the database filled to the last byte", _filling(0), disk="home"),
}

KILLS = ("kill-worker", "kill-server", "kill-both")
