"""When a fault strikes: at the n-th event of a history, at the n-th call, or after so many seconds.

`run:17` is the moment at which the 17th event of the supervisor's history appears, `task:5` the same of its first task,
`call:2` that of the run's second request at the provider, `after:1.25` so many seconds after it was acknowledged.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from temporalio.service import RPCError

from proof.grounds import Grounds

FIRST_TASK = "one"
"""The task of the small plan whose history is followed."""


async def reached(grounds: Grounds, run: str, at: str) -> bool:
    """Wait for a point of a run; False when it ended before."""
    clock, _, number = at.partition(":")
    if clock == "after":
        await asyncio.sleep(float(number))
        return True
    if clock == "call":
        return await _called(grounds, run, int(number))
    return await _happened(grounds, run if clock == "run" else f"{run}/{FIRST_TASK}", int(number))


async def boundaries(grounds: Grounds, run: str) -> dict[str, int]:
    """How many points of each clock a run has that has ended."""
    return {
        "run": len((await grounds.handle(run).fetch_history()).events),
        "task": len((await grounds.handle(f"{run}/{FIRST_TASK}").fetch_history()).events),
        "call": grounds.calls(run),
    }


async def _happened(grounds: Grounds, workflow: str, number: int) -> bool:
    seen = 0
    while True:
        with suppress(RPCError):  # it has not begun, or the server is on its way up
            seen = 0
            async for _ in grounds.handle(workflow).fetch_history_events(wait_new_event=True):
                seen += 1
                if seen >= number:
                    return True
            return False
        await asyncio.sleep(0.02)


async def _called(grounds: Grounds, run: str, number: int) -> bool:
    while grounds.calls(run) < number:
        if (grounds.of_run(run) / "end.json").exists():
            return False
        await asyncio.sleep(0.02)
    return True
