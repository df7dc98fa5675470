"""How a run waits for what the answer of a task makes of its plan, and goes on with it.

The task has answered and was paid, but it ends only when the plan has grown: until then those that need it wait, the
run is not over, and whatever happens to worker or history, what is awaited stands in its progress.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from pydantic import Field

from domain import amending, settling
from domain.amending import Unfitting
from domain.amendments import Amendment
from domain.chart import Chart
from domain.models import Answered, TaskStatus, Unsaid, Usage, Value
from domain.progress import Ended, Growing, Progress, Waiting
from domain.step import Draft

NAMED = 10
"""Tasks of each kind that a question names."""


class Growth(Value):
    """What an answer makes of the plan: another one, or tasks that there is nothing to do for, or why it does not."""

    base_ref: str
    """The plan that was looked at."""
    over: Annotated[tuple[str, ...], Unsaid] = ()
    """The fan-outs that had ended then, and were left as they are."""
    amendment: Annotated[Amendment | None, Unsaid] = None
    idle: Annotated[dict[str, str], Unsaid] = Field(default_factory=dict)
    """Tasks that stand for a fan-out without items, and why they are skipped."""
    refused: Annotated[str | None, Unsaid] = None


def awaits(chart: Chart, draft: Draft, id: str) -> bool:
    """Whether the plan grows by the answer of a task."""
    grows = chart.tasks[id].grows
    if grows is None:
        return False
    return grows.kind != "items" or any(open not in draft.ended for open in fans(chart, id))


def begun(answer: Answered, spent: Usage) -> Growing:
    """What must be remembered of an answer until the plan has grown by it. The rest was told."""
    return Growing(answer=answer.model_copy(update={"tries": (), "calls": (), "refused": ()}), spent=spent)


def fans(chart: Chart, source: str) -> list[str]:
    """The tasks that stand for a fan-out over the list of this one."""
    return [id for id in chart.dependants.get(source, ()) if chart.tasks[id].source == source]


def over(chart: Chart, progress: Progress, source: str) -> tuple[str, ...]:
    """Those of them that have ended, as when a person has skipped them."""
    return tuple(id for id in fans(chart, source) if id in progress.ended)


def is_late(chart: Chart, progress: Progress, id: str, growth: Growth) -> bool:
    """Whether somebody has changed what was looked at meanwhile: then it is asked for once more."""
    return (growth.base_ref, growth.over) != (chart.plan_ref, over(chart, progress, id))


def question(chart: Chart, progress: Progress, id: str, growth: Growth, now: datetime) -> Waiting | None:
    """What a person is asked before the plan changes, where somebody must agree; `Unfitting` when it cannot change."""
    grows = chart.tasks[id].grows
    if grows is None or grows.approval is None or growth.amendment is None:
        return None
    if id in progress.approved and progress.growing[id].asked == growth.amendment.plan_ref:
        return None
    if progress.cancelled or progress.late or progress.broke:
        return None
    take_in(chart, Draft(progress, now), id, growth)  # nobody is asked for what cannot be
    change = amending.difference(chart, chart.amended(growth.amendment), growth.amendment.edited)
    kinds = {"adds": change.added, "edits": change.edited, "removes": change.removed}
    what = "; ".join(f"{verb} {_named(ids)}" for verb, ids in kinds.items() if ids)
    ask = f"{grows.approval.ask} " if grows.approval.ask else ""
    until = now + grows.approval.expires if grows.approval.expires is not None else None
    return Waiting(why="approval", what=f"{ask}Its change {what}", since=now, until=until)


def _named(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - NAMED} more" if len(ids) > NAMED else ""
    return ", ".join(ids[:NAMED]) + more


def take_in(chart: Chart, draft: Draft, id: str, growth: Growth) -> Chart:
    """Go on with what the plan has become; its chart. `Unfitting` says why it cannot be."""
    if growth.refused is not None:
        raise Unfitting(growth.refused)
    if draft.cancelled or draft.late or draft.broke:
        raise Unfitting("the run was ended before its plan had grown by this answer")
    if growth.amendment is not None:
        grows = chart.tasks[id].grows
        by_items = grows is not None and grows.kind == "items"
        chart, _ = amending.adopt(chart, draft, growth.amendment, {"task": id}, by_growth=by_items)
    for fan, why in growth.idle.items():
        if fan not in draft.ended:
            settling.leave_line(chart, draft, fan)
            settling.end(chart, draft, fan, Ended(status=TaskStatus.SKIPPED, why=why, cause=fan))
    return chart
