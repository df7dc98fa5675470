"""Which events are asked for: by type, source, run, subject, correlation id and time."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from plans import START

from domain.event_filter import EVERYTHING, Wanted, fits
from domain.events import Event, EventType, Logged

FAILED = Logged(
    "night-r2",
    Event(number=7, type=EventType.TASK_FAILED, time=START, task="scan[a*]"),
    correlation="night",
    source="/nightcrew/supervisor",
)
ENDED = Logged("night", Event(number=9, type=EventType.RUN_COMPLETED, time=START), correlation="night")
NEWER = Logged("night", Event(number=9, type="moon.rose", time=START), correlation="night")


@pytest.mark.parametrize(
    ("asked", "takes"),
    [
        ({}, True),
        ({"types": ["task.failed"]}, True),
        ({"types": ["task."]}, True),
        ({"types": ["*.failed"]}, True),
        ({"types": ["run.", "task.failed"]}, True),
        ({"types": ["task"]}, False),
        ({"types": ["task.fail"]}, False),
        ({"types": ["run."]}, False),
        ({"sources": ["/nightcrew/supervisor"]}, True),
        ({"sources": ["/nightcrew/*"]}, True),
        ({"sources": ["/nightcrew"]}, False),
        ({"runs": ["night-r2"]}, True),
        ({"runs": ["day", "night-*"]}, True),
        ({"runs": ["night"]}, False),
        ({"subjects": ["night-r2/scan[a*]"]}, True),
        ({"subjects": ["night-r2/scan[??]"]}, True),
        ({"subjects": ["*/scan*"]}, True),
        ({"subjects": ["night-r2"]}, False),
        ({"subjects": ["night-r2/scan"]}, False),
        ({"correlations": ["night"]}, True),
        ({"correlations": ["night-r2"]}, False),
        ({"since": START}, True),
        ({"since": START + timedelta(seconds=1)}, False),
        ({"types": ["task."], "runs": ["night-r2"], "correlations": ["night"], "since": START}, True),
        ({"types": ["task."], "runs": ["day"]}, False),
        ({"types": ["run."], "runs": ["night-r2"]}, False),
    ],
)
def test_an_event_is_taken_when_one_word_of_each_kind_fits(asked: dict[str, Any], takes: bool) -> None:
    assert Wanted(**asked).takes(FAILED) is takes


def test_an_event_of_the_run_itself_has_the_run_as_its_subject() -> None:
    assert Wanted(subjects=["night"]).takes(ENDED)
    assert not Wanted(subjects=["night/*"]).takes(ENDED)


def test_a_type_that_is_not_known_here_can_be_asked_for() -> None:
    assert EVERYTHING.takes(NEWER)
    assert Wanted(types=["moon."]).takes(NEWER)
    assert not Wanted(types=["task."]).takes(NEWER)


@pytest.mark.parametrize(
    ("asked", "concerned"),
    [
        ({}, True),
        ({"runs": ["night"]}, True),
        ({"runs": ["n*"]}, True),
        ({"runs": ["day"]}, False),
        ({"subjects": ["night"]}, True),
        ({"subjects": ["night/scan"]}, True),
        ({"subjects": ["night/sc*"]}, True),
        ({"subjects": ["nig*"]}, True),
        ({"subjects": ["*/scan"]}, True),
        ({"subjects": ["nightly/*"]}, False),
        ({"subjects": ["night-r2/scan"]}, False),
        ({"subjects": ["day*"]}, False),
        ({"subjects": ["day", "night/scan"]}, True),
        ({"runs": ["night"], "subjects": ["day/scan"]}, False),
    ],
)
def test_a_run_of_which_nothing_is_asked_for_need_not_be_read(asked: dict[str, Any], concerned: bool) -> None:
    assert Wanted(**asked).concerns("night") is concerned


@pytest.mark.parametrize(("correlation", "concerned"), [("night", True), ("night-r2", True), ("day", False)])
def test_a_retry_is_concerned_by_its_family_and_one_of_before_by_itself(correlation: str, concerned: bool) -> None:
    assert Wanted(correlations=[correlation]).concerns_family("night-r2", "night") is concerned


def test_brackets_are_brackets() -> None:
    assert fits("scan[a]", "scan[a]")
    assert not fits("scana", "scan[a]")
