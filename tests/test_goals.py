"""From a goal to a report: the planner plans, what it proposes is judged, and the run goes on with it."""

from __future__ import annotations

import json
import re
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from conftest import Bench, Run
from home import ROOT, Home

from domain.events import EventType
from domain.models import RunStatus, TaskStatus
from domain.planning import Planned, plan_from_text
from domain.planning.goals import plan_for
from domain.planning.playbooks import playbook_from_text
from domain.registry import Registry, registry_from_text
from folder import PlanFolder
from heritage import successor
from prices import priced
from terminal.commands import main
from terminal.goal_words import words_of_planner

REGISTRY = registry_from_text((ROOT / "agents.yaml").read_text(), file="agents.yaml")
PLAYBOOKS = tuple(
    playbook_from_text(file.read_text(), file=file.name) for file in sorted((ROOT / "playbooks").glob("*.yaml"))
)
SYSTEMS = "Answer one question from several systems at once, systems: crm, billing and support. Who is about to leave?"
DEAR = {
    "why": "x",
    "playbook": "",
    "params": [],
    "tasks": [{"id": f"t{n}", "agent": "coder", "prompt": "x", "needs": []} for n in range(50)],
}
GOAL = "Find out how a small town could run a night bus, what it costs and who would use it."
CYCLE = {
    "why": "x",
    "playbook": "",
    "params": [],
    "tasks": [
        {"id": "a", "agent": "writer", "prompt": "x", "needs": ["b"]},
        {"id": "b", "agent": "writer", "prompt": "x", "needs": ["a"]},
    ],
}


@pytest.fixture
def registry() -> Registry:
    """The shipped agents, in place of those of the bench."""
    return REGISTRY


def planned(goal: str = GOAL, **options: Any) -> Planned:
    return plan_for(goal, registry=REGISTRY, simulated=True, **{"max_concurrency": 20, **options})


async def start(crew: Bench, made: Planned) -> Run:
    run = await crew.client.submit(made, id=None, simulated=True, queue=crew.queue)
    return Run(run, crew.client, crew.temporal)


async def test_a_goal_becomes_tasks_side_by_side_and_one_merged_answer(crew: Bench) -> None:
    """PLANNING until its plan is there. The planner's own answer is no result of the run."""
    crew.simulator.script([{"when": {"task": "plan"}, "then": {"ttft": 8}}])
    run = await start(crew, planned())
    planning = await run.until(lambda picture: picture.status is RunStatus.PLANNING)

    report = await run.report()

    assert len(planning.tasks) == 1
    assert report.status is RunStatus.COMPLETED
    needs = {task.id: {need.task for need in task.needs} for task in (await crew.client.picture(run.id)).plan.tasks}
    parallel = [id for id, needed in needs.items() if needed == {"plan"}]
    assert len(needs) - 1 >= 4
    assert len(parallel) >= 3
    assert needs["answer"] == set(parallel)
    assert list(report.outputs) == ["answer"]
    assert all(f"[{id}]" in (report.output or "") for id in parallel), "merged, with its sources"
    assert Counter(entry.task for entry in crew.simulator.log) == dict.fromkeys(needs, 1)


async def test_a_plan_of_twenty_tasks_at_once_holds(crew: Bench) -> None:
    """All twenty are asked before the first has answered: slowly, but well before its silence counts as a failure."""
    crew.simulator.script([{"when": {"task": "plan"}, "then": {"ttft": 0}}, {"then": {"ttft": 25}}])
    run = await start(crew, planned("Compare what is said of night buses in 20 areas of the country."))
    await crew.simulator.until(lambda: crew.simulator.in_flight >= 20)
    crew.simulator.script([])

    report = await run.report()

    assert report.status is RunStatus.COMPLETED
    assert (report.census.total, report.census.succeeded) == (23, 23)
    assert sum(task.id.startswith("look[") for task in report.tasks) == 20
    assert report.concurrency.peak == 20


async def test_what_one_agent_can_do_in_one_call_becomes_one_task(crew: Bench) -> None:
    run = await start(crew, planned("Name three ferries."))

    report = await run.report()

    assert (report.status, [task.id for task in report.tasks]) == (RunStatus.COMPLETED, ["plan", "answer"])
    assert "One agent can do this in one call" in (report.tasks[0].output or "")


async def test_a_goal_of_the_kind_of_a_playbook_runs_by_it(crew: Bench) -> None:
    """The planner names playbook and parameters, and the run grows by what the playbook makes of them."""
    run = await start(crew, planned(SYSTEMS, playbooks=PLAYBOOKS))

    report = await run.report()

    asked = ["ask[crm]", "ask[billing]", "ask[support]"]
    plan = (await crew.client.picture(run.id)).plan
    assert (report.status, [task.id for task in report.tasks]) == (RunStatus.COMPLETED, ["plan", *asked, "report"])
    by_playbook = plan_from_text(
        next(playbook.text for playbook in PLAYBOOKS if playbook.name == "systems-report"),
        file="p.yaml",
        registry=REGISTRY,
        folder=PlanFolder(ROOT),
        params={"systems": "crm,billing,support", "question": SYSTEMS},
    ).plan
    assert [task.prompt for task in plan.tasks[1:]] == [task.prompt for task in by_playbook.tasks]
    assert [task.expect for task in plan.tasks[1:]] == [task.expect for task in by_playbook.tasks], "its checks too"
    assert all({need.task for need in task.needs} == {"plan"} for task in plan.tasks[1:4]), "all at once"
    assert list(report.outputs) == ["report"]
    assert all(f"[{id}]" in (report.output or "") for id in asked), "merged, with its sources"
    (told,) = await words_of_planner(crew.client, await crew.client.picture(run.id))
    assert told.startswith("Planned: 4 tasks by the playbook systems-report, up to 3 at once.")


async def test_a_planner_gets_its_mistakes_back_and_may_mend_them(crew: Bench) -> None:
    crew.simulator.script([{"when": {"task": "plan", "nth": 1}, "then": {"answer": json.dumps(CYCLE)}}])
    run = await start(crew, planned())

    report = await run.report()

    asked = [entry for entry in crew.simulator.log if entry.task == "plan"]
    assert (report.status, len(asked)) == (RunStatus.COMPLETED, 2)


async def test_a_planner_that_does_not_mend_them_ends_the_run_before_anything_else_is_paid(crew: Bench) -> None:
    crew.simulator.script([{"when": {"task": "plan"}, "then": {"answer": json.dumps(CYCLE)}}])
    run = await start(crew, planned())

    report = await run.report()

    (task,) = report.tasks
    assert (report.status, task.status) == (RunStatus.FAILED, TaskStatus.FAILED)
    assert task.error is not None
    assert (task.error.type, "a -> b" in task.error.message) == ("AnswerInvalid", False), "no word of the answer"
    (told,) = await words_of_planner(crew.client, await crew.client.picture(run.id))
    assert "the needs form a cycle: a -> b -> a" in told
    assert [entry.task for entry in crew.simulator.log] == ["plan"] * 3, "the first proposal, and twice the mistakes"


async def test_a_plan_that_will_likely_cost_more_than_the_budget_is_not_begun(crew: Bench) -> None:
    """The planner may propose less, twice. Then the run ends for want of money, and goes on with more of it."""
    crew.simulator.script([{"when": {"task": "plan"}, "then": {"answer": json.dumps(DEAR)}}])
    made = plan_for(GOAL, registry=REGISTRY, simulated=False, budget=Decimal("0.70"))
    run = await start(crew, Planned(priced(made.plan), made.contents, made.sources, made.warnings))

    report = await run.report()

    assert report.status is RunStatus.BUDGET_STOPPED
    (task,) = report.tasks
    assert (task.status, task.error.type if task.error else None) == (TaskStatus.FAILED, "PlanTooDear")
    (attention,) = report.attention
    assert (attention.kind, attention.task, attention.do) == ("budget", None, f"retry {run.id} --budget USD")
    assert re.match(r"the plan will likely cost \$\d\.\d\d, and the budget is \$0\.70", attention.what or "")
    (told,) = await words_of_planner(crew.client, await crew.client.picture(run.id))
    assert "and the budget is $0.70" in told
    assert [entry.task for entry in crew.simulator.log] == ["plan"] * 3
    types = [event.type for event in await run.events()]
    assert types.count(EventType.BUDGET_STOPPED) == 1

    found = await successor(crew.client, run.id, (), {"budget": Decimal(50)})
    again = Planned(plan=found.plan, contents={}, sources={}, warnings=())
    queue = crew.queue
    id = await crew.client.submit(again, id=found.id, simulated=True, queue=queue, heritage=found.heritage)
    report = await Run(id, crew.client, crew.temporal).report()

    assert (report.status, report.census.succeeded) == (RunStatus.COMPLETED, 51)


async def test_an_answer_without_what_is_expected_goes_back_and_then_fails(crew: Bench) -> None:
    """`expect` of a task: its text is kept, and those that need it are not begun."""
    text = """
    tasks:
      - {id: a, agent: writer, prompt: x, expect: {mentions: [ferry]}}
      - {id: b, agent: writer, prompt: x, expect: {mentions: [ferry]}}
      - {id: c, agent: writer, prompt: x, needs: [b]}
    """
    made = plan_from_text(text, file="p.yaml", registry=REGISTRY, folder=PlanFolder(ROOT))
    crew.simulator.script(
        [
            {"when": {"task": "a", "nth": 2}, "then": {"answer": "The Ferry sails."}},
            {"then": {"answer": "Nothing sails."}},
        ]
    )
    run = await start(crew, made)

    report = await run.report()

    ends = {task.id: task for task in report.tasks}
    assert [ends[id].status for id in "abc"] == [TaskStatus.SUCCEEDED, TaskStatus.FAILED, TaskStatus.SKIPPED]
    assert "its answer lacks what is expected of it" in (ends["b"].error.message if ends["b"].error else "")
    assert ends["b"].output_ref is not None
    assert Counter(entry.task for entry in crew.simulator.log) == {"a": 2, "b": 2}


# By the command line


def test_a_goal_whose_plan_is_too_dear_ends_for_want_of_money(home: Home) -> None:
    """Simulated answers are reckoned as short as they are: so it is the prompts that are long."""
    prompt, items = f"{'word ' * 6_000}{{{{ item }}}}", [str(number) for number in range(50)]
    long = {"id": "t", "agent": "coder", "prompt": prompt, "needs": [], "items": items}
    home.script({"when": {"task": "plan"}, "then": {"answer": json.dumps({**DEAR, "tasks": [long]})}})

    stopped = home("run", "--goal", GOAL, "--budget", "0.70", "--id", "dear")

    assert stopped.returncode == 6, stopped.stderr
    assert "BUDGET_STOPPED" in stopped.stdout
    assert "retry dear --budget USD" in stopped.stdout


def test_a_goal_a_written_plan_and_a_playbook_by_the_command_line(home: Home, tmp_path: Path) -> None:
    """The plan that is written for a goal is a plan that runs, and says what it comes to."""
    file = tmp_path / "night bus.yaml"

    made = home("plan", GOAL, "-o", str(file))
    again = home("plan", GOAL, "-o", str(file))
    valid = home("validate", str(file))
    home.script({"when": {"task": "plan"}, "then": {"ttft": 8}}, ttft=0, tokens_per_second=0)  # so that it is seen
    ran = home("run", "--goal", GOAL, "--max-concurrency", "8")
    chosen = home("run", "--goal", SYSTEMS, "--json")
    asked = home("run", "--playbook", "systems-report", "--param", "systems=crm,billing", "--param", "question=Why?")

    assert (made.returncode, again.returncode, valid.returncode) == (0, 2, 0), made.stderr
    assert "--force" in again.stderr
    text = file.read_text()
    assert text.startswith(f"# The plan for this goal:\n#   {GOAL}\n")
    assert "# 6 tasks, up to 5 at once. The longest chain has 2 tasks: about" in text
    assert "tokens in and" in text
    assert "night-bus: 6 tasks, valid." in valid.stdout
    assert (ran.returncode, asked.returncode) == (0, 0), ran.stderr + asked.stderr
    assert chosen.returncode == 0, chosen.stderr
    report = json.loads(chosen.stdout)
    assert (report["status"], report["census"]["succeeded"], list(report["outputs"])) == ("COMPLETED", 5, ["report"])
    assert all(f"[ask[{name}]]" in report["output"] for name in ("crm", "billing", "support"))
    assert "7 of 7 tasks succeeded" in ran.stdout
    assert "Planned: 6 tasks, up to 5 at once." in ran.stdout
    assert "PLANNING" in ran.stderr


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["run", "--goal", " "], 2, "A goal is a text of at most 100,000 characters, and not empty."),
        (["run", "x.yaml", "--goal", "x"], 2, "PLAN cannot stand beside --goal."),
        (["submit", "--goal", "x", "--param", "a=b"], 2, "--param cannot stand beside --goal."),
        (["run", "--goal", "x", "--only", "a"], 2, "--only cannot stand beside --goal."),
        (["run", "x.yaml", "--max-tasks", "5"], 2, "--max-tasks is for a --goal."),
        (["run", "--goal", "x", "--budget", "0.05"], 6, "Set a higher --budget, or fewer --max-tasks."),
        (["run", "--goal", "x"], 6, "Nobody knows yet what this goal will cost"),
    ],
)
def test_a_goal_that_cannot_be_begun_is_refused_with_the_remedy(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    code: int,
    told: str,
) -> None:
    if code == 6:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "not-a-key")

    assert main(["--home", str(tmp_path / "fresh"), *words]) == code

    said = capsys.readouterr()
    assert told in said.err
    assert said.out == ""
    assert not (tmp_path / "fresh").exists()
