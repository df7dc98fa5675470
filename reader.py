"""Looking at runs: what the event log says, and what Temporal says where the log is behind.

Readers cost a run nothing: they read the store. Only the last second, which is not written yet, is asked of the
supervisor, and once in a while Temporal is asked whether a run was ended from outside.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from temporalio.client import (
    Client,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowHandle,
    WorkflowQueryFailedError,
)
from temporalio.service import RPCError, RPCStatusCode

from domain.briefing import brief_for, readable
from domain.events import Event
from domain.models import Input, Plan, RunStatus, TaskStatus
from domain.report import INLINE_LIMIT, Picture, Report
from domain.runs import RunSummary, RunView
from store import Store
from workflows.supervisor import SupervisorWorkflow

LOOK = 0.5
"""Seconds between two looks of a watcher at the event log."""

ASK_TEMPORAL = 2.0
"""Seconds between two questions of a watcher whether the run was ended from outside."""

QUERY_TIMEOUT = timedelta(seconds=3)
"""A query needs a worker; without one the store tells what is known."""

ENDED_FROM_OUTSIDE = {
    WorkflowExecutionStatus.TERMINATED: (RunStatus.CANCELLED, "the run was terminated"),
    WorkflowExecutionStatus.CANCELED: (RunStatus.CANCELLED, "the run was cancelled"),
    WorkflowExecutionStatus.FAILED: (RunStatus.FAILED, "the run failed"),
    WorkflowExecutionStatus.TIMED_OUT: (RunStatus.FAILED, "the run timed out"),
}


class UnknownRun(ValueError):
    """There is no such run here, or the words fit several."""


class RunReader:
    """Runs of one store. Without a server it still tells what the store knows."""

    def __init__(self, client: Client | None, store: Store) -> None:
        self._client = client
        self._store = store
        self.silent = False
        """Whether Temporal did not answer the last question of a watcher."""

    @property
    def online(self) -> bool:
        """Whether there is a server to ask."""
        return self._client is not None

    async def resolve(self, words: str) -> str:
        """The run that is meant: an id, a unique prefix, or `latest`."""
        runs = await self._store.runs()
        if words in runs:
            return words
        if words == "latest" and runs:
            manifests = [manifest for run in runs if (manifest := await self._store.manifest(run))]
            return str(max(manifests, key=lambda manifest: str(manifest["submitted"]))["run"])
        fitting = [run for run in runs if run.startswith(words)]
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            raise UnknownRun(f"{words!r} fits {len(fitting)} runs: {', '.join(fitting[:5])}")
        there = f"; there are {', '.join(runs[-3:])}{' and others' if len(runs) > 3 else ''}" if runs else ""
        raise UnknownRun(f"there is no run {words!r} here{there}")

    async def picture(self, run: str) -> Picture:
        """The run as it is now: what the store has, and what the supervisor has not written yet."""
        picture = await self._begin_picture(run)
        await self._catch_up(picture)
        if not picture.ended:
            await self._add_unwritten(picture)
            await self._notice_an_outside_end(picture)
        return picture

    async def watch(self, run: str) -> AsyncIterator[Picture]:
        """The run again and again, until it has ended. Reads the event log, so that watchers cost the run nothing."""
        picture = await self._begin_picture(run)
        asked = 0.0
        while True:
            await self._catch_up(picture)
            clock = asyncio.get_running_loop().time()
            if not picture.ended and clock - asked > ASK_TEMPORAL:
                asked = clock
                await self._notice_an_outside_end(picture)
            yield picture
            if picture.ended:
                return
            await asyncio.sleep(LOOK)

    async def report(self, picture: Picture) -> Report:
        """The report of a picture, with every output that is small enough to show in place."""
        seen = [task for task in picture.tasks.values() if task.output_ref and task.output_bytes <= INLINE_LIMIT]
        texts = {ref: await self.text(ref) for ref in sorted({task.output_ref for task in seen if task.output_ref})}
        return picture.report(texts, datetime.now(UTC))

    def inputs(self, picture: Picture, id: str) -> tuple[Input, ...]:
        """What the needs of a task have come to so far."""
        task = next(task for task in picture.plan.tasks if task.id == id)
        needs = [(need.task, picture.tasks[need.task]) for need in task.needs]
        return tuple(
            Input(
                task=need,
                status=seen.status,
                ref=seen.output_ref if seen.status is TaskStatus.SUCCEEDED else None,
                why=seen.error.message if seen.error else None,
            )
            for need, seen in needs
        )

    async def brief(self, picture: Picture, id: str) -> str:
        """What the agent of a task was told, or would be told now."""
        task = next(task for task in picture.plan.tasks if task.id == id)
        inputs = self.inputs(picture, id)
        refs = {*(file.ref for file in task.files), *(input.ref for input in inputs if input.ref is not None)}
        texts = {ref: await self.text(ref) for ref in sorted(refs)}
        return readable(brief_for(picture.plan, task, inputs, texts))

    async def text(self, ref: str) -> str:
        """A text in the store."""
        return (await self._store.artifact(ref)).decode()

    async def events(self, run: str, *, follow: bool = False) -> AsyncIterator[Event]:
        """The events of a run in order; with `follow` until it has ended."""
        seen = 0
        async for picture in self.watch(run):
            async for event in self._store.events(run, after=seen):
                seen = event.number
                yield event
            if not follow:
                for event in () if picture.ended else await self._unwritten(run):
                    if event.number > seen:
                        yield event
                return

    async def until_closed(self, run: str, patience: timedelta) -> None:
        """Wait until Temporal has closed the run, too: its last word in the event log comes a moment before."""
        with suppress(WorkflowFailureError, TimeoutError, RPCError):
            async with asyncio.timeout(patience.total_seconds()):
                await self._handle(run).result()

    # How it is done

    @property
    def _temporal(self) -> Client:
        if self._client is None:
            raise RuntimeError("this needs a server")
        return self._client

    def _handle(self, run: str) -> WorkflowHandle[SupervisorWorkflow, RunSummary]:
        return self._temporal.get_workflow_handle_for(SupervisorWorkflow.run, run)

    async def _begin_picture(self, run: str) -> Picture:
        manifest = await self._store.manifest(run)
        if manifest is None:
            raise UnknownRun(f"there is no run {run!r} here")
        plan = Plan.model_validate_json(await self._store.artifact(manifest["plan_ref"]))
        return Picture(run, plan, simulated=bool(manifest["simulated"]))

    async def _catch_up(self, picture: Picture) -> None:
        async for event in self._store.events(picture.run, after=picture.last):
            picture.add([event])

    async def _unwritten(self, run: str) -> tuple[Event, ...]:
        if self._client is None:
            return ()
        try:
            view: RunView = await self._handle(run).query(SupervisorWorkflow.view, rpc_timeout=QUERY_TIMEOUT)
        except (RPCError, WorkflowQueryFailedError):
            return ()
        return view.events

    async def _add_unwritten(self, picture: Picture) -> None:
        unwritten = await self._unwritten(picture.run)
        await self._catch_up(picture)  # what was written meanwhile comes first: numbers have no gaps
        if unwritten and unwritten[0].number <= picture.last + 1:
            picture.add(unwritten)

    async def _notice_an_outside_end(self, picture: Picture) -> None:
        if self._client is None:
            return
        try:
            description = await self._handle(picture.run).describe(rpc_timeout=QUERY_TIMEOUT)
            self.silent = False
        except RPCError as error:
            self.silent = error.status is not RPCStatusCode.NOT_FOUND
            if error.status is RPCStatusCode.NOT_FOUND:
                reason = "Temporal does not know this run: it was never started, or its history has expired"
                picture.close_from_outside(RunStatus.FAILED, None, reason)
            return
        if description.status is None or description.status is WorkflowExecutionStatus.RUNNING:
            return
        await self._catch_up(picture)  # its own last word, if it had one
        if not picture.ended and description.status in ENDED_FROM_OUTSIDE:
            await self._add_unwritten(picture)  # Temporal still tells what it had not written when it was ended
            status, reason = ENDED_FROM_OUTSIDE[description.status]
            picture.close_from_outside(status, description.close_time, reason)
