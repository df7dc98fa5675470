"""How a task ends, and what that means for those that need it. Without recursion: chains may be long."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable

from pydantic import JsonValue

from domain.chart import Chart
from domain.events import EventType, timestamp
from domain.models import Policy, TaskStatus
from domain.progress import Ended, Waiting
from domain.reuse import Kept
from domain.step import Draft

SELF = frozenset({TaskStatus.SUCCEEDED, TaskStatus.FAILED, TaskStatus.TIMED_OUT, TaskStatus.CANCELLED})


def accepts(policy: Policy, status: TaskStatus) -> bool:
    """Whether a dependant may run when a need of this policy ended like this."""
    if status is TaskStatus.SUCCEEDED or policy is Policy.OPTIONAL:
        return True
    return policy is Policy.TOLERATE and status is TaskStatus.TIMED_OUT


def end(chart: Chart, draft: Draft, id: str, how: Ended, **data: JsonValue) -> None:
    """End a task and settle everything that was waiting for it.

    One that has answered, and whose change of the plan nobody agreed to, ends with its answer, whatever is said of it.
    """
    refused = draft.growing.pop(id, None)
    if refused is not None and refused.end is not None:
        how, data = refused.end, dict(refused.told)
    _close(draft, id, how, **data)
    settled = [id]
    for need in settled:
        for dependant in chart.dependants.get(need, ()):
            if dependant not in draft.unmet:
                continue  # it is past that, or the run was cancelled meanwhile
            draft.unmet[dependant] -= 1
            if draft.unmet[dependant]:
                continue
            del draft.unmet[dependant]
            if (skipped := _skipped(chart, draft, dependant)) is None:
                make_ready(chart, draft, dependant)
            else:
                _close(draft, dependant, skipped)
                settled.append(dependant)
    end_parts(chart, draft, (chart.tasks[id].part for id in settled))


def end_parts(chart: Chart, draft: Draft, parts: Iterable[str | None]) -> None:
    """Let those of these plans inside the plan give back what they have, of which everything has ended."""
    for part in {*parts} & draft.parts.keys():
        if part is not None and chart.has_ended(part, draft.ended):
            del draft.parts[part]


def take_over(draft: Draft, id: str, kept: Kept) -> None:
    """End a task as it ended in an earlier run. Those that need it are looked at when all such tasks have ended."""
    _close(draft, id, kept.end, **kept.told)


def reopen(chart: Chart, draft: Draft, ids: Iterable[str]) -> None:
    """Judge tasks anew by what their needs have come to, or are still to come to."""
    free = []
    for id in ids:
        if open_needs := sum(need not in draft.ended for need in chart.tasks[id].needs):
            draft.unmet[id], draft.since[id] = open_needs, draft.now
        else:
            free.append(id)
    for id in free:
        if (skipped := _skipped(chart, draft, id)) is None:
            make_ready(chart, draft, id)
        else:
            end(chart, draft, id, skipped)


def make_ready(chart: Chart, draft: Draft, id: str) -> None:
    """Let a task whose needs have ended stand in line; first a person must approve it, where the plan says so."""
    task = chart.tasks[id]
    if id in draft.growing:  # it has answered, and a person has agreed to what it makes of the plan
        draft.active[id] = draft.now
        draft.tell(EventType.TASK_STARTED, id)
        return
    if draft.rounds and (open_needs := sum(need not in draft.ended for need in task.needs)):
        draft.unmet[id], draft.since[id] = open_needs, draft.now
        draft.wave.pop(id, None)
        draft.probes_no_more(id)
        if not chart.era.before_0_6:
            draft.leave_batch(id)
        draft.tell(EventType.TASK_RETRIED, id, by=None, note="what it needs is done again")
        return
    if task.approval is not None and id not in draft.approved:
        until = draft.now + task.approval.expires if task.approval.expires is not None else None
        what = task.approval.ask or "a person must approve its start"
        ask(draft, id, Waiting(why="approval", what=what, since=draft.now, until=until))
        return
    draft.since[id] = draft.now
    insort(draft.ready.setdefault(task.line, []), chart.order(draft.started).rank[id])
    draft.tell(EventType.TASK_READY, id)


def ask(draft: Draft, id: str, wait: Waiting) -> None:
    """Let a task wait for a person's word."""
    draft.tell(EventType.APPROVAL_NEEDED, id, expires=timestamp(wait.until) if wait.until else None)
    park(draft, id, wait)


def park(draft: Draft, id: str, wait: Waiting) -> None:
    """Let a task wait outside."""
    draft.parked[id] = wait
    draft.since.pop(id, None)
    if wait.why != "wall":
        draft.walled.pop(id, None)
    until = timestamp(wait.until) if wait.until else None
    more: dict[str, JsonValue] = {"cap": wait.cap} if wait.cap is not None else {}
    if wait.since < draft.now:
        more["since"] = timestamp(wait.since)
    draft.tell(EventType.TASK_WAITING, id, **{"for": wait.reason, "what": wait.what, "until": until}, **more)


def leave_line(chart: Chart, draft: Draft, id: str) -> None:
    """Take a task out of wherever it waits."""
    draft.parked.pop(id, None)
    draft.unmet.pop(id, None)
    draft.wave.pop(id, None)
    draft.since.pop(id, None)
    line, rank = draft.ready.get(chart.tasks[id].line, []), chart.order(draft.started).rank[id]
    place = bisect_left(line, rank)  # by search: of ten thousand tasks all may be taken out in one step
    if place < len(line) and line[place] == rank:
        del line[place]


def _close(draft: Draft, id: str, how: Ended, **data: JsonValue) -> None:
    """Write down the end of one task: what was kept for its next start is no longer needed."""
    draft.ended[id] = how
    if not draft.close_account(id):
        data["accounted"] = False
    for kept in draft.begun, draft.limits, draft.used, draft.wave, draft.since, draft.walled:
        kept.pop(id, None)
    if how.status is TaskStatus.SUCCEEDED:
        draft.notes.pop(id, None)  # any other end may be followed by another start
    if how.status in SELF:
        type = EventType.TASK_COMPLETED if how.status is TaskStatus.SUCCEEDED else EventType.TASK_FAILED
        draft.tell(type, id, status=how.status, **data)
    else:
        draft.tell(EventType.TASK_SKIPPED, id, status=how.status, reason=how.why, cause=how.cause, **data)


def _skipped(chart: Chart, draft: Draft, id: str) -> Ended | None:
    """How a task ends that may not run with what its needs have come to."""
    task = chart.tasks[id]
    for need, policy in task.needs.items():
        found = draft.ended[need]
        if not accepts(policy, found.status):
            reason = f"needs {need!r}, which ended {found.status}"
            return Ended(status=TaskStatus.SKIPPED, why=reason, cause=found.cause)
    if task.source is not None:  # it stands for tasks that are not there: it is never done itself
        return Ended(status=TaskStatus.SKIPPED, why=f"there is no list of {task.source!r} for it", cause=id)
    if task.quorum is None:
        return None
    # Of a task that merges in levels the sources count, and not the texts that they came in.
    named = [need for need in task.names if task.needs[need] is Policy.OPTIONAL]
    counted = named or [need for need in task.needs if need not in task.orders]
    optional = [draft.ended[need] for need in counted if task.needs[need] is Policy.OPTIONAL]
    missing = [found for found in optional if found.status is not TaskStatus.SUCCEEDED]
    succeeded = len(optional) - len(missing)
    if succeeded >= task.quorum:
        return None
    reason = f"needs {task.quorum} of its {len(optional)} optional inputs, and {succeeded} succeeded"
    return Ended(status=TaskStatus.SKIPPED, why=reason, cause=missing[0].cause)
