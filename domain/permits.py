"""Whether an agent may make a call: what the call needs, against what the agent has.

Two places ask: planning, before anything is started, and the door, before every call. Nothing that a model, a result, a
file or a payload says comes in here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal

from domain.admission import Admission
from domain.models import Agent, Input, Plan, Task
from domain.prices import NOTHING
from domain.refusals import DISABLED, RETIRED, Refusal
from domain.register import Standing
from domain.reviewing import reviewer_of
from domain.rights import ANYTHING, Right, Rights, granted, matches
from domain.summarizing import summarizer_for

UNTOUCHED = Standing()

MONEY_OF_THE_RUN = Decimal(1_000_000)
"""No sum of its own: more than any cap can be, so that those of the run, the plan and the day hold."""


@dataclass(frozen=True)
class Needs:
    """What one call needs: each thing by the name that a right would give it."""

    model: str
    files: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    """Agents whose results are read."""
    urls: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    region: str | None = None
    """Where the call is made; None where no region has a name."""

    def things(self) -> Iterator[tuple[Right, str]]:
        """Each of them, and the right that it takes. Every call costs money."""
        yield Right.MODELS, self.model
        for scope, names in (("files", self.files), ("results", self.results), ("urls", self.urls)):
            for name in names:
                yield Right.DATA, f"{scope}:{name}"
        for tool in self.tools:
            yield Right.TOOLS, tool
        if self.region is not None:
            yield Right.REGIONS, self.region
        yield Right.BUDGET, ANYTHING


@dataclass(frozen=True)
class Permits:
    """How strict a deployment is, and how agents stand: what planning must know to refuse."""

    governed: bool = False
    standing: Callable[[Agent], Standing] = lambda _: UNTOUCHED

    @classmethod
    def of(cls, admission: Admission) -> Permits:
        """As the settings of a home and the register have it."""
        return cls(governed=admission.governed, standing=admission.register.of)

    def refusals(self, agent: Agent, needs: Needs) -> list[Refusal]:
        """What the agent may not do of what a call needs, as it stands now."""
        return refusals(agent, needs, self.standing(agent), governed=self.governed)


def refusals(agent: Agent, needs: Needs, standing: Standing, *, governed: bool = False) -> list[Refusal]:
    """What an agent may not do of what a call needs. None of it: the call may be made.

    What counts is what the agent was defined with, less what the register has taken away since.
    """
    if not standing.may_work:
        state = RETIRED if standing.retired else DISABLED
        return [Refusal(agent=agent.name, right=None, thing=state, by=standing.barred_by)]
    rights = granted(agent.rights, (*agent.roles, *agent.given), but=standing.taken)
    if rights is None and not governed:
        rights = handed_to(agent)
    found = (_refusal(agent, rights or Rights(), standing, right, thing) for right, thing in needs.things())
    return [refusal for refusal in found if refusal is not None]


def lowered(agent: Agent, standing: Standing) -> Decimal | None:
    """US dollars that an agent may spend in a run by now, when that is less than was pinned; None: what was pinned.

    What was pinned is kept by its run, which sets it aside. A role that was taken since is known to the door alone.
    """
    now = granted(agent.rights, (*agent.roles, *agent.given), but=standing.taken)
    if now is None or agent.cap is None:
        return None
    left = now.budget_usd or NOTHING
    return left if left < agent.cap else None


def handed_to(agent: Agent) -> Rights:
    """What an agent has for which nobody wrote down any rights: what its definition and its plan hand it by name.

    A call needs no other files and results than those of its own task, and is made in no other region than the one that
    its definition or its plan names. Nothing that could reach further is granted.
    """
    data = ("files:*", "results:*")
    return Rights(models=(agent.model,), data=data, regions=(ANYTHING,), budget_usd=MONEY_OF_THE_RUN)


def _refusal(agent: Agent, rights: Rights, standing: Standing, right: Right, thing: str) -> Refusal | None:
    for each in standing.withdrawn:
        if each.right is right and (right is Right.BUDGET or matches(each.pattern, thing)):
            return Refusal(agent=agent.name, right=right, thing=thing, pattern=each.pattern, by=each.by, at=each.time)
    return None if rights.grants(right, thing) else Refusal(agent=agent.name, right=right, thing=thing)


# What calls need


def needs_of(
    agent: Agent,
    task: Task,
    tasks: Mapping[str, Task],
    inputs: Iterable[Input],
    region: str | None = None,
    *,
    listed_by: str | None = None,
) -> Needs:
    """What the call of a task needs, with the results that it is given.

    `listed_by` is the task in whose list its item stands: an item is a part of that result, whatever else of it comes
    down. Of a text that was merged for it by its own agent, its sources: whoever may read them reads nothing new.
    """
    own = {text.task: text.sources for text in task.merged}
    given = [input.task for input in inputs if input.ref is not None]
    read = [name for each in given for name in own.get(each, (each,))]
    read += [listed_by] if listed_by is not None else []
    makers = dict.fromkeys(_name(tasks[name].agent) for name in read if name in tasks)
    files = (*(file.path for file in task.files), *(name for name in read if name not in tasks))
    return Needs(model=agent.model, files=files, results=tuple(makers), region=region)


def needs_of_summary(plan: Plan, task: Task, region: str | None = None) -> Needs:
    """What the call for a summary of a task's result needs. Whoever sums up its own result reads nothing new."""
    agent, maker = summarizer_for(plan, task), _name(task.agent)
    return Needs(model=agent.model, results=() if agent.name == maker else (maker,), region=region)


def needs_of_review(plan: Plan, task: Task, region: str | None = None) -> Needs:
    """What the call for a review of an answer needs: whoever reviews reads it."""
    agent, maker = reviewer_of(plan, task), _name(task.agent)
    return Needs(model=agent.model, results=() if agent.name == maker else (maker,), region=region)


def _name(agent: str) -> str:
    """The name of an agent without its version: rights are about agents, whichever version has made a result."""
    return agent.partition("@")[0]
