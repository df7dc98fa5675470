"""The report, folded from events: it says what the course says, at every moment of any run."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import REF, START, Voyage, answered, failed, in_vain, outline, outlines, plan_of
from test_purse import priced
from told import ToldRun

from domain import barriers
from domain.events import Event, EventType, from_envelope, to_envelope
from domain.models import (
    ENDED_RUN,
    Account,
    Approval,
    Pace,
    Parked,
    Policy,
    RunStatus,
    Spent,
    Stopped,
    TaskStatus,
    Usage,
)
from domain.outlook import waits_of
from domain.picture import Picture
from domain.progress import Outline
from domain.requests import Requests
from domain.steering import Setting, Steering, TaskSteering
from domain.step import Step

REQUIRE = Policy.REQUIRE


def wall(kind: Any, until: datetime | None, tries: Any = ()) -> Parked:
    return Parked(why="wall", what="full", wall=kind, until=until, tries=tries)


class Told(ToldRun):
    """A run by hand, and the document that its events make. Every step takes a second."""

    def take(self, step: Step) -> None:
        super().take(step)
        self.now += timedelta(seconds=1)

    def ask(self, verb: str, *tasks: str, **more: Any) -> None:
        asked: Any = {"set": Setting, "pause": Steering, "resume": Steering}.get(verb, TaskSteering)
        given = {"tasks": tasks} if tasks else {}
        request = getattr(Requests(self.course.chart), verb)
        self.take(request(self.progress, asked(by="ann", **given, **more), self.now))

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
        waits = waits_of(course.chart, progress)
        for id, seen in picture.tasks.items():
            wait = picture.wait(id, moment.now)
            if id in moment.step.starts:
                assert picture.inputs(id) == course.inputs(progress, id)
            if id in waits:  # what the query of the run answers
                assert wait is not None
                assert (waits[id].reason, waits[id].since) == (wait.reason, wait.since), id
            if seen.ended is None and seen.status is not TaskStatus.RUNNING and not course.is_over(progress):
                assert wait is not None, f"{id} does not say what it waits for"
                assert wait.since is not None

    report = picture.report({}, now=moment.now)
    heading, kept = picture.closing(moment.now)
    assert json.loads(kept) == report.document()
    assert heading == report.model_copy(update={"tasks": ()})
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
    """What is not built yet is not there."""
    told = Told(outline({"a": {}}))
    told.launch()
    told.result("a", answered())
    told.finish()

    document = told.document()

    assert list(document) == [
        *("schema", "run", "name", "status", "simulated", "provider", "census", "started", "finished", "duration_s"),
        *("cost", "tokens", "unsettled", "concurrency", "reuse", "plans", "attention", "tasks", "outputs", "output"),
    ]
    assert list(document["census"]) == [
        *("total", "succeeded", "failed", "timed_out", "skipped", "cancelled", "not_started"),
        *("pending", "ready", "waiting", "running"),
    ]
    assert list(document["tokens"]) == ["input", "output", "cache_read", "cache_write"]
    assert list(document["concurrency"]) == ["max", "peak", "mode", "wave", "speedup", "serial", "suggested"]
    assert list(document["tasks"][0]) == [
        *("id", "agent", "type", "status", "success", "attempts", "timeout_s", "duration_s", "tokens"),
        *("unsettled", "cost_usd", "estimate_usd", "retries_usd", "unsettled_usd", "savings"),
        *("wait", "progress", "error", "tries", "cause", "approval", "partial", "batched", "output", "output_ref"),
        "summary",
        *("reused", "saved", "refused"),
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
    assert document["concurrency"] == {
        "max": 3,
        "peak": 1,
        "mode": "window",
        "wave": None,
        "speedup": 0.4,
        "serial": {
            "critical_path_s": 2.0,
            "quota_wait_s": 0.0,
            "slot_wait_s": 2.0,
            "person_wait_s": 0.0,
            "other_s": 1.0,
        },
        "suggested": 1,
    }
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
        "unsettled": {"input": 0, "output": 0, "cache_read": 0, "cache_write": 0},
        "cost_usd": None,
        "estimate_usd": None,
        "retries_usd": None,
        "unsettled_usd": None,
        "savings": None,
        "wait": None,
        "progress": None,
        "error": None,
        "tries": [],
        "cause": None,
        "approval": None,
        "partial": False,
        "batched": False,
        "output": "The text.",
        "output_ref": REF,
        "summary": None,
        "reused": None,
        "saved": None,
        "refused": [],
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
    told.ask("pause")

    assert told.document()["status"] == "PAUSED"
    assert told.tasks()["a"]["wait"]["for"] == "pause"
    told.ask("resume")
    assert told.document()["status"] == "RUNNING"
    assert told.tasks()["a"]["wait"]["for"] == "slot"


def test_a_run_with_nothing_at_work_but_a_wall_is_waiting() -> None:
    told = Told(outline({"a": {}, "b": {"a": REQUIRE}}))
    told.launch()
    told.result("a", Parked(why="wall", what="full"))

    assert told.document()["status"] == "WAITING"


def test_a_task_that_may_start_but_whose_agent_is_busy_waits_for_it() -> None:
    told = Told(outline({"a": {}, "b": {}}, ant=1))
    told.launch()

    assert told.tasks()["b"]["wait"]["for"] == "pool"
    assert told.tasks()["b"]["wait"]["what"] == "ant, which does 1 at once"


def test_a_wall_holds_what_has_met_it_and_what_would() -> None:
    """Both say what for and until when; when the provider moves its end, both say so."""
    told = Told(outline({"met": {}, "next": {}}, max_concurrency=1))
    told.launch()
    told.result("met", wall("spend", START + timedelta(hours=1)))

    waits = {id: task["wait"] for id, task in told.tasks().items()}

    assert (waits["met"]["for"], waits["next"]["for"]) == ("wall", "wall")
    assert waits["next"]["what"] == "full"
    assert waits["met"]["until"] == waits["next"]["until"] == "2026-01-01T01:00:00.000Z"
    assert (told.tasks()["next"]["status"], told.document()["status"]) == ("READY", "WAITING")
    moved: dict[str, Any] = {
        "model": None,
        "kind": "spend",
        "what": "still",
        "until": "2026-01-01T02:00:00.000Z",
        "told": True,
    }
    told.picture.add([Event(number=told.picture.last + 1, type=EventType.QUOTA_WALL, time=told.now, data=moved)])
    assert {told.tasks()[id]["wait"]["until"] for id in ("met", "next")} == {"2026-01-01T02:00:00.000Z"}


def test_a_wall_before_one_model_stops_no_other() -> None:
    made = outline({"met": {}, "next": {}}, max_concurrency=1)
    other = made.tasks[1].model_copy(update={"agent": "bee"})
    models = {"ant": "small", "bee": "large"}
    told = Told(made.model_copy(update={"tasks": (made.tasks[0], other), "models": models}))
    told.launch()

    told.result("met", wall("rate", START + timedelta(hours=1)))

    assert [told.tasks()[id]["wait"]["for"] for id in ("met", "next")] == ["wall", "slot"]
    assert told.document()["status"] == "RUNNING"


def test_a_run_goes_on_when_its_wall_has_fallen() -> None:
    told = Told(outline({"a": {}}))
    told.launch()
    told.result("a", wall("spend", told.now))
    told.now += barriers.LEAST

    told.take(told.course.wake(told.progress, told.now))

    assert (told.picture.walls, told.document()["status"]) == ({}, "RUNNING")
    assert told.tasks()["a"]["wait"]["for"] == "slot"


def test_in_waves_a_ready_task_waits_for_the_end_of_the_present_one() -> None:
    waves = outline({"a": {}, "b": {}}, max_concurrency=1).model_copy(update={"mode": Pace.WAVES})
    told = Told(waves)
    told.launch()

    wait = told.tasks()["b"]["wait"]
    assert (wait["for"], wait["what"]) == ("slot", "the end of wave 1")
    concurrency = told.document()["concurrency"]
    assert [concurrency[key] for key in ("max", "peak", "mode", "wave")] == [1, 1, "waves", 1]


def test_a_change_of_the_places_is_in_the_document() -> None:
    told = Told(outline({"a": {}}, max_concurrency=2))

    told.ask("set", max_concurrency=7)

    assert told.document()["concurrency"]["max"] == 7


# --- people ---


def asking(needs: dict[str, dict[str, Policy]], *tasks: str, **approval: Any) -> Outline:
    """A plan in which these tasks must be approved."""
    made = outline(needs)
    asked = [
        task.model_copy(update={"approval": Approval(**approval)}) if task.id in tasks else task for task in made.tasks
    ]
    return made.model_copy(update={"tasks": tuple(asked)})


def test_a_task_that_waits_for_a_person_says_what_is_asked_and_until_when() -> None:
    told = Told(asking({"a": {}, "b": {}}, "a", ask="Shall we?", expires=timedelta(hours=1)))

    assert told.tasks()["a"]["wait"] == {
        "for": "approval",
        "what": "Shall we?",
        "since": "2026-01-01T00:00:00.000Z",
        "until": "2026-01-01T01:00:00.000Z",
    }
    assert told.document()["status"] == "RUNNING", "the other one can start"
    told.launch()
    told.result("b", answered())
    assert told.document()["status"] == "WAITING"


@pytest.mark.parametrize(
    ("verb", "answer", "status"), [("approve", "approved", "READY"), ("reject", "rejected", "SKIPPED")]
)
def test_the_answer_of_a_person_is_kept_with_its_words(verb: str, answer: str, status: str) -> None:
    told = Told(asking({"a": {}}, "a"))

    told.ask(verb, "a", note="mind the tone")

    task = told.tasks()["a"]
    assert task["status"] == status
    assert task["approval"] == {
        "answer": answer,
        "by": "ann",
        "note": "mind the tone",
        "at": "2026-01-01T00:00:01.000Z",
    }


def test_a_task_that_is_done_again_counts_as_before_its_end_and_keeps_its_bill() -> None:
    """How it ended becomes one more attempt in vain; what was skipped because of it waits again."""
    told = Told(outline({"a": {}, "b": {"a": REQUIRE}, "c": {}}))
    told.launch()
    told.result("a", failed())
    assert told.picture.census.skipped == 1

    told.ask("retry", "a")

    tasks = told.tasks()
    assert (tasks["a"]["status"], tasks["b"]["status"]) == ("READY", "PENDING")
    assert (tasks["a"]["error"], tasks["a"]["attempts"], tasks["a"]["duration_s"]) == (None, 0, None)
    assert [(attempt["attempt"], attempt["error"]["message"]) for attempt in tasks["a"]["tries"]] == [(2, "it broke")]
    assert tasks["b"]["wait"]["what"] == "a"
    assert (tasks["b"]["error"], tasks["b"]["cause"]) == (None, None)
    assert tasks["a"]["tokens"]["input"] == 1
    told.launch()
    told.result("a", answered())
    assert told.tasks()["a"]["tokens"]["input"] == told.picture.tokens.input == 2


def test_what_a_task_was_told_stays_what_it_was_told() -> None:
    """Also when a need of it is done again, and comes to something else; if it starts again, it is told that."""
    told = Told(outline({"a": {}, "b": {"a": Policy.OPTIONAL}, "c": {}}))
    told.launch()
    told.result("a", failed())
    told.launch()
    given = told.course.inputs(told.progress, "b")
    told.result("b", failed())

    told.ask("retry", "a")
    assert told.picture.inputs("b") == given
    told.launch()
    told.result("a", answered())
    assert told.picture.inputs("b") == given
    assert [input.status for input in given] == [TaskStatus.FAILED]

    told.ask("retry", "b")
    told.launch()
    assert told.picture.inputs("b") == told.course.inputs(told.progress, "b") != given


def test_every_attempt_in_vain_is_told_and_billed_once() -> None:
    """Two before a wall, one after it: their tokens and what they may have cost on top are in the sums."""
    told = Told(outline({"a": {}}))
    told.launch()
    told.result("a", wall("rate", told.now, tries=in_vain(2)))
    told.now += barriers.LEAST
    told.take(told.course.wake(told.progress, told.now))
    told.launch()
    told.result("a", failed(tries=in_vain(1)))

    task = told.tasks()["a"]

    assert len(task["tries"]) == 3
    assert (task["tokens"]["input"], task["unsettled"]["output"]) == (3 * 3 + 1, 3 * 5 + 7)
    assert told.picture.tokens.input == 10
    assert told.picture.unsettled.output == 22


def test_what_there_is_of_an_answer_that_failed_is_partial_and_no_result() -> None:
    told = Told(outline({"a": {}}))
    told.launch()
    told.result("a", failed().model_copy(update={"output_ref": REF, "output_bytes": 9}))
    told.finish()

    document = told.document({REF: "Half a"})

    assert (document["tasks"][0]["partial"], document["tasks"][0]["output"]) == (True, "Half a")
    assert (document["outputs"], document["output"]) == ({"a": None}, None)


# --- attention ---


def attention(told: Told) -> list[tuple[str, str | None, str]]:
    return [(found["kind"], found["task"], found["do"]) for found in told.document()["attention"]]


def test_while_it_goes_a_run_asks_for_answers_and_tells_what_failed() -> None:
    told = Told(asking({"publish[a b]": {}, "bad": {}}, "publish[a b]", ask="Shall we?"))
    told.launch()
    told.result("bad", failed())

    assert attention(told) == [
        ("approval", "publish[a b]", "approve run 'publish[a b]'"),
        ("failure", "bad", "retry run bad"),
    ]
    assert [found["what"] for found in told.document()["attention"]] == ["Shall we?", "it broke"]
    assert [found["since"] for found in told.document()["attention"]] == [
        "2026-01-01T00:00:00.000Z",
        "2026-01-01T00:00:02.000Z",
    ]


@pytest.mark.parametrize(
    ("kind", "asked"),
    [
        ("key", [("key", None, "set a key that is accepted, then up, then retry run")]),
        ("spend", [("budget", None, "raise the spend limit at the provider, then retry run")]),
        ("model", [("key", None, "find out from the provider what became of m, then retry run")]),
        ("rate", []),
        ("overload", []),
        ("unreachable", []),
    ],
)
def test_a_wall_asks_for_attention_when_somebody_must_mend_it(kind: Any, asked: list[Any]) -> None:
    told = Told(outline({"first": {}, "a": {}}).model_copy(update={"models": {"ant": "m"}}))
    told.launch()
    told.result("first", answered())  # the key has worked before
    told.result("a", wall(kind, None))

    assert attention(told) == asked


def test_after_its_end_a_run_says_where_to_look() -> None:
    told = Told(outline({"a": {}, "b": {"a": REQUIRE}}))
    told.launch()
    told.result("a", failed())
    told.finish()

    assert attention(told) == [("failure", "a", "status run a")]


@pytest.mark.parametrize("outcome", [answered(), Stopped(why="the run was cancelled")])
def test_a_run_that_went_well_or_was_cancelled_asks_for_nothing(outcome: Any) -> None:
    told = Told(outline({"a": {}}))
    told.launch()
    if isinstance(outcome, Stopped):
        told.take(told.course.cancel(told.progress, told.now))
    told.result("a", outcome)
    told.finish()

    assert attention(told) == []


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


def test_the_ledger_is_asked_of_what_may_be_untold() -> None:
    """Of tasks that are open, and of those that ended by another's word and were not looked up since."""
    told = Told(outline({id: {} for id in ("open", "done", "cut", "settled")}))
    told.launch()
    told.result("done", answered())
    cut: dict[str, Any] = {"status": TaskStatus.CANCELLED, "attempts": 0}
    settled: dict[str, Any] = {"tokens": {}, "unsettled": {}, "cost_usd": "0", "unsettled_usd": "0"}
    course = [
        ("cut", EventType.TASK_FAILED, cut),
        ("settled", EventType.TASK_FAILED, cut),
        ("settled", EventType.TASK_SETTLED, settled),
    ]
    for task, type, data in course:
        number = told.picture.last + 1
        told.picture.add([Event(number=number, type=type, time=told.now, task=task, data=data)])

    assert told.picture.untold == ["open", "cut"]


def with_money(*ids: str) -> Told:
    """Tasks of a run that sets money aside, at work."""
    told = Told(priced(outline({id: {} for id in ids}), None))
    told.launch()
    return told


def test_the_ledger_is_asked_of_a_failure_that_did_not_tell_all_its_calls() -> None:
    """As when a worker was lost, and the run was terminated before the ledger had answered. Of others it is not asked.

    What a large run has cost is read at every look at it.
    """
    told = with_money("refused", "lost")
    told.result("refused", failed().model_copy(update={"accounted": True}))
    told.result("lost", failed().model_copy(update={"usage": Usage(), "unsettled": Usage()}))
    assert told.picture.untold == ["lost"]

    calls = tuple(Spent(model="model-ant", unsettled=Usage(output=50)) for _ in range(4))
    ledger = {"lost": Account(calls=calls, attempts=4)}
    told.picture.close_from_outside(RunStatus.CANCELLED, told.now, "the run was terminated", ledger)
    once = told.document()
    told.picture.hear_the_ledger(ledger)

    lost = told.tasks()["lost"]
    assert (lost["status"], lost["attempts"], lost["unsettled"]["output"]) == ("FAILED", 4, 200)
    assert told.document() == once


def test_a_failure_of_which_the_ledger_was_heard_is_told() -> None:
    told = with_money("lost")
    told.result("lost", failed())
    (owed,) = told.progress.owing

    told.take(told.course.settled(told.progress, owed, Account(), told.now))

    assert told.picture.untold == []


@pytest.mark.parametrize(
    ("later", "heard"),
    [
        (Spent(model="model-ant", usage=Usage(output=100)), (100, 0)),
        (Spent(model="model-ant", usage=Usage(output=1000)), (1000, 0)),
        (Spent(model="model-ant"), (0, 0)),
    ],
    ids=["answered", "answered at its worst", "called off"],
)
def test_a_better_word_of_the_ledger_takes_the_place_of_the_worst_case(later: Spent, heard: tuple[int, int]) -> None:
    """A request in a batch is open for up to a day after its run was terminated."""
    told = with_money("a")
    worst = Account(calls=(Spent(model="model-ant", unsettled=Usage(output=1000)),), attempts=1)
    told.picture.close_from_outside(RunStatus.CANCELLED, told.now, "the run was terminated", {"a": worst})
    assert told.tasks()["a"]["unsettled"]["output"] == 1000

    for _ in range(2):
        told.picture.hear_the_ledger({"a": Account(calls=(later,), attempts=1)})

    found = told.tasks()["a"]
    assert (found["tokens"]["output"], found["unsettled"]["output"]) == heard


def test_an_entry_that_is_damaged_takes_nothing_back() -> None:
    told = with_money("a")
    used = Account(calls=(Spent(model="model-ant", usage=Usage(output=100)),), attempts=1)
    told.picture.close_from_outside(RunStatus.CANCELLED, told.now, "the run was terminated", {"a": used})

    told.picture.hear_the_ledger({"a": Account()})

    assert told.tasks()["a"]["tokens"]["output"] == 100


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
