"""The report of a run: the same document while it runs and after its end. `picture.py` makes it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import Field

from domain.costs import Cost, Savings
from domain.models import Pace, RunStatus, TaskError, TaskStatus, Unsaid, Usage, Value
from domain.prices import Usd
from domain.progress import Census
from domain.refusals import Refusal
from domain.waits import Wait

INLINE_LIMIT = 64 * 1024
"""Bytes of an output that a report shows in place; a larger one is given by reference."""


class Doing(Value):
    """What the worker of a task is doing: the step, since when, and when it last said so."""

    step: str
    since: str
    heard: str


class AttemptReport(Value):
    """One attempt that brought no answer: why, when it ended, and what it has cost or may have cost."""

    attempt: int
    error: TaskError
    at: str
    tokens: Usage = Usage()
    unsettled: Usage = Usage()


class Decision(Value):
    """What came of the question whether a task may start: who answered, when, and with which words."""

    answer: Literal["approved", "rejected", "expired"]
    by: str | None = None
    note: str | None = None
    at: str


class ReviewReport(Value):
    """What a reviewer said of an answer. The words are in the store."""

    by: str
    accepted: bool
    number: int = Field(validation_alias="try", serialization_alias="try")
    """Which answer it is about: the first, or the one after so many went back."""
    ref: str | None = None


class Attention(Value):
    """Something for a person: what kind, which task, since when, and what to do about it."""

    kind: Literal["approval", "budget", "key", "right", "failure", "stall"]
    task: str | None
    since: str | None
    do: str
    what: str | None = None
    """What it is about: the question, or what went wrong."""


class TaskReport(Value):
    """One task in the report."""

    id: str
    agent: str
    type: str | None
    status: TaskStatus
    success: bool
    attempts: int
    timeout_s: float
    duration_s: float | None
    tokens: Usage
    unsettled: Usage
    """What attempts in vain may have cost on top, at most: nobody came to say."""
    cost_usd: Usd | None = None
    """What all its attempts have cost, as far as the provider has told; none when its model has no price."""
    estimate_usd: Usd | None = None
    """What was likely."""
    retries_usd: Usd | None = None
    """What of its cost went to attempts in vain."""
    unsettled_usd: Usd | None = None
    savings: Savings | None = None
    wait: Wait | None
    progress: Doing | None
    error: TaskError | None
    tries: tuple[AttemptReport, ...]
    cause: str | None
    approval: Decision | None
    partial: bool
    """Whether the output is what there is of an answer that does not count."""
    batched: bool = False
    """Whether what it ended with came in a batch, at half the price."""
    output: str | None
    output_ref: str | None
    summary: str | None
    """What goes down to those that take its result as a summary; none when nobody does."""
    reused: str | None = None
    """The run whose end of this task was taken over: here it was not done, and nothing was paid."""
    saved: Usage | None = None
    """What its answer had cost there."""
    region: Annotated[str | None, Unsaid] = None
    """Where its agent is asked; left out where nobody named a region."""
    refused: tuple[Refusal, ...] = ()
    """What its agent, or whoever summed up its result, had no right to."""
    reviews: Annotated[tuple[ReviewReport, ...], Unsaid] = ()
    """What was said of its answers; left out where nobody reviews."""


class Reuse(Value):
    """The results that were taken over, and what their answers had cost where they were paid."""

    runs: tuple[str, ...]
    """Who had paid for them."""
    tasks: int
    tokens: Usage
    models: dict[str, Usage]
    """The tokens by model: what a price needs to know."""


class Serial(Value):
    """Where the time of a run went, on the chain of tasks that led to its end. The parts add up to its duration."""

    critical_path_s: float = 0.0
    """The work on that chain, with attempts in vain and the pauses between them."""
    quota_wait_s: float = 0.0
    """Waits for the account's rate."""
    slot_wait_s: float = 0.0
    """Waits for a place, the next wave or an instance of the agent."""
    person_wait_s: float = 0.0
    """Waits for a person: an approval, the end of a pause, a `retry`."""
    other_s: float = 0.0
    """Any other wall, lost workers, the steps between."""


class Concurrency(Value):
    """How many tasks were allowed at once, how many there were, and what came of it."""

    max: int
    peak: int
    mode: Pace
    wave: int | None
    """In waves: the number of the present one."""
    speedup: float | None
    """The work of all tasks in the time of the run without waits for people; none before a task has ended."""
    serial: Serial
    suggested: int | None
    """What to set `max_concurrency` to next time, as far as it was measured."""


class PlanReport(Value):
    """A plan inside the plan: how far it is, what it has of the run, and what its tasks have cost."""

    id: str
    census: Census
    max_concurrency: int
    budget_usd: Usd | None = None
    cost_usd: Usd | None = None


class Report(Value):
    """The whole truth of a run."""

    schema_name: Literal["nightcrew.report/1"] = Field("nightcrew.report/1", serialization_alias="schema")
    run: str
    name: str
    status: RunStatus
    simulated: bool
    provider: str | None = None
    """Where a live run asks."""
    region: Annotated[str | None, Unsaid] = None
    """Where the run is; left out where nobody named a region."""
    census: Census
    started: str | None
    finished: str | None
    duration_s: float | None
    cost: Cost = Cost()
    tokens: Usage
    unsettled: Usage
    concurrency: Concurrency
    reuse: Reuse | None = None
    """What an earlier run had done already; nothing in most runs."""
    plans: tuple[PlanReport, ...] = ()
    """The plans inside the plan; none in most runs."""
    attention: tuple[Attention, ...]
    tasks: tuple[TaskReport, ...]
    outputs: dict[str, str | None]
    output: str | None

    def document(self) -> dict[str, Any]:
        """The report as JSON data, with the names of the interface."""
        return self.model_dump(mode="json", by_alias=True)


def written(heading: Report, tasks: Iterable[TaskReport]) -> bytes:
    """The document of a report that has no tasks, with these; no two of them are there at once."""
    opened = heading.model_dump_json(by_alias=True, exclude={"tasks"}).removesuffix("}").encode()
    lines = b",".join(task.model_dump_json(by_alias=True).encode() for task in tasks)
    return b"".join((opened, b',"tasks":[', lines, b"]}"))
