"""Who works for a region, and how a worker of one is started."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from domain.regions import base_of, region_of, regional
from pollers import pollers_on
from runtime import Mode, queue_of

if TYPE_CHECKING:
    from temporalio.client import Client


async def deserted(client: Client, mode: Mode, regions: Iterable[str]) -> list[str]:
    """The queues of those regions that nobody works for."""
    queues = [regional(queue_of(mode), region) for region in regions]
    return [queue for queue in queues if not await pollers_on(client, queue, activities=True)]


def start_worker(queue: str, starter: str) -> str:
    """The command that starts a worker on the queue of a region, by how a hint calls the starter."""
    place, _, home = starter.partition("starter.py")
    place = place.removeprefix("./")
    return f"{place}.venv/bin/python {place}worker.py{home} --queue {base_of(queue)} --region {region_of(queue)}"


def told(queue: str, starter: str) -> str:
    """What whoever starts a plan should know of a region that nobody works for."""
    return (
        f"Nobody works for the region {region_of(queue)} yet (queue {queue}); what is bound to it waits for a worker. "
        f"There, `{start_worker(queue, starter)}` starts one."
    )
