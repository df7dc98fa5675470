"""Workers of several versions on one Temporal: a run stays with the one it began on, new runs go to the current one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from conftest import Bench, Run, eventually

from deployments import Version, VersionRefused, current_after_start, promote, retire, versions_of
from domain.models import RunStatus
from runtime import Settings, connect

HANG = {"fault": "hang_before_headers"}
PLAN = """
max_concurrency: 2
defaults: {agent: hand, timeout: 60s}
tasks:
  - {id: first, prompt: Go.}
  - {id: held, prompt: Wait., needs: [first], approval: true}
  - {id: last, prompt: Go., needs: [held]}
"""
ONE = "tasks: [{id: only, agent: hand, prompt: Go.}]"


class Crew:
    """Workers of versions that come and go on one queue."""

    def __init__(self, bench: Bench, settings: Settings) -> None:
        self.bench, self._settings = bench, settings
        self.temporal, self.queue = bench.temporal, bench.queue

    @asynccontextmanager
    async def at_work(self, build: str | None) -> AsyncIterator[None]:
        """A worker of this version, with a client of its own, as in another process."""
        other = self.bench.on(await connect(self._settings))
        async with other.worker(build=build):
            if build is not None:
                await current_after_start(other.temporal, self.queue, build)
            yield

    async def version(self, build: str | None) -> Version:
        found = {version.build: version for version in await versions_of(self.temporal, self.queue)}
        return found[build]

    async def waiting(self) -> Run:
        """A run that waits for a person, with what it has done behind it."""
        run = await self.bench.start(PLAN)
        await run.until(lambda picture: picture.status is RunStatus.WAITING)
        return run


@pytest.fixture
def crew(bench: Bench, settings: Settings) -> Crew:
    return Crew(bench, settings)


async def pinned_to(run: Run) -> str:
    info = (await run.handle.describe()).raw_info.versioning_info
    return info.deployment_version.build_id


async def versions_used(run: Run) -> set[str]:
    """The versions whose workers took the steps of a run, from its first history to its last."""
    used = set()
    for part in await run.chain():
        async for event in part.fetch_history_events():
            done = event.workflow_task_completed_event_attributes
            if done.HasField("deployment_version"):
                used.add(done.deployment_version.build_id)
    return used


async def test_the_first_version_is_current_by_itself_and_a_later_one_is_not(crew: Crew) -> None:
    async with crew.at_work("one"), crew.at_work("two"):
        run = await crew.bench.start(ONE)
        report = await run.report()

        one, two = await crew.version("one"), await crew.version("two")
        assert (one.current, two.current) == (True, False)
        assert (len(one.workers), len(two.workers)) == (1, 1)
    assert report.status is RunStatus.COMPLETED
    assert await versions_used(run) == {"one"}


async def test_a_run_stays_with_its_version_and_new_ones_go_to_the_next(crew: Crew) -> None:
    async with crew.at_work("one"), crew.at_work("two"):
        old = await crew.waiting()
        await promote(crew.temporal, crew.queue, "two")
        new = await crew.bench.start(ONE)
        assert (await new.report()).status is RunStatus.COMPLETED

        await eventually(lambda: _has(crew, "one", runs=1))
        await crew.bench.client.approve(old.id, ["held"], by="a test")
        assert (await old.report()).status is RunStatus.COMPLETED

    assert await versions_used(old) == {"one"}
    assert await versions_used(new) == {"two"}


async def test_a_version_with_open_runs_is_not_retired(crew: Crew) -> None:
    async with crew.at_work("one"):
        old = await crew.waiting()
        with pytest.raises(VersionRefused, match="is current: promote another first"):
            await retire(crew.temporal, crew.queue, "one")
        async with crew.at_work("two"):
            await promote(crew.temporal, crew.queue, "two")
            await eventually(lambda: _has(crew, "one", runs=1))

            with pytest.raises(VersionRefused, match=r"1 run of version 'one' of .* is open, and would stand still"):
                await retire(crew.temporal, crew.queue, "one")

            await crew.bench.client.approve(old.id, ["held"], by="a test")
            await old.report()
            await eventually(lambda: _has(crew, "one", runs=0))
            assert len((await retire(crew.temporal, crew.queue, "one")).workers) == 1, "its worker may go now"
    assert (await crew.version("one")).build == "one", "as long as it has workers it is shown"


async def _has(crew: Crew, build: str | None, runs: int) -> bool:
    found = await crew.version(build)
    return found.runs == runs and found.tasks == 0


async def test_a_version_without_workers_is_free(crew: Crew) -> None:
    """It is forgotten as soon as Temporal lets go of it, some minutes after the last worker asked for work."""
    async with crew.at_work("one"):
        await (await crew.bench.start(ONE)).closed()
    async with crew.at_work("two"):
        await promote(crew.temporal, crew.queue, "two")
        await eventually(lambda: _has(crew, "one", runs=0))

        retired = await retire(crew.temporal, crew.queue, "one")

        assert retired.workers == ()
        listed = [version.build for version in await versions_of(crew.temporal, crew.queue)]
        assert listed == (["two"] if retired.forgotten else ["one", "two"])
        with pytest.raises(VersionRefused, match="there is no version 'nine'"):
            await retire(crew.temporal, crew.queue, "nine")


async def test_only_a_version_at_work_is_promoted(crew: Crew) -> None:
    async with crew.at_work("one"):
        with pytest.raises(VersionRefused, match="no worker of version 'nine' is at work"):
            await promote(crew.temporal, crew.queue, "nine")


async def test_a_run_moves_to_the_current_version_at_continue_as_new(crew: Crew) -> None:
    """A run of days would keep its version for days. What is in flight meanwhile stays where it is."""
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(crew.at_work("one"))
        await stack.enter_async_context(crew.at_work("two"))
        run = await crew.bench.start(PLAN, continue_after=2)
        await run.until(lambda picture: picture.status is RunStatus.WAITING)
        assert await pinned_to(run) == "one"
        await promote(crew.temporal, crew.queue, "two")

        await crew.bench.client.approve(run.id, ["held"], by="a test")
        assert (await run.report()).status is RunStatus.COMPLETED

    assert len(await run.chain()) == 2
    assert await versions_used(run) == {"one", "two"}
    assert await pinned_to(run) == "two"


async def test_where_workers_without_a_version_are_a_person_decides(crew: Crew) -> None:
    """Their open runs would move to the first version there is."""
    async with crew.at_work(None):
        old = await crew.waiting()
        async with crew.at_work("one"):
            await eventually(lambda: _has(crew, None, runs=1))
            plain, one = await crew.version(None), await crew.version("one")
            assert (plain.current, plain.runs, len(plain.workers)) == (True, 1, 1)
            assert (one.current, one.runs) == (False, 0)

            await promote(crew.temporal, crew.queue, "one")
            await crew.bench.client.approve(old.id, ["held"], by="a test")
            assert (await old.report()).status is RunStatus.COMPLETED
    assert "one" in await versions_used(old)
