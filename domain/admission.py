"""Who may be given work: not who was disabled or retired and, in a governed home, only who was onboarded."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from domain.events import timestamp
from domain.models import Agent, ref_of
from domain.problems import quoted, shorten
from domain.register import Act, Register, Standing, Verb

GOVERNED = "governed = true"


class State(StrEnum):
    """What became of an agent, in a word."""

    DECLARED = "declared"
    """It stands in a file, and nobody has registered it."""
    REGISTERED = "registered"
    ONBOARDED = "onboarded"
    DISABLED = "disabled"
    RETIRED = "retired"


@dataclass(frozen=True)
class Objection:
    """Why an agent may not be given work: a sentence, and what to do about it."""

    message: str
    hint: str


@dataclass(frozen=True)
class Admission:
    """What the register and the settings of a home say about who may work."""

    register: Register = field(default_factory=Register)
    governed: bool = False
    live: bool = False
    """Whether the work is paid for: a check that the simulator has passed says nothing about a model."""

    def objection(self, agent: Agent) -> Objection | None:
        """Why an agent may not be given work, if it may not."""
        standing = self.register.of(agent)
        if standing.may_work:
            return self._not_onboarded(agent, standing) if self.governed else None
        word, remedy = (
            ("retired", "use another version")
            if standing.retired
            else ("disabled", f"./starter.py agents enable {agent.label}")
        )
        return Objection(f"{_name(agent)} is {word}{self._since(agent, retired=standing.retired)}", remedy)

    def _not_onboarded(self, agent: Agent, standing: Standing) -> Objection | None:
        """What a governed home has against an agent that is neither disabled nor retired."""
        check = f"./starter.py agents onboard {agent.label}"
        if agent.own is not None:
            lacks = "is of this plan alone, and a plan brings no agents of its own here"
            remedy = "write it in agents.yaml, and have it registered and onboarded"
        elif standing.definition is None:
            lacks, remedy = "is not registered", "./starter.py agents register"
        elif standing.definition != definition_ref(agent):
            lacks, remedy = "is another one than was registered", "give it a new version, and register that"
        elif has_passed(self.register, agent, live=self.live):
            return None
        elif self.live and has_passed(self.register, agent):
            lacks, remedy = "has passed its check in a simulated run only, and this one is live", check
        else:
            lacks, remedy = "is not onboarded", check
        return Objection(f"{_name(agent)} {lacks} ({GOVERNED})", remedy)

    def _since(self, agent: Agent, *, retired: bool) -> str:
        """By whom, since when, and why."""
        wanted = Verb.RETIRED if retired else Verb.DISABLED
        act = last_act(self.register, agent, wanted)
        return "" if act is None else f" by {told(act)}"


def _version(agent: Agent) -> str:
    """As the register knows it: of an agent of a plan, with what it is."""
    return agent.pool.removeprefix(f"{agent.name}@")


def _name(agent: Agent) -> str:
    return f"the agent {quoted(agent.label)}"


def told(act: Act) -> str:
    """Who did it, when, and why."""
    note = act.data.get("note")
    return f"{shorten(act.by)} since {timestamp(act.time)}" + (f" ({quoted(str(note))})" if note else "")


def last_act(register: Register, agent: Agent, *verbs: Verb) -> Act | None:
    """The last of these acts that was done to an agent."""
    acts = register.acts_of(agent.name, _version(agent))
    return next((act for act in reversed(acts) if act.verb in verbs), None)


def has_passed(register: Register, agent: Agent, *, live: bool = False) -> bool:
    """Whether an agent has passed its last check or, if so asked, the last one that a model was asked for."""
    acts = register.acts_of(agent.name, _version(agent))
    checks = [act for act in acts if act.verb in (Verb.ONBOARDED, Verb.CHECK_FAILED)]
    counted = [act for act in checks if not (live and act.data.get("simulated"))]
    return bool(counted) and counted[-1].verb is Verb.ONBOARDED


def state_of(register: Register, agent: Agent) -> State:
    """What became of an agent."""
    standing = register.of(agent)
    if not standing.may_work:
        return State.RETIRED if standing.retired else State.DISABLED
    if standing.definition is None:
        return State.DECLARED
    return State.ONBOARDED if has_passed(register, agent) else State.REGISTERED


def definition_of(agent: Agent) -> bytes:
    """What an agent is, as it is registered."""
    return agent.model_dump_json(exclude={"alias", "given"}).encode()  # what a plan makes of it is not said


def definition_ref(agent: Agent) -> str:
    """The reference of what an agent is."""
    return ref_of(definition_of(agent))
