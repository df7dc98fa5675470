"""The state of a running plan, as a value.

It is what continue-as-new carries, so it holds only codes, references and counts: 10,000 ended tasks must
fit one payload. How it changes is in `course.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Annotated, Literal

from pydantic import Field, JsonValue

from domain.asking_again import corrections_of
from domain.costs import charge_of_calls
from domain.items import asked_openly
from domain.models import (
    Answered,
    Approval,
    Deadline,
    Form,
    Grows,
    OnBudget,
    Pace,
    Part,
    Plan,
    Policy,
    Priority,
    Spent,
    TaskStatus,
    Unsaid,
    Usage,
    Value,
    WallKind,
)
from domain.prices import NOTHING, Price, cost_of_calls
from domain.regions import elsewhere
from domain.reviewing import reviews_of
from domain.steering import Steered
from domain.weighing import aside_weight, files_weight, fixed_weight, repeats, review_weight


class OutlineTask(Value):
    """What the supervisor must know of a task; prompt, files and payload stay in the store."""

    id: str
    agent: str
    part: Annotated[str | None, Unsaid] = None
    """The plan inside the plan that it belongs to."""
    needs: dict[str, Policy] = Field(default_factory=dict)
    quorum: int | None = None
    approval: Approval | None = None
    priority: Priority = Priority.NORMAL
    deadline: Deadline | None = None
    timeout: timedelta
    time_limit: timedelta | None = None
    attempts: int
    max_tokens: int = 0
    budget: Annotated[Decimal | None, Unsaid] = None
    """What its calls may cost."""
    weight: int = 0
    """Tokens that its brief can be at most before files, results and notes are put into it."""
    aside: int = 0
    """Tokens that the request for a summary of its result can be at most, where one is wanted."""
    corrections: Annotated[int, Unsaid] = 0
    """How often its agent may be asked again for an answer that can be used."""
    reviewer: Annotated[str | None, Unsaid] = None
    """Who reviews its answers."""
    reviews: Annotated[int, Unsaid] = 0
    """How often at most."""
    review: Annotated[int, Unsaid] = 0
    """Tokens that the request for one of them can be at most."""
    files: int = 0
    """Bytes of its files."""
    repeats: dict[str, int] = Field(default_factory=dict)
    """How often a result stands in its prompt, of those that stand there more than once."""
    summaries: Annotated[tuple[str, ...], Unsaid] = ()
    """The needs whose result it takes as a summary."""
    grows: Annotated[Grows | None, Unsaid] = None
    """Of a task by whose answer the plan grows."""
    source: Annotated[str | None, Unsaid] = None
    """Of a task that stands for a fan-out: the task whose answer is the list of its items."""
    fan: Annotated[str | None, Unsaid] = None
    """The fan-out that it belongs to, where that has places of its own."""
    names: Annotated[tuple[str, ...], Unsaid] = ()
    """The needs that it takes by name: what stands in their results comes to it in another text."""

    orders: Annotated[tuple[str, ...], Unsaid] = ()
    """The needs that it only waits for, and is told nothing of."""

    @property
    def forms(self) -> dict[str, Form]:
        """How the result of each of its needs reaches it, of those that it is told of."""
        whole = {need: Form.FULL for need in self.needs if need not in self.orders}
        return whole | dict.fromkeys(self.summaries, Form.SUMMARY) | dict.fromkeys(self.names, Form.NAME)

    @property
    def calls(self) -> int:
        """How many calls one attempt may make one after the other, without that for a summary."""
        return 1 + self.corrections + self.reviews

    @property
    def line(self) -> str:
        """Where it stands while it is ready: with those that wait for the same agent, in the same part of the plan."""
        line = self.agent if self.part is None else f"{self.part}/{self.agent}"
        return line if self.fan is None else f"{self.fan}[]/{line}"


class Outline(Value):
    """The plan without its texts."""

    max_concurrency: int
    mode: Pace = Pace.WINDOW
    deadline: Deadline | None = None
    by_urgency: bool = False
    """Whether ready tasks start by urgency. Plans before 0.3.0 start them in plan order."""
    pools: dict[str, int] = Field(default_factory=dict)
    models: dict[str, str] = Field(default_factory=dict)
    """The model of each agent: a wall of one model stops no other."""
    counted: bool = False
    """Whether the calls of a task that could not tell are asked of the ledger. Not in plans before 0.5.0."""
    budget: Decimal | None = None
    on_budget: OnBudget = "stop"
    budgets: Annotated[dict[str, Decimal], Unsaid] = Field(default_factory=dict)
    """What all tasks of an agent may spend together, of those that have such a cap."""
    prices: dict[str, Price] = Field(default_factory=dict)
    """What each model costs, where that is known."""
    parts: Annotated[dict[str, Part], Unsaid] = Field(default_factory=dict)
    """The plans inside the plan."""
    regions: Annotated[dict[str, str], Unsaid] = Field(default_factory=dict)
    """Where the calls of an agent are made, of those that are not where the run is."""
    fans: Annotated[dict[str, int], Unsaid] = Field(default_factory=dict)
    """How many tasks of a fan-out may be at work at once, of those that say so."""
    tasks: tuple[OutlineTask, ...]


def outline_of(plan: Plan) -> Outline:
    """The outline of a plan: what travels to the supervisor, beside the reference of the whole."""
    prices = plan.prices.models if plan.prices is not None else {}
    fans = {task.id: task.each.at_once for task in plan.templates if task.each is not None and task.each.at_once}
    asked = asked_openly(plan)
    return Outline(
        max_concurrency=plan.max_concurrency,
        mode=plan.mode,
        deadline=plan.deadline,
        by_urgency=True,
        pools={agent.called: agent.max_concurrency for agent in plan.agents if agent.max_concurrency is not None},
        models={agent.called: agent.model for agent in plan.agents},
        counted=True,
        budget=plan.budget,
        on_budget=plan.on_budget,
        budgets={agent.called: agent.cap for agent in plan.agents if agent.cap is not None},
        prices=prices,
        parts={part.id: part for part in plan.parts},
        regions=elsewhere(plan.agents, plan.region),
        fans=fans,
        tasks=tuple(
            OutlineTask(
                id=task.id,
                agent=task.agent,
                part=task.part,
                needs={need.task: need.policy for need in task.needs},
                quorum=task.quorum,
                approval=asked.get(task.id, task.approval),
                priority=task.priority,
                deadline=task.deadline,
                timeout=task.timeout,
                time_limit=task.time_limit,
                attempts=task.attempts,
                max_tokens=task.max_tokens,
                budget=task.budget,
                weight=fixed_weight(plan, task) if prices else 0,
                aside=aside_weight(plan, task) if prices else 0,
                corrections=corrections_of(task),
                reviewer=task.review.by if task.review else None,
                reviews=reviews_of(task),
                review=review_weight(plan, task) if prices else 0,
                files=files_weight(task),
                repeats=repeats(task),
                summaries=tuple(need.task for need in task.needs if need.form is Form.SUMMARY),
                grows=task.grows,
                source=task.each.source if task.each is not None else None,
                fan=task.fan if task.fan in fans else None,
                names=tuple(need.task for need in task.needs if need.form is Form.NAME),
                orders=tuple(need.task for need in task.needs if need.form is Form.ORDER),
            )
            for task in plan.tasks
        ),
    )


class Ended(Value):
    """What dependants need of a task that has ended."""

    status: TaskStatus
    ref: str | None = None
    why: str | None = None
    cause: str | None = None
    size: Annotated[int, Unsaid] = 0
    """Bytes of the result: what its dependants will cost is reckoned from it. 0 in runs before 0.5.0."""
    summary_ref: Annotated[str | None, Unsaid] = None
    """Where the result is longer than its summary."""
    summary_size: Annotated[int, Unsaid] = 0


class Growing(Value):
    """A task that has answered, and by whose answer the plan is growing: it ends when the plan has grown."""

    answer: Answered
    spent: Usage
    """What its attempts may have cost on top, at most."""
    asked: Annotated[str | None, Unsaid] = None
    """Of one that a person is asked about: the plan that was shown. The word of a person is for that one alone."""
    end: Annotated[Ended | None, Unsaid] = None
    """Of one that a person must agree to: how it ends when nobody does. The plan stays as it is then."""
    told: Annotated[dict[str, JsonValue], Unsaid] = Field(default_factory=dict)
    """What its event says then."""


class Ordered(Ended):
    """What a task at work is to end as, and who wants it so."""

    by: str | None = None
    """None: its time is over."""
    note: str | None = None


class Waiting(Value):
    """A task that waits outside: for a person, a wall, a worker, money, a batch, or for the run to be resumed."""

    why: Literal["wall", "pause", "worker", "approval", "budget", "batch"]
    what: str
    since: datetime
    until: datetime | None = None
    busy: bool = False
    """Of a wall: whether it is none of the provider, but an agent that is at work as often as it may be."""
    cap: Annotated[str | None, Unsaid] = None
    """Of money: whose cap it is that does not reach, when it is not the budget of the run."""

    @property
    def reason(self) -> str:
        """What it waits for, as people read it."""
        return "pool" if self.busy else self.why


class Wall(Value):
    """A condition of the account or of one model: nothing it concerns is asked before `until`.

    A wall whose end the provider told falls at its time. Any other is probed by one task, after 1, 2, 4 ... 15 minutes.
    """

    kind: WallKind
    what: str
    since: datetime
    until: datetime
    told: bool
    """Whether the provider said when it ends."""
    probes: int = 0
    probe: str | None = None
    """The task that finds out whether it still stands."""


class Reserve(Value):
    """What is set aside for a task at work: money for so many calls at their worst case."""

    usd: Decimal
    attempts: int
    call: Decimal | None = None
    """What one of them can cost; None: not known, or more may be under way than one."""
    open: bool = False
    """Whether it is kept for a request in a batch, while the task waits for the answer."""
    caps: Annotated[tuple[str, ...], Unsaid] = ()
    """The caps that it counts for, beside the budget of the run."""


class Told(Value):
    """What starts of a task have told of their calls, in money and in tokens."""

    usd: Decimal = NOTHING
    usage: Usage = Usage()
    unsettled: Usage = Usage()
    actual_usd: Decimal = NOTHING
    """What these tokens cost, each call at the price of its own model."""
    unsettled_usd: Decimal = NOTHING
    loose: bool = False
    """Whether some start could not tell of all its calls, and counts at its worst case."""
    calls: Annotated[tuple[str, ...], Unsaid] = ()
    """The keys of the calls that were told of, each by itself."""

    @classmethod
    def of(
        cls, prices: Mapping[str, Price], calls: Sequence[Spent], *, usd: Decimal | None = None, loose: bool = False
    ) -> Told:
        """These calls, counted at what they have cost, or with so much."""
        usage = unsettled = Usage()
        for call in calls:
            usage, unsettled = usage + call.usage, unsettled + call.unsettled
        charge = charge_of_calls(prices, calls)
        return cls(
            usd=cost_of_calls(prices, calls) if usd is None else usd,
            usage=usage,
            unsettled=unsettled,
            actual_usd=charge.actual,
            unsettled_usd=charge.unsettled,
            loose=loose,
        )

    def __add__(self, other: Told) -> Told:
        return Told(
            usd=self.usd + other.usd,
            usage=self.usage + other.usage,
            unsettled=self.unsettled + other.unsettled,
            actual_usd=self.actual_usd + other.actual_usd,
            unsettled_usd=self.unsettled_usd + other.unsettled_usd,
            loose=self.loose or other.loose,
            calls=(*self.calls, *other.calls),
        )

    def __sub__(self, other: Told) -> Told:
        return Told(
            usd=self.usd - other.usd,
            usage=self.usage - other.usage,
            unsettled=self.unsettled - other.unsettled,
            actual_usd=self.actual_usd - other.actual_usd,
            unsettled_usd=self.unsettled_usd - other.unsettled_usd,
        )


class Owed(Value):
    """A task that has ended and could not tell what it has cost: its worst case counts until the ledger was asked."""

    task: str
    step: int
    told: Told
    """What was counted and told of that step so far."""


class Census(Value):
    """How many tasks are in which state; it adds up at every moment."""

    total: int
    succeeded: int = 0
    failed: int = 0
    timed_out: int = 0
    skipped: int = 0
    cancelled: int = 0
    not_started: int = 0
    pending: int = 0
    ready: int = 0
    waiting: int = 0
    running: int = 0

    @property
    def ended(self) -> int:
        """How many tasks have ended, however."""
        return self.total - self.pending - self.ready - self.waiting - self.running


class Progress(Value):
    """How far a plan has come."""

    started: datetime | None = None
    """None only in runs that were begun before 0.3.0: they have no deadlines."""
    ended: dict[str, Ended] = Field(default_factory=dict)
    active: dict[str, datetime] = Field(default_factory=dict)
    parked: dict[str, Waiting] = Field(default_factory=dict)
    ready: dict[str, tuple[int, ...]] = Field(default_factory=dict)
    """Ranks, by line: the next task of an agent, and of a part of the plan, is the first of its line."""
    unmet: dict[str, int] = Field(default_factory=dict)
    """How many needs of a task have not ended yet; a task without an entry is past that."""
    since: dict[str, datetime] = Field(default_factory=dict)
    """Since when a task is ready, or waits once more for what it needs; any other waits from the start of the run."""
    begun: tuple[str, ...] = ()
    """Tasks that were at work once and have not ended: one that is ready again after a wall has still been started."""
    limits: dict[str, datetime] = Field(default_factory=dict)
    """When the time limit of a task that was started ends."""
    used: dict[str, int] = Field(default_factory=dict)
    """Attempts that earlier starts of a task have used."""
    rounds: dict[str, int] = Field(default_factory=dict)
    """How often a person had a task done again."""
    notes: dict[str, str] = Field(default_factory=dict)
    """What the approving person has to say to the agent."""
    approved: tuple[str, ...] = ()
    stopping: dict[str, Ordered] = Field(default_factory=dict)
    """Tasks at work that must stop, and what they end as."""
    barriers: dict[str, Wall] = Field(default_factory=dict)
    """Walls, by the model that they stand before; under the empty name, before the whole account."""
    proven: tuple[str, ...] = ()
    """Models that have answered in this run: their names are right, and so was the key."""
    walled: dict[str, datetime] = Field(default_factory=dict)
    """Since when a task waits that met a wall at every start of late, however often that was."""
    walls: dict[str, int] = Field(default_factory=dict)
    """How often a task has met a wall of its own, in runs before 0.3.0."""
    wave: tuple[str, ...] = ()
    """The tasks of the present wave that have neither ended nor left it."""
    waves: int = 0
    max_concurrency: int | None = None
    """What a person has set while the run is going."""
    usage: Usage = Usage()
    budget: Decimal | None = None
    """What a person has set while the run is going."""
    before: Decimal = NOTHING
    """What the runs have spent that this one goes on from."""
    spent: Decimal = NOTHING
    """What the tasks have cost; of those that could not tell, their worst case."""
    capped: dict[str, Decimal] = Field(default_factory=dict)
    """What was spent under each cap of a task or an agent, by the runs before this one too."""
    reserved: dict[str, Reserve] = Field(default_factory=dict)
    """What is set aside for tasks at work."""
    owing: tuple[Owed, ...] = ()
    """What is not known yet of tasks that have ended."""
    growing: Annotated[dict[str, Growing], Unsaid] = Field(default_factory=dict)
    """Tasks by whose answers the plan is growing. They hold their places meanwhile."""
    parts: Annotated[dict[str, int], Unsaid] = Field(default_factory=dict)
    """The places of each plan inside the plan that has begun and not ended, in the order in which they have begun."""
    told: dict[str, Told] = Field(default_factory=dict)
    """What starts have told of tasks that have not ended."""
    low: bool = False
    """Whether it was told that little of the budget is left."""
    broke: bool = False
    """Whether the run was ended because nothing that is left fits the budget."""
    peak: int = 0
    paused: bool = False
    cancelled: bool = False
    late: bool = False
    """Whether the deadline of the run has passed."""
    resting: bool = False
    """Whether it was told that nothing is at work and something is awaited."""
    events: int = 0
    heard: dict[str, Steered] = Field(default_factory=dict)
    """The latest changes by the ids of their updates, with the answers: the same one sent again is not made again."""

    def state_of(self, id: str) -> str:
        """The state of a task, as a census names it."""
        if id in self.ended:
            return self.ended[id].status.value.lower()
        found = (("running", self.active), ("waiting", self.parked), ("pending", self.unmet))
        return next((state for state, where in found if id in where), "ready")
