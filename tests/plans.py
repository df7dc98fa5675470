"""Plans and runs made by chance: any plan, and any order in which the world may answer it."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, TypeVar

from hypothesis import strategies as st
from pydantic import TypeAdapter

from domain.carrying import COLUMNS_FROM, Carried, packed, unpacked
from domain.course import Course
from domain.models import (
    Agent,
    Answered,
    Approval,
    Deadline,
    Failed,
    Form,
    Need,
    Outcome,
    Pace,
    Parked,
    Plan,
    Policy,
    Priority,
    Spent,
    Stopped,
    Task,
    TaskError,
    TaskStatus,
    Try,
    Usage,
    WallKind,
)
from domain.progress import Outline, OutlineTask, Progress
from domain.requests import Refused, Requests
from domain.steering import Setting, Steering, TaskSteering
from domain.step import Step

T = TypeVar("T")
START = datetime(2026, 1, 1, tzinfo=UTC)
AGENTS = ("ant", "bee", "cat")
REF = f"sha256:{'0' * 64}"
SUMMARY = f"sha256:{'1' * 64}"
CARRIED: TypeAdapter[Progress | Carried] = TypeAdapter(Progress | Carried)


class Draw(Protocol):
    """`data.draw`: a value by chance."""

    def __call__(self, strategy: st.SearchStrategy[T], /) -> T: ...


WALLS: tuple[WallKind, ...] = ("rate", "spend", "key", "model", "unreachable", "overload")
BY = Steering(by="someone")


@st.composite
def outlines(draw: Draw, max_tasks: int = 10) -> Outline:
    """Any valid plan. Its order is not the order of its needs."""
    names = [f"t{number}" for number in range(draw(st.integers(1, max_tasks)))]
    tasks = [draw(tasks_of(name, names[:place])) for place, name in enumerate(names)]
    return Outline(
        max_concurrency=draw(st.integers(1, 6)),
        mode=draw(st.sampled_from([Pace.WINDOW, Pace.WINDOW, Pace.WAVES])),
        deadline=draw(seldom(deadlines())),
        by_urgency=True,
        pools=draw(st.dictionaries(st.sampled_from(AGENTS), st.integers(1, 3))),
        models={agent: f"model-{agent}" for agent in AGENTS[:2]} | {AGENTS[2]: f"model-{AGENTS[0]}"},
        tasks=tuple(draw(st.permutations(tasks))),
    )


@st.composite
def tasks_of(draw: Draw, name: str, before: list[str]) -> OutlineTask:
    """Any task that may need those before it."""
    needs = {
        need: draw(st.sampled_from(Policy))
        for need in draw(st.lists(st.sampled_from(before), max_size=3, unique=True) if before else NONE)
    }
    optional = sum(policy is Policy.OPTIONAL for policy in needs.values())
    return OutlineTask(
        id=name,
        summaries=tuple(needs)[: draw(st.integers(0, 2))],
        agent=draw(st.sampled_from(AGENTS)),
        needs=needs,
        quorum=draw(seldom(st.integers(1, optional))) if optional else None,
        approval=draw(seldom(approvals())),
        priority=draw(st.sampled_from(Priority)),
        deadline=draw(seldom(deadlines())),
        timeout=timedelta(seconds=draw(st.sampled_from([10, 30, 60]))),
        time_limit=draw(seldom(st.sampled_from([timedelta(minutes=1), timedelta(hours=1)]))),
        attempts=4,
        max_tokens=1,
    )


def seldom(strategy: st.SearchStrategy[T]) -> st.SearchStrategy[T | None]:
    """Most often nothing."""
    nothing: st.SearchStrategy[T | None] = st.none()
    return st.integers(0, 4).flatmap(lambda chance: strategy if chance == 0 else nothing)


def deadlines() -> st.SearchStrategy[Deadline]:
    """From the start of the run, or as a time."""
    lengths = st.sampled_from([timedelta(seconds=30), timedelta(minutes=10), timedelta(hours=2)])
    return st.one_of(lengths, lengths.map(lambda length: START + length))


def approvals() -> st.SearchStrategy[Approval]:
    return st.builds(
        Approval,
        ask=st.sampled_from([None, "Shall we?"]),
        expires=st.sampled_from([None, timedelta(minutes=5), timedelta(hours=1)]),
        on_expiry=st.sampled_from(["reject", "approve"]),
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
        Agent(
            name=name,
            version="1",
            model=outline.models.get(name, "m"),
            instructions="i",
            max_concurrency=outline.pools.get(name),
        )
        for name in AGENTS
    )
    tasks = tuple(
        Task(
            id=task.id,
            agent=task.agent,
            prompt=("p",),
            needs=tuple(
                Need(task=need, policy=policy, form=Form.SUMMARY if need in task.summaries else Form.FULL)
                for need, policy in task.needs.items()
            ),
            quorum=task.quorum,
            approval=task.approval,
            priority=task.priority,
            deadline=task.deadline,
            timeout=task.timeout,
            time_limit=task.time_limit,
            attempts=task.attempts,
            max_tokens=1,
        )
        for task in outline.tasks
    )
    return Plan(
        name="plan",
        max_concurrency=outline.max_concurrency,
        mode=outline.mode,
        deadline=outline.deadline,
        agents=agents,
        tasks=tasks,
    )


def answered(tokens: int = 1, tries: tuple[Try, ...] = (), waited_s: float = 0.0) -> Answered:
    usage = Usage(input=tokens, output=2 * tokens)
    attempts = 1 + len(tries)
    return Answered(output_ref=REF, output_bytes=1, usage=usage, attempts=attempts, tries=tries, waited_s=waited_s)


def summed_up(by_another: int = 0) -> Answered:
    """An answer with a summary, for which so many calls were made beside that of the agent."""
    aside = (Spent(model="cheap", usage=Usage(input=5, output=7)),) * by_another
    more = {"output_bytes": 9000, "summary_ref": SUMMARY, "summary_bytes": 500, "aside": aside}
    return answered().model_copy(update=more)


def failed(status: Any = TaskStatus.FAILED, tries: tuple[Try, ...] = (), waited_s: float = 0.0) -> Failed:
    error = TaskError(type="E", message="it broke", attempt=2)
    usage, unsettled = Usage(input=1), Usage(output=7)
    return Failed(status=status, error=error, usage=usage, unsettled=unsettled, tries=tries, waited_s=waited_s)


def in_vain(count: int) -> tuple[Try, ...]:
    """Attempts that brought nothing, and cost something."""
    error = TaskError(type="E", message="it broke", retryable=True)
    return tuple(
        Try(attempt=number, error=error, at=START, usage=Usage(input=3), unsettled=Usage(output=5))
        for number in range(1, count + 1)
    )


def outcomes(now: datetime) -> st.SearchStrategy[Outcome]:
    """Whatever a task at work may come to."""
    later = st.integers(-60, 7200).map(lambda seconds: now + timedelta(seconds=seconds))
    tries = st.integers(0, 2).map(in_vain)
    waited = st.sampled_from([0.0, 0.0, 0.5, 100.0])
    return st.one_of(
        st.builds(answered, st.integers(0, 5), tries, waited),
        st.builds(summed_up, st.integers(0, 1)),
        st.builds(failed, st.sampled_from([TaskStatus.FAILED, TaskStatus.TIMED_OUT]), tries, waited),
        st.just(Stopped(why="the task was cancelled")),
        st.builds(Parked, why=st.just("wall"), what=st.just("full"), wall=st.sampled_from(WALLS), until=later),
        st.builds(Parked, why=st.just("wall"), what=st.just("full"), wall=st.sampled_from(WALLS), tries=tries),
        st.builds(Parked, why=st.just("wall"), what=st.just("for its summary: full"), until=later | st.none()),
        st.just(Parked(why="pause", what="the run is paused")),
        st.just(Parked(why="worker", what="the worker is going down")),
        later.map(lambda until: Parked(why="worker", what="another store", until=until)),
        later.map(lambda until: Parked(why="batch", what="a batch", until=until)),
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
    asked: Steering = BY


VERBS = ("pause", "resume", "set", "approve", "reject", "skip", "retry")


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
            case "launch":
                unconfirmed = self._draw(st.none() | st.integers(0, min(4, len(self.progress.active))))
                return self._take(kind, lambda: self.course.launch(self.progress, self._now, unconfirmed))
            case "wake" | "cancel":
                return self._take(kind, lambda: getattr(self.course, kind)(self.progress, self._now))
            case _:
                return self._request(kind)

    def _possible(self) -> list[str]:
        possible = ["launch"] * 6 + ["wake"] * 3 + ["carry", *VERBS]
        possible += ["result"] * 10 if self.progress.active else []
        possible += ["echo"] if len(self.progress.active) < len(self._outline.tasks) else []
        return possible + (["cancel"] if not self.progress.cancelled else [])

    def _request(self, verb: str) -> Moment:
        """A person asks for something, with or without sense."""
        if verb in {"pause", "resume"}:
            return self._ask(verb, BY)
        if verb == "set":
            return self._ask(verb, Setting(by="someone", max_concurrency=self._draw(st.integers(1, 6))))
        fitting = [id for id, wait in self.progress.parked.items() if wait.why == "approval"]
        any_task = [task.id for task in self._outline.tasks]
        names = fitting if verb in {"approve", "reject"} and fitting else any_task
        tasks = tuple(self._draw(st.lists(st.sampled_from(names), max_size=2, unique=True)))
        return self._ask(verb, TaskSteering(by="someone", note=self._draw(st.sampled_from([None, "so"])), tasks=tasks))

    def _ask(self, verb: str, asked: Steering) -> Moment:
        request = getattr(Requests(self.course.chart), verb)
        try:
            return self._take(verb, lambda: request(self.progress, asked, self._now), asked=asked)
        except Refused:
            return self._take("refused", lambda: Step(self.progress))

    def _until_over(self) -> Iterator[Moment]:
        """Resume, approve, start, answer, let time pass: now the run must come to its end."""
        for _ in range(20 + 20 * len(self._outline.tasks)):
            if self.course.is_over(self.progress):
                return
            if self.progress.paused:
                yield self._ask("resume", BY)
            yield self._take("launch", lambda: self.course.launch(self.progress, self._now))
            asks = tuple(id for id, wait in self.progress.parked.items() if wait.why == "approval")
            if self.progress.active:
                yield self._result(next(iter(self.progress.active)), outcome=answered())
            elif asks:
                yield self._ask("approve", TaskSteering(by="someone", tasks=asks))
            elif (wake := self.course.next_wake(self.progress)) is not None:
                self._now = max(self._now, wake)
                yield self._take("wake", lambda: self.course.wake(self.progress, self._now))
        raise AssertionError(f"the run does not end: {self.progress!r}")

    def _result(self, id: str, *, kind: str = "result", outcome: Outcome | None = None) -> Moment:
        outcome = outcome or self._draw(outcomes(self._now))
        return self._take(kind, lambda: self.course.result(self.progress, id, outcome, self._now), id, outcome)

    def _carry(self) -> Moment:
        """Continue as new: a new course, and of the progress only what JSON carries, in columns or not."""
        self.course = Course(self._outline)
        columns_from = self._draw(st.sampled_from([1, COLUMNS_FROM]))
        json = CARRIED.dump_json(packed(self._outline, self.progress, columns_from))
        return self._take("carry", lambda: Step(unpacked(self._outline, CARRIED.validate_json(json)) or Progress()))

    def _take(self, kind: str, make: Any, id: str = "", outcome: Outcome | None = None, asked: Steering = BY) -> Moment:
        given, copy = self.progress, deepcopy(self.progress)
        step: Step = make()
        self.progress = step.progress
        return Moment(kind, given, copy, step, self._now, id, outcome, asked)
