"""The register: what became of agents since they were defined, as a list of acts that is only ever added to.

A definition in agents.yaml says what an agent is and what it may do at most. The register says which definitions are
known, which have passed their check, who is disabled or retired, which roles were given, and what was taken away. It is
in the store that all workers share, so what is taken away holds for the next call of every run.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import Field, JsonValue

from domain.models import Agent
from domain.rights import Right, Rights, Role, Unsaid, granted
from domain.values import Value


class Verb(StrEnum):
    """What can be done to an agent."""

    REGISTERED = "registered"
    """Its definition is known, by the reference in `data["definition"]`. The first one stands: two may come at once."""
    ONBOARDED = "onboarded"
    """It has passed its check in the run `data["run"]`."""
    CHECK_FAILED = "check_failed"
    ENABLED = "enabled"
    DISABLED = "disabled"
    RETIRED = "retired"
    """For good: only a new version takes its place."""
    ROLE_GIVEN = "role_given"
    """`data` has the role as it was defined then: {"role": {...}}."""
    ROLE_TAKEN = "role_taken"
    """`data["role"]` is its name."""
    WITHDRAWN = "withdrawn"
    """`data` has {"right": KIND, "pattern": PATTERN}: what matches is refused, whatever the definition says."""
    GRANTED = "granted"
    """The same withdrawal is taken back. Nothing is granted beyond the definition and its roles."""


class Act(Value):
    """One thing that somebody did to an agent. `version` is None when all versions are meant."""

    number: int
    time: datetime
    by: str
    verb: Verb
    agent: str
    version: str | None = None
    data: Annotated[dict[str, JsonValue], Unsaid] = Field(default_factory=dict)


class Withdrawal(Value):
    """What was taken away: everything of a kind that matches the pattern."""

    right: Right
    pattern: str
    by: str
    time: datetime


class Standing(Value):
    """How one version of an agent stands."""

    definition: str | None = None
    """The reference of the definition that was registered; None: it was never registered."""
    onboarded: str | None = None
    """The run in which it passed its check."""
    enabled: bool = True
    retired: bool = False
    barred_by: str | None = None
    """Who disabled or retired it."""
    roles: tuple[Role, ...] = ()
    """Given on top of those of its definition."""
    taken: tuple[str, ...] = ()
    """Names of roles that do not count any more, those of its definition among them."""
    withdrawn: tuple[Withdrawal, ...] = ()

    @property
    def may_work(self) -> bool:
        """Whether it is neither disabled nor retired."""
        return self.enabled and not self.retired


class Register:
    """All acts so far, by agent. Acts for all versions and for one version count in the order in which they came."""

    def __init__(self, acts: Iterable[Act] = ()) -> None:
        self._acts: dict[str, list[Act]] = {}
        self._standings: dict[tuple[str, str], Standing] = {}  # as they were worked out since the last act
        self.last = 0
        for act in acts:
            self.add(act)

    def add(self, act: Act) -> None:
        """Take in the next act."""
        self._acts.setdefault(act.agent, []).append(act)
        self._standings.clear()
        self.last = act.number

    @property
    def agents(self) -> tuple[str, ...]:
        """The names of all agents that somebody did something to."""
        return tuple(self._acts)

    def versions(self, agent: str) -> tuple[str, ...]:
        """The versions of an agent that were registered, in order."""
        known = (act.version for act in self._acts.get(agent, ()) if act.verb is Verb.REGISTERED and act.version)
        return tuple(dict.fromkeys(known))

    def acts_of(self, agent: str, version: str | None = None) -> tuple[Act, ...]:
        """What was done to an agent, or to one version of it."""
        return tuple(
            act for act in self._acts.get(agent, ()) if version is None or act.version is None or act.version == version
        )

    def standing(self, agent: str, version: str) -> Standing:
        """How one version of an agent stands now."""
        if (agent, version) not in self._standings:
            found = Standing()
            for act in self.acts_of(agent, version):
                found = found.model_copy(update=_change(found, act))
            self._standings[agent, version] = found
        return self._standings[agent, version]

    def of(self, agent: Agent) -> Standing:
        """How an agent of a run stands.

        One that a plan brings along is another than that of the registry with its name and version, and has the
        version `1+HASH` here. What is done to all versions of a name is done to it, too.
        """
        return self.standing(agent.name, agent.pool.removeprefix(f"{agent.name}@"))


def _change(standing: Standing, act: Act) -> dict[str, object]:
    """What an act changes of how an agent stands."""
    match act.verb:
        case Verb.REGISTERED:
            return {} if standing.definition is not None else {"definition": act.data.get("definition")}
        case Verb.ONBOARDED | Verb.CHECK_FAILED:
            return {"onboarded": act.data.get("run") if act.verb is Verb.ONBOARDED else None}
        case Verb.ENABLED | Verb.DISABLED:
            enabled = act.verb is Verb.ENABLED
            return {"enabled": enabled, "barred_by": standing.barred_by if standing.retired or enabled else act.by}
        case Verb.RETIRED:
            return {"retired": True, "barred_by": act.by}
        case Verb.ROLE_GIVEN | Verb.ROLE_TAKEN:
            return _change_of_roles(standing, act)
    return _change_of_rights(standing, act)


def _change_of_roles(standing: Standing, act: Act) -> dict[str, object]:
    if act.verb is Verb.ROLE_TAKEN:
        name = str(act.data["role"])
        roles = tuple(role for role in standing.roles if role.name != name)
        return {"roles": roles, "taken": tuple(dict.fromkeys((*standing.taken, name)))}
    given = Role.model_validate(act.data["role"])
    others = tuple(role for role in standing.roles if role.name != given.name)
    return {"roles": (*others, given), "taken": tuple(name for name in standing.taken if name != given.name)}


def _change_of_rights(standing: Standing, act: Act) -> dict[str, object]:
    right, pattern = Right(str(act.data["right"])), str(act.data["pattern"])
    others = tuple(each for each in standing.withdrawn if (each.right, each.pattern) != (right, pattern))
    if act.verb is Verb.GRANTED:
        return {"withdrawn": others}
    return {"withdrawn": (*others, Withdrawal(right=right, pattern=pattern, by=act.by, time=act.time))}


def rights_of(own: Rights | None, roles: Iterable[Role], standing: Standing) -> Rights | None:
    """What the definition of an agent and its roles grant together, as it stands; None when nobody wrote any down."""
    return granted(own, (*roles, *standing.roles), but=standing.taken)
