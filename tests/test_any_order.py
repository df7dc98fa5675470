"""Any plan, under any order of things: a second opinion that knows only the interface, and scans the whole plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st
from plans import Moment, Voyage, outlines, plan_of

from domain.course import Course
from domain.events import Event, EventType
from domain.models import (
    Answered,
    Deadline,
    Failed,
    Outcome,
    Pace,
    Parked,
    Policy,
    RunStatus,
    Stopped,
    TaskStatus,
    Usage,
)
from domain.progress import Outline, OutlineTask, Progress, outline_of
from domain.steering import Setting, TaskSteering

SUCCEEDED, FAILED, TIMED_OUT = TaskStatus.SUCCEEDED, TaskStatus.FAILED, TaskStatus.TIMED_OUT
SKIPPED, CANCELLED, NOT_STARTED = TaskStatus.SKIPPED, TaskStatus.CANCELLED, TaskStatus.NOT_STARTED

RUNS = {  # interface.md, Edges: what a need ended as, and the policies under which its dependant runs all the same
    SUCCEEDED: set(Policy),
    TIMED_OUT: {Policy.TOLERATE, Policy.OPTIONAL},
    FAILED: {Policy.OPTIONAL},
    SKIPPED: {Policy.OPTIONAL},
    CANCELLED: {Policy.OPTIONAL},
}
ENDS = {EventType.TASK_COMPLETED, EventType.TASK_FAILED, EventType.TASK_SKIPPED}


class Oracle:
    """What the states must be, worked out from what came in and from the tables of the interface."""

    def __init__(self, outline: Outline) -> None:
        self.outline = outline
        self.tasks = {task.id: task for task in outline.tasks}
        self.ended: dict[str, TaskStatus] = {}
        self.active: set[str] = set()
        self.parked: set[str] = set()
        self.started: set[str] = set()
        self.approved: set[str] = set()
        self.orders: dict[str, TaskStatus] = {}
        self.wave: set[str] = set()
        self.proven: set[str] = set()
        self.paused = self.cancelled = self.late = False
        self.places = outline.max_concurrency
        self.usage = Usage()
        self.peak = 0
        self.events: list[Event] = []

    def see(self, moment: Moment) -> None:
        """Judge one moment."""
        assert moment.given == moment.copy, "a step changed the progress it was given"
        self._expect(moment)
        self._check_starts(moment)
        self._settle()
        self._follow_the_waits(moment)
        self._check_progress(moment.step.progress)
        self._check_events(moment)

    # What each moment must do

    def _expect(self, moment: Moment) -> None:
        match moment.kind:
            case "result":
                assert moment.outcome is not None
                self._expect_result(moment.id, moment.outcome)
            case "wake":
                self._expect_time(moment)
            case "pause" | "resume":
                self.paused = moment.kind == "pause"
            case "set":
                assert isinstance(moment.asked, Setting)
                self.places = moment.asked.max_concurrency or self.places
            case "approve" | "reject" | "skip" | "retry":
                assert isinstance(moment.asked, TaskSteering)
                self._expect_request(moment, moment.asked)
            case "cancel":
                self._expect_cancel()
            case "echo" | "carry" | "refused":
                assert moment.step.progress == moment.given
                assert not moment.step.events

    def _expect_result(self, id: str, outcome: Outcome) -> None:
        self.active.remove(id)
        order = self.orders.pop(id, None)
        for attempt in () if isinstance(outcome, Stopped) else outcome.tries:
            self.usage += attempt.usage
        match outcome:
            case Answered():
                self._end(id, SUCCEEDED)
                self.usage += outcome.spent
                self.proven.add(self._model(id))
            case Failed():
                self._end(id, order or outcome.status)
                self.usage += outcome.usage
            case Stopped():
                self._end(id, order or CANCELLED)
            case Parked() if order or self.cancelled:
                self._end(id, order or CANCELLED)
            case Parked(wall="key") if not self.proven:
                self._end(id, FAILED)
            case Parked(wall="model") if self._model(id) not in self.proven:
                self._end(id, FAILED)
            case Parked(why="wall" | "batch") | Parked(why="worker", until=datetime()):
                self.parked.add(id)
            case Parked(why="pause") if self.paused:
                self.parked.add(id)

    def _expect_time(self, moment: Moment) -> None:
        """Deadlines, limits and questions that expire."""
        now = moment.now
        if len(self.ended) == len(self.tasks) or self.cancelled or self.late:
            return
        if (
            not self.cancelled
            and not self.late
            and (at := _at(self.outline.deadline, moment.given)) is not None
            and at <= now
        ):
            self.late = True
            for id in self.tasks.keys() - self.ended.keys():
                self._time_out(id, TIMED_OUT if id in self.started else NOT_STARTED)
            return
        for at, id in [*sorted(self._deadlines(moment.given)), *((at, id) for id, at in moment.given.limits.items())]:
            if at <= now and id not in self.ended:
                self._time_out(id, TIMED_OUT)
                self._settle()  # who may not run without it is skipped before its own time is looked at
        for id, wait in moment.given.parked.items():
            if wait.why == "approval" and wait.until is not None and wait.until <= now and id not in self.ended:
                self._expect_expiry(id)

    def _expect_expiry(self, id: str) -> None:
        approval = self.tasks[id].approval
        assert approval is not None
        self.parked.discard(id)
        if approval.on_expiry == "approve":
            self.approved.add(id)
        else:
            self._end(id, SKIPPED)

    def _expect_request(self, moment: Moment, asked: TaskSteering) -> None:
        match moment.kind:
            case "approve":
                self.approved |= set(asked.tasks)
                self.parked -= set(asked.tasks)
            case "reject":
                for id in asked.tasks:
                    self._end(id, SKIPPED)
            case "skip":
                for id in asked.tasks:
                    if id in self.active:
                        self.orders[id] = SKIPPED
                    else:
                        self._end(id, SKIPPED)
            case "retry":
                self._expect_retry(moment, asked.tasks)

    def _expect_retry(self, moment: Moment, tasks: tuple[str, ...]) -> None:
        """What did not succeed, what it was skipped for, and what was skipped for the same; nothing that is late."""
        given = moment.given
        late = {id for at, id in self._deadlines(given) if at <= moment.now}
        chosen = [id for id in tasks or self.ended if self.ended.get(id, SUCCEEDED) is not SUCCEEDED]
        roots = {given.ended[id].cause or id for id in chosen} - late
        again = {id for id, end in given.ended.items() if id in roots or (end.status is SKIPPED and end.cause in roots)}
        while more := {id for id in given.ended.keys() - again if self._lacked_one_of(again, given, id)}:
            again |= more
        for id in again:
            del self.ended[id]
            self.started.discard(id)

    def _lacked_one_of(self, again: set[str], given: Progress, id: str) -> bool:
        """Whether a task was skipped, by no person, and one of these is an input that it did not have."""
        end, task = given.ended[id], self.tasks[id]
        done_again = {need: policy for need, policy in task.needs.items() if need in again}
        lacked = [need for need, policy in done_again.items() if task.quorum or policy not in RUNS[self.ended[need]]]
        return end.status is SKIPPED and end.cause != id and bool(lacked)

    def _expect_cancel(self) -> None:
        self.cancelled = True
        for id in self.tasks.keys() - self.ended.keys() - self.active:
            self._end(id, CANCELLED if id in self.started else NOT_STARTED)

    def _time_out(self, id: str, status: TaskStatus) -> None:
        if id not in self.active:
            self._end(id, status)
        elif id not in self.orders:
            self.orders[id] = TIMED_OUT

    def _end(self, id: str, status: TaskStatus) -> None:
        self.ended[id] = status
        self.parked.discard(id)
        self.wave.discard(id)

    def _settle(self) -> None:
        """Skip, until nothing changes, whatever has all its needs ended and may not run with what they came to."""
        changed = not (self.cancelled or self.late)
        while changed:
            changed = False
            for task in self._untouched():
                if all(need in self.ended for need in task.needs) and not self._may_run(task):
                    self.ended[task.id] = SKIPPED
                    changed = True

    def _follow_the_waits(self, moment: Moment) -> None:
        """Who waits outside. When a wait ends is a matter of walls and times: here only that it is one of those."""
        after = moment.step.progress
        for id in self.parked - after.parked.keys():
            wait = moment.given.parked.get(id)
            assert wait is not None
            came = wait.until is not None and wait.until <= moment.now
            assert came or moment.kind in {"resume", "retry"} or wait.why == "wall", (id, moment)
        for id in after.parked.keys() - self.parked:
            task = self.tasks[id]
            assert after.parked[id].why == "approval"
            assert task.approval is not None
            assert id not in self.approved
            assert all(need in self.ended for need in task.needs)
        self.parked = set(after.parked)

    # What must be true

    def _check_starts(self, moment: Moment) -> None:
        starts = moment.step.starts
        assert moment.kind == "launch" or not starts
        for id in starts:
            self._check_start(moment, id)
            self.active.add(id)
            self.started.add(id)
        self.peak = max(self.peak, len(self.active))
        busy = Counter(self.tasks[id].agent for id in self.active)
        assert len(self.active) <= self.places or not starts
        assert all(count <= self.outline.pools.get(agent, 500) for agent, count in busy.items())
        self._check_wave(moment)
        if moment.kind == "launch" and not (self.paused or self.cancelled or self.late):
            self._check_nobody_waits_for_nothing(moment, busy)

    def _check_start(self, moment: Moment, id: str) -> None:
        task = self.tasks[id]
        assert (self.paused, self.cancelled, self.late) == (False, False, False)
        assert id not in {*self.ended, *self.active, *self.parked}
        assert all(need in self.ended for need in task.needs)
        assert self._may_run(task)
        assert task.approval is None or id in self.approved
        for place, wall in moment.given.barriers.items():
            assert place not in ("", self._model(id)) or wall.probe == id, "started before a wall"

    def _check_wave(self, moment: Moment) -> None:
        if self.outline.mode is not Pace.WAVES:
            return
        told = [event for event in moment.step.events if event.type is EventType.WAVE_STARTED]
        assert len(told) <= 1
        self.wave &= set(moment.step.progress.wave) | {str(id) for event in told for id in _tasks_of(event)}
        for event in told:
            assert not self.wave - set(_tasks_of(event)) or not self.wave, "a wave began before the last one had ended"
            self.wave = set(_tasks_of(event))
            assert 1 <= len(self.wave) <= self.places
        assert set(moment.step.starts) <= self.wave | set(moment.step.progress.wave)

    def _check_nobody_waits_for_nothing(self, moment: Moment, busy: Counter[str]) -> None:
        """A task that could start does, unless every place or every instance of its agent is taken."""
        if len(self.active) >= self.places or moment.step.held_back:
            return
        barriers = moment.step.progress.barriers
        for id in self._ready(moment.step.progress):
            task = self.tasks[id]
            full = busy[task.agent] >= self.outline.pools.get(task.agent, 500)
            walled = any(place in ("", self._model(id)) and wall.probe != id for place, wall in barriers.items())
            in_time = self.outline.mode is Pace.WINDOW or id in moment.step.progress.wave
            assert full or walled or not in_time, f"{id} could start"

    def _check_progress(self, progress: Progress) -> None:
        assert {id: end.status for id, end in progress.ended.items()} == self.ended
        assert progress.active.keys() == self.active
        assert {id: end.status for id, end in progress.stopping.items()} == self.orders
        ready = self._ready(progress)
        assert (progress.paused, progress.cancelled, progress.late) == (self.paused, self.cancelled, self.late)
        assert (progress.usage, progress.peak) == (self.usage, self.peak)
        counts = Counter(status.value.lower() for status in self.ended.values())
        counts.update(running=len(self.active), waiting=len(self.parked), ready=len(ready))
        counts["pending"] = len(self.tasks) - counts.total()
        census = Course(self.outline).census(progress).model_dump()
        assert census == {**dict.fromkeys(census, 0), **counts, "total": len(self.tasks)}
        if not (self.cancelled or self.late):
            for id in ready:
                assert all(need in self.ended for need in self.tasks[id].needs)

    def _check_events(self, moment: Moment) -> None:
        self.events += moment.step.events
        assert [event.number for event in self.events] == list(range(1, len(self.events) + 1))
        assert moment.step.progress.events == len(self.events)
        assert all(event.time == moment.now for event in moment.step.events)
        assert self._ends_told() == self.ended
        starts = [event.task for event in moment.step.events if event.type is EventType.TASK_STARTED]
        assert starts == list(moment.step.starts)
        for event in moment.step.events:
            if event.type is EventType.TASK_SKIPPED and event.data["status"] == SKIPPED and "by" not in event.data:
                self._check_reason(event, moment.step.progress)

    def _ends_told(self) -> dict[str, TaskStatus]:
        """One end for every task that has ended; one that a person has done again has none until it ends again."""
        told: dict[str, TaskStatus] = {}
        for event in self.events:
            if event.type in ENDS:
                assert event.task is not None
                assert event.task not in told
                told[event.task] = TaskStatus(str(event.data["status"]))
            if event.type is EventType.TASK_RETRIED and "by" in event.data:
                told.pop(event.task or "", None)
        return told

    def _check_reason(self, event: Event, progress: Progress) -> None:
        """The cause of a skip is a task that ended by itself, or by a person's word."""
        assert event.task is not None
        cause = str(event.data["cause"])
        assert event.data["reason"]
        assert cause in progress.ended
        assert progress.ended[cause].status in {FAILED, TIMED_OUT, CANCELLED, SKIPPED}
        assert progress.ended[cause].cause == cause

    def status(self) -> RunStatus:
        """How the run must have ended."""
        if self.cancelled:
            return RunStatus.CANCELLED
        if set(self.ended.values()) == {SUCCEEDED}:
            return RunStatus.COMPLETED
        if self.late:
            return RunStatus.DEADLINE_PASSED
        needed = {need for task in self.outline.tasks for need in task.needs}
        finals = {self.ended[id] is SUCCEEDED for id in self.tasks if id not in needed}
        if finals == {False}:
            return RunStatus.FAILED
        return RunStatus.PARTIAL if finals == {True, False} else RunStatus.DEGRADED

    def _may_run(self, task: OutlineTask) -> bool:
        """The table of edges, and the quorum."""
        if not all(policy in RUNS[self.ended[need]] for need, policy in task.needs.items()):
            return False
        optional = [need for need, policy in task.needs.items() if policy is Policy.OPTIONAL]
        return sum(self.ended[need] is SUCCEEDED for need in optional) >= (task.quorum or 0)

    def _deadlines(self, given: Progress) -> Iterator[tuple[datetime, str]]:
        for task in self.outline.tasks:
            if (at := _at(task.deadline, given)) is not None:
                yield at, task.id

    def _model(self, id: str) -> str:
        return self.outline.models[self.tasks[id].agent]

    def _untouched(self) -> list[OutlineTask]:
        touched = {*self.ended, *self.active, *self.parked}
        return [task for task in self.outline.tasks if task.id not in touched]

    def _ready(self, progress: Progress) -> set[str]:
        """Tasks that could start if there were room: the ranks of the lines, as ids."""
        order = Course(self.outline).chart.order(progress.started)
        ids = [order.ids[rank] for line in progress.ready.values() for rank in line]
        assert len(set(ids)) == len(ids)
        for agent, line in progress.ready.items():
            assert {self.tasks[order.ids[rank]].agent for rank in line} == {agent}
        return set(ids)


def _at(deadline: Deadline | None, given: Progress) -> datetime | None:
    assert given.started is not None
    return given.started + deadline if isinstance(deadline, timedelta) else deadline


def _tasks_of(event: Event) -> list[str]:
    tasks = event.data["tasks"]
    assert isinstance(tasks, list)
    return [str(id) for id in tasks]


@settings(max_examples=300, deadline=None)
@given(outlines(), st.data())
def test_any_plan_under_any_order_of_things_keeps_every_promise(outline: Outline, data: st.DataObject) -> None:
    """Needs, policies, quorum, places, pools, walls, waves, people, times, one end per task, a true status (V1-V4)."""
    oracle = Oracle(outline)
    voyage = Voyage(outline, data.draw)

    for moment in voyage.moments():
        oracle.see(moment)

    assert oracle.ended.keys() == oracle.tasks.keys()
    assert voyage.course.status(voyage.progress) is oracle.status()
    last = oracle.events[-1]
    assert (last.type, last.data["status"]) == (EventType.RUN_COMPLETED, oracle.status())
    assert last.data["census"] == voyage.course.census(voyage.progress).model_dump()
    assert last.data["peak"] == oracle.peak


@given(outlines())
def test_an_outline_is_what_the_supervisor_must_know_of_a_plan(outline: Outline) -> None:
    assert outline_of(plan_of(outline)) == outline.model_copy(update={"counted": True})
