"""Plan files: reading them, and showing what they mean before anything starts."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from domain.briefing import brief_for, readable
from domain.durations import written
from domain.graph import layers
from domain.models import Input, TaskStatus
from domain.planning import Invalid, Planned, plan_from_text
from domain.registry import registry_from_text
from folder import PlanFolder
from runtime import ROOT
from terminal.outcome import Exit, Refusal, print_json
from terminal.text import plain


def read_plan(file: str, *, params: list[str], agents: Path | None, max_concurrency: int | None) -> Planned:
    """The valid plan of a file, or `-` for standard input; a refusal with every mistake otherwise."""
    try:
        registry = registry_from_text(_read(str(agents or ROOT / "agents.yaml")), file=str(agents or "agents.yaml"))
        return plan_from_text(
            _read(file),
            file=file,
            registry=registry,
            folder=PlanFolder.of(file),
            params=_params(params),
            max_concurrency=max_concurrency,
        )
    except Invalid as invalid:
        count = len(invalid.problems)
        message = f"{count} mistake{'s' if count > 1 else ''}; nothing was started."
        raise Refusal(message, code="invalid_plan", exit=Exit.WRONG, problems=invalid.problems) from None


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
        "max_concurrency": plan.max_concurrency,
    }
    document |= {"resolved": effective_values(planned)} if resolved else {}
    document |= {"layers": layers(plan)} if graph else {}
    if as_json:
        print_json(document)
        return
    for warning in planned.warnings:
        sys.stderr.write(f"{warning}\n")
    for task in document.get("resolved", []):
        sys.stdout.write(f"{task['id']}\n")
        for key, value in task.items():
            if key not in {"id", "sources"} and value not in (None, [], {}):
                source = task["sources"].get(key)
                sys.stdout.write(f"  {key}: {plain(str(value))}{f'  ({source})' if source else ''}\n")
    for number, layer in enumerate(document.get("layers", []), start=1):
        sys.stdout.write(f"layer {number}: {', '.join(layer)}\n")
    sys.stdout.write(f"{plan.name}: {len(plan.tasks)} tasks, valid.\n")


def effective_values(planned: Planned) -> list[dict[str, Any]]:
    """Every task with its effective values and where each of them comes from."""
    values = []
    for task in planned.plan.tasks:
        effective = {
            "agent": task.agent,
            "timeout": written(task.timeout),
            "attempts": task.attempts,
            "max_tokens": task.max_tokens,
            "needs": {need.task: need.policy.value for need in task.needs},
            "type": task.type,
            "files": [file.path for file in task.files],
        }
        values.append({"id": task.id, **effective, "sources": dict(planned.sources.get(task.id, {}))})
    return values


def brief_text(planned: Planned, id: str) -> str:
    """What the agent of a task would be told, with stand-ins for results that do not exist yet."""
    plan = planned.plan
    task = next((task for task in plan.tasks if task.id == id), None)
    if task is None:
        raise Refusal(f"The plan has no task {id!r}.", code="unknown_task", exit=Exit.WRONG)
    texts = {ref: content.decode() for ref, content in planned.contents.items()}
    texts |= {need.task: f"(the result of {need.task})" for need in task.needs}
    inputs = tuple(Input(task=need.task, status=TaskStatus.SUCCEEDED, ref=need.task) for need in task.needs)
    return plain(readable(brief_for(plan, task, inputs, texts)))


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


def _params(given: list[str]) -> dict[str, str]:
    params = {}
    for pair in given:
        name, sign, value = pair.partition("=")
        if not sign or not name:
            raise Refusal(f"--param {pair!r}: write it as name=value.", code="usage", exit=Exit.WRONG)
        params[name] = value
    return params
