"""What the answer of a task makes of the plan of its run: worked out and kept, for the supervisor to go on with."""

from __future__ import annotations

import asyncio

import structlog
from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from activities.contract import GROW_PLAN, MESSAGE_LIMIT, GrowRequest
from activities.pin import OtherStore, Pin
from activities.pulse import Pulse, beating
from domain.amendments import Amendment
from domain.growing import Grown, NotGrown, edited, grown
from domain.growths import Growth
from domain.models import Plan
from domain.progress import outline_of
from payloads import PayloadTooLarge, check_size
from store import Store, StoreUnavailable

log = structlog.get_logger()


class GrowActivities:
    """Makes plans of plans. Safe to run again: the same answer makes the same plan, kept under the same reference."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pin = Pin(store)

    @activity.defn(name=GROW_PLAN)
    async def grow_plan(self, request: GrowRequest) -> Growth:
        """What the answer makes of the plan. One that it cannot grow by is a reply: it would be the same again."""
        async with beating(Pulse(step="growing")):
            try:
                await self._pin.check(request.run)
                return await self._grown(request)
            except OtherStore as other:
                benign = ApplicationErrorCategory.BENIGN
                raise ApplicationError(str(other), type="OtherStore", category=benign) from None
            except StoreUnavailable:
                raise
            except NotGrown as not_grown:
                return self._refused(request, str(not_grown))
            except Exception as error:
                log.exception("plan_not_grown", error=type(error).__name__)
                return self._refused(request, f"what it makes of the plan was not found out ({type(error).__name__})")

    async def _grown(self, request: GrowRequest) -> Growth:
        plan = Plan.model_validate_json(await self._store.artifact(request.plan_ref))
        task = next(task for task in plan.tasks if task.id == request.task)
        text = (await self._store.artifact(request.output_ref)).decode()
        # In a thread: of ten thousand tasks it takes seconds, and heartbeats go on.
        found = await asyncio.to_thread(grown, plan, task, text, request.over)
        growth = Growth(base_ref=request.plan_ref, over=request.over, idle=dict(found.idle))
        growth = growth.model_copy(update={"amendment": await self._kept(request, plan, found)})
        await asyncio.to_thread(_check_size, growth)
        return growth

    def _refused(self, request: GrowRequest, why: str) -> Growth:
        return Growth(base_ref=request.plan_ref, over=request.over, refused=why[:MESSAGE_LIMIT])

    async def _kept(self, request: GrowRequest, plan: Plan, found: Grown) -> Amendment | None:
        if found.plan == plan:
            return None
        return Amendment(
            plan_ref=await self._store.put_artifact(found.plan.model_dump_json().encode()),
            base_ref=request.plan_ref,
            outline=outline_of(found.plan),
            edited=edited(plan, found.plan),
        )


def _check_size(growth: Growth) -> None:
    """Refuse what Temporal would not carry, as submit does: it would be worked out, and refused, again and again."""
    try:
        check_size("the plan's outline", growth)
    except PayloadTooLarge as too_large:
        raise NotGrown(f"the plan would be too large: {too_large}") from None
