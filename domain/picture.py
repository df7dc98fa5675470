"""The picture of a run: what its events and its workers say, as the documents that people and scripts read.

The same document while the run goes and after its end.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from domain import waits
from domain.attention import MENTIONED, attention_of
from domain.board import Live
from domain.events import timestamp
from domain.fold import WALLED, Fold, TaskPicture
from domain.graph import final_tasks
from domain.models import Pace, Plan, Task, TaskStatus, Usage
from domain.report import Attention, Concurrency, Doing, Report, TaskReport
from domain.tempo import tempo_of
from domain.waits import Wait, stamp


class Picture(Fold):
    """A run as it is seen now."""

    def __init__(self, run: str, plan: Plan, *, simulated: bool, provider: str | None = None) -> None:
        super().__init__(run, plan, simulated=simulated)
        self.provider = provider
        """Where a live run asks."""
        self._agents = {agent.name: agent for agent in plan.agents}

    @property
    def attention(self) -> tuple[Attention, ...]:
        """What a person should look at."""
        return attention_of(self)

    @property
    def has_places(self) -> bool:
        """Whether more tasks may be at work than are."""
        return len(self.of(TaskStatus.RUNNING)) < self.max_concurrency

    def report(self, texts: Mapping[str, str], now: datetime) -> Report:
        """The document. `texts` has the outputs to show in place, by reference."""
        tasks = tuple(self.task(task.id, now, texts) for task in self.plan.tasks)
        finals = {id: self.tasks[id] for id in final_tasks(self.plan)}
        outputs = {id: _text(seen, texts) if _counts(seen) else None for id, seen in finals.items()}
        tempo = tempo_of(self.plan, self.trail, self.started, self.finished or now)
        return Report(
            run=self.run,
            name=self.plan.name,
            status=self.status,
            simulated=self.simulated,
            provider=self.provider,
            census=self.census,
            started=stamp(self.started),
            finished=stamp(self.finished),
            duration_s=_seconds(self.started, self.finished or now),
            tokens=self.tokens,
            unsettled=self.unsettled,
            concurrency=Concurrency(
                max=self.max_concurrency,
                peak=self._peak,
                mode=self.plan.mode,
                wave=self.wave if self.plan.mode is Pace.WAVES else None,
                speedup=tempo.speedup,
                serial=tempo.serial,
                suggested=tempo.suggested,
            ),
            attention=self.attention,
            tasks=tasks,
            outputs=outputs,
            output=_joined(outputs),
        )

    def summary(self, now: datetime) -> dict[str, Any]:
        """The figures at the beginning of the document, without its tasks and texts."""
        return {
            "run": self.run,
            "name": self.plan.name,
            "status": self.status.value,
            "simulated": self.simulated,
            "provider": self.provider,
            "census": self.census.model_dump(),
            "started": stamp(self.started),
            "finished": stamp(self.finished),
            "duration_s": _seconds(self.started, self.finished or now),
            "tokens": self.tokens.model_dump(),
            "attention": [found.model_dump() for found in self.attention[:MENTIONED]],
        }

    def task(self, id: str, now: datetime, texts: Mapping[str, str] | None = None) -> TaskReport:
        """One task of the document."""
        task, seen = self.planned[id], self.tasks[id]
        live = seen.live
        return TaskReport(
            id=id,
            agent=self._agents[task.agent].label,
            type=task.type,
            status=seen.status,
            success=_counts(seen),
            attempts=live.note.attempt if live else seen.attempts,
            timeout_s=task.timeout.total_seconds(),
            duration_s=_seconds(seen.started, seen.ended or now),
            tokens=seen.tokens + Usage(output=live.note.output) if live else seen.tokens,
            unsettled=seen.unsettled,
            wait=self.wait(id, now),
            progress=_doing(live) if live else None,
            error=seen.error,
            tries=tuple(seen.tries),
            cause=seen.cause,
            approval=seen.approval,
            partial=seen.partial,
            batched=seen.batched,
            output=_text(seen, texts or {}),
            output_ref=seen.output_ref,
        )

    def wait(self, id: str, now: datetime) -> Wait | None:
        """Why a task does not get on: its inputs, a place, a wall, a person, its worker, or what it said itself."""
        task, seen = self.planned[id], self.tasks[id]
        match seen.status:
            case TaskStatus.PENDING if not self.ended:
                open_needs = [need.task for need in task.needs if self.tasks[need.task].ended is None]
                return waits.for_inputs(open_needs, seen.since)
            case TaskStatus.READY:
                return self._wait_of_ready(task, seen)
            case TaskStatus.WAITING if seen.wait is not None and seen.wait.reason in WALLED:
                wall = self.wall_before(id)  # its end may have moved since the task met it
                return waits.for_a_wall(wall, seen.since) if wall is not None else seen.wait
            case TaskStatus.RUNNING if seen.live is not None:
                return waits.of_a_call(seen.live, now)
            case TaskStatus.RUNNING if seen.since is not None and self._all_are_told:
                return waits.for_a_worker(seen.since, now)
        return seen.wait

    def _wait_of_ready(self, task: Task, seen: TaskPicture) -> Wait:
        """A task that could start: what keeps it is around it."""
        if self.paused:
            return waits.for_the_pause(seen.since)
        if (wall := self.wall_before(task.id)) is not None:
            return waits.for_a_wall(wall, seen.since)
        if self.plan.mode is Pace.WAVES:
            return waits.for_a_wave(self.wave, seen.since)
        most = self._agents[task.agent].max_concurrency
        if (
            len(self.of(TaskStatus.RUNNING)) < self.max_concurrency
            and most is not None
            and self._busy[task.agent] >= most
        ):
            return waits.for_an_agent(task.agent, most, seen.since)
        return waits.for_a_place(seen.since)


def _counts(seen: TaskPicture) -> bool:
    """Whether the task has a result."""
    return seen.status is TaskStatus.SUCCEEDED


def _text(seen: TaskPicture, texts: Mapping[str, str]) -> str | None:
    return texts.get(seen.output_ref) if seen.output_ref else None


def _doing(live: Live) -> Doing:
    return Doing(step=live.note.step, since=timestamp(live.note.since), heard=timestamp(live.heard))


def _joined(outputs: Mapping[str, str | None]) -> str | None:
    """The text of the one final task; of several, each under its id, in plan order."""
    if len(outputs) == 1:
        return next(iter(outputs.values()))
    return "\n\n".join(f"{id}:\n{text}" for id, text in outputs.items() if text is not None) or None


def _seconds(start: datetime | None, end: datetime) -> float | None:
    return None if start is None else round((end - start).total_seconds(), 3)
