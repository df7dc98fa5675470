"""Before changed workflow code goes to work on one machine, the open runs are replayed with it.

A run whose history does not replay would stand still, and tell nobody. So the worker itself looks, whoever starts it:
it refuses to begin, and everything stays as it was. Code that has passed is remembered: the same code starts at once.
[Why](docs/decisions/0028-a-rehearsal-before-changed-code.md).
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

import structlog
from temporalio.client import Client, WorkflowExecution, WorkflowHistory
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Replayer

from activities.contract import QUOTA_BANK, quota_queue
from domain.stalls import ended, first_line
from edition import edition
from private_files import read_text, write_private
from runtime import CannotDo, core_runtime
from versioning import WithoutVersioning
from workflows.quota import QuotaBank
from workflows.supervisor import SupervisorWorkflow
from workflows.task import TaskWorkflow

PATIENCE = 45.0
"""Seconds. A home may have so many or so long runs open that all would take minutes: what was not reached is told."""

ORDER = ("SupervisorWorkflow", QUOTA_BANK, "TaskWorkflow")
"""What must be replayed first: a run is its supervisor; of its tasks most are alike."""

SAID = re.compile(r'message: "((?:[^"\\]|\\.)*)"')
"""What the SDK's core has to say, in the words around it."""

log = structlog.get_logger()


@dataclass
class Rehearsed:
    """How far a rehearsal came."""

    open: int = 0
    replayed: int = 0
    alike: int = 0
    """Tasks with the history of another task of their run: that one stands for them."""

    @property
    def left(self) -> int:
        """What there was no time for."""
        return self.open - self.replayed - self.alike


async def rehearse(client: Client, queue: str, home: Path, *, anyway: bool = False) -> None:
    """Return when this code may work on the queue: it did so last, or every open run replays with it.

    With `anyway` it may: a person has said so, knowing what stands still then.
    """
    memory = home / "services" / f"{queue}.edition"
    now = edition()
    if read_text(memory) == now:
        return
    if not anyway:
        done = await replay_open(client, queue)
        if done.open:
            tell = log.warning if done.left else log.info
            tell("rehearsed", queue=queue, open=done.open, replayed=done.replayed, alike=done.alike, left=done.left)
    write_private(memory, now)


async def replay_open(client: Client, queue: str, patience: float = PATIENCE) -> Rehearsed:
    """Replay every workflow that is open on the queue and on that of its bank; the first that does not is the end."""
    deadline = monotonic() + patience
    done = Rehearsed()
    replayer = Replayer(
        workflows=[SupervisorWorkflow, TaskWorkflow, QuotaBank],
        workflow_runner=WithoutVersioning(),  # a replay does nothing, and the sandbox makes it six times as slow
        data_converter=client.data_converter,
        runtime=core_runtime(),
        debug_mode=True,  # a machine that stands still for 2 s is no reason to refuse the code
    )
    async with replayer.workflow_replay_iterator(_histories(client, queue, deadline, done)) as results:
        async for result in results:
            if result.replay_failure is not None:
                raise CannotDo(_refusal(result.history.workflow_id, result.replay_failure))
            done.replayed += 1
    return done


async def _histories(client: Client, queue: str, deadline: float, done: Rehearsed) -> AsyncIterator[WorkflowHistory]:
    """What is open, the most telling first; of a run's tasks whose histories are alike, one."""
    queues = f"'{queue}', '{quota_queue(queue)}'"
    query = f"ExecutionStatus = 'Running' AND TaskQueue IN ({queues})"
    known = [found async for found in client.list_workflows(query) if found.workflow_type in ORDER]
    done.open = len(known)
    shapes: set[tuple[str, ...]] = set()
    for found in sorted(known, key=_turn):
        if monotonic() > deadline:
            return
        try:
            history = await client.get_workflow_handle(found.id, run_id=found.run_id).fetch_history()
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            done.open -= 1  # it has ended, and is gone
            continue
        shape = (found.id.partition("/")[0], *_shape(history))
        if found.workflow_type == "TaskWorkflow" and shape in shapes:
            done.alike += 1
            continue
        shapes.add(shape)
        yield history


def _turn(found: WorkflowExecution) -> tuple[int, float]:
    return ORDER.index(found.workflow_type), -found.start_time.timestamp()


def _shape(history: WorkflowHistory) -> list[str]:
    """What happened, without what was said: two histories with the same ask the same of the code."""
    return [
        f"{event.event_type} {event.activity_task_scheduled_event_attributes.activity_type.name}"
        for event in history.events
    ]


def _refusal(workflow: str, failure: Exception) -> str:
    run = workflow.partition("/")[0]
    said = SAID.search(str(failure))
    why = ended(first_line(said[1] if said else str(failure)))
    return (
        f"The workflow code was changed, and the history of {workflow!r}, which is open, does not replay with it: "
        f"{why} Nothing was lost, and no work goes on. Go back to the version of "
        f"Nightcrew that it began with, and say `up` again; there it can end, or `cancel {run}` ends it. "
        "`up --anyway` starts the changed code all the same: what does not replay stands still until that version is "
        "back."
    )
