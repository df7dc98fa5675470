"""What an audit trail costs: bytes for each task in Temporal and in the store, and CPU for a batch of records.

    .venv/bin/python benchmarks/trails.py            # 200 tasks
    .venv/bin/python benchmarks/trails.py 1000

Half of the tasks read a result, the other half read nothing.
"""
# ruff: noqa: E402 - the environment is cleaned, and our code is found, before anything is imported

from __future__ import annotations

import os

for name in [name for name in os.environ if name.startswith(("ANTHROPIC_", "NIGHTCREW_", "OTEL_", "TEMPORAL_"))]:
    del os.environ[name]  # a benchmark spends no money, and touches no cluster
os.environ["TEMPORAL_CONFIG_FILE"] = os.devnull

import asyncio
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from time import process_time

from pydantic import JsonValue

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from homes import Home, new_home

from domain.audit import Anchor, beginning, chained, first_fault
from domain.events import Event, EventType
from domain.planning import plan_from_text
from domain.registry import registry_from_text
from folder import PlanFolder
from runtime import ROOT

TASKS, BATCH, TRAIL = 200, 500, 50_000
TOKENS: JsonValue = {"input": 300, "output": 100, "cache_read": 0, "cache_write": 0}
HASH = f"sha256:{'0' * 64}"
CALL: dict[str, JsonValue] = {
    "agent": "writer@1",
    "model": "m",
    "at": "2026-01-01T00:00:00.000Z",
    "tokens": TOKENS,
    "cost_usd": "0.0019",
    "prompt": HASH,
    "answer": HASH,
    "reads": HASH,
}


async def bytes_of(home: Home, tasks: int) -> dict[str, float]:
    """Bytes for each task: of all histories of a run, and of its objects in the store by their first folder."""
    half = [*range(tasks // 2)]
    text = (
        f"max_concurrency: 8\ndefaults: {{agent: writer}}\ntasks:\n"
        f"  - {{id: a, for_each: {half}, prompt: Go.}}\n"
        + "".join(f"  - {{id: b{n}, prompt: Go., needs: ['a[{n}]']}}\n" for n in half)
    )
    registry = registry_from_text((ROOT / "agents.yaml").read_text("utf-8"), file="agents.yaml")
    planned = plan_from_text(text, file="plan.yaml", registry=registry, folder=PlanFolder(home.folder))
    run, _ = await home.run_named(planned)
    found: Counter[str] = Counter()
    for id in (run, *(f"{run}/a[{n}]" for n in half), *(f"{run}/b{n}" for n in half)):
        kind = "history of the run" if id == run else "history of the task"
        description = await home.temporal.get_workflow_handle(id).describe()
        found[kind] += description.raw_description.workflow_execution_info.history_size_bytes
    for file in (home.folder / "store").rglob("*"):
        if file.is_file():
            found[file.relative_to(home.folder / "store").parts[0]] += file.stat().st_size
    return {name: size / tasks for name, size in found.items()}


def cpu() -> None:
    """CPU of a batch of records, and of a whole trail that is verified."""
    now = datetime.now(UTC)
    events = [
        Event(number=n, type=EventType.CALL_MADE, time=now, task=f"task[{n}]", data=CALL) for n in range(1, TRAIL + 1)
    ]
    began = process_time()
    chained(beginning("run"), events[:BATCH])
    sys.stdout.write(f"{BATCH} records chained: {1000 * (process_time() - began):.1f} ms\n")
    lines, head = chained(beginning("run"), events)
    began = process_time()
    assert first_fault("run", lines, Anchor(head, final=True)) is None  # noqa: S101
    sys.stdout.write(f"{TRAIL:,} records verified: {process_time() - began:.2f} s\n")


async def main() -> None:
    """Print the figures."""
    tasks = int(sys.argv[1]) if len(sys.argv) > 1 else TASKS
    async with new_home(["--ttft", "0", "--tokens-per-second", "0"]) as home:
        for name, size in sorted((await bytes_of(home, tasks)).items()):
            sys.stdout.write(f"{name:20} {size:8,.0f} bytes for each task\n")
    cpu()


if __name__ == "__main__":
    asyncio.run(main())
