"""A run that comes to a limit of the server: it is told as what it is, not as somebody's wish."""

from __future__ import annotations

import pytest
from conftest import Bench
from test_crashes import Home
from test_crashes import home as home  # noqa: PLC0414  a fixture of that file

import temporal_server
from domain.models import RunStatus, TaskStatus

FEW_EVENTS = "limit.historyCount.error=150"


async def test_a_run_that_the_server_ends_for_its_history_has_failed_and_says_why(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Continuing as new keeps every run far from this limit, so the limit has to come to the run."""
    options = temporal_server.SERVER_OPTIONS
    monkeypatch.setattr(temporal_server, "SERVER_OPTIONS", (*options, "--dynamic-config-value", FEW_EVENTS))
    await home.up()
    items = ", ".join(map(str, range(60)))
    run = await home.submit(
        f"max_concurrency: 4\ndefaults: {{agent: hand}}\ntasks: [{{id: t, for_each: [{items}], prompt: Go.}}]"
    )

    report = await run.report()

    assert report.status is RunStatus.FAILED
    assert 0 < report.census.succeeded < 60
    unfinished = [task for task in report.tasks if task.status is not TaskStatus.SUCCEEDED]
    assert {task.status for task in unfinished} <= {TaskStatus.CANCELLED, TaskStatus.NOT_STARTED}
    assert {task.error.message for task in unfinished if task.error} == {
        "Temporal itself terminated the run: Workflow history count exceeds limit."
    }


async def test_what_a_person_gave_as_the_reason_of_a_terminate_is_told(crew: Bench) -> None:
    crew.simulator.script([{"then": {"fault": "hang_before_headers"}}])
    run = await crew.start("tasks: [{id: a, agent: hand, prompt: Go.}]")
    await crew.simulator.until(lambda: crew.simulator.in_flight == 1)
    await run.handle.terminate(reason="we moved out")

    picture = await run.until(lambda picture: picture.tasks["a"].error is not None)

    error = picture.tasks["a"].error
    assert picture.status is RunStatus.CANCELLED
    assert error is not None
    assert error.message == "the run was terminated: we moved out"
