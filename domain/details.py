"""A run and a task as they are now, for their pages in the Temporal Web UI."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime
from itertools import islice
from typing import TypeVar

from domain.course import Course
from domain.leaflet import update_input
from domain.markdown import MESSAGE_WIDTH, Section, clock, code, page, plural
from domain.models import ENDED_RUN, Answered, Failed, Outcome, Parked, RunStatus, Stopped, TaskStatus
from domain.progress import Census, Ended, Progress, Waiting, Wall
from domain.runs import TaskInput

T = TypeVar("T")

SHOWN = 30
"""Tasks that each part of the page names: what is at work must not push what failed out of sight."""

NOT_ANSWERED = frozenset({TaskStatus.FAILED, TaskStatus.TIMED_OUT})

WAITS_FOR = {
    "wall": "the provider to take calls again",
    "batch": "its answer, in a batch",
    "pause": "the run to be resumed",
    "worker": "a worker",
    "approval": "approval",
    "budget": "money",
    "pool": "its agent, which is at work as often as it may be",
}

CENSUS = {
    "succeeded": "succeeded",
    "failed": "failed",
    "timed_out": "timed out",
    "skipped": "skipped",
    "cancelled": "cancelled",
    "not_started": "not started",
    "running": "at work",
    "waiting": "waiting",
    "ready": "ready to start",
    "pending": "to come after other tasks",
}


def details_of(
    course: Course,
    progress: Progress,
    now: datetime,
    *,
    run: str,
    simulated: bool,
    continued: bool = False,
    bug: str | None = None,
) -> str:
    """The page of a run: how far it is, then what is at work, what waits and what failed.

    Bounded whatever the size of the plan; of the tasks that need no look it tells only how many there are.
    """
    failed = [(id, end) for id, end in progress.ended.items() if end.status in NOT_ANSWERED]
    questions = {id: wait for id, wait in progress.parked.items() if wait.why == "approval"}
    parked = {id: wait for id, wait in progress.parked.items() if wait.why != "approval"}
    asked = [_question(course, id, wait, now) for id, wait in _first(questions.items())]
    walls = [_wall(place, wall, now) for place, wall in _first(progress.barriers.items())]
    at_work = [_at_work(course, progress, id, now) for id in _first(progress.active)]
    inside = [f"{code(id)}: {_counts(census)}" for id, census in _first(course.plans(progress).items())]
    waiting = [f"{_who(course, id)} waits {_wait(wait, now)}" for id, wait in _first(parked.items())]
    broken = [f"{_who(course, id)}, {_end(end)}" for id, end in _first(failed)]
    status = RunStatus.FAILED if bug else course.status(progress)
    census = course.census(progress)
    ended = f"{len(progress.ended):,} of {plural(census.total, 'task')} ended"
    head = [
        f"**{status}** · {'SIMULATED' if simulated else 'LIVE'} · {ended} · last change {clock(now, now)}",
        _after_bug(bug) if bug else _state(course, progress, now, run),
        "",
        _counts(census),
    ]
    return page(
        head,
        [
            _section("Waits for your approval", asked, questions),
            _section("Walls", walls, progress.barriers),
            _section("Plans inside", inside, course.chart.outline.parts),
            _section("At work", at_work, progress.active),
            _section("Waiting", waiting, parked),
            _section("Failed", broken, failed),
        ],
        [*(_answering(questions) if questions else []), *([_steering(run)] if continued else [])],
    )


def work_details(input: TaskInput, now: datetime) -> str:
    """The page of a task at work."""
    used = f", {input.used:,} of them used before" if input.used else ""
    attempts = f"{plural(input.attempts, 'attempt')} of at most {input.timeout.total_seconds():g} s{used}"
    return (
        f"**RUNNING** · {code(input.agent)} is at work since {clock(now, now)}, with {attempts}. "
        "*Pending Activities* shows which one it is, and why the one before failed."
    )


def outcome_details(outcome: Outcome, now: datetime) -> str:
    """The page of a task whose work has ended."""
    match outcome:
        case Answered():
            figures = f"{outcome.spent.input:,} tokens in, {outcome.spent.output:,} out"
            return f"**SUCCEEDED** · at {clock(now, now)}, attempt {outcome.attempts}, {figures}"
        case Failed():
            kept = ". What there is of its answer is kept." if outcome.output_ref else ""
            return f"**{outcome.status}** · at {clock(now, now)}: {code(outcome.error.message, MESSAGE_WIDTH)}{kept}"
        case Parked():
            wait = Waiting(why=outcome.why, what=outcome.what, since=now, until=outcome.until)
            return f"**WAITING** · {_wait(wait, now)}. The run starts this task again."
        case Stopped():
            return f"**CANCELLED** · at {clock(now, now)}: {code(outcome.why, MESSAGE_WIDTH)}"


def _state(course: Course, progress: Progress, now: datetime, run: str) -> str:
    """What the run does now, in a sentence."""
    at_work = plural(len(progress.active), "task")
    status = course.status(progress)
    if status in ENDED_RUN:
        return f"Every task has ended. `./starter.py result {run}` shows the report."
    if progress.cancelled:
        return f"The run is being cancelled; {at_work} must stop first."
    if status is RunStatus.PAUSED:
        return f"Nothing new starts; {at_work} at work may finish. `./starter.py resume {run}` goes on."
    if progress.late:
        return f"The deadline of the run has passed; {at_work} must stop first."
    if status is RunStatus.WAITING:
        return _rest(progress, now)
    return f"{at_work} at work. `./starter.py watch {run}` shows it live in a terminal."


def _rest(progress: Progress, now: datetime) -> str:
    """Why nothing is at work, and until when that can be known."""
    times = [wait.until for wait in progress.parked.values() if wait.until is not None and wait.why != "approval"]
    times += [wall.until for wall in progress.barriers.values()]
    until = f" until {clock(min(times), now)}" if times else ""
    asked = sum(wait.why == "approval" for wait in progress.parked.values())
    people = f" {plural(asked, 'task')} wait{'s' if asked == 1 else ''} for a person." if asked else ""
    return f"Nothing is at work{until}.{people}"


def _steering(run: str) -> str:
    """What is left of the static details: Temporal does not take them along when a run continues as new."""
    return (
        f"`./starter.py pause {run}`, `resume`, `cancel`, `set`, `approve`, `reject`, `skip`, `retry` steer this run; "
        "here *Send an Update* is the same, and *Request Cancellation* is `cancel`. "
        "It has continued as new: its first history has the plan in short."
    )


def _answering(questions: Collection[str]) -> list[str]:
    """How to answer on this page."""
    example = update_input(next(iter(questions)))
    return [f"To answer: *Send an Update* named `approve` or `reject`, with the input {example}."]


def _after_bug(bug: str) -> str:
    return f"A mistake in Nightcrew itself ends this run: {code(bug, MESSAGE_WIDTH)}"


def _counts(census: Census) -> str:
    counts = census.model_dump()
    return ", ".join(f"{counts[state]:,} {words}" for state, words in CENSUS.items() if counts[state])


def _section(title: str, lines: list[str], tasks: Collection[object]) -> Section:
    return Section(f"{title} ({len(tasks):,})", lines, len(tasks))


def _who(course: Course, id: str) -> str:
    return f"{code(id)} by {code(course.task(id).agent, 40)}"


def _at_work(course: Course, progress: Progress, id: str, now: datetime) -> str:
    stopping = progress.stopping.get(id)
    words = f"{_who(course, id)}, since {clock(progress.active[id], now)}"
    return f"{words}, is being stopped: {code(stopping.why or '', MESSAGE_WIDTH)}" if stopping else words


def _question(course: Course, id: str, wait: Waiting, now: datetime) -> str:
    until = f", until {clock(wait.until, now)}" if wait.until else ""
    return f"{_who(course, id)}: {code(wait.what, MESSAGE_WIDTH)} (asked at {clock(wait.since, now)}{until})"


def _wall(place: str, wall: Wall, now: datetime) -> str:
    where = code(place) if place else "the account"
    ends = "until" if wall.told else "is asked again at"
    what = code(wall.what, MESSAGE_WIDTH)
    return f"{where}, {wall.kind}: {ends} {clock(wall.until, now)} ({what}), since {clock(wall.since, now)}"


def _wait(wait: Waiting, now: datetime) -> str:
    until = f"until {clock(wait.until, now)} " if wait.until else ""
    what = code(wait.what, MESSAGE_WIDTH)
    return f"{until}for {WAITS_FOR.get(wait.reason, wait.reason)} ({what}), since {clock(wait.since, now)}"


def _end(end: Ended) -> str:
    words = end.status.value.lower().replace("_", " ")
    return f"{words}: {code(end.why, MESSAGE_WIDTH)}" if end.why else words


def _first(items: Iterable[T]) -> Iterable[T]:
    """Those that are shown: nothing is written for the others."""
    return islice(items, SHOWN)
