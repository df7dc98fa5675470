"""What a person should look at, and what to do about it: a stall, questions, walls that must be mended, failures."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from itertools import islice

from domain.barriers import ACCOUNT
from domain.consent import dollars
from domain.events import timestamp
from domain.fold import Fold, TaskPicture
from domain.models import RunStatus, TaskStatus
from domain.progress import Wall
from domain.purse import TOO_DEAR
from domain.refusals import REFUSED
from domain.report import Attention
from domain.waits import stamp

ENDED_WELL = frozenset({RunStatus.COMPLETED, RunStatus.CANCELLED})
"""Ends that ask nothing of anybody: a person has ended a cancelled run."""

MENTIONED = 5
"""What a run in a list asks attention for at most: the rest is in its report."""

FAILURES = 100
"""Failures that ask attention at most: a watcher looks twice a second, and each of them is in the report anyway."""

BROKEN = (TaskStatus.FAILED, TaskStatus.TIMED_OUT)


def attention_of(run: Fold) -> tuple[Attention, ...]:
    """The most pressing first: while the run goes, what holds all of it up before what holds up one task."""
    if not run.ended:
        return (*_stall(run), *_walls(run), *_money(run), *_approvals(run), *_failures(run, "retry"))
    if run.status in ENDED_WELL:
        return ()
    found = (*_used_up(run), *_failures(run, "status"))
    whole = Attention(kind="failure", task=None, since=stamp(run.finished), do=f"result {run.run}")
    return found or (whole,)


def command(verb: str, run: str, task: str) -> str:
    """What to type after `./starter.py`, as a shell takes it."""
    return f"{verb} {run} {shlex.quote(task)}"


def _stall(run: Fold) -> Iterator[Attention]:
    """Why the run stands still."""
    if (stall := run.stall) is not None:
        yield Attention(kind="stall", task=stall.task, since=timestamp(stall.since), do=stall.do, what=stall.what)


def _approvals(run: Fold) -> Iterator[Attention]:
    """Every question that waits for an answer."""
    for id in run.of(TaskStatus.WAITING):
        wait = run.tasks[id].wait
        if wait is not None and wait.reason == "approval":
            do = command("approve", run.run, id)
            yield Attention(kind="approval", task=id, since=wait.since, do=do, what=wait.what)


def _walls(run: Fold) -> Iterator[Attention]:
    """Walls that stand until somebody has mended something."""
    for place, wall in run.walls.items():
        remedy = _remedy(place, wall)
        if remedy is not None:
            yield Attention(
                kind="budget" if wall.kind == "spend" else "key",
                task=None,
                since=timestamp(wall.since),
                do=f"{remedy}, then retry {run.run}",
                what=wall.what,
            )


def _money(run: Fold) -> Iterator[Attention]:
    """A run that does nothing but wait for a larger budget."""
    waiting = {id: run.tasks[id].wait for id in run.of(TaskStatus.WAITING)}
    short = [id for id, wait in waiting.items() if wait and wait.reason == "budget" and not wait.until]
    if short and not run.of(TaskStatus.RUNNING):
        wait = run.tasks[short[0]].wait
        yield Attention(
            kind="budget",
            task=short[0],
            since=wait.since if wait else None,
            do=f"set {run.run} --budget USD",
            what=wait.what if wait else None,
        )


def _used_up(run: Fold) -> Iterator[Attention]:
    """A run that has ended because its money does not reach: a retry with the same budget would end as it did."""
    if run.status is RunStatus.BUDGET_STOPPED:
        dear = next((task for id in run.of(TaskStatus.FAILED) if _is_too_dear(task := run.tasks[id])), None)
        left = f"the budget of {dollars(run.budget)} does not cover what is left" if run.budget is not None else None
        yield Attention(
            kind="budget",
            task=None,
            since=stamp(run.finished),
            do=f"retry {run.run} --budget USD",
            what=dear.error.message if dear is not None and dear.error is not None else left,
        )


def _is_too_dear(task: TaskPicture) -> bool:
    return task.error is not None and task.error.type == TOO_DEAR


def _remedy(place: str, wall: Wall) -> str | None:
    match wall.kind:
        case "key":
            return "set a key that is accepted, then up"
        case "spend":
            return "raise the spend limit at the provider"
        case "disk":
            return "make room on the disk of the store"
        case "model":
            return f"find out from the provider what became of {'its models' if place == ACCOUNT else place}"
        case _:
            return None


def _failures(run: Fold, verb: str) -> Iterator[Attention]:
    """The tasks that failed themselves, not those skipped because of them, in the order in which they failed."""
    for id in islice((id for status in BROKEN for id in run.of(status)), FAILURES):
        task = run.tasks[id]
        what = task.error.message if task.error else None
        if run.status is RunStatus.BUDGET_STOPPED and _is_too_dear(task):
            continue  # that is why the run has ended, and told as such
        regained = _regain(run, id)
        yield Attention(
            kind="failure" if regained is None else "right",
            task=id,
            since=stamp(task.ended),
            do=regained or command(verb, run.run, id),
            what=what,
        )


def _regain(run: Fold, id: str) -> str | None:
    """What gives a task back the rights that it failed for, and has it done."""
    task = run.tasks[id]
    if task.error is None or task.error.type != REFUSED:
        return None
    commands = list(dict.fromkeys(refused.command for refused in task.refused))
    if not commands or None in commands:
        return None  # no command helps: its definition must be changed
    return f"{', '.join(filter(None, commands))}, then {command('retry', run.run, id)}"
