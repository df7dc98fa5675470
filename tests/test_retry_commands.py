"""`retry` after the end, `--reuse` and `--only` by the command line, as a person types them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from home import Home

PLAN = """
name: brief
defaults: {agent: writer}
tasks:
  - {id: scan, for_each: [a, b], prompt: "Look at {{ item }}.", attempts: 1}
  - {id: odd, prompt: Look elsewhere.}
  - {id: report, prompt: Sum up., needs: {scan: optional, odd: require}}
"""
FAILS = {"fault": "invalid_request"}
FAST = {"ttft": 0, "tokens_per_second": 0}


@pytest.fixture
def plan(tmp_path: Path) -> str:
    file = tmp_path / "brief.yaml"
    file.write_text(PLAN)
    return str(file)


def edited(plan: str, old: str, new: str) -> str:
    text = Path(plan).read_text()
    assert old in text
    file = Path(plan).with_name("edited.yaml")
    file.write_text(text.replace(old, new))
    return str(file)


def paid(home: Home, run: str) -> Counter[str]:
    return Counter(call["task"] for call in home.calls(run))


def test_retry_of_an_ended_run_prints_the_run_that_does_it(home: Home, plan: str) -> None:
    home.script({"when": {"task": "scan[a]"}, "then": FAILS}, **FAST)
    first = home("run", plan, "--id", "ended")
    assert first.returncode == 3
    assert "retry ended" in first.stdout, "the report says what to do"
    home.script(**FAST)

    done = home("retry", "ended")

    assert (done.returncode, done.stdout) == (0, "ended-r2\n"), done.stderr
    assert "Takes over 2 of 4 tasks from ended." in done.stderr
    assert "Had succeeded, and is done anew because something that it needs is: report." in done.stderr
    assert "watch ended-r2" in done.stderr
    assert home("result", "ended-r2", "--wait").returncode == 0
    assert paid(home, "ended-r2") == Counter({"scan[a]": 1, "report": 1})
    text = home("result", "ended-r2").stdout
    assert "SUCCEEDED reused" in text
    assert "Reused 2 results of ended, which saved" in text
    assert "from ended, which saved" in home("status", "ended-r2", "odd").stdout
    report = json.loads(home("result", "ended-r2", "--json").stdout)
    assert {task["id"]: task["reused"] for task in report["tasks"] if task["reused"]} == {
        "scan[b]": "ended",
        "odd": "ended",
    }
    assert (report["reuse"]["tasks"], report["reuse"]["runs"]) == (2, ["ended"])
    assert "reused ended" in home("events", "ended-r2", "--type", "task.completed").stdout
    family = home("events", "--correlation", "ended", "--type", "run.started", "--json").stdout.splitlines()
    assert [json.loads(line)["id"] for line in family] == ["ended/2", "ended-r2/2"]
    whole = home("retry", "ended")
    assert (whole.returncode, "every task has succeeded" in whole.stderr) == (1, True)
    assert "Traceback" not in whole.stderr


def test_retry_of_tasks_does_them_and_what_follows(home: Home, plan: str) -> None:
    assert home("run", plan, "--id", "named").returncode == 0

    done = home("retry", "named", "scan", "--max-concurrency", "2", "--json")

    answer = json.loads(done.stdout)
    assert (answer["schema"], answer["run"], answer["did"]) == ("nightcrew.steering/1", "named-r2", "retry")
    assert answer["tasks"] == ["scan[a]", "scan[b]", "report"]
    report = json.loads(home("result", "named-r2", "--wait", "--json").stdout)
    assert (report["status"], report["concurrency"]["max"]) == ("COMPLETED", 2)
    assert paid(home, "named-r2") == Counter({"scan[a]": 1, "scan[b]": 1, "report": 1})
    unknown = home("retry", "named", "scam")
    assert (unknown.returncode, "has no task 'scam'" in unknown.stderr) == (2, True)
    noted = home("retry", "named", "odd", "--note", "why")
    assert (noted.returncode, "--note" in noted.stderr) == (2, True)


def test_retries_at_the_same_moment_print_one_run(home: Home, plan: str) -> None:
    plan = edited(plan, "prompt: Look elsewhere.", "prompt: Look elsewhere., timeout: 3m")
    home.script({"when": {"task": "odd"}, "then": FAILS}, **FAST)
    assert home("run", plan, "--id", "crowd").returncode == 4
    home.script({"when": {"task": "odd"}, "then": {"ttft": 100}}, **FAST)

    asking = [home.begin("retry", "crowd") for _ in range(4)]
    answers = [(one.communicate(timeout=200)[0], one.returncode) for one in asking]
    again, other = home("retry", "crowd", "--json"), home("retry", "crowd", "scan")
    going = home("retry", "crowd-r2", "--max-concurrency", "2")
    cancelled = home("cancel", "crowd-r2")

    assert answers == [("crowd-r2\n", 0)] * 4
    answer = json.loads(again.stdout)
    assert (again.returncode, answer["run"], answer["tasks"]) == (0, "crowd-r2", ["odd", "report"])
    assert "nothing was started" in answer["done"]
    assert (other.returncode, other.stdout) == (1, "")
    assert "crowd-r2, which is still going" in other.stderr
    assert (going.returncode, "still going" in going.stderr) == (2, True)
    assert cancelled.returncode == 0
    assert home("result", "crowd-r2", "--wait").returncode == 5
    assert paid(home, "crowd-r2") == Counter({"odd": 1})


def test_an_edited_plan_pays_for_what_changed(home: Home, plan: str) -> None:
    assert home("run", plan, "--id", "before").returncode == 0

    done = home("run", edited(plan, "Look elsewhere.", "Look up."), "--reuse", "before", "--id", "after")

    assert done.returncode == 0, done.stderr
    assert "Takes over 2 of 4 tasks from before." in done.stderr
    assert paid(home, "after") == Counter({"odd": 1, "report": 1})
    same = home("submit", plan, "--reuse", "before", "--id", "same", "--json")
    assert json.loads(same.stdout)["run"] == "same"
    assert home("result", "same", "--wait").returncode == 0
    assert paid(home, "same") == Counter()
    unknown = home("run", plan, "--reuse", "nobody")
    assert unknown.returncode == 2
    assert "within one store" in unknown.stderr
    itself = home("run", plan, "--reuse", "same", "--id", "same")
    assert (itself.returncode, "itself" in itself.stderr) == (2, True)


def test_a_run_of_another_store_is_refused_in_a_sentence(
    home: Home, plan: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert home("run", plan, "--id", "stored").returncode == 0
    (tmp_path / "other").mkdir()
    monkeypatch.setenv("NIGHTCREW_STORE", str(tmp_path / "other"))

    reuse, retry = home("run", plan, "--reuse", "stored"), home("retry", "stored")

    assert (reuse.returncode, retry.returncode) == (2, 2)
    assert f"within one store, and this one is {tmp_path / 'other'}" in reuse.stderr
    assert "there is no run 'stored' here" in retry.stderr.lower()
    assert not list((tmp_path / "other").glob("runs/*"))


def test_only_some_tasks_are_run(home: Home, plan: str) -> None:
    """With what they need; the others are no part of the run. Needs of an earlier run are taken over."""
    done = home("run", plan, "--only", "scan", "--only", "odd", "--id", "some", "--json")

    report = json.loads(done.stdout)
    assert (report["status"], [task["id"] for task in report["tasks"]]) == ("COMPLETED", ["scan[a]", "scan[b]", "odd"])
    assert paid(home, "some") == Counter({"scan[a]": 1, "scan[b]": 1, "odd": 1})
    whole = home("run", plan, "--only", "report", "--reuse", "some", "--id", "rest")
    assert whole.returncode == 0, whole.stderr
    assert paid(home, "rest") == Counter({"report": 1})
    wrong = home("run", plan, "--only", "reprot")
    assert (wrong.returncode, "Did you mean 'report'?" in wrong.stderr) == (2, True)


def test_a_home_that_is_down_comes_up_for_a_retry(tmp_path: Path, plan: str) -> None:
    """And stays down when there is nothing to do again."""
    home = Home(tmp_path / "home")
    assert home("run", plan, "--id", "night").returncode == 0

    nothing = home("retry", "night")
    assert (nothing.returncode, "every task has succeeded" in nothing.stderr) == (1, True)
    assert home("down").stdout == "nothing was running\n"
    try:
        done = home("retry", "night", "report")
        assert (done.returncode, done.stdout) == (0, "night-r2\n"), done.stderr
        assert home("result", "night-r2", "--wait").returncode == 0
        assert paid(home, "night-r2") == Counter({"report": 1})
    finally:
        home("down")


def test_a_live_run_is_not_retried_without_a_key(home: Home, plan: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor are its results taken over by a simulated one."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "no-key")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", home.url)
    live = home("run", plan, "--id", "alive")
    assert live.returncode == 0, live.stderr
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    monkeypatch.delenv("ANTHROPIC_BASE_URL")

    retried, reused = home("retry", "alive", "odd"), home("run", plan, "--reuse", "alive")

    assert (retried.returncode, "alive was live. Set ANTHROPIC_API_KEY" in retried.stderr) == (1, True)
    assert (reused.returncode, "was live and this run is simulated" in reused.stderr) == (1, True)
