"""Playbooks: plans with parameters, by the real command line, each run to its report by its own example."""

# ruff: noqa: E501  (a table of mistakes reads best with one mistake per line)

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import Bench, Run
from home import ROOT

from domain.document import Invalid
from domain.expectations import unmet
from domain.models import Expectation, RunStatus, TaskStatus
from domain.planning import Planned, plan_from_text
from domain.planning.playbooks import playbook_from_text
from domain.registry import Registry, registry_from_text
from folder import PlanFolder
from terminal.commands import main

FILES = sorted((ROOT / "playbooks").glob("*.yaml"))
PLAYBOOKS = {file.stem: playbook_from_text(file.read_text(), file=file.name) for file in FILES}
REGISTRY = registry_from_text((ROOT / "agents.yaml").read_text(), file="agents.yaml")
EACH = pytest.mark.parametrize("name", PLAYBOOKS)

WAITS_FOR_PEOPLE = "document-review"


def planned(text: str, **params: str) -> Planned:
    return plan_from_text(text, file="p.yaml", registry=REGISTRY, folder=PlanFolder(ROOT), params=params)


def mistakes(text: str, **params: str) -> list[str]:
    with pytest.raises(Invalid) as caught:
        planned(text, **params)
    return [str(problem) for problem in caught.value.problems]


def test_there_is_one_for_each_of_the_named_uses() -> None:
    assert set(PLAYBOOKS) == {
        "systems-report",
        "research-brief",
        "code-change",
        "document-review",
        "data-collection",
    }


@EACH
def test_a_playbook_says_when_it_applies_what_it_must_be_told_and_what_it_may_cost(name: str) -> None:
    playbook = PLAYBOOKS[name]
    made = planned(playbook.text, **playbook.example)

    assert playbook.name == name
    assert playbook.when.endswith(".")
    assert all(param.about for param in playbook.params)
    assert made.warnings == ()
    assert made.plan.budget is not None
    assert made.plan_sources["max_concurrency"] == "plan"
    assert all(task.asked for task in made.plan.tasks), "by capability: so a home's own agents can take part"
    assert any(task.expect for task in made.plan.tasks), "a check on the result"


@EACH
def test_the_same_parameters_make_the_same_plan(name: str) -> None:
    playbook = PLAYBOOKS[name]

    assert planned(playbook.text, **playbook.example).plan == planned(playbook.text, **playbook.example).plan


@EACH
def test_what_a_playbook_must_be_told_is_asked_for_in_its_own_words(name: str) -> None:
    playbook = PLAYBOOKS[name]
    needed = [param for param in playbook.params if param.default is None]

    found = mistakes(playbook.text)

    assert len(found) == len(needed) > 0
    for problem, param in zip(found, needed, strict=True):
        assert f"(--param {param.name}=VALUE: {param.about})" in problem


LIST = """
params: {names: {default: ""}}
tasks: [{id: ask, for_each: {param: names}, agent: writer, prompt: "{{ item }}"}]
"""


@pytest.mark.parametrize(
    ("names", "ids"),
    [
        ("crm", ["ask[crm]"]),
        ("crm, billing ,x y", ["ask[crm]", "ask[billing]", "ask[x y]"]),
        ("a,,b,", ["ask[a]", "ask[b]"]),
        ("{{ item }}", "the item '{{ item }}' of the parameter 'names' must be printable"),
        ("a,A", "the parameter 'names' has 'A' twice"),
        (" , ", "the parameter 'names' holds no items (--param names=ONE,ANOTHER)"),
        ("x" * 101, "must be at most 100 characters long"),
        (",".join(map(str, range(10_001))), "the plan has 10,001 tasks; at most 10,000 are possible"),
    ],
)
def test_a_list_that_comes_as_a_parameter_is_one_task_for_each_item(names: str, ids: list[str] | str) -> None:
    if isinstance(ids, list):
        assert [task.id for task in planned(LIST, names=names).plan.tasks] == ids
    else:
        (problem,) = mistakes(LIST, names=names)
        assert ids in problem


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tasks: [{id: a, for_each: {param: nam}, agent: writer, prompt: x}]\nparams: {name: {default: x}}", "did you mean 'name'?"),
        ("tasks: [{id: a, for_each: {param: n, files: x}, agent: writer, prompt: x}]", "'files' cannot stand beside the other key of 'for_each'"),
        ("tasks: [{id: a, agent: writer, prompt: x, expect: {}}]", "'expect' expects nothing"),
        ("tasks: [{id: a, agent: writer, prompt: x, expect: {mentions: x}}]", "must be a list of texts, or {param: NAME}"),
        ("tasks: [{id: a, agent: writer, prompt: x, expect: {min_words: 0}}]", "must be at least 1"),
        ("tasks: [{id: a, agent: writer, prompt: x, files: ['{{ params.x }}']}]\nparams: {x: {default: ../up}}", "must not hold '..'"),
        ("tasks: [{id: a, agent: writer, prompt: x, files: ['{{ params.x }}']}]\nparams: {x: {default: /etc/passwd}}", "must be relative"),
        ("tasks: [{id: a, for_each: [b], agent: writer, prompt: x, files: ['{{ item }}']}]", "'{{ item }}' cannot stand in a path"),
        ("tasks: [{id: a, agent: writer, prompt: x}]\nplaybook: {}", "'when' is missing in 'playbook'"),
        ("tasks: [{id: a, agent: writer, prompt: x}]\nplaybook: {when: x, wenn: y}", "unknown key 'wenn' in 'playbook'"),
    ],
)  # fmt: skip
def test_a_mistake_in_what_playbooks_are_made_of_is_told(text: str, words: str) -> None:
    (problem,) = mistakes(text)

    assert words in problem


@pytest.mark.parametrize(
    ("expected", "text", "told"),
    [
        (Expectation(mentions=("CRM",)), "the crm says", None),
        (Expectation(mentions=("crm", "billing")), "the crm says", "The answer does not mention 'billing'"),
        (Expectation(min_words=3), "one two three", None),
        (Expectation(min_words=4), "one two three", "The answer has 3 words, and must have at least 4"),
        (Expectation(mentions=("x",), min_words=2), "y", "The answer does not mention 'x' and has 1 words, and must"),
    ],
)
def test_what_an_answer_lacks_is_said_in_a_sentence(expected: Expectation, text: str, told: str | None) -> None:
    found = unmet(expected, text)

    assert (found is None) == (told is None)
    assert (found or "").startswith(told or "")


def test_a_plan_without_a_word_on_when_it_applies_is_no_playbook() -> None:
    with pytest.raises(Invalid, match="says when it applies"):
        playbook_from_text("tasks: []", file="p.yaml")


# Run to their reports


@pytest.fixture
def registry() -> Registry:
    """The shipped agents, in place of those of the bench."""
    return REGISTRY


async def start(crew: Bench, name: str) -> Run:
    playbook = PLAYBOOKS[name]
    made = planned(playbook.text, **playbook.example)
    return Run(await crew.client.submit(made, id=None, simulated=True, queue=crew.queue), crew.client, crew.temporal)


@pytest.mark.parametrize("name", [name for name in PLAYBOOKS if name != WAITS_FOR_PEOPLE])
async def test_the_example_of_a_playbook_runs_to_its_report(crew: Bench, name: str) -> None:
    report = await (await start(crew, name)).report()

    assert (report.status, report.name) == (RunStatus.COMPLETED, name)
    assert (report.output or "").startswith("[Simulated answer]")


async def test_all_departments_are_asked_at_once_and_the_one_that_says_no_is_named(crew: Bench) -> None:
    run = await start(crew, WAITS_FOR_PEOPLE)
    await run.until(lambda picture: sum(task.status is TaskStatus.WAITING for task in picture.tasks.values()) == 3)
    await crew.client.approve(run.id, ["position[Legal]", "position[Operations]"], by="test")
    await crew.client.reject(run.id, ["position[Finance]"], by="test", note="Too dear.")

    report = await run.report()

    assert report.status is RunStatus.DEGRADED
    assert "position[Finance] was missing" in (report.output or "")


def test_playbooks_are_listed_and_one_of_the_home_goes_before_a_shipped_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / "playbooks"
    own.mkdir()
    (own / "systems-report.yaml").write_text("playbook: {when: Never.}\ntasks: [{id: a, agent: writer, prompt: x}]\n")

    assert main(["--home", str(tmp_path), "playbooks", "--json"]) == 0
    listed = {each["name"]: each for each in json.loads(capsys.readouterr().out)["playbooks"]}
    assert main(["--home", str(tmp_path), "validate", "--playbook", "systems-report"]) == 0

    assert set(listed) == set(PLAYBOOKS)
    assert listed["systems-report"]["when"] == "Never."
    assert capsys.readouterr().out == "systems-report: 1 tasks, valid.\n"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ["run", "--playbook", "research-brif"],
            "There is no playbook 'research-brif'. Did you mean 'research-brief'?",
        ),
        (["submit", "examples/chain.yaml", "--playbook", "research-brief"], "Name a PLAN or a --playbook, not both."),
        (["estimate"], "Name a PLAN, a --playbook or a --goal."),
        (["run", "--playbook", "research-brief", "--param", "question= "], "the parameter 'question' is empty"),
        (["validate", "--playbook", "research-brief", "--param", "qestion=x"], "did you mean 'question'?"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    code = main(["--home", str(tmp_path / "fresh"), *words])

    said = capsys.readouterr()
    assert (code, said.out) == (2, "")
    assert told in said.err
