"""What an agent was given to read for one call: files and results by reference, and whether a person left a note."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Annotated

from domain.items import source_of_item
from domain.models import Form, Input, Plan, Task, Unsaid, Value, Verdict, ref_of


class FileRead(Value):
    """A file of the plan's folder."""

    path: str
    ref: str


class ResultRead(Value):
    """The result of a task, its summary, or an item of the list in it."""

    task: str
    agent: str
    """Who made it: name and version."""
    ref: str
    form: Form = Form.FULL
    item: Annotated[bool, Unsaid] = False
    """Whether it is one item of the list in the result. Then `ref` is the hash of the item: it stands in the plan."""
    review: Annotated[bool, Unsaid] = False
    """Whether it is what a reviewer said of the answer to the task. Then `agent` is the reviewer."""


class Reads(Value):
    """All that was read for one call. It is kept under its own hash, so whoever has the hash can check it."""

    files: Annotated[tuple[FileRead, ...], Unsaid] = ()
    results: Annotated[tuple[ResultRead, ...], Unsaid] = ()
    note: Annotated[bool, Unsaid] = False
    """Whether the person who approved the task had something to say to its agent."""

    @property
    def content(self) -> bytes:
        """It as it is kept."""
        return json.dumps(self.model_dump(mode="json"), sort_keys=True).encode()

    @property
    def ref(self) -> str | None:
        """The hash of it; None when nothing was read."""
        return ref_of(self.content) if self.files or self.results or self.note else None


def reads_of(plan: Plan, task: Task, inputs: Iterable[Input], note: str | None) -> Reads:
    """What the agent of a task is given beside its prompt."""
    makers = _makers(plan)
    return Reads(
        files=tuple(FileRead(path=file.path, ref=file.ref) for file in task.files),
        results=tuple(
            ResultRead(
                task=input.task,
                agent=makers[input.task],
                ref=input.ref,
                form=Form.FULL if input.whole is None else Form.SUMMARY,
            )
            for input in inputs
            if input.ref is not None
        )
        + _item_read(plan, task, makers),
        note=bool(note),
    )


def _item_read(plan: Plan, task: Task, makers: Mapping[str, str]) -> tuple[ResultRead, ...]:
    source = source_of_item(plan, task)
    if source is None or task.item is None:
        return ()
    return (ResultRead(task=source, agent=makers[source], ref=ref_of(task.item.encode()), item=True),)


def reads_with_review(plan: Plan, task: Task, inputs: Iterable[Input], note: str | None, verdict: Verdict) -> Reads:
    """The same of an agent whose answer was not accepted: it is given the words of the review, too."""
    reads = reads_of(plan, task, inputs, note)
    words = ResultRead(task=task.id, agent=verdict.by, ref=verdict.ref, review=True)
    return reads.model_copy(update={"results": (*reads.results, words)})


def reads_for_summary(plan: Plan, task: Task, ref: str) -> Reads:
    """What whoever sums up a result is given."""
    return Reads(results=(ResultRead(task=task.id, agent=_makers(plan)[task.id], ref=ref),))


def _makers(plan: Plan) -> dict[str, str]:
    labels = {agent.called: agent.label for agent in plan.agents}
    return {task.id: labels[task.agent] for task in plan.tasks}
