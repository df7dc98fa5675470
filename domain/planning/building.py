"""Drafts that passed every check become tasks, with every value in effect and its source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from domain.grammar import FilesForm
from domain.models import Need, Task
from domain.planning import templates
from domain.planning.attachments import Attachments
from domain.planning.checking import Checked, Checker, Sources
from domain.problems import Problems

BUILT_IN: Mapping[str, Any] = {"timeout": timedelta(seconds=30), "attempts": 4, "max_tokens": 1024}
MAX_TEXT_BYTES = 50_000_000
MAX_ATTACHMENTS = 100_000


class Builder:
    """Builds the tasks of a plan, and stops at the first that grows too large: fan-outs multiply."""

    def __init__(self, checker: Checker, attachments: Attachments, problems: Problems) -> None:
        self._checker = checker
        self._attachments = attachments
        self._problems = problems
        self._bytes = self._attached = 0

    def build(self, checked: Checked) -> Iterator[tuple[Task, Sources]]:
        """The tasks of a draft, each with the source of its values."""
        draft = checked.draft
        if checked.agent is None:  # then there is a problem, and nothing is built
            return
        values, sources = self._values(checked)
        payload = values.pop("payload") or {}
        needs = tuple(Need(task=id, policy=policy) for id, policy in draft.needs.items())
        for id, item in zip(draft.ids, draft.items or [""], strict=True):
            files = checked.files
            if isinstance(draft.filled.form.for_each, FilesForm):
                files = (self._attachments.file(item), *(file for file in files if file.path != item))
            if too_large := self._too_large(checked, payload, item, len(files)):
                self._problems.add(draft.filled.node, too_large, task=id)
                return
            task = Task(
                id=id,
                agent=checked.agent.name,
                prompt=templates.fill_in(checked.prompt, item),
                files=files,
                payload={key: templates.fill_in_values(value, checked.scope, item) for key, value in payload.items()},
                needs=needs,
                **values,
            )
            yield task, sources

    def _values(self, checked: Checked) -> tuple[dict[str, Any], Sources]:
        """The values in effect: of the task, else of the defaults, else of the agent, else built in."""
        sources = dict(checked.sources)
        values: dict[str, Any] = {}
        for key in ("type", "payload", "timeout", "attempts", "max_tokens"):
            given = self._checker.given(checked.draft, key)
            if given is not None:
                values[key], sources[key] = getattr(given[0].form, key), given[1]
            elif (own := getattr(checked.agent, key, None)) is not None:
                values[key], sources[key] = own, "agent"
            else:
                values[key], sources[key] = BUILT_IN.get(key), "built in"
        return values, sources

    def _too_large(self, checked: Checked, payload: Any, item: str, files: int) -> str | None:
        """Why one more task would be too much, measured before it is built."""
        prompt = templates.size(checked.prompt, item)
        values = templates.size_of_values(payload, checked.scope, item)
        self._bytes += prompt + values
        self._attached += files
        if prompt > templates.MAX_BYTES:
            return "the prompt is larger than 1 MB"
        if values > templates.MAX_BYTES:
            return "the payload is larger than 1 MB"
        if self._bytes > MAX_TEXT_BYTES:
            return "the prompts and payloads of the plan are larger than 50 MB in all"
        if self._attached > MAX_ATTACHMENTS:
            return f"the tasks of the plan have more than {MAX_ATTACHMENTS:,} files, each counted once per task"
        return None
