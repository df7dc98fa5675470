"""One worker process: workflows and agents on one queue, the supervisor's own activities on another."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Self

import structlog
from temporalio.client import Client
from temporalio.worker import Worker

from activities.agent import AgentActivities
from activities.attach import AttachActivities
from activities.attempts import BACKOFF_FIRST
from activities.board import Board
from activities.contract import control_queue, quota_queue
from activities.gate import Gate
from activities.meter import PATIENCE, Meter, NarrowMeter, OpenMeter
from activities.model import LanguageModel
from activities.quota_meter import QuotaMeter
from activities.records import RecordActivities
from activities.room import RESERVE
from activities.teller import BankTeller
from embedded import find_server, simulator_url
from health import Address, address, answering
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
from store import Store, StoreError, StoreUnavailable, open_store
from telemetry import exporting
from telemetry.logs import complaints_about_telemetry
from telemetry.witness import Witness
from versioning import unversioned_runner
from workflows.quota import QuotaBank
from workflows.supervisor import SupervisorWorkflow
from workflows.task import TaskWorkflow

SLOTS = 500
"""Agents at work at once in this process. Not the dial: a waiting call holds a slot; the run's setting is the limit."""

FETCHED = 2
"""With `max_calls`, so many times as many agents are taken from the queue: a call that waits here takes a free place at
once. The others wait in Temporal's queue, where a wait costs nothing and the order is the same."""

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
    """The Worker objects of one process, as one: agents that wait never take the slots of the supervisor."""

    def __init__(self, agents: Worker, control: Worker, bank: Worker, board: Board) -> None:
        self._agents, self._control, self._bank, self._board = agents, control, bank, board
        self._opened = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as opened:
            for part in self._board, self._bank, self._control, self._agents:
                await opened.enter_async_context(part)
            self._opened = opened.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._opened.__aexit__(kind, error, trace)  # the last first, and each of them whatever the others do


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
    reserve: int = RESERVE,
    untraced: Client | None = None,
) -> Workers:
    """The worker that production, tests and benchmarks share.

    `untraced` is for the bank, which is asked several times a second: its draws are no part of anybody's trace.
    """
    board = Board(store)
    agent = AgentActivities(
        model=model,
        store=store,
        gate=Gate(client),
        meter=meter or OpenMeter(),
        backoff=backoff,
        board=board,
        reserve=reserve,
    )
    attach, records = AttachActivities(client), RecordActivities(store)
    witness = Witness()
    return Workers(
        board=board,
        agents=Worker(
            client,
            task_queue=queue,
            workflows=[SupervisorWorkflow, TaskWorkflow],
            activities=[agent.run_agent],
            workflow_runner=unversioned_runner(),
            interceptors=[witness],
            max_concurrent_activities=slots,
            max_heartbeat_throttle_interval=HEARTBEAT_THROTTLE,
            default_heartbeat_throttle_interval=HEARTBEAT_THROTTLE,
            sticky_queue_schedule_to_start_timeout=STICKY,
            graceful_shutdown_timeout=grace,
        ),
        control=Worker(
            client,
            task_queue=control_queue(queue),
            activities=[attach.await_tasks, records.append_events, records.settle, records.close_run],
            interceptors=[witness],
            max_concurrent_activities=CONTROL_SLOTS,
            max_heartbeat_throttle_interval=HEARTBEAT_THROTTLE,
            default_heartbeat_throttle_interval=HEARTBEAT_THROTTLE,
            graceful_shutdown_timeout=timedelta(seconds=1),
        ),
        bank=Worker(
            untraced or client,
            task_queue=quota_queue(queue),
            workflows=[QuotaBank],
            workflow_runner=unversioned_runner(),
            sticky_queue_schedule_to_start_timeout=STICKY,
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


def start_telemetry(settings: Settings) -> None:
    """Export traces and metrics when the environment asks for them; what cannot be done is said, and left."""

    def server_pid() -> int | None:
        return server.pid if (server := find_server(settings.home)) else None

    processes = {"worker": os.getpid, "server": server_pid}
    for problem in exporting.start(exporting.WORKER, tell=complaints_about_telemetry(), processes=processes):
        log.warning("telemetry_refused", why=problem)


async def work(settings: Settings, queue: str, slots: int, health_at: Address | None) -> None:
    """Work until SIGTERM or SIGINT, then let the calls at work end."""
    mode = next((mode for mode in Mode if queue_of(mode) == queue), None)
    if mode is None:
        raise CannotDo(f"There is no queue {queue!r}. Queues: {', '.join(queue_of(mode) for mode in Mode)}.")
    stop = asyncio.Event()
    for order in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(order, stop.set)
    client, most = await connect(settings), settings.max_calls
    untraced = await connect(settings, traced=False)
    patience = PATIENCE / 2 if most else PATIENCE  # of two lines one after the other, each has half of it
    bank = BankTeller(untraced, account=settings.account, queue=queue)
    quota = QuotaMeter(bank, settings.terms, patience=patience)
    workers = build_worker(
        client,
        queue=queue,
        model=model_for(mode, settings),
        store=open_store(settings.store),
        meter=NarrowMeter(most, patience, then=quota) if most else quota,
        slots=min(slots, FETCHED * most) if most else slots,
        reserve=settings.reserve_mb * 1_000_000,
        untraced=untraced,
    )
    async with exporting.draining_core_metrics(), answering(health_at) as health, quota, workers:
        announce_ready(queue=queue)
        health.state = "working"
        log.info("worker_started", queue=queue, pid=os.getpid())
        await stop.wait()
        health.state = "draining"
        log.info("worker_draining", queue=queue)
    log.info("worker_stopped", queue=queue)


def main() -> int:
    """Run one worker; the exit code."""
    parser = argparse.ArgumentParser(description="One Nightcrew worker process.")
    parser.add_argument("--home", type=Path, help="the home folder (default: NIGHTCREW_HOME, or .nightcrew here)")
    parser.add_argument("--queue", default=queue_of(Mode.SIMULATED), help="nightcrew, or nightcrew-simulated")
    parser.add_argument("--slots", type=int, default=SLOTS, help="agents at work at once in this process")
    parser.add_argument(
        "--health", type=address, metavar="[HOST:]PORT", help="answer health checks here (default host: 127.0.0.1)"
    )
    options = parser.parse_args()
    private_umask()
    configure_logs()
    try:
        settings = load_settings(options.home)
        start_telemetry(settings)
        asyncio.run(work(settings, options.queue, options.slots, options.health))
    except (CannotDo, StoreError, StoreUnavailable) as problem:
        sys.stderr.write(f"{problem}\n")
        return 1
    return 0


if __name__ == "__main__":
    leave(main())
