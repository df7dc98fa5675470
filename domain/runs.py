"""What a run and a task are started with, and what a run hands back."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Annotated

from pydantic import Field

from domain.audit import Head
from domain.carrying import Carried
from domain.events import Event
from domain.models import Input, Priority, RunStatus, Unsaid, Usage, Value
from domain.prices import NOTHING, Usd
from domain.progress import Census, Outline, Progress
from domain.reuse import Kept
from domain.waits import Wait


class RunInput(Value):
    """What the supervisor is started with: outline and reference; after continue-as-new, how far it had come."""

    name: str
    plan_ref: str
    simulated: bool
    outline: Outline
    progress: Progress | Carried | None = None
    in_flight: tuple[str, ...] = ()
    continue_after: int | None = None
    """Continue as new after so many tasks, where a large run or a test wants it sooner than the server suggests it."""
    kept: dict[str, Kept] = Field(default_factory=dict)
    """Tasks that need not be done, with how they ended in an earlier run. Continue-as-new has them in `progress`."""
    attributes: bool = False
    """Whether the server knows our search attributes."""
    before: Decimal = NOTHING
    """What the runs have spent that this one goes on from: a budget is one for all of them."""
    capped: Annotated[dict[str, Decimal], Unsaid] = Field(default_factory=dict)
    """What of that counts for which cap of a task or an agent."""
    audit: Annotated[Head | None, Unsaid] = None
    """The head of the audit trail, after continue-as-new."""


class RunSummary(Value):
    """How a run ended. The report is in the store."""

    status: RunStatus
    census: Census
    tokens: Usage
    cost_usd: str | None = None
    """What it has cost, as the report says."""
    report_ref: str | None = None
    audit: Annotated[Head | None, Unsaid] = None
    """The head of the audit trail: its last record, and the hash of all of them."""


class RunView(Value):
    """The state of a run now, with the events that are not in the store yet."""

    status: RunStatus
    census: Census
    events: tuple[Event, ...]
    waits: dict[str, Wait] = Field(default_factory=dict)
    """What tasks wait for that are not at work; of very many the first."""
    spent_usd: Usd = NOTHING
    """What its tasks have cost as the run counts it: at most, where nobody could tell."""
    reserved_usd: Usd = NOTHING
    """What is set aside for tasks at work, and for those in a batch."""
    audit: Annotated[Head | None, Unsaid] = None
    """The head of the audit trail, as far as it is written."""


class TaskInput(Value):
    """What the workflow of one task is started with."""

    run: str
    chain: str
    task: str
    agent: str
    plan_ref: str
    inputs: tuple[Input, ...] = ()
    timeout: timedelta
    attempts: int
    used: int = 0
    """Attempts that earlier starts of the task have used: a wall gives none back, and takes none."""
    step: int = 1
    """Counts on when a person has the task done again: what was answered before is not taken for the new answer."""
    note: str | None = None
    """What the person who approved the task has to say to its agent."""
    priority: Priority = Priority.NORMAL
    rank: int = 0
    """Its place in the order of its run, where calls wait: deadlines and the way that is left are in it."""
    probe: bool = False
    """Whether it is to find out if a wall still stands."""
    cap: Decimal | None = None
    """US dollars that the calls of this step may cost at most, all its starts together. None: nobody counts."""
    region: Annotated[str | None, Unsaid] = None
    """Where its agent is asked, when that is not where the run is."""
    calls: Annotated[int, Field(exclude_if=lambda calls: calls == 1)] = 1
    """How many calls an attempt may make one after the other, each within the timeout."""
