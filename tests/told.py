"""A run by hand: its steps, and the picture that its events make."""

from __future__ import annotations

from typing import Any

from plans import START, plan_of

from domain.course import Course
from domain.picture import Picture
from domain.progress import Outline, Progress
from domain.step import Step


class ToldRun:
    """Takes steps at a time that the test moves."""

    def __init__(self, outline: Outline, run: str = "run") -> None:
        self.course = Course(outline)
        self.picture = Picture(run, plan_of(outline), simulated=True)
        self.progress = Progress()
        self.now = START
        self.take(self.course.begin(self.now))

    def take(self, step: Step) -> None:
        self.progress = step.progress
        self.picture.add(step.events)

    def launch(self) -> None:
        self.take(self.course.launch(self.progress, self.now))

    def result(self, id: str, outcome: Any) -> None:
        self.take(self.course.result(self.progress, id, outcome, self.now))
