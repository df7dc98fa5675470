"""Rights: what is granted works, what is withdrawn, absent or only asked for does not. Pure, for every right."""

# ruff: noqa: E501  (a table of mistakes reads best with one mistake per line)

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_planning import FILES, DictFolder

from domain.admission import Admission
from domain.caps import limits_of
from domain.changing import changed
from domain.models import Agent, Input, Plan, Task, TaskStatus
from domain.permits import Needs, Permits, needs_of, refusals
from domain.planning import Invalid, Planned, plan_from_text
from domain.progress import outline_of
from domain.refusals import Refusal
from domain.register import Act, Register, Standing, Verb
from domain.registry import Registry, registry_from_text, with_pinned
from domain.rights import Right, Rights, Role, matches
from terminal.show_rights import rights_document, rights_words

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
MODEL = "claude-haiku-4-5"
CALL = Needs(model=MODEL)
ALL = Rights(
    models=("claude-*",),
    tools=("search",),
    data=("files:notes/*", "results:bee", "urls:https://example.org/*"),
    regions=("eu",),
    budget_usd=Decimal(5),
)
EVERYTHING = Rights(
    models=("*",), tools=("*",), data=("files:*", "results:*", "urls:*"), regions=("*",), budget_usd=Decimal(9)
)
NEEDED = {
    "models": (CALL, MODEL),
    "tools": (Needs(MODEL, tools=("search",)), "search"),
    "files": (Needs(MODEL, files=("notes/a.md",)), "files:notes/a.md"),
    "results": (Needs(MODEL, results=("bee",)), "results:bee"),
    "urls": (Needs(MODEL, urls=("https://example.org/a",)), "urls:https://example.org/a"),
    "regions": (Needs(MODEL, region="eu"), "eu"),
    "budget_usd": (CALL, "*"),
}
"""By right: a call that needs it, and the name of what it needs."""


def right_of(name: str) -> Right:
    return Right.DATA if name in ("files", "results", "urls") else Right(name)


def agent(rights: Rights | None = ALL, **values: Any) -> Agent:
    return Agent(name="ant", version="1", model=MODEL, instructions="Do it.", rights=rights, **values)


def without(name: str) -> Rights:
    """All rights but those of one kind."""
    right = right_of(name)
    if right is not Right.DATA:
        return ALL.model_copy(update={right.value: None if right is Right.BUDGET else ()})
    return ALL.model_copy(update={"data": tuple(scope for scope in ALL.data if not scope.startswith(name))})


def after(*acts: tuple[Verb, dict[str, Any]]) -> Standing:
    """How an agent stands after this was done to it."""
    listed = (
        Act(number=number, time=NOON, by="mo", verb=verb, agent="ant", data=data)
        for number, (verb, data) in enumerate(acts, 1)
    )
    return Register(listed).standing("ant", "1")


# ---------------------------------------------------------------- the table


@pytest.mark.parametrize("name", NEEDED)
def test_what_is_granted_works(name: str) -> None:
    assert refusals(agent(), NEEDED[name][0], Standing()) == []


@pytest.mark.parametrize("name", NEEDED)
def test_what_is_absent_is_refused(name: str) -> None:
    needs, thing = NEEDED[name]

    (refused,) = refusals(agent(without(name)), needs, Standing())

    assert (refused.agent, refused.right, refused.thing, refused.pattern) == ("ant", right_of(name), thing, None)
    assert refused.command is None, "nothing grants what the definition does not have"


@pytest.mark.parametrize("name", NEEDED)
def test_what_is_withdrawn_is_refused_until_it_is_granted_again(name: str) -> None:
    """Whatever the definition says, also where nobody wrote down any rights; and by whom, and when."""
    needs, thing = NEEDED[name]
    withdrawal = {"right": right_of(name).value, "pattern": thing}
    gone = after((Verb.WITHDRAWN, withdrawal))

    for who in (agent(), agent(EVERYTHING), agent(None)):
        (refused,) = (each for each in refusals(who, needs, gone) if each.thing == thing)
        assert (refused.right, refused.pattern, refused.by, refused.at) == (right_of(name), thing, "mo", NOON)
        shown = "budget_usd" if name == "budget_usd" else f"{right_of(name)}: {thing}"
        assert refused.sentence.endswith(f": '{shown}' was withdrawn by mo, 2026-05-01 12:00 UTC")
        assert (refused.command or "").startswith(f"agents grant ant {right_of(name)} ")
    assert refusals(agent(), needs, after((Verb.WITHDRAWN, withdrawal), (Verb.GRANTED, withdrawal))) == []


@pytest.mark.parametrize("name", NEEDED)
def test_the_register_grants_nothing_beyond_what_is_pinned(name: str) -> None:
    """Neither by granting what was never withdrawn, nor by a role that was given after the run had begun."""
    needs, thing = NEEDED[name]
    granted = (Verb.GRANTED, {"right": right_of(name).value, "pattern": thing})
    given = (Verb.ROLE_GIVEN, {"role": Role(name="all", rights=EVERYTHING).model_dump(mode="json")})

    assert [each.thing for each in refusals(agent(without(name)), needs, after(granted, given))] == [thing]


def test_without_rights_an_agent_has_what_it_is_handed_and_nothing_that_reaches_further() -> None:
    allowed = {name for name, (needs, _) in NEEDED.items() if not refusals(agent(None), needs, Standing())}

    assert allowed == {"models", "files", "results", "regions", "budget_usd"}
    assert [each.thing for each in refusals(agent(None), Needs(model="claude-opus-4-5"), Standing())] == [
        "claude-opus-4-5"
    ]


def test_in_a_governed_deployment_an_agent_without_rights_has_none() -> None:
    assert [each.right for each in refusals(agent(None), CALL, Standing(), governed=True)] == [
        Right.MODELS,
        Right.BUDGET,
    ]
    assert refusals(agent(), CALL, Standing(), governed=True) == []
    assert [each.right for each in refusals(agent(Rights()), CALL, Standing())] == [Right.MODELS, Right.BUDGET]


@pytest.mark.parametrize(
    ("verb", "state", "command"), [(Verb.DISABLED, "disabled", "agents enable ant"), (Verb.RETIRED, "retired", None)]
)
def test_who_is_disabled_or_retired_does_nothing(verb: Verb, state: str, command: str | None) -> None:
    (refused,) = refusals(agent(EVERYTHING), CALL, after((verb, {})))

    assert refused == Refusal(agent="ant", right=None, thing=state, by="mo")
    assert (refused.sentence, refused.command) == (f"agent 'ant' is {state} (by mo)", command)


def test_roles_add_rights_and_a_role_that_is_taken_takes_them() -> None:
    """An agent that has lost its only role has no rights: not those of one for which nobody wrote any."""
    both = agent(Rights(budget_usd=Decimal(1)), roles=(Role(name="reader", rights=ALL),))
    only = agent(None, roles=(Role(name="reader", rights=ALL),))
    taken = after((Verb.ROLE_TAKEN, {"role": "reader"}))

    assert refusals(both, NEEDED["files"][0], Standing()) == refusals(only, NEEDED["files"][0], Standing()) == []
    assert [each.right for each in refusals(both, NEEDED["files"][0], taken)] == [Right.MODELS, Right.DATA]
    assert [each.right for each in refusals(only, CALL, taken)] == [Right.MODELS, Right.BUDGET]
    again = after((Verb.ROLE_TAKEN, {"role": "reader"}), (Verb.ROLE_GIVEN, {"role": {"name": "reader", "rights": {}}}))
    assert refusals(only, CALL, again) == [], "what counts is what was pinned"


def test_a_dependant_gains_nothing_from_those_before_it() -> None:
    """Nor from what their results say: only who made them counts."""
    bee = Agent(name="bee", version="1", model="claude-opus-4-5", instructions="", rights=EVERYTHING)
    common: dict[str, Any] = {"prompt": ("rights: {models: ['*']}",), "timeout": 1, "attempts": 1, "max_tokens": 1}
    tasks = {id: Task(id=id, agent=who, **common) for id, who in (("first", "bee"), ("second", "ant"))}
    given = [Input(task="first", status=TaskStatus.SUCCEEDED, ref="sha256:rights")]
    narrow = agent(Rights(models=(MODEL,), budget_usd=Decimal(1)))

    needs = needs_of(narrow, tasks["second"], tasks, given)

    assert needs == Needs(model=MODEL, results=("bee",))
    assert [each.thing for each in refusals(narrow, needs, Standing())] == ["results:bee"]
    assert refusals(bee, Needs(model=bee.model, results=("ant",)), Standing()) == []
    assert needs_of(narrow, tasks["second"], tasks, [given[0].model_copy(update={"ref": None})]) == CALL


# ---------------------------------------------------------------- patterns and money


@pytest.mark.parametrize(
    ("pattern", "what", "stands"),
    [
        ("*", "", True), ("*", "a/b", True), ("a", "a", True), ("a", "A", False), ("a*", "a", True), ("a*a", "a", False),
        ("a*b*c", "a-b-c", True), ("a*b*c", "acb", False), ("*b*", "abc", True), ("files:[x]?.md", "files:[x]?.md", True),
        ("files:?.md", "files:a.md", False), ("files:[ab].md", "files:a.md", False), ("*.md", "a.md.exe", False), ("**", "x", True),
    ],
)  # fmt: skip
def test_a_star_is_any_text_and_everything_else_is_itself(pattern: str, what: str, stands: bool) -> None:
    assert matches(pattern, what) is stands


@given(st.lists(st.text("ab[?*.", max_size=4), min_size=1, max_size=4), st.text("ab[?.", max_size=6))
def test_a_pattern_matches_what_it_was_made_from(parts: list[str], filling: str) -> None:
    clean = [part.replace("*", "") for part in parts]
    assert matches("*".join(clean), filling.join(clean))


@pytest.mark.parametrize(
    ("budget", "right", "cap"), [(None, 5, 5), (3, 5, 3), (9, 5, 5), (3, None, 3), (None, None, None)]
)
def test_of_two_sums_the_lesser_holds(budget: int | None, right: int | None, cap: int | None) -> None:
    rights = Rights(models=("*",), budget_usd=Decimal(right)) if right is not None else None
    who = agent(rights, budget=Decimal(budget) if budget is not None else None)
    task = Task(id="a", agent="ant", prompt=("x",), timeout=1, attempts=1, max_tokens=1)  # type: ignore[arg-type]
    plan = Plan(name="p", max_concurrency=1, agents=(who,), tasks=(task,))

    assert who.cap == cap
    assert outline_of(plan).budgets == ({"ant": cap} if cap is not None else {})
    assert [most for _, _, most, _ in limits_of(plan)] == ([cap] if cap is not None else [])


# ---------------------------------------------------------------- what is written

AGENTS = """
roles:
  - {name: reader, rights: {models: [m], data: ["files:notes/*"], budget_usd: 2}}
agents:
  - {name: free, version: "1", capabilities: [work], model: m, instructions: x}
  - {name: narrow, version: "1", model: m, instructions: x, rights: {models: [m], data: ["files:notes/a.md"], budget_usd: 0.5}}
  - {name: reads, version: "1", capabilities: [work, reading], model: m, instructions: x, roles: [reader]}
  - {name: poor, version: "1", capabilities: [reading, thrift], model: m, instructions: x, rights: {models: [m], tools: [look]}}
  - {name: wrong, version: "1", model: other, instructions: x, roles: [reader]}
  - {name: tooled, version: "1", model: m, instructions: x, rights: {models: ["*"], tools: [look], data: ["urls:*"], budget_usd: 1}}
  - {name: summarizer, version: "1", model: m, instructions: x, rights: {models: [m], data: ["results:free"], budget_usd: 1}}
"""
REGISTRY = registry_from_text(AGENTS, file="agents.yaml")


def test_rights_and_roles_are_read_and_shown() -> None:
    reads, poor, free = (REGISTRY.get(name) for name in ("reads", "poor", "free"))
    assert reads is not None
    assert poor is not None
    assert free is not None

    assert (reads.rights, reads.roles) == (None, REGISTRY.roles)
    assert rights_document(reads) == {"models": ["m"], "data": ["files:notes/*"], "budget_usd": "2"}
    assert rights_document(poor) == {"models": ["m"], "tools": ["look"]}
    assert rights_document(free) is None
    assert [rights_words(each) for each in (reads, poor, free)] == ["role reader", "m, look", ""]
    assert "rights" not in free.model_dump_json(), (
        "what is not said is not written: what older code wrote keeps its hash"
    )


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("rights: {modles: [m]}", "a:2:66: unknown key 'modles' in 'rights' (did you mean 'models'?)"),
        ("rights: {models: m}", "a:2:74: 'rights.models' must be a list, not the text 'm'"),
        ("rights: {models: ['']}", "a:2:75: 'rights.models[0]' must not be empty"),
        ("rights: {models: null}", "a:2:74: 'rights.models' is empty (give it a value, or remove the key)"),
        ("rights: {data: [notes/a.md]}", "a:2:73: 'rights.data[0]' must be 'files:PATTERN', 'results:PATTERN' or 'urls:PATTERN' (such as 'files:notes/a.md')"),
        ("rights: {data: ['files:*', 'file:x']}", "a:2:84: 'rights.data[1]' must be 'files:PATTERN', 'results:PATTERN' or 'urls:PATTERN' (did you mean 'files:'?)"),
        ("rights: {budget_usd: 0}", "a:2:78: 'rights.budget_usd' must be more than 0 and at most 1,000,000"),
        ("roles: [raeder]", "a:2:65: there is no role 'raeder' (did you mean 'reader'?)"),
        ("tools: [look]", "a:2:57: 'tools' is not supported yet"),
    ],
)  # fmt: skip
def test_a_mistake_in_rights_is_told_with_its_place(text: str, mistake: str) -> None:
    agents = f'agents:\n  - {{name: a, version: "1", model: m, instructions: xx, {text}}}\nroles: [{{name: reader, rights: {{}}}}]\n'

    with pytest.raises(Invalid) as caught:
        registry_from_text(agents, file="a")

    assert [str(problem) for problem in caught.value.problems] == [mistake]


def test_a_role_is_named_once_and_one_that_is_wrong_is_not_unknown() -> None:
    text = 'roles: [{name: a, rights: {}}, {name: A, rights: {}}, {name: b}]\nagents: [{name: x, version: "1", model: m, instructions: x, roles: [b]}]\n'

    with pytest.raises(Invalid) as caught:
        registry_from_text(text, file="a")

    assert [str(problem) for problem in caught.value.problems] == [
        "a:1:39: the role 'A' is in line 1 and again in line 1 (names must differ)",
        "a:1:55: 'rights' is missing in a role",
    ]


# ---------------------------------------------------------------- at submit


def plan(tasks: str, *, registry: Registry = REGISTRY, top: str = "", **permits: Any) -> Planned:
    text = f"{top}tasks:\n{tasks}\n"
    return plan_from_text(text, file="p", registry=registry, folder=DictFolder(FILES), permits=Permits(**permits))


def mistakes(tasks: str, **options: Any) -> list[str]:
    with pytest.raises(Invalid) as caught:
        plan(tasks, **options)
    return [str(problem) for problem in caught.value.problems]


REFUSED = [
    ("  - {id: a, agent: wrong, prompt: x}", ["p:2:20: task 'a': agent 'wrong' may not use the model 'other': it has no right 'models: other' (add it to the rights of 'wrong')"]),
    ("  - {id: a, agent: poor, prompt: x}", ["p:2:20: task 'a': agent 'poor' may not spend money: it has no right 'budget_usd' (add it to the rights of 'poor')"]),
    ("  - {id: a, agent: narrow, prompt: x, files: [notes/*]}", ["p:2:47: task 'a': agent 'narrow' may not read the file 'notes/b.md': it has no right 'data: files:notes/b.md' (add it to the rights of 'narrow')"]),
    ("  - {id: a, agent: narrow, prompt: x, for_each: {files: notes/*}}", ["p:2:57: task 'a': agent 'narrow' may not read the file 'notes/b.md': it has no right 'data: files:notes/b.md' (add it to the rights of 'narrow')"]),
    ("  - {id: a, agent: free, prompt: x}\n  - {id: b, agent: reads, needs: [a], prompt: x}", ["p:3:35: task 'b': agent 'reads' may not read results of agent 'free': it has no right 'data: results:free' (add it to the rights of 'reads')"]),
    ("  - {id: b, agent: reads, needs: {a: optional}, prompt: x}\n  - {id: a, agent: free, prompt: x}", ["p:2:35: task 'b': agent 'reads' may not read results of agent 'free': it has no right 'data: results:free' (add it to the rights of 'reads')"]),
    ("  - {id: a, agent: free, prompt: x}\n  - {id: b, agent: reads, for_each: {from: a}, prompt: 'x {{ item }}'}", ["p:3:44: task 'b': agent 'reads' may not read results of agent 'free': it has no right 'data: results:free' (add it to the rights of 'reads')"]),
    ("  - {id: b, agent: reads, for_each: {from: a}, needs: [a], prompt: x}\n  - {id: a, agent: free, prompt: x}", ["p:2:56: task 'b': agent 'reads' may not read results of agent 'free': it has no right 'data: results:free' (add it to the rights of 'reads')"]),
    ("  - {id: a, agent: free, prompt: x, tools: [look]}", ["p:2:45: task 'a': agent 'free' may not use the tool 'look': it has no right 'tools: look' (add it to the rights of 'free')"]),
    ("  - {id: a, agent: tooled, prompt: x, tools: [look, shell]}", ["p:2:53: task 'a': agent 'tooled' may not use the tool 'shell': it has no right 'tools: shell' (add it to the rights of 'tooled')"]),
    ("  - {id: a, agent: tooled, prompt: x, tools: [look]}", ["p:2:47: task 'a': 'tools' is not supported yet"]),
    ("  - {id: a, agent: free, prompt: x, files: [ask.md, 'https://example.org/a']}", ["p:2:53: task 'a': agent 'free' may not read the address 'https://example.org/a': it has no right 'data: urls:https://example.org/a' (add it to the rights of 'free')"]),
    ("  - {id: a, agent: tooled, prompt: x, files: ['HTTP://example.org/*']}", ["p:2:47: task 'a': 'files': an address is not supported yet (save it as a file beside the plan)"]),
    ("  - {id: a, capability: [reading], prompt: x, files: [ask.md]}", ["p:2:25: task 'a': of the 2 agents that are capable of 'reading', none has the rights for this task (agent 'reads' may not read the file 'ask.md': it has no right 'data: files:ask.md'; agent 'poor' may not read the file 'ask.md': it has no right 'data: files:ask.md', and 1 more)"]),
    ("  - {id: a, capability: thrift, prompt: x}", ["p:2:25: task 'a': agent 'poor' may not spend money: it has no right 'budget_usd' (add it to the rights of 'poor')"]),
    (
        "  - {id: a, agent: reads, prompt: x}\n  - {id: b, agent: free, needs: {a: {pass: summary}}, prompt: x}",
        ["p:2:10: task 'a': its result is summed up for those that need it, and agent 'summarizer' may not read results of agent 'reads': it has no right 'data: results:reads' (add it to the rights of 'summarizer', or say 'pass: full' where it is needed)"],
    ),
    ("  - {id: a, agent: free, prompt: x, review: {by: reads}}", ["p:2:50: task 'a': its answer is reviewed by 'reads', and agent 'reads' may not read results of agent 'free': it has no right 'data: results:free' (add it to the rights of 'reads')"]),
]  # fmt: skip


@pytest.mark.parametrize(("tasks", "told"), REFUSED, ids=range(len(REFUSED)))
def test_a_right_that_a_plan_shows_to_be_missing_is_a_mistake_in_it(tasks: str, told: list[str]) -> None:
    assert mistakes(tasks) == told


def test_all_that_is_missing_is_told_at_once_with_all_other_mistakes() -> None:
    found = mistakes(
        "  - {id: a, agent: wrong, prompt: x, files: [ask.md], priority: soon}\n"
        "  - {id: b, agent: narrow, needs: [a], prompt: x, tools: [look]}"
    )

    assert [each.partition(": ")[0] for each in found] == ["p:2:20", "p:2:46", "p:2:65", "p:3:36", "p:3:59"]


def test_who_is_asked_by_capability_is_the_first_that_has_the_rights() -> None:
    """`free` comes first where it may; the file is granted to `reads` by its role; `reading` skips who has no money."""
    found = plan(
        "  - {id: a, capability: work, prompt: x}\n"
        "  - {id: b, capability: reading, prompt: x, files: [notes/*]}\n"
        "  - {id: c, capability: work, prompt: x, needs: [b]}"
    ).plan

    assert {task.id: task.agent for task in found.tasks} == {"a": "free", "b": "reads", "c": "free"}


def test_who_is_given_the_items_of_a_list_has_the_right_to_it() -> None:
    """Also where it is chosen by what it can do, and where the list is its own."""
    tasks = "  - {id: b, capability: [work, reading], for_each: {from: a}, prompt: '{{ item }}'}\n  - {id: a, agent: %s, prompt: x}"
    allowed = (
        "  - {id: a, agent: free, prompt: x}\n  - {id: b, agent: summarizer, for_each: {from: a}, prompt: '{{ item }}'}"
    )

    assert plan(allowed).plan.tasks[1].agent == "summarizer"
    assert "agent 'reads' may not read results of agent 'free'" in mistakes(tasks % "free")[0]
    assert "agent 'reads' may not read results of agent 'reads'" in mistakes(tasks % "reads")[0]


def test_the_choice_for_one_task_counts_for_those_that_need_it() -> None:
    """Whoever made the result is known when the dependant is looked at, wherever it stands in the file."""
    tasks = "  - {id: last, agent: summarizer, needs: [first], prompt: x}\n  - {id: first, capability: %s, prompt: x}"

    assert plan(tasks % "work").plan.tasks[1].agent == "free"
    assert "may not read results of agent 'reads'" in mistakes(tasks % "[work, reading]")[0]


def test_what_the_register_has_taken_counts_at_submit() -> None:
    gone = after((Verb.WITHDRAWN, {"right": "models", "pattern": "m*"}))
    found = mistakes("  - {id: a, agent: free, prompt: x}", standing=lambda _: gone)

    told = "agent 'free' may not use the model 'm': 'models: m*' was withdrawn by mo, 2026-05-01 12:00 UTC"
    assert found == [f"p:2:20: task 'a': {told} (./starter.py agents grant free models 'm*')"]
    assert (
        "agent 'free' is disabled (by mo)"
        in mistakes("  - {id: a, agent: free, prompt: x}", standing=lambda _: after((Verb.DISABLED, {})))[0]
    )
    assert len(mistakes("  - {id: a, agent: free, prompt: x}", governed=True)) == 2


def test_an_agent_that_is_bound_to_a_region_needs_a_right_to_it() -> None:
    """So does whoever sums up its result there. One without rights has the region that it or its plan names."""
    names = ("free", "narrow")
    where = tuple(each.model_copy(update={"region": "eu"}) if each.name in names else each for each in REGISTRY.agents)
    bound = Registry(where, REGISTRY.roles)
    told = "may not be called in the region 'eu': it has no right 'regions: eu'"
    tasks = "  - {id: a, agent: free, prompt: x}\n  - {id: b, agent: free, needs: {a: {pass: summary}}, prompt: x}"

    assert told in mistakes("  - {id: a, agent: narrow, prompt: x}", registry=bound)[0]
    granted = tuple(each.model_copy(update={"rights": EVERYTHING}) if each.name == "narrow" else each for each in where)
    plan("  - {id: a, agent: narrow, prompt: x}\n  - {id: b, agent: free, prompt: x}", registry=Registry(granted))
    (found,) = mistakes(tasks, registry=bound)
    assert f"and agent 'summarizer' {told}" in found


def test_a_role_that_was_given_after_the_submit_counts_for_no_plan_of_its_run() -> None:
    """Neither when a person changes the plan nor in what the run has pinned; what was given before it counts on."""
    reader = REGISTRY.roles[0]
    gave = Act(
        number=1,
        time=NOON,
        by="mo",
        verb=Verb.ROLE_GIVEN,
        agent="narrow",
        data={"role": reader.model_dump(mode="json")},
    )
    now = replace(REGISTRY, admission=Admission(Register([gave])))
    own = 'agents: [{name: own, version: "1", model: m, instructions: x, rights: {models: [m], budget_usd: 1}}]\n'
    given_to_own = gave.model_copy(update={"agent": "own"})
    first, then = "  - {id: a, agent: narrow, prompt: x}", "  - {id: a, agent: narrow, prompt: x, files: [notes/b.md]}"
    before, after_it = plan(first).plan, plan(first, registry=now).plan

    assert plan(then, registry=now).plan.agents[0].given == (reader,), "a new run has it"
    assert "may not read the file 'notes/b.md'" in mistakes(then, registry=with_pinned(now, before.agents))[0]
    wider = plan(first, registry=with_pinned(now, before.agents)).plan
    assert changed(before, wider, {}, {}).plan.agents == before.agents
    assert plan(then, registry=with_pinned(REGISTRY, after_it.agents)).plan.agents[0].given == (reader,)
    started = plan(first.replace("narrow", "own"), top=own).plan
    later = replace(REGISTRY, admission=Admission(Register([given_to_own])))
    mine = then.replace("narrow", "own")
    assert plan(mine, top=own, registry=later).plan.agents[0].given == (reader,)
    assert "may not read the file" in mistakes(mine, top=own, registry=with_pinned(later, started.agents))[0]


def test_a_plan_inside_a_plan_is_given_no_results_that_it_may_not_read() -> None:
    """Neither inside it, nor from outside; and its own results have a maker, too."""
    inner = b"tasks: [{id: in, agent: reads, prompt: x}, {id: out, agent: free, needs: [in], prompt: x}]"
    text = (
        "tasks:\n  - {id: a, agent: free, prompt: x}\n  - {id: part, plan: inner.yaml, needs: [a]}\n"
        "  - {id: b, agent: narrow, needs: [part], prompt: x}\n"
    )

    with pytest.raises(Invalid) as caught:
        plan_from_text(text, file="p", registry=REGISTRY, folder=DictFolder({"inner.yaml": inner}))

    assert [str(problem).partition(": it has")[0] for problem in caught.value.problems] == [
        "p:3:42: task 'part': agent 'reads' may not read results of agent 'free'",
        "p:4:36: task 'b': agent 'narrow' may not read results of agent 'free'",
    ]


def test_an_agent_of_a_plan_may_have_rights_and_the_roles_that_there_are() -> None:
    top = 'agents: [{name: own, version: "1", model: m, instructions: x, roles: [reader], rights: {data: ["results:*"]}}]\n'
    found = plan("  - {id: a, agent: own, prompt: x, files: [notes/a.md]}", top=top).plan

    assert found.agents[0].granted == Rights(models=("m",), data=("results:*", "files:notes/*"), budget_usd=Decimal(2))
    assert (
        "there is no role 'nobody'"
        in mistakes("  - {id: a, agent: own, prompt: x}", top=top.replace("reader", "nobody"))[0]
    )
