"""The door by itself: one activity against a real provider and a real store, without a run around it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.agent import AgentActivities
from activities.batch_lookout import Lookout
from activities.board import Board
from activities.claude import Claude
from activities.contract import AgentRequest
from activities.gate import Gate, Standing
from activities.meter import Meter, OpenMeter
from activities.room import RESERVE
from domain.models import Agent, Answered, Failed, File, Latency, Outcome, Parked, Plan, Task
from domain.prices import PriceList
from domain.rights import Rights, Role
from domain.summaries import SUMMARIZER
from store import Store
from workflows.policies import HEARTBEAT_TIMEOUT

HAIKU, OPUS = "claude-haiku-4-5", "claude-opus-4-5"
MAX_TOKENS = 300


class GateInHand:
    """A gate that the test opens and shuts: for who asks at the beginning, and for the last question."""

    def __init__(self) -> None:
        self.first = self.last = Standing()
        self.permissions = 0
        self.answers = asyncio.Event()
        """Whether the last question is answered at all: a server may hang."""
        self.answers.set()
        self.over: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def standing(self, *_: str) -> Standing:
        return self.first

    async def permission(self, *_: str) -> Standing:
        self.permissions += 1
        await self.answers.wait()
        return self.last

    async def closed(self, *_: str) -> str:
        return await asyncio.shield(self.over)


class Doorway:
    """Tasks a to d are for one model, `other` for another one."""

    def __init__(
        self,
        store: Store,
        claude: Claude,
        plan_ref: str,
        backoff: timedelta,
        reserve: int,
        meter: Meter,
        region: str | None = None,
    ) -> None:
        self.store, self.gate = store, GateInHand()
        self.environment = ActivityEnvironment()
        """Of the attempt that was made last."""
        self._plan_ref = plan_ref
        self._activities = AgentActivities(
            model=claude,
            store=store,
            gate=cast("Gate", self.gate),
            meter=meter,
            backoff=backoff,
            board=Board(store),
            lookout=Lookout(claude, store, cast("Gate", self.gate)),
            reserve=reserve,
            region=region,
        )

    async def ask(self, task: str = "a", *, attempt: int = 1, start: str = "start", **request: Any) -> Outcome:
        """What one attempt comes to, as the door replies it."""
        values = {"run": "run", "chain": "chain", "timeout": timedelta(seconds=20), "attempts": 4, **request}
        self.environment = environment = ActivityEnvironment()
        environment.info = replace(
            environment.info,
            attempt=attempt,
            workflow_run_id=start,
            workflow_id=f"run/{task}",
            heartbeat_timeout=HEARTBEAT_TIMEOUT,
        )
        asked = AgentRequest(task=task, plan_ref=self._plan_ref, **values)
        return (await environment.run(self._activities.run_agent, asked)).outcome

    async def answered(self, task: str = "a", **request: Any) -> Answered:
        outcome = await self.ask(task, **request)
        assert isinstance(outcome, Answered), outcome
        return outcome

    async def parked(self, task: str = "a", **request: Any) -> Parked:
        outcome = await self.ask(task, **request)
        assert isinstance(outcome, Parked), outcome
        return outcome

    async def failed(self, task: str = "a", **request: Any) -> tuple[Failed, ApplicationError]:
        """The failure as Temporal gets it, and its details."""
        try:
            outcome = await self.ask(task, **request)
        except ApplicationError as error:
            (details,) = error.details
            return cast("Failed", details), error
        raise AssertionError(f"it did not fail: {outcome!r}")


@asynccontextmanager
async def opened(
    store: Store,
    url: str,
    *,
    backoff: timedelta = timedelta(milliseconds=50),
    max_tokens: int = MAX_TOKENS,
    reserve: int = RESERVE,
    summarizer: str | None = None,
    meter: Meter | None = None,
    rights: Rights | None = None,
    roles: tuple[Role, ...] = (),
    files: tuple[File, ...] = (),
    latency: Latency = Latency.NORMAL,
    region: str | None = None,
    keys: Mapping[str, Any] | None = None,
    judge: Mapping[str, Any] | None = None,
    prices: PriceList | None = None,
    templates: tuple[Task, ...] = (),
) -> AsyncIterator[Doorway]:
    """A worker's door, new: it has met no wall yet. With the model of a summarizer, summaries of all are wanted.

    Rights and roles are those of `ant`, which does tasks a to d. All tasks have these further `keys`; with `judge`
    there is an agent of this name; `templates` are the tasks that stood for them before the plan grew.
    """
    may: dict[str, Any] = {"ant": {"rights": rights, "roles": roles}, "judge": judge or {}}
    models = {"ant": HAIKU, "bee": OPUS} | ({SUMMARIZER: summarizer} if summarizer else {})
    models |= {"judge": OPUS} if judge is not None else {}
    tasks = {"a": "ant", "b": "ant", "c": "ant", "d": "ant", "other": "bee"}
    plan = Plan(
        name="doors",
        max_concurrency=4,
        prices=prices,
        templates=templates,
        agents=tuple(
            Agent(name=name, version="1", model=models[name], instructions="Do it.", **may.get(name, {}))
            for name in models
        ),
        tasks=tuple(
            Task(
                id=id,
                agent=agent,
                prompt=("Go.",),
                timeout=timedelta(seconds=20),
                attempts=4,
                max_tokens=max_tokens,
                files=files,
                latency=latency,
                summarise=summarizer is not None,
                **(keys or {}),
            )
            for id, agent in tasks.items()
        ),
    )
    plan_ref = await store.put_artifact(plan.model_dump_json().encode())
    await store.put_manifest("run", {"plan_ref": plan_ref})
    claude = Claude(base_url=url, api_key="test", auth_token=None, simulated=True)
    try:
        yield Doorway(store, claude, plan_ref, backoff, reserve, meter or OpenMeter(), region)
    finally:
        await claude.close()
