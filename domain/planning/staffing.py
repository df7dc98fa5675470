"""Who does which task: the agents of the plan and the registry, and the choice among them."""

from __future__ import annotations

from dataclasses import dataclass

from domain.forms import Filled
from domain.grammar import AgentForm, DefaultsForm, TaskForm
from domain.models import Agent
from domain.problems import Problems, did_you_mean, quoted
from domain.registry import Registry

Written = Filled[DefaultsForm] | Filled[TaskForm]


@dataclass(frozen=True)
class Choice:
    """The agent that a task or the defaults ask for; none when what they ask for is wrong (and reported)."""

    agent: Agent | None


class Staffing:
    """The registry with the plan's own agents, and which of them are used."""

    def __init__(self, registry: Registry, own: list[tuple[Agent, Filled[AgentForm]]], broken: set[str]) -> None:
        self._registry = registry.extended([agent for agent, _ in own])
        self._by_name = {agent.name: agent for agent in self._registry.agents}
        self._by_capabilities: dict[tuple[str, ...], Agent | None] = {}
        self._own = own
        self._broken = broken
        self._used: set[str] = set()

    def choose(self, filled: Written, problems: Problems, task: str | None) -> Choice | None:
        """The agent asked for by name or by capabilities; nothing when neither is given."""
        form = filled.form
        if filled.wrong & {"agent", "capability"}:
            return Choice(None)
        if form.agent is not None and form.capability is not None:
            problems.add(filled.at("capability"), "give 'agent' or 'capability', not both", task=task)
            return Choice(None)
        if form.agent is not None:
            return self._by_agent_name(form.agent, filled, problems, task)
        if form.capability is not None:
            return self._able(tuple(form.capability), filled, problems, task)
        return None

    def _by_agent_name(self, name: str, filled: Written, problems: Problems, task: str | None) -> Choice:
        agent = self._by_name.get(name)
        if agent is None and name not in self._broken:
            hint = did_you_mean(name, self._by_name) or f"known: {', '.join(list(self._by_name)[:20]) or 'none'}"
            problems.add(filled.at("agent"), f"unknown agent {quoted(name)}", task=task, hint=hint)
        return Choice(agent)

    def _able(self, asked: tuple[str, ...], filled: Written, problems: Problems, task: str | None) -> Choice:
        if asked not in self._by_capabilities:
            self._by_capabilities[asked] = self._registry.agent_for(asked)
        agent = self._by_capabilities[asked]
        if agent is None and not self._broken:
            known = {capability for agent in self._registry.agents for capability in agent.capabilities}
            unknown = [capability for capability in asked if capability not in known]
            hint = did_you_mean(unknown[0], sorted(known)) if unknown else "no single agent can do all of it"
            words = " and ".join(map(quoted, asked))
            problems.add(filled.at("capability"), f"no agent is capable of {words}", task=task, hint=hint)
        return Choice(agent)

    def use(self, agent: Agent) -> None:
        """Remember that a task of the plan is done by this agent."""
        self._used.add(agent.name)

    def use_if_there(self, name: str) -> None:
        """Take along an agent that no task names, when there is one of this name."""
        if name in self._by_name:
            self._used.add(name)

    def used(self) -> tuple[Agent, ...]:
        """Exactly the agents in use, in the order of the registry: the same plan gives the same order."""
        return tuple(agent for agent in self._registry.agents if agent.name in self._used)

    def warn_of_unused(self, warnings: Problems) -> None:
        """Say which agents the plan brings along for nothing."""
        for agent, filled in self._own:
            if agent.name not in self._used:
                warnings.add(filled.at("name"), f"the agent {quoted(agent.name)} of this plan is not used")
