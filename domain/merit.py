"""What agents have done, added up over runs, and who of several that fit is the better one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from decimal import Decimal
from operator import attrgetter
from typing import Annotated, Any

from domain.costs import total
from domain.models import Agent, TaskStatus, Unsaid
from domain.picture import Picture
from domain.prices import NOTHING, Usd
from domain.shares import seconds_of_work
from domain.values import Usage, Value

COUNTED = frozenset({TaskStatus.SUCCEEDED, TaskStatus.FAILED, TaskStatus.TIMED_OUT})
"""Ends that say something of an agent. Who was skipped or cancelled has neither succeeded nor failed."""

NOT_ITS_FAULT = frozenset({"RightRefused", "ReviewFailed"})
"""Errors that say nothing of how well an agent works."""

PRIOR, DOUBT = 10, 0.9
"""Everybody is taken to have done ten tasks a little less well than all together: so two lucky ones do not beat a
hundred good ones, and somebody new goes before one who fails more than others."""


class Work(Value):
    """Tasks that were done or failed, and what they took."""

    tasks: int = 0
    succeeded: int = 0
    attempts: int = 0
    seconds: float = 0.0
    """Of work, without waits."""
    tokens: Usage = Usage()
    cost_usd: Usd | None = NOTHING
    """None when a model of it has no price."""
    reviewed: Annotated[int, Unsaid] = 0
    """Answers of it that another agent has judged."""
    accepted: Annotated[int, Unsaid] = 0
    """How many of them were accepted."""

    @property
    def success(self) -> float | None:
        """The part that succeeded; None when there was nothing to do."""
        return self.succeeded / self.tasks if self.tasks else None

    def __add__(self, other: Work) -> Work:
        return together((self, other))


def together(works: Sequence[Work]) -> Work:
    """All this work as one. Thousands of records are read by every command that lists agents: it is added up once."""
    if len(works) < 2:
        return works[0] if works else NO_WORK

    def sum_of(name: str) -> Any:
        return sum(map(attrgetter(name), works))

    return Work(
        tasks=sum_of("tasks"),
        succeeded=sum_of("succeeded"),
        attempts=sum_of("attempts"),
        seconds=round(sum_of("seconds"), 3),
        tokens=Usage(
            input=sum_of("tokens.input"),
            output=sum_of("tokens.output"),
            cache_read=sum_of("tokens.cache_read"),
            cache_write=sum_of("tokens.cache_write"),
        ),
        cost_usd=total(work.cost_usd for work in works),
        reviewed=sum_of("reviewed"),
        accepted=sum_of("accepted"),
    )


NO_WORK = Work()


class WorkLine(Value):
    """What one agent has done of what it was asked for by the same capabilities, or by its name."""

    agent: str
    """Its pool: name and version, and of an agent of a plan what it is."""
    capabilities: tuple[str, ...] = ()
    work: Work = NO_WORK


class RunRecord(Value):
    """What the agents of one run have done. It outlives the run."""

    run: str
    simulated: bool
    finished: str | None = None
    lines: tuple[WorkLine, ...] = ()


def record_of(picture: Picture, finished: str | None) -> RunRecord:
    """The record of a run that has ended. What was taken over from another run was done there."""
    found: dict[tuple[str, tuple[str, ...]], Work] = {}
    for task in picture.plan.tasks:
        seen = picture.tasks[task.id]
        faultless = seen.error is not None and seen.error.type in NOT_ITS_FAULT
        if seen.started is None or seen.reused is not None or seen.status not in COUNTED or faultless:
            continue
        charged = picture.bills.of(task.id)
        work = Work(
            tasks=1,
            succeeded=int(seen.status is TaskStatus.SUCCEEDED),
            attempts=seen.attempts,
            seconds=round(seconds_of_work(picture, task.id), 3),
            tokens=seen.tokens,
            cost_usd=charged.actual if charged is not None else None,
            reviewed=len(seen.reviews),
            accepted=sum(review.accepted for review in seen.reviews),
        )
        key = picture.agents[task.agent].pool, task.asked
        found[key] = found.get(key, NO_WORK) + work
    lines = tuple(WorkLine(agent=agent, capabilities=asked, work=work) for (agent, asked), work in found.items())
    return RunRecord(run=picture.run, simulated=picture.simulated, finished=finished, lines=lines)


class Merits:
    """What agents have done in many runs of one mode."""

    def __init__(self, records: Iterable[RunRecord] = (), *, simulated: bool = False) -> None:
        found: dict[str, dict[tuple[str, ...], list[Work]]] = {}
        for record in records:
            if record.simulated is simulated:
                for line in record.lines:
                    found.setdefault(line.agent, {}).setdefault(line.capabilities, []).append(line.work)
        self._lines = {agent: {asked: together(works) for asked, works in of.items()} for agent, of in found.items()}

    def of(self, agent: str) -> Work:
        """All that an agent has done."""
        return together([*self._lines.get(agent, {}).values()])

    def by_capability(self, agent: str) -> Mapping[str | None, Work]:
        """What an agent has done, by each capability that it was asked for by; under None, by its name."""
        found: dict[str | None, Work] = {}
        for asked, work in self._lines.get(agent, {}).items():
            for capability in asked or (None,):
                found[capability] = found.get(capability, NO_WORK) + work
        return found

    def _for(self, agent: str, asked: Collection[str]) -> Work:
        """What an agent has done that says how well it does this: under one of these capabilities, or by its name."""
        lines = self._lines.get(agent, {}).items()
        return together([work for known, work in lines if not known or set(known) & set(asked)])

    def best_first(self, agents: Sequence[Agent], asked: Collection[str]) -> list[Agent]:
        """The more successful first, then the cheaper, then in the order given.

        Success in whole percent, or a task in a thousand would outweigh any price. Who has done nothing is taken to be
        as dear as all of them together.
        """
        works = [self._for(agent.pool, asked) for agent in agents]
        all_of_them = together(works)
        usual = DOUBT * all_of_them.success if all_of_them.success is not None else 1.0
        price = _of_one(all_of_them, Decimal(0))

        def rank(place: int) -> tuple[int, Decimal, int]:
            work = works[place]
            rate = (work.succeeded + PRIOR * usual) / (work.tasks + PRIOR)
            return -round(100 * rate), _of_one(work, price), place

        return [agents[place] for place in sorted(range(len(agents)), key=rank)]


def _of_one(work: Work, otherwise: Decimal) -> Decimal:
    """What a task costs, where that is known."""
    return work.cost_usd / work.tasks if work.tasks and work.cost_usd is not None else otherwise
