"""A run whose worker is gone and does not come back: readers must be told within two minutes (V9)."""

from __future__ import annotations

import asyncio
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from proof.evidence import Fault, Look
from proof.grounds import Grounds, grounds_at, moment
from proof.points import reached
from proof.processes import kill
from proof.rounds import Tally, judged
from stalls import find_stall

STALL = "stall"

LATER = timedelta(minutes=3)
"""How much later a reader believes it is who does not want to wait."""

LOOKS, BETWEEN = 15, 10.0
"""How often a reader looks who does wait, and seconds between two looks."""


async def stand_still(seed: int, *, wait: bool) -> Tally:
    """Kill the worker in the middle of a call, look at the run for as long as it takes, then let it go on."""
    again = f"python -m proof --seed {seed}" + ("" if wait else " --short")
    with tempfile.TemporaryDirectory(prefix="nightcrew-proof-") as folder:
        async with grounds_at(Path(folder)) as grounds:
            run = await grounds.submit("small", again)
            await reached(grounds, run, "call:2")
            began = moment()
            await kill(grounds.worker)
            grounds.faults.append(Fault(STALL, began, moment(), loses_calls=True))
            await (_look_for_long(grounds, run) if wait else _look_once(grounds, run))
            await grounds.restart()
            await grounds.all_closed()
            return await judged(grounds)


async def _look_for_long(grounds: Grounds, run: str) -> None:
    for _ in range(LOOKS):
        await asyncio.sleep(BETWEEN)
        picture = await grounds.client.picture(run)
        grounds.looks.append(Look(run, moment(), picture.status.value))


async def _look_once(grounds: Grounds, run: str) -> None:
    """As a reader whose clock is ahead."""
    now = datetime.now(UTC) + LATER
    picture = await grounds.client.glance(run)
    stall = await find_stall(grounds.temporal, await grounds.handle(run).describe(), picture, now)
    grounds.looks.append(Look(run, now.timestamp(), "STALLED" if stall else picture.status.value))
