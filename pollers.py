"""Who works on a task queue, as far as Temporal knows: workers may run on other machines than the one that asks."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from embedded import Worker
from runtime import Mode, Settings, connect, queue_of, temporal_settings

if TYPE_CHECKING:
    from temporalio.api.deployment.v1 import WorkerDeploymentOptions
    from temporalio.client import Client

FRESH = timedelta(seconds=75)
"""A worker with nothing to do asks again within a minute; Temporal goes on naming one that is gone for five."""

TAGGED = "+"
"""What stands between the name of a worker and what it says of its settings."""

PATIENCE = timedelta(seconds=5)
"""For an answer: who asks does so to be helpful, and has something else to do."""


@dataclass(frozen=True)
class Poller:
    """A worker that asks for work on a queue."""

    identity: str
    """Its process and machine."""
    asked: datetime
    """When it last did."""
    version: str | None
    """The deployment version whose work it takes."""
    tag: str = ""
    """What it says of its settings: see agreement.py. One of before 0.8.0 says nothing."""


async def workers_elsewhere(settings: Settings, mode: Mode) -> int:
    """How many workers others run for this mode: with any, this home needs none of its own, and no simulator.

    None when the home uses its own server, which is for its own workers, or runs a worker already.
    """
    if temporal_settings() is None or Worker(settings.home, mode).find() is not None:
        return 0
    return await workers_on(await connect(settings), queue_of(mode))


async def workers_on(client: Client, queue: str) -> int:
    """How many workers poll a queue. One that was killed on another machine is counted for up to a minute more."""
    return len({poller.identity for poller in await pollers_on(client, queue)})


async def pollers_on(client: Client, queue: str, *, activities: bool = False) -> list[Poller]:
    """Who polls a queue for workflow tasks, or for activities, and has not left."""
    polling = await _polling(client, queue, activities=activities)
    left = await _leaving(client, queue) if polling else {}
    # A container that was restarted has the name it had: who asked for work after the good-bye has come back.
    there = [found for found in polling if found.identity not in left or found.asked > left[found.identity]]
    return [found for found in there if not _ended_here(found.identity)]


async def _polling(client: Client, queue: str, *, activities: bool) -> list[Poller]:
    """Who has polled lately."""
    from temporalio.api.enums.v1 import TaskQueueType  # noqa: PLC0415 - heavy, as all of Temporal
    from temporalio.api.taskqueue.v1 import TaskQueue  # noqa: PLC0415
    from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest  # noqa: PLC0415

    kinds = TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW, TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY
    request = DescribeTaskQueueRequest(
        namespace=client.namespace, task_queue=TaskQueue(name=queue), task_queue_type=kinds[activities]
    )
    found = await client.workflow_service.describe_task_queue(request, retry=True, timeout=PATIENCE)
    since = datetime.now(UTC) - FRESH
    named = [
        Poller(name, poller.last_access_time.ToDatetime(UTC), _version(poller.deployment_options), tag)
        for poller in found.pollers
        for name, _, tag in [poller.identity.partition(TAGGED)]
    ]
    return [poller for poller in named if poller.asked > since]


def _version(options: WorkerDeploymentOptions) -> str | None:
    """The version that a worker takes work of; one without versioning may name a build all the same."""
    from temporalio.api.enums.v1 import WorkerVersioningMode  # noqa: PLC0415

    if options.worker_versioning_mode != WorkerVersioningMode.WORKER_VERSIONING_MODE_VERSIONED:
        return None
    return f"{options.deployment_name}.{options.build_id}"


async def _leaving(client: Client, queue: str) -> dict[str, datetime]:
    """Workers that said good-bye, and when. A server that does not keep track of that names none."""
    from temporalio.api.enums.v1 import WorkerStatus  # noqa: PLC0415
    from temporalio.api.workflowservice.v1 import ListWorkersRequest  # noqa: PLC0415
    from temporalio.service import RPCError  # noqa: PLC0415

    request = ListWorkersRequest(namespace=client.namespace, query=f"TaskQueue = '{queue}'")
    try:
        listed = await client.workflow_service.list_workers(request, timeout=PATIENCE)
    except RPCError:
        return {}
    beats = [worker.worker_heartbeat for worker in listed.workers_info]
    left = {WorkerStatus.WORKER_STATUS_SHUTTING_DOWN, WorkerStatus.WORKER_STATUS_SHUTDOWN}
    gone = [beat for beat in beats if beat.status in left]
    return {beat.worker_identity.partition(TAGGED)[0]: beat.heartbeat_time.ToDatetime(UTC) for beat in gone}


def _ended_here(identity: str) -> bool:
    """Whether it was a process of this machine that is no more. The SDK names a worker PID@HOST."""
    pid, _, host = identity.partition("@")
    if host != socket.gethostname() or not pid.isdecimal():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False  # somebody else's, and alive
    return False
