"""The commands that steer a run. Heavy imports are inside: `--help` must answer at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from terminal.said import Said, do, hear, session
from terminal.words import (
    Agents,
    AnyTasks,
    Budget,
    ChangedPlan,
    Concurrency,
    DryRun,
    Home,
    Json,
    Note,
    PaceWord,
    Params,
    RunWords,
    Tasks,
    Yes,
    budget_of,
    pace_of,
    params_of,
)


def pause(run: RunWords, note: Note = None, home: Home = None, json: Json = False) -> int:
    """Start nothing new; calls at work finish."""
    return _steer("pause", run, home, as_json=json, note=note)


def resume(run: RunWords, note: Note = None, home: Home = None, json: Json = False) -> int:
    """Go on after a pause."""
    return _steer("resume", run, home, as_json=json, note=note)


def cancel(run: RunWords, home: Home = None, json: Json = False) -> int:
    """End a run: calls are cut, what has finished is kept."""
    return _steer("cancel", run, home, as_json=json)


def set_values(
    run: RunWords,
    max_concurrency: Concurrency = None,
    budget: Budget = None,
    note: Note = None,
    home: Home = None,
    json: Json = False,
) -> int:
    """Change how many tasks may be at work at once, or what the run may spend."""
    money = budget_of(budget)
    return _steer("set", run, home, as_json=json, note=note, max_concurrency=max_concurrency, budget=money)


def change(
    run: RunWords,
    plan: ChangedPlan,
    param: Params = None,
    agents: Agents = None,
    note: Note = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    home: Home = None,
    json: Json = False,
) -> int:
    """Go on with another plan: add tasks, edit or remove those that have not started. Shows what is otherwise."""
    hear(home, json)
    from terminal.changing import Wanted, change

    wanted = Wanted(plan, params_of(param), agents, note, agreed=yes, dry_run=dry_run)
    return do(change(session(), run, wanted, as_json=Said.json))


def approve(run: RunWords, tasks: Tasks, note: Note = None, home: Home = None, json: Json = False) -> int:
    """Let tasks start that wait for approval; their agents are told the note."""
    return _steer("approve", run, home, as_json=json, tasks=tasks, note=note)


def reject(run: RunWords, tasks: Tasks, note: Note = None, home: Home = None, json: Json = False) -> int:
    """Skip tasks that wait for approval, and what cannot do without them; the note is the reason."""
    return _steer("reject", run, home, as_json=json, tasks=tasks, note=note)


def skip(run: RunWords, tasks: Tasks, note: Note = None, home: Home = None, json: Json = False) -> int:
    """End tasks without doing them; one at work is stopped."""
    return _steer("skip", run, home, as_json=json, tasks=tasks, note=note)


def retry(
    run: RunWords,
    tasks: AnyTasks = None,
    note: Note = None,
    max_concurrency: Concurrency = None,
    mode: PaceWord = None,
    budget: Budget = None,
    home: Home = None,
    json: Json = False,
) -> int:
    """Do again what did not succeed, or these tasks: there while the run goes, in a new run after; prints its id."""
    shape = {"max_concurrency": max_concurrency, "pace": pace_of(mode), "budget": budget_of(budget)}
    return _steer("retry", run, home, as_json=json, tasks=tasks or [], note=note, **shape)


COMMANDS: dict[str, Callable[..., int]] = {
    "pause": pause,
    "resume": resume,
    "cancel": cancel,
    "set": set_values,
    "change": change,
    "approve": approve,
    "reject": reject,
    "skip": skip,
    "retry": retry,
}


def _steer(verb: str, run: str, home: Path | None, *, as_json: bool, **wish: Any) -> int:
    hear(home, as_json)
    from terminal.steering import Wish, steer

    return do(steer(session(), run, Wish(verb, **wish), as_json=Said.json))
