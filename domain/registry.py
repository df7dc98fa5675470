"""The agents there are: agents.yaml becomes a Registry, which knows who can do a task."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection
from collections.abc import Mapping as AnyMapping
from collections.abc import Sequence as AnySequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from domain.admission import Admission
from domain.document import parse
from domain.forms import Filled, fill
from domain.grammar import AgentForm, RegistryForm, RoleForm
from domain.merit import Merits
from domain.models import Agent, Check
from domain.problems import Located, Problems, did_you_mean, quoted
from domain.rights import Role
from domain.tree import Mapping, Node, Scalar, Sequence


@dataclass(frozen=True)
class Registry:
    """Agents in the order of preference: that of the file. Name and version together are unique.

    Roles are what agents may have by name.
    """

    agents: tuple[Agent, ...] = ()
    roles: tuple[Role, ...] = ()
    earlier: tuple[Agent, ...] = ()
    """Those that are registered and not in the file, the newest first."""
    admission: Admission = field(default_factory=Admission)
    merits: Merits | None = None
    """What agents have done, when that decides who of several is chosen."""
    pinned: AnyMapping[str, tuple[Role, ...]] = field(default_factory=dict)
    """Of a run that is going: the roles that its agents had been given at submit, by what they are counted under."""

    @classmethod
    def of_run(cls, agents: Collection[Agent]) -> Registry:
        """The agents of a run that is going, and no others."""
        return cls(agents=tuple(agents), pinned={agent.pool: agent.given for agent in agents})

    def given(self, agent: Agent) -> tuple[Role, ...]:
        """The roles that an agent has on top of those of its definition: by now, or as its run has pinned them."""
        return self.pinned[agent.pool] if agent.pool in self.pinned else self.admission.register.of(agent).roles

    @property
    def all(self) -> tuple[Agent, ...]:
        """Every agent that can be asked for."""
        return (*self.agents, *self.earlier)

    @cached_property
    def _named(self) -> dict[str, list[Agent]]:
        """All versions of each name: a plan asks for every agent that could do one of its tasks."""
        found: dict[str, list[Agent]] = {}
        for agent in self.all:
            found.setdefault(agent.name, []).append(agent)
        return found

    def get(self, word: str) -> Agent | None:
        """The agent of this name, or of this name and version, if there is one.

        A name means the first version in the file that may work, then the newest that was registered. When none may
        work, it is the first all the same: whoever asks is told why it may not.
        """
        if "@" in word:
            return next((agent for agent in self.all if agent.label == word), None)
        named = self._named.get(word, [])
        return next((agent for agent in named if self.admission.objection(agent) is None), next(iter(named), None))

    def agent_for(self, capabilities: Collection[str]) -> Agent | None:
        """The most specific agent that can do all that is asked and may work."""
        return next(iter(self.able(capabilities)), None)

    def able(self, capabilities: Collection[str]) -> tuple[Agent, ...]:
        """Every agent that can do all that is asked and may work, the most specific first: with the fewest others.

        Of several, those of the plan, then the better by what they have done, where that counts, then the first in the
        file, so that the order of agents.yaml is the order of preference. One that is not in the file comes last.
        """
        return tuple(agent for part in (self.agents, self.earlier) for agent in self._able(part, capabilities))

    def _able(self, agents: AnySequence[Agent], capabilities: Collection[str]) -> list[Agent]:
        wanted = set(capabilities)
        able = [agent for agent in agents if wanted <= set(agent.capabilities)]
        able = [agent for agent in able if self.admission.objection(agent) is None]
        if self.merits is not None:
            able = self.merits.best_first(able, wanted)
        return sorted(able, key=lambda agent: (len(set(agent.capabilities)), agent.own is None))

    def extended(self, agents: Collection[Agent]) -> Registry:
        """The registry with a plan's own agents, for that plan alone.

        An agent of the plan takes the place of all with the same name, and comes before all others: what is written
        nearer to the task wins.
        """
        own = {agent.name for agent in agents}
        others = (agent for agent in self.agents if agent.name not in own)
        earlier = tuple(agent for agent in self.earlier if agent.name not in own)
        return replace(self, agents=(*(agent.of_a_plan() for agent in agents), *others), earlier=earlier)


def with_pinned(registry: Registry, pinned: Collection[Agent]) -> Registry:
    """The registry for a plan that goes on: a name means who it meant when its run was submitted."""
    kept = [agent.model_copy(update={"alias": None, "given": ()}) for agent in pinned if agent.own is None]
    kept.sort(key=lambda agent: next(one.alias is not None for one in pinned if one.label == agent.label))
    labels = {agent.label for agent in kept}
    agents = (*kept, *(agent for agent in registry.agents if agent.label not in labels))
    earlier = tuple(agent for agent in registry.earlier if agent.label not in labels)
    return replace(registry, agents=agents, earlier=earlier, pinned={agent.pool: agent.given for agent in pinned})


def registry_from_text(text: str, *, file: str) -> Registry:
    """The registry that a text in the format of agents.yaml describes, or `Invalid` with every mistake."""
    problems = Problems(file)
    _, root = parse(text, problems)
    filled = fill(RegistryForm, root, problems, what="the registry") if root is not None else None
    agents: list[Agent] = []
    roles: tuple[Role, ...] = ()
    if filled is not None:
        node = filled.node.entries["agents"].value
        roles = _read_roles(filled.value("roles"), problems)
        unread = written_names(filled.value("roles"), "name") - {role.name for role in roles}
        agents = [agent for agent, _ in read_agents(node, problems, roles, unread)]
        if isinstance(node, Sequence) and not node.items:
            problems.add(node, "there are no agents")
    problems.raise_if_any()
    return Registry(tuple(agents), roles)


def _read_roles(node: Node | None, problems: Problems) -> tuple[Role, ...]:
    """The roles of a list that are right; the mistakes of the others go to `problems`."""
    found: list[Role] = []
    names = _Names("role", problems)
    for item in node.items if isinstance(node, Sequence) else ():
        filled = fill(RoleForm, item, problems, what="a role")
        if filled is not None:
            names.take(filled.form.name, item, filled.at("name"))
            found.append(Role(name=filled.form.name, rights=filled.form.rights.as_rights()))
    return tuple(found)


def read_agents(
    node: Node | None, problems: Problems, roles: AnySequence[Role] = (), unread: Collection[str] = ()
) -> list[tuple[Agent, Filled[AgentForm]]]:
    """The agents of a list that are right, with what was written; the mistakes of the others go to `problems`.

    They may have these roles; those that are `unread` have mistakes of their own.
    """
    found: list[tuple[Agent, Filled[AgentForm]]] = []
    names = _Names("agent", problems)
    known = {role.name: role for role in roles}
    for item in node.items if isinstance(node, Sequence) else ():
        filled = fill(AgentForm, item, problems, what="an agent")
        if filled is None:
            continue
        form = filled.form
        names.take(form.name, item, filled.at("name"), form.version)
        for index, name in enumerate(form.roles or ()):
            if name not in known and name not in unread:
                hint = did_you_mean(name, known) or f"known: {', '.join(known) or 'none'}"
                problems.add(filled.at("roles", index), f"there is no role {quoted(name)}", hint=hint)
        values = form.model_dump(exclude={"capabilities", "budget_usd", "check", "rights", "roles"})
        agent = Agent(
            capabilities=tuple(form.capabilities or ()),
            budget=form.budget_usd,
            check=Check(**form.check.model_dump()) if form.check is not None else None,
            rights=form.rights.as_rights() if form.rights is not None else None,
            roles=tuple(known[name] for name in dict.fromkeys(form.roles or ()) if name in known),
            **values,
        )
        found.append((agent, filled))
    return found


class _Names:
    """The names of one list, each of which may stand there once; of agents, once in each version."""

    def __init__(self, what: str, problems: Problems) -> None:
        self._what, self._problems = what, problems
        self._lines: dict[tuple[str, str | None], int] = {}

    def take(self, name: str, item: Node, at: Located, version: str | None = None) -> None:
        """Report a name that people cannot tell from one before."""
        same = unicodedata.normalize("NFC", name).casefold(), version
        if same in self._lines:
            both = f"in line {self._lines[same]} and again in line {item.line}"
            hint = "names must differ" if version is None else "names must differ, or versions of one name"
            self._problems.add(at, f"the {self._what} {quoted(name)} is {both}", hint=hint)
        self._lines.setdefault(same, item.line)


def written_names(node: Node | None, key: str) -> set[str]:
    """The names given by `key` in a list of mappings, also in those that are wrong in other ways."""
    names = set()
    for item in node.items if isinstance(node, Sequence) else ():
        entry = item.entries.get(key) if isinstance(item, Mapping) else None
        if entry is not None and isinstance(entry.value, Scalar) and isinstance(entry.value.value, str):
            names.add(entry.value.value)
    return names
