"""Storms: cancels and pauses at any moment, many at once. Nothing is wedged, lost, left, or paid for after it."""

from __future__ import annotations

import asyncio
import hashlib
import random
import time
from collections import Counter
from dataclasses import dataclass
from statistics import median

import pytest
from conftest import Bench, Run
from temporalio.client import WorkflowExecutionStatus

from activities.gate import Gate, Standing
from domain.events import EventType
from domain.models import RunStatus, TaskStatus
from domain.report import Report
from simulator.log import Entry

LAST_WORDS = {EventType.TASK_COMPLETED, EventType.TASK_FAILED, EventType.TASK_SKIPPED}
PAYING_STOPS = 5.0
"""Seconds after a cancel was acknowledged within which the last request may come."""


@dataclass
class Struck:
    """A run that was cancelled: when that was asked for, and how many of its calls were in flight then."""

    run: Run
    asked: float
    in_flight: int


def plan(tasks: int) -> str:
    """Three layers, so that whatever the moment something has ended, is at work and has not begun."""
    third = tasks // 3
    layers = {"one": third, "two": third, "three": tasks - 2 * third}
    needs = {"one": "", "two": ", needs: [one]", "three": ", needs: [two]"}
    lines = [f"  - {{id: {id}, for_each: {[*range(size)]}, prompt: Go.{needs[id]}}}" for id, size in layers.items()]
    return "\n".join([f"max_concurrency: {third}", "defaults: {agent: hand, timeout: 10m}", "tasks:", *lines])


async def strike(bench: Bench, plan: str, id: str, moment: float, *, after_a_call: bool = False) -> Struck:
    run = await bench.start(plan, id=id)
    if after_a_call:
        await bench.simulator.until(lambda: bool(calls_of(bench, run)))
    await asyncio.sleep(moment)  # the moment itself is what is varied
    struck = Struck(run, time.time(), sum(call.ended is None for call in calls_of(bench, run)))
    await run.client.cancel(run.id)
    return struck


def calls_of(bench: Bench, run: Run) -> list[Entry]:
    user = hashlib.sha256(run.id.encode()).hexdigest()[:32]  # what the door tells the provider of a run
    return [entry for entry in bench.simulator.log if entry.user == user]


async def check_cancelled(bench: Bench, run: Run, tasks: int) -> None:
    """The run ended as it should: nothing terminated or left, one last word for each task, what was done is kept."""
    closed = await run.closed()
    calls = len(calls_of(bench, run))
    children = await run.ended_children()
    report = await run.report()
    assert closed.status is WorkflowExecutionStatus.CANCELED, run.id
    assert set(children.values()) <= {"CANCELED", "COMPLETED"}, run.id
    assert report.status is RunStatus.CANCELLED
    assert report.census.succeeded + report.census.cancelled + report.census.not_started == tasks
    last_words = [event.task for event in await run.events() if event.type in LAST_WORDS]
    assert len(last_words) == len(set(last_words)) == tasks
    check_kept(bench, run, report)
    assert len(calls_of(bench, run)) == calls, "a call came after the run was closed"


def check_kept(bench: Bench, run: Run, report: Report) -> None:
    """Each task was called at most once, and what succeeded can be read."""
    paid = Counter(entry.task for entry in calls_of(bench, run))
    assert set(paid.values()) <= {1}
    kept = [task for task in report.tasks if task.status is TaskStatus.SUCCEEDED]
    assert all(task.output and paid[task.id] == 1 for task in kept)


def until_paying_stopped(bench: Bench, struck: Struck) -> tuple[float, float]:
    """Seconds from the cancel to the last request that came, and to the end of the last one."""
    calls = calls_of(bench, struck.run)
    came = max((call.started - struck.asked for call in calls), default=0.0)
    ended = max(((call.ended or time.time()) - struck.asked for call in calls), default=0.0)
    return max(came, 0.0), max(ended, 0.0)


async def storm(bench: Bench, *, runs: int, tasks: int, within: float, call: float) -> list[Struck]:
    chance = random.Random(7)  # noqa: S311
    endless = {"when": {"task": "three[0]"}, "then": {"fault": "hang_before_headers"}}  # no run ends before its strike
    bench.simulator.script([endless], ttft=call, jitter=1)
    moments = [chance.uniform(0, within) for _ in range(runs)]
    struck = await asyncio.gather(
        *(
            strike(bench, plan(tasks), f"storm-{bench.queue}-{n}", moment, after_a_call=n % 4 > 0)
            for n, moment in enumerate(moments)
        )
    )
    for each in struck:
        await check_cancelled(bench, each.run, tasks)
    await bench.simulator.until(lambda: bench.simulator.in_flight == 0)
    return struck


async def test_a_storm_of_cancels_leaves_nothing(crew: Bench) -> None:
    await storm(crew, runs=4, tasks=10, within=1.2, call=0.15)


@pytest.mark.soak
async def test_a_long_storm_of_cancels_leaves_nothing(crew: Bench) -> None:
    """H1, H2: and nobody pays five seconds after the cancel."""
    struck = await storm(crew, runs=20, tasks=30, within=8, call=6)

    times = [until_paying_stopped(crew, each) for each in struck]
    came, ended = zip(*times, strict=True)
    kept = [(await each.run.report()).census.succeeded for each in struck]
    hit = [each.in_flight for each in struck]
    print(f"\ncalls in flight at the cancel: {hit}")  # noqa: T201
    print(f"last request after the cancel: median {median(came):.2f} s, worst {max(came):.2f} s")  # noqa: T201
    print(f"last call ended after the cancel: median {median(ended):.2f} s, worst {max(ended):.2f} s")  # noqa: T201
    print(f"tasks that had succeeded and were kept: {kept}")  # noqa: T201
    assert sum(count > 0 for count in hit) >= 10  # else it was no storm
    assert max(came) <= PAYING_STOPS
    assert max(ended) <= PAYING_STOPS


# --- cancel against completion ---


async def races(bench: Bench, count: int) -> Counter[str]:
    """Runs of one task that are cancelled while they end. Each ends one way or the other, as a whole."""
    chance = random.Random(11)  # noqa: S311
    bench.simulator.script([], ttft=0.05, jitter=1)
    lanes = asyncio.Semaphore(10)
    ends: Counter[str] = Counter()

    async def race(number: int, moment: float) -> None:
        async with lanes:
            id = f"race-{bench.queue}-{number}"
            plan = "tasks: [{id: only, agent: hand, prompt: Go.}]"
            struck = await strike(bench, plan, id, moment, after_a_call=number % 5 > 0)
            closed = await struck.run.closed()
            report = await struck.run.report()
            assert closed.status is not None
            ends[f"{report.status.value}, its task {report.tasks[0].status.value}"] += 1
            assert (closed.status.name, report.status.value, report.tasks[0].status.value) in {
                ("COMPLETED", "COMPLETED", "SUCCEEDED"),
                ("CANCELED", "CANCELLED", "CANCELLED"),
                ("CANCELED", "CANCELLED", "NOT_STARTED"),
                ("CANCELED", "CANCELLED", "SUCCEEDED"),  # its answer was on its way, is paid for, and is kept
            }
            children = await struck.run.ended_children()
            assert set(children.values()) <= {"CANCELED", "COMPLETED"}
            check_kept(bench, struck.run, report)

    await asyncio.gather(*(race(number, chance.uniform(0, 0.8)) for number in range(count)))
    return ends


async def test_a_cancel_that_races_with_the_end_wedges_nothing(crew: Bench) -> None:
    """H3."""
    assert (await races(crew, 20)).total() == 20


@pytest.mark.soak
async def test_500_cancels_that_race_with_the_end_wedge_nothing(crew: Bench) -> None:
    ends = await races(crew, 500)

    print(f"\n{dict(ends)}")  # noqa: T201
    assert ends.total() == 500
    assert {"COMPLETED, its task SUCCEEDED", "CANCELLED, its task SUCCEEDED", "CANCELLED, its task CANCELLED"} <= {
        *ends
    }


# --- pauses ---


class Permissions:
    """Every permission to pay that was given, and the pauses, in the order in which they were asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._moments = 0
        self.given: list[int] = []
        self.pauses: list[tuple[int, int]] = []
        ask, permissions = Gate.permission, self

        async def asked(gate: Gate, run: str, chain: str) -> Standing:
            moment = permissions.moment()
            standing = await ask(gate, run, chain)
            if standing == Standing():
                permissions.given.append(moment)
            return standing

        monkeypatch.setattr(Gate, "permission", asked)

    def moment(self) -> int:
        self._moments += 1
        return self._moments


async def test_no_call_is_allowed_while_the_run_is_paused(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """H11: from the acknowledgement of a pause to the next resume, again and again; each task is paid for once."""
    permissions = Permissions(monkeypatch)
    bench.simulator.script([], ttft=0.03, jitter=1)
    async with bench.worker():
        run = await bench.start(f"""
max_concurrency: 8
defaults: {{agent: hand}}
tasks:
  - {{id: hold, prompt: Go., approval: true}}
  - {{id: t, for_each: {[*range(60)]}, prompt: Go.}}
""")
        number = 0
        while bench.simulator.calls() < 60:
            await run.client.pause(run.id, by="ann")
            acknowledged = permissions.moment()
            if number % 2:
                await run.until(lambda picture: picture.census.running == 0)
                assert bench.simulator.in_flight == 0
            permissions.pauses.append((acknowledged, permissions.moment()))
            await run.client.resume(run.id, by="ann")
            enough = min(bench.simulator.calls() + number % 6, 60)
            await bench.simulator.until(lambda enough=enough: bench.simulator.calls() >= enough)  # type: ignore[misc]
            number += 1
        await run.until(lambda picture: picture.census.succeeded == 60)
        await run.client.reject(run.id, ["hold"], by="ann")
        report = await run.report()

    assert report.status is RunStatus.PARTIAL
    assert len(permissions.pauses) > 2
    for acknowledged, resumed in permissions.pauses:
        assert not [asked for asked in permissions.given if acknowledged < asked < resumed]
    assert len(permissions.given) == 60
    assert Counter(entry.task for entry in bench.simulator.log) == {f"t[{n}]": 1 for n in range(60)}
    kinds = Counter(event.type for event in await run.events())
    assert kinds[EventType.TASK_COMPLETED] == 60
    assert kinds[EventType.RUN_PAUSED] == kinds[EventType.RUN_RESUMED] == len(permissions.pauses)
