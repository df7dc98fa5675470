"""What a person reads of a plan that was made for a goal: as a file, as a document, in a line below the report."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import yaml

from client import RunClient
from domain.consent import dollars
from domain.graph import critical_path, layers
from domain.models import Plan
from domain.picture import Picture
from domain.planning.goals import TASK
from domain.planning.proposals import Judged, Unusable, as_yaml, judged
from terminal.text import counted, plain

SHOWN = 2_000
"""Characters of a goal that stand above its plan."""


async def words_of_planner(client: RunClient, picture: Picture) -> list[str]:
    """What the planner said of its plan, where a run was begun by a goal and has one."""
    if picture.plan.goal is None or picture.tasks[TASK].output_ref is None:
        return []
    first = picture.plan.model_copy(update={"tasks": tuple(t for t in picture.plan.tasks if t.id == TASK)})
    try:
        found = judged(first, await answer_of(client, picture))
    except Unusable as unusable:
        return [f"The last plan that it proposed cannot be run: {plain(unusable.problems[0])[:500]}."]
    return [f"Planned: {_shape(found)} {plain(' '.join(found.proposal.why.split()))[:500]}"]


async def answer_of(client: RunClient, picture: Picture) -> str:
    """What the planner answered."""
    return await client.text(picture.tasks[TASK].output_ref or "")


def written(found: Judged, goal: str) -> str:
    """The plan as a file to read and to edit, with what it comes to above it."""
    lines = [
        "The plan for this goal:",
        *(f"  {line}" for line in plain(goal[:SHOWN]).splitlines()),
        plain(" ".join(found.proposal.why.split())),
        *size_of(found).splitlines(),
    ]
    heading = "\n".join(f"# {line}".rstrip() for line in lines)
    return f"{heading}\n{_body(found)}"


def document(found: Judged, run: str, text: str) -> dict[str, Any]:
    """The document of `plan --json`."""
    path, way, work = _ways(found)
    return {
        "schema": "nightcrew.plan/1",
        "run": run,
        "why": found.proposal.why,
        "playbook": found.proposal.playbook or None,
        "tasks": len(found.planned.plan.tasks),
        "width": _width(found),
        "critical_path": {"tasks": path, "seconds": way.total_seconds()},
        "work_seconds": work.total_seconds(),
        "estimate": found.estimate.model_dump(mode="json", include={"usd", "tokens", "seconds"}),
        "plan": text,
    }


def _body(found: Judged) -> str:
    """The tasks; of a playbook its own text, with the parameters that were chosen as defaults."""
    if not found.proposal.playbook:
        return found.text
    loaded: dict[str, Any] = yaml.safe_load(found.text)
    loaded.pop("playbook", None)
    for name, value in found.params.items():
        loaded["params"][name] = {**(loaded["params"][name] or {}), "default": value}
    return as_yaml(loaded)


def _shape(found: Judged) -> str:
    tasks = counted(len(found.planned.plan.tasks), "task")
    by = f" by the playbook {plain(found.proposal.playbook)}" if found.proposal.playbook else ""
    return f"{tasks}{by}, up to {_width(found)} at once." if not found.by_one else f"{tasks}{by}."


def size_of(found: Judged) -> str:
    """How large a plan is: its tasks, its longest chain against all of its work, its tokens."""
    path, way, work = _ways(found)
    tokens = found.estimate.tokens
    cost = f", {dollars(found.estimate.usd.likely)}" if found.estimate.usd is not None else ""
    return (
        f"{_shape(found)} The longest chain has {counted(len(path), 'task')}: about {way.total_seconds():.0f} s "
        f"of {work.total_seconds():.0f} s of work in all.\n"
        f"Likely {tokens.input.likely:,} tokens in and {tokens.output.likely:,} out{cost}."
    )


def _width(found: Judged) -> int:
    return max(len(layer) for layer in layers(found.planned.plan))


def _ways(found: Judged) -> tuple[list[str], timedelta, timedelta]:
    durations: Mapping[str, timedelta] = {
        task.id: timedelta(seconds=task.seconds.likely) for task in found.estimate.tasks
    }
    path, way = critical_path(found.planned.plan, durations)
    return path, way, sum(durations.values(), timedelta())


def goal_of(plan: Plan) -> str:
    """What the planner was asked for."""
    return str(plan.tasks[0].payload.get("goal", ""))
