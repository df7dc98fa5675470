"""Replanning: what may be proposed, what is made of it, and that nothing else changes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from conftest import Bench
from plans import START, answered
from test_planning import mistakes

from domain.amending import difference
from domain.amendments import Amendment
from domain.chart import Chart
from domain.checks import complaint
from domain.course import Course
from domain.growing import edited
from domain.growths import Growth
from domain.models import Form, Plan, Policy, RunStatus, Task, TaskStatus
from domain.planning import plan_from_text
from domain.planning.changes import Refused, changed
from domain.progress import Progress, outline_of
from domain.registry import Registry, registry_from_text
from domain.requests import Requests
from domain.rights import Rights, Role
from domain.steering import TaskSteering
from domain.step import Step
from folder import PlanFolder
from prices import price_list
from terminal.commands import main

REGISTRY = registry_from_text(
    """
agents:
  - {name: hand, version: "1", capabilities: [work], model: claude-haiku-4-5, instructions: Do the task., timeout: 20s}
  - {name: eye, version: "1", capabilities: [look], model: claude-haiku-4-5, instructions: Look., timeout: 20s}
  - {name: planner, version: "1", model: claude-haiku-4-5, instructions: Plan., timeout: 20s}
""",
    file="agents.yaml",
)
PLAN = """
replan: {after: [scan], rounds: 2, max_tasks: 3}
defaults: {agent: hand}
tasks:
  - {id: scan, for_each: [a, b], prompt: "Scan {{ item }}."}
  - {id: other, prompt: Another thing.}
  - {id: report, needs: {scan: optional, other: tolerate}, quorum: 1, budget_usd: 1, approval: true, prompt: Report.}
  - {id: last, needs: [report], prompt: "The last: {{ report }}"}
"""


def plan(text: str = PLAN) -> Plan:
    return plan_from_text(text, file="p.yaml", registry=REGISTRY, folder=PlanFolder.of("-")).plan


def tasks(of: Plan) -> dict[str, Task]:
    return {task.id: task for task in of.tasks}


def needs(**policies: str) -> list[dict[str, str]]:
    return [{"task": id.replace("_", "-"), "policy": policy} for id, policy in policies.items()]


def new(id: str = "more", agent: str = "eye", prompt: str = "Look closer.", **policies: str) -> dict[str, Any]:
    return {"id": id, "agent": agent, "prompt": prompt, "needs": needs(**policies)}


def edit(id: str, prompt: str = "", **policies: str) -> dict[str, Any]:
    return {"id": id, "prompt": prompt, "needs": needs(**policies)}


def proposal(add: Any = (), edit: Any = (), remove: Any = (), **more: Any) -> str:
    return json.dumps({"why": "so", "add": list(add), "edit": list(edit), "remove": list(remove), **more})


def made(text: str, of: Plan | None = None, by: str = "replan-1") -> Plan:
    given = of or plan()
    return changed(given, tasks(given)[by], text)


def with_rights(of: Plan, name: str, given: tuple[Role, ...]) -> Plan:
    update = {"rights": Rights(), "given": given}
    agents = [each.model_copy(update=update if each.name == name else {}) for each in of.agents]
    return of.model_copy(update={"agents": tuple(agents)})


# --- in a plan ---


def test_whoever_needs_what_is_looked_at_waits_for_the_word() -> None:
    """It only waits: its inputs, its quorum and what it is told are what they were. The proposals are no result."""
    found = tasks(plan())

    assert [*found] == ["scan[a]", "scan[b]", "other", "report", "last", "replan-1"]
    assert [(need.task, need.policy) for need in found["replan-1"].needs] == [
        ("scan[a]", Policy.OPTIONAL),
        ("scan[b]", Policy.OPTIONAL),
    ]
    waits = [need.task for task in found.values() for need in task.needs if need.form is Form.ORDER]
    assert waits == ["replan-1"]
    assert found["report"].needs[-1].form is Form.ORDER
    assert not found["scan[a]"].summarise
    assert {agent.name for agent in plan().agents} == {"hand", "eye", "planner"}, "a change may use any of them"


def test_what_is_after_something_that_is_looked_at_may_be_looked_at_too() -> None:
    """Nobody waits for whom it waits for."""
    found = tasks(plan(PLAN.replace("after: [scan]", "after: [scan, last]")))

    assert not [need for id in ("report", "last") for need in found[id].needs if need.form is Form.ORDER]


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ("{after: [nobody], by: idle}", "'replan' is to be after 'nobody', which is no task of this plan"),
        ("{after: [], by: idle}", "'replan.after' must not be empty"),
        ("{rounds: 2, by: idle}", "'after' is missing in 'replan'"),
        ("{after: [a], rounds: 11, by: idle}", "'replan.rounds' must be at most 10"),
        ("{after: [a], budget_usd: 1, by: idle}", "unknown key 'budget_usd' in 'replan'"),
        ("{after: [a], by: nobody}", "unknown agent 'nobody' (known: researcher, writer, idle)"),
        ("{after: [a], by: idel}", "unknown agent 'idel' (did you mean 'idle'?)"),
        ("{after: [a], by: [idle]}", "'replan.by' must be a text"),
        ("{after: [a]}", "'replan' asks the agent 'planner', and there is none that may work"),
        ("{after: [replan-1], by: idle}", "with 'replan' in the plan, ids like this one are those of the tasks"),
    ],
)
def test_what_is_written_wrongly_is_told(written: str, problem: str) -> None:
    id = "replan-1" if "replan-1" in written else "a"

    (found,) = mistakes(f"replan: {written}\ntasks: [{{id: {id}, agent: idle, prompt: x}}]\n")

    assert problem in found


def test_names_are_looked_up_though_a_number_beside_them_is_wrong() -> None:
    found = mistakes("replan: {after: [a, b, 7], rounds: 11, by: nobody}\ntasks: [{id: a, agent: idle, prompt: x}]\n")

    assert [each.split(": ", 1)[0] for each in found] == ["p:1:21", "p:1:24", "p:1:36", "p:1:44"]
    assert ["'b', which is no task" in found[0], "unknown agent 'nobody'" in found[3]] == [True, True]


# --- what may be proposed ---


def test_a_change_adds_edits_and_removes() -> None:
    """What is edited keeps all that a proposal has no word for: money, approval, quorum, agent."""
    before = tasks(plan())
    text = proposal(
        add=[new("more", scan="optional"), new("check", "hand", "Check {{ more }}.", more="require")],
        edit=[edit("report", "Report it otherwise.", scan="optional", check="tolerate")],
        remove=["last"],
    )

    found = tasks(made(text))

    assert [*found] == ["scan[a]", "scan[b]", "other", "report", "replan-1", "more", "check", "replan-2"]
    assert [need.task for need in found["more"].needs] == ["scan[a]", "scan[b]"]
    report = found["report"]
    assert [(need.task, need.form) for need in report.needs] == [
        *[("scan[a]", Form.FULL), ("scan[b]", Form.FULL), ("check", Form.FULL)],
        *[("replan-1", Form.ORDER), ("replan-2", Form.ORDER)],
    ]
    assert report.prompt == ("Report it otherwise.",)
    kept = ("agent", "budget", "approval", "quorum", "attempts", "timeout", "max_tokens")
    assert [getattr(report, key) for key in kept] == [getattr(before["report"], key) for key in kept]
    assert found["scan[a]"] is not None
    assert all(found[id] == before[id] for id in ("scan[a]", "scan[b]", "other", "replan-1"))


def test_the_next_round_is_about_what_this_one_added_within_what_is_left() -> None:
    """Three tasks in all, two rounds: the second may add one, and there is no third."""
    first = made(proposal(add=[new("one", scan="optional"), new("two")]))

    second = tasks(first)["replan-2"]

    assert [need.task for need in second.needs] == ["one", "two"]
    assert second.grows is not None
    assert (second.grows.max_tasks, second.grows.rounds) == (1, 0)
    assert "at most 1 tasks" in str(second.prompt[0])
    third = made(proposal(add=[new("three")]), first, "replan-2")
    assert "replan-3" not in tasks(third)
    with pytest.raises(Refused, match="it adds 2 tasks, and may add 1"):
        made(proposal(add=[new("three"), new("four")]), first, "replan-2")


def test_a_proposal_does_not_change_who_has_made_it() -> None:
    """It is told the plan, so it would weigh more by now: what it was told then stays what it was."""
    before = plan().model_copy(update={"prices": price_list({"claude-haiku-4-5"})})
    after = made(proposal(add=[new(scan="optional")]), before)
    old, other = Chart(outline_of(before)), Chart(outline_of(after))
    assert old.tasks["replan-1"].weight < other.tasks["replan-1"].weight

    change = difference(old, other, edited(before, after))

    assert (change.added, change.edited) == (("more", "replan-2"), ())


def test_an_agent_has_the_roles_that_it_had_been_given_at_submit() -> None:
    """The run has pinned them: no register says so again where a change is judged."""
    may = Role(name="ink", rights=Rights(models=("*",), budget_usd=Decimal(1)))

    assert "more" in tasks(made(proposal([new()]), with_rights(plan(), "eye", (may,))))
    with pytest.raises(Refused, match="agent 'eye' may not use the model"):
        made(proposal([new()]), with_rights(plan(), "eye", ()))


def test_no_change_is_a_good_answer() -> None:
    given = plan()

    assert made(proposal(), given) is given
    assert complaint(given, tasks(given)["replan-1"], proposal()) is None


HOSTILE = [
    ("not json", "not one JSON document"),
    ("[]", "valid dictionary"),
    (proposal(budget_usd=100), "Extra inputs"),
    (proposal(agents=[{"name": "own"}]), "Extra inputs"),
    (proposal(add=[{**new(), "rights": {"models": ["*"]}}]), "Extra inputs"),
    (proposal(add=[{**new(), "files": ["/etc/passwd"]}]), "Extra inputs"),
    (proposal(add=[{**new(), "attempts": 4}]), "Extra inputs"),
    (proposal(add=[new(f"t{n}") for n in range(4)]), "it adds 4 tasks, and may add 3"),
    (proposal(add=[new(f"t{n}") for n in range(10_001)]), "it adds 10,001 tasks"),
    (proposal(add=[new(agent="nobody")]), "unknown agent 'nobody'"),
    (proposal(add=[new(agent="hand@9")]), "no version '9' of 'hand'"),
    (proposal(add=[new("report")]), "'report' is in the plan already"),
    (proposal(add=[new("replan-7")]), "'replan-7' is in the plan already"),
    (proposal(add=[new("../x")]), "must be letters, digits"),
    (proposal(add=[new("x/merge-1-1")]), "must be letters, digits"),
    (proposal(add=[new("params")]), "reserved word"),
    (proposal(add=[new(), new()]), "the id 'more' is in line 1 and again"),
    (proposal(add=[new(more="require")]), "the task needs itself"),
    (proposal(add=[new("x", y="require"), new("y", x="require")]), "the needs form a cycle"),
    (proposal(add=[new("x", last="require")], edit=[edit("report", x="require", scan="optional")]), "form a cycle"),
    (proposal(add=[new(nobody="require")]), "needs 'nobody', which is no task"),
    (proposal(add=[new(scan="whatever")]), "must be require, tolerate or optional"),
    (proposal(add=[new(prompt="{{ report }}")]), "is placed but not in needs"),
    (proposal(add=[new(prompt="{{ secrets }}")]), "names no task"),
    (proposal(add=[new(prompt=" ")]), "must not be empty"),
    (proposal(edit=[edit("scan[a]", "Do it again.")]), "has ended: it cannot be changed"),
    (proposal(remove=["scan[b]"]), "has ended: it cannot be changed"),
    (proposal(remove=["replan-1"]), "is no task that a change can be about"),
    (proposal(remove=["nobody"]), "is no task of the plan"),
    (proposal(remove=["report"]), "'last' needs 'report', which the change removes"),
    (proposal(add=[new(last="require")], remove=["report"]), "'last' needs 'report', which the change removes"),
    (proposal(edit=[edit("report", other="optional")], remove=["report"]), "in the change more than once"),
    (proposal(edit=[edit("report", other="tolerate")]), "asks for 1 of its optional needs, and would have 0"),
    (proposal(edit=[edit("last")]), "places a result in its prompt that it would not need any more"),
]


@pytest.mark.parametrize(("text", "reason"), HOSTILE, ids=[f"{n} {each[1][:30]}" for n, each in enumerate(HOSTILE)])
def test_a_hostile_or_broken_change_changes_nothing(text: str, reason: str) -> None:
    """It is told to its agent, which may mend it; the plan is the same."""
    given = plan()

    with pytest.raises(Refused, match=reason.replace("'", ".")):
        made(text, given)

    assert given == plan()
    assert complaint(given, tasks(given)["replan-1"], text) is not None


# --- when a person is asked ---


def asked() -> tuple[Course, Progress]:
    """A run in which a change waits for a person's word."""
    before = plan(PLAN.replace("max_tasks: 3", "max_tasks: 3, approval: {expires: 1h}"))
    after = made(proposal(add=[new(scan="optional")]), before)
    course = Course(outline_of(before), plan_ref="old")
    progress = course.launch(course.begin(START).progress, START).progress
    for id in ("scan[a]", "scan[b]", "other"):
        progress = course.result(progress, id, answered(), START).progress
    progress = course.launch(progress, START).progress
    progress = course.result(progress, "replan-1", answered(), START).progress
    amendment = Amendment(plan_ref="new", base_ref="old", outline=outline_of(after), edited=edited(before, after))
    return course, course.grown(progress, "replan-1", Growth(base_ref="old", amendment=amendment), START).progress


ABOUT_IT = TaskSteering(by="me", tasks=("replan-1",))
LATER = START + timedelta(hours=2)
NO: dict[str, Callable[[Course, Progress], Step]] = {
    "reject": lambda course, progress: Requests(course.chart).reject(progress, ABOUT_IT, START),
    "skip": lambda course, progress: Requests(course.chart).skip(progress, ABOUT_IT, START),
    "expiry": lambda course, progress: course.wake(progress, LATER),
    "cancel": lambda course, progress: course.cancel(progress, START),
}


@pytest.mark.parametrize("how", NO)
def test_without_a_word_for_it_the_plan_stays_and_the_answer_is_told_with_its_cost(how: str) -> None:
    """While it is asked it holds no place, and what the change is about waits. A cancelled one is asked again."""
    course, progress = asked()
    assert progress.parked["replan-1"].what == "Its change adds more, replan-2"
    assert ("replan-1" in progress.active, "report" in progress.unmet) == (False, True)

    step = NO[how](course, progress)

    assert step.adopts is None
    status = TaskStatus.CANCELLED if how == "cancel" else TaskStatus.SUCCEEDED
    assert (step.progress.ended["replan-1"].status, dict(step.progress.growing)) == (status, {})
    (told,) = [event for event in step.events if event.task == "replan-1" and "status" in event.data]
    assert told.data["tokens"] == answered().usage.model_dump()


# --- on the server ---


@pytest.fixture
def registry() -> Registry:
    return REGISTRY


SMALL = """
replan: {after: [scan]MORE}
defaults: {agent: hand}
tasks:
  - {id: scan, prompt: Scan.}
  - {id: report, needs: [scan], prompt: Report.}
"""


async def test_the_simulator_proposes_one_more_task_and_then_nothing(crew: Bench) -> None:
    """The report uses it, the second round has no change, the outputs are those of the plan. Across new histories."""
    run = await crew.start(SMALL.replace("MORE", ", rounds: 3"), continue_after=1)

    report = await run.report()

    assert report.status is RunStatus.COMPLETED
    assert {task.id for task in report.tasks} == {"scan", "report", "replan-1", "follow-up", "replan-2"}
    assert [*report.outputs] == ["report"]
    assert report.census.total == report.census.succeeded == 5
    asked = [call.task for call in crew.simulator.log]
    assert sorted(filter(None, asked)) == ["follow-up", "replan-1", "replan-2", "report", "scan"]
    assert asked.index("report") == 4, "it waits for both rounds"
    (told,) = [event for event in await run.events() if event.type == "plan.changed"]
    assert (told.data["task"], told.data["added"]) == ("replan-1", ["follow-up", "replan-2"])


@pytest.mark.parametrize(("verb", "total"), [("approve", 4), ("reject", 3)])
async def test_a_change_waits_for_a_person_where_the_plan_says_so(crew: Bench, verb: str, total: int) -> None:
    """The question names what would change. Rejected, the plan stays as it is, and the run goes on."""
    run = await crew.start(SMALL.replace("MORE", ", approval: true"))
    picture = await run.until(lambda now: now.tasks["replan-1"].wait is not None)
    wait = picture.tasks["replan-1"].wait
    assert wait is not None
    assert (wait.reason, wait.what) == ("approval", "Its change adds follow-up; edits report")
    assert picture.tasks["report"].started is None

    await getattr(crew.client, verb)(run.id, ["replan-1"], by="me")
    report = await run.report()

    assert (report.status, report.census.total) == (RunStatus.COMPLETED, total)
    assert report.census.succeeded == total
    paid = {task.id: task.tokens.input > 0 for task in report.tasks}
    assert all(paid.values()), "a proposal that nobody wants was paid all the same"


async def test_a_change_of_what_is_at_work_is_refused_whole(crew: Bench) -> None:
    """It cannot know what has started; the run does. The task fails with its reason, and everything else goes on."""
    text = proposal(add=[new("more", scan="tolerate")], edit=[edit("other", "Otherwise.")])
    crew.simulator.script([{"when": {"task": "replan-1"}, "then": {"answer": text}}])

    run = await crew.start(SMALL.replace("MORE", "") + "  - {id: other, prompt: Another thing.}\n")
    report = await run.report()

    found = {task.id: task for task in report.tasks}
    assert [*found] == ["scan", "report", "other", "replan-1"]
    assert report.status is RunStatus.DEGRADED
    assert (found["replan-1"].status, found["report"].status) == ("FAILED", "SUCCEEDED")
    error = found["replan-1"].error
    assert error is not None
    assert error.type == "NotGrown"
    assert re.search(r"'other' (has ended SUCCEEDED|is at work): it cannot be changed", error.message)


# By the command line


@pytest.mark.parametrize(("replan", "budget", "decision"), [(True, "", "ask"), (True, "5", "run"), (False, "", "run")])
def test_a_live_run_that_may_grow_and_has_no_budget_is_asked_about(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    replan: bool,
    budget: str,
    decision: str,
) -> None:
    """It is likely cheap, but what may be added to it is in no estimate. Nothing is started, and no folder is made."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "not-a-key")
    monkeypatch.setenv("NIGHTCREW_ASK_ABOVE_USD", "100")
    file, home = tmp_path / "plan.yaml", tmp_path / "fresh"
    heads = ["replan: {after: [a], max_tasks: 4}"] * replan + [f"budget_usd: {budget}"] * bool(budget)
    file.write_text("\n".join([*heads, "tasks: [{id: a, agent: writer, prompt: Say hello.}]"]))

    assert main(["--home", str(home), "estimate", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["decision"] == decision
    if decision == "ask":
        assert main(["--home", str(home), "run", str(file)]) == 6
        told = capsys.readouterr().err
        assert "An agent may add up to 4 tasks to it (replan), and nobody knows yet what they will cost." in told
        assert "--yes starts it all the same. So does a --budget, which it must keep to." in told
    assert not home.exists()
