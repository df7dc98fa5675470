"""One command at a time starts or stops services of a home; the others wait for their turn."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic

from private_files import locked, open_lock
from runtime import CannotDo

PATIENCE = 300.0
"""Seconds to wait: longer than starting or stopping everything may take."""


@asynccontextmanager
async def turn(home: Path) -> AsyncIterator[None]:
    """Nobody else brings this home up or down during the block. A process that dies gives its turn back."""
    try:
        lock = open_lock(home / "services" / "turn.lock")
    except PermissionError as error:
        raise CannotDo(f"The home {home} belongs to another user: {error}. Choose one by --home.") from error
    deadline = monotonic() + PATIENCE
    try:
        while not locked(lock, fcntl.LOCK_EX):
            if monotonic() > deadline:
                raise CannotDo(
                    f"Another command has been starting or stopping the services of {home} for {PATIENCE:.0f} s. "
                    "Look for it, end it, and try again."
                )
            await asyncio.sleep(0.03)
        yield
    finally:
        os.close(lock)
