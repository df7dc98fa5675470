"""The command line as a process: what it prints, what it starts, how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from home import ROOT, Home

from embedded import Keeper, Worker
from runtime import Mode
from services import Service

ONE = "tasks: [{id: only, agent: writer, prompt: Say hello.}]\n"
TWO_ENDS = """
tasks:
  - {id: good, agent: writer, prompt: One end.}
  - {id: bad, agent: writer, prompt: Another end., attempts: 1}
"""
TOLERANT = """
tasks:
  - {id: bad, agent: writer, prompt: May fail., attempts: 1}
  - {id: end, agent: writer, prompt: Runs anyway., needs: {bad: optional}}
"""
MISTAKES = """
name: many mistakes
max_concurrency: 0
budget_usd: nothing
tasks:
  - {id: a, agent: wrter, prompt: Hello., needs: [b]}
  - {id: b, agent: writer, prompt: "{{ nobody }}", needs: [a]}
  - {id: a, agent: writer, promt: Hello., workspace: here}
"""


def fails(task: str) -> dict[str, Any]:
    return {"when": {"task": task}, "then": {"fault": "invalid_request"}}


def slow(task: str) -> dict[str, Any]:
    return {"when": {"task": task}, "then": {"ttft": 60}}


def until_started(process: subprocess.Popen[str]) -> str:
    """The id of the run, once a task of it is at work."""
    assert process.stderr is not None
    for line in process.stderr:
        if "running 1" in line:
            return line.split()[0]
    raise AssertionError("the run did not start")


def plan(tmp_path: Path, text: str) -> str:
    file = tmp_path / "plan.yaml"
    file.write_text(text)
    return str(file)


def test_a_run_prints_its_report_and_the_exit_code_tells_the_outcome(home: Home, tmp_path: Path) -> None:
    done = home("run", plan(tmp_path, ONE))

    assert done.returncode == 0, done.stderr
    assert "COMPLETED" in done.stdout
    assert "SIMULATED" in done.stdout
    assert "Simulated answer" in done.stdout


@pytest.mark.parametrize(
    ("text", "rules", "status", "code"),
    [
        (ONE, [], "COMPLETED", 0),
        (TOLERANT, [fails("bad")], "DEGRADED", 3),
        (TWO_ENDS, [fails("bad")], "PARTIAL", 3),
        (ONE, [fails("only")], "FAILED", 4),
    ],
)
def test_json_is_one_document_that_agrees_with_the_exit_code(
    home: Home, tmp_path: Path, text: str, rules: list[dict[str, Any]], status: str, code: int
) -> None:
    home.script(*rules, ttft=0, tokens_per_second=0)

    done = home("run", plan(tmp_path, text), "--json")

    report = json.loads(done.stdout)
    assert next(iter(report)) == "schema"
    assert (report["schema"], report["status"], done.returncode) == ("nightcrew.report/1", status, code)
    assert sum(count for name, count in report["census"].items() if name != "total") == report["census"]["total"]
    again = home("result", report["run"], "--json")
    assert (json.loads(again.stdout), again.returncode) == (report, code)


def test_every_mistake_of_a_bad_plan_is_told_and_nothing_is_asked_of_the_provider(home: Home, tmp_path: Path) -> None:
    before = len(home.calls())

    done = home("run", plan(tmp_path, MISTAKES))

    assert done.returncode == 2
    assert done.stdout == ""
    for words in ["max_concurrency", "budget_usd", "not supported yet", "wrter", "nobody", "promt", "did you mean"]:
        assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert len(home.calls()) == before


def test_a_refusal_in_json_names_every_problem_with_its_place(home: Home, tmp_path: Path) -> None:
    done = home("run", plan(tmp_path, MISTAKES), "--json")

    error = json.loads(done.stdout)["error"]
    assert done.returncode == 2
    assert error["code"] == "invalid_plan"
    assert len(error["problems"]) >= 6
    assert all(problem["line"] > 0 and problem["file"].endswith("plan.yaml") for problem in error["problems"])


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["run", "no-such-file.yaml"], 2),
        (["run"], 2),
        (["nonsense"], 2),
        (["status", "no-such-run"], 2),
        (["result", "../../etc/passwd"], 2),
        (["validate", "/dev/null"], 2),
        (["run", "-", "--timeout", "soon"], 2),
        (["events", "latest", "--since", "banana"], 2),
        (["run", "-", "--param", "novalue"], 2),
    ],
)
def test_wrong_words_are_answered_by_a_sentence(home: Home, words: list[str], code: int) -> None:
    done = home(*words, input=ONE)

    assert done.returncode == code
    assert done.stdout == ""
    assert done.stderr.strip()
    assert "Traceback" not in done.stderr


def test_a_plan_comes_from_standard_input_too(home: Home) -> None:
    done = home("run", "-", "--id", "from-stdin", "--json", input=ONE)

    assert (json.loads(done.stdout)["run"], done.returncode) == ("from-stdin", 0)


def test_the_same_id_is_the_same_run_and_another_plan_is_refused(home: Home, tmp_path: Path) -> None:
    first = home("run", plan(tmp_path, ONE), "--id", "twice", "--json")
    calls = len(home.calls())

    second = home("run", plan(tmp_path, ONE), "--id", "twice", "--json")
    other = home("run", plan(tmp_path, TWO_ENDS), "--id", "twice")

    assert json.loads(first.stdout) == json.loads(second.stdout)
    assert len(home.calls()) == calls
    assert (other.returncode, "another plan" in other.stderr) == (2, True)


def test_looking_at_a_run(home: Home, tmp_path: Path) -> None:
    run = json.loads(home("run", plan(tmp_path, TWO_ENDS), "--json").stdout)["run"]

    assert "COMPLETED" in home("status", run).stdout
    assert "Another end." in home("status", run, "bad").stdout
    assert home("result", "latest", "good", "--text").stdout.startswith("[Simulated")
    events = [json.loads(line) for line in home("events", run, "--json").stdout.splitlines()]
    assert [event["id"] for event in events] == [f"{run}/{number}" for number in range(1, len(events) + 1)]
    assert [event["subject"] for event in events if event["type"] == "task.started"] == [f"{run}/good", f"{run}/bad"]
    saved = home("result", run, "--save", str(tmp_path / "out"), "--text")
    assert saved.returncode == 0
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == ["001-good.md", "002-bad.md"]
    assert f"/workflows/{run}" in home("open", run).stdout


def test_validate_shows_values_layers_and_briefs(home: Home, tmp_path: Path) -> None:
    file = plan(tmp_path, TOLERANT)

    resolved = json.loads(home("validate", file, "--resolved", "--graph", "--json").stdout)
    brief = home("validate", file, "--brief", "end").stdout

    assert resolved["layers"] == [["bad"], ["end"]]
    assert (resolved["resolved"][0]["attempts"], resolved["resolved"][0]["sources"]["attempts"]) == (1, "task")
    assert "Runs anyway." in brief


def test_the_wait_ends_but_not_the_run(home: Home, tmp_path: Path) -> None:
    home.script({"when": {"task": "only", "nth": 1}, "then": {"ttft": 10}}, tokens_per_second=0)

    done = home("run", plan(tmp_path, ONE), "--timeout", "1s", "--json")
    later = home("result", json.loads(done.stdout)["run"], "--wait", "--json")

    assert (json.loads(done.stdout)["finished"], done.returncode) == (None, 8)
    assert (json.loads(later.stdout)["status"], later.returncode) == ("COMPLETED", 0)


def test_cancel_ends_a_run_and_its_watcher(home: Home, tmp_path: Path) -> None:
    home.script(slow("bad"), ttft=0, tokens_per_second=0)
    watching = home.begin("run", plan(tmp_path, TWO_ENDS), "--json")
    run = until_started(watching)

    assert home("cancel", run).returncode == 0

    out, _ = watching.communicate(timeout=200)
    assert (json.loads(out)["status"], watching.returncode) == ("CANCELLED", 5)
    assert canceller_of(home, run)


def canceller_of(home: Home, run: str) -> str | None:
    """The person that the last word of a run names."""
    last = json.loads(home("events", run, "--json").stdout.splitlines()[-1])
    assert last["type"] == "run.completed"
    by: str | None = last["data"].get("by")
    return by


def test_one_interrupt_detaches_and_the_run_goes_on(home: Home, tmp_path: Path) -> None:
    home.script({"when": {"task": "only"}, "then": {"ttft": 12}}, tokens_per_second=0)
    watching = home.begin("run", plan(tmp_path, ONE))
    run = until_started(watching)

    watching.send_signal(signal.SIGINT)

    _, said = watching.communicate(timeout=200)
    assert watching.returncode == 130
    assert f"result {run} --wait" in said
    assert home("result", run, "--wait").returncode == 0


def test_a_second_interrupt_cancels(home: Home, tmp_path: Path) -> None:
    home.script(slow("only"))
    watching = home.begin("run", plan(tmp_path, ONE))
    run = until_started(watching)

    while press_twice(watching) == 130:  # on a busy machine the second may come too late: then it is as one
        watching = home.begin("watch", run)
        until_started(watching)

    assert watching.returncode == 5
    assert canceller_of(home, run)


def press_twice(watching: subprocess.Popen[str]) -> int:
    """The exit code after an interrupt, and another one as soon as it is offered."""
    assert watching.stderr is not None
    watching.send_signal(signal.SIGINT)
    while "press Ctrl-C again" not in (line := watching.stderr.readline()):
        assert line, "it has ended without an offer"
    watching.send_signal(signal.SIGINT)
    watching.communicate(timeout=200)
    return watching.returncode


def pid_of(service: Service) -> int:
    state = service.find()
    assert state is not None
    return state.pid


def test_a_dead_worker_is_being_started_again(home: Home, tmp_path: Path) -> None:
    """So it is told on the screen of whoever watches, and to whoever wants to steer."""
    home.script({"when": {"task": "only", "nth": 1}, "then": {"ttft": 60}}, ttft=0, tokens_per_second=0)
    watching = home.begin("run", plan(tmp_path, ONE), "--json")
    run = until_started(watching)
    assert watching.stderr is not None
    keeper = pid_of(Keeper(home.folder, Mode.SIMULATED))

    os.kill(keeper, signal.SIGSTOP)  # so that there is time to look
    os.kill(pid_of(Worker(home.folder, Mode.SIMULATED)), signal.SIGKILL)

    while "The worker-simulated of this home died and is being started again" not in watching.stderr.readline():
        pass
    refused = home("pause", run)
    assert (refused.returncode, "is being started again" in refused.stderr) == (1, True)
    os.kill(keeper, signal.SIGCONT)
    while "The run goes on." not in watching.stderr.readline():
        pass
    out, _ = watching.communicate(timeout=200)
    assert (json.loads(out)["status"], watching.returncode) == ("COMPLETED", 0)


def test_a_dead_worker_that_nobody_keeps_is_told_with_the_remedy(home: Home, tmp_path: Path) -> None:
    """`up` mends it."""
    home.script({"when": {"task": "only", "nth": 1}, "then": {"ttft": 60}}, ttft=0, tokens_per_second=0)
    watching = home.begin("run", plan(tmp_path, ONE), "--json")
    run = until_started(watching)
    assert watching.stderr is not None

    for service in Keeper(home.folder, Mode.SIMULATED), Worker(home.folder, Mode.SIMULATED):
        os.kill(pid_of(service), signal.SIGKILL)

    while "No worker for simulated runs" not in watching.stderr.readline():
        pass
    refused = home("pause", run)
    assert (refused.returncode, "up` starts one" in refused.stderr) == (1, True)
    mended = home("up")
    assert "started worker-simulated\nstarted keeper-simulated\n" in mended.stdout
    out, _ = watching.communicate(timeout=200)
    assert (json.loads(out)["status"], watching.returncode) == ("COMPLETED", 0)


def test_a_task_without_a_result_says_why(home: Home, tmp_path: Path) -> None:
    home.script(fails("bad"), ttft=0, tokens_per_second=0)
    run = json.loads(home("run", plan(tmp_path, TWO_ENDS), "--json").stdout)["run"]

    asked = home("result", run, "bad", "--text")

    assert (asked.stdout, asked.returncode) == ("", 3)
    assert "bad: FAILED, the provider calls the request invalid" in asked.stderr
    assert home("pause", run).returncode == 1
    assert "has ended" in home("cancel", run).stderr


def test_pause_and_resume(home: Home, tmp_path: Path) -> None:
    home.script({"when": {"task": "a"}, "then": {"ttft": 15}}, ttft=0, tokens_per_second=0)
    chain = "tasks: [{id: a, agent: writer, prompt: A.}, {id: b, agent: writer, prompt: B., needs: [a]}]"
    watching = home.begin("run", plan(tmp_path, chain), "--json")
    run = until_started(watching)

    assert home("pause", run).returncode == 0
    assert home("pause", run).returncode == 1
    assert json.loads(home("status", run, "--json").stdout)["status"] == "PAUSED"
    assert home("resume", run).returncode == 0

    out, _ = watching.communicate(timeout=200)
    assert (json.loads(out)["status"], watching.returncode) == ("COMPLETED", 0)


def test_a_run_stops_what_it_started_and_can_still_be_read(tmp_path: Path) -> None:
    home = Home(tmp_path / "own")
    before = home("status", "latest")
    assert (before.returncode, (tmp_path / "own").exists()) == (2, False)

    done = home("run", plan(tmp_path, ONE), "--json")

    assert done.returncode == 0, done.stderr
    assert home("down").stdout == "nothing was running\n"
    report = home("result", "latest", "--json")
    assert (json.loads(report.stdout), report.returncode) == (json.loads(done.stdout), 0)
    assert home("cancel", "latest").returncode == 1


def test_runs_at_once_share_a_home_and_the_last_one_stops_it(tmp_path: Path) -> None:
    """None of them stops the server under another, and none leaves it running."""
    home = Home(tmp_path / "shared")
    runs = [home.begin("run", plan(tmp_path, ONE), "--id", f"run-{number}") for number in range(3)]

    outputs = [run.communicate(timeout=200) for run in runs]

    assert [run.returncode for run in runs] == [0, 0, 0], outputs
    assert home("down").stdout == "nothing was running\n"


def test_an_open_run_of_a_home_that_is_down_is_named(tmp_path: Path) -> None:
    home = Home(tmp_path / "own")
    assert home("up").returncode == 0
    home.script(slow("only"))
    watching = home.begin("run", plan(tmp_path, ONE))
    try:
        run = until_started(watching)
        watching.send_signal(signal.SIGINT)
        watching.communicate(timeout=200)
    finally:
        home("down")

    looked = home("status", run)

    assert looked.returncode == 1
    assert run in looked.stderr
    assert f"--home {home.folder} up" in looked.stderr


def test_without_installation_the_starter_says_what_to_do(tmp_path: Path) -> None:
    copy = tmp_path / "starter.py"
    copy.write_text((ROOT / "starter.py").read_text())

    done = subprocess.run([sys.executable, str(copy)], capture_output=True, text=True, check=False)

    assert (done.returncode, "make install" in done.stderr) == (1, True)


def test_a_python_that_cannot_be_started_is_named(tmp_path: Path) -> None:
    """As one in a folder that a unit of systemd may not see."""
    copy, python = tmp_path / "starter.py", tmp_path / ".venv" / "bin" / "python"
    copy.write_text((ROOT / "starter.py").read_text())
    python.parent.mkdir(parents=True)
    python.write_text("")

    done = subprocess.run([sys.executable, str(copy)], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert f"{python} cannot be started: Permission denied" in done.stderr


@pytest.mark.soak
def test_the_exit_code_is_right_in_100_runs_of_100(home: Home, tmp_path: Path) -> None:
    home.script(fails("bad"), ttft=0, tokens_per_second=0)
    (tmp_path / "one").mkdir()
    cases = [(plan(tmp_path / "one", ONE), 0), (plan(tmp_path, TWO_ENDS), 3)]

    codes = [(home("run", file).returncode, expected) for _ in range(50) for file, expected in cases]

    assert [code for code, _ in codes] == [expected for _, expected in codes]
