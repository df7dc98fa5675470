"""Every plan in examples/, by the real command line: valid, and run to the end that its opening words promise."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from conftest import eventually
from home import ROOT, Home

from domain.models import RunStatus
from domain.schemas import json_schema
from terminal.outcome import exit_for

PLANS = sorted(file for file in (ROOT / "examples").glob("*.yaml") if not file.name.endswith(".script.yaml"))
SCRIPTS = sorted((ROOT / "examples").glob("*.script.yaml"))
DEGRADED = ROOT / "examples" / "degraded.yaml"
Ended = Callable[[Path], tuple[int, dict[str, Any]]]
EACH = pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.stem)

EXPECTED: dict[str, tuple[RunStatus, int]] = {
    "approvals": (RunStatus.COMPLETED, 8),
    "chain": (RunStatus.COMPLETED, 5),
    "code-team": (RunStatus.COMPLETED, 5),
    "competitor-brief": (RunStatus.COMPLETED, 7),
    "degraded": (RunStatus.DEGRADED, 6),
    "failures": (RunStatus.DEGRADED, 9),
    "handbook": (RunStatus.COMPLETED, 46),
    "long-reports": (RunStatus.COMPLETED, 7),
    "map-files": (RunStatus.COMPLETED, 26),
    "markets": (RunStatus.COMPLETED, 10),
}
"""How each example ends, and with how many tasks. A new example gets a line here."""

WAITS_FOR_PEOPLE = {"approvals", "failures"}
"""Examples that come to their end only when somebody has answered."""
BY_ITSELF = [plan for plan in PLANS if plan.stem not in WAITS_FOR_PEOPLE]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    home = Home(tmp_path_factory.mktemp("examples"))
    assert home("up").returncode == 0
    try:
        home.script(ttft=0, tokens_per_second=0)
        yield home
    finally:
        assert home("down").returncode == 0


def words_for(plan: Path) -> list[str]:
    """The plan, and the script that belongs to it, as its opening comment says."""
    script = plan.with_suffix(".script.yaml")
    return [str(plan.relative_to(ROOT)), *(["--script", str(script.relative_to(ROOT))] if script.exists() else [])]


@pytest.fixture(scope="module")
def ended(home: Home) -> Ended:
    """The exit code and the report of an example, which is run once."""

    @cache
    def run(plan: Path) -> tuple[int, dict[str, Any]]:
        done = home("run", *words_for(plan), "--json")
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)

    return run


def test_every_example_has_its_expectation_and_every_script_its_example() -> None:
    assert {plan.stem for plan in PLANS} == set(EXPECTED)
    assert {script.name.removesuffix(".script.yaml") for script in SCRIPTS} <= set(EXPECTED)


@EACH
def test_an_example_opens_with_what_it_shows_how_to_run_it_and_what_to_look_at(plan: Path) -> None:
    lines = plan.read_text().splitlines()
    opening = lines[: next(number for number, line in enumerate(lines) if not line.startswith("#"))]

    assert len(opening[0]) > 40
    assert any("Look at:" in line for line in opening)
    commands = [line.split("./starter.py run ")[1].split(" --param")[0] for line in opening if "starter.py run" in line]
    assert commands[0].split() == words_for(plan)


@EACH
def test_an_example_is_valid_and_without_warnings(home: Home, plan: Path) -> None:
    done = home("validate", str(plan.relative_to(ROOT)))

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{plan.stem}: {EXPECTED[plan.stem][1]} tasks, valid.\n"


def test_only_examples_that_ask_people_wait_for_them() -> None:
    assert {plan.stem for plan in PLANS if "approval:" in plan.read_text()} == WAITS_FOR_PEOPLE


@pytest.mark.parametrize("plan", BY_ITSELF, ids=lambda plan: plan.stem)
def test_an_example_runs_to_its_report(home: Home, ended: Ended, plan: Path) -> None:
    """With the outcome that is promised; and where all goes well, the provider's bill has one call for each task."""
    status, tasks = EXPECTED[plan.stem]

    code, report = ended(plan)

    assert code == exit_for(status)
    assert (report["status"], report["name"], report["census"]["total"]) == (status, plan.stem, tasks)
    assert report["output"].startswith("[Simulated answer]")
    if status is RunStatus.COMPLETED:
        paid = Counter(call["task"] for call in home.calls(report["run"]) if call["billed"]["input"])
        assert paid == {task["id"]: 1 for task in report["tasks"]}


async def test_the_example_of_approvals_goes_on_when_both_departments_have_agreed(home: Home) -> None:
    """Both are asked before either has answered, and what needs neither is done meanwhile."""
    assert home("submit", "examples/approvals.yaml", "--id", "purchase").returncode == 0

    async def told(type: str) -> set[str]:
        lines = home("events", "purchase", "--type", type, "--json").stdout.splitlines()
        return {json.loads(line)["subject"].removeprefix("purchase/") for line in lines}

    async def only_people_are_missing() -> bool:
        return await told("approval.needed") == {"payment", "contract"} and "rollout" in await told("task.completed")

    await eventually(only_people_are_missing)
    assert not {"payment", "contract", "order"} & await told("task.started")
    agreed = [home("approve", "purchase", task, "--note", "Go on.").returncode for task in ("payment", "contract")]

    done = home("result", "purchase", "--wait", "--json")

    status, tasks = EXPECTED["approvals"]
    report = json.loads(done.stdout)
    assert (report["status"], report["census"]["succeeded"], done.returncode) == (status, tasks, 0)
    assert agreed == [0, 0]


def test_the_degraded_example_tells_the_truth(home: Home, ended: Ended) -> None:
    """To its dependants, in the report, and by its exit code."""
    code, report = ended(DEGRADED)

    ends = {task["id"]: task["status"] for task in report["tasks"]}
    assert code == 3
    assert ends.pop("collect[produce]") == "TIMED_OUT"
    assert ends.pop("produce-plan") == "SKIPPED"
    assert set(ends.values()) == {"SUCCEEDED"}
    assert {name: count for name, count in report["census"].items() if count} == {
        "total": 6,
        "succeeded": 4,
        "timed_out": 1,
        "skipped": 1,
    }
    assert len([call for call in home.calls(report["run"]) if call["task"] == "collect[produce]"]) == 2
    told = {task: home("status", report["run"], task).stdout for task in ("risks", "review")}
    assert '"status": "TIMED_OUT", "reason": "Task timeout after 5 s, attempt 2 of 2"' in told["risks"]
    assert "needs 'collect[produce]', which ended TIMED_OUT" in told["review"]
    assert "collect[produce] was missing" in home("result", report["run"], "risks", "--text").stdout


async def test_the_example_of_failures_waits_for_a_wall_and_a_person_and_tells_of_everything_else(home: Home) -> None:
    """What the page on failures shows: every cause named while it waits, and the truth at its end."""
    plan = ROOT / "examples" / "failures.yaml"
    assert home("submit", *words_for(plan), "--id", "failures").returncode == 0

    def states() -> dict[str, Any]:
        return {task["id"]: task for task in json.loads(home("status", "failures", "--json").stdout)["tasks"]}

    async def only_others_are_awaited() -> bool:
        return {id for id, task in states().items() if task["status"] == "WAITING"} == {"prices", "letter"}

    await eventually(only_others_are_awaited)
    tasks = states()
    assert [tasks[id]["status"] for id in ("collect[dairy]", "collect[produce]")] == ["TIMED_OUT", "FAILED"]
    assert {tasks[id]["cause"] for id in ("order", "delivery")} == {"collect[produce]"}
    assert (tasks["prices"]["wait"]["for"], tasks["letter"]["wait"]["for"]) == ("wall", "approval")
    assert '{"task": "collect[dairy]", "status": "TIMED_OUT"' in home("status", "failures", "risks").stdout
    assert home("retry", "failures", "prices").returncode == 0
    assert home("reject", "failures", "letter", "--note", "We phone him.").returncode == 0

    done = home("result", "failures", "--wait", "--json")

    status, _ = EXPECTED["failures"]
    report = json.loads(done.stdout)
    assert (report["status"], done.returncode) == (status, exit_for(status))
    assert {task["id"]: task["attempts"] for task in report["tasks"]}["prices"] == 1
    assert "We phone him." in home("status", "failures", "review").stdout


def test_every_event_of_the_examples_is_as_the_schema_says(home: Home, ended: Ended) -> None:
    """Of those above, and of all runs in one question."""
    runs = {ended(plan)[1]["run"] for plan in BY_ITSELF}
    schema = jsonschema.Draft202012Validator(json_schema("event"))

    events = [json.loads(line) for line in home("events", "--all", "--json").stdout.splitlines()]

    assert runs <= {event["correlationid"] for event in events}
    assert [f"{event['id']}: {error.message}" for event in events for error in schema.iter_errors(event)] == []


def test_a_script_holds_for_its_plan_alone(home: Home, ended: Ended, tmp_path: Path) -> None:
    """A plan with tasks of the same names is answered as ever."""
    ended(DEGRADED)
    namesake = tmp_path / "namesake.yaml"
    namesake.write_text(DEGRADED.read_text().replace("name: degraded\n", ""))

    done = home("run", str(namesake), "--json")

    assert (json.loads(done.stdout)["status"], done.returncode) == ("COMPLETED", 0)


@pytest.mark.parametrize(
    ("script", "environment", "words"),
    [
        ("rules: [{then: {fault: gremlin}}]", {}, "bad.yaml: rules.0.then: Value error, unknown fault 'gremlin'"),
        ("rules: []", {"ANTHROPIC_API_KEY": "not-a-key"}, "--script is for the simulator"),
    ],
)
def test_a_script_that_cannot_be_followed_starts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, environment: dict[str, str], words: str
) -> None:
    file, fresh = tmp_path / "bad.yaml", Home(tmp_path / "fresh")
    file.write_text(script)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    done = fresh("run", "examples/chain.yaml", "--script", str(file))

    assert (done.returncode, done.stdout, words in done.stderr) == (2, "", True), done.stderr
    assert not fresh.folder.exists()
