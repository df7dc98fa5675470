"""A registry of sixty agents with three versions each: how long it takes to list them, and to choose among them.

    .venv/bin/python benchmarks/registry.py

A third of the versions is in agents.yaml, all are registered and onboarded, and two hundred runs have left a record.
Everything is read anew each time, as a command does it.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Callable
from decimal import Decimal
from pathlib import Path
from statistics import median
from time import perf_counter, process_time

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from agency import known_agents, records  # noqa: E402
from domain.admission import definition_of  # noqa: E402
from domain.merit import Merits, RunRecord, Work, WorkLine  # noqa: E402
from domain.models import Agent  # noqa: E402
from domain.planning import plan_from_text  # noqa: E402
from domain.register import Verb  # noqa: E402
from domain.registry import Registry, registry_from_text  # noqa: E402
from domain.rights import Rights  # noqa: E402
from folder import PlanFolder  # noqa: E402
from registers import Registers  # noqa: E402
from store import Store, open_store  # noqa: E402
from terminal.show_agents import summary  # noqa: E402

NAMES, VERSIONS, RUNS, TASKS, TIMES = 60, 3, 200, 60, 15


def agent(name: int, version: int) -> Agent:
    """One of a capability that two others have, too."""
    return Agent(
        name=f"agent-{name}",
        version=str(version),
        capabilities=(f"skill-{name // 3}",),
        model="claude-haiku-4-5",
        instructions=" ".join(["You do one thing and you do it well."] * 20),
        rights=Rights(models=("claude-*",), budget_usd=Decimal(1)),  # a governed home gives work to nobody without
    )


def file_of(agents: list[Agent]) -> str:
    """An agents.yaml."""
    return "agents:\n" + "".join(
        f'  - {{name: {each.name}, version: "{each.version}", capabilities: [{each.capabilities[0]}], '
        f"model: {each.model}, rights: {{models: [claude-*], budget_usd: 1}}, instructions: {each.instructions}}}\n"
        for each in agents
    )


async def prepared(store: Store) -> str:
    """Register and onboard all versions, leave the records of runs, and give the file."""
    registers = Registers(store)
    for version in range(1, VERSIONS + 1):
        for name in range(NAMES):
            each = agent(name, version)
            definition = await store.put_artifact(definition_of(each))
            await registers.add(Verb.REGISTERED, each.name, each.version, by="bench", data={"definition": definition})
            await registers.add(Verb.ONBOARDED, each.name, each.version, by="bench", data={"run": "check"})
    for run in range(RUNS):
        lines = tuple(
            WorkLine(
                agent=agent(name, VERSIONS).label,
                capabilities=(f"skill-{name // 3}",),
                work=Work(tasks=4, succeeded=4 - (name + run) % 2, attempts=4, seconds=9.0),
            )
            for name in range(0, NAMES, 10)
        )
        record = RunRecord(run=f"run-{run}", simulated=False, lines=lines)
        await store.put_record(record.run, record.model_dump(mode="json"))
    return file_of([agent(name, VERSIONS) for name in range(NAMES)])


async def listed(store: Store, text: str) -> int:
    """What `agents --json` does."""
    registry = await known_agents(store, registry_from_text(text, file="agents.yaml"))
    done = await records(store)
    merits = {"live": Merits(done), "simulated": Merits(done, simulated=True)}
    return len([summary(each, registry.admission.register, merits) for each in registry.all])


async def routed(store: Store, text: str) -> int:
    """What reading a plan does in a governed home that goes by records, with a task for every agent's capability."""
    registry = await known_agents(
        store, registry_from_text(text, file="agents.yaml"), governed=True, live=True, by_record=True
    )
    return chosen(registry)


def chosen(registry: Registry) -> int:
    """How many tasks have found somebody."""
    tasks = "".join(f"  - {{id: t{n}, capability: skill-{n // 3}, prompt: Go.}}\n" for n in range(TASKS))
    return len(plan_from_text(f"tasks:\n{tasks}", file="-", registry=registry, folder=PlanFolder.of("-")).plan.tasks)


async def timed(action: Callable[[], Awaitable[int]], expected: int) -> tuple[float, float, float]:
    """Milliseconds: the fastest, the median, and of the processor."""
    taken = []
    began = process_time()
    for _ in range(TIMES):
        start = perf_counter()
        found = await action()
        taken.append(1000 * (perf_counter() - start))
        if found != expected:
            raise AssertionError(found)
    return min(taken), median(taken), 1000 * (process_time() - began) / TIMES


async def main() -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(str(Path(folder) / "store"))
        text = await prepared(store)
        print(f"{NAMES} agents with {VERSIONS} versions each, {2 * NAMES * VERSIONS} acts, {RUNS} records of runs")
        for what, action, expected in (
            ("list", lambda: listed(store, text), NAMES * VERSIONS),
            ("route", lambda: routed(store, text), TASKS),
        ):
            fastest, middle, busy = await timed(action, expected)
            print(f"{what:6} {middle:6.0f} ms (median of {TIMES}; fastest {fastest:.0f}, processor {busy:.0f})")


if __name__ == "__main__":
    asyncio.run(main())
