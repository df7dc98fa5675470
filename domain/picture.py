"""The picture of a run: what its events and its workers say, as the documents that people and scripts read.

The same document while the run goes and after its end.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

from domain import waits
from domain.attention import MENTIONED, attention_of
from domain.barriers import at_agent
from domain.board import Live
from domain.caps import of_plan
from domain.costs import Cost
from domain.estimate import Estimate
from domain.events import timestamp
from domain.fold import WALLED, Fold, TaskPicture
from domain.graph import final_tasks
from domain.models import Pace, Plan, Task, TaskStatus, Usage
from domain.prices import NOTHING
from domain.report import Attention, Concurrency, Doing, PlanReport, Report, Reuse, TaskReport, written
from domain.tempo import tempo_of
from domain.waits import Wait, stamp


class Picture(Fold):
    """A run as it is seen now."""

    def __init__(
        self,
        run: str,
        plan: Plan,
        *,
        simulated: bool,
        provider: str | None = None,
        estimate: Estimate | None = None,
        before: Decimal = NOTHING,
    ) -> None:
        super().__init__(run, plan, simulated=simulated)
        self.provider = provider
        """Where a live run asks."""
        self.estimate = estimate
        self.before = before
        """What the runs have spent that this one goes on from."""
        """What it was likely to cost, before anything was spent."""
        self._likely = {each.id: each.usd.likely for each in estimate.tasks if each.usd} if estimate else {}
        self.agents = {agent.called: agent for agent in plan.agents}

    def adopt(self, plan: Plan, time: datetime) -> None:
        """Go on with another plan of the run."""
        super().adopt(plan, time)
        self.agents = {agent.called: agent for agent in plan.agents}

    @property
    def attention(self) -> tuple[Attention, ...]:
        """What a person should look at."""
        return attention_of(self)

    def is_short(self, task: Task) -> bool:
        """Whether a task waits for money that this one must not pass. Money of a day is no line."""
        waiting = (self.tasks[id] for id in self.of(TaskStatus.WAITING))
        concerned = {None, at_agent(task.agent), of_plan(task.part or "")}
        return any(
            (wait := seen.wait) and wait.reason == "budget" and not wait.until and seen.cap in concerned
            for seen in waiting
        )

    @property
    def has_places(self) -> bool:
        """Whether more tasks may be at work than are."""
        return len(self.of(TaskStatus.RUNNING)) < self.max_concurrency

    @property
    def cost(self) -> Cost:
        """The money so far."""
        prices, charged = self.plan.prices, self.bills.all
        foreseen = self.estimate.usd if self.estimate is not None else None
        models = {agent.model for agent in self.plan.agents}
        return Cost(
            estimate_usd=foreseen.likely if foreseen else None,
            estimate_low_usd=foreseen.low if foreseen else None,
            estimate_high_usd=foreseen.high if foreseen else None,
            actual_usd=charged.actual if charged else None,
            retries_usd=charged.retries if charged else None,
            unsettled_usd=charged.unsettled if charged else None,
            savings=charged.savings if charged else None,
            reserved_usd=sum((self.tasks[id].reserved for id in self.of(TaskStatus.RUNNING)), NOTHING),
            budget_usd=self.budget,
            before_usd=self.before,
            price_source=prices.label if prices is not None else None,
            unpriced=tuple(sorted(models - prices.models.keys())) if prices is not None else (),
        )

    def report(self, texts: Mapping[str, str], now: datetime) -> Report:
        """The document. `texts` has the outputs to show in place, by reference."""
        return self._report(texts, now, tuple(self.task(task.id, now, texts) for task in self.plan.tasks))

    def closing(self, now: datetime) -> tuple[Report, bytes]:
        """What is kept of a run that has ended: the report without texts, and without its tasks; the whole document.

        The tasks are written one by one: as objects those of 10,000 are 70 MB.
        """
        heading = self._report({}, now, ())
        return heading, written(heading, (self.task(task.id, now, {}) for task in self.plan.tasks))

    def _report(self, texts: Mapping[str, str], now: datetime, tasks: tuple[TaskReport, ...]) -> Report:
        finals = {id: self.tasks[id] for id in final_tasks(self.plan)}
        outputs = {id: _text(seen, texts) if _counts(seen) else None for id, seen in finals.items()}
        tempo = tempo_of(self.plan, self.trail, self.started, self.finished or now)
        return Report(
            run=self.run,
            name=self.plan.name,
            status=self.status,
            simulated=self.simulated,
            provider=self.provider,
            region=self.plan.region,
            census=self.census,
            started=stamp(self.started),
            finished=stamp(self.finished),
            duration_s=_seconds(self.started, self.finished or now),
            cost=self.cost,
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
            reuse=self.reuse(),
            plans=self._plans(),
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
            "cost": self.cost.model_dump(mode="json"),
            "tokens": self.tokens.model_dump(),
            "attention": [found.model_dump() for found in self.attention[:MENTIONED]],
        }

    def task(self, id: str, now: datetime, texts: Mapping[str, str] | None = None) -> TaskReport:
        """One task of the document."""
        task, seen, charged = self.planned[id], self.tasks[id], self.bills.of(id)
        live = seen.live
        return TaskReport(
            id=id,
            agent=self.agents[task.agent].label,
            region=self.region_of(task),
            type=task.type,
            status=seen.status,
            success=_counts(seen),
            attempts=live.note.attempt if live else seen.attempts,
            timeout_s=task.timeout.total_seconds(),
            duration_s=_seconds(seen.started, seen.ended or now),
            tokens=seen.tokens + Usage(output=live.note.output) if live else seen.tokens,
            unsettled=seen.unsettled,
            cost_usd=charged.actual if charged else None,
            estimate_usd=self._likely.get(id),
            retries_usd=charged.retries if charged else None,
            unsettled_usd=charged.unsettled if charged else None,
            savings=charged.savings if charged else None,
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
            summary=(texts or {}).get(seen.summary_ref) if seen.summary_ref else None,
            reused=seen.reused,
            saved=seen.worth if seen.reused is not None and _counts(seen) else None,
            refused=tuple(seen.refused),
            reviews=tuple(seen.reviews),
        )

    def _plans(self) -> tuple[PlanReport, ...]:
        """The plans inside the plan."""
        bills = {part.id: NOTHING for part in self.plan.parts}
        for task in self.plan.tasks:
            if task.part is not None and (charged := self.bills.of(task.id)) is not None:
                bills[task.part] += charged.actual
        return tuple(
            PlanReport(
                id=part.id,
                census=self.plans[part.id],
                max_concurrency=part.places,
                budget_usd=part.budget,
                cost_usd=bills[part.id] if self.plan.prices is not None else None,
            )
            for part in self.plan.parts
        )

    def reuse(self) -> Reuse | None:
        """What an earlier run had done already, and what that saved."""
        found = [(task, seen) for task in self.plan.tasks if (seen := self.tasks[task.id]).reused and _counts(seen)]
        if not found:
            return None
        models: dict[str, Usage] = {}
        for task, seen in found:
            model = self.agents[task.agent].model
            models[model] = models.get(model, Usage()) + seen.worth
        runs = tuple(dict.fromkeys(seen.reused for _, seen in found if seen.reused is not None))
        return Reuse(runs=runs, tasks=self.reused, tokens=self.saved, models=models)

    def region_of(self, task: Task) -> str | None:
        """Where a task is done: where its agent is bound to, else where its run is."""
        return self.agents[task.agent].region or self.plan.region

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
                return self._wait_at_a_wall(id, seen.wait)
            case TaskStatus.RUNNING if seen.live is not None:
                return waits.of_a_call(seen.live, now)
            case TaskStatus.RUNNING if seen.since is not None and self._all_are_told:
                return waits.for_a_worker(seen.since, now, self.region_of(task))
        return seen.wait

    def _wait_at_a_wall(self, id: str, met: Wait) -> Wait:
        """The wait that began when the task met a wall: its end may have moved, or a higher wall been raised since."""
        wall = self.wall_before(id)
        return met if wall is None else waits.for_a_wall(wall, None).model_copy(update={"since": met.since})

    def _wait_of_ready(self, task: Task, seen: TaskPicture) -> Wait:
        """A task that could start: what keeps it is around it."""
        if self.paused:
            return waits.for_the_pause(seen.since)
        if (wall := self.wall_before(task.id)) is not None:
            return waits.for_a_wall(wall, seen.since, seen.walled)
        if self.is_short(task):
            return waits.for_money(seen.since)
        if self.plan.mode is Pace.WAVES:
            return waits.for_a_wave(self.wave, seen.since)
        most = self.agents[task.agent].max_concurrency
        if (
            len(self.of(TaskStatus.RUNNING)) < self.max_concurrency
            and most is not None
            and self._busy[task.agent] >= most
        ):
            return waits.for_an_agent(task.agent, most, seen.since)
        return waits.for_a_place(seen.since, task.part if self.has_places else None)


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
