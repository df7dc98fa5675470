"""How much of a quota is used, by two runs on three workers of which one dies; and what the meter costs.

    .venv/bin/python benchmarks/quota.py                                 # about seven minutes
    .venv/bin/python benchmarks/quota.py --part use                      # or: --part cost
    .venv/bin/python benchmarks/quota.py --part use --limit requests     # or: input_tokens, output_tokens

use   Two runs at 22 at once on three worker processes, against a simulator that enforces requests, input and output
      tokens, once for each of them as the tightest. Midway the worker that has the bank is killed, and another one
      started: everybody waits until the bank is found again. All is counted by the provider's own log; the steady part
      is from the second fifth of the calls, when the first burst is over, to the last tenth.
cost  1,000 calls a minute, at random moments, through the meter of one process that is also the bank's worker. Its CPU
      beside that of the same process at rest.
"""
# ruff: noqa: E402 - the environment is cleaned, and our code is found, before anything is imported

from __future__ import annotations

import os

for name in [name for name in os.environ if name.startswith(("ANTHROPIC_", "TEMPORAL_", "OTEL_", "NIGHTCREW_"))]:
    del os.environ[name]  # a benchmark spends no money, and touches no cluster
os.environ["TEMPORAL_CONFIG_FILE"] = os.devnull

import argparse
import asyncio
import json
import random
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from time import monotonic, process_time
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryReverseRequest
from temporalio.client import Client, WorkflowFailureError

from activities.contract import quota_id
from activities.meter import Wish
from activities.quota_meter import QuotaMeter
from activities.teller import BankTeller
from client import RunClient
from domain.models import Priority, Usage
from domain.planning import plan_from_text
from domain.quota.terms import HEADROOM, Limits, Terms
from domain.registry import registry_from_text
from embedded import down, simulator_url, up
from folder import PlanFolder
from runtime import ROOT, Mode, Settings, connect, leave, load_settings, queue_of
from store import open_store
from worker import build_worker, model_for

Part = Callable[[Settings], Awaitable[None]]

QUEUE = queue_of(Mode.SIMULATED)
LIMITS = {"requests": 240, "input_tokens": 60_000, "output_tokens": 60_000, "burst": 0.1}
TIGHT = {"requests": 150, "input_tokens": 60_000, "output_tokens": 9_000}
"""What each limit is when it is the tightest, for calls of 305 tokens of input and 60 of output."""
TASKS = 110
PLAN = f"""
max_concurrency: 22
defaults: {{agent: writer, timeout: 60s, max_tokens: 120}}
tasks: [{{id: part, for_each: [{", ".join(map(str, range(TASKS)))}], prompt: Go.}}]
"""
SIMULATOR = ("--ttft", "0.5", "--tokens-per-second", "60", "--answer-tokens", "40", "80")
EVENTS_OF_A_FEW_DRAWS = 30
CALLS, SECONDS = 1_000, 60.0


def start_worker(home: Path) -> subprocess.Popen[bytes]:
    """A worker process of this home."""
    command = [sys.executable, str(ROOT / "worker.py"), "--home", str(home), "--queue", QUEUE]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def ask(url: str, body: object = None) -> Any:
    """One request to the simulator's own side."""
    data = json.dumps(body).encode() if body is not None else None
    with urllib.request.urlopen(urllib.request.Request(url, data=data), timeout=10) as reply:  # noqa: S310 - it is ours
        return json.load(reply)


async def keeper_of_the_bank(temporal: Client) -> int:
    """The process that has the bank in its memory: the next draw goes to it."""
    bank = WorkflowExecution(workflow_id=quota_id("default", QUEUE))
    latest = await temporal.workflow_service.get_workflow_execution_history_reverse(
        GetWorkflowExecutionHistoryReverseRequest(
            namespace=temporal.namespace, execution=bank, maximum_page_size=EVENTS_OF_A_FEW_DRAWS
        )
    )
    done = (event.workflow_task_completed_event_attributes.identity for event in latest.history.events)
    return next(int(identity.partition("@")[0]) for identity in done if identity)


async def measure_use(settings: Settings, tight: str) -> None:
    """Print what the provider saw."""
    limits = LIMITS | {tight: TIGHT[tight]}
    await up(settings, worker=False, simulator_options=SIMULATOR, keep=False)
    url = simulator_url(settings)
    ask(f"{url}/script", {"config": {"limits": limits}})
    temporal = await connect(settings)
    client = RunClient(temporal, open_store(settings.store))
    registry = registry_from_text((ROOT / "agents.yaml").read_text("utf-8"), file="agents.yaml")
    planned = plan_from_text(PLAN, file="quota.yaml", registry=registry, folder=PlanFolder(settings.home))
    with ExitStack() as ended:
        workers = [start_worker(settings.home) for _ in range(3)]
        ended.callback(lambda: [worker.kill() or worker.wait() for worker in workers])  # type: ignore[func-returns-value]
        runs = [await client.submit(planned, id=None, simulated=True, queue=QUEUE) for _ in range(2)]
        while len(ask(f"{url}/log")) < TASKS:  # noqa: ASYNC110 - it is another process
            await asyncio.sleep(0.5)
        keeper = await keeper_of_the_bank(temporal)
        next(worker for worker in workers if worker.pid == keeper).kill()
        workers.append(start_worker(settings.home))
        for run in runs:
            with suppress(WorkflowFailureError):
                await temporal.get_workflow_handle(run).result()
        report(ask(f"{url}/log"), [await client.picture(run) for run in runs], limits)


def report(calls: list[dict[str, Any]], pictures: list[Any], limits: dict[str, float]) -> None:
    """The figures of the use."""
    refused = sum(call["status"] == 429 for call in calls)
    done = sum(picture.census.succeeded for picture in pictures)
    taken = sorted((call for call in calls if call["status"] != 429), key=lambda call: float(call["started"]))
    steady = taken[int(len(taken) * 0.2) : int(len(taken) * 0.9)]
    minutes = (steady[-1]["started"] - steady[0]["started"]) / 60
    used = {
        "requests": len(steady) - 1,
        "input_tokens": sum(call["billed"]["input"] for call in steady[1:]),
        "output_tokens": sum(call["billed"]["output"] for call in steady[1:]),
    }
    print(f"2 runs of {TASKS} tasks at 22, 3 workers, that of the bank killed and replaced; limits {limits}")
    print(f"  tasks done         {done} of {2 * TASKS}")
    print(f"  calls, 429s        {len(calls)}, {refused} ({refused / len(calls):.1%})")
    print(f"  seconds            {taken[-1]['started'] - taken[0]['started']:.1f}")
    for kind, amount in used.items():
        left = limits[kind] * (1 - HEADROOM)
        rate = amount / minutes
        print(f"  {kind:<18} {rate:,.0f} a minute: {rate / left:.1%} of what the headroom leaves ({left:,.0f})")


async def measure_cost(settings: Settings) -> None:
    """Print the CPU of a process whose calls go through the meter, and of the same process at rest."""
    await up(settings, worker=False, keep=False)
    client = await connect(settings)
    terms = Terms(limits={"default": Limits(requests=2_000, input_tokens=10**7, output_tokens=10**7)})
    meter = QuotaMeter(BankTeller(client, account="cost", queue=QUEUE), terms)
    worker = build_worker(
        client, queue=QUEUE, model=model_for(Mode.SIMULATED, settings), store=open_store(settings.store), meter=meter
    )
    async with meter, worker:
        await a_call(meter)
        await asyncio.sleep(2)
        rest = await cpu_during(asyncio.sleep(20)) / 20
        load = await cpu_during(many_calls(meter)) / SECONDS
    print(f"{CALLS} calls in {SECONDS:g} s through the meter, bank and meter in one process")
    print(f"  CPU at rest        {rest:.1%} of a core")
    print(f"  CPU with calls     {load:.1%} of a core: the meter costs {load - rest:.1%}")


async def cpu_during(work: Any) -> float:
    """The CPU seconds of this process while something happens."""
    began = process_time()
    await work
    return process_time() - began


async def many_calls(meter: QuotaMeter) -> None:
    """Calls at random moments of a minute."""
    chance = random.Random(1)  # noqa: S311 - not a secret
    began = monotonic()
    moments = sorted(chance.uniform(0, SECONDS) for _ in range(CALLS))

    async def later(moment: float) -> None:
        await asyncio.sleep(max(0.0, began + moment - monotonic()))
        await a_call(meter)

    await asyncio.gather(*(later(moment) for moment in moments))
    await asyncio.sleep(max(0.0, began + SECONDS - monotonic()))


async def a_call(meter: QuotaMeter) -> None:
    """A call that takes two seconds, and no CPU."""
    wish = Wish("run", Priority.NORMAL, "claude-haiku-5-5", 500, 2_000, "writer")
    async with meter.draw(wish) as hold:
        hold.begun()
        await asyncio.sleep(2)
        hold.settled(Usage(input=500, output=200))


async def measure(parts: list[Part]) -> None:
    """Each part in a home of its own."""
    for part in parts:
        with tempfile.TemporaryDirectory() as folder:
            settings = load_settings(Path(folder) / "home")
            try:
                await part(settings)
            finally:
                await down(settings)


def main() -> None:
    """Read the command line and measure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--part", choices=["use", "cost"])
    parser.add_argument("--limit", choices=list(TIGHT), help="of the use: the tightest limit, by default each in turn")
    options = parser.parse_args()
    use: list[Part] = [partial(measure_use, tight=tight) for tight in TIGHT if options.limit in (None, tight)]
    parts: dict[str | None, list[Part]] = {"use": use, "cost": [measure_cost], None: [*use, measure_cost]}
    asyncio.run(measure(parts[options.part]))
    leave(0)


if __name__ == "__main__":
    main()
