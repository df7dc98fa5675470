"""The brief of a request, put together from the store."""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from activities.attempts import Purpose
from activities.contract import AgentRequest
from audit_trail import AuditTrail
from domain.briefing import Brief, brief_for
from domain.items import source_of_item
from domain.models import Agent, Latency, Plan, Task, Verdict, ref_of
from domain.permits import Needs, needs_of, needs_of_review, needs_of_summary
from domain.prices import PriceList
from domain.reads import Reads, reads_for_summary, reads_of, reads_with_review
from domain.summarizing import summarizer_for, summary_brief
from store import Store, StoreError

PLANS_KEPT = 8
"""Plans kept in memory per process: a plan never changes under its reference, and 10,000 tasks read it."""


class Briefs:
    """Reads a plan once, and the texts of a task when it is due."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._trail = AuditTrail(store)
        self._plans: OrderedDict[str, tuple[Plan, dict[str, Task]]] = OrderedDict()

    async def agent(self, request: AgentRequest) -> Agent:
        """Who does the task of this request."""
        plan, tasks = await self._plan(request.plan_ref)
        return next(agent for agent in plan.agents if agent.called == tasks[request.task].agent)

    async def prices(self, request: AgentRequest) -> PriceList | None:
        """What models cost, as the run was shown."""
        plan, _ = await self._plan(request.plan_ref)
        return plan.prices

    async def of(self, request: AgentRequest) -> tuple[Plan, Task]:
        """The task of this request, and its plan."""
        plan, tasks = await self._plan(request.plan_ref)
        return plan, tasks[request.task]

    async def is_relaxed(self, request: AgentRequest) -> bool:
        """Whether the task of this request may take a day."""
        _, tasks = await self._plan(request.plan_ref)
        return tasks[request.task].latency is Latency.RELAXED

    async def for_request(self, request: AgentRequest) -> Brief:
        """What the agent of this request is told."""
        plan, tasks = await self._plan(request.plan_ref)
        task = tasks[request.task]
        sources = {file.ref: f"the file {file.path!r}" for file in task.files}
        sources |= {
            input.ref: f"the result of task {input.task!r}" for input in request.inputs if input.ref is not None
        }
        texts = {ref: await self._text(ref, sources[ref]) for ref in sorted(sources)}
        return brief_for(plan, task, request.inputs, texts, request.note)

    async def reads(self, request: AgentRequest) -> str | None:
        """The hash of the list of what the agent of this request is given to read; the list is kept."""
        plan, tasks = await self._plan(request.plan_ref)
        return await self._kept(request, reads_of(plan, tasks[request.task], request.inputs, request.note))

    async def reads_again(self, request: AgentRequest, verdict: Verdict) -> str | None:
        """The same when its answer goes back to it with what a reviewer said."""
        plan, tasks = await self._plan(request.plan_ref)
        task = tasks[request.task]
        return await self._kept(request, reads_with_review(plan, task, request.inputs, request.note, verdict))

    async def reads_aside(self, request: AgentRequest, text: str) -> str | None:
        """The same of whoever sums up or reviews the answer to this request."""
        plan, tasks = await self._plan(request.plan_ref)
        return await self._kept(request, reads_for_summary(plan, tasks[request.task], ref_of(text.encode())))

    async def _kept(self, request: AgentRequest, reads: Reads) -> str | None:
        if reads.ref is not None:
            await self._trail.put_reads(request.run, reads.ref, reads.content)
        return reads.ref

    async def needs(self, request: AgentRequest, region: str | None, purpose: Purpose) -> Needs:
        """What a call for this request needs: of rights, not of texts."""
        plan, tasks = await self._plan(request.plan_ref)
        task = tasks[request.task]
        if purpose == "summary":
            return needs_of_summary(plan, task, region)
        if purpose == "review":
            return needs_of_review(plan, task, region)
        agent, listed_by = await self.agent(request), source_of_item(plan, task)
        return needs_of(agent, task, tasks, request.inputs, region, listed_by=listed_by)

    async def _text(self, ref: str, what: str) -> str:
        """A text that an agent is given; whoever reads of a damaged one must know what to do about it."""
        try:
            return (await self._store.artifact(ref)).decode()
        except StoreError as error:
            remedy = "put the store back as it was, then have the task done again by `retry`, or submit the plan anew"
            raise StoreError(f"{what} cannot be given to the agent: {error}; {remedy}") from error

    async def for_summary(self, request: AgentRequest, text: str) -> tuple[Brief, Agent]:
        """What whoever sums up the result of this request is told, and who that is."""
        plan, tasks = await self._plan(request.plan_ref)
        task = tasks[request.task]
        return summary_brief(plan, task, text), summarizer_for(plan, task)

    async def _plan(self, ref: str) -> tuple[Plan, dict[str, Task]]:
        if ref not in self._plans:
            content = await self._store.artifact(ref)
            plan = await asyncio.to_thread(Plan.model_validate_json, content)
            self._plans[ref] = (plan, {task.id: task for task in plan.tasks})
            if len(self._plans) > PLANS_KEPT:
                self._plans.popitem(last=False)
        self._plans.move_to_end(ref)
        return self._plans[ref]
