"""Runs whose answers are checked: dependants get what was accepted, and the edges decide about the rest."""

from __future__ import annotations

import json
from io import StringIO

from conftest import Bench
from rich.console import Console

from domain.events import EventType
from domain.merit import record_of
from domain.models import RunStatus, TaskStatus
from domain.report import Report, TaskReport
from domain.reviewing import TITLE
from terminal.looking import task_of
from terminal.reviews import with_words, words_of_reviews
from terminal.show_task import show_task

PLAN = """
tasks:
  - id: list
    agent: hand
    prompt: Name three ports.
    schema:
      type: object
      properties: {ports: {type: array, items: {type: string}, minItems: 3}, why: {type: string}}
      required: [ports, why]
  - id: draft
    agent: hand
    needs: [list]
    prompt: "Write about {{ list.ports }}."
    review: {by: critic}
  - {id: print, agent: hand, needs: {draft: require}, prompt: Print it.}
agents:
  - {name: critic, version: "3", model: claude-opus-4-5, instructions: Be strict.}
"""


REJECTED = {"accept": False, "why": "Too short.\x1b[2J\nName a port."}


def task(report: Report, id: str) -> TaskReport:
    return next(task for task in report.tasks if task.id == id)


async def test_a_run_repairs_and_revises_before_anybody_uses_an_answer(crew: Bench) -> None:
    """All calls are told, counted and shown; the field that is placed is that of the repaired answer."""
    crew.simulator.script(
        [
            {"when": {"task": "list", "nth": 1}, "then": {"violates": True}},
            {"when": {"task": "draft", "asks": TITLE, "nth": 1}, "then": {"answer": json.dumps(REJECTED)}},
        ]
    )
    run = await crew.start(PLAN)

    report = await run.report()

    assert report.status is RunStatus.COMPLETED
    assert [entry.task for entry in crew.simulator.log] == ["list"] * 2 + ["draft"] * 4 + ["print"]
    assert report.tokens.input == sum(entry.billed.input for entry in crew.simulator.log)
    assert report.tokens.output == sum(entry.billed.output for entry in crew.simulator.log)
    reviews = [(review.by, review.accepted, review.number) for review in task(report, "draft").reviews]
    assert reviews == [("critic@3", False, 1), ("critic@3", True, 2)]
    events = await run.events()
    assert [event.data["accepted"] for event in events if event.type is EventType.REVIEW_GIVEN] == [False, True]
    assert sum(event.type is EventType.CALL_MADE for event in events) == 7
    picture = await crew.client.picture(run.id)
    assert '<field-of-result of="list.ports"' in await crew.client.brief(picture, "draft")
    (line,) = record_of(picture, None).lines
    assert (line.work.tasks, line.work.reviewed, line.work.accepted) == (3, 2, 1)
    console = Console(record=True, file=StringIO(), width=200)
    words = await words_of_reviews(crew.client, task(report, "draft"))
    show_task(console, task(report, "draft"), picture.planned["draft"], picture.inputs("draft"), "", reviews=words)
    shown = console.export_text()
    assert "critic@3 did not accept answer 1: Too short.[2J Name a port.\n" in shown, "no control characters"
    document = with_words(task_of(report, "draft"), words)
    assert [(review["accepted"], review["why"]) for review in document["reviews"]] == [
        (False, REJECTED["why"]),
        (True, words[1]),
    ]
    assert "reviews" not in with_words(task_of(report, "list"), [])
    assert "critic@3 accepted answer 2: [Simulated review] " in shown


async def test_the_edges_decide_what_becomes_of_a_rejected_answer(crew: Bench) -> None:
    """It fails, its text is kept for people, and whoever requires it is skipped."""
    crew.simulator.script([{"when": {"asks": TITLE}, "then": {"accepts": False}}])
    run = await crew.start(PLAN)

    report = await run.report()

    draft = task(report, "draft")
    assert (draft.status, draft.partial, draft.attempts) == (TaskStatus.FAILED, True, 1)
    assert draft.error is not None
    assert (draft.error.type, draft.error.message) == (
        "ReviewRejected",
        "critic@3 did not accept its answer, attempt 1 of 4",
    )
    assert task(report, "print").status is TaskStatus.SKIPPED
    assert report.tokens.output == sum(entry.billed.output for entry in crew.simulator.log)


async def test_an_answer_that_stays_invalid_fails_its_task_across_continue_as_new(crew: Bench) -> None:
    crew.simulator.script([{"when": {"task": "list"}, "then": {"violates": True}}])
    run = await crew.start(PLAN.replace("needs: [list]", "needs: {list: optional}"), continue_after=1)

    report = await run.report()

    error = task(report, "list").error
    assert error is not None
    assert error.message == "its answer is not as its schema says (the whole: required), attempt 1 of 4"
    assert (task(report, "list").status, task(report, "list").partial) == (TaskStatus.FAILED, True)
    assert report.status is RunStatus.DEGRADED
    assert '<missing-input of="list"' in await crew.client.brief(await crew.client.picture(run.id), "draft")
