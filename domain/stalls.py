"""A run that stands still: how it is told from one that waits, why it does, and what mends it.

Temporal retries a workflow task for ever and says nothing to whoever waits: a mistake in our code, or a worker that is
gone, leaves a run RUNNING for good. A run that stands still cannot say so itself; whoever looks at it judges from what
the server has handed out and not got back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum

from domain.board import Live
from domain.models import Value
from domain.regions import region_of

STALLED_AFTER = timedelta(minutes=2)
"""Without progress for so long, a run stands still: a restart or a cut of the network is over by then."""

FAILURES = 3
"""A step that failed so often meets the same end every time. Its cause is known, and told without more patience."""

QUIET_AFTER = timedelta(seconds=30)
"""Without an event for so long, a run has its tasks at work looked at."""

TIMED_OUT = "TIMED_OUT"
"""The cause of a step that a worker took and did not come back with."""

UP, DOCTOR = "up", "doctor"
"""What mends a stall, or tells how."""

WORDS = 200
"""Letters of an error that are shown; the whole of it is in the history."""


class Cause(StrEnum):
    """Why a run stands still."""

    BUG = "bug"
    CHANGED_CODE = "changed-code"
    SLOW_CODE = "slow-code"
    TOO_LARGE = "too-large"
    TOO_MANY = "too-many"
    NO_ANSWER = "no-answer"
    NO_WORKER = "no-worker"
    NO_REGION = "no-region"
    NO_VERSION = "no-version"
    NOT_TAKEN = "not-taken"
    ACTIVITY_FAILS = "activity-fails"
    SILENCE = "silence"


class Stall(Value):
    """A run that stands still."""

    task: str | None
    """The task at which it does; none when it is the run itself."""
    cause: Cause
    what: str
    """The cause in a sentence, with the words of the server."""
    since: datetime
    do: str
    """The command that mends it, or tells how."""
    queue: str | None = None
    """The queue that somebody should work on, where nobody does."""

    @property
    def sentence(self) -> str:
        """The cause, and what to do about it."""
        return f"Stalled: {self.what} The command `{self.do}` {'mends it' if self.do == UP else 'tells what mends it'}."


class NextStep(Value):
    """The next step of a workflow, handed out or waiting to be: what Temporal calls a workflow task."""

    attempt: int
    scheduled: datetime
    """This attempt."""
    started: bool

    def is_suspect(self, now: datetime) -> bool:
        """Whether to ask further: a step is taken at once, and at the first attempt."""
        return self.attempt > 1 or now - self.scheduled >= STALLED_AFTER


class Failure(Value):
    """How a step failed: what the server calls it, and what the worker said."""

    cause: str
    message: str
    at: datetime
    """The first time."""


class Errand(Value):
    """An activity that a workflow waits for."""

    name: str
    queue: str
    attempt: int
    scheduled: datetime
    """This attempt; ahead when it is still to come."""
    since: datetime
    """The first attempt, as far as is known."""
    started: bool
    lost: datetime | None = None
    """When the worker was last heard of that had the attempt before, if it was lost with it."""
    beats: bool = False
    """Whether it has been heard of in this attempt: then it is well, whatever became of those before."""
    endless: bool = False
    """Whether it is tried until it succeeds."""
    error: str | None = None

    def is_suspect(self, now: datetime) -> bool:
        """Whether to ask further."""
        return self.is_untaken(now) or self.keeps_failing

    @property
    def idle_since(self) -> datetime:
        """Since when nobody has worked on it. That a worker is lost is found out later than it happens."""
        return self.scheduled if self.lost is None else min(self.lost, self.scheduled)

    def is_untaken(self, now: datetime) -> bool:
        """Whether nobody has taken this attempt."""
        return not self.started and now >= self.scheduled and now - self.idle_since >= STALLED_AFTER

    @property
    def keeps_failing(self) -> bool:
        """Whether it fails again and again, and nothing but its success would end it."""
        return self.endless and self.error is not None and self.attempt > FAILURES and not self.beats


class Workers(Value):
    """Who polls a queue, in the eyes of a workflow that may be pinned to a version."""

    queue: str
    polling: tuple[str | None, ...] = ()
    """Of each worker its version, or none."""
    pinned: str | None = None
    """The version of the workflow."""

    @property
    def able(self) -> int:
        """How many may take its work."""
        return len(self.polling) if self.pinned is None else self.polling.count(self.pinned)


def telling(failures: Sequence[Failure]) -> Failure | None:
    """Of the failures of one step, the latest first, the one that says most, since the first of them.

    A worker may tell a mistake once and then let the time of each attempt run out: its word says more than that.
    """
    told = [failure for failure in failures if failure.cause != TIMED_OUT] or failures
    return told[0].model_copy(update={"at": failures[-1].at}) if told else None


def silent_tasks(at_work: Mapping[str, Live | None], moved: datetime | None, now: datetime) -> tuple[str, ...]:
    """The tasks at work when none of them gets on: nothing has happened for a while, and no worker says a word."""
    if moved is not None and now - moved < QUIET_AFTER:
        return ()
    if any(live is not None and not live.silent(now) for live in at_work.values()):
        return ()
    return tuple(at_work)


def stall_of_step(
    task: str | None, step: NextStep, failure: Failure | None, workers: Workers, now: datetime
) -> Stall | None:
    """Why the next step of the run, or of one of its tasks, does not come about."""
    untaken = not step.started and now - step.scheduled >= STALLED_AFTER
    if untaken and not workers.able:
        return _without_worker(task, workers, since=step.scheduled)
    failed = step.attempt - 1
    if failure is not None and failed and (failed >= FAILURES or now - failure.at >= STALLED_AFTER):
        return _failing(task, failure)
    if untaken:
        what = f"{_who(task, first=True)} has a step to do, and no worker on the queue {workers.queue} takes it."
        return Stall(task=task, cause=Cause.NOT_TAKEN, what=what, since=step.scheduled, do=DOCTOR)
    return None


def stall_of_errand(task: str | None, errand: Errand, workers: Workers, now: datetime) -> Stall | None:
    """Why an activity that the run or one of its tasks waits for does not come to an end.

    One that nobody takes although there are workers is none: they have enough to do.
    """
    if errand.is_untaken(now) and not workers.able:
        return _without_worker(task, workers, since=errand.idle_since)
    if errand.keeps_failing and now - errand.since >= STALLED_AFTER:
        what = f"{_who(task, first=True)} waits for {errand.name}, which fails again and again: {errand.error}"
        return Stall(task=task, cause=Cause.ACTIVITY_FAILS, what=ended(what), since=errand.since, do=DOCTOR)
    return None


def stall_of_silence(moved: datetime | None, now: datetime) -> Stall | None:
    """A run that could go on, waits for nothing, and has nothing handed out: a mistake of ours that nobody names."""
    if moved is None or now - moved < STALLED_AFTER:
        return None
    what = "The run could go on and does not; Temporal waits for nobody, and names no cause."
    return Stall(task=None, cause=Cause.SILENCE, what=what, since=moved, do=DOCTOR)


def first_line(text: str) -> str:
    """The first line of an error, without what a terminal would take for an order, cut to what a person reads."""
    line = next((line for line in text.splitlines() if line.strip()), "")
    clean = " ".join("".join(letter if letter.isprintable() else " " for letter in line).split())
    return clean if len(clean) <= WORDS else f"{clean[: WORDS - 1].rstrip()}…"


def ended(sentence: str) -> str:
    """The sentence with its full stop."""
    return sentence if sentence.endswith((".", "!", "?", "…")) else f"{sentence}."


SAID = {
    Cause.BUG: "breaks off in our code",
    Cause.CHANGED_CODE: "cannot go on with the code of its worker, which is not the code it began with",
    Cause.SLOW_CODE: "takes too long over one step in our code",
    Cause.TOO_LARGE: "has more to hand over at once than Temporal takes",
    Cause.TOO_MANY: "has more open at once than Temporal allows",
    Cause.NO_ANSWER: "gets no answer from the worker that takes its next step",
}


def cause_of(failure: Failure) -> Cause:
    """What the server's word for a failed step means."""
    if "TMPRL1101" in failure.message:
        return Cause.SLOW_CODE
    match failure.cause:
        case "NON_DETERMINISTIC_ERROR":
            return Cause.CHANGED_CODE
        case name if name == TIMED_OUT:
            return Cause.NO_ANSWER
        case name if name.endswith("_TOO_LARGE"):
            return Cause.TOO_LARGE
        case name if name.endswith("_LIMIT_EXCEEDED"):
            return Cause.TOO_MANY
    return Cause.BUG


def _failing(task: str | None, failure: Failure) -> Stall:
    cause = cause_of(failure)
    words = f": {failure.message}" if failure.message else ""
    what = f"{_who(task, first=True)} {SAID[cause]}, again and again ({failure.cause}{words})."
    return Stall(task=task, cause=cause, what=what, since=failure.at, do=DOCTOR)


def _without_worker(task: str | None, workers: Workers, since: datetime) -> Stall:
    if not workers.polling and (region := region_of(workers.queue)) is not None:
        what = f"No worker of the region {region} is on the queue {workers.queue}: {_who(task)} waits for one."
        return Stall(task=task, cause=Cause.NO_REGION, what=what, since=since, do=DOCTOR, queue=workers.queue)
    if not workers.polling:
        what = f"No worker is on the queue {workers.queue}: {_who(task)} waits for one."
        return Stall(task=task, cause=Cause.NO_WORKER, what=what, since=since, do=UP)
    what = f"No worker of the version {workers.pinned} is on the queue {workers.queue}: {_who(task)} waits for one."
    return Stall(task=task, cause=Cause.NO_VERSION, what=what, since=since, do=DOCTOR)


def _who(task: str | None, *, first: bool = False) -> str:
    the = "The" if first else "the"
    return f"{the} run" if task is None else f"{the} task {task!r}"
