"""The runs of this home that stand still, each with its cause and what mends it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import TYPE_CHECKING

from checkup.findings import Finding, note, ok, problem
from domain.models import RunStatus
from domain.stalls import Cause, Stall

if TYPE_CHECKING:
    from temporalio.client import Client

CODE = frozenset({Cause.BUG, Cause.CHANGED_CODE, Cause.SLOW_CODE, Cause.TOO_LARGE, Cause.TOO_MANY})
"""The same code does the same again: other code is needed."""


async def runs_go_on(client: Client, location: str, starter: str) -> AsyncIterator[Finding]:
    """One finding for each run that stands still, and one for all that go on."""
    from catalog import is_open, run_list  # noqa: PLC0415 - heavy, as all of Temporal
    from reader import RunReader, UnknownRun  # noqa: PLC0415
    from store import StoreError, StoreUnavailable, open_store  # noqa: PLC0415

    reader = RunReader(client, open_store(location))
    try:
        going = [entry for entry in await run_list(reader, since=timedelta(0)) if is_open(entry)]
        pictures = [await reader.glance(entry.run) for entry in going if entry.status is RunStatus.STALLED]
    except (StoreError, StoreUnavailable, UnknownRun) as error:
        yield note("runs", f"They cannot be read: {error}.")
        return
    stalled = {picture.run: picture.stall for picture in pictures if picture.stall is not None}
    if well := len(going) - len(stalled):
        yield ok("runs", f"{well} open")
    for run, stall in stalled.items():
        yield problem(f"run {run}", f"It is stalled. {stall.what}", remedy_of(stall, starter))


def remedy_of(stall: Stall, starter: str) -> str:
    """What mends it. Nothing of a run that stands still is lost: it goes on from where it is."""
    if stall.cause is Cause.NO_WORKER:
        return f"{starter} up"
    if stall.cause is Cause.NO_VERSION:
        return "Start a worker of that version; it may go when its runs have ended."
    if stall.cause is Cause.ACTIVITY_FAILS:
        return "Mend what it names (the store, mostly); it is tried again by itself."
    back = f"{starter} down, then {starter} up"
    if stall.cause in CODE:
        return f"Go back to the version of Nightcrew that began the run, or on to one that mends it: {back}."
    return f"{back}; the log of the worker tells more."
