"""A planner's proposal becomes a plan, by the same rules as a file, or the list of what is wrong with it.

A proposal is the text of a model: data. It can name tasks, and agents and playbooks that are there; it has no words for
money, rights, files, approvals or agents of its own, so whatever it says, none of that changes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NoReturn

import yaml
from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from domain.consent import dollars
from domain.estimate import Estimate, estimate_of
from domain.forecast import Outlook
from domain.json_schema import NotJsonError, value_of
from domain.models import Agent, Form, Goal, Need, Plan, Policy, Task
from domain.permits import Permits
from domain.planning import FolderError, Planned, plan_from_text
from domain.problems import Invalid, did_you_mean, quoted
from domain.registry import Registry

TITLE = "nightcrew.plan"
TOLD = 10
"""Mistakes of a proposal that its planner is told at once."""

_TEXT: dict[str, JsonValue] = {"type": "string"}
_TEXTS: dict[str, JsonValue] = {"type": "array", "items": {"type": "string"}}
_TASK: dict[str, JsonValue] = {
    "type": "object",
    "properties": {
        "id": {"type": "string", "description": "letters, digits, '-' and '_'; short and telling"},
        "agent": {"type": "string", "description": "the name of one of the agents"},
        "prompt": {"type": "string", "description": "what this agent is to do, complete: it does not see the goal"},
        "needs": {**_TEXTS, "description": "ids of tasks whose results it must be given"},
        "optional": {**_TEXTS, "description": "ids of tasks whose results it is given when there are any"},
        "items": {**_TEXTS, "description": "one task for each of these; the prompt has {{ item }}"},
        "merge": {"type": "boolean", "description": "whether it makes one text of all that it needs"},
    },
    "required": ["id", "agent", "prompt", "needs"],
    "additionalProperties": False,
}
_PARAM: dict[str, JsonValue] = {
    "type": "object",
    "properties": {"name": _TEXT, "value": _TEXT},
    "required": ["name", "value"],
    "additionalProperties": False,
}
SCHEMA: dict[str, JsonValue] = {
    "title": TITLE,
    "type": "object",
    "properties": {
        "why": {"type": "string", "description": "one sentence: why it is split so, or why one agent is enough"},
        "playbook": {"type": "string", "description": "the name of a playbook that fits, or an empty text"},
        "params": {"type": "array", "items": _PARAM, "description": "those of the playbook"},
        "tasks": {"type": "array", "items": _TASK, "description": "none with a playbook"},
    },
    "required": ["why", "playbook", "params", "tasks"],
    "additionalProperties": False,
}
"""What a planner answers by."""


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class ProposedTask(_Strict):
    """One task as a planner proposes it."""

    id: str
    agent: str
    prompt: str
    needs: list[str] = Field(default_factory=list)
    optional: list[str] = Field(default_factory=list)
    items: list[str] = Field(default_factory=list)
    merge: bool = False


class Param(_Strict):
    """A parameter of the playbook that was chosen."""

    name: str
    value: str


class Proposal(_Strict):
    """What a planner answers."""

    why: str
    playbook: str = ""
    params: list[Param] = Field(default_factory=list)
    tasks: list[ProposedTask] = Field(default_factory=list)


class Unusable(ValueError):
    """A proposal that cannot become a plan: everything that is wrong with it, in words for its planner."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class TooDear(Unusable):
    """A proposal that could be run, were there more money: nothing else is wrong with it."""

    def __init__(self, figures: str) -> None:
        super().__init__([_advised(figures)])
        self.figures = figures
        """What it costs and what there is, and no word of the proposal."""


@dataclass(frozen=True)
class Judged:
    """A proposal that can be run."""

    proposal: Proposal
    text: str
    """The plan as a file would say it."""
    params: Mapping[str, str]
    planned: Planned
    """Its tasks alone, with the agents, limits and prices of the run."""
    estimate: Estimate

    @property
    def by_one(self) -> bool:
        """Whether one agent does it in one call."""
        return len(self.planned.plan.tasks) == 1

    def grown(self, plan: Plan, task: Task) -> Plan:
        """The plan of the run with these tasks: those that need nobody begin when the planner has ended."""
        begins = Need(task=task.id, policy=Policy.REQUIRE, form=Form.NAME)
        tasks = (
            each if each.needs else each.model_copy(update={"needs": (begins,)}) for each in self.planned.plan.tasks
        )
        return plan.model_copy(update={"tasks": (*plan.tasks, *tasks)})


def judged(plan: Plan, text: str) -> Judged:
    """The plan that a proposal makes of a goal. `Unusable` says everything that is wrong with it."""
    goal = plan.goal or Goal(max_tasks=0)
    proposal = _read(text)
    count = sum(max(1, len(task.items)) for task in proposal.tasks)
    if count > goal.max_tasks:  # before anything is made of them: there may be very many
        _refuse(f"the plan has {count:,} tasks; at most {goal.max_tasks:,} are allowed")
    written, params = _written(proposal, goal)
    planned = _planned(plan, goal, written, params)
    taken = {task.id for task in plan.tasks}
    problems = [f"task {quoted(task.id)}: the id is taken" for task in planned.plan.tasks if task.id in taken]
    if len(planned.plan.tasks) > goal.max_tasks:
        problems.append(f"the plan has {len(planned.plan.tasks):,} tasks; at most {goal.max_tasks:,} are allowed")
    estimate = estimate_of(planned.plan, Outlook(simulated=goal.simulated, texts={}, experience={}))
    dear = _beyond(plan.budget, estimate)
    if problems:
        raise Unusable([*problems, *([_advised(dear)] if dear is not None else [])])
    if dear is not None:
        raise TooDear(dear)
    return Judged(proposal, written, params, planned, estimate)


def complaint(plan: Plan, task: Task, text: str) -> str | None:  # noqa: ARG001  as every judge is asked
    """What is wrong with a proposal, for its planner; nothing when it can be run."""
    try:
        judged(plan, text)
    except Unusable as unusable:
        more = len(unusable.problems) - TOLD
        told = [f"- {problem}" for problem in unusable.problems[:TOLD]]
        return "\n".join(["The plan cannot be run:", *told, *([f"- and {more} more"] if more > 0 else [])])
    return None


def too_dear(plan: Plan, text: str) -> str | None:
    """What a proposal costs and what there is, when nothing else is wrong with it: no word of the proposal."""
    try:
        judged(plan, text)
    except TooDear as dear:
        return dear.figures
    except Unusable:
        pass
    return None


def _beyond(budget: Decimal | None, estimate: Estimate) -> str | None:
    if budget is None or estimate.usd is None or estimate.usd.likely <= budget:
        return None
    return f"the plan will likely cost {dollars(estimate.usd.likely)}, and the budget is {dollars(budget)}"


def _advised(figures: str) -> str:
    return f"{figures}: plan fewer or smaller tasks"


class _NoFolder:
    """A proposal has no files: nobody has handed it any."""

    def read(self, path: str) -> NoReturn:
        """Nothing can be read."""
        raise FolderError(f"a proposed plan cannot read {path!r}: it has no files")

    def match(self, pattern: str) -> NoReturn:
        """Nothing can be found."""
        raise FolderError(f"a proposed plan cannot read {pattern!r}: it has no files")


def _read(text: str) -> Proposal:
    try:
        return Proposal.model_validate(value_of(text))
    except NotJsonError as error:
        _refuse(f"it is not one JSON document: {error}")
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
        raise Unusable([f"{'.'.join(map(str, each['loc'])) or 'it'}: {each['msg']}"[:300] for each in found]) from None


def _written(proposal: Proposal, goal: Goal) -> tuple[str, dict[str, str]]:
    """The proposal as the text of a plan, and its parameters."""
    params = {param.name: param.value for param in proposal.params}
    if not proposal.playbook:
        if params:
            _refuse("'params' are those of a playbook, and none is chosen")
        tasks = [_task(task) for task in proposal.tasks]
        return as_yaml({"tasks": tasks}), {}
    if proposal.tasks:
        _refuse("give a playbook or tasks, not both")
    known = {playbook.name: playbook for playbook in goal.playbooks}
    if proposal.playbook not in known:
        hint = did_you_mean(proposal.playbook, known) or f"there are {', '.join(known) or 'none'}"
        _refuse(f"there is no playbook {quoted(proposal.playbook)} ({hint})")
    return known[proposal.playbook].text, params


def _task(task: ProposedTask) -> dict[str, Any]:
    written: dict[str, Any] = {"id": task.id}
    if task.items:
        written["for_each"] = task.items
    written["agent"] = task.agent
    if task.optional:
        written["needs"] = {**dict.fromkeys(task.needs, "tolerate"), **dict.fromkeys(task.optional, "optional")}
    elif task.needs:
        written["needs"] = task.needs
    if task.merge:
        written["merge"] = True
    return {**written, "prompt": task.prompt}


def _planned(plan: Plan, goal: Goal, text: str, params: Mapping[str, str]) -> Planned:
    """The tasks of a proposal, judged as a file is, with all that is settled by the run."""
    pinned = {agent.label: agent for agent in plan.agents}
    planners = {task.agent for task in plan.tasks if (task.schema_ or {}).get("title") == TITLE}
    registry = Registry.of_run([agent for agent in plan.agents if agent.called not in planners])
    try:
        planned = plan_from_text(
            text,
            file="proposal",
            registry=registry,
            folder=_NoFolder(),
            params=params,
            max_concurrency=plan.max_concurrency,
            mode=plan.mode,
            region=plan.region,
            permits=Permits(governed=goal.governed),
        )
    except Invalid as invalid:
        raise Unusable([_said(problem.task, problem.message, problem.hint) for problem in invalid.problems]) from None
    brought = [agent.name for agent in planned.plan.agents if agent.label not in pinned or agent.own is not None]
    if brought:
        _refuse(f"the plan brings agents of its own along: {', '.join(brought)}")
    agents: tuple[Agent, ...] = tuple(pinned[agent.label] for agent in planned.plan.agents)
    settled = {"name": plan.name, "agents": agents, "prices": plan.prices, "budget": plan.budget, "deadline": None}
    return Planned(
        planned.plan.model_copy(update=settled),
        planned.contents,
        planned.sources,
        planned.warnings,
        planned.plan_sources,
    )


def _said(task: str | None, message: str, hint: str | None) -> str:
    of = f"task {quoted(task)}: " if task is not None else ""
    return f"{of}{message}{f' ({hint})' if hint else ''}"


def as_yaml(document: Mapping[str, Any]) -> str:
    """A document as people write it: in its own order, texts of several lines as such."""
    text: str = yaml.dump(dict(document), Dumper=_Plain, sort_keys=False, allow_unicode=True, width=100)
    return text


_WORD, _NUMBERS = re.compile("[a-z][a-z_]*(-[a-z0-9]+)*"), frozenset({"inf", "infinity", "nan"})


class _Plain(yaml.SafeDumper):
    """YAML without aliases, which a plan cannot have."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002  as yaml asks
        """Every value is written where it stands."""
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    """A text that nobody takes for anything else: a single word may be a number or a date to some reader of YAML."""
    plain = _WORD.fullmatch(text) and text not in _NUMBERS
    style = "|" if "\n" in text else None if plain or " " in text else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Plain.add_representer(str, _text)


def _refuse(problem: str) -> NoReturn:
    raise Unusable([problem])
