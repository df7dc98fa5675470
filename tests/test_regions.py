"""A run or an agent that is bound to a region: only workers that were started for it take its tasks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from conftest import Bench, Run, eventually
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client

from activities.contract import control_queue, quota_id, quota_queue
from activities.region import OtherRegion, check_region
from checkup.runs import remedy_of
from deployments import VersionRefused, _set_current, current_after_start, promote, retire, versions_of
from domain.models import Agent, TaskStatus
from domain.planning import Invalid, Planned, plan_from_text
from domain.progress import outline_of
from domain.regions import base_of, needed, region_of, regional
from domain.registry import registry_from_text
from domain.stalls import Cause
from embedded import find_server
from folder import PlanFolder
from pollers import pollers_on
from runtime import Settings, dial
from stalls import find_stall

LATER = timedelta(minutes=10)
OWN = '{name: berliner, version: "1", model: claude-haiku-4-5, instructions: Do it., region: eu}'
MIXED = f"""
name: mixed
max_concurrency: 6
agents: [{OWN}]
defaults: {{agent: hand}}
tasks:
  - {{id: here, for_each: [1, 2, 3], prompt: Go.}}
  - {{id: there, for_each: [1, 2], agent: berliner, prompt: Go.}}
  - {{id: last, prompt: Go., needs: [here, there]}}
"""
WHOLE = """
name: whole
region: eu
max_concurrency: 2
defaults: {agent: hand}
tasks:
  - {id: first, for_each: [1, 2, 3], prompt: Go.}
  - {id: last, prompt: Go., needs: [first]}
"""
REGISTRY = """
agents:
  - {name: hand, version: "1", model: m, instructions: Do it., capabilities: [work]}
  - {name: berliner, version: "1", model: m, instructions: Do it., region: eu}
  - {name: texan, version: "1", model: m, instructions: Do it., region: us}
"""
SUMMARIZER = '  - {name: summarizer, version: "1", model: m, instructions: Sum up., region: us}\n'


# Queues


def test_no_two_queues_have_one_name() -> None:
    """Whatever a region is called: its queues are told from those of any other, and from those of none."""
    names = [None, "eu", "eu-control", "eu-quota", "control", "quota", "us-1"]
    places = [regional(base, name) for base in ("nightcrew", "nightcrew-simulated") for name in names]
    queues = [*places, *(control_queue(place) for place in places), *{quota_queue(place) for place in places}]

    assert len(queues) == len({*queues}) == 2 * (2 * len(names) + 1)
    assert [region_of(place) for place in places] == [*names, *names]
    assert [region_of(control_queue(place)) for place in places] == [*names, *names]
    assert control_queue("nightcrew") == "nightcrew-control", "as it was before there were regions"


def test_the_bank_is_one_for_all_regions() -> None:
    assert quota_id("default", "nightcrew@eu") == quota_id("default", "nightcrew") == "quota:default@nightcrew"
    assert quota_queue("nightcrew@eu") == "nightcrew-quota"
    assert base_of("nightcrew@eu") == base_of("nightcrew") == "nightcrew"


# Plans


def planned(plan: str, folder: Path, *, region: str | None = None, agents: str = REGISTRY) -> Planned:
    registry = registry_from_text(agents, file="agents.yaml")
    return plan_from_text(plan, file="plan.yaml", registry=registry, folder=PlanFolder(folder), region=region)


def test_who_starts_a_plan_goes_before_what_it_says(tmp_path: Path) -> None:
    plain, bound = (
        "tasks: [{id: a, agent: hand, prompt: Go.}]",
        "region: eu\ntasks: [{id: a, agent: hand, prompt: Go.}]",
    )

    assert planned(plain, tmp_path).plan.region is None
    assert "region" not in planned(plain, tmp_path).plan.model_dump(), "so that what was submitted keeps its hash"
    assert planned(bound, tmp_path).plan.region == "eu"
    assert planned(bound, tmp_path).plan_sources["region"] == "plan"
    asked = planned(bound, tmp_path, region="us")
    assert (asked.plan.region, asked.plan_sources["region"]) == ("us", "option")


def test_what_is_handed_to_the_run_of_the_regions_of_agents(tmp_path: Path) -> None:
    """Only where they differ from its own: what is everywhere in one place is no news to any task."""
    tasks = "tasks: [{id: a, agent: berliner, prompt: Go.}, {id: b, agent: hand, prompt: Go.}]"
    mixed, whole = planned(tasks, tmp_path).plan, planned(tasks, tmp_path, region="eu").plan

    assert (outline_of(mixed).regions, needed(mixed)) == ({"berliner": "eu"}, ("eu",))
    assert (outline_of(whole).regions, needed(whole)) == ({}, ("eu",))
    assert "regions" not in outline_of(whole).model_dump()


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (
            "region: EU\ntasks: [{id: a, agent: hand, prompt: Go.}]",
            "plan.yaml:1:9: 'region' must be lower-case letters",
        ),
        (f"region: {'e' * 33}\ntasks: [{{id: a, agent: hand, prompt: Go.}}]", "at most 32"),
        ("region: eu@us\ntasks: [{id: a, agent: hand, prompt: Go.}]", "'region' must be lower-case letters"),
        ("region: no\ntasks: [{id: a, agent: hand, prompt: Go.}]", "write it in quotes"),
        (
            "region: eu\ntasks: [{id: a, agent: texan, prompt: Go.}]",
            "plan.yaml:2:24: task 'a': its agent 'texan' is bound to the region 'us', and the run to the region 'eu'",
        ),
        ("tasks: [{id: a, agent: hand, prompt: Go., region: eu}]", "'region' cannot stand in "),
        (
            "tasks: [{id: a, plan: inner.yaml}]",
            "inner.yaml:1:9: a plan inside another one is where that one is, no region",
        ),
    ],
)
def test_a_region_that_cannot_be(plan: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "inner.yaml").write_text("region: us\ntasks: [{id: b, agent: hand, prompt: Go.}]\n")

    with pytest.raises(Invalid) as invalid:
        planned(plan, tmp_path)

    assert words in "\n".join(map(str, invalid.value.problems))


def test_a_plan_inside_another_is_where_that_one_is(tmp_path: Path) -> None:
    (tmp_path / "inner.yaml").write_text("region: eu\ntasks: [{id: b, agent: hand, prompt: Go.}]\n")
    outer = "region: eu\ntasks: [{id: a, plan: inner.yaml}]"

    assert planned(outer, tmp_path).plan.region == "eu"
    with pytest.raises(Invalid, match="is where that one is, the region 'us'"):
        planned(outer, tmp_path, region="us")


def test_a_summary_is_made_where_the_result_is(tmp_path: Path) -> None:
    """By the worker that has the result; an agent that must be elsewhere cannot make it."""
    tasks = "tasks:\n  - {id: a, agent: berliner, prompt: Go.}\n"
    tasks += "".join(f"  - {{id: b{n}, agent: hand, prompt: Go., needs: {{a: {{pass: summary}}}}}}\n" for n in range(2))

    assert planned(tasks, tmp_path).plan.tasks[0].summarise
    with pytest.raises(Invalid, match="is summed up by the agent 'summarizer', which is bound to the region 'us'"):
        planned(tasks, tmp_path, agents=REGISTRY + SUMMARIZER)


def test_a_worker_elsewhere_hands_the_task_back() -> None:
    """However it came by it."""
    berliner = Agent(name="berliner", version="1", model="m", instructions="Do it.", region="eu")

    check_region(berliner, "eu")
    check_region(berliner.model_copy(update={"region": None}), "us")
    for here in (None, "us"):
        with pytest.raises(OtherRegion, match="'berliner' is bound to eu"):
            check_region(berliner, here)


# Runs


class Regions:
    """Workers of regions that come and go, each with a client, and so a name, of its own."""

    def __init__(self, bench: Bench, settings: Settings) -> None:
        self.bench, self._settings = bench, settings

    @asynccontextmanager
    async def worker(self, region: str | None, build: str | None = None) -> AsyncIterator[Client]:
        server = find_server(self._settings.home)
        assert server is not None
        client = await dial(server.address, identity=region or "nowhere")
        async with self.bench.on(client).worker(region=region, build=build):
            yield client


@pytest.fixture
def regions(bench: Bench, settings: Settings) -> Regions:
    return Regions(bench, settings)


async def who_worked(run: Run, *tasks: str) -> dict[str, set[str]]:
    """The workers that have taken anything of the supervisor, of the workflows of tasks and of their agents."""
    steps = EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED
    found: dict[str, set[str]] = {}
    handles = [("run", handle) for handle in await run.chain()]
    handles += [(task, run.temporal.get_workflow_handle(f"{run.id}/{task}")) for task in await run.ended_children()]
    for name, handle in handles:
        async for event in handle.fetch_history_events():
            if event.event_type == steps:
                found.setdefault(name, set()).add(event.workflow_task_started_event_attributes.identity)
            elif event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED:
                by = event.activity_task_started_event_attributes.identity
                found.setdefault(f"{name}: activities", set()).add(by)
    return found


async def test_an_agent_is_asked_in_its_region_and_all_else_goes_on(regions: Regions, bench: Bench) -> None:
    """Without a worker there its tasks wait, and say for whom; the others are done meanwhile."""
    async with regions.worker(None):
        run = await bench.start(MIXED)
        picture = await run.until(lambda picture: picture.census.succeeded == 3 and picture.census.running == 2)

        waits = {id: picture.wait(id, datetime.now(UTC) + LATER) for id in picture.of(TaskStatus.RUNNING)}
        assert {id: wait and (wait.reason, wait.what) for id, wait in waits.items()} == {
            f"there[{item}]": ("worker", "there is no word from a worker of the region eu") for item in (1, 2)
        }
        now = datetime.now(UTC) + LATER
        while (
            stall := await find_stall(run.temporal, await run.handle.describe(), picture, now)
        ) is None or stall.cause is not Cause.NO_REGION:  # something may be on its way
            await asyncio.sleep(0.05)
        assert stall.task == "there[1]"
        assert "No worker of the region eu" in stall.sentence
        assert remedy_of(stall, "./starter.py --home h").endswith(
            f".venv/bin/python worker.py --home h --queue {bench.queue} --region eu"
        )
        assert {entry.task for entry in bench.simulator.log} == {"here[1]", "here[2]", "here[3]"}

        async with regions.worker("eu"):
            report = await run.report()

    assert (report.status, report.census.succeeded) == ("COMPLETED", 6)
    assert {task.id: task.region for task in report.tasks if task.region} == {"there[1]": "eu", "there[2]": "eu"}
    assert bench.simulator.calls() == 6, "each task once"
    worked = await who_worked(run, *(task.id for task in report.tasks))
    bound = {f"there[{item}]: activities" for item in (1, 2)}
    assert {name: by for name, by in worked.items() if by != {"nowhere"}} == {name: {"eu"} for name in bound}
    assert len(worked) == 2 * (1 + 6)


async def test_a_run_that_is_bound_is_there_whole(regions: Regions, bench: Bench) -> None:
    """Supervisor, tasks, events, the wait for tasks after continue-as-new: no other worker sees any of it."""
    async with regions.worker(None) as nowhere:
        run = await bench.start(WHOLE, continue_after=2)
        await eventually(lambda: _polls(nowhere, bench.queue))
        picture, now = await bench.client.glance(run.id), datetime.now(UTC) + LATER
        while (stall := await find_stall(run.temporal, await run.handle.describe(), picture, now)) is None:
            await asyncio.sleep(0.05)
        assert (stall.cause, stall.task) == (Cause.NO_REGION, None)
        assert not bench.simulator.log

        async with regions.worker("eu"), regions.worker("us"):
            report = await run.report()
            chain = await run.chain()

    assert (report.status, report.region, report.census.succeeded) == ("COMPLETED", "eu", 4)
    assert len(chain) > 1
    worked = await who_worked(run, *(task.id for task in report.tasks))
    assert {*map(frozenset, worked.values())} == {frozenset({"eu"})}
    assert len(worked) == 2 * (1 + 4)


async def test_versions_are_of_all_regions_together(regions: Regions, bench: Bench) -> None:
    """An agent elsewhere is asked by the version of its run, and what is open in a region keeps its version alive."""
    queue, eu = bench.queue, regional(bench.queue, "eu")
    async with regions.worker(None, "one") as nowhere, regions.worker("eu", "one") as there:
        assert await current_after_start(there, eu, "one") == "one"
        assert await current_after_start(nowhere, queue, "one") == "one"
        mixed = await (await bench.start(MIXED)).report()
        held = await bench.start(WHOLE.replace("prompt: Go., needs", "prompt: Go., approval: true, needs"))
        await held.until(lambda picture: picture.census.waiting == 1)

        async with regions.worker(None, "two") as next_one:
            await current_after_start(next_one, queue, "two")
            assert not await _set_current(next_one, queue, "two"), "nobody of it is in the region"
            async with regions.worker("eu", "two"):
                await promote(bench.temporal, queue, "two")
                while (still := (versions := await versions_of(bench.temporal, queue))[0]).runs > 1 or still.tasks:
                    await asyncio.sleep(0.05)  # Temporal's list may be a moment behind the end of a run and its tasks
                one, two = versions
                assert (one.build, one.workers, one.runs) == ("one", ("eu", "nowhere"), 1)
                assert (two.build, two.current, two.workers) == ("two", True, ("eu", "nowhere"))
                with pytest.raises(VersionRefused, match="1 run of version 'one'"):
                    await retire(bench.temporal, queue, "one")
                await held.client.approve(held.id, ["last"], by="a person")
                await held.report()

    assert mixed.status == "COMPLETED"


async def _polls(client: Client, queue: str) -> bool:
    return bool(await pollers_on(client, queue))
