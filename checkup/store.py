"""Whether the store takes what it is given, and gives it back."""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path

from checkup.findings import Finding, note, ok, problem
from checkup.folders import why_unwritable
from store import StoreError, StoreUnavailable, open_store, shown_location

PATIENCE = 8.0
"""Seconds. A bucket that takes longer would also hold up every task."""


async def store_answers(location: str) -> Finding:
    """Write a few bytes, read them back, remove them."""
    shown = shown_location(location)
    remedy = "Check NIGHTCREW_STORE, the network and the rights of its credentials; runs wait until it answers."
    if "://" not in location and not Path(location).exists():
        if why := why_unwritable(Path(location)):
            return problem("store", f"{shown} does not exist and cannot be made: {why}.", remedy)
        return note("store", f"{shown} does not exist yet; the first run makes it.")
    try:
        async with asyncio.timeout(PATIENCE):
            await open_store(location).probe(secrets.token_hex(8))
    except TimeoutError:
        return problem("store", f"{shown} does not answer within {PATIENCE:.0f} s.", remedy)
    except (StoreError, StoreUnavailable) as error:
        return problem("store", f"{shown}: {str(error).rstrip('.')}.", remedy)
    except Exception as error:  # noqa: BLE001  whatever a bucket's library makes of a wrong address
        return problem("store", f"{shown} cannot be used ({type(error).__name__}).", remedy)
    return ok("store", f"{shown} can be written and read.")
