"""What an agent was given to read for one call: files and results by reference, and whether a person left a note."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Annotated

from domain.models import Form, Input, Plan, Task, Unsaid, Value, ref_of


class FileRead(Value):
    """A file of the plan's folder."""

    path: str
    ref: str


class ResultRead(Value):
    """The result of a task, or its summary."""

    task: str
    agent: str
    """Who made it: name and version."""
    ref: str
    form: Form = Form.FULL


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
        ),
        note=bool(note),
    )


def reads_for_summary(plan: Plan, task: Task, ref: str) -> Reads:
    """What whoever sums up a result is given."""
    return Reads(results=(ResultRead(task=task.id, agent=_makers(plan)[task.id], ref=ref),))


def _makers(plan: Plan) -> dict[str, str]:
    labels = {agent.called: agent.label for agent in plan.agents}
    return {task.id: labels[task.agent] for task in plan.tasks}
