"""The tasks in flight: started by this run of the supervisor, or by an earlier one before continue-as-new.

Children get ABANDON, because nothing else survives continue-as-new; so the supervisor cancels and awaits them itself.
It cancels *handles*, never the asyncio tasks that observe them: a cancelled task whose start was not confirmed yet
would leave its child running. Observers only tell what happened; an exception in a task that nobody awaits reaches
no one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from activities.contract import AWAIT_TASKS, AwaitReply, AwaitRequest, control_queue, outcome_of_failure
    from domain.leaflet import task_summary
    from domain.models import Outcome, TaskResult
    from domain.runs import TaskInput
    from workflows import policies
    from workflows.policies import queue_priority
    from workflows.task import TaskWorkflow

Tell = Callable[[str, Outcome], None]


class Children:
    """Starts, observes and stops the child workflows of one run."""

    def __init__(self, run: str, in_flight: Iterable[str], tell: Tell) -> None:
        self._run = run
        self._tell = tell
        self._handles: dict[str, workflow.ChildWorkflowHandle[TaskWorkflow, TaskResult]] = {}
        self._unconfirmed: set[str] = set()
        self._unwanted: set[str] = set()
        self._attached = set(in_flight)
        self._stopping = False
        self._observers: set[asyncio.Task[None]] = set()

    @property
    def in_flight(self) -> tuple[str, ...]:
        """The tasks whose end is still to come."""
        return tuple(sorted({*self._handles, *self._attached, *self._unconfirmed}))

    @property
    def unconfirmed(self) -> int:
        """Starts that the server has not confirmed yet."""
        return len(self._unconfirmed)

    @property
    def confirmed(self) -> bool:
        """Whether the server knows of every child: only then may this run of the supervisor end."""
        return not self._unconfirmed

    def attach(self, *, stopping: Iterable[str] = ()) -> None:
        """Begin to wait for tasks that an earlier run of the supervisor had started, or was about to stop."""
        if self._attached:
            self._observe(self._await_attached())
        for task in stopping:
            self.stop_one(task)

    def start(self, input: TaskInput, details: str) -> None:
        """Start the child of a task. A task that was parked starts again under the same id."""
        self._unconfirmed.add(input.task)
        self._observe(self._child(input, details))

    def stop_one(self, task: str) -> None:
        """Cancel the child of a task; its end is told like any other."""
        if task in self._handles:
            self._handles[task].cancel()
        elif task in self._unconfirmed:
            self._unwanted.add(task)
        elif task in self._attached:
            self._observe(self._cancel_attached(task))

    async def stop(self) -> None:
        """Cancel every child and wait until all have ended."""
        self._stopping = True
        for handle in self._handles.values():
            handle.cancel()
        for task in sorted(self._attached):
            self._observe(self._cancel_attached(task))
        await workflow.wait_condition(lambda: not self.in_flight)

    async def _child(self, input: TaskInput, details: str) -> None:
        try:
            handle = await workflow.start_child_workflow(
                TaskWorkflow.run,
                input,
                id=f"{self._run}/{input.task}",
                parent_close_policy=workflow.ParentClosePolicy.ABANDON,
                cancellation_type=workflow.ChildWorkflowCancellationType.WAIT_CANCELLATION_COMPLETED,
                static_summary=task_summary(input.agent, input.task),
                static_details=details,
                priority=queue_priority(self._run, input.priority),
            )
        except Exception as error:  # noqa: BLE001  whatever it is, the supervisor must hear that nothing started
            self._unconfirmed.discard(input.task)
            self._unwanted.discard(input.task)
            self._tell(input.task, outcome_of_failure(error))
            return
        self._handles[input.task] = handle
        self._unconfirmed.discard(input.task)
        if self._stopping or input.task in self._unwanted:
            self._unwanted.discard(input.task)
            handle.cancel()  # the stop came before the start was confirmed
        try:
            outcome = (await handle).outcome
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  every end is a fact
            outcome = outcome_of_failure(error)
        del self._handles[input.task]
        self._tell(input.task, outcome)

    async def _await_attached(self) -> None:
        """One activity awaits them all. One per child, on the agents' own queue, would wait for its own slots."""
        while self._attached:
            reply = await workflow.execute_activity(
                AWAIT_TASKS,
                AwaitRequest(run=self._run, tasks=tuple(sorted(self._attached))),
                result_type=AwaitReply,
                task_queue=control_queue(workflow.info().task_queue),
                start_to_close_timeout=policies.ATTACH_TIMEOUT,
                heartbeat_timeout=policies.HEARTBEAT_TIMEOUT,
                retry_policy=policies.CONTROL_RETRY,
                summary=f"waits for {len(self._attached)} tasks in flight",
            )
            for end in reply.ends:
                self._attached.discard(end.task)
                self._tell(end.task, end.outcome)

    async def _cancel_attached(self, task: str) -> None:
        with suppress(ApplicationError):  # it has ended by itself: its end is told by the activity that awaits it
            await workflow.get_external_workflow_handle(f"{self._run}/{task}").cancel()

    def _observe(self, observer: Coroutine[Any, Any, None]) -> None:
        watching = asyncio.create_task(observer)
        self._observers.add(watching)  # asyncio holds tasks weakly
        watching.add_done_callback(self._observers.discard)
