"""Whether an answer is one that the task can be ended with: what is wrong with it, in words for its agent."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from domain import replanning
from domain.answer_schema import Schema
from domain.expectations import unmet
from domain.json_schema import NotJsonError, value_of, violations, weightiest
from domain.models import Plan, Task
from domain.planning import changes, proposals

Judge = Callable[[Plan, Task, str], str | None]
"""What is wrong with an answer that is as its schema says; nothing when it can be used."""

JUDGES: Mapping[str, Judge] = {proposals.TITLE: proposals.complaint, replanning.TITLE: changes.judged}
"""Who looks further at an answer, by the title of its schema."""


def complaint(plan: Plan, task: Task, text: str) -> str | None:
    """What is wrong with the answer to a task; nothing when it can be used."""
    if task.schema_ is not None and (wrong := _against_schema(plan, task, task.schema_, text)) is not None:
        return wrong
    return unmet(task.expect, text) if task.expect is not None else None


def _against_schema(plan: Plan, task: Task, schema: Schema, text: str) -> str | None:
    try:
        value = value_of(text)
    except NotJsonError as error:
        return f"The answer is not one JSON document: {error}"
    if wrong := list(violations(value, schema)):
        return "\n".join(["The answer is not as its schema says:", *(f"- {each}" for each in wrong)])
    judge = JUDGES.get(str(schema.get("title")))
    return judge(plan, task, text) if judge is not None else None


def too_dear(plan: Plan, task: Task, text: str) -> str | None:
    """That an answer would do, and only the money does not reach for what it proposes. Nothing when that is not so."""
    if task.schema_ is None or task.schema_.get("title") != proposals.TITLE:
        return None
    return proposals.too_dear(plan, text)


def in_short(task: Task, text: str) -> str:
    """What is wrong with an answer, for logs and reports: no word of it stands in there."""
    if task.schema_ is None:
        return "its answer lacks what is expected of it" if task.expect is not None else "its answer cannot be used"
    try:
        where = weightiest(value_of(text), task.schema_)
    except NotJsonError:
        return "its answer is not one JSON document"
    return f"its answer is not as its schema says ({where})" if where else "its answer cannot be used"
