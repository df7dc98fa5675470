"""One task before it has run: what its agent will read and answer, and how long that will take."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Generic, Literal, TypeVar

from pydantic import JsonValue

from domain.asking_again import corrections_of
from domain.briefing import INPUTS_LIMIT, Brief, brief_for
from domain.experience import NONE, Experience
from domain.models import Agent, Form, Input, Need, Placement, Plan, Task, TaskStatus
from domain.quota.terms import Terms
from domain.reviewing import reviews_of
from domain.summaries import SUMMARY_BYTES
from domain.values import Value

BYTES_PER_TOKEN = 4
"""Of English prose, more or less, and as the simulator counts."""

LOOSE, DENSE = 6, 2
"""Bytes of a token at most and at least: long plain words; code, figures and other scripts."""

ANSWERED = 0.5
"""The part of max_tokens that an answer uses when nothing is known of its agent: limits are set with room."""

SIMULATED_ANSWER = 110
"""Tokens of an answer of the simulator. It knows nothing of what it is asked, and says about the same to everything."""

SHORT = 3
"""How many times as long as a short answer the likely one is."""

FIRST_WORD, TOKENS_PER_SECOND = 0.6, 60
"""Seconds to the first word, the run's own steps among them, and the pace of an answer."""

REVIEWED = 100
"""Tokens of a review, more or less."""

T = TypeVar("T")
Level = Literal["low", "likely", "high"]
DENSITY: Mapping[Level, int] = {"low": LOOSE, "likely": BYTES_PER_TOKEN, "high": DENSE}

CarriedBytes = Callable[[Need], int]
"""How many bytes of a result an edge passes on at most."""


def as_passed(need: Need) -> int:
    """A result goes down whole, as far as a brief has room, as its summary, or by name alone."""
    return {Form.FULL: INPUTS_LIMIT, Form.SUMMARY: SUMMARY_BYTES, Form.NAME: 0, Form.ORDER: 0}[need.form]


class Spread(Value, Generic[T]):
    """At least, likely, and at most."""

    low: T
    likely: T
    high: T

    def at(self, level: Level) -> T:
        """One of the three."""
        return {"low": self.low, "likely": self.likely, "high": self.high}[level]


@dataclass(frozen=True)
class Outlook:
    """What is known beside the plan."""

    simulated: bool
    texts: Mapping[str, str]
    """The plan's files, by reference."""
    experience: Mapping[str, Experience]
    """What earlier runs have taught, by agent and version."""
    terms: Terms | None = None
    """What a minute allows."""
    carried: CarriedBytes = as_passed


@dataclass(frozen=True)
class Forecast:
    """One request of a task, and the time for its answer."""

    input: Spread[int]
    output: Spread[int]
    seconds: Spread[float]
    answers: int
    """How many earlier answers of its agent this rests on."""


def forecast_of(plan: Plan, task: Task, agent: Agent, needs: Mapping[str, Forecast], outlook: Outlook) -> Forecast:
    """What a task will use and take. `needs` has the forecasts of all that it needs."""
    known = outlook.experience.get(agent.label, NONE)
    guess = SIMULATED_ANSWER if outlook.simulated else ceil(task.max_tokens * ANSWERED)
    likely = max(1, min(known.output_of_one(guess), task.max_tokens))
    takes = round(known.seconds_of_one(FIRST_WORD + likely / TOKENS_PER_SECOND), 3)
    calls = 1 + corrections_of(task) + reviews_of(task)
    at_most = task.attempts * calls * task.timeout.total_seconds()
    takes += FIRST_WORD + REVIEWED / TOKENS_PER_SECOND if task.review is not None else 0
    return Forecast(
        input=_input(plan, task, needs, outlook),
        output=Spread[int](low=ceil(likely / SHORT), likely=likely, high=task.max_tokens),
        seconds=Spread[float](low=round(takes / SHORT, 3), likely=min(takes, at_most), high=at_most),
        answers=known.answers,
    )


def _input(plan: Plan, task: Task, needs: Mapping[str, Forecast], outlook: Outlook) -> Spread[int]:
    """Tokens of one request: the brief as it would be without results, and what its needs will have answered."""
    inputs = tuple(
        Input(task=need.task, status=TaskStatus.SUCCEEDED, ref=None if need.form is Form.NAME else need.task)
        for need in task.told_of
    )
    brief = brief_for(plan, task, inputs, {**outlook.texts, **{need.task: "" for need in task.needs}})
    frame = _size(brief)
    places = Counter(id for part in task.prompt if isinstance(part, Placement) for id in part.tasks)

    def tokens(level: Level) -> int:
        density = DENSITY[level]
        carried = (
            min(needs[need.task].output.at(level), outlook.carried(need) // density)
            * max(1, places[need.task])  # once for every place in the prompt
            for need in task.needs
        )
        # A result has as many tokens as its answer had, wherever it is read again.
        return ceil(frame / density) + min(sum(carried), INPUTS_LIMIT // density)

    return Spread[int](low=tokens("low"), likely=tokens("likely"), high=tokens("high"))


def _size(brief: Brief) -> int:
    """Bytes that the model reads."""
    texts = [brief.system, *(text for block in brief.content for text in _texts(block))]
    schema = json.dumps(brief.schema_) if brief.schema_ else ""
    return sum(len(text.encode()) for text in (*texts, schema))


def _texts(block: Mapping[str, JsonValue]) -> list[str]:
    match block:
        case {"type": "document", "title": str(title), "context": str(context), "source": {"data": str(data)}}:
            return [title, context, data]
        case {"text": str(text)}:
            return [text]
    return []
