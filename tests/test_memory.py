"""A10: what a worker remembers of runs is bounded, however many of them are open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from processes import Home, home_at

from client import RunClient
from domain.models import RunStatus
from domain.planning import plan_from_text
from domain.registry import registry_from_text
from folder import PlanFolder
from footprint import footprint
from runtime import ROOT, Mode, connect, queue_of
from store import open_store
from worker import CACHED

MOST_MB = 600
AT_ONCE = 20


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[Home]:
    async with home_at(tmp_path / "home") as home:
        yield home


@pytest.mark.soak
@pytest.mark.timeout(1800)
async def test_a_worker_of_very_many_open_runs(home: Home) -> None:
    """A tenth more runs than it remembers wait for a person; those that it has forgotten go on like the others."""
    registry = registry_from_text((ROOT / "agents.yaml").read_text("utf-8"), file="agents.yaml")
    plan = "tasks: [{id: only, agent: writer, prompt: Go., approval: {}}]"
    planned = plan_from_text(plan, file="plan.yaml", registry=registry, folder=PlanFolder(home.folder))
    client = RunClient(await connect(home.settings), open_store(home.settings.store))
    turns = asyncio.Semaphore(AT_ONCE)

    async def waits() -> str:
        async with turns:
            run = await client.submit(planned, id=None, simulated=True, queue=queue_of(Mode.SIMULATED))
            while (await client.picture(run)).status is not RunStatus.WAITING:
                await asyncio.sleep(0.2)
            return run

    async with home.worker() as worker:
        runs = await asyncio.gather(*(waits() for _ in range(CACHED + CACHED // 10)))
        held = footprint(worker.process.pid)

        await client.approve(runs[0], ["only"], by="a test")
        await client.approve(runs[-1], ["only"], by="a test")

        assert held is not None
        assert held.rss_bytes / 1e6 < MOST_MB
        assert [(await home.ended(run))["status"] for run in (runs[0], runs[-1])] == ["COMPLETED", "COMPLETED"]
