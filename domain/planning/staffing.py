"""Who does which task: the agents of the plan and the registry, and the choice among them."""

from __future__ import annotations

from dataclasses import dataclass

from domain.forms import Filled
from domain.grammar import AgentForm, DefaultsForm, TaskForm
from domain.models import Agent
from domain.problems import Located, Problems, did_you_mean, quoted
from domain.registry import Registry

Written = Filled[DefaultsForm] | Filled[TaskForm]


@dataclass(frozen=True)
class Choice:
    """Who could do what a task or the defaults ask for, the best first; nobody when that is wrong (and reported)."""

    at: Located
    agents: tuple[Agent, ...] = ()
    asked: tuple[str, ...] = ()
    """The capabilities that are asked for, when nobody is named."""


class Staffing:
    """The registry with the plan's own agents, and which of them are used."""

    def __init__(self, registry: Registry, own: list[tuple[Agent, Filled[AgentForm]]], broken: set[str]) -> None:
        self._registry = registry.extended([agent for agent, _ in own])
        self._chosen: dict[str | tuple[str, ...], tuple[Agent, ...]] = {}
        self._meant: dict[str, Agent | None] = {}
        self._own = own
        self._broken = broken
        self._used: dict[str, Agent] = {}

    def check_own(self, problems: Problems) -> None:
        """Report what a plan's own agents cannot have."""
        for agent, filled in self._own:
            if agent.check is not None:
                hint = "only agents of agents.yaml are onboarded"
                problems.add(filled.at("check"), "'check' cannot stand in an agent of a plan", hint=hint)
            if self._registry.admission.governed:
                self._object(agent.of_a_plan(), filled.at("name"), problems, None)

    def choose(self, filled: Written, problems: Problems, task: str | None) -> Choice | None:
        """Who is asked for by name or by capabilities; nothing when neither is given."""
        form = filled.form
        if filled.wrong & {"agent", "capability"}:
            return Choice(filled.node)
        if form.agent is not None and form.capability is not None:
            problems.add(filled.at("capability"), "give 'agent' or 'capability', not both", task=task)
            return Choice(filled.node)
        if form.agent is not None:
            return self.named(form.agent, filled.at("agent"), problems, task)
        if form.capability is not None:
            return self._able(tuple(form.capability), filled, problems, task)
        return None

    def named(self, word: str, at: Located, problems: Problems, task: str | None) -> Choice:
        """Who is asked for by this name, which is written there; nobody when that is wrong (and reported)."""
        if word not in self._chosen:
            named = self._registry.get(word)
            self._chosen[word] = () if named is None else (self._as_called(named),)
        found = self._chosen[word]
        if not found:
            self._unknown(word, at, problems, task)
        elif self._object(found[0], at, problems, task):
            return Choice(at)
        return Choice(at, found)

    def _unknown(self, word: str, at: Located, problems: Problems, task: str | None) -> None:
        name, _, version = word.partition("@")
        if name in self._broken:
            return
        versions = [agent.version for agent in self._registry.all if agent.name == name]
        if version and versions:
            message, hint = f"there is no version {quoted(version)} of {quoted(name)}", f"known: {', '.join(versions)}"
        else:
            names = list(dict.fromkeys(agent.name for agent in self._registry.all))
            message = f"unknown agent {quoted(word)}"
            hint = did_you_mean(name, names) or f"known: {', '.join(names[:20]) or 'none'}"
        problems.add(at, message, task=task, hint=hint)

    def _object(self, agent: Agent, at: Located, problems: Problems, task: str | None) -> bool:
        """Report that an agent may not be given work, if it may not."""
        found = self._registry.admission.objection(agent)
        if found is not None:
            problems.add(at, found.message, task=task, hint=found.hint)
        return found is not None

    def _able(self, asked: tuple[str, ...], filled: Written, problems: Problems, task: str | None) -> Choice:
        if asked not in self._chosen:
            self._chosen[asked] = tuple(map(self._as_called, self._registry.able(asked)))
        able = self._chosen[asked]
        if not able and not self._broken:
            self._nobody_is_able(asked, filled, problems, task)
        return Choice(filled.at("capability"), able, asked)

    def get(self, name: str) -> Agent | None:
        """The agent of this name that may work, if there is one."""
        agent = self._registry.get(name)
        may_work = agent is not None and self._registry.admission.objection(agent) is None
        return self._as_called(agent) if agent is not None and may_work else None

    def _nobody_is_able(self, asked: tuple[str, ...], filled: Written, problems: Problems, task: str | None) -> None:
        words = " and ".join(map(quoted, asked))
        able = [agent for agent in self._registry.all if set(asked) <= set(agent.capabilities)]
        if able and (found := self._registry.admission.objection(able[0])) is not None:
            message = f"no agent that may work is capable of {words}: {found.message}"
            problems.add(filled.at("capability"), message, task=task, hint=found.hint)
            return
        known = {capability for agent in self._registry.all for capability in agent.capabilities}
        unknown = [capability for capability in asked if capability not in known]
        hint = did_you_mean(unknown[0], sorted(known)) if unknown else "no single agent can do all of it"
        problems.add(filled.at("capability"), f"no agent is capable of {words}", task=task, hint=hint)

    def _as_called(self, agent: Agent) -> Agent:
        """The agent as it is pinned: as the tasks of this plan call it, and with the roles that it has by now.

        It is called by its name, or by its version when the name means another.
        """
        if agent.name not in self._meant:
            self._meant[agent.name] = self._registry.get(agent.name)
        is_meant = self._meant[agent.name] is agent
        alias = None if is_meant else agent.label
        return agent.model_copy(update={"alias": alias, "given": self._registry.given(agent)})

    def use(self, agent: Agent) -> None:
        """Remember that a task of the plan is done by this agent."""
        self._used[agent.called] = agent

    def use_if_there(self, name: str) -> None:
        """Take along an agent that no task names, when there is one of this name that may work."""
        if name not in self._used and (agent := self.get(name)) is not None:
            self._used[name] = agent

    def use_all(self) -> None:
        """Take along every agent that may work, by its name."""
        for agent in self._registry.agents:
            self.use_if_there(agent.name)

    def used(self) -> tuple[Agent, ...]:
        """Exactly the agents in use, in the order of the registry: the same plan gives the same order."""
        places = {agent.pool: place for place, agent in enumerate(self._registry.all)}
        return tuple(sorted(self._used.values(), key=lambda agent: places[agent.pool]))

    def warn_of_unused(self, warnings: Problems) -> None:
        """Say which agents the plan brings along for nothing."""
        used = {agent.label for agent in self._used.values()}
        for agent, filled in self._own:
            if agent.label not in used:
                warnings.add(filled.at("name"), f"the agent {quoted(agent.name)} of this plan is not used")
