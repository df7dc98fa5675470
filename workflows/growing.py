"""What answers make of the plan of a run: one activity each, one after the other, while the run goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from activities.contract import GROW_PLAN, GrowRequest, control_queue
    from domain import growths
    from domain.chart import Chart
    from domain.growths import Growth
    from domain.progress import Progress
    from workflows import policies


class Growths:
    """Asks for the first that is awaited. What continue-as-new cuts off is asked again: it is in the progress.

    One at a time, because each makes another plan of the one before it.
    """

    def __init__(self, run: str, tell: Callable[[str, Growth], None]) -> None:
        self._run = run
        self._tell = tell
        self._asked: GrowRequest | None = None
        self._asking: asyncio.Task[None] | None = None

    def ask(self, chart: Chart, progress: Progress) -> None:
        """Ask, unless that very question is under way. When the plan was changed meanwhile, it is another one."""
        task = next((id for id in progress.growing if id in progress.active), None)  # others wait for a person
        if task is None:
            return
        request = GrowRequest(
            run=self._run,
            plan_ref=chart.plan_ref,
            task=task,
            output_ref=progress.growing[task].answer.output_ref,
            over=growths.over(chart, progress, task),
            agreed=task in progress.approved,
        )
        if request != self._asked:
            self._asked = request
            self._asking = asyncio.create_task(self._ask(request))

    async def _ask(self, request: GrowRequest) -> None:
        growth = await workflow.execute_activity(
            GROW_PLAN,
            request,
            result_type=Growth,
            task_queue=control_queue(workflow.info().task_queue),
            start_to_close_timeout=policies.GROW_TIMEOUT,
            heartbeat_timeout=policies.HEARTBEAT_TIMEOUT,
            retry_policy=policies.CONTROL_RETRY,
            summary=f"what {request.task} makes of the plan",
        )
        if self._asked == request:
            self._asked = None  # a task that is done again may ask the same: its answer is known by its content
        self._tell(request.task, growth)
