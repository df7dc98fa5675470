"""The report, folded from events: it says what the course says, at every moment of any run."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import REF, START, Voyage, answered, failed, outline, outlines, plan_of

from domain.course import Course
from domain.events import Event, EventType, from_envelope, to_envelope
from domain.models import ENDED_RUN, Parked, Policy, RunStatus, TaskStatus, Usage
from domain.progress import Outline, Progress
from domain.report import Picture
from domain.step import Step

REQUIRE = Policy.REQUIRE


class Told:
    """A run by hand, and the picture that its events make."""

    def __init__(self, outline: Outline) -> None:
        self.course = Course(outline)
        self.picture = Picture("run", plan_of(outline), simulated=True)
        self.progress = Progress()
        self.now = START
        self.take(self.course.begin(self.now))

    def take(self, step: Step) -> None:
        self.progress = step.progress
        self.picture.add(step.events)
        self.now += timedelta(seconds=1)

    def launch(self) -> None:
        self.take(self.course.launch(self.progress, self.now))

    def result(self, id: str, outcome: Any) -> None:
        self.take(self.course.result(self.progress, id, outcome, self.now))

    def finish(self) -> None:
        self.take(self.course.finish(self.progress, self.now))

    def document(self, texts: dict[str, str] | None = None) -> dict[str, Any]:
        return self.picture.report(texts or {}, now=self.now).document()

    def tasks(self) -> dict[str, dict[str, Any]]:
        return {task["id"]: task for task in self.document()["tasks"]}


# --- the same as the course ---


@settings(max_examples=120, deadline=None)
@given(outlines(), st.data())
def test_a_picture_of_any_run_says_what_the_course_says(outline: Outline, data: st.DataObject) -> None:
    """At every moment, from events that went through their envelopes: status, census, tokens, peak, each task's end."""
    picture = Picture("run", plan_of(outline), simulated=True)
    voyage = Voyage(outline, data.draw)

    for moment in voyage.moments():
        stored = [json.dumps(to_envelope("run", event)) for event in moment.step.events]
        picture.add([from_envelope(json.loads(line)) for line in stored])
        course, progress = voyage.course, voyage.progress
        assert picture.census == course.census(progress)
        assert picture.tokens == progress.usage
        assert picture.last == progress.events
        if moment.kind == "finish" or not course.is_over(progress):
            assert picture.status is course.status(progress)
        assert picture.ended == (moment.kind == "finish")

    report = picture.report({}, now=moment.now)
    assert report.concurrency.peak == voyage.progress.peak
    assert report.finished is not None
    for task in report.tasks:
        end = voyage.progress.ended[task.id]
        assert (task.status, task.output_ref) == (end.status, end.ref)
        assert task.success == (end.status is TaskStatus.SUCCEEDED)
        assert (task.error is None) == task.success
        assert task.error is None or task.error.message == end.why
        assert task.wait is None


@settings(max_examples=30, deadline=None)
@given(outlines(), st.data())
def test_events_seen_before_change_nothing(outline: Outline, data: st.DataObject) -> None:
    """A reader that asks again gets some of them twice."""
    events = [event for moment in Voyage(outline, data.draw).moments() for event in moment.step.events]
    once, again = (Picture("run", plan_of(outline), simulated=True) for _ in range(2))
    once.add(events)

    for count in range(1, len(events) + 1):
        again.add(events[max(0, count - 3) : count])

    assert again.report({}, now=START) == once.report({}, now=START)


# --- the document ---


def test_the_document_has_the_keys_of_the_interface_in_their_order() -> None:
    """What is not built yet (cost, attention, ...) is not there."""
    told = Told(outline({"a": {}}))
    told.launch()
    told.result("a", answered())
    told.finish()

    document = told.document()

    assert list(document) == [
        *("schema", "run", "name", "status", "simulated", "census", "started", "finished", "duration_s"),
        *("tokens", "concurrency", "tasks", "outputs", "output"),
    ]
    assert list(document["census"]) == [
        *("total", "succeeded", "failed", "timed_out", "skipped", "cancelled", "not_started"),
        *("pending", "ready", "waiting", "running"),
    ]
    assert list(document["tokens"]) == ["input", "output", "cache_read", "cache_write"]
    assert list(document["concurrency"]) == ["max", "peak"]
    assert list(document["tasks"][0]) == [
        *("id", "agent", "type", "status", "success", "attempts", "timeout_s", "duration_s", "tokens"),
        *("wait", "error", "cause", "output", "output_ref"),
    ]
    assert json.loads(json.dumps(document)) == document


def test_the_document_of_a_run_that_has_ended() -> None:
    told = Told(outline({"a": {}, "b": {"a": REQUIRE}}, max_concurrency=3))
    told.launch()
    told.result("a", answered(tokens=5))
    told.launch()
    told.result("b", answered(tokens=1))
    told.finish()

    document = told.document({REF: "The text."})

    assert (document["schema"], document["run"], document["name"]) == ("nightcrew.report/1", "run", "plan")
    assert (document["status"], document["simulated"]) == ("COMPLETED", True)
    assert (document["started"], document["finished"]) == ("2026-01-01T00:00:00.000Z", "2026-01-01T00:00:05.000Z")
    assert document["duration_s"] == 5.0
    assert document["tokens"] == {"input": 6, "output": 12, "cache_read": 0, "cache_write": 0}
    assert document["concurrency"] == {"max": 3, "peak": 1}
    assert (document["outputs"], document["output"]) == ({"b": "The text."}, "The text.")
    assert [task["id"] for task in document["tasks"]] == ["a", "b"]
    assert document["tasks"][0] == {
        "id": "a",
        "agent": "ant@1",
        "type": None,
        "status": "SUCCEEDED",
        "success": True,
        "attempts": 1,
        "timeout_s": 30.0,
        "duration_s": 1.0,
        "tokens": {"input": 5, "output": 10, "cache_read": 0, "cache_write": 0},
        "wait": None,
        "error": None,
        "cause": None,
        "output": "The text.",
        "output_ref": REF,
    }


def test_a_run_that_goes_on_has_no_end() -> None:
    told = Told(outline({"a": {}}))

    document = told.document()

    assert (document["status"], document["finished"], document["output"]) == ("RUNNING", None, None)
    assert document["duration_s"] == 1.0


def test_several_final_tasks_stand_under_their_ids_in_plan_order() -> None:
    told = Told(outline({"b": {}, "a": {}, "c": {}}))
    told.launch()
    told.result("a", answered().model_copy(update={"output_ref": f"sha256:{'a' * 64}"}))
    told.result("b", answered())
    told.result("c", failed())
    told.finish()

    document = told.document({REF: "Of b.", f"sha256:{'a' * 64}": "Of a."})

    assert list(document["outputs"].items()) == [("b", "Of b."), ("a", "Of a."), ("c", None)]
    assert document["output"] == "b:\nOf b.\n\na:\nOf a."


def test_a_task_that_failed_says_why_and_one_that_was_skipped_who_caused_it() -> None:
    told = Told(outline({"a": {}, "b": {"a": REQUIRE}, "c": {"b": REQUIRE}}))
    told.launch()
    told.result("a", failed(TaskStatus.TIMED_OUT))
    told.finish()

    tasks = told.tasks()

    assert tasks["a"]["error"] == {"type": "E", "message": "it broke", "attempt": 2, "retryable": False}
    assert (tasks["a"]["status"], tasks["a"]["attempts"], tasks["a"]["tokens"]["input"]) == ("TIMED_OUT", 2, 1)
    assert (tasks["c"]["status"], tasks["c"]["cause"]) == ("SKIPPED", "a")
    assert tasks["c"]["error"]["message"] == "needs 'b', which ended SKIPPED"
    assert tasks["c"]["duration_s"] is None


def test_a_task_lasts_from_its_first_start_through_its_waits() -> None:
    told = Told(outline({"a": {}}))
    told.launch()
    told.result("a", Parked(why="pause", what="the run is paused"))
    told.launch()
    told.result("a", answered())

    assert told.tasks()["a"]["duration_s"] == 3.0


# --- waits ---


def test_every_task_that_is_not_at_work_says_what_it_waits_for() -> None:
    needs = {"busy": {}, "wall": {}, "slot": {}, "late": {"busy": REQUIRE, "slot": REQUIRE}}
    told = Told(outline(needs, max_concurrency=2))
    told.launch()
    until = START + timedelta(hours=1)
    told.result("wall", Parked(why="wall", what="the account's rate limit is reached", until=until))

    waits = {id: task["wait"] for id, task in told.tasks().items()}

    assert waits["busy"] is None
    assert (waits["late"]["for"], waits["late"]["what"]) == ("inputs", "busy, slot")
    assert (waits["slot"]["for"], waits["slot"]["since"]) == ("slot", "2026-01-01T00:00:00.000Z")
    assert (waits["wall"]["for"], waits["wall"]["what"]) == ("wall", "the account's rate limit is reached")
    assert waits["wall"]["since"] == "2026-01-01T00:00:02.000Z"


def test_the_end_of_a_wall_is_written_as_every_other_time() -> None:
    """RFC 3339 in UTC, to the millisecond, with a Z (interface.md)."""
    told = Told(outline({"a": {}}))
    told.launch()
    until = START + timedelta(hours=1, microseconds=123456)
    told.result("a", Parked(why="wall", what="full", until=until))

    assert told.tasks()["a"]["wait"]["until"] == "2026-01-01T01:00:00.123Z"


def test_a_paused_run_holds_ready_tasks_for_the_pause() -> None:
    told = Told(outline({"a": {}}))
    told.take(told.course.pause(told.progress, told.now, "someone"))

    assert told.document()["status"] == "PAUSED"
    assert told.tasks()["a"]["wait"]["for"] == "pause"
    told.take(told.course.resume(told.progress, told.now, "someone"))
    assert told.document()["status"] == "RUNNING"
    assert told.tasks()["a"]["wait"]["for"] == "slot"


def test_a_run_with_nothing_at_work_but_a_wall_is_waiting() -> None:
    told = Told(outline({"a": {}, "b": {"a": REQUIRE}}))
    told.launch()
    told.result("a", Parked(why="wall", what="full"))

    assert told.document()["status"] == "WAITING"


# --- ends from outside ---


@pytest.mark.parametrize("status", [RunStatus.CANCELLED, RunStatus.FAILED])
def test_a_run_that_was_ended_from_outside_leaves_no_task_open(status: RunStatus) -> None:
    """As by Terminate: what had ended stays, what had begun is cancelled, the rest was not started."""
    needs = {"done": {}, "busy": {}, "wall": {}, "slot": {}, "late": {"busy": REQUIRE}}
    told = Told(outline(needs, max_concurrency=3))
    told.launch()
    told.result("done", answered())
    told.result("wall", Parked(why="wall", what="full"))

    told.picture.close_from_outside(status, told.now, "the run was terminated")

    assert told.picture.ended
    document = told.document()
    assert document["status"] == status
    assert document["finished"] == "2026-01-01T00:00:04.000Z"
    tasks = told.tasks()
    assert {id: task["status"] for id, task in tasks.items()} == {
        "done": "SUCCEEDED",
        "busy": "CANCELLED",
        "wall": "CANCELLED",
        "slot": "NOT_STARTED",
        "late": "NOT_STARTED",
    }
    assert all(task["wait"] is None for task in tasks.values())
    assert [tasks[id]["error"] is None for id in ("done", "busy", "late")] == [True, False, False]
    assert tasks["busy"]["error"]["message"] == "the run was terminated"
    assert tasks["busy"]["duration_s"] == 3.0


def test_a_task_that_had_started_is_cancelled_from_outside_also_when_it_was_ready_again() -> None:
    """After a wall it waits for a place; it has a start and a duration, so it is not called not started."""
    told = Told(outline({"a": {}}))
    told.launch()
    told.result("a", Parked(why="wall", what="full", until=told.now))
    told.take(told.course.wake(told.progress, told.now))

    told.picture.close_from_outside(RunStatus.CANCELLED, told.now, "the run was terminated")

    assert told.tasks()["a"]["status"] == "CANCELLED"


@settings(max_examples=60, deadline=None)
@given(outlines(), st.data())
def test_a_run_ended_from_outside_at_any_moment_adds_up(outline: Outline, data: st.DataObject) -> None:
    picture = Picture("run", plan_of(outline), simulated=True)
    moments = list(Voyage(outline, data.draw).moments())
    for moment in moments[: data.draw(st.integers(0, len(moments)))]:
        picture.add(moment.step.events)
    before = {id: task.status for id, task in picture.tasks.items() if task.ended is not None}

    picture.close_from_outside(RunStatus.CANCELLED, moments[-1].now, "terminated")

    census = picture.census
    going = census.pending + census.ready + census.waiting + census.running
    assert (going, picture.status) == (0, RunStatus.CANCELLED)
    assert {id: picture.tasks[id].status for id in before} == before


def test_a_run_that_a_bug_ended_says_failed() -> None:
    told = Told(outline({"a": {}}))
    told.launch()
    told.take(told.course.break_off(told.progress, told.now, "KeyError('x')"))

    assert told.document()["status"] == "FAILED"
    assert told.picture.ended


def test_every_end_of_a_run_is_an_end() -> None:
    for status in RunStatus:
        told = Told(outline({"a": {}}))
        told.picture.add([Event(number=99, type=EventType.RUN_COMPLETED, time=START, data={"status": status})])
        assert told.picture.ended == (status in ENDED_RUN)
    assert Told(outline({"a": {}})).picture.tokens == Usage()
