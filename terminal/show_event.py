"""An event as a line that a person can read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from domain.event_filter import of_type
from domain.events import Event, EventType
from domain.problems import did_you_mean
from domain.refusals import Refusal as RightRefused
from terminal.outcome import Exit, Refusal
from terminal.text import counted, one_line, plain


def event_types(patterns: Sequence[str]) -> tuple[str, ...]:
    """The types that are asked for, as names or patterns. One that fits none that there is would wait for ever."""
    known = [type.value for type in EventType]
    for pattern in patterns:
        if not any(of_type(name, pattern) for name in known):
            hint = did_you_mean(pattern, known)
            there = f"There are {', '.join(known)}; task. and *.completed stand for several."
            message = f"--type {pattern!r} is no type of event{f': {hint}' if hint else '.'} {there}"
            raise Refusal(message, code="usage", exit=Exit.WRONG)
    return tuple(patterns)


def event_line(event: Event, run: str | None = None) -> str:
    """Local time, the run where there are several, number if any, type, task, and what is known in words."""
    local = event.time.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    words = one_line(_words(event), 300)
    whose = f"  {plain(run)}" if run else ""
    return f"{local}{whose}  {event.number or '':>5}  {event.type:16} {plain(event.task or ''):24} {words}".rstrip()


def _words(event: Event) -> str:
    """What is told in words, then whatever else the event carries."""
    data: dict[str, Any] = dict(event.data)
    words = _OF.get(event.type.partition(".")[0], _of_run)(event.type, data)
    return ", ".join(
        [*([words] if words else []), *(f"{name} {_flat(value)}" for name, value in data.items() if value)]
    )


def _of_run(type: str, data: dict[str, Any]) -> str:  # noqa: PLR0911  one for each kind
    match type:
        case EventType.RUN_STARTED if {"tasks", "max_concurrency"} <= data.keys():
            waves = " in waves" if data.pop("mode", None) == "waves" else ""
            return f"{counted(data.pop('tasks'), 'task')}, {data.pop('max_concurrency')} at once{waves}"
        case EventType.RUN_WAITING:
            return f"nothing is at work until {until}" if (until := data.pop("until", None)) else "nothing is at work"
        case EventType.WAVE_STARTED if {"number", "tasks"} <= data.keys():
            tasks = data.pop("tasks")
            return f"wave {data.pop('number')} of {counted(len(tasks), 'task')}: {', '.join(tasks)}"
        case EventType.QUOTA_WALL if {"kind", "what", "until"} <= data.keys():
            return _wall(data)
        case EventType.QUOTA_CLEARED:
            return str(data.pop("model", None) or "the account")
        case EventType.BUDGET_LOW | EventType.BUDGET_STOPPED if {"budget_usd", "spent_usd"} <= data.keys():
            return f"${data.pop('spent_usd')} of ${data.pop('budget_usd')} spent"
        case EventType.RUN_COMPLETED if "census" in data:
            census = {name: count for name, count in data.pop("census").items() if count and name != "total"}
            states = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in census.items())
            return f"{data.pop('status')}: {states}"
    return ""


def _of_task(type: str, data: dict[str, Any]) -> str:
    match type:
        case EventType.TASK_STARTED if "reserved_usd" in data:
            return f"${data.pop('reserved_usd')} set aside"
        case EventType.TASK_WAITING if "for" in data:
            until = data.pop("until", None)
            return f"{data.pop('for')}: {data.pop('what', '')}{f', until {until}' if until else ''}"
        case EventType.TASK_RETRIED if "error" in data:
            return f"attempt {data.pop('attempt', '?')} in vain, {_end(data)}"
        case EventType.TASK_COMPLETED | EventType.TASK_FAILED | EventType.TASK_SKIPPED | EventType.TASK_SETTLED:
            return _end(data)
    return ""


def _of_right(_: str, data: dict[str, Any]) -> str:
    if not {"agent", "right", "thing"} <= data.keys():
        return ""
    refused = RightRefused.model_validate(data)
    data.clear()
    return refused.sentence


def _of_call(_: str, data: dict[str, Any]) -> str:
    """A call: who asked whom, what came of it, what it took; then the hashes."""
    if "model" not in data:
        return ""
    who, attempt = data.pop("agent", None), data.pop("attempt", 1)
    step, request = data.pop("step", 1), data.pop("request", 1)
    error, tokens, unsettled = data.pop("error", None), data.pop("tokens", None) or {}, data.pop("unsettled", None)
    cost, most = data.pop("cost_usd", None), data.pop("unsettled_usd", None)
    data.pop("at", None)
    parts = [
        f"{who or 'somebody'} asked {data.pop('model')}",
        error or "answered",
        f"step {step}" if step > 1 else "",
        f"attempt {attempt}" if attempt > 1 else "",
        f"request {request}" if request > 1 else "",
        f"{tokens.get('input', 0):,} tokens in, {tokens.get('output', 0):,} out" if any(tokens.values()) else "",
        f"${cost}" if cost else "",
        f"up to ${most} more" if most else f"up to {unsettled['output']:,} more out" if unsettled else "",
    ]
    return ", ".join(part for part in parts if part)


def _of_review(_: str, data: dict[str, Any]) -> str:
    if not {"by", "accepted", "try"} <= data.keys():
        return ""
    said = "accepted" if data.pop("accepted") else "did not accept"
    return f"{data.pop('by')} {said} answer {data.pop('try')}"


_OF = {"call": _of_call, "review": _of_review, "right": _of_right, "task": _of_task}


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
    size, aside = data.pop("output_bytes", None), data.pop("aside", None)
    summary = data.pop("summary_bytes", None)
    if data.get("summary_ref") == data.get("output_ref"):  # a short text is its own
        summary = None
        data.pop("summary_ref", None)
    why = f"{error['type']}: {error['message']}" if error else reason
    unsettled = data.pop("unsettled", None)
    parts = [
        data.pop("status", ""),
        why or "",
        counted(attempts, "attempt") if attempts else "",
        f"{tokens['input']:,} tokens in, {tokens['output']:,} out" if tokens and any(tokens.values()) else "",
        f"up to {unsettled['output']:,} more out" if unsettled and any(unsettled.values()) else "",
        counted(size, "byte") if size else "",
        f"summed up in {summary:,}" if summary else "",
        f"{counted(len(aside), 'call')} beside it" if aside else "",
    ]
    return ", ".join(part for part in parts if part)


def _flat(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(f"{name}={_flat(inner)}" for name, inner in value.items() if inner)
    if isinstance(value, list):
        return " ".join(_flat(inner) for inner in value)
    return str(value)
