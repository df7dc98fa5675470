"""agents.yaml: what may stand there, and who is chosen for a task."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from domain.document import Invalid
from domain.models import Agent
from domain.registry import Registry, registry_from_text

GOOD = '  - {name: good, version: "1", model: m, instructions: Do it.}\n'


def agent(name: str, *capabilities: str, version: str = "1") -> Agent:
    return Agent(name=name, version=version, capabilities=capabilities, model="m", instructions="Do it.")


def test_every_key_reaches_the_agent() -> None:
    registry = registry_from_text(
        'agents:\n  - {name: a.b-c, version: "1.10", capabilities: [x, y], model: m-1, max_concurrency: 3,\n'
        "     timeout: 1m30s, attempts: 2, max_tokens: 7, budget_usd: 0.25, instructions: Do it.}\n",
        file="agents.yaml",
    )

    assert registry.agents == (
        Agent(
            name="a.b-c",
            version="1.10",
            capabilities=("x", "y"),
            model="m-1",
            instructions="Do it.",
            max_concurrency=3,
            timeout=timedelta(seconds=90),
            attempts=2,
            max_tokens=7,
            budget=Decimal("0.25"),
        ),
    )


MISTAKES = [
    ("version: 1", "4:14", "'version' must be a text, not the number 1", "write it in quotes"),
    ("version: 1.10", "4:14", "'version' must be a text", "write it in quotes"),
    ("version: 2024-01-01", "4:14", "read as a date", "write it in quotes"),
    ("version: ''", "4:14", "'version' must not be empty", ""),
    ("capabilites: [x]", "4:5", "unknown key 'capabilites'", "did you mean 'capabilities'?"),
    ("rights: [shell]", "4:13", "'rights' must be a mapping, not a list", ""),
    ("capabilities: research", "4:19", "must be a list, not the text 'research'", ""),
    ("capabilities: [yes]", "4:20", "'capabilities[0]' must be a text", "write it in quotes"),
    ("capabilities: ['a b']", "4:20", "letters, digits", ""),
    ("max_concurrency: 0", "4:22", "at least 1", ""),
    ("max_concurrency: 501", "4:22", "at most 500", ""),
    ("max_concurrency: 2.5", "4:22", "must be a whole number", ""),
    ("max_concurrency: true", "4:22", "must be a whole number, not true", ""),
    ("timeout: 60", "4:14", "must be a duration", ""),
    ("timeout: 25h", "4:14", "at most 24h", ""),
    ("timeout: 0s", "4:14", "longer than 0s", ""),
    ("attempts: 5", "4:15", "at most 4", ""),
    ("max_tokens: 200001", "4:17", "at most 200,000", ""),
    ("instructions: ' '", "4:19", "must not be empty", ""),
    ("model:", "4:11", "'model' is empty", "remove the key"),
    ("name: a b", "4:11", "letters, digits", ""),
    ("name: Good", "4:11", "in line 2 and again in line 4", "names must differ"),
]


@pytest.mark.parametrize(("line", "place", "words", "hint"), MISTAKES, ids=[line for line, *_ in MISTAKES])
def test_a_mistake_is_told_with_its_place(line: str, place: str, words: str, hint: str) -> None:
    keys = {"name": "other", "version": '"1"', "model": "m", "instructions": "Do it."}
    others = [f"{key}: {value}" for key, value in keys.items() if key != line.partition(":")[0]]
    text = "".join(f"    {key}\n" for key in [line, *others])

    with pytest.raises(Invalid) as caught:
        registry_from_text(f"agents:\n{GOOD}  -\n{text}", file="agents.yaml")

    (problem,) = caught.value.problems
    assert f"{problem.line}:{problem.column}" == place
    assert words in problem.message
    assert hint in (problem.hint or "")


def test_all_mistakes_of_all_agents_are_told() -> None:
    with pytest.raises(Invalid) as caught:
        registry_from_text(f"agents:\n{GOOD}  - {{name: x}}\n  - 5\nextra: 1\n", file="a")

    assert [str(problem) for problem in caught.value.problems] == [
        "a:3:5: 'version' is missing in an agent",
        "a:3:5: 'model' is missing in an agent",
        "a:3:5: 'instructions' is missing in an agent",
        "a:4:5: an agent must be a mapping, not the number 5",
        "a:5:1: unknown key 'extra' in the registry (known: agents, roles)",
    ]


@pytest.mark.parametrize("text", ["", "agents: []\n", "agents:\n", "{}", "[]", "agents: {}"])
def test_a_registry_without_agents_is_refused(text: str) -> None:
    with pytest.raises(Invalid):
        registry_from_text(text, file="a")


def test_the_most_specific_agent_is_chosen_then_the_first() -> None:
    registry = Registry(
        (agent("all", "a", "b", "c"), agent("two", "a", "b"), agent("also-two", "b", "a"), agent("c", "c"))
    )

    def chosen(*capabilities: str) -> str | None:
        found = registry.agent_for(capabilities)
        return found.name if found else None

    assert chosen("a") == "two"
    assert chosen("b", "a") == "two"
    assert chosen("c") == "c"
    assert chosen("a", "c") == "all"
    assert chosen("d") is None


def test_agents_of_a_plan_come_first_and_replace_their_namesakes() -> None:
    registry = Registry((agent("a", "x"), agent("b", "x")))

    extended = registry.extended([agent("c", "x"), agent("b", "x", version="2")])

    assert [each.label for each in extended.agents] == ["c@1", "b@2", "a@1"]
    assert extended.get("b") == agent("b", "x", version="2").of_a_plan()
    assert extended.get("d") is None
    assert [each.label for each in registry.agents] == ["a@1", "b@1"]


def test_our_own_registry_is_valid_and_covers_both_teams() -> None:
    text = (Path(__file__).parent.parent / "agents.yaml").read_text("utf-8")

    registry = registry_from_text(text, file="agents.yaml")

    by_capability = {
        "research": "researcher", "analysis": "analyst", "writing": "writer", "specification": "spec",
        "architecture": "architect", "coding": "coder", "testing": "tester", "review": "reviewer",
        "systems": "liaison", "collection": "clerk", "assessment": "assessor", "planning": "planner",
        "summary": "summarizer",
    }  # fmt: skip
    chosen = {capability: registry.agent_for([capability]) for capability in by_capability}
    assert {capability: found.name for capability, found in chosen.items() if found} == by_capability
    assert len(registry.agents) == 13
    assert all("instruction" in each.instructions and "missing" in each.instructions for each in registry.agents)


def test_an_agent_of_a_plan_has_a_pool_of_its_own() -> None:
    """Beside that of the registry's with its name and version; plans that mean the same agent share it."""
    registry = Registry((agent("a", "x"), agent("b", "x")))
    own = [agent("a", "x", "y"), agent("a", "y", "x").model_copy(update={"max_concurrency": 2}), agent("a", "z")]
    one, same, other = (registry.extended([each]).agents[0] for each in own)
    assert [each.pool for each in registry.agents] == ["a@1", "b@1"]
    assert one.pool == same.pool
    assert len({"a@1", one.pool, other.pool}) == 3
    assert one.pool.startswith("a@1+")
