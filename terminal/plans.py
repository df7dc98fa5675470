"""Plan files: reading them, and showing what they mean before anything starts."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from domain.briefing import brief_for, readable
from domain.graph import layers
from domain.models import Agent, Form, Input, Need, Pace, TaskStatus
from domain.planning import Invalid, Planned, plan_from_text
from domain.problems import did_you_mean
from domain.registry import Registry, registry_from_text, with_pinned
from domain.selection import only
from folder import PlanFolder
from runtime import ROOT, Settings
from terminal import playbooks
from terminal.outcome import Exit, Refusal, ended, print_json
from terminal.resolving import show_values, values_of_plan, values_of_tasks
from terminal.roster import registry_at
from terminal.tasks import items_of
from terminal.text import plain


@dataclass(frozen=True)
class Written:
    """Where a plan is written: a file or `-`, or a playbook, which is read from the folder that the person is in."""

    file: str
    is_playbook: bool = False

    @classmethod
    def of(cls, plan: str | None, playbook: str | None, settings: Settings) -> Written:
        """What a person names, which must be one of the two."""
        if plan is not None and playbook is not None:
            raise Refusal("Name a PLAN or a --playbook, not both.", code="usage", exit=Exit.WRONG)
        if playbook is not None:
            return cls(str(playbooks.file_of(settings, playbook)), is_playbook=True)
        if plan is None:
            message = "Name a PLAN, a --playbook or a --goal. ./starter.py init writes a plan to begin with."
            raise Refusal(message, code="usage", exit=Exit.WRONG)
        return cls(plan)

    @property
    def shown(self) -> str:
        """What mistakes in it are told with."""
        return playbooks.shown(Path(self.file)) if self.is_playbook else self.file

    @property
    def folder(self) -> PlanFolder:
        """Where its files are: a playbook is written for the files of whoever runs it."""
        return PlanFolder.of("-" if self.is_playbook else self.file)


def read_plan(
    plan: Written | str,
    *,
    params: Mapping[str, str],
    agents: Path | None,
    max_concurrency: int | None = None,
    mode: Pace | None = None,
    budget: Decimal | None = None,
    region: str | None = None,
    settings: Settings | None = None,
    live: bool = False,
    pinned: Collection[Agent] = (),
) -> Planned:
    """The valid plan that is written there; a refusal with every mistake otherwise.

    The tier in the settings says how many tasks at once a plan has that does not say, and their store who may work.
    Agents that are `pinned` are as a run has them that goes on.
    """
    plan = Written(plan) if isinstance(plan, str) else plan
    usual = None
    if settings is not None and settings.concurrency is not None:
        usual = settings.concurrency, f"tier {settings.tier}"
    try:
        registry = _registry(agents) if settings is None else registry_at(settings, _registry(agents), live=live)
        return plan_from_text(
            _read(plan.file),
            file=plan.shown,
            registry=with_pinned(registry, pinned) if pinned else registry,
            folder=plan.folder,
            params=params,
            max_concurrency=max_concurrency,
            mode=mode,
            budget=budget,
            region=region,
            usual=usual,
            now=datetime.now(UTC),
        )
    except Invalid as invalid:
        raise refused(invalid) from None


def part_of(planned: Planned, words: Sequence[str]) -> Planned:
    """The plan of these tasks and of what they need; the name of a `for_each` stands for all its items."""
    known = [task.id for task in planned.plan.tasks]
    found: dict[str, None] = {}
    for word in words:
        if not (meant := [word] if word in known else items_of(word, known)):
            hint = did_you_mean(word, known)
            more = f" {ended(hint[0].upper() + hint[1:])}" if hint else ""
            raise Refusal(f"--only {word!r}: the plan has no such task.{more}", code="unknown_task", exit=Exit.WRONG)
        found |= dict.fromkeys(meant)
    return replace(planned, plan=only(planned.plan, found))


def read_registry(agents: Path | None) -> Registry:
    """The agents of a file, or of ours; a refusal with every mistake otherwise."""
    try:
        return _registry(agents)
    except Invalid as invalid:
        raise refused(invalid) from None


def _registry(agents: Path | None) -> Registry:
    return registry_from_text(_read(str(agents or ROOT / "agents.yaml")), file=str(agents or "agents.yaml"))


def refused(invalid: Invalid) -> Refusal:
    """What a person is told of a text with mistakes."""
    count = len(invalid.problems)
    message = f"{count} mistake{'s' if count > 1 else ''}; nothing was started."
    return Refusal(message, code="invalid_plan", exit=Exit.WRONG, problems=invalid.problems)


def show_plan(planned: Planned, *, resolved: bool, graph: bool, brief: str | None, as_json: bool) -> None:
    """What was asked of a valid plan, on stdout."""
    plan = planned.plan
    if brief is not None:
        text = brief_text(planned, brief)
        if as_json:
            print_json({"schema": "nightcrew.brief/1", "task": brief, "brief": text})
        else:
            sys.stdout.write(f"{text}\n")
        return
    document: dict[str, Any] = {
        "schema": "nightcrew.validation/1",
        "name": plan.name,
        "tasks": len(plan.tasks),
        **values_of_plan(planned),
        "warnings": [asdict(warning) for warning in planned.warnings],
    }
    document |= {"sources": dict(planned.plan_sources), "resolved": values_of_tasks(planned)} if resolved else {}
    document |= {"layers": layers(plan)} if graph else {}
    if as_json:
        print_json(document)
        return
    for warning in planned.warnings:
        sys.stderr.write(f"{warning}\n")
    if resolved:
        show_values(planned)
    for number, layer in enumerate(document.get("layers", []), start=1):
        sys.stdout.write(f"layer {number}: {', '.join(layer)}\n")
    sys.stdout.write(f"{plan.name}: {len(plan.tasks)} tasks, valid.\n")


def brief_text(planned: Planned, id: str) -> str:
    """What the agent of a task would be told, with stand-ins for results that do not exist yet."""
    plan = planned.plan
    task = next((task for task in plan.tasks if task.id == id), None)
    if task is None:
        raise Refusal(f"The plan has no task {id!r}.", code="unknown_task", exit=Exit.WRONG)
    texts = {ref: content.decode() for ref, content in planned.contents.items()}
    texts |= {need.task: f"(the {_of(need)} of {need.task})" for need in task.told_of}
    inputs = tuple(_stand_in(need) for need in task.told_of)
    return plain(readable(brief_for(plan, task, inputs, texts)))


def _of(need: Need) -> str:
    return "summary of the result" if need.form is Form.SUMMARY else "result"


def _stand_in(need: Need) -> Input:
    """An input that is there, of a size that nobody knows yet."""
    ref = None if need.form is Form.NAME else need.task
    given = Input(task=need.task, status=TaskStatus.SUCCEEDED, ref=ref)
    return given.model_copy(update={"whole": "(its reference)"}) if need.form is Form.SUMMARY else given


def _read(file: str) -> str:
    try:
        content = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise Refusal(f"{file}: {error.strerror}.", code="unreadable", exit=Exit.WRONG) from None
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        message = f"{file}: not UTF-8 text (byte {error.start}). Save it as UTF-8."
        raise Refusal(message, code="unreadable", exit=Exit.WRONG) from None
