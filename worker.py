"""One worker process: workflows and agents on one queue, the supervisor's own activities on another."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Self

import structlog
from temporalio.client import Client
from temporalio.worker import Worker

from activities.agent import BACKOFF_FIRST, AgentActivities
from activities.attach import AttachActivities
from activities.contract import control_queue
from activities.gate import Gate
from activities.meter import Meter, OpenMeter
from activities.model import LanguageModel
from activities.records import RecordActivities
from embedded import simulator_url
from runtime import (
    CannotDo,
    Credentials,
    Mode,
    Settings,
    configure_logs,
    connect,
    leave,
    load_settings,
    private_umask,
    queue_of,
)
from services import announce_ready
from store import Store, open_store
from versioning import unversioned_runner
from workflows.supervisor import SupervisorWorkflow
from workflows.task import TaskWorkflow

SLOTS = 500
"""Agents at work at once in this process. Not the dial: a waiting call holds a slot; the run's setting is the limit."""

CONTROL_SLOTS = 1000
"""Of the supervisors' own activities: most of them only wait, one for each run that has continued as new."""

GRACE = timedelta(seconds=30)
"""After SIGTERM, calls at work may end: what is paid for is kept."""

STICKY = timedelta(seconds=2)
"""How long the server waits for a worker that knows a workflow before it asks another: 10 s by default."""

HEARTBEAT_THROTTLE = timedelta(seconds=1)
"""Heartbeats leave at once a second, so that a cancel reaches a call as quickly."""

log = structlog.get_logger()


class Workers:
    """The two Worker objects of one process, as one: agents that wait never take the slots of the supervisor."""

    def __init__(self, agents: Worker, control: Worker) -> None:
        self._agents, self._control = agents, control

    async def __aenter__(self) -> Self:
        await self._control.__aenter__()
        await self._agents.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._agents.__aexit__(kind, error, trace)
        await self._control.__aexit__(kind, error, trace)


def build_worker(
    client: Client,
    *,
    queue: str,
    model: LanguageModel,
    store: Store,
    meter: Meter | None = None,
    slots: int = SLOTS,
    backoff: timedelta = BACKOFF_FIRST,
    grace: timedelta = GRACE,
) -> Workers:
    """The worker that production, tests and benchmarks share."""
    agent = AgentActivities(model=model, store=store, gate=Gate(client), meter=meter or OpenMeter(), backoff=backoff)
    attach, records = AttachActivities(client), RecordActivities(store)
    return Workers(
        agents=Worker(
            client,
            task_queue=queue,
            workflows=[SupervisorWorkflow, TaskWorkflow],
            activities=[agent.run_agent],
            workflow_runner=unversioned_runner(),
            max_concurrent_activities=slots,
            max_heartbeat_throttle_interval=HEARTBEAT_THROTTLE,
            default_heartbeat_throttle_interval=HEARTBEAT_THROTTLE,
            sticky_queue_schedule_to_start_timeout=STICKY,
            graceful_shutdown_timeout=grace,
        ),
        control=Worker(
            client,
            task_queue=control_queue(queue),
            activities=[attach.await_tasks, records.append_events, records.close_run],
            max_concurrent_activities=CONTROL_SLOTS,
            max_heartbeat_throttle_interval=HEARTBEAT_THROTTLE,
            default_heartbeat_throttle_interval=HEARTBEAT_THROTTLE,
            graceful_shutdown_timeout=timedelta(seconds=1),
        ),
    )


def model_for(mode: Mode, settings: Settings) -> LanguageModel:
    """The provider of a mode: the simulator, or the one that the credentials are for."""
    from activities.claude import Claude  # noqa: PLC0415  the SDK takes seconds to import: tests without it need not wait

    if mode is Mode.SIMULATED:
        url = simulator_url(settings)
        if url is None:
            raise CannotDo("No simulator runs in this home. Run `./starter.py up`, or set NIGHTCREW_SIMULATOR_URL.")
        return Claude(base_url=url, api_key="simulated", auth_token=None, simulated=True)
    credentials = Credentials.from_environment()
    if credentials is None:
        raise CannotDo("This worker is for live runs but has no credentials. Set ANTHROPIC_API_KEY where it starts.")
    return Claude(
        base_url=credentials.base_url,
        api_key=credentials.api_key,
        auth_token=credentials.auth_token,
        simulated=False,
    )


@asynccontextmanager
async def health_on(port: int | None) -> AsyncIterator[None]:
    """Answer every request on this port with 200 while the worker runs, for whoever watches over it."""
    if port is None:
        yield
        return

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\nconnection: close\r\n\r\nok\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", port):
        yield


async def work(settings: Settings, queue: str, slots: int, health: int | None) -> None:
    """Work until SIGTERM or SIGINT, then let the calls at work end."""
    mode = next((mode for mode in Mode if queue_of(mode) == queue), None)
    if mode is None:
        raise CannotDo(f"There is no queue {queue!r}. Queues: {', '.join(queue_of(mode) for mode in Mode)}.")
    stop = asyncio.Event()
    for order in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(order, stop.set)
    client = await connect(settings)
    workers = build_worker(
        client, queue=queue, model=model_for(mode, settings), store=open_store(settings.store), slots=slots
    )
    async with workers, health_on(health):
        announce_ready(queue=queue)
        log.info("working", queue=queue, pid=os.getpid())
        await stop.wait()
        log.info("draining", queue=queue)


def main() -> int:
    """Run one worker; the exit code."""
    parser = argparse.ArgumentParser(description="One Nightcrew worker process.")
    parser.add_argument("--home", type=Path, help="the home folder (default: NIGHTCREW_HOME, or .nightcrew here)")
    parser.add_argument("--queue", default=queue_of(Mode.SIMULATED), help="nightcrew, or nightcrew-simulated")
    parser.add_argument("--slots", type=int, default=SLOTS, help="agents at work at once in this process")
    parser.add_argument("--health", type=int, metavar="PORT", help="answer health checks on this port")
    options = parser.parse_args()
    private_umask()
    configure_logs()
    try:
        asyncio.run(work(load_settings(options.home), options.queue, options.slots, options.health))
    except CannotDo as problem:
        sys.stderr.write(f"{problem}\n")
        return 1
    return 0


if __name__ == "__main__":
    leave(main())
