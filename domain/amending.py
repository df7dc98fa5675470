"""A running plan is replaced by another one: what is new begins, what has started stays as it is.

Whoever has not started may be edited or taken out, and is judged anew by what its needs have come to. Whoever has
started is the same in both plans, so nothing that was paid for is lost, and nothing starts twice.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from pydantic import JsonValue

from domain import settling
from domain.amendments import Amendment
from domain.chart import Chart
from domain.events import EventType
from domain.graph import in_order
from domain.progress import OutlineTask
from domain.step import Draft

NAMED = 100
"""Tasks of each kind that the event names: a plan may have ten thousand. The new ones have events of their own."""


class Unfitting(Exception):
    """The plan cannot take the place of the one that runs: why, in a sentence without its point."""


@dataclass(frozen=True)
class Difference:
    """What is otherwise in a plan that takes the place of another one, each in the order of its plan."""

    added: tuple[str, ...] = ()
    edited: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.edited or self.removed)

    @property
    def told(self) -> dict[str, JsonValue]:
        """What the event says of it."""
        kinds = {"added": self.added, "edited": self.edited, "removed": self.removed}
        named: dict[str, JsonValue] = {kind: list(ids[:NAMED]) for kind, ids in kinds.items()}
        return {**named, "counts": {kind: len(ids) for kind, ids in kinds.items()}}


def difference(old: Chart, new: Chart, edited: Collection[str]) -> Difference:
    """What is otherwise. A task whose outline differs is edited, whoever says what."""
    both, edited = [id for id in new.tasks if id in old.tasks], frozenset(edited)
    return Difference(
        added=tuple(id for id in new.tasks if id not in old.tasks),
        edited=tuple(id for id in both if id in edited or _said(new.tasks[id]) != _said(old.tasks[id])),
        removed=tuple(id for id in old.tasks if id not in new.tasks),
    )


def _said(task: OutlineTask) -> OutlineTask:
    """A task as it was written. Who proposes changes is told the plan, and weighs more when there is more of it.

    Another question is an edit of the plan, and named as one. Here it may be the same one, in other words: before 0.8.0
    an outline had it with the item in it.
    """
    if task.approval is not None and task.approval.ask is not None:
        task = task.model_copy(update={"approval": task.approval.model_copy(update={"ask": None})})
    is_told_the_plan = task.grows is not None and task.grows.is_replan
    return task.model_copy(update={"weight": 0}) if is_told_the_plan else task


def adopt(
    old: Chart, draft: Draft, amendment: Amendment, who: Mapping[str, JsonValue], *, by_growth: bool = False
) -> tuple[Chart, Difference]:
    """Let a run go on with another plan: its chart, and what is otherwise in it. `who` wanted it goes into the event.

    A plan that grows gives dependants other needs, also those that have ended meanwhile, as when a person has skipped
    them: these stay as they ended.
    """
    new = old.amended(amendment)
    change = difference(old, new, amendment.edited)
    _check_graph(new)
    _check(old, new, draft, (*change.removed, *(() if by_growth else change.edited)))
    edited = [id for id in change.edited if not (id in draft.active or id in draft.ended or id in draft.begun)]
    for id in (*change.removed, *edited):
        _forget(old, draft, id)
    _rank_anew(old, new, draft)
    draft.adopts = amendment
    draft.tell(EventType.PLAN_CHANGED, plan_ref=amendment.plan_ref, tasks=len(new.tasks), **change.told, **who)
    for id in change.added:
        draft.tell(EventType.TASK_CREATED, id, agent=new.tasks[id].agent)
    settling.reopen(new, draft, (*edited, *change.added))
    settling.end_parts(new, draft, [*draft.parts])
    return new, change


def _check_graph(new: Chart) -> None:
    """A plan is looked at whole before it is sent; this is for whoever sends one by hand."""
    if not new.tasks or len(new.tasks) != len(new.outline.tasks):
        raise Unfitting("the plan has no tasks, or two of the same id")
    for task in new.outline.tasks:
        if unknown := [need for need in task.needs if need not in new.tasks]:
            raise Unfitting(f"{task.id!r} needs {unknown[0][:200]!r}, which is no task of the plan")
    if len(in_order({id: list(task.needs) for id, task in new.tasks.items()})) < len(new.tasks):
        raise Unfitting("the needs form a cycle")


def _check(old: Chart, new: Chart, draft: Draft, concerned: Iterable[str]) -> None:
    """Refuse what cannot be otherwise in a plan that runs."""
    if new.outline.mode is not old.outline.mode:
        raise Unfitting("the mode of a run cannot be changed")
    for id in concerned:
        if (how := _started(old, draft, id)) is not None:
            verb = "changed" if id in new.tasks else "removed"
            raise Unfitting(f"{id!r} {how}: it cannot be {verb}")


def _started(old: Chart, draft: Draft, id: str) -> str | None:
    """Whether a task has started, in words."""
    if id in draft.active:
        return "is at work"
    if id in draft.ended:
        return f"has ended {draft.ended[id].status}"
    if id in draft.begun or (id in draft.rounds and not _stands_for_others(old, id)):
        return "has started"  # it waits, and goes on
    return None


def _stands_for_others(chart: Chart, id: str) -> bool:
    """Whether it stands for the tasks of a fan-out: then it is never done, also when it is retried with its list."""
    return chart.tasks[id].source is not None


def _forget(old: Chart, draft: Draft, id: str) -> None:
    """Take a task out of wherever it waits: what was approved was another task."""
    settling.leave_line(old, draft, id)
    draft.probes_no_more(id)
    draft.approved.pop(id, None)
    for kept in draft.notes, draft.walled, draft.walls:
        kept.pop(id, None)
    if _stands_for_others(old, id):  # of any other task they tell what was answered before from what will be
        draft.rounds.pop(id, None)


def _rank_anew(old: Chart, new: Chart, draft: Draft) -> None:
    """Let those that are ready stand in line by their places in the new plan."""
    ids, ranks = old.order(draft.started).ids, new.order(draft.started).rank
    standing = [ids[rank] for line in draft.ready.values() for rank in line]
    draft.ready = {}
    for id in standing:
        insort(draft.ready.setdefault(new.tasks[id].line, []), ranks[id])
