"""Plans and runs made by chance: any plan, and any order in which the world may answer it."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, TypeVar

from hypothesis import strategies as st

from domain.course import Course
from domain.models import (
    Agent,
    Answered,
    Failed,
    Need,
    Outcome,
    Parked,
    Plan,
    Policy,
    Stopped,
    Task,
    TaskError,
    TaskStatus,
    Usage,
)
from domain.progress import Outline, OutlineTask, Progress
from domain.step import Step

T = TypeVar("T")
START = datetime(2026, 1, 1, tzinfo=UTC)
AGENTS = ("ant", "bee", "cat")
REF = f"sha256:{'0' * 64}"


class Draw(Protocol):
    """`data.draw`: a value by chance."""

    def __call__(self, strategy: st.SearchStrategy[T], /) -> T: ...


@st.composite
def outlines(draw: Draw, max_tasks: int = 10) -> Outline:
    """Any valid plan. Its order is not the order of its needs."""
    names = [f"t{number}" for number in range(draw(st.integers(1, max_tasks)))]
    tasks = [
        OutlineTask(
            id=name,
            agent=draw(st.sampled_from(AGENTS)),
            needs={
                need: draw(st.sampled_from(Policy))
                for need in draw(st.lists(st.sampled_from(names[:place]), max_size=3, unique=True) if place else NONE)
            },
            timeout=timedelta(seconds=30),
            attempts=4,
        )
        for place, name in enumerate(names)
    ]
    return Outline(
        max_concurrency=draw(st.integers(1, 6)),
        pools=draw(st.dictionaries(st.sampled_from(AGENTS), st.integers(1, 3))),
        tasks=tuple(draw(st.permutations(tasks))),
    )


NONE: st.SearchStrategy[list[str]] = st.just([])


def outline(
    needs: dict[str, dict[str, Policy]], *, max_concurrency: int = 100, agent: str = "ant", **pools: int
) -> Outline:
    """A plan written by hand: task, and its needs with their policies."""
    return Outline(
        max_concurrency=max_concurrency,
        pools=pools,
        tasks=tuple(
            OutlineTask(
                id=id,
                agent=agent,
                needs=needed,
                timeout=timedelta(seconds=30),
                attempts=4,
            )
            for id, needed in needs.items()
        ),
    )


def plan_of(outline: Outline) -> Plan:
    """A whole plan that has this outline."""
    agents = tuple(
        Agent(name=name, version="1", model="m", instructions="i", max_concurrency=outline.pools.get(name))
        for name in AGENTS
    )
    tasks = tuple(
        Task(
            id=task.id,
            agent=task.agent,
            prompt=("p",),
            needs=tuple(Need(task=need, policy=policy) for need, policy in task.needs.items()),
            timeout=task.timeout,
            attempts=task.attempts,
            max_tokens=1,
        )
        for task in outline.tasks
    )
    return Plan(name="plan", max_concurrency=outline.max_concurrency, agents=agents, tasks=tasks)


def answered(tokens: int = 1) -> Answered:
    return Answered(output_ref=REF, output_bytes=1, usage=Usage(input=tokens, output=2 * tokens), attempts=1)


def failed(status: Any = TaskStatus.FAILED) -> Failed:
    return Failed(status=status, error=TaskError(type="E", message="it broke", attempt=2), usage=Usage(input=1))


def outcomes(now: datetime) -> st.SearchStrategy[Outcome]:
    """Whatever a task at work may come to."""
    later = st.integers(-60, 7200).map(lambda seconds: now + timedelta(seconds=seconds))
    return st.one_of(
        st.integers(0, 5).map(answered),
        st.sampled_from([TaskStatus.FAILED, TaskStatus.TIMED_OUT]).map(failed),
        st.just(Stopped(why="the task was cancelled")),
        later.map(lambda until: Parked(why="wall", what="full", until=until)),
        st.just(Parked(why="wall", what="full")),
        st.just(Parked(why="pause", what="the run is paused")),
        st.just(Parked(why="worker", what="the worker is going down")),
    )


@dataclass(frozen=True)
class Moment:
    """One thing that happened in a run, and the step it made. `copy` is a copy of `given` from before the step."""

    kind: str
    given: Progress
    copy: Progress
    step: Step
    now: datetime
    id: str = ""
    outcome: Outcome | None = None


class Voyage:
    """A run in which chance decides what happens next, and then, for it must end, a world that answers everything."""

    def __init__(self, outline: Outline, draw: Draw, *, turns: int = 40) -> None:
        self.course = Course(outline)
        self.progress = Progress()
        self._outline, self._draw, self._turns = outline, draw, turns
        self._now = START

    def moments(self) -> Iterator[Moment]:
        """Everything that happens, in order; the last is `finish`."""
        yield self._take("begin", lambda: self.course.begin(self._now))
        for _ in range(self._draw(st.integers(0, self._turns))):
            if self.course.is_over(self.progress):
                break
            yield self._something()
        yield from self._until_over()
        yield self._take("finish", lambda: self.course.finish(self.progress, self._now))

    def _something(self) -> Moment:
        self._now += timedelta(seconds=self._draw(st.sampled_from([0, 0, 1, 59, 60, 900])))
        kind = self._draw(st.sampled_from(self._possible()))
        match kind:
            case "result":
                return self._result(self._draw(st.sampled_from(sorted(self.progress.active))))
            case "echo":
                idle = [task.id for task in self._outline.tasks if task.id not in self.progress.active]
                return self._result(self._draw(st.sampled_from(idle)), kind="echo")
            case "carry":
                return self._carry()
            case _:
                return self._take(kind, lambda: self._steering(kind))

    def _possible(self) -> list[str]:
        possible = ["launch"] * 4 + ["wake", "wake", "carry", "resume" if self.progress.paused else "pause"]
        possible += ["result"] * 8 if self.progress.active else []
        possible += ["echo"] if len(self.progress.active) < len(self._outline.tasks) else []
        return possible + (["cancel"] if not self.progress.cancelled else [])

    def _until_over(self) -> Iterator[Moment]:
        """Resume, start, answer, let time pass: now the run must come to its end."""
        for _ in range(10 + 10 * len(self._outline.tasks)):
            if self.course.is_over(self.progress):
                return
            if self.progress.paused:
                yield self._take("resume", lambda: self._steering("resume"))
            yield self._take("launch", lambda: self._steering("launch"))
            if self.progress.active:
                yield self._result(next(iter(self.progress.active)), outcome=answered())
            elif (wake := self.course.next_wake(self.progress)) is not None:
                self._now = max(self._now, wake)
                yield self._take("wake", lambda: self._steering("wake"))
        raise AssertionError(f"the run does not end: {self.progress!r}")

    def _steering(self, kind: str) -> Step:
        match kind:
            case "launch":
                return self.course.launch(self.progress, self._now)
            case "wake":
                return self.course.wake(self.progress, self._now)
            case "pause":
                return self.course.pause(self.progress, self._now, "someone")
            case "resume":
                return self.course.resume(self.progress, self._now, "someone")
            case _:
                return self.course.cancel(self.progress, self._now)

    def _result(self, id: str, *, kind: str = "result", outcome: Outcome | None = None) -> Moment:
        outcome = outcome or self._draw(outcomes(self._now))
        return self._take(kind, lambda: self.course.result(self.progress, id, outcome, self._now), id, outcome)

    def _carry(self) -> Moment:
        """Continue as new: a new course, and of the progress only what JSON carries."""
        self.course = Course(self._outline)
        return self._take("carry", lambda: Step(Progress.model_validate_json(self.progress.model_dump_json())))

    def _take(self, kind: str, make: Any, id: str = "", outcome: Outcome | None = None) -> Moment:
        given, copy = self.progress, deepcopy(self.progress)
        step: Step = make()
        self.progress = step.progress
        return Moment(kind, given, copy, step, self._now, id, outcome)
