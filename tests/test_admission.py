"""Who is given work: versions, states, a governed home, and the sentence when somebody is not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from pydantic import JsonValue

from domain.admission import Admission, State, definition_ref, state_of
from domain.models import Agent, Plan
from domain.planning import Invalid, plan_from_text
from domain.progress import outline_of
from domain.register import Act, Register, Verb
from domain.registry import Registry, registry_from_text
from domain.reuse import fingerprint
from domain.selection import only
from folder import PlanFolder

AGENTS = """
roles: [{name: ink, rights: {models: ["m*"], data: ["files:*", "results:*"], budget_usd: 5}}]
agents:
  - {name: writer, version: "2", capabilities: [writing], model: m2, roles: [ink], instructions: W., max_concurrency: 1}
  - {name: writer, version: "1", capabilities: [writing], model: m1, instructions: Write., max_concurrency: 3}
  - {name: clerk, version: "1", capabilities: [writing, filing], model: m, instructions: File.}
"""
IN_FILE = registry_from_text(AGENTS, file="agents.yaml")
SECOND, FIRST, CLERK = IN_FILE.agents
OLD = Agent(name="writer", version="0", capabilities=("writing",), model="m0", instructions="Write.")
OLDER = Agent(name="sage", version="1", capabilities=("wisdom",), model="m", instructions="Think.")


class Book:
    """A register that a test writes."""

    def __init__(self) -> None:
        self.register = Register()

    def add(self, verb: Verb, agent: Agent, *, version: str | None = "", **data: JsonValue) -> Book:
        time = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
        of = agent.version if version == "" else version
        number = self.register.last + 1
        self.register.add(
            Act(number=number, time=time, by="ana", verb=verb, agent=agent.name, version=of, data=dict(data))
        )
        return self

    def registered(self, *agents: Agent, onboarded: bool = True, simulated: bool = False) -> Book:
        for agent in agents:
            self.add(Verb.REGISTERED, agent, definition=definition_ref(agent))
            if onboarded:
                self.add(Verb.ONBOARDED, agent, run="run", simulated=simulated)
        return self


def known(book: Book, *earlier: Agent, governed: bool = False, live: bool = False) -> Registry:
    return replace(IN_FILE, earlier=earlier, admission=Admission(book.register, governed, live))


def planned(registry: Registry, *tasks: str, more: str = "") -> Plan:
    text = more + "tasks:\n" + "".join(f"  - {{id: t{n}, {task}, prompt: Go.}}\n" for n, task in enumerate(tasks))
    return plan_from_text(text, file="plan.yaml", registry=registry, folder=PlanFolder.of("-")).plan


def told(registry: Registry, *tasks: str, more: str = "") -> list[tuple[str, str]]:
    with pytest.raises(Invalid) as caught:
        planned(registry, *tasks, more=more)
    return [(problem.message, problem.hint or "") for problem in caught.value.problems]


def done_by(plan: Plan) -> list[str]:
    staff: Mapping[str, Agent] = {agent.called: agent for agent in plan.agents}
    return [staff[task.agent].label for task in plan.tasks]


# --- versions ---


def test_a_name_means_the_first_version_in_the_file_and_a_version_is_asked_for_by_its_number() -> None:
    plan = planned(IN_FILE, "agent: writer", "agent: writer@1", "agent: writer@2", "agent: clerk")

    assert done_by(plan) == ["writer@2", "writer@1", "writer@2", "clerk@1"]
    assert [task.agent for task in plan.tasks] == ["writer", "writer@1", "writer", "clerk"]
    assert [agent.label for agent in plan.agents] == ["writer@2", "writer@1", "clerk@1"]


def test_two_versions_in_one_plan_have_pools_and_models_of_their_own() -> None:
    plan = planned(IN_FILE, "agent: writer", "agent: writer@1")

    outline = outline_of(plan)

    assert outline.pools == {"writer": 1, "writer@1": 3}
    assert outline.models == {"writer": "m2", "writer@1": "m1"}
    assert done_by(only(plan, ["t1"])) == ["writer@1"]
    assert Plan.model_validate_json(plan.model_dump_json()) == plan


def test_a_plan_that_asks_for_no_version_is_written_as_before() -> None:
    """What older code wrote keeps its hash."""
    written = planned(IN_FILE, "agent: writer").model_dump_json()

    assert "alias" not in written
    assert "asked" not in written


def test_who_is_registered_and_not_in_the_file_can_be_asked_for() -> None:
    registry = known(Book().registered(OLD, OLDER), OLDER, OLD)

    plan = planned(registry, "agent: writer@0", "agent: writer", "agent: sage", "capability: wisdom")

    assert done_by(plan) == ["writer@0", "writer@2", "sage@1", "sage@1"]


def test_an_unknown_version_is_told_with_those_there_are() -> None:
    assert told(IN_FILE, "agent: writer@7") == [("there is no version '7' of 'writer'", "known: 2, 1")]
    assert told(IN_FILE, "agent: wrter@1") == [("unknown agent 'wrter@1'", "did you mean 'writer'?")]


def test_the_same_version_twice_is_a_mistake() -> None:
    with pytest.raises(Invalid, match="is in line 4 and again in line 7"):
        registry_from_text(f'{AGENTS}  - {{name: Writer, version: "2", model: m, instructions: X.}}\n', file="a")


def test_it_is_the_same_work_whatever_a_plan_calls_its_agent() -> None:
    """One that becomes the first of its name is no other agent, and its results are kept."""
    by_version = planned(IN_FILE, "agent: writer@1")
    by_name = planned(known(Book().add(Verb.DISABLED, SECOND)), "agent: writer")
    assert by_version.tasks[0].agent != by_name.tasks[0].agent

    one, other = (fingerprint(plan.tasks[0], plan.agents[0]) for plan in (by_version, by_name))

    assert one == other
    assert one != fingerprint(by_name.tasks[0], SECOND)


def test_agents_of_a_plan_take_the_place_of_all_versions() -> None:
    own = 'agents: [{name: writer, version: "9", model: mine, instructions: Mine.}]\n'

    assert done_by(planned(IN_FILE, "agent: writer", more=own)) == ["writer@9"]
    assert told(IN_FILE, "agent: writer@1", more=own)[0] == ("there is no version '1' of 'writer'", "known: 9")


# --- disabled and retired ---


def test_who_is_disabled_is_refused_by_name_and_passed_over_by_capability() -> None:
    registry = known(Book().add(Verb.DISABLED, SECOND, note="too slow"))

    assert done_by(planned(registry, "agent: writer", "capability: writing")) == ["writer@1", "writer@1"]
    assert told(registry, "agent: writer@2") == [
        (
            "the agent 'writer@2' is disabled by ana since 2026-01-02T03:04:05.000Z ('too slow')",
            "./starter.py agents enable writer@2",
        )
    ]


def test_when_all_versions_are_barred_the_name_is_refused_with_the_reason() -> None:
    registry = known(Book().add(Verb.DISABLED, SECOND, version=None).add(Verb.RETIRED, CLERK))

    by_name, by_capability = told(registry, "agent: writer", "capability: writing")

    assert by_name[0].startswith("the agent 'writer@2' is disabled by ana")
    assert by_capability[0].startswith("no agent that may work is capable of 'writing': the agent 'writer@2' is")
    assert told(registry, "agent: clerk")[0][0].startswith("the agent 'clerk@1' is retired by ana")


def test_who_is_enabled_again_works_and_who_is_retired_does_not() -> None:
    book = Book().add(Verb.DISABLED, SECOND).add(Verb.ENABLED, SECOND).add(Verb.RETIRED, CLERK)
    registry = known(book.add(Verb.ENABLED, CLERK))

    assert done_by(planned(registry, "agent: writer@2")) == ["writer@2"]
    assert "retired" in told(registry, "agent: clerk")[0][0]


# --- a governed home ---


def test_a_governed_home_gives_work_to_those_that_are_onboarded_alone() -> None:
    book = Book().registered(SECOND).registered(FIRST, onboarded=False)
    registry = known(book, governed=True)

    assert done_by(planned(registry, "agent: writer", "capability: writing")) == ["writer@2", "writer@2"]
    assert told(registry, "agent: writer@1", "agent: clerk") == [
        ("the agent 'writer@1' is not onboarded (governed = true)", "./starter.py agents onboard writer@1"),
        ("the agent 'clerk@1' is not registered (governed = true)", "./starter.py agents register"),
    ]


def test_a_governed_home_knows_an_agent_that_was_changed_behind_its_back() -> None:
    changed = SECOND.model_copy(update={"instructions": "Write something else."})
    registry = replace(known(Book().registered(SECOND), governed=True), agents=(changed,))

    assert told(registry, "agent: writer") == [
        (
            "the agent 'writer@2' is another one than was registered (governed = true)",
            "give it a new version, and register that",
        )
    ]


def test_the_first_definition_of_a_version_stands() -> None:
    """Whoever registers another one at the same moment changes nothing: what was onboarded is what works."""
    book = Book().registered(CLERK)
    other = CLERK.model_copy(update={"instructions": "Shred."})

    book.add(Verb.REGISTERED, other, definition=definition_ref(other))

    standing = book.register.of(CLERK)
    assert (standing.definition, standing.onboarded) == (definition_ref(CLERK), "run")
    assert book.register.standing("clerk", "2").definition is None


def test_what_a_plan_calls_an_agent_is_no_part_of_what_it_is() -> None:
    called = FIRST.model_copy(update={"alias": FIRST.label, "given": SECOND.roles})

    assert definition_ref(called) == definition_ref(FIRST)


def test_however_many_tasks_ask_each_version_and_each_name_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up: list[str] = []

    def counted(agent: Agent) -> str:
        looked_up.append(agent.label)
        return definition_ref(agent)

    monkeypatch.setattr("domain.admission.definition_ref", counted)
    agents = tuple(agent.model_copy(update={"rights": SECOND.roles[0].rights}) for agent in IN_FILE.agents)
    book = Book().registered(*agents)
    registry = Registry(agents, IN_FILE.roles, admission=Admission(book.register, governed=True))

    planned(registry, *["capability: writing"] * 20)

    versions, names = [agent.label for agent in agents], ["writer@2", "clerk@1"]
    assert sorted(looked_up) == sorted([*versions, *names])


def test_a_governed_home_takes_no_agents_of_a_plan() -> None:
    own = 'agents: [{name: mine, version: "1", model: m, instructions: Mine.}]\n'

    assert done_by(planned(known(Book()), "agent: mine", more=own)) == ["mine@1"]
    assert (
        "a plan brings no agents of its own here" in told(known(Book(), governed=True), "agent: mine", more=own)[0][0]
    )


def test_what_the_simulator_has_passed_does_not_count_for_live_runs() -> None:
    book = Book().registered(SECOND, simulated=True)
    assert done_by(planned(known(book, governed=True), "agent: writer")) == ["writer@2"]
    assert "simulated run only" in told(known(book, governed=True, live=True), "agent: writer")[0][0]

    book.add(Verb.ONBOARDED, SECOND, run="real").add(Verb.CHECK_FAILED, SECOND, run="toy", simulated=True)

    assert done_by(planned(known(book, governed=True, live=True), "agent: writer")) == ["writer@2"]


def test_the_state_of_an_agent_in_a_word() -> None:
    book = Book()
    seen = [state_of(book.register, SECOND)]
    for verb in (Verb.REGISTERED, Verb.ONBOARDED, Verb.CHECK_FAILED, Verb.DISABLED, Verb.ENABLED, Verb.RETIRED):
        book.add(verb, SECOND, definition="sha256:1", run="run")
        seen.append(state_of(book.register, SECOND))

    assert seen == [
        *(State.DECLARED, State.REGISTERED, State.ONBOARDED, State.REGISTERED),
        *(State.DISABLED, State.REGISTERED, State.RETIRED),
    ]


def test_a_check_stands_in_a_registry_and_not_in_a_plan() -> None:
    check = "check: {prompt: Say yes., expect: 'yes'}"
    found = registry_from_text(f'agents: [{{name: a, version: "1", model: m, instructions: X., {check}}}]', file="a")
    assert found.agents[0].check is not None
    own = f'agents: [{{name: mine, version: "1", model: m, instructions: Mine., {check}}}]\n'

    assert told(IN_FILE, "agent: mine", more=own)[0][0] == "'check' cannot stand in an agent of a plan"


@pytest.mark.parametrize(
    ("check", "words"),
    [
        ("{prompt: Say yes.}", "'expect' is missing in 'check'"),
        ("{prompt: Say yes., expect: ' '}", "'check.expect' must not be empty"),
        ("{prompt: Say yes., expect: a, wants: b}", "unknown key 'wants' in 'check'"),
        ("yes please", "'check' must be a mapping"),
    ],
)
def test_a_mistake_in_a_check_is_told(check: str, words: str) -> None:
    with pytest.raises(Invalid) as caught:
        registry_from_text(f'agents: [{{name: a, version: "1", model: m, instructions: X., check: {check}}}]', file="a")

    assert words in str(caught.value)
