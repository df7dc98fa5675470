"""The words of the command line: its arguments and options, and how what is typed is read."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated

import typer

from domain.durations import duration
from domain.models import Pace
from domain.problems import Mistake, did_you_mean
from domain.regions import checked
from terminal import completing
from terminal.outcome import Exit, Refusal

AMOUNT = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6})?")

Home = Annotated[Path | None, typer.Option("--home", metavar="DIR", help="The home folder.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", metavar="", help="One JSON document on stdout.")]
Debug = Annotated[bool, typer.Option("--debug", metavar="", help="Show tracebacks.")]
RunWords = Annotated[
    str, typer.Argument(metavar="RUN", help="An id, a unique prefix, or 'latest'.", autocompletion=completing.runs)
]
ChangedPlan = Annotated[str, typer.Argument(metavar="PLAN", help="The whole plan as it should be now, or - for stdin.")]
PlanFile = Annotated[
    str | None, typer.Argument(metavar="[PLAN]", help="A plan file, or - for standard input.", show_default=False)
]
PlaybookName = Annotated[
    str | None,
    typer.Option(
        "--playbook",
        metavar="NAME",
        help="A playbook in place of a plan: ./starter.py playbooks shows them.",
        autocompletion=completing.playbooks,
    ),
]
GoalText = Annotated[
    str | None,
    typer.Option(
        "--goal", metavar="TEXT", help="What you want, in place of a plan: a planner makes it. - for standard input."
    ),
]
MaxTasks = Annotated[
    int | None,
    typer.Option(
        "--max-tasks", metavar="N", min=1, max=1_000, help="Tasks that the plan of a goal may have; 50 if not said."
    ),
]
TaskId = Annotated[str | None, typer.Argument(metavar="[TASK]", help="One task of it.")]
Tasks = Annotated[
    list[str],
    typer.Argument(
        metavar="TASK", help="Tasks of it; the name of a for_each stands for all.", autocompletion=completing.tasks
    ),
]
AnyTasks = Annotated[
    list[str] | None,
    typer.Argument(metavar="[TASK]", help="Without any: all that did not succeed.", autocompletion=completing.tasks),
]
Note = Annotated[str | None, typer.Option("--note", metavar="TEXT", help="Why; kept with the change.")]
Params = Annotated[list[str] | None, typer.Option("--param", metavar="K=V", help="A parameter of the plan.")]
Agents = Annotated[Path | None, typer.Option("--agents", metavar="FILE", help="Another agents.yaml.")]
Concurrency = Annotated[
    int | None, typer.Option("--max-concurrency", metavar="N", min=1, max=500, help="Tasks at work at once.")
]
PaceWord = Annotated[
    str | None, typer.Option("--mode", metavar="window|waves", help="How places are filled: one by one, or in waves.")
]
Simulate = Annotated[
    bool, typer.Option("--simulate", metavar="", help="Use the simulator even when there are credentials.")
]
Anyway = Annotated[
    bool, typer.Option("--anyway", metavar="", help="Start changed code or another server though open runs may stall.")
]
Foreground = Annotated[
    bool, typer.Option("--foreground", metavar="", help="Stay, and bring the home down at the end: for systemd.")
]
Script = Annotated[
    Path | None, typer.Option("--script", metavar="FILE", help="What the simulator does to this plan's requests.")
]
Budget = Annotated[str | None, typer.Option("--budget", metavar="USD", help="What it may cost at most.")]
Region = Annotated[
    str | None, typer.Option("--region", metavar="NAME", help="Only workers of this region do anything for it.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", metavar="", help="Show what would change, and change nothing.")]
Yes = Annotated[bool, typer.Option("--yes", metavar="", help="Start, whatever it will likely cost.")]
Limit = Annotated[str | None, typer.Option("--timeout", metavar="30m", help="Stop waiting, not the run.")]
Reuse = Annotated[
    str | None,
    typer.Option(
        "--reuse",
        metavar="RUN",
        help="Take over what that run has done and is unchanged.",
        autocompletion=completing.runs,
    ),
]
Only = Annotated[
    list[str] | None, typer.Option("--only", metavar="TASK", help="Only this task and what it needs. May be repeated.")
]
RunId = Annotated[str | None, typer.Option("--id", metavar="ID", help="The run's id. Same id, same plan: same run.")]


def params_of(given: list[str] | None) -> dict[str, str]:
    """Parameters of a plan, by name."""
    params = {}
    for pair in given or []:
        name, sign, value = pair.partition("=")
        if not sign or not name:
            raise Refusal(f"--param {pair!r}: write it as name=value.", code="usage", exit=Exit.WRONG)
        params[name] = value
    return params


def pace_of(word: str | None) -> Pace | None:
    """How places are filled."""
    if word is None:
        return None
    paces = [pace.value for pace in Pace]
    if word in paces:
        return Pace(word)
    hint = did_you_mean(word, paces)
    message = f"--mode {word!r} must be {' or '.join(paces)}{f' ({hint})' if hint else ''}."
    raise Refusal(message, code="usage", exit=Exit.WRONG)


def region_word(text: str | None) -> str | None:
    """The name of a region."""
    try:
        return checked(text) if text is not None else None
    except Mistake as mistake:
        raise Refusal(f"--region {text!r} {mistake}.", code="usage", exit=Exit.WRONG) from None


def budget_of(text: str | None) -> Decimal | None:
    """An amount of US dollars."""
    if text is None:
        return None
    if not AMOUNT.fullmatch(text) or not Decimal(text):
        message = f"--budget {text!r} must be an amount of US dollars above nothing, such as 0.50 or 20."
        raise Refusal(message, code="usage", exit=Exit.WRONG)
    return Decimal(text)


def limit_of(text: str | None) -> timedelta | None:
    """How long to wait."""
    if text is None:
        return None
    try:
        return duration(text)
    except ValueError as error:
        raise Refusal(f"--timeout {text!r} {error}.", code="usage", exit=Exit.WRONG) from None


def age_of(text: str) -> timedelta:
    """How old something must be."""
    try:
        return duration(text)
    except ValueError as error:
        raise Refusal(f"--older-than {text!r} {error}.", code="usage", exit=Exit.WRONG) from None


def time_of(text: str | None) -> datetime | None:
    """A time, or a duration back from now."""
    if text is None:
        return None
    try:
        return datetime.now(UTC) - duration(text)
    except ValueError:
        pass
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        message = f"--since {text!r} must be a duration such as 2h, or a time such as 2026-01-31T20:00:00Z."
        raise Refusal(message, code="usage", exit=Exit.WRONG) from None
    return time if time.tzinfo else time.astimezone()
