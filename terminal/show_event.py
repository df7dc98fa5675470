"""An event as a line that a person can read."""

from __future__ import annotations

from typing import Any

from domain.events import Event, EventType
from domain.problems import did_you_mean
from terminal.outcome import Exit, Refusal
from terminal.text import counted, one_line, plain


def event_type(name: str | None) -> EventType | None:
    """The type that is asked for, or all."""
    if name is None:
        return None
    known = [type.value for type in EventType]
    if name not in known:
        hint = did_you_mean(name, known)
        message = f"--type {name!r} is no type of event{f': {hint}' if hint else '.'} There are {', '.join(known)}."
        raise Refusal(message, code="usage", exit=Exit.WRONG)
    return EventType(name)


def event_line(event: Event) -> str:
    """Local time, number, type, task, and what is known of it in words."""
    local = event.time.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    words = one_line(_words(event), 300)
    return f"{local}  {event.number:>5}  {event.type:16} {plain(event.task or ''):24} {words}".rstrip()


def _words(event: Event) -> str:
    data: dict[str, Any] = dict(event.data)
    match event.type:
        case EventType.RUN_STARTED if {"tasks", "max_concurrency"} <= data.keys():
            words = f"{counted(data.pop('tasks'), 'task')}, {data.pop('max_concurrency')} at once"
            words += " in waves" if data.pop("mode", None) == "waves" else ""
        case EventType.TASK_WAITING if "for" in data:
            until = data.pop("until", None)
            words = f"{data.pop('for')}: {data.pop('what', '')}{f', until {until}' if until else ''}"
        case EventType.RUN_WAITING:
            words = f"nothing is at work until {until}" if (until := data.pop("until", None)) else "nothing is at work"
        case EventType.WAVE_STARTED if {"number", "tasks"} <= data.keys():
            tasks = data.pop("tasks")
            words = f"wave {data.pop('number')} of {counted(len(tasks), 'task')}: {', '.join(tasks)}"
        case EventType.QUOTA_WALL if {"kind", "what", "until"} <= data.keys():
            words = _wall(data)
        case EventType.QUOTA_CLEARED:
            words = data.pop("model", None) or "the account"
        case EventType.TASK_RETRIED if "error" in data:
            words = f"attempt {data.pop('attempt', '?')} in vain, {_end(data)}"
        case EventType.RUN_COMPLETED if "census" in data:
            census = {name: count for name, count in data.pop("census").items() if count and name != "total"}
            states = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in census.items())
            words = f"{data.pop('status')}: {states}"
        case EventType.TASK_COMPLETED | EventType.TASK_FAILED | EventType.TASK_SKIPPED:
            words = _end(data)
        case _:
            words = ""
    return ", ".join(
        [*([words] if words else []), *(f"{name} {_flat(value)}" for name, value in data.items() if value)]
    )


def _wall(data: dict[str, Any]) -> str:
    """A wall: before what, of which kind, and until when nobody asks."""
    agent, model = data.pop("agent", None), data.pop("model", None)
    place = f"agent {agent}" if agent else model or "the account"
    ends = "until" if data.pop("told", False) else "asked again at"
    return f"{place}: {data.pop('kind')}, {data.pop('what')}, {ends} {data.pop('until')}"


def _end(data: dict[str, Any]) -> str:
    """The end of a task: how, why, and what it took."""
    error, tokens = data.pop("error", None), data.pop("tokens", None)
    attempts, reason = data.pop("attempts", None), data.pop("reason", None)
    size = data.pop("output_bytes", None)
    why = f"{error['type']}: {error['message']}" if error else reason
    unsettled = data.pop("unsettled", None)
    parts = [
        data.pop("status", ""),
        why or "",
        counted(attempts, "attempt") if attempts else "",
        f"{tokens['input']:,} tokens in, {tokens['output']:,} out" if tokens and any(tokens.values()) else "",
        f"up to {unsettled['output']:,} more out" if unsettled and any(unsettled.values()) else "",
        counted(size, "byte") if size else "",
    ]
    return ", ".join(part for part in parts if part)


def _flat(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(f"{name}={_flat(inner)}" for name, inner in value.items() if inner)
    if isinstance(value, list):
        return " ".join(_flat(inner) for inner in value)
    return str(value)
