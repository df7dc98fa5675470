"""A home for one measurement: server, simulator and worker that nobody has used before, and that nobody will."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from temporalio.client import Client

from client import RunClient
from domain.planning import Planned
from domain.runs import RunSummary
from embedded import down, up
from runtime import Mode, connect, load_settings, queue_of
from store import open_store


@dataclass(frozen=True)
class Home:
    """A home that is up."""

    folder: Path
    runs: RunClient
    temporal: Client

    async def run(self, plan: Planned) -> RunSummary:
        """Submit a plan as a user does, and wait for its end."""
        _, summary = await self.run_named(plan)
        return summary

    async def run_named(self, plan: Planned) -> tuple[str, RunSummary]:
        """The same, with the id of the run."""
        run = await self.runs.submit(plan, id=None, simulated=True, queue=queue_of(Mode.SIMULATED))
        result = await self.temporal.get_workflow_handle(run).result()
        return run, RunSummary.model_validate(result)


@asynccontextmanager
async def new_home(simulator_options: Sequence[str]) -> AsyncIterator[Home]:
    """A home with nothing set, for as long as the block runs."""
    with tempfile.TemporaryDirectory(prefix="nightcrew-") as folder:
        settings = load_settings(Path(folder) / "home")
        try:
            await up(settings, simulator_options=simulator_options, keep=False)
            temporal = await connect(settings)
            yield Home(settings.home, RunClient(temporal, open_store(settings.store)), temporal)
        finally:
            await down(settings)
