"""The legal steps of a running plan, judged by a second opinion that knows only the table of the interface."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import START, Moment, Voyage, answered, failed, outline, outlines, plan_of

from domain import course
from domain.course import Course, accepts
from domain.events import Event, EventType
from domain.models import Answered, Failed, Outcome, Parked, Policy, RunStatus, Stopped, TaskStatus, Usage
from domain.progress import Outline, OutlineTask, Progress, outline_of
from domain.step import Step

SUCCEEDED, FAILED, TIMED_OUT = TaskStatus.SUCCEEDED, TaskStatus.FAILED, TaskStatus.TIMED_OUT
SKIPPED, CANCELLED, NOT_STARTED = TaskStatus.SKIPPED, TaskStatus.CANCELLED, TaskStatus.NOT_STARTED
REQUIRE, TOLERATE, OPTIONAL = Policy.REQUIRE, Policy.TOLERATE, Policy.OPTIONAL

RUNS = {  # interface.md, Edges: what a need ended as, and the policies under which its dependant runs all the same
    SUCCEEDED: {REQUIRE, TOLERATE, OPTIONAL},
    TIMED_OUT: {TOLERATE, OPTIONAL},
    FAILED: {OPTIONAL},
    SKIPPED: {OPTIONAL},
    CANCELLED: {OPTIONAL},
}
TERMINAL = {EventType.TASK_COMPLETED, EventType.TASK_FAILED, EventType.TASK_SKIPPED}


@pytest.mark.parametrize("status", RUNS)
@pytest.mark.parametrize("policy", Policy)
def test_an_edge_accepts_what_the_table_says(policy: Policy, status: TaskStatus) -> None:
    assert accepts(policy, status) == (policy in RUNS[status])


# --- any plan, any order of things ---


class Oracle:
    """What the states must be, worked out from what came in and from the table, by scanning the whole plan."""

    def __init__(self, outline: Outline) -> None:
        self.outline = outline
        self.tasks = {task.id: task for task in outline.tasks}
        self.ended: dict[str, TaskStatus] = {}
        self.active: set[str] = set()
        self.parked: set[str] = set()
        self.started: set[str] = set()
        self.paused = self.cancelled = False
        self.usage = Usage()
        self.peak = 0
        self.events: list[Event] = []
        self.causes: dict[str, str | None] = {}

    def see(self, moment: Moment) -> None:
        """Judge one moment."""
        assert moment.given == moment.copy, "a step changed the progress it was given"
        self._expect(moment)
        self._check_starts(moment)
        self._settle()
        self._check_progress(moment.step.progress)
        self._check_events(moment)

    def _expect(self, moment: Moment) -> None:
        match moment.kind:
            case "result":
                assert moment.outcome is not None
                self._expect_result(moment.id, moment.outcome)
            case "wake":
                waiting = moment.given.parked.items()
                self.parked -= {id for id, wait in waiting if wait.until is not None and wait.until <= moment.now}
            case "pause":
                self.paused = True
            case "resume":
                self.paused = False
                self.parked -= {id for id, wait in moment.given.parked.items() if wait.why == "pause"}
            case "cancel":
                self._expect_cancel()
            case "echo" | "carry":
                assert moment.step.progress == moment.given
                assert not moment.step.events

    def _expect_result(self, id: str, outcome: Outcome) -> None:
        self.active.remove(id)
        match outcome:
            case Answered():
                self.ended[id] = SUCCEEDED
                self.usage += outcome.usage
            case Failed():
                self.ended[id] = outcome.status
                self.usage += outcome.usage
            case Stopped():
                self.ended[id] = CANCELLED
            case Parked() if self.cancelled:
                self.ended[id] = CANCELLED
            case Parked(why="wall"):
                self.parked.add(id)
            case Parked(why="pause") if self.paused:
                self.parked.add(id)

    def _expect_cancel(self) -> None:
        self.cancelled = True
        for id in self.tasks.keys() - self.ended.keys() - self.active:
            self.ended[id] = CANCELLED if id in self.started else NOT_STARTED
        self.parked.clear()

    def _check_starts(self, moment: Moment) -> None:
        starts = moment.step.starts
        assert moment.kind == "launch" or not starts
        for id in starts:
            assert not self.paused
            assert not self.cancelled
            assert id not in self.ended
            assert id not in self.active
            assert id not in self.parked
            assert all(policy in RUNS[self.ended[need]] for need, policy in self.tasks[id].needs.items())
            self.active.add(id)
            self.started.add(id)
        self.peak = max(self.peak, len(self.active))
        busy = Counter(self.tasks[id].agent for id in self.active)
        assert len(self.active) <= self.outline.max_concurrency
        assert all(count <= self._pool(agent) for agent, count in busy.items())
        if moment.kind == "launch" and not (self.paused or self.cancelled):
            full = len(self.active) == self.outline.max_concurrency
            assert full or all(busy[self.tasks[id].agent] == self._pool(self.tasks[id].agent) for id in self._ready())

    def _settle(self) -> None:
        """Skip, until nothing changes, whatever has all its needs ended and one of them against its policy."""
        changed = not self.cancelled
        while changed:
            changed = False
            for task in self._untouched():
                against = self._against(task)
                if all(need in self.ended for need in task.needs) and against:
                    self.ended[task.id] = SKIPPED
                    changed = True

    def _check_progress(self, progress: Progress) -> None:
        assert {id: end.status for id, end in progress.ended.items()} == self.ended
        assert progress.active.keys() == self.active
        assert progress.parked.keys() == self.parked
        ready = {self.outline.tasks[position].id for line in progress.ready.values() for position in line}
        assert ready == self._ready()
        assert sum(len(line) for line in progress.ready.values()) == len(ready)
        assert (progress.paused, progress.cancelled, progress.usage) == (self.paused, self.cancelled, self.usage)
        assert progress.peak == self.peak
        counts = Counter(status.value.lower() for status in self.ended.values())
        counts.update(running=len(self.active), waiting=len(self.parked), ready=len(ready))
        counts["pending"] = len(self.tasks) - counts.total()
        census = Course(self.outline).census(progress).model_dump()
        assert census == {**dict.fromkeys(census, 0), **counts, "total": len(self.tasks)}

    def _check_events(self, moment: Moment) -> None:
        self.events += moment.step.events
        assert [event.number for event in self.events] == list(range(1, len(self.events) + 1))
        assert moment.step.progress.events == len(self.events)
        assert all(event.time == moment.now for event in moment.step.events)
        ends = Counter(event.task for event in self.events if event.type in TERMINAL)
        assert ends == Counter(self.ended.keys())
        starts = [event.task for event in moment.step.events if event.type is EventType.TASK_STARTED]
        assert starts == list(moment.step.starts)
        for event in moment.step.events:
            if event.type in TERMINAL:
                assert event.task is not None
                assert event.data["status"] == self.ended[event.task]
            if event.type is EventType.TASK_SKIPPED and event.data["status"] == SKIPPED:
                self._check_reason(event)

    def _check_reason(self, event: Event) -> None:
        """The reason names a need that did not fit its edge; the cause, behind that need, is one that really failed."""
        assert event.task is not None
        reason, cause = str(event.data["reason"]), str(event.data["cause"])
        named = {need for need in self._against(self.tasks[event.task]) if repr(need) in reason}
        assert len(named) == 1, reason
        (need,) = named
        self.causes[event.task] = cause
        assert self.ended[need] in reason
        assert cause == (self.causes[need] if self.ended[need] is SKIPPED else need)
        assert self.ended[cause] in {FAILED, TIMED_OUT, CANCELLED}

    def status(self) -> RunStatus:
        """How the run must have ended."""
        if self.cancelled:
            return RunStatus.CANCELLED
        needed = {need for task in self.outline.tasks for need in task.needs}
        finals = {self.ended[id] is SUCCEEDED for id in self.tasks if id not in needed}
        if finals == {False}:
            return RunStatus.FAILED
        if finals == {True, False}:
            return RunStatus.PARTIAL
        return RunStatus.COMPLETED if set(self.ended.values()) == {SUCCEEDED} else RunStatus.DEGRADED

    def _pool(self, agent: str) -> int:
        return min(self.outline.max_concurrency, self.outline.pools.get(agent, self.outline.max_concurrency))

    def _untouched(self) -> list[OutlineTask]:
        touched = {*self.ended, *self.active, *self.parked}
        return [task for task in self.outline.tasks if task.id not in touched]

    def _against(self, task: OutlineTask) -> set[str]:
        ended = [(need, policy) for need, policy in task.needs.items() if need in self.ended]
        return {need for need, policy in ended if policy not in RUNS[self.ended[need]]}

    def _ready(self) -> set[str]:
        """Tasks that could start if there were room."""
        untouched = self._untouched() if not self.cancelled else []
        return {task.id for task in untouched if all(need in self.ended for need in task.needs)}


@settings(max_examples=250, deadline=None)
@given(outlines(), st.data())
def test_any_plan_under_any_order_of_things_keeps_every_promise(outline: Outline, data: st.DataObject) -> None:
    """Needs, policies, places, pools, one end per task, events without gaps, a true status: at every step (V1-V4)."""
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
    assert outline_of(plan_of(outline)) == outline


# --- single promises, by hand ---


class Run:
    """A course and how far it has come."""

    def __init__(self, outline: Outline) -> None:
        self.course = Course(outline)
        self.now = START
        self.progress = Progress()
        self.take(self.course.begin(self.now))

    def take(self, step: Step) -> Step:
        self.progress = step.progress
        return step

    def launch(self) -> tuple[str, ...]:
        return self.take(self.course.launch(self.progress, self.now)).starts

    def result(self, id: str, outcome: Outcome) -> Step:
        return self.take(self.course.result(self.progress, id, outcome, self.now))

    def pass_time(self, time: timedelta) -> None:
        self.now += time
        self.take(self.course.wake(self.progress, self.now))

    def cancel(self) -> Step:
        return self.take(self.course.cancel(self.progress, self.now))

    def end_of(self, id: str) -> TaskStatus:
        return self.progress.ended[id].status


def test_ready_tasks_start_in_plan_order_past_those_whose_agent_is_busy() -> None:
    plan = outline({"a": {}, "b": {}, "c": {}}, max_concurrency=2, ant=1)
    other = plan.tasks[2].model_copy(update={"agent": "bee"})
    run = Run(plan.model_copy(update={"tasks": (*plan.tasks[:2], other)}))

    assert run.launch() == ("a", "c")
    run.result("a", answered())
    assert run.launch() == ("b",)


def test_a_wall_without_an_end_is_probed_after_1_2_4_8_15_minutes() -> None:
    """And from the start again after an answer has come through."""
    run = Run(outline({"a": {}}))
    delays = []

    for _ in range(7):
        assert run.launch() == ("a",)
        run.result("a", Parked(why="wall", what="full"))
        wake = run.course.next_wake(run.progress)
        assert wake is not None
        delays.append(wake - run.now)
        run.pass_time(wake - run.now - timedelta(microseconds=1))
        assert run.launch() == ()
        run.pass_time(timedelta(microseconds=1))

    assert [delay // timedelta(minutes=1) for delay in delays] == [1, 2, 4, 8, 15, 15, 15]
    run.launch()
    run.result("a", answered())
    assert not run.progress.walls


def test_a_wall_with_a_known_end_is_not_asked_before_it() -> None:
    run = Run(outline({"a": {}}))
    run.launch()
    run.result("a", Parked(why="wall", what="full", until=START + timedelta(hours=6)))

    run.pass_time(timedelta(hours=6) - timedelta(seconds=1))
    assert run.launch() == ()
    assert run.course.status(run.progress) is RunStatus.WAITING
    run.pass_time(timedelta(seconds=1))
    assert run.launch() == ("a",)


def test_a_parked_task_holds_no_place() -> None:
    run = Run(outline({"a": {}, "b": {}}, max_concurrency=1))
    assert run.launch() == ("a",)

    run.result("a", Parked(why="wall", what="full", until=START + timedelta(hours=1)))

    assert run.launch() == ("b",)


def test_a_task_that_met_the_pause_waits_for_the_resume_and_not_for_a_time() -> None:
    run = Run(outline({"a": {}}))
    run.launch()
    run.take(run.course.pause(run.progress, run.now, "someone"))
    run.result("a", Parked(why="pause", what="the run is paused"))
    run.pass_time(timedelta(days=1))
    assert (run.launch(), run.course.status(run.progress)) == ((), RunStatus.PAUSED)

    run.take(run.course.resume(run.progress, run.now, "someone"))

    assert run.launch() == ("a",)


def test_a_task_whose_pause_is_already_over_is_ready_at_once() -> None:
    run = Run(outline({"a": {}}))
    run.launch()
    run.result("a", Parked(why="pause", what="the run is paused"))

    assert run.launch() == ("a",)


def test_a_task_learns_what_each_of_its_needs_came_to() -> None:
    run = Run(outline({"good": {}, "late": {}, "end": {"good": REQUIRE, "late": TOLERATE}}))
    run.launch()
    run.result("good", answered())
    run.result("late", failed(TIMED_OUT))

    good, late = run.course.inputs(run.progress, "end")

    assert (good.task, good.status, good.ref, good.why) == ("good", SUCCEEDED, answered().output_ref, None)
    assert (late.task, late.status, late.ref, late.why) == ("late", TIMED_OUT, None, "it broke")


def test_cancel_ends_what_waits_and_leaves_what_is_at_work_to_its_own_word() -> None:
    run = Run(outline({"busy": {}, "wall": {}, "ready": {}, "later": {"busy": OPTIONAL}}, max_concurrency=2))
    run.launch()
    run.result("wall", Parked(why="wall", what="full"))

    run.cancel()
    assert {id: end.status for id, end in run.progress.ended.items()} == {
        "wall": CANCELLED,
        "ready": NOT_STARTED,
        "later": NOT_STARTED,
    }
    assert run.launch() == ()
    run.result("busy", answered())

    assert (run.end_of("busy"), run.end_of("later")) == (SUCCEEDED, NOT_STARTED)
    assert run.course.status(run.progress) is RunStatus.CANCELLED


def test_a_task_that_had_started_is_never_called_not_started() -> None:
    """It met a wall, the wall passed, it is ready again and waits for a place: then the run is cancelled."""
    run = Run(outline({"a": {}}))
    run.launch()
    run.result("a", Parked(why="wall", what="full", until=START + timedelta(minutes=1)))
    run.pass_time(timedelta(minutes=1))

    run.cancel()

    assert run.end_of("a") is CANCELLED


def test_a_task_that_its_worker_gave_back_is_ready_at_once() -> None:
    run = Run(outline({"a": {}}))
    run.launch()
    run.result("a", Parked(why="worker", what="the worker is going down"))

    assert run.launch() == ("a",)


# --- sizes ---


def test_one_launch_carries_no_more_inputs_than_one_message_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """F6: the rest is held back for the next one; a single task with more inputs than that starts alone."""
    monkeypatch.setattr(course, "INPUTS_AT_ONCE", 5)
    sources: dict[str, dict[str, Policy]] = {f"s{i}": {} for i in range(9)}
    two = dict.fromkeys(["s0", "s1"], REQUIRE)
    run = Run(outline({**sources, "a": two, "b": two, "c": two, "wide": dict.fromkeys(sources, REQUIRE)}))
    for id in run.launch():
        run.result(id, answered())

    launches = [run.take(run.course.launch(run.progress, run.now)) for _ in range(4)]

    assert [(step.starts, step.held_back) for step in launches] == [
        (("a", "b"), True),
        (("c",), True),
        (("wide",), False),
        ((), False),
    ]


def test_a_chain_of_10_000_whose_first_fails_settles_in_one_step() -> None:
    """Without recursion (F8), and every link names the first as the cause."""
    needs: dict[str, dict[str, Policy]] = {f"t{i}": {f"t{i - 1}": REQUIRE} if i else {} for i in range(10_000)}
    run = Run(outline(needs))
    run.launch()

    run.result("t0", failed())

    assert run.course.census(run.progress).skipped == 9_999
    assert {end.cause for end in run.progress.ended.values()} == {"t0"}
    assert run.course.status(run.progress) is RunStatus.FAILED


def test_a_wide_plan_judges_every_task_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """One source, 2,000 in the middle, one sink: judged when the last need has ended, not at every end (F7)."""
    middle: dict[str, dict[str, Policy]] = {f"m{i}": {"source": REQUIRE} for i in range(2_000)}
    run = Run(outline({"source": {}, **middle, "sink": dict.fromkeys(middle, OPTIONAL)}, max_concurrency=5_000))
    judged: Counter[str] = Counter()
    judge = Course._unacceptable

    def counting(course: Course, draft: Any, id: str) -> str | None:
        judged[id] += 1
        return judge(course, draft, id)

    monkeypatch.setattr(Course, "_unacceptable", counting)
    while starts := run.launch():
        for id in starts:
            run.result(id, answered())

    assert run.course.status(run.progress) is RunStatus.COMPLETED
    assert judged == Counter([*middle, "sink"])
