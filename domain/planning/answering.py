"""What an answer must be: the schema of a task, and who reviews it, checked where they are written."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from pydantic import JsonValue

from domain.answer_schema import mistakes
from domain.forms import Filled
from domain.json_schema import mistake_of_schema
from domain.models import Agent, Review
from domain.planning.drafts import Draft, Drafts
from domain.planning.effective import Effective
from domain.planning.listing import has_list, schema_of_list
from domain.planning.permitting import Permitting
from domain.planning.staffing import Staffing
from domain.problems import Problems, quoted

Schema = dict[str, JsonValue]


class Answering:
    """The schemas and the reviews of a plan's tasks."""

    def __init__(
        self, effective: Effective, drafts: Drafts, staffing: Staffing, permitting: Permitting, problems: Problems
    ) -> None:
        self._effective, self._drafts, self._problems = effective, drafts, problems
        self._staffing, self._permitting = staffing, permitting
        self._checked: set[int] = set()
        self._inside: dict[str, Schema | None] = {
            inner.id(task.id): task.schema_
            for inner in (draft.inner for draft in drafts.all if draft.inner is not None)
            for task in inner.plan.tasks
        }
        self._owners: Mapping[str, Draft] = {id: draft for draft in drafts.all for id in draft.ids}

    @property
    def lists(self) -> Collection[str]:
        """The tasks whose answers are lists that others fan out over."""
        return self._drafts.lists.keys()

    def check(self, draft: Draft) -> None:
        """Report what is wrong with the schema of a draft, once where all have it from the defaults."""
        given = self._effective.given(draft, "schema_")
        if given is not None and draft.id in self._drafts.lists and not has_list(given[0].form.schema_):
            lack = f"{quoted(self._drafts.lists[draft.id][0].id)} fans out over its list, and 'schema' has none"
            remedy = "add a property 'items' of type array, or leave the schema out"
            self._problems.add(draft.filled.at("schema"), lack, task=draft.id, hint=remedy)
        if given is None or id(given[0]) in self._checked:
            return
        self._checked.add(id(given[0]))
        filled, source = given
        task = draft.id if source == "task" else None
        schema = filled.form.schema_
        if (wrong := mistake_of_schema(schema)) is not None:
            self._complain(filled, wrong[0], f"is no JSON Schema: {wrong[1]}", None, task)
            return
        for path, message, hint in mistakes(schema):
            self._complain(filled, path, message, hint, task)

    def review(self, draft: Draft, maker: Agent | None) -> tuple[Review | None, str | None]:
        """Who reviews the answers of a draft, and who says so. Whoever may not is reported."""
        given = self._effective.given(draft, "review")
        if given is None:
            self._check_names_in_wrong_review(draft)
            return None, None
        filled, source = given
        form, at = filled.form.review, filled.at("review", "by")
        task = draft.id if source == "task" else None
        found = self._staffing.named(form.by, at, self._problems, task).agents
        if not found:
            return None, None
        reviewer = found[0]
        self._staffing.use(reviewer)
        if maker is not None:
            self._permitting.check_review(draft, maker, reviewer, at)
        return Review(by=reviewer.called, tries=form.tries or 1), source

    def _check_names_in_wrong_review(self, draft: Draft) -> None:
        """Report a reviewer that there is not, also where something else of the review is wrong."""
        for filled, task in ((draft.filled, draft.id), (self._effective.defaults, None)):
            if filled is not None and "review" in filled.wrong:
                for name, at in filled.names("review", "by"):
                    self._staffing.named(name, at, self._problems, task)
                return

    def of(self, draft: Draft) -> tuple[Schema | None, str | None]:
        """The schema of the answers of a draft, and who gives it. One whose answer is a list needs none of its own."""
        given = self._effective.given(draft, "schema_")
        if given is not None:
            return given[0].form.schema_, given[1]
        fans = self._drafts.lists.get(draft.id)
        return (schema_of_list(fans), "for_each") if fans else (None, None)

    def of_task(self, id: str) -> Schema | None:
        """The schema of the answer of a task of the plan."""
        if id in self._inside:
            return self._inside[id]
        draft = self._owners.get(id)
        return self.of(draft)[0] if draft is not None else None

    def _complain(
        self, filled: Filled[Any], path: tuple[str | int, ...], message: str, hint: str | None, task: str | None
    ) -> None:
        name = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in ("schema", *path)).lstrip(".")
        self._problems.add(filled.at("schema", *path), f"{name!r} {message}", task=task, hint=hint)
