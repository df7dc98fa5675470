"""The agents there are: agents.yaml becomes a Registry, which knows who can do a task."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection
from dataclasses import dataclass

from domain.document import parse
from domain.forms import Filled, fill
from domain.grammar import AgentForm, RegistryForm
from domain.models import Agent
from domain.problems import Problems, quoted
from domain.tree import Mapping, Node, Scalar, Sequence


@dataclass(frozen=True)
class Registry:
    """Agents in the order of preference: that of the file. Names are unique."""

    agents: tuple[Agent, ...] = ()

    def get(self, name: str) -> Agent | None:
        """The agent of this name, if there is one."""
        return next((agent for agent in self.agents if agent.name == name), None)

    def agent_for(self, capabilities: Collection[str]) -> Agent | None:
        """The most specific agent that can do all that is asked: the one with the fewest other capabilities.

        Of several, the first in the file, so that the order of agents.yaml is the order of preference.
        """
        able = [agent for agent in self.agents if set(capabilities) <= set(agent.capabilities)]
        return min(able, key=lambda agent: len(set(agent.capabilities)), default=None)

    def extended(self, agents: Collection[Agent]) -> Registry:
        """The registry with a plan's own agents, for that plan alone.

        An agent of the plan takes the place of one with the same name, and comes before all others: what is written
        nearer to the task wins.
        """
        own = {agent.name for agent in agents}
        return Registry((*agents, *(agent for agent in self.agents if agent.name not in own)))


def registry_from_text(text: str, *, file: str) -> Registry:
    """The registry that a text in the format of agents.yaml describes, or `Invalid` with every mistake."""
    problems = Problems(file)
    _, root = parse(text, problems)
    filled = fill(RegistryForm, root, problems, what="the registry") if root is not None else None
    agents: list[Agent] = []
    if filled is not None:
        node = filled.node.entries["agents"].value
        agents = [agent for agent, _ in read_agents(node, problems)]
        if isinstance(node, Sequence) and not node.items:
            problems.add(node, "there are no agents")
    problems.raise_if_any()
    return Registry(tuple(agents))


def read_agents(node: Node | None, problems: Problems) -> list[tuple[Agent, Filled[AgentForm]]]:
    """The agents of a list that are right, with what was written; the mistakes of the others go to `problems`."""
    found: list[tuple[Agent, Filled[AgentForm]]] = []
    lines: dict[str, int] = {}
    for item in node.items if isinstance(node, Sequence) else ():
        filled = fill(AgentForm, item, problems, what="an agent")
        if filled is None:
            continue
        form = filled.form
        same = unicodedata.normalize("NFC", form.name).casefold()
        if same in lines:
            both = f"in line {lines[same]} and again in line {item.line}"
            problems.add(filled.at("name"), f"the agent {quoted(form.name)} is {both}", hint="names must differ")
        lines.setdefault(same, item.line)
        values = form.model_dump(exclude={"capabilities"})
        found.append((Agent(capabilities=tuple(form.capabilities or ()), **values), filled))
    return found


def written_names(node: Node | None, key: str) -> set[str]:
    """The names given by `key` in a list of mappings, also in those that are wrong in other ways."""
    names = set()
    for item in node.items if isinstance(node, Sequence) else ():
        entry = item.entries.get(key) if isinstance(item, Mapping) else None
        if entry is not None and isinstance(entry.value, Scalar) and isinstance(entry.value.value, str):
            names.add(entry.value.value)
    return names
