"""Every value of a plan that is in effect, as a plan would say it, and where it comes from."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Mapping
from typing import Any

import yaml

from domain import deadlines, durations
from domain.models import Approval, Deadline, Form, Need
from domain.planning import Planned
from domain.prices import money
from terminal.show_rights import rights_document
from terminal.text import plain


def values_of_plan(planned: Planned) -> dict[str, Any]:
    """The values of the plan itself."""
    plan = planned.plan
    return {
        "max_concurrency": plan.max_concurrency,
        "mode": plan.mode.value,
        "deadline": _deadline(plan.deadline),
        "budget_usd": money(plan.budget) if plan.budget is not None else None,
        "on_budget": plan.on_budget if plan.budget is not None else None,
        "region": plan.region,
    }


def values_of_tasks(planned: Planned) -> list[dict[str, Any]]:
    """Every task with its effective values and where each of them comes from."""
    values = []
    needs = (need for task in planned.plan.tasks for need in task.told_of)
    dependants = Counter(need.task for need in needs if need.form is not Form.NAME)
    rights = {agent.called: rights_document(agent) for agent in planned.plan.agents}
    for task in planned.plan.tasks:
        sources = dict(planned.sources.get(task.id, {}))
        effective = {
            "agent": task.agent,
            "priority": task.priority.value,
            "deadline": _deadline(task.deadline),
            "timeout": durations.written(task.timeout),
            "time_limit": durations.written(task.time_limit) if task.time_limit is not None else None,
            "attempts": task.attempts,
            "max_tokens": task.max_tokens,
            "budget_usd": money(task.budget) if task.budget is not None else None,
            "latency": task.latency.value,
            "needs": {need.task: _edge(need, dependants[need.task]) for need in task.needs},
            "quorum": task.quorum,
            "merge": task.merge or None,
            "approval": _approval(task.approval, sources),
            "schema": task.schema_,
            "review": task.review.model_dump() if task.review is not None else None,
            "expect": task.expect.model_dump(mode="json") if task.expect is not None else None,
            "type": task.type,
            "files": [file.path for file in task.files],
            "rights": rights[task.agent],
        }
        sources |= {"rights": "agent"} if rights[task.agent] is not None else {}
        values.append({"id": task.id, **effective, "sources": sources})
    return values


def show_values(planned: Planned) -> None:
    """One value a line, those of the plan before those of its tasks."""
    _show("the plan", values_of_plan(planned), planned.plan_sources)
    for task in values_of_tasks(planned):
        id, sources = task.pop("id"), task.pop("sources")
        _show(id, task, sources)


def _show(name: str, values: Mapping[str, Any], sources: Mapping[str, str]) -> None:
    sys.stdout.write(f"{name}\n")
    for key, value in values.items():
        if value not in (None, [], {}):
            source = f"  ({sources[key]})" if key in sources else ""
            sys.stdout.write(f"  {key}: {plain(_as_written(value))}{source}\n")


def _as_written(value: Any) -> str:
    """The value as it stands in a plan: of a list or a mapping, the form on one line."""
    if isinstance(value, str):
        return value
    text: str = yaml.safe_dump(value, default_flow_style=True, width=math.inf, allow_unicode=True, sort_keys=False)
    return text.removesuffix("...\n").strip()


def _edge(need: Need, dependants: int) -> str | dict[str, str]:
    """The edge in its short form, unless what it passes is not what one dependant gets."""
    if need.form is Form.FULL and dependants == 1:
        return need.policy.value
    return {"policy": need.policy.value, "pass": need.form.value}


def _deadline(deadline: Deadline | None) -> str | None:
    return deadlines.written(deadline) if deadline is not None else None


def _approval(approval: Approval | None, sources: Mapping[str, str]) -> bool | dict[str, Any] | None:
    """False only where somebody says so: against the defaults."""
    if approval is None:
        return False if "approval" in sources else None
    values: dict[str, Any] = {"ask": approval.ask} if approval.ask is not None else {}
    if approval.expires is not None:
        values |= {"expires": durations.written(approval.expires), "on_expiry": approval.on_expiry}
    return values or True
