"""Finished work is kept: which results of an earlier run a new one takes over, and pays nothing for.

Whether a task is unchanged is decided by content: what its agent is told, and by which references its inputs come. When
tasks finished, and in which order, is no part of it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from pydantic import JsonValue

from domain.graph import in_order, needs_of
from domain.inputs import input_of
from domain.models import Agent, Input, Plan, Task, TaskError, TaskStatus, Usage, Value, ref_of
from domain.prices import Usd, money
from domain.progress import Ended
from domain.report import Decision

NOT_TOLD = frozenset(
    {
        *("needs", "quorum", "approval", "priority", "deadline", "timeout", "time_limit", "attempts"),
        *("summarise", "latency", "shares", "budget", "part", "agent", "asked", "grows", "fan", "repairs"),
    }
)
"""What of a task changes when, whether or how often its agent is asked, and nothing of what it is told.

Any other key counts, also one that is yet to come: a result is rather paid again than wrongly kept. Of needs, neither
their policies nor their forms count: what was given is compared itself. Without a summary a result goes down whole.
Who does it is in what is told of the agent, whatever the plan calls it.
"""

TOLD_OF_AGENT = frozenset({"name", "version", "model", "instructions"})
"""What of an agent makes its answers. Its limits are in the task, where they count."""

NEVER_DONE = frozenset({TaskStatus.SKIPPED, TaskStatus.CANCELLED, TaskStatus.NOT_STARTED})


class Kept(Value):
    """How a task ended in an earlier run. 10,000 of them travel to the supervisor in one payload."""

    status: TaskStatus = TaskStatus.SUCCEEDED
    run: str
    """The run that did the work, and paid for it."""
    ref: str | None = None
    bytes: int = 0
    summary_ref: str | None = None
    summary_bytes: int = 0
    tokens: Usage = Usage()
    """What its answer had cost."""
    usd: Usd | None = None
    """The same in money, at the prices of the run that paid; none before 0.6.0."""
    why: str | None = None
    error: str | None = None
    """Of one that did not succeed: the type of its error."""
    cause: str | None = None
    approval: Decision | None = None
    """What a person said before it started: the note is part of what its agent was told."""

    @property
    def end(self) -> Ended:
        """What dependants need of it. What there is of an answer that failed is for people alone."""
        if self.status is not TaskStatus.SUCCEEDED:
            return Ended(status=self.status, why=self.why, cause=self.cause)
        end = Ended(status=self.status, ref=self.ref, size=self.bytes)
        if self.summary_ref in (None, self.ref):
            return end
        return end.model_copy(update={"summary_ref": self.summary_ref, "summary_size": self.summary_bytes})

    @property
    def told(self) -> dict[str, JsonValue]:
        """What its event says beside the state: here it took no attempt and cost nothing."""
        data: dict[str, JsonValue] = {
            "attempts": 0,
            "output_ref": self.ref,
            "output_bytes": self.bytes,
            **({"summary_ref": self.summary_ref, "summary_bytes": self.summary_bytes} if self.summary_ref else {}),
            "reused": self.run,
            "saved": self.tokens.model_dump(),
        }
        if self.usd is not None:
            data["saved_usd"] = money(self.usd)
        if self.error is not None:
            data["error"] = TaskError(type=self.error, message=self.why or "").model_dump()
        if self.approval is not None:
            data["approval"] = self.approval.model_dump()
        return data


@dataclass(frozen=True)
class Past:
    """A task of an earlier run: how it ended, and what it had been given."""

    kept: Kept
    inputs: tuple[Input, ...] = ()


def taken_over(new: Plan, old: Plan, past: Mapping[str, Past], again: Collection[str]) -> dict[str, Kept]:
    """The tasks of a plan that need not be done, with how they ended before, in plan order.

    `again` are those to be done whatever they came to. A task is kept when it is none of these, when its agent would be
    told the same, and when each of its needs is kept with the result that it was given then. So what is left to do is
    exactly what changed, and everything after it.
    """
    tasks, before = {task.id: task for task in new.tasks}, {task.id: task for task in old.tasks}
    agents, agents_before = _agents(new), _agents(old)
    kept: dict[str, Kept] = {}
    for id in in_order(needs_of(new)):
        if id in again or id not in past or id not in before:
            continue
        task, found = tasks[id], past[id]
        same = fingerprint(task, agents[task.agent]) == fingerprint(before[id], agents_before[before[id].agent])
        if same and _is_agreed(task, before[id], found.kept) and _has_the_same_inputs(task, found, kept):
            kept[id] = found.kept
    return {id: kept[id] for id in tasks if id in kept}


def unfinished(past: Mapping[str, Past]) -> set[str]:
    """The tasks of an earlier run that did not succeed."""
    return {id for id, found in past.items() if found.kept.status is not TaskStatus.SUCCEEDED}


def with_what_they_lacked(plan: Plan, past: Mapping[str, Past], named: Iterable[str]) -> set[str]:
    """These tasks and, of those that were never done, whatever they needed and did not get."""
    needs, again = needs_of(plan), list(dict.fromkeys(named))
    missing = unfinished(past)
    for id in again:
        if past[id].kept.status in NEVER_DONE:
            again += [need for need in needs[id] if need in missing and need not in again]
    return set(again)


def fingerprint(task: Task, agent: Agent) -> str:
    """What an agent is told of a task beside the results of others: prompt, payload, files by hash, who it is.

    The name of the plan is told, too, and does not count: a copy of a plan file is the same work.
    """
    said = [
        task.model_dump(mode="json", exclude=set(NOT_TOLD)),
        [need.model_dump(mode="json", exclude={"policy", "form"}) for need in task.told_of],
        agent.model_dump(mode="json", include=set(TOLD_OF_AGENT)),
    ]
    return ref_of(json.dumps(said, sort_keys=True).encode())


def _has_the_same_inputs(task: Task, past: Past, kept: Mapping[str, Kept]) -> bool:
    """Whether every need is kept as it was given. Of a missing one only that it was missing counts, not the reason."""
    if any(need.task not in kept for need in task.needs):
        return False
    now = [input_of(need.task, kept[need.task].end, need.form) for need in task.told_of]
    return {(input.task, input.status, input.ref) for input in now} == {
        (input.task, input.status, input.ref) for input in past.inputs
    }


def _is_agreed(new: Task, old: Task, kept: Kept) -> bool:
    """Whether a person has answered what the plan asks now, or nobody is asked and nobody's note was told."""
    if new.approval is None:
        return kept.approval is None or kept.approval.note is None
    return old.approval is not None and old.approval.ask == new.approval.ask


def _agents(plan: Plan) -> dict[str, Agent]:
    return {agent.called: agent for agent in plan.agents}
