"""The invariants of docs/proof.md, each as a function that finds where it is broken."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from math import inf
from pathlib import Path

from proof.evidence import LAST_WORDS, Call, Case, Run
from proof.trails import the_trail_is_whole

CLOSED_AS = {"FAILED": "FAILED", "CANCELLED": "CANCELED"}
"""How the workflow of a run is closed that ended so; any other end is a completion."""

RUNS_AFTER = {
    "require": {"SUCCEEDED"},
    "tolerate": {"SUCCEEDED", "TIMED_OUT"},
    "optional": {"SUCCEEDED", "TIMED_OUT", "FAILED", "SKIPPED", "CANCELLED"},
}
"""After which ends of a need its dependant may run, by the policy of the edge."""

KEEPING = 10.0
"""Seconds that may pass between the end of a call at the provider and its answer in the ledger, on a machine that has
much else to do. Where the ledger has the answer, the time of that counts."""

STALLED_AFTER, LEEWAY = 120.0, 5.0
"""Seconds of silence after which a reader must be told, and what a look itself may take."""

PRICES = {"claude-haiku-4-5": {"input": "1", "output": "5", "cache_read": "0.1", "cache_write": "1.25"}}
"""US dollars for a million tokens: of the models that the reference plans use."""


@dataclass(frozen=True)
class Violation:
    """An invariant that does not hold: where, and what was seen."""

    invariant: str
    run: str | None
    what: str


Found = Iterator[tuple[Run | None, str]]


def ended_once(case: Case) -> Found:
    """V1: every acknowledged run reaches exactly one terminal state; none is lost."""
    for run in case.runs:
        ends = run.told("run.completed")
        if not run.events:
            yield run, "was acknowledged, and has no events"
        elif not ends or run.end is None or run.closed is None:
            yield run, f"has not ended: {len(ends)} run.completed, end {run.end is not None}, workflow {run.closed}"
        elif len(ends) > 1 or run.events[-1] is not ends[0]:
            yield run, f"goes on after its end: {len(ends)} run.completed, the last event is {run.events[-1].type}"
        elif run.end["status"] != ends[0].data["status"]:
            yield run, f"ended {ends[0].data['status']} in its log and {run.end['status']} in its end"
        elif run.closed != CLOSED_AS.get(run.end["status"], "COMPLETED"):
            yield run, f"ended {run.end['status']}, and its workflow was closed as {run.closed}"


def one_last_word(case: Case) -> Found:
    """V2: every task has exactly one terminal record in the event log, and the log has no gap."""
    for run in case.runs:
        words = Counter(event.task for event in run.told(*LAST_WORDS))
        for task in run.tasks:
            if words[task] != 1:
                yield run, f"task {task} has {words[task]} terminal records"
        if [event.number for event in run.events] != [*range(1, len(run.events) + 1)]:
            yield run, "the numbers of its events have a gap, or are not in order"


def needs_come_first(case: Case) -> Found:
    """V3: no task starts before each of its needs has ended, against the policy of an edge or short of its quorum."""
    for run in case.runs:
        ends = run.ends()
        for id, task in run.tasks.items():
            starts = [event.number for event in run.told("task.started") if event.task == id]
            calls = [call.started for call in run.calls_of(id)]
            if not starts and not calls:
                continue
            if calls and not starts:
                yield run, f"task {id} was called for and never started"
            for need in task["needs"]:
                end, answered = ends.get(need["task"]), [call.ended for call in run.calls_of(need["task"])]
                if end is None or (starts and end.number > starts[0]):
                    yield run, f"task {id} started before {need['task']} had ended"
                elif end.data["status"] not in RUNS_AFTER[need["policy"]]:
                    yield run, f"task {id} started though {need['task']} ended {end.data['status']}"
                elif calls and answered and min(calls) < min(answered):
                    yield run, f"task {id} was called for before the call of {need['task']} had ended"
            good = [need for need in task["needs"] if need["policy"] == "optional" and _succeeded(run, need["task"])]
            if len(good) < (task["quorum"] or 0):
                yield run, f"task {id} started with {len(good)} of a quorum of {task['quorum']}"


def places_are_kept(case: Case) -> Found:
    """V4: tasks in flight never exceed max_concurrency, measured at the provider."""
    for run in case.runs:
        starts = [call.started for call in run.calls]
        at_once = ({call.task for call in run.calls if call.started <= now < call.ended} for now in starts)
        most = max((len(tasks) for tasks in at_once), default=0)
        if most > run.plan["max_concurrency"]:
            yield run, f"{most} tasks were in flight, and {run.plan['max_concurrency']} may be"


def paid_once(case: Case) -> Found:
    """V5: paid calls are at most the logical calls and those that were in flight when a worker was lost."""
    for run in case.runs:
        for task in run.tasks:
            paid = sorted((call for call in run.calls_of(task) if call.paid), key=lambda call: call.started)
            for before, call in pairwise(paid):
                if before.fault is None and not _was_lost(case, run, before):
                    since = call.started - before.ended
                    yield run, f"task {task} was paid for again {since:.1f} s after a call that no fault had hit"


def within_the_budget(case: Case) -> Found:
    """V6: spend is at most the cap."""
    for run in case.runs:
        if run.plan["budget"] is not None and (spent := _spent(run)) > Decimal(run.plan["budget"]):
            yield run, f"spent {spent} of a budget of {run.plan['budget']}"


def what_was_told_was_handed_on(case: Case) -> Found:
    """V7: the hash of the stored output is the one in the event log, and the one that was given to dependants."""
    for run in case.runs:
        for event in run.told("task.completed"):
            for name in "output_ref", "summary_ref":
                ref = event.data.get(name)
                content = case.artifact(ref) if ref else b""
                if content is None:
                    yield run, f"the {name} of task {event.task} is not in the store"
                elif ref and f"sha256:{hashlib.sha256(content).hexdigest()}" != ref:
                    yield run, f"the {name} of task {event.task} is not the hash of what is stored"
        for id, task in run.tasks.items():
            due = sorted(filter(None, (_handed(run, need) for need in task["needs"])))
            for call in run.calls_of(id):
                if sorted(call.documents) != due:
                    yield run, f"task {id} was given other results than those of its needs"


def stalls_are_told(case: Case) -> Found:
    """V9: anything that does not get on is reported as such within two minutes."""
    for look in case.looks:
        run = case.run(look.run)
        heard = [event.time for event in run.events if event.time <= look.at]
        heard += [min(call.ended, look.at) for call in run.calls if call.started <= look.at]
        over = any(event.time <= look.at for event in run.told("run.completed"))
        silent = look.at - max(heard, default=0.0)
        if not over and silent > STALLED_AFTER + LEEWAY and look.said == "RUNNING":
            yield run, f"nothing had happened for {silent:.0f} s, and a reader was told {look.said}"


def no_canary_got_out(case: Case) -> Found:
    """V10: canary secrets appear nowhere: database, logs, events, ledger, bill, files of services."""
    files = [*_files(case.home), *_files(case.store), *_files(case.bill.parent)]
    for file in dict.fromkeys(files):
        try:
            content = file.read_bytes()
        except FileNotFoundError:
            continue  # what a worker says of tasks at work is removed when they have ended
        for canary in case.canaries:
            allowed = canary.in_artifacts and file.is_relative_to(case.store / "artifacts")
            if not allowed and canary.word.encode() in content:
                yield None, f"{canary.word!r} is in {file.name}"


def something_was_done(case: Case) -> Found:
    """V11: at least so many operations succeeded, and some after the first fault; else the pass is empty."""
    done = [event for run in case.runs for event in run.told("task.completed")]
    first = min((fault.began for fault in case.faults), default=0.0)
    if len(done) < case.least:
        yield None, f"{len(done)} tasks have succeeded, and {case.least} were to"
    elif case.least and not any(event.time > first for event in done):
        yield None, "no task has succeeded after the first fault"


INVARIANTS: dict[str, Callable[[Case], Found]] = {
    "V1": ended_once,
    "V2": one_last_word,
    "V3": needs_come_first,
    "V4": places_are_kept,
    "V5": paid_once,
    "V6": within_the_budget,
    "V7": what_was_told_was_handed_on,
    "V8": the_trail_is_whole,
    "V9": stalls_are_told,
    "V10": no_canary_got_out,
    "V11": something_was_done,
}


def violations(case: Case) -> list[Violation]:
    """Every place where an invariant is broken."""
    return [
        Violation(name, run.id if run else None, what)
        for name, broken in INVARIANTS.items()
        for run, what in broken(case)
    ]


def _succeeded(run: Run, task: str) -> bool:
    end = run.ends().get(task)
    return end is not None and end.data["status"] == "SUCCEEDED"


def _was_lost(case: Case, run: Run, call: Call) -> bool:
    """Whether a worker was lost while it made this call: from its start until its answer was kept."""
    kept = run.kept.get(call.task, 0.0)
    done = min(kept if kept >= call.started else inf, call.ended + KEEPING)
    return any(fault.loses_calls and call.started <= fault.over and fault.began <= done for fault in case.faults)


def _spent(run: Run) -> Decimal:
    """What the provider charges for a run."""
    million = Decimal(1_000_000)
    parts = ((Decimal(PRICES[call.model][kind]), count) for call in run.calls for kind, count in call.billed.items())
    return sum((price * count / million for price, count in parts), Decimal(0))


def _handed(run: Run, need: dict[str, str]) -> str | None:
    """The hash of what a dependant is to be given of a need, if there is something."""
    end = run.ends().get(need["task"])
    if end is None or end.data["status"] != "SUCCEEDED":
        return None
    ref = end.data["summary_ref" if need.get("form") == "summary" else "output_ref"]
    return str(ref).removeprefix("sha256:")


def _files(folder: Path) -> list[Path]:
    return [file for file in sorted(folder.rglob("*")) if file.is_file() and not file.is_symlink()]
