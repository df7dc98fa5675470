"""When this process looks for garbage that refers to itself in a circle. All other garbage is freed at once, as ever.

A worker holds some hundred thousand objects that are no garbage: its modules, and the plans of its runs. By Python's
own measure all of them are looked at whenever a quarter as many have come, in the midst of whatever makes the new ones.
For a workflow that takes in a plan of ten thousand tasks that was half of its time.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

YOUNG = 20_000
"""New objects after which the new ones are looked at: milliseconds, and a few megabytes that may be garbage."""

OLDER = 5
"""So many looks at the new are followed by one at those that outlived them."""

BY_ITSELF = 1_000_000
"""What Python counts to before it looks at all by itself: never."""

EVERY = timedelta(seconds=10)
"""How often all are looked at, if the older were meanwhile: the history that a run has left is garbage of 20 MB."""


@asynccontextmanager
async def collecting_between(every: timedelta = EVERY) -> AsyncIterator[None]:
    """Look at everything between other work, for as long as the block runs; what is here at its beginning stays."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, OLDER, BY_ITSELF)
    looking = asyncio.create_task(_look(every))
    try:
        yield
    finally:
        looking.cancel()
        gc.set_threshold(*before)
        gc.unfreeze()


async def _look(every: timedelta) -> None:
    while True:
        await asyncio.sleep(every.total_seconds())
        if gc.get_count()[2]:  # looks at the older since the last one at all
            gc.collect()
