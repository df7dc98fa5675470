"""The events of a run on their way to the store: in batches, in order, one batch at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from datetime import datetime

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from activities.contract import APPEND_EVENTS, EventsReply, EventsRequest, control_queue
    from domain.audit import Head
    from domain.events import Event
    from workflows import policies


class Journal:
    """Keeps events until the store has them. The history grows with batches, not with events or readers."""

    def __init__(
        self, run: str, on_written: Callable[[], None], head: Head | None = None, *, before_0_7: bool = False
    ) -> None:
        self._run = run
        self._before_0_7 = before_0_7
        self.head = head
        """That of the audit trail, as far as it was written: the anchor of what stands in the store."""
        self._on_written = on_written
        self._unwritten: list[Event] = []
        self._writer: asyncio.Task[None] | None = None

    @property
    def unwritten(self) -> tuple[Event, ...]:
        """What the store may not have yet."""
        return tuple(self._unwritten)

    @property
    def due(self) -> datetime | None:
        """When the next batch must be written."""
        if not self._unwritten or self._writer is not None:
            return None
        oldest = self._unwritten[0].time
        return oldest if len(self._unwritten) >= policies.WRITE_AT_ONCE else oldest + policies.WRITE_AFTER

    def note(self, events: Iterable[Event]) -> None:
        """Take in what happened."""
        self._unwritten.extend(events)

    def write_if_due(self, now: datetime) -> bool:
        """Begin to write a batch when it is time; whether one was begun."""
        if self.due is None or self.due > now:
            return False
        self._writer = asyncio.create_task(self._write())
        return True

    async def write_all(self) -> None:
        """Write everything, now.

        A cancel ends the wait, never the write: the next batch would begin with the same event while the worker that
        has not heard of it still writes this one, and the shorter of the two, coming last, would cut off the trail.
        """
        await workflow.wait_condition(lambda: self._writer is None)
        while self._unwritten:
            if self._before_0_7:
                await self._write()
            else:
                self._writer = asyncio.create_task(self._write())
                await asyncio.shield(self._writer)

    async def _write(self) -> None:
        batch = tuple(self._unwritten[: policies.BATCH])
        try:
            reply: EventsReply | None = await workflow.execute_activity(
                APPEND_EVENTS,
                EventsRequest(run=self._run, events=batch, head=self.head),
                result_type=EventsReply,
                task_queue=control_queue(workflow.info().task_queue),
                start_to_close_timeout=policies.WRITE_TIMEOUT,
                heartbeat_timeout=policies.HEARTBEAT_TIMEOUT,
                retry_policy=policies.CONTROL_RETRY,
                summary=f"events {batch[0].number} to {batch[-1].number}",
            )
            del self._unwritten[: len(batch)]
            self.head = self.head if reply is None else reply.head  # a worker of before 0.7.0 says nothing
        finally:
            self._writer = None
            self._on_written()  # what was noted meanwhile has no alarm yet
