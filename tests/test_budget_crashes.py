"""Money under kill -9: random plans, caps, faults and moments of death, with the simulator's bill as the truth.

A cap of a run, of a task, of an agent, and of a day over all of them.

The seed decides on all of that but the very moment at which a signal arrives. Whatever fails names it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from random import Random
from typing import Any

import pytest
from conftest import Run
from test_budget import MODEL
from test_cap_runs import capped
from test_cap_runs import not_at_midnight as not_at_midnight  # noqa: PLC0414  a fixture of that file
from test_crashes import Home
from test_crashes import home as home  # noqa: PLC0414  a fixture of that file

from domain import purse
from domain.course import Course
from domain.models import Plan, RunStatus, TaskStatus, Usage
from domain.picture import Picture
from domain.planning import plan_from_text
from domain.prices import cost_of
from domain.progress import outline_of
from domain.registry import Registry
from embedded import Worker
from folder import PlanFolder
from prices import price_list, priced
from runtime import Mode, load_settings
from simulator.log import Entry
from simulator.server import Simulator
from store import Store, open_store
from temporal_server import Server
from workflows.supervisor import SupervisorWorkflow

PLANS = 4
"""Runs at the same time in one home: each has a budget of its own, and all live through the same kills."""

AGENTS = ("hand", "pair")

DYING = {"worker": ("worker",), "server": ("server",), "both": ("worker", "server")}


@dataclass(frozen=True)
class Venture:
    """A plan with its cap, and what happens to it."""

    name: str
    text: str
    calls: Decimal
    """Its budget, in calls at their worst."""
    answers: dict[str, int]
    """How long the answer of each task is: nearly as long as it may be, or no cap would ever be reached."""
    broken: tuple[str, ...]
    """Tasks whose first call breaks off in the middle."""
    tasks: dict[str, Decimal]
    """Caps of tasks, in calls at their worst. One below 1 lets its task make none at all."""
    agents: dict[str, Decimal]
    """Caps of agents, in the same."""

    def rules(self, ttft: float) -> Iterator[dict[str, Any]]:
        for task, tokens in self.answers.items():
            pace = {"answer_tokens": tokens, "tokens_per_second": 400}
            if task in self.broken:
                yield {"when": {"task": task, "nth": 1}, "then": {**pace, "fault": "reset_mid_stream", "ttft": 0.2}}
            yield {"when": {"task": task}, "then": {**pace, "ttft": ttft}}


def venture(name: str, chance: Random) -> Venture:
    ids = [f"{name}-{number}" for number in range(chance.randint(2, 7))]
    lines = [f"max_concurrency: {chance.randint(1, 4)}", "defaults: {timeout: 20s}", "tasks:"]
    most = dict[str, int]()
    for place, id in enumerate(ids):
        needs = chance.sample(ids[:place], min(place, chance.choice([0, 0, 1, 2])))
        edges = ", ".join(
            f"{need}: {{policy: {chance.choice(['tolerate', 'optional'])}, pass: full}}" for need in needs
        )
        most[id] = chance.choice([200, 400, 800])
        limits = f"agent: {chance.choice(AGENTS)}, attempts: {chance.randint(1, 3)}, max_tokens: {most[id]}"
        lines.append(f"  - {{id: {id}, prompt: Go., {limits}, needs: {{{edges}}}}}")
    calls = tenths(chance, 10, 12 * len(ids))
    answers = {id: tokens - chance.randint(2, 10) for id, tokens in most.items()}
    broken = tuple(id for id in ids if chance.random() < 0.4)
    tasks = {id: tenths(chance, 8, 18) for id in ids if chance.random() < 0.4}
    agents = {agent: tenths(chance, 10, 5 * len(ids) + 5) for agent in AGENTS if chance.random() < 0.4}
    return Venture(name, "\n".join(lines), calls, answers, broken, tasks, agents)


def tenths(chance: Random, low: int, high: int) -> Decimal:
    return Decimal(chance.randint(low, high)) / 10


def worst_calls(plan: Plan) -> dict[str, Decimal]:
    """What one call of each task can cost, before the results of others are put into it."""
    chart = Course(outline_of(plan)).chart
    costs = {task.id: purse.least_call(chart, task.id) for task in plan.tasks}
    return {id: cost for id, cost in costs.items() if cost is not None}


def cost(entries: list[Entry]) -> Decimal:
    price = price_list({MODEL}).price(MODEL)
    bills = (Usage(**{kind: getattr(entry.billed, kind) for kind in Usage.model_fields}) for entry in entries)
    return sum((cost_of(price, bill) for bill in bills), Decimal(0))


async def under_way(store: Store, run: str) -> dict[str, str]:
    """The requests that were intended, and of which nobody has told the end: their places, and whose they are."""
    keys = set(await store.records(run))
    found: dict[str, str] = {}
    for key in keys:
        call, _, name = key.rpartition("/")
        kind, _, number = name.partition("-")
        if kind != "intent" or f"{call}/setback-{number}" in keys:
            continue
        answer = await store.recorded(f"{call}/completion")
        intent = await store.recorded(key)
        if intent is not None and (answer is None or answer["number"] != int(number)):
            found[key] = intent["task"]
    return found


class Crash:
    """A home in which some ventures are under way, and in which processes are killed."""

    def __init__(self, home: Home, registry: Registry, chance: Random) -> None:
        self._home, self._registry, self._chance = home, registry, chance
        self._ventures = [venture(f"p{number}", chance) for number in range(PLANS)]
        self._runs: dict[str, Run] = {}
        self._plans: dict[str, Plan] = {}
        self._daily: Decimal | None = None
        self._under_way: dict[str, str] = {}
        """The requests that were under way at one of the kills: one without an end is so at all that follow."""

    @property
    def _simulator(self) -> Simulator:
        return self._home.simulator

    async def begin(self, *, daily: bool) -> None:
        """Bring the home up, with or without a cap for the day, and hand over all plans."""
        folder = PlanFolder(self._home.settings.home)
        reads = {
            each.name: plan_from_text(each.text, file=f"{each.name}.yaml", registry=self._registry, folder=folder)
            for each in self._ventures
        }
        for each in self._ventures:
            plan = priced(reads[each.name].plan)
            worst = worst_calls(plan)
            largest = max(worst.values())
            limited = capped(
                plan,
                agents={agent: largest * calls for agent, calls in each.agents.items()},
                tasks={task: worst[task] * calls for task, calls in each.tasks.items()},
            )
            self._plans[each.name] = limited.model_copy(update={"budget": largest * each.calls})
        if daily:
            dearest = max(cost for plan in self._plans.values() for cost in worst_calls(plan).values())
            self._limit_the_day(dearest * self._chance.randint(3, 8))
        await self._home.up()
        ttft = self._chance.uniform(0.2, 1.0)
        self._simulator.script([rule for each in self._ventures for rule in each.rules(ttft)])
        for name, plan in self._plans.items():
            self._runs[name] = await self._home.submit_planned(replace(reads[name], plan=plan))

    def _limit_the_day(self, usd: Decimal) -> None:
        toml = self._home.settings.home / "nightcrew.toml"
        toml.write_text(f'{toml.read_text("utf-8")}daily_usd = "{usd}"\n', "utf-8")
        self._home.settings = load_settings(self._home.settings.home)
        self._daily = usd

    async def kill(self, who: str) -> None:
        """Kill somebody a while after the next call has begun, if there is one, and bring it up again."""
        seen, later = len(self._simulator.log), self._chance.uniform(0, 1.2)
        while len(self._simulator.log) == seen:
            if await self._has_come_to_rest():
                return
            await asyncio.sleep(0.05)
        await asyncio.sleep(later)  # chance itself: nothing is waited for
        folder = self._home.settings.home
        services = {"worker": Worker(folder, Mode.SIMULATED), "server": Server(folder)}
        await self._home.kill(*(services[name] for name in DYING[who]))
        store = open_store(self._home.settings.store)
        for run in self._runs.values():
            self._under_way |= await under_way(store, run.id)
        await self._home.up()

    async def _has_come_to_rest(self) -> bool:
        """Whether every run has ended, or waits for the money of another day."""
        return all([is_at_rest(await run.client.glance(run.id)) for run in self._runs.values()])

    async def end(self) -> None:
        """Wait until nothing more happens, and end what waits for tomorrow."""
        while not await self._has_come_to_rest():
            await asyncio.sleep(0.05)
        for run in self._runs.values():
            if not (await run.client.glance(run.id)).ended:
                await run.handle.cancel()

    async def check(self) -> None:
        """What was paid is within each cap and was needed, and nothing is left set aside."""
        for each in self._ventures:
            run, plan = self._runs[each.name], self._plans[each.name]
            report = await run.report()
            view = await run.handle.query(SupervisorWorkflow.view)
            paid = [entry for entry in self._simulator.log if (entry.task or "").startswith(f"{each.name}-")]

            assert plan.budget is not None
            told = (report.cost.actual_usd or 0) + (report.cost.unsettled_usd or 0)
            assert cost(paid) <= told <= view.spent_usd <= plan.budget
            assert view.reserved_usd == report.cost.reserved_usd == 0
            check_caps(plan, paid)
            in_flight = Counter(self._under_way.values())
            for task, calls in Counter(entry.task or "" for entry in paid).items():
                assert calls <= 1 + (task in each.broken) + in_flight[task], task
        if self._daily is not None:
            assert cost(self._simulator.log) <= self._daily


def is_at_rest(picture: Picture) -> bool:
    """Whether a run has ended, or waits for the money of another day and for nothing else."""
    waits = [seen.wait for id in picture.of(TaskStatus.WAITING) if (seen := picture.tasks[id])]
    awaits_another_day = any(wait is not None and wait.reason == "budget" and wait.until for wait in waits)
    return picture.ended or (picture.status is RunStatus.WAITING and awaits_another_day)


def check_caps(plan: Plan, paid: list[Entry]) -> None:
    """No task and no agent has cost more than it may."""
    for task in plan.tasks:
        if task.budget is not None:
            assert cost([entry for entry in paid if entry.task == task.id]) <= task.budget, task.id
    for agent in plan.agents:
        its = {task.id for task in plan.tasks if task.agent == agent.called}
        if agent.budget is not None:
            assert cost([entry for entry in paid if entry.task in its]) <= agent.budget, agent.name


async def crash(home: Home, registry: Registry, seed: int, *, daily: bool) -> None:
    chance = Random(seed)  # noqa: S311
    crashing = Crash(home, registry, chance)
    try:
        await crashing.begin(daily=daily)
        for who in chance.sample([*DYING], 3):
            await crashing.kill(who)
        async with asyncio.timeout(300):
            await crashing.end()
            await crashing.check()
    except BaseException as error:
        error.add_note(f"seed {seed}")
        raise


@pytest.mark.parametrize("daily", [False, True], ids=["caps", "and of a day"])
async def test_no_moment_of_death_overspends_or_forgets(home: Home, registry: Registry, daily: bool) -> None:
    """The worker, the server and both, in the middle of whatever they do (H5)."""
    await crash(home, registry, seed=105, daily=daily)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("daily", [False, True], ids=["caps", "and of a day"])
@pytest.mark.parametrize("seed", range(100, 120))
async def test_no_moment_of_death_of_many_overspends_or_forgets(
    home: Home, registry: Registry, seed: int, daily: bool
) -> None:
    await crash(home, registry, seed, daily=daily)
