"""Who works on a queue: those who are there, wherever they run, and not those who have left."""

from __future__ import annotations

import os
import socket

from conftest import Bench, eventually
from temporalio.client import Client

from activities.contract import control_queue
from pollers import pollers_on, workers_on
from runtime import dial


async def test_a_queue_that_nobody_works_on_has_no_workers(bench: Bench) -> None:
    assert await workers_on(bench.temporal, bench.queue) == 0


async def test_who_does_activities_alone_is_no_worker_for_workflows(crew: Bench) -> None:
    """The queue of the supervisors' own activities is polled for nothing else."""
    control = control_queue(crew.queue)
    await eventually(lambda: _does_activities(crew.temporal, control))

    (poller,) = await pollers_on(crew.temporal, control, activities=True)

    assert poller.version is None
    assert await workers_on(crew.temporal, control) == 0


async def _does_activities(client: Client, queue: str) -> bool:
    return bool(await pollers_on(client, queue, activities=True))


async def test_a_worker_of_another_machine_counts_until_it_leaves(bench: Bench) -> None:
    """Temporal goes on naming it for minutes, and of another machine no process can be looked for."""
    asking = bench.temporal
    bench.temporal = await dial(asking.service_client.config.target_host, identity="4711@elsewhere")
    async with bench.worker():
        await eventually(lambda: _are(asking, bench.queue, 1))

    await eventually(lambda: _are(asking, bench.queue, 0))


async def test_a_process_of_this_machine_that_is_gone_does_not_count(bench: Bench) -> None:
    """One that was killed could not say good-bye. Process 2**22 is above what Linux gives out."""
    asking = bench.temporal
    dead, alive = f"{2**22}@{socket.gethostname()}", f"{os.getpid()}@{socket.gethostname()}"
    for identity, workers in (dead, 0), (alive, 1):
        bench.temporal = await dial(asking.service_client.config.target_host, identity=identity)
        async with bench.worker():
            # The first poll is told to Temporal a moment later; the workflow below is taken by it.
            run = await bench.start("tasks: [{id: only, agent: hand, prompt: Go.}]")
            await run.report()

            assert await workers_on(asking, bench.queue) == workers


async def _are(client: Client, queue: str, expected: int) -> bool:
    return await workers_on(client, queue) == expected
