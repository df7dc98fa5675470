"""What is done to each line of the log before it is written: names are added, words are taken away."""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from structlog.typing import EventDict

ROOT = Path(__file__).resolve().parent.parent

FIRST = ("timestamp", "level", "event", "run", "task", "attempt")

FRAMES = 12
"""Of a stack, the innermost ones."""

CORE_FIELDS = {"error", "namespace", "run_id", "task_queue", "task_queue_type"}
"""What is kept of the fields of a line of Temporal's core; others may hold the text of failures."""

WORKFLOWS_KNOWN = 10_000
"""Workflows whose names are remembered by Temporal's run id, which is all that some lines of the SDK tell."""

_workflows: dict[str, dict[str, str | int | None]] = {}
_lock = threading.Lock()


def names_of(workflow_id: str | None, attempt: int) -> dict[str, str | int | None]:
    """Run, task and attempt: a task's workflow is RUN/TASK, and what the supervisor does itself has no task."""
    run, _, task = (workflow_id or "").partition("/")
    return {"run": run or None, "task": task or None, "attempt": attempt}


def remember_workflow(run_id: str, workflow_id: str, attempt: int) -> None:
    """Keep the names of a workflow for lines that know only Temporal's id of it."""
    with _lock:
        _workflows[run_id] = names_of(workflow_id, attempt)
        if len(_workflows) > WORKFLOWS_KNOWN:
            del _workflows[next(iter(_workflows))]


def known_to_temporal(_: object, __: str, line: EventDict) -> EventDict:
    """The names of a line that workflow code or Temporal's core wrote, and the fields it came with."""
    record: logging.LogRecord = line["_record"]
    core: Mapping[str, Any] = getattr(getattr(record, "temporal_log", None), "fields", {})
    known: Mapping[str, Any] = getattr(record, "temporal_workflow", core)
    if "workflow_id" in known:
        line.update(names_of(str(known["workflow_id"]), int(known.get("attempt", 1))))
    else:
        ids = [core.get("run_id"), *(record.args if isinstance(record.args, tuple) else ())]
        line.update(next((_workflows[id] for id in ids if isinstance(id, str) and id in _workflows), {}))
    line.update({name: value for name, value in core.items() if name in CORE_FIELDS})
    line.update(getattr(record, "told", {}))
    if record.name == "asyncio":  # what follows the first line is the repr of a task, with its error in it
        line["event"] = str(line["event"]).partition("\n")[0]
    return line


def types_and_places(_: object, __: str, line: EventDict) -> EventDict:
    """An error by the types of its chain and the places in its stack; messages may quote prompts and answers."""
    found = line.pop("exc_info", None)
    line.pop("stack_info", None)
    if isinstance(found, tuple):
        found = found[1]
    elif found and not isinstance(found, BaseException):
        found = sys.exc_info()[1]
    if isinstance(found, BaseException):
        chain = _chain(found)
        line["exception"] = "; caused by ".join(_type_and_places(error) for error in chain)
        for error in chain:  # some libraries quote it in their own sentence
            line["event"] = str(line["event"]).replace(str(error) or "\n", type(error).__name__)
    return line


def in_order(_: object, __: str, line: EventDict) -> EventDict:
    """What every line has comes first, so that lines can be read one below the other."""
    first = {name: line[name] for name in FIRST if name in line}
    return {**first, **line}


def _chain(error: BaseException) -> list[BaseException]:
    chain: list[BaseException] = []
    following: BaseException | None = error
    while following is not None and following not in chain:
        chain.append(following)
        following = following.__cause__ or (None if following.__suppress_context__ else following.__context__)
    return chain


def _type_and_places(error: BaseException) -> str:
    frames = traceback.StackSummary.extract(traceback.walk_tb(error.__traceback__), lookup_lines=False)
    places = [f"{short(frame.filename)}:{frame.lineno} {frame.name}" for frame in frames[-FRAMES:]]
    return " < ".join([type(error).__name__, *reversed(places)])


def short(file: str) -> str:
    """A file as its owner calls it: the log does not tell how this machine is laid out."""
    path = Path(file)
    if path.is_relative_to(ROOT) and "site-packages" not in path.parts:
        return str(path.relative_to(ROOT))
    return "/".join(path.parts[-2:])
