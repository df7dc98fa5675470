"""A server whose workflows have clocks of their own, and a worker that lives in the same time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from time import monotonic
from typing import Self

import pytest
from conftest import Bench, Run
from temporalio.client import WorkflowExecutionStatus
from temporalio.common import SearchAttributeKey
from temporalio.service import RPCError
from temporalio.testing import TimeSkippingConfig, WorkflowEnvironment

import attributes
from activities import walls
from domain.registry import Registry
from payloads import DATA_CONVERTER
from runtime import core_runtime
from simulator.server import Simulator
from temporal_server import temporal_binary


@pytest.fixture(scope="session")
async def clock() -> AsyncIterator[WorkflowEnvironment]:
    """A server whose workflows have clocks of their own."""
    async with await WorkflowEnvironment.start_time_skipping_v2(
        ts_config=TimeSkippingConfig(max_session_skip_count=5000),
        data_converter=DATA_CONVERTER,
        runtime=core_runtime(),
        dev_server_existing_path=temporal_binary(),
        dev_server_extra_args=["--dynamic-config-value", "frontend.WorkflowTimeSkippingEnabled=true"],
        search_attributes=[SearchAttributeKey.for_keyword(name) for name in attributes.ATTRIBUTES],
    ) as clock:
        yield clock


class Calendar:
    """The clocks by which a worker remembers walls: they go as fast as that of the run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.passed = timedelta()
        calendar = self

        class Shifted(datetime):
            """The time of day in the run."""

            @classmethod
            def now(cls, tz: tzinfo | None = None) -> Self:
                return super().now(tz) + calendar.passed

        monkeypatch.setattr(walls, "monotonic", lambda: monotonic() + calendar.passed.total_seconds())
        monkeypatch.setattr(walls, "datetime", Shifted)


class Skipper(Bench):
    """The bench on a server whose time is moved by hand."""

    clock: WorkflowEnvironment
    calendar: Calendar

    async def hand_over(self, plan: str, *, continue_after: int | None = None) -> Run:
        """Start a run whose time moves only when we say so."""
        with self.clock.with_time_skipping_disabled():
            return await self.start(plan, continue_after=continue_after)

    async def wait(self, run: Run, time: timedelta) -> bool:
        """Let time pass in a run; whether it still goes on then. Tasks at work are waited for."""
        self.calendar.passed += time
        try:
            return await self.clock.fast_forward(run.handle, time)
        except RPCError:
            if (await run.handle.describe()).status is WorkflowExecutionStatus.RUNNING:
                raise
            return False


@pytest.fixture
async def skipper(
    clock: WorkflowEnvironment,
    simulator: Simulator,
    registry: Registry,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Skipper:
    """That bench without a worker."""
    skipper = Skipper(clock.client, simulator, registry, tmp_path)
    skipper.clock, skipper.calendar = clock, Calendar(monkeypatch)
    return skipper


@pytest.fixture
async def days(skipper: Skipper) -> AsyncIterator[Skipper]:
    """That bench with a worker at work."""
    async with skipper.worker():
        yield skipper
