"""The runs of this home that stand still, each with its cause and what mends it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import TYPE_CHECKING

from checkup.findings import Finding, note, ok, problem
from domain.models import RunStatus
from domain.regions import regional
from domain.stalls import Cause, Stall
from regional_workers import deserted, start_worker
from runtime import Mode, queue_of

if TYPE_CHECKING:
    from temporalio.client import Client

    from reader import RunReader

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
    async for finding in _regions_have_workers(client, reader, [entry.run for entry in going], starter):
        yield finding
    for run, stall in stalled.items():
        yield problem(f"run {run}", f"It is stalled. {stall.what}", remedy_of(stall, starter))


async def _regions_have_workers(
    client: Client, reader: RunReader, runs: list[str], starter: str
) -> AsyncIterator[Finding]:
    """One finding for each region that open runs need: somebody must work for it."""
    manifests = [manifest for run in runs if (manifest := await reader.manifest(run))]
    for mode in Mode:
        of_mode = [each for each in manifests if bool(each["simulated"]) is (mode is Mode.SIMULATED)]
        regions = sorted({region for each in of_mode for region in each.get("regions", ())})
        empty = await deserted(client, mode, regions)
        for region in regions:
            name, queue = f"worker, {mode}, {region}", regional(queue_of(mode), region)
            if queue in empty:
                what = f"Nobody works on the queue {queue}: open runs have tasks that are bound to this region."
                yield problem(name, what, f"In that region: {start_worker(queue, starter)}")
            else:
                yield ok(name, f"somebody is on the queue {queue}")


def remedy_of(stall: Stall, starter: str) -> str:
    """What mends it. Nothing of a run that stands still is lost: it goes on from where it is."""
    if stall.cause is Cause.NO_WORKER:
        return f"{starter} up"
    if stall.cause is Cause.NO_REGION and stall.queue is not None:
        return f"In that region: {start_worker(stall.queue, starter)}"
    if stall.cause is Cause.NO_VERSION:
        return "Start a worker of that version; it may go when its runs have ended."
    if stall.cause is Cause.ACTIVITY_FAILS:
        return "Mend what it names (the store, mostly); it is tried again by itself."
    back = f"{starter} down, then {starter} up"
    if stall.cause in CODE:
        return f"Go back to the version of Nightcrew that began the run, or on to one that mends it: {back}."
    return f"{back}; the log of the worker tells more."
