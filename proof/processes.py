"""The processes of a home under fire: how they die, and how they come back."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from embedded import Worker
from runtime import CannotDo, Mode
from services import Service

STARTS = 2
"""How often a service is tried again that was not ready in time: the proof is about what dies, not about how fast."""


class LinkedWorker(Worker):
    """A worker that reaches its server over a network."""

    def __init__(self, home: Path, address: str, number: int = 1, extra: Mapping[str, str] | None = None) -> None:
        super().__init__(home, Mode.SIMULATED)
        self._address, self._extra = address, extra or {}
        if number > 1:
            Service.__init__(self, home, f"worker-{number}")

    def environment(self) -> dict[str, str]:
        """That of any worker, with the address of the network."""
        return {**super().environment(), "TEMPORAL_ADDRESS": self._address, **self._extra}


async def kill(*services: Service) -> None:
    """SIGKILL, all in the same moment, and wait until they are gone."""
    for pid in [service.pid() for service in services]:
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
    while any(service.is_held() for service in services):
        await asyncio.sleep(0.01)


async def started(service: Service) -> None:
    """Start a service, on a machine that may have much else to do."""
    for _ in range(STARTS):
        with suppress(CannotDo):
            await service.start()
            return
    await service.start()
