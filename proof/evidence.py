"""What the checker looks at, read from plain files: the bill, the event logs, the store, and a note of what was done.

Nothing here is shared with the code that wrote them, but for the shape of the files.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

LAST_WORDS = {"task.completed", "task.failed", "task.skipped"}


@dataclass(frozen=True)
class Event:
    """One line of an event log."""

    number: int
    type: str
    task: str | None
    time: float
    data: dict[str, Any]


@dataclass(frozen=True)
class Call:
    """One line of the bill."""

    user: str | None
    task: str
    started: float
    ended: float
    status: int | None
    fault: str | None
    model: str
    billed: dict[str, int]
    documents: tuple[str, ...]

    @property
    def paid(self) -> bool:
        """Whether it cost anything."""
        return any(self.billed.values())


@dataclass(frozen=True)
class Fault:
    """Something that was done to the processes: when it began, and when nothing more could come of it."""

    kind: str
    began: float
    over: float
    loses_calls: bool
    """Whether the worker was lost, and with it what it was doing: only then may a call be made again."""


@dataclass(frozen=True)
class Look:
    """What a reader was told of a run: at which time by its own clock, and in which state it is."""

    run: str
    at: float
    said: str


@dataclass(frozen=True)
class Canary:
    """A word that must not be found anywhere but where it belongs."""

    word: str
    in_artifacts: bool
    """Whether it is text of a plan: then the contents of the store are where it belongs."""


@dataclass(frozen=True)
class Run:
    """Everything there is of one run that was acknowledged."""

    id: str
    again: str
    """The command that does to another run what was done to this one."""
    closed: str | None
    """How its workflow was closed; None when it was not."""
    plan: dict[str, Any]
    events: tuple[Event, ...]
    end: dict[str, Any] | None
    calls: tuple[Call, ...]
    kept: dict[str, float]
    """When the answer of a task was in the ledger."""
    trail: tuple[bytes, ...] = ()
    """The lines of its audit trail."""
    head: dict[str, Any] | None = None
    """What its workflow has of that: the number of the last record, and its hash."""

    @property
    def tasks(self) -> dict[str, dict[str, Any]]:
        """The tasks of its plan."""
        return {task["id"]: task for task in self.plan["tasks"]}

    def told(self, *types: str) -> list[Event]:
        """Its events of these types."""
        return [event for event in self.events if event.type in types]

    def ends(self) -> dict[str, Event]:
        """The last word on each task."""
        return {event.task: event for event in self.told(*LAST_WORDS) if event.task is not None}

    def calls_of(self, task: str) -> list[Call]:
        """The calls for a task."""
        return [call for call in self.calls if call.task == task]


@dataclass(frozen=True)
class Case:
    """All that is judged at once."""

    runs: tuple[Run, ...]
    faults: tuple[Fault, ...]
    looks: tuple[Look, ...]
    canaries: tuple[Canary, ...]
    least: int
    """So many tasks must have succeeded, else nothing was proven."""
    home: Path
    store: Path
    bill: Path
    artifact: Artifacts = field(compare=False)

    def run(self, id: str) -> Run:
        """The run of an id."""
        return next(run for run in self.runs if run.id == id)


@dataclass(frozen=True)
class Artifacts:
    """The contents of a store."""

    folder: Path

    def __call__(self, ref: str) -> bytes | None:
        """A content, as it is there."""
        digest = ref.removeprefix("sha256:")
        file = self.folder / "artifacts" / digest[:2] / digest
        return file.read_bytes() if file.is_file() else None


def read_case(note: Path) -> Case:
    """The case that a note of what was done is about."""
    said = json.loads(note.read_text("utf-8"))
    store, bill = Path(said["store"]), Path(said["bill"])
    calls = _calls(bill)
    return Case(
        runs=tuple(_run(store, run, calls) for run in said["runs"]),
        faults=tuple(Fault(**fault) for fault in said["faults"]),
        looks=tuple(Look(**look) for look in said["looks"]),
        canaries=tuple(Canary(**canary) for canary in said["canaries"]),
        least=said["least"],
        home=Path(said["home"]),
        store=store,
        bill=bill,
        artifact=Artifacts(store),
    )


def _run(store: Path, said: dict[str, Any], calls: dict[str | None, list[Call]]) -> Run:
    id = said["run"]
    folder = store / "runs" / id
    manifest = _object(folder / "manifest.json")
    events = tuple(_events(folder / "events"))
    changes = [str(event.data["plan_ref"]) for event in events if event.type == "plan.changed"]
    plan = Artifacts(store)(changes[-1] if changes else manifest["plan_ref"]) if manifest else None
    user = hashlib.sha256(id.encode()).hexdigest()[:32]  # what the provider is told of a run
    return Run(
        id=id,
        again=said["again"],
        closed=said["closed"],
        plan=json.loads(plan) if plan else {"tasks": [], "max_concurrency": 0, "budget": None},
        events=events,
        end=_object(folder / "end.json"),
        calls=tuple(calls.get(user, [])),
        trail=tuple(_lines(store / "audit" / id)),
        head=said.get("head"),
        kept={} if plan is None else _kept(store / "ledger" / id, [task["id"] for task in json.loads(plan)["tasks"]]),
    )


def _lines(folder: Path) -> Iterator[bytes]:
    """The lines of a trail in the order of its segments."""
    for segment in sorted(folder.glob("*.jsonl*")):
        yield from segment.read_bytes().splitlines()


def _events(folder: Path) -> Iterator[Event]:
    """The events in the order of the segments; one that a power cut left empty has none."""
    for segment in sorted(folder.glob("*.jsonl*")):
        for line in segment.read_text("utf-8").splitlines():
            said = json.loads(line)
            run, _, task = said["subject"].partition("/")
            number = int(said["id"].removeprefix(f"{run}/"))
            time = datetime.fromisoformat(said["time"]).timestamp()
            yield Event(number, said["type"], task or None, time, said["data"])


def _calls(bill: Path) -> dict[str | None, list[Call]]:
    """The calls by who made them. Of a batch only its requests are billed, and nothing else is asked for here."""
    found: dict[str | None, list[Call]] = {}
    for line in bill.read_text("utf-8").splitlines():
        said = json.loads(line)
        if said["task"] is not None and said["ended"] is not None:
            call = Call(
                documents=tuple(said["documents"]),
                **{name: said[name] for name in Call.__dataclass_fields__ if name != "documents"},
            )
            found.setdefault(call.user, []).append(call)
    return found


def _kept(ledger: Path, tasks: list[str]) -> dict[str, float]:
    """When the answer of each task was written into the ledger, which does so once."""
    found: dict[str, float] = {}
    for task in tasks:
        files = [*(ledger / hashlib.sha256(task.encode()).hexdigest()[:32]).glob("*/*/completion.json")]
        if files:
            found[task] = min(file.stat().st_mtime for file in files)
    return found


def _object(file: Path) -> dict[str, Any] | None:
    return dict(json.loads(file.read_text("utf-8"))) if file.is_file() else None
