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
from temporalio.service import RPCError
from temporalio.worker import Worker

from activities.agent import AgentActivities
from activities.attach import AttachActivities
from activities.attempts import BACKOFF_FIRST
from activities.batch_lookout import Lookout
from activities.board import Board
from activities.contract import control_queue, quota_queue
from activities.gate import Gate
from activities.growing import GrowActivities
from activities.meter import PATIENCE, Meter, NarrowMeter, OpenMeter
from activities.model import LanguageModel
from activities.quota_meter import QuotaMeter
from activities.records import RecordActivities
from activities.room import RESERVE
from activities.teller import BankTeller
from agreement import agree, identity
from collector import collecting_between
from deployments import current_after_start
from domain.problems import Mistake
from domain.regions import checked, regional
from embedded import find_server, simulator_url
from health import Address, address, answering
from rehearsal import rehearse
from runtime import (
    REGION_VARIABLE,
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
    temporal_settings,
)
from sealing import WrongKey
from services import announce_ready, announce_refused
from store import Store, StoreError, StoreUnavailable, open_store
from telemetry import exporting
from telemetry.logs import complaints_about_telemetry
from telemetry.witness import Witness
from versioning import config_for, runner_for
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

CACHED = 1000
"""Workflows that this process remembers, supervisors and tasks together: of small plans, 0.2 to 0.3 MB each.

One that it has forgotten is replayed when something happens in it.
"""

GRACE = timedelta(seconds=30)
"""After SIGTERM, calls at work may end: what is paid for is kept."""

STICKY = timedelta(seconds=2)
"""How long the server waits for a worker that knows a workflow before it asks another: 10 s by default."""

HEARTBEAT_THROTTLE = timedelta(seconds=1)
"""Heartbeats leave at once a second, so that a cancel reaches a call as quickly."""

ONE_MACHINE = (
    "NIGHTCREW_BUILD_ID is for workers of a Temporal that several versions share (TEMPORAL_ADDRESS). A home with a "
    "server of its own has one worker, and replays its open runs before changed code starts: unset the variable here."
)

log = structlog.get_logger()


class Workers:
    """The Worker objects of one process, as one: agents that wait never take the slots of the supervisor."""

    def __init__(self, agents: Worker, control: Worker, bank: Worker, board: Board, lookout: Lookout) -> None:
        self._parts = board, lookout, bank, control, agents
        self._opened = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as opened:
            for part in self._parts:
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
    build: str | None = None,
    region: str | None = None,
    governed: bool = False,
) -> Workers:
    """The worker that production, tests and benchmarks share.

    With a `region` it takes what is bound to that region, and nothing else but the work of the bank, which is one for
    all regions.

    With a `build` it is versioned: it goes on with the runs that are pinned to that build, and no others.

    `untraced` is for the bank, which is asked several times a second: its draws are no part of anybody's trace.
    """
    board, gate = Board(store), Gate(client)
    lookout = Lookout(model, store, gate)
    agent = AgentActivities(
        model=model,
        store=store,
        gate=gate,
        meter=meter or OpenMeter(),
        backoff=backoff,
        board=board,
        lookout=lookout,
        reserve=reserve,
        region=region,
        governed=governed,
    )
    place = regional(queue, region)
    attach, records, growing = AttachActivities(client), RecordActivities(store, model), GrowActivities(store)
    witness = Witness()
    version = config_for(queue, build)
    return Workers(
        board=board,
        lookout=lookout,
        agents=Worker(
            client,
            task_queue=place,
            workflows=[SupervisorWorkflow, TaskWorkflow],
            activities=[agent.run_agent],
            workflow_runner=runner_for(build),
            deployment_config=version,
            interceptors=[witness],
            max_cached_workflows=CACHED,
            max_concurrent_activities=slots,
            max_heartbeat_throttle_interval=HEARTBEAT_THROTTLE,
            default_heartbeat_throttle_interval=HEARTBEAT_THROTTLE,
            sticky_queue_schedule_to_start_timeout=STICKY,
            graceful_shutdown_timeout=grace,
        ),
        control=Worker(
            client,
            task_queue=control_queue(place),
            activities=[
                attach.await_tasks,
                growing.grow_plan,
                records.append_events,
                records.settle,
                records.close_run,
            ],
            deployment_config=version,
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
            workflow_runner=runner_for(build),
            deployment_config=version,
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


async def work(
    settings: Settings,
    queue: str,
    slots: int,
    health_at: Address | None,
    *,
    region: str | None = None,
    anyway: bool = False,
) -> None:
    """Work until SIGTERM or SIGINT, then let the calls at work end."""
    mode = next((mode for mode in Mode if queue_of(mode) == queue), None)
    if mode is None:
        raise CannotDo(f"There is no queue {queue!r}. Queues: {', '.join(queue_of(mode) for mode in Mode)}.")
    stop, place = asyncio.Event(), regional(queue, region)
    for order in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(order, stop.set)
    name, most = identity(settings), settings.max_calls
    client, untraced = await connect(settings, identity=name), await connect(settings, traced=False, identity=name)
    if not anyway:
        await agree(untraced, queue, settings)
    if temporal_settings() is None:
        if settings.build_id is not None:
            raise CannotDo(ONE_MACHINE)
        await rehearse(untraced, place, settings.home, anyway=anyway)
    patience = PATIENCE / 2 if most else PATIENCE  # of two lines one after the other, each has half of it
    bank = BankTeller(untraced, account=settings.account, queue=queue)
    quota = QuotaMeter(bank, settings.terms, patience=patience)
    store = open_store(settings.store)
    await store.claim()
    workers = build_worker(
        client,
        queue=queue,
        model=model_for(mode, settings),
        store=store,
        meter=NarrowMeter(most, patience, then=quota) if most else quota,
        slots=min(slots, FETCHED * most) if most else slots,
        reserve=settings.reserve_mb * 1_000_000,
        untraced=untraced,
        build=settings.build_id,
        region=region,
        governed=settings.governed,
    )
    async with exporting.draining_core_metrics(), answering(health_at) as health, quota, workers, collecting_between():
        if settings.build_id is not None:
            await _enter(client, place, settings.build_id)
        announce_ready(queue=place)
        health.state = "working"
        log.info("worker_started", queue=place, pid=os.getpid())
        await stop.wait()
        health.state = "draining"
        log.info("worker_draining", queue=place)
    log.info("worker_stopped", queue=place)


async def _enter(client: Client, queue: str, build: str) -> None:
    """Become the version of new runs if there is none yet; otherwise say that another is."""
    try:
        current = await current_after_start(client, queue, build)
    except RPCError as error:  # it may not ask: whoever runs that Temporal decides which version is current
        log.warning("version_not_known", queue=queue, build=build, error=error.status.name)
        return
    if current != build:
        log.warning("worker_is_not_current", queue=queue, build=build, current=current)


def _region(name: str | None) -> str | None:
    try:
        return checked(name) if name is not None else None
    except Mistake as mistake:
        raise CannotDo(f"The region {name!r} (--region, or {REGION_VARIABLE}) {mistake}.") from None


def main() -> int:
    """Run one worker; the exit code."""
    parser = argparse.ArgumentParser(description="One Nightcrew worker process.")
    parser.add_argument("--home", type=Path, help="the home folder (default: NIGHTCREW_HOME, or .nightcrew here)")
    parser.add_argument("--queue", default=queue_of(Mode.SIMULATED), help="nightcrew, or nightcrew-simulated")
    parser.add_argument("--slots", type=int, default=SLOTS, help="agents at work at once in this process")
    parser.add_argument(
        "--region",
        default=os.environ.get(REGION_VARIABLE) or None,
        help=f"take what is bound to this region, and nothing else (default: {REGION_VARIABLE}, or no region)",
    )
    parser.add_argument(
        "--health", type=address, metavar="[HOST:]PORT", help="answer health checks here (default host: 127.0.0.1)"
    )
    parser.add_argument(
        "--anyway",
        action="store_true",
        help="start though an open run may not replay with this code, or another worker has other settings",
    )
    options = parser.parse_args()
    private_umask()
    configure_logs()
    try:
        settings, region = load_settings(options.home), _region(options.region)
        start_telemetry(settings)
        working = work(settings, options.queue, options.slots, options.health, region=region, anyway=options.anyway)
        asyncio.run(working)
    except (CannotDo, StoreError, StoreUnavailable, WrongKey) as problem:
        announce_refused(str(problem))
        sys.stderr.write(f"{problem}\n")
        return 1
    return 0


if __name__ == "__main__":
    leave(main())
