"""The state of a run as its events tell it. Readers keep one fold and add what is new."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, KeysView, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Literal

from domain.barriers import ACCOUNT, at_agent, place_of
from domain.board import Live, Page, later, latest, of_this_start
from domain.chart import at_work
from domain.costs import Bills, Charge
from domain.events import Event, EventType, timestamp
from domain.inputs import input_of
from domain.models import ENDED_RUN, Account, Input, Need, Plan, RunStatus, Spent, Task, TaskError, TaskStatus, Usage
from domain.prices import NOTHING
from domain.progress import Census, Ended, Told, Wall
from domain.refusals import Refusal
from domain.report import AttemptReport, Decision, ReviewReport
from domain.stalls import Stall
from domain.tally import Tally
from domain.trail import Trail
from domain.waits import Wait

WALLED = frozenset({"wall", "pool"})
"""What a task waits for that stands before a wall: of the provider, or of an agent that is busy everywhere."""

UNTOLD = frozenset({TaskStatus.SKIPPED, TaskStatus.CANCELLED, TaskStatus.TIMED_OUT, TaskStatus.NOT_STARTED})
"""How a task ends that may not have told itself what it has cost."""

ANSWERS: dict[EventType, Literal["approved", "rejected", "expired"]] = {
    EventType.APPROVAL_GIVEN: "approved",
    EventType.APPROVAL_REFUSED: "rejected",
    EventType.APPROVAL_EXPIRED: "expired",
}

WEATHER = {EventType.RUN_PAUSED, EventType.RUN_RESUMED, EventType.QUOTA_WALL, EventType.QUOTA_CLEARED}
"""What may keep tasks from starting, or lets them."""


@dataclass
class TaskPicture:
    """What the events so far say of one task and, while it is at work, the last word of its worker."""

    status: TaskStatus = TaskStatus.PENDING
    since: datetime | None = None
    started: datetime | None = None
    ended: datetime | None = None
    step: int = 1
    """Another one each time that a person has it done again: what was answered in an earlier one does not count."""
    attempts: int = 0
    tokens: Usage = field(default_factory=Usage)
    unsettled: Usage = field(default_factory=Usage)
    settled: bool = False
    """Whether the ledger was asked what it has cost, since it ended."""
    owed: bool = False
    """Whether it ended without telling all of its calls, and the ledger was not heard since."""
    answered: int = 0
    """Tokens of the answer that counts."""
    wait: Wait | None = None
    walled: datetime | None = None
    """Since when it waits, if it met a wall at every start of late."""
    error: TaskError | None = None
    tries: list[AttemptReport] = field(default_factory=list)
    cause: str | None = None
    approval: Decision | None = None
    output_ref: str | None = None
    output_bytes: int = 0
    summary_ref: str | None = None
    summary_bytes: int = 0
    aside: tuple[Spent, ...] = ()
    """Calls beside that of the agent, as for a summary: they are in the tokens."""
    reused: str | None = None
    """The run whose end of the task was taken over."""
    worth: Usage = field(default_factory=Usage)
    """What its answer has cost: here, or in that run."""
    worth_usd: Decimal = NOTHING
    """The same in money; nothing where there is no price."""
    batched: bool = False
    """Whether what it ended with was billed as part of a batch."""
    live: Live | None = None
    reserved: Decimal = NOTHING
    cap: str | None = None
    """Of one that waits for money: whose cap it is, when it is not the budget of the run."""
    """What is set aside for it while it is at work."""
    told: dict[str, Input] = field(default_factory=dict)
    """What it was told of needs that were done again after it had started."""
    refused: list[Refusal] = field(default_factory=list)
    """What it had no right to, at its last start."""
    reviews: list[ReviewReport] = field(default_factory=list)
    """What was said of its answers, also before a person had it done again."""

    @property
    def partial(self) -> bool:
        """Whether its output is what there is of an answer that does not count."""
        return self.output_ref is not None and self.status is not TaskStatus.SUCCEEDED


class Fold:
    """A run from its events alone, with the last word of the workers.

    Whatever a watcher asks for at every look takes time by what is at work, not by the size of the plan.
    """

    def __init__(self, run: str, plan: Plan, *, simulated: bool) -> None:
        self.run, self.plan, self.simulated = run, plan, simulated
        self.plan_ref = ""
        """The plan by its reference, where whoever looks has told it."""
        self.tasks = {task.id: TaskPicture() for task in plan.tasks}
        self.planned = {task.id: task for task in plan.tasks}
        self._at_work = at_work(task.grows for task in plan.tasks)
        self.last = 0
        self.started: datetime | None = None
        self.finished: datetime | None = None
        self.paused = False
        self.moved: datetime | None = None
        """When something last happened."""
        self.stall: Stall | None = None
        """Why the run stands still, when whoever looks has found that it does."""
        self.max_concurrency = plan.max_concurrency
        self.budget = plan.budget
        self.wave = 0
        self.walls: dict[str, Wall] = {}
        """Walls, by the model that they stand before; under the empty name, before the whole account."""
        self._ended_as: RunStatus | None = None
        self._models = {agent.called: agent.model for agent in plan.agents}
        self.bills = Bills(plan.prices, {task.id: self._models[task.agent] for task in plan.tasks})
        """What each task has cost, at the prices that were pinned at submit."""
        self.trail = Trail({task.id: (ACCOUNT, self._models[task.agent]) for task in plan.tasks})
        self._tally = Tally(self.tasks)
        self._inside = {part.id: Tally(task.id for task in plan.tasks if task.part == part.id) for part in plan.parts}
        self._busy: Counter[str] = Counter()
        self._tokens, self._unsettled = Usage(), Usage()
        self.saved = Usage()
        """What the answers had cost that were taken over."""
        self.reused = 0
        """Results that were taken over."""
        self._peak = 0
        self._all_are_told = False
        self.settled = False
        """Whether the run itself has come to its end, and has told all that it has cost."""

    # What is taken in

    def add(self, events: Iterable[Event]) -> None:
        """Take in what happened since; events already seen are passed over."""
        for event in events:
            if event.number <= self.last:
                continue
            self.last, self.moved, self.stall = event.number, event.time, None
            if not isinstance(event.type, EventType):
                continue  # of a newer version, whose word for it we do not know
            if event.task is None:
                self._add_to_run(event.type, event.time, event.data)
            else:
                self._add_to_task(event.task, event.type, event.time, event.data)

    def adopt(self, plan: Plan, time: datetime) -> None:
        """Go on with the plan that has taken the place of the run's, just before the event that says so is taken in.

        What is edited is judged anew: what comes of it is told.
        """
        old, self.plan = self.planned, plan
        self._at_work = at_work(task.grows for task in plan.tasks)
        self.planned = {task.id: task for task in plan.tasks}
        for id in [id for id in self.tasks if id not in self.planned]:
            self._move(id, TaskStatus.PENDING, None, of=old[id])
            self._tally.leave(id)
            del self.tasks[id]
        self._models = {agent.called: agent.model for agent in plan.agents}
        models = {task.id: self._models[task.agent] for task in plan.tasks}
        self.bills.adopt(plan.prices, models)
        self.trail.adopt({id: (ACCOUNT, model) for id, model in models.items()})
        for id, task in self.planned.items():
            if id not in self.tasks:
                self._tally.enter(id)
            elif task != old[id] and self.tasks[id].started is None and self.tasks[id].ended is None:
                self._move(id, TaskStatus.PENDING, time, of=old[id])
        self.tasks = {id: self.tasks.get(id) or TaskPicture(since=time) for id in self.planned}
        self._inside = {part.id: self._tally.part(self._of_part(part.id)) for part in plan.parts}

    def _of_part(self, part: str) -> list[str]:
        return [id for id, task in self.planned.items() if task.part == part]

    def hear(self, pages: Iterable[Page]) -> None:
        """Take in what the workers say of tasks at work. A word that is missing now does not unsay an earlier one."""
        pages = list(pages)
        self._all_are_told = not any(page.omitted for page in pages)
        found = latest(pages)
        for id in self._tally.of(TaskStatus.RUNNING):
            task = self.tasks[id]
            if (told := of_this_start(found, id, task.since)) is not None:
                task.live = later(task.live, told)

    def close_from_outside(
        self, status: RunStatus, time: datetime | None, reason: str, ledger: Mapping[str, Account] | None = None
    ) -> None:
        """The run ended without a word of its own, as when it is terminated: say what that means for its tasks.

        Nobody told of the calls that were under way; the ledger has them.
        """
        ledger = ledger or {}
        self._ended_as, self.finished = status, time
        for id, task in self.tasks.items():
            if task.ended is None:
                began = task.started is not None or id in ledger
                self._move(id, TaskStatus.CANCELLED if began else TaskStatus.NOT_STARTED, time)
                task.ended = time
                task.error = TaskError(type="Stopped", message=reason)
        self.hear_the_ledger(ledger)

    def hear_the_ledger(self, ledger: Mapping[str, Account]) -> None:
        """Take in what the ledger has of tasks beyond what was told of them. To hear it twice is to hear it once.

        It may know better than before: a request in a batch that counted at its worst case has been answered.
        """
        for id, account in ledger.items():
            if id in self.tasks:
                self._hear_account(id, account)

    # What can be read off

    @property
    def status(self) -> RunStatus:
        """The state of the run."""
        if self._ended_as is not None:
            return self._ended_as
        if self.stall is not None:
            return RunStatus.STALLED
        if self.paused:
            return RunStatus.PAUSED
        if self._tally.count(TaskStatus.RUNNING) or any(not self.is_walled(id) for id in self.of(TaskStatus.READY)):
            return self._at_work
        return RunStatus.WAITING if self._tally.count(TaskStatus.READY, TaskStatus.WAITING) else self._at_work

    @property
    def ended(self) -> bool:
        """Whether the run has ended."""
        return self._ended_as in ENDED_RUN

    @property
    def census(self) -> Census:
        """The count of tasks by state."""
        return self._tally.census

    @property
    def plans(self) -> dict[str, Census]:
        """The same of each plan inside the plan."""
        return {id: tally.census for id, tally in self._inside.items()}

    @property
    def tokens(self) -> Usage:
        """All tokens so far: those of ended tasks as they were billed, of tasks at work what has been heard."""
        heard = sum(live.note.output for id in self.of(TaskStatus.RUNNING) if (live := self.tasks[id].live) is not None)
        return self._tokens + Usage(output=heard)

    @property
    def unsettled(self) -> Usage:
        """What attempts in vain may have cost on top, at most."""
        return self._unsettled

    def of(self, status: TaskStatus) -> KeysView[str]:
        """The tasks in a state, in the order in which they came into it."""
        return self._tally.of(status)

    def newest(self, status: TaskStatus) -> Iterator[str]:
        """The same, those that came last first."""
        return self._tally.newest(status)

    @property
    def untold(self) -> list[str]:
        """The tasks of which the ledger may know more than was told, if the run is over by now."""
        return [
            id
            for id, task in self.tasks.items()
            if task.ended is None or task.owed or (task.status in UNTOLD and not task.settled)
        ]

    def inputs(self, id: str) -> tuple[Input, ...]:
        """What a task was told of each of its needs, or would be told now."""
        told = self.tasks[id].told
        return tuple(told.get(need.task) or self._come_to(need) for need in self.planned[id].told_of)

    def wall_before(self, id: str) -> Wall | None:
        """The wall that a task waits for; of two the one that stands longer, and none that it is sent to."""
        standing = [wall for wall in self._before(id) if wall.probe != id]
        return max(standing, key=lambda wall: wall.until, default=None)

    def is_walled(self, id: str) -> bool:
        """Whether a wall keeps a ready task from starting: all but the one that is sent to find out."""
        return any(wall.probe != id for wall in self._before(id))

    # How it is done

    def _before(self, id: str) -> list[Wall]:
        agent = self.planned[id].agent
        places = (ACCOUNT, self._models[agent], at_agent(agent)) if self.walls else ()
        return [self.walls[place] for place in places if place in self.walls]

    def _add_to_run(self, type: EventType, time: datetime, data: dict[str, Any]) -> None:
        self._change_run(type, time, data)
        if type in WEATHER:
            self.trail.weather(time, paused=self.paused, walls=self.walls)

    def _change_run(self, type: EventType, time: datetime, data: dict[str, Any]) -> None:
        match type:
            case EventType.RUN_STARTED:
                self.started = time
            case EventType.RUN_PAUSED:
                self.paused = True
            case EventType.RUN_RESUMED:
                self.paused = False
            case EventType.RUN_CHANGED:
                self.max_concurrency = data.get("max_concurrency") or self.max_concurrency
                self.budget = Decimal(data["budget_usd"]) if data.get("budget_usd") else self.budget
            case EventType.WAVE_STARTED:
                self.wave = data["number"]
            case EventType.QUOTA_WALL:
                self._raise_wall(place_of(data), time, data)
            case EventType.QUOTA_CLEARED:
                self.walls.pop(place_of(data), None)
            case EventType.RUN_COMPLETED:
                # After a bug of ours tasks may be open in the log: nothing is at work any more.
                self.close_from_outside(RunStatus(data["status"]), time, "the run ended before its task")
                self.settled = "error" not in data

    def _raise_wall(self, place: str, time: datetime, data: dict[str, Any]) -> None:
        """A wall is told again when its end has moved: it stands since it was told first."""
        since = self.walls[place].since if place in self.walls else time
        self.walls[place] = Wall.model_validate({**data, "since": since})

    def _add_to_task(self, id: str, type: EventType, time: datetime, data: dict[str, Any]) -> None:
        task = self.tasks[id]
        match type:
            case EventType.TASK_CREATED:
                task.since = time
            case EventType.TASK_READY:
                self._move(id, TaskStatus.READY, time)
            case EventType.TASK_STARTED:
                self._start(id, time, data)
            case EventType.TASK_WAITING:
                since = data.get("since") or timestamp(time)
                wait = Wait(reason=data["for"], what=data["what"], since=since, until=data["until"])
                self._move(id, TaskStatus.WAITING, time, wait)
                task.cap = data.get("cap")
                task.walled = datetime.fromisoformat(since) if wait.reason in WALLED else None
            case EventType.TASK_RETRIED:
                self._add_attempt(id, data) if "error" in data else self._do_again(id, time)
            case EventType.TASK_COMPLETED | EventType.TASK_FAILED | EventType.TASK_SKIPPED:
                self._end(id, time, data)
            case EventType.TASK_SETTLED:
                task.settled, task.owed = True, False
                self._settle(id, data)
            case _:
                _hear(task, type, time, data)

    def _start(self, id: str, time: datetime, data: dict[str, Any]) -> None:
        task = self.tasks[id]
        self._move(id, TaskStatus.RUNNING, time)
        task.started = task.started or time
        task.reserved = Decimal(data.get("reserved_usd", 0))
        task.told.clear()
        task.refused.clear()
        self._peak = max(self._peak, self._tally.count(TaskStatus.RUNNING))

    def _move(
        self, id: str, status: TaskStatus, time: datetime | None, wait: Wait | None = None, of: Task | None = None
    ) -> None:
        """The one way into another state: what was said of the old one no longer holds. `of` the plan before it."""
        task, planned = self.tasks[id], of or self.planned[id]
        agent = planned.agent
        if status not in {TaskStatus.READY, TaskStatus.RUNNING} and (wait is None or wait.reason in WALLED):
            self._probe_no_more(id)
        self._busy[agent] += (status is TaskStatus.RUNNING) - (task.status is TaskStatus.RUNNING)
        self._tally.move(id, task.status, status)
        if (part := planned.part) is not None:
            self._inside[part].move(id, task.status, status)
        self._leave_a_trail(id, status, time, wait)
        task.status, task.since, task.wait, task.live = status, time, wait, None

    def _leave_a_trail(self, id: str, status: TaskStatus, time: datetime | None, wait: Wait | None) -> None:
        if time is not None:  # of a run that nobody knows any more, nobody knows when it ended
            wall = self.wall_before(id) if wait is not None and wait.reason == "wall" else None
            kind = wall.kind if wall is not None else None
            self.trail.move(id, status, time, wait=wait.reason if wait is not None else None, wall=kind)

    def _probe_no_more(self, id: str) -> None:
        """A task that was sent to find out whether a wall still stands has not come to it."""
        for place, wall in self.walls.items():
            if wall.probe == id:
                self.walls[place] = wall.model_copy(update={"probe": None})

    def _add_attempt(self, id: str, data: dict[str, Any]) -> None:
        """An attempt in vain, told when the start that made it is over. It changes no state, and has its own bill."""
        task = self.tasks[id]
        task.tries.append(AttemptReport.model_validate(data))
        self.trail.attempted(id, datetime.fromisoformat(data["at"]))
        self._bill(id, data, in_vain=True)

    def _do_again(self, id: str, time: datetime) -> None:
        """A person has a task done again: how it ended becomes one more attempt in vain. What it cost stays."""
        task = self.tasks[id]
        self._keep_what_was_told_of(id)
        if task.error is not None and task.ended is not None and task.attempts:
            task.tries.append(AttemptReport(attempt=task.attempts, error=task.error, at=timestamp(task.ended)))
        self._give_back(id)
        self._move(id, TaskStatus.PENDING, time)
        task.step += task.ended is not None  # one that had not ended goes on with its step
        task.told.clear()
        task.started = task.ended = task.error = task.cause = task.output_ref = task.summary_ref = task.reused = None
        task.attempts = task.output_bytes = task.summary_bytes = 0

    def _keep_what_was_told_of(self, need: str) -> None:
        """Who has started was told how this need had ended, whatever comes of it now."""
        for task in self.plan.tasks:
            seen = self.tasks[task.id]
            began = seen.started is not None or seen.reused is not None
            at_work_or_done = began and (seen.ended is not None or seen.status is TaskStatus.RUNNING)
            if at_work_or_done and (edge := next((of for of in task.needs if of.task == need), None)) is not None:
                seen.told.setdefault(need, self._come_to(edge))

    def _come_to(self, need: Need) -> Input:
        """What a task has come to, as one that needs it is told."""
        seen = self.tasks[need.task]
        end = Ended(status=seen.status, why=seen.error.message if seen.error else None)
        if seen.status is TaskStatus.SUCCEEDED:
            summary = seen.summary_ref if seen.summary_ref != seen.output_ref else None
            end = Ended(status=seen.status, ref=seen.output_ref, size=seen.output_bytes, summary_ref=summary)
        return input_of(need.task, end, need.form)

    def _end(self, id: str, time: datetime, data: dict[str, Any]) -> None:
        task = self.tasks[id]
        self.trail.waited(id, time, timedelta(seconds=data.get("waited_s", 0.0)))
        self._move(id, TaskStatus(data["status"]), time)
        task.ended, task.walled, task.settled = time, None, False
        task.owed = task.owed or not data.get("accounted", True)
        task.attempts = data.get("attempts", 0)
        cost = self._bill(id, data, in_vain=task.status is not TaskStatus.SUCCEEDED)
        output = data.get("tokens", {}).get("output", 0) - sum(call.usage.output for call in _aside(data))
        task.answered = output if task.status is TaskStatus.SUCCEEDED else 0
        self._take_over(id, data, cost)
        task.output_ref = data.get("output_ref")
        task.output_bytes = data.get("output_bytes", 0)
        task.summary_ref = data.get("summary_ref")
        task.summary_bytes = data.get("summary_bytes", 0)
        task.aside += _aside(data)
        task.batched = data.get("batched", False)
        task.cause = data.get("cause")
        if "error" in data:
            task.error = TaskError.model_validate(data["error"])
        elif "reason" in data:
            task.error = TaskError(type=task.status.value.title().replace("_", ""), message=data["reason"])

    def _settle(self, id: str, data: dict[str, Any]) -> None:
        """A task that could not tell has been looked up: what it has cost, and what there is of its answer."""
        task = self.tasks[id]
        task.attempts = max(task.attempts, data.get("attempts", 0))
        if task.output_ref is None and task.ended is not None:
            task.output_ref, task.output_bytes = data.get("output_ref"), data.get("output_bytes", 0)
        if "cost_usd" in data:
            cost = Decimal(data["cost_usd"])
            self.bills.charge(id, Charge(cost, cost, Decimal(data["unsettled_usd"])))
            self._count(id, *(Usage.model_validate(data[name]) for name in ("tokens", "unsettled")))
        else:  # before 0.6.0
            self._bill(id, data, in_vain=True)

    def _hear_account(self, id: str, account: Account) -> None:
        """Settle what the calls of a task have cost beyond what was told of them."""
        task, charge = self.tasks[id], self.bills.of(id) or Charge()
        told = Told(
            usage=task.tokens, unsettled=task.unsettled, actual_usd=charge.actual, unsettled_usd=charge.unsettled
        )
        prices = self.plan.prices.models if self.plan.prices is not None else {}
        untold = Told.of(prices, account.calls) - told
        if untold.usage.all < 0:
            return  # an entry that is damaged there takes back nothing that was used here
        self._settle(
            id,
            {
                "attempts": account.attempts,
                "output_ref": account.output_ref,
                "output_bytes": account.output_bytes,
                "cost_usd": untold.actual_usd,
                "unsettled_usd": untold.unsettled_usd,
                "tokens": untold.usage,
                "unsettled": untold.unsettled,
            },
        )

    def _take_over(self, id: str, data: dict[str, Any], cost: Decimal) -> None:
        """What is known of an end that an earlier run came to: it cost nothing here. Before 0.6.0 no money was told."""
        task = self.tasks[id]
        task.reused = data.get("reused")
        task.worth = Usage.model_validate(data.get("saved") or data.get("tokens") or {})
        if task.reused is None:
            task.worth_usd = cost
            return
        task.worth_usd = Decimal(data["saved_usd"]) if "saved_usd" in data else self.bills.worth(id, task.worth)
        if "approval" in data:
            task.approval = Decision.model_validate(data["approval"])
        if task.status is TaskStatus.SUCCEEDED:
            self.reused, self.saved = self.reused + 1, self.saved + task.worth
            self.bills.spare(id, task.worth_usd)

    def _give_back(self, id: str) -> None:
        """A result that was taken over is done again: nothing was saved."""
        task = self.tasks[id]
        if task.reused is not None and task.status is TaskStatus.SUCCEEDED:
            self.reused, self.saved = self.reused - 1, self.saved - task.worth
            self.bills.spare(id, -task.worth_usd)

    def _bill(self, id: str, data: dict[str, Any], *, in_vain: bool) -> Decimal:
        """Charge what an event tells of calls; what they cost together."""
        tokens, unsettled = (Usage.model_validate(data.get(name, {})) for name in ("tokens", "unsettled"))
        aside = _aside(data)
        own = sum((call.usage for call in aside), Usage())
        batched = data.get("batched", False)
        cost = self.bills.add(id, tokens - own, unsettled, in_vain=in_vain, model=data.get("model"), batched=batched)
        for call in aside:
            bill = self.bills.add(id, call.usage, Usage(), in_vain=in_vain, model=call.model, batched=call.batched)
            cost = cost.plus(bill)
        self._count(id, tokens, unsettled)
        return cost.actual

    def _count(self, id: str, tokens: Usage, unsettled: Usage) -> None:
        task = self.tasks[id]
        task.tokens, task.unsettled = task.tokens + tokens, task.unsettled + unsettled
        self._tokens, self._unsettled = self._tokens + tokens, self._unsettled + unsettled


def _hear(task: TaskPicture, type: EventType, time: datetime, data: dict[str, Any]) -> None:
    """What was said of a task that moves it nowhere."""
    if type is EventType.RIGHT_REFUSED:
        task.refused.append(Refusal.model_validate(data))
    elif type is EventType.REVIEW_GIVEN:
        task.reviews.append(ReviewReport.model_validate(data))
    elif type.startswith("approval."):
        task.approval = _decision(type, time, data)


def _aside(data: dict[str, Any]) -> tuple[Spent, ...]:
    """The calls that an event tells of beside the last one of its task."""
    return tuple(
        Spent(model=call["model"], usage=Usage.model_validate(call["tokens"]), batched=call.get("batched", False))
        for call in data.get("aside", ())
    )


def _decision(type: EventType, time: datetime, data: dict[str, Any]) -> Decision | None:
    """What became of a question: nothing, when it is asked."""
    if type not in ANSWERS:
        return None
    return Decision(answer=ANSWERS[type], by=data.get("by"), note=data.get("note"), at=timestamp(time))
