"""The versions of workers on a Temporal: which takes new runs, who works on each, what is open on it, and its end.

A run is pinned to the version that began it, and moves on at continue-as-new at the earliest; new runs go to the
version that is current. [Why so](docs/decisions/0029-versions-on-clusters.md).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime, timedelta
from time import monotonic

from temporalio.api.deployment.v1 import WorkerDeploymentInfo
from temporalio.api.deployment.v1 import WorkerDeploymentVersion as Named
from temporalio.api.workflowservice.v1 import (
    DeleteWorkerDeploymentVersionRequest,
    DescribeWorkerDeploymentRequest,
    DescribeWorkerDeploymentVersionRequest,
    SetWorkerDeploymentCurrentVersionRequest,
)
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from domain.regions import base_of, regional
from pollers import pollers_on
from versioning import deployment_of, version_of

PATIENCE = timedelta(seconds=10)
"""For one answer: a change of versions goes through a workflow of Temporal's own."""

ENTRY = 60.0
"""Seconds that a first worker tries to become current: Temporal must have seen it poll all of its queues before."""

LAG = 2.0
"""Seconds after which Temporal's list knows what was there before."""

NOT_YET = {RPCStatusCode.NOT_FOUND, RPCStatusCode.FAILED_PRECONDITION, RPCStatusCode.UNAVAILABLE}
"""What is answered while a version is just being made known, or when somebody else has changed it meanwhile."""


class VersionRefused(Exception):
    """What was asked of a version cannot be done; the message says why, and what can."""


@dataclass(frozen=True)
class Version:
    """One build of the workers of a queue."""

    queue: str
    build: str | None
    """`None`: workers without a version."""
    current: bool
    """Whether new runs go there."""
    since: datetime | None
    workers: tuple[str, ...]
    runs: int
    tasks: int

    @property
    def is_needed(self) -> bool:
        """Whether somebody must work on it."""
        return self.current or bool(self.runs or self.tasks)


async def versions_of(client: Client, queue: str) -> list[Version]:
    """Every version of a queue, the oldest first, and workers without one if there are such."""
    info = await _describe(client, queue)
    found = []
    current = _current(info)
    for summary in sorted(info.version_summaries if info else (), key=lambda one: one.create_time.ToNanoseconds()):
        build = summary.deployment_version.build_id
        workers = await _workers(client, queue, build)
        runs, tasks = await _open(client, queue, build)
        since = summary.create_time.ToDatetime()
        found.append(Version(queue, build, build == current, since, workers, runs, tasks))
    plain = tuple(sorted({poller.identity for poller in await pollers_on(client, queue) if poller.version is None}))
    runs, tasks = await _open(client, queue, None)
    if plain or runs or tasks:
        found.append(Version(queue, None, current is None, None, plain, runs, tasks))
    return found


async def current_after_start(client: Client, queue: str, build: str) -> str | None:
    """The version of new runs, after a worker of this build has begun to ask for work: it, if there was none.

    A version that nobody has made current gets no work, and nobody is told. But where workers without a version are at
    work, or have left runs open, a person decides: these runs would move.
    """
    deadline = monotonic() + ENTRY
    while True:
        info = await _describe(client, queue)
        if await _is_known(client, queue, build, info):
            current = _current(info)
            if current is not None or await _has_plain_workers(client, queue) or any(await _open(client, queue, None)):
                return current
            if await _set_current(client, queue, build):
                return build
        if monotonic() > deadline:
            return _current(info)
        await asyncio.sleep(0.2)


async def promote(client: Client, queue: str, build: str) -> None:
    """Have new runs go to this version from now on."""
    if not await _workers(client, queue, build):
        raise VersionRefused(f"no worker of version {build!r} is at work on {queue}: start one, then promote it")
    deadline = monotonic() + ENTRY
    while not await _set_current(client, queue, build):
        if monotonic() > deadline:
            message = f"Temporal does not take version {build!r} of {queue} yet: it needs workers in every region that "
            raise VersionRefused(f"{message}the current version works for; else try again in a moment")
        await asyncio.sleep(0.2)


@dataclass(frozen=True)
class Retired:
    """A version that nothing needs."""

    workers: tuple[str, ...]
    """Those that may go now."""
    forgotten: bool
    """Whether Temporal does not list it any more: it does so for some minutes after the last worker asked for work."""


async def retire(client: Client, queue: str, build: str) -> Retired:
    """A version that nothing open needs: its workers may go, and without workers it is forgotten.

    Counted by the search attribute of what is open: Temporal's own word for it, drained, comes minutes late.
    """
    info = await _describe(client, queue)
    if info is None or build not in _builds(info):
        raise VersionRefused(f"there is no version {build!r} of {queue}")
    if _current(info) == build:
        raise VersionRefused(f"version {build!r} of {queue} is current: promote another first, new runs go here")
    for pause in (LAG, 0.0):
        runs, tasks = await _open(client, queue, build)
        if runs or tasks:
            raise VersionRefused(_still_open(queue, build, runs, tasks))
        await asyncio.sleep(pause)
    workers = await _workers(client, queue, build)
    return Retired(workers, forgotten=not workers and await _delete(client, queue, build))


def _still_open(queue: str, build: str, runs: int, tasks: int) -> str:
    what = " and ".join(
        f"{count:,} {kind}{'s' if count > 1 else ''}" for count, kind in ((runs, "run"), (tasks, "task")) if count
    )
    verb = "is" if runs + tasks == 1 else "are"
    return (
        f"{what} of version {build!r} of {queue} {verb} open, and would stand still without its workers: let them end"
    )


async def _describe(client: Client, queue: str) -> WorkerDeploymentInfo | None:
    request = DescribeWorkerDeploymentRequest(namespace=client.namespace, deployment_name=deployment_of(queue))
    try:
        found = await client.workflow_service.describe_worker_deployment(request, retry=True, timeout=PATIENCE)
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return None
        raise
    return found.worker_deployment_info


def _current(info: WorkerDeploymentInfo | None) -> str | None:
    return (info.routing_config.current_deployment_version.build_id or None) if info is not None else None


def _builds(info: WorkerDeploymentInfo) -> set[str]:
    return {summary.deployment_version.build_id for summary in info.version_summaries}


async def _has_plain_workers(client: Client, queue: str) -> bool:
    """In the region that is asked for, or in none."""
    found = [poller for place in {queue, base_of(queue)} for poller in await pollers_on(client, place)]
    return any(poller.version is None for poller in found)


async def _is_known(client: Client, queue: str, build: str, info: WorkerDeploymentInfo | None) -> bool:
    """Whether Temporal has seen the version ask for work."""
    if info is None or build not in _builds(info):
        return False
    return any(poller.version == _name(queue, build) for poller in await pollers_on(client, queue))


async def _workers(client: Client, queue: str, build: str) -> tuple[str, ...]:
    """Who works on a version, in every region that Temporal has seen it in."""
    name = _name(queue, build)
    named = Named(deployment_name=deployment_of(queue), build_id=build)
    request = DescribeWorkerDeploymentVersionRequest(namespace=client.namespace, deployment_version=named)
    places = {queue}
    try:
        seen = await client.workflow_service.describe_worker_deployment_version(request, retry=True, timeout=PATIENCE)
        places |= {each.name for each in seen.version_task_queues if base_of(each.name) == base_of(queue)}
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
    found = [poller for place in sorted(places) for poller in await pollers_on(client, place)]
    return tuple(sorted({poller.identity for poller in found if poller.version == name}))


async def _set_current(client: Client, queue: str, build: str) -> bool:
    """Whether it is current now; not when Temporal does not know all of its queues yet."""
    request = SetWorkerDeploymentCurrentVersionRequest(
        namespace=client.namespace, deployment_name=deployment_of(queue), build_id=build, identity=client.identity
    )
    try:
        await client.workflow_service.set_worker_deployment_current_version(request, timeout=PATIENCE)
    except RPCError as error:
        if error.status in NOT_YET:
            return False
        raise
    return True


async def _delete(client: Client, queue: str, build: str) -> bool:
    """Whether Temporal has let go of it."""
    named = Named(deployment_name=deployment_of(queue), build_id=build)
    request = DeleteWorkerDeploymentVersionRequest(
        namespace=client.namespace, deployment_version=named, skip_drainage=True, identity=client.identity
    )
    try:
        await client.workflow_service.delete_worker_deployment_version(request, timeout=PATIENCE)
    except RPCError as error:
        if error.status is not RPCStatusCode.FAILED_PRECONDITION:
            raise
        return False
    return True


async def _open(client: Client, queue: str, build: str | None) -> tuple[int, int]:
    """How many runs and how many tasks of a version are open, in all regions; the bank moves by itself."""
    name = deployment_of(queue)
    version = (
        "IS NULL" if build is None else f"IN ('{name}:{build}', '{name}.{build}')"
    )  # as this server, and older ones
    queues = f"(TaskQueue = '{name}' OR TaskQueue STARTS_WITH '{regional(name, '')}')"
    where = f"ExecutionStatus = 'Running' AND {queues} AND TemporalWorkerDeploymentVersion {version}"
    runs = await client.count_workflows(f"{where} AND WorkflowType = 'SupervisorWorkflow'")
    tasks = await client.count_workflows(f"{where} AND WorkflowType = 'TaskWorkflow'")
    return runs.count, tasks.count


def _name(queue: str, build: str) -> str:
    return version_of(queue, build).to_canonical_string()
