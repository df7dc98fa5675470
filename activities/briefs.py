"""The brief of a request, put together from the store."""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from activities.contract import AgentRequest
from domain.briefing import Brief, brief_for
from domain.models import Agent, Latency, Plan, Task
from store import Store

PLANS_KEPT = 8
"""Plans kept in memory per process: a plan never changes under its reference, and 10,000 tasks read it."""


class Briefs:
    """Reads a plan once, and the texts of a task when it is due."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._plans: OrderedDict[str, tuple[Plan, dict[str, Task]]] = OrderedDict()

    async def agent(self, request: AgentRequest) -> Agent:
        """Who does the task of this request."""
        plan, tasks = await self._plan(request.plan_ref)
        return next(agent for agent in plan.agents if agent.name == tasks[request.task].agent)

    async def is_relaxed(self, request: AgentRequest) -> bool:
        """Whether the task of this request may take a day."""
        _, tasks = await self._plan(request.plan_ref)
        return tasks[request.task].latency is Latency.RELAXED

    async def for_request(self, request: AgentRequest) -> Brief:
        """What the agent of this request is told."""
        plan, tasks = await self._plan(request.plan_ref)
        task = tasks[request.task]
        refs = {*(file.ref for file in task.files), *(input.ref for input in request.inputs if input.ref is not None)}
        texts = {ref: (await self._store.artifact(ref)).decode() for ref in sorted(refs)}
        return brief_for(plan, task, request.inputs, texts, request.note)

    async def _plan(self, ref: str) -> tuple[Plan, dict[str, Task]]:
        if ref not in self._plans:
            content = await self._store.artifact(ref)
            plan = await asyncio.to_thread(Plan.model_validate_json, content)
            self._plans[ref] = (plan, {task.id: task for task in plan.tasks})
            if len(self._plans) > PLANS_KEPT:
                self._plans.popitem(last=False)
        self._plans.move_to_end(ref)
        return self._plans[ref]
