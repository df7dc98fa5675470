"""Drafts that passed every check become tasks, with every value in effect and its source."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from domain.grammar import ApprovalForm, FilesForm
from domain.item_places import ITEM, ITEM_KEY
from domain.models import Agent, Approval, Each, Grows, Latency, Need, Priority, Task
from domain.planning import templates
from domain.planning.answering import Answering
from domain.planning.attachments import Attachments
from domain.planning.checking import Checked, Sources
from domain.planning.effective import Effective
from domain.planning.passing import Passing
from domain.problems import Problems

VALUES = (
    *("type", "payload", "priority", "deadline", "timeout", "time_limit", "attempts", "max_tokens", "budget_usd"),
    "latency",
)
REPAIRS = 1
"""How often an agent is asked again for an answer that is not as it must be."""

MAX_TEXT_BYTES = 50_000_000
MAX_ATTACHMENTS = 100_000


class Builder:
    """Builds the tasks of a plan, and stops at the first that grows too large: fan-outs multiply."""

    def __init__(
        self,
        effective: Effective,
        attachments: Attachments,
        passing: Passing,
        answering: Answering,
        problems: Problems,
    ) -> None:
        self._effective = effective
        self._answering = answering
        self._passing = passing
        self._attachments = attachments
        self._problems = problems
        self._bytes = self._attached = 0

    def build(self, checked: Checked) -> Iterator[tuple[Task, Sources]]:
        """The tasks of a draft, each with the source of its values."""
        draft = checked.draft
        if checked.agent is None:  # then there is a problem, and nothing is built
            return
        values, sources = self._values(checked, checked.agent)
        payload = values.pop("payload") or {}
        values["budget"] = values.pop("budget_usd")
        needs = tuple(
            Need(task=id, policy=policy, form=self._passing.form(draft, id)) for id, policy in draft.needs.items()
        )
        schema_bytes = len(json.dumps(values.get("schema_", "")))
        for id, item in zip(draft.ids, draft.items or [""], strict=True):
            files = checked.files
            if isinstance(draft.filled.form.for_each, FilesForm):
                files = (self._attachments.file(item), *(file for file in files if file.path != item))
            self._bytes += schema_bytes
            if too_large := self._too_large(checked, payload, item, len(files)):
                self._problems.add(draft.filled.node, too_large, task=id)
                return
            task = Task(
                id=id,
                agent=checked.agent.called,
                asked=checked.asked,
                files=files,
                needs=needs,
                quorum=draft.filled.form.quorum,
                review=checked.review,
                merge=bool(draft.filled.form.merge),
                summarise=id in self._passing.summarised,
                expect=checked.expect,
                grows=Grows(kind="items") if id in self._answering.lists else None,
                **(self._texts(checked, payload, item) if draft.awaits is None else self._open(checked, payload)),
                **values,
            )
            yield task, sources

    def _texts(self, checked: Checked, payload: Mapping[str, Any], item: str) -> dict[str, Any]:
        """What a task says, with its item in it."""
        values = {key: templates.fill_in_values(value, checked.scope, item) for key, value in payload.items()}
        prompt, approval = templates.fill_in(checked.prompt, item), self._approval(checked, item)
        return {"prompt": prompt, "payload": values, "approval": approval}

    def _open(self, checked: Checked, payload: Mapping[str, Any]) -> dict[str, Any]:
        """The same of a fan-out over a list that is not there yet."""
        values = {key: templates.left_open_values(value, checked.scope, ITEM_KEY) for key, value in payload.items()}
        awaits = checked.draft.awaits
        if awaits is None:
            return {}
        ask = templates.around_items(checked.question)
        each = Each(
            source=awaits.source,
            most=awaits.most,
            at_once=awaits.at_once,
            numbered=awaits.label != "item",
            ask=tuple(ask) if len(ask) > 1 else (),
        )
        prompt, approval = templates.left_open(checked.prompt, ITEM), self._approval(checked, "(item)")
        return {"prompt": prompt, "payload": values, "approval": approval, "each": each}

    def _values(self, checked: Checked, agent: Agent) -> tuple[dict[str, Any], Sources]:
        """The values in effect, and the sources of all that somebody gives."""
        sources = dict(checked.sources)
        values: dict[str, Any] = {}
        for key in VALUES:
            values[key], source = self._effective.value(checked.draft, agent, key)
            if source is not None:
                sources[key] = source
        values["priority"], values["latency"] = Priority(values["priority"]), Latency(values["latency"])
        if (given := self._effective.given(checked.draft, "approval")) is not None:
            sources["approval"] = given[1]
        if checked.draft.filled.form.quorum is not None:
            sources["quorum"] = "task"
        schema, source = self._answering.of(checked.draft)
        if schema is not None and source is not None:
            values |= {"schema_": schema}
            sources["schema"] = source
        if schema is not None or checked.expect is not None:
            values["repairs"] = REPAIRS
        return values, sources

    def _approval(self, checked: Checked, item: str) -> Approval | None:
        """What a person must agree to; nothing when nobody asks for it, or the task says false."""
        given = self._effective.given(checked.draft, "approval")
        form = given[0].form.approval if given is not None else False
        if not isinstance(form, ApprovalForm):
            return Approval() if form else None
        ask = "".join(str(run) for run in templates.fill_in(checked.question, item)) or None
        return Approval(ask=ask, expires=form.expires, on_expiry=form.on_expiry or "reject")

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
            return "the prompts, payloads and schemas of the plan are larger than 50 MB in all"
        if self._attached > MAX_ATTACHMENTS:
            return f"the tasks of the plan have more than {MAX_ATTACHMENTS:,} files, each counted once per task"
        return None
