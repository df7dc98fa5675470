"""Hand it over, walk away, look at it: submit, and what a person does with the run afterwards."""

from __future__ import annotations

import json
import os
import pty
import shutil
import signal
import subprocess
import tomllib
from pathlib import Path
from time import sleep

import pytest
from home import ROOT, STARTER, Home

ONE = "tasks: [{id: only, agent: writer, prompt: Say hello.}]\n"
PAIR = """
name: pair
tasks:
  - {id: good, agent: writer, prompt: One end.}
  - {id: bad, agent: writer, prompt: Another end., attempts: 1}
"""


def plan(tmp_path: Path, text: str = ONE) -> str:
    file = tmp_path / "plan.yaml"
    file.write_text(text)
    return str(file)


def test_submit_prints_the_id_alone_and_the_run_can_be_looked_at(home: Home, tmp_path: Path) -> None:
    done = home("submit", plan(tmp_path))

    assert done.returncode == 0, done.stderr
    run = done.stdout.removesuffix("\n")
    assert run.startswith("plan-")
    assert "\n" not in run
    assert f"watch {run}" in done.stderr
    assert home("watch", run).returncode == 0
    text = home("result", run, "--text").stdout.strip()
    assert text
    assert text in json.loads(home("result", run, "--text", "--json").stdout)["output"], "one document, as always"
    entries = {entry["run"]: entry for entry in json.loads(home("list", "--json").stdout)["runs"]}
    assert entries[run]["status"] == "COMPLETED"
    assert run in home("list").stdout


def test_the_same_id_sent_twice_at_the_same_moment_is_one_run(home: Home, tmp_path: Path) -> None:
    senders = [home.begin("submit", plan(tmp_path), "--id", "twice") for _ in range(4)]
    outputs = [sender.communicate(timeout=200) for sender in senders]

    assert [(sender.returncode, out) for sender, (out, _) in zip(senders, outputs, strict=True)] == [(0, "twice\n")] * 4
    assert home("watch", "twice").returncode == 0
    again = home("submit", plan(tmp_path), "--id", "twice")
    assert (again.stdout, "has ended before, COMPLETED" in again.stderr) == ("twice\n", True)
    assert len(home.calls("twice")) == 1
    other = home("submit", plan(tmp_path, PAIR), "--id", "twice")
    assert (other.returncode, other.stdout) == (2, "")


def test_the_whole_terminal_is_killed_and_the_run_ends(tmp_path: Path) -> None:
    """Closed for good: the terminal is gone, and every process of its group with it."""
    home = Home(tmp_path / "home")
    controller, terminal = pty.openpty()
    words = " ".join([*STARTER, "--home", str(home.folder), "submit", plan(tmp_path), "--id", "left", ">", "out"])
    shell = subprocess.Popen(
        ["/bin/sh", "-c", f"{words}; touch done; exec sleep 1000"],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        cwd=tmp_path,
        start_new_session=True,
    )
    try:
        while not (tmp_path / "done").exists():
            assert shell.poll() is None
            sleep(0.05)
        os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()
        os.close(terminal)
        os.close(controller)

        assert (tmp_path / "out").read_text() == "left\n"
        assert home("watch", "left").returncode == 0
        assert len(home.calls("left")) == 1
    finally:
        home("down")


def test_a_home_that_is_down_tells_what_was_open(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    assert home("list").stdout == "no runs\n"
    assert home("up").returncode == 0
    try:
        home.script({"when": {"task": "only"}, "then": {"ttft": 60}})
        run = home("submit", plan(tmp_path)).stdout.strip()
    finally:
        home("down")

    looked = home("list")
    assert looked.returncode == 0
    assert run in looked.stdout
    assert f"{run} was open" in looked.stderr
    assert f"--home {home.folder} up" in looked.stderr
    document = json.loads(home("list", "--json").stdout)
    assert (document["up"], document["runs"][0]["status"]) == (False, "RUNNING")
    for words in ("status", run), ("watch", run), ("result", run):
        refused = home(*words)
        assert refused.returncode == 1
        assert "up" in refused.stderr

    try:
        assert run in home("up").stdout, "the run is found again"
        home.script(ttft=0, tokens_per_second=0)
        assert home("watch", run).returncode == 0
    finally:
        home("down")


def test_a_list_can_be_narrowed_down(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    home.script({"when": {"task": "bad"}, "then": {"fault": "invalid_request"}}, ttft=0, tokens_per_second=0)
    assert home("run", plan(tmp_path, PAIR), "--id", "half").returncode == 3

    def found(*words: str) -> list[str]:
        return [entry["run"] for entry in json.loads(home("list", "--json", *words).stdout)["runs"]]

    assert found("--plan", "pair") == ["half"]
    assert found("--status", "partial") == ["half"]
    assert found("--attention") == ["half"]
    assert found("--status", "failed") == []
    assert "failed: bad" in home("list", "--attention").stdout
    wrong = home("list", "--status", "partail")
    assert wrong.returncode == 2
    assert "PARTIAL" in wrong.stderr


def test_watch_tells_the_outcome_and_gives_lines_of_json(home: Home, tmp_path: Path) -> None:
    home.script({"when": {"task": "bad"}, "then": {"fault": "invalid_request"}}, ttft=0.3)
    run = home("submit", plan(tmp_path, PAIR)).stdout.strip()

    done = home("watch", run, "--json")

    assert done.returncode == 3
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert {line["schema"] for line in lines} == {"nightcrew.watch/1"}
    assert (lines[-1]["status"], lines[-1]["census"]["succeeded"]) == ("PARTIAL", 1)
    assert home("watch", run, "--timeout", "1s").returncode == 3, "it has ended"


LOOK = """
import sys
from playwright.sync_api import sync_playwright
with sync_playwright() as play:
    browser = play.chromium.launch(executable_path=sys.argv[1], args=["--no-sandbox"])
    page = browser.new_page()
    page.goto(sys.argv[2])
    details = page.frame_locator("#user-metadata-current-details").locator("body")
    details.get_by_text("tasks ended").wait_for(timeout=60_000)
    print(details.inner_text())
    browser.close()
"""


def test_open_prints_the_address_of_the_run_and_of_the_tab_that_tells(home: Home, tmp_path: Path) -> None:
    run = home("submit", plan(tmp_path)).stdout.strip()

    done = home("open", run)

    assert done.returncode == 0, done.stderr
    where, _, tab = done.stdout.strip().rpartition("/")
    assert (where.rpartition("/")[0].endswith(f"/namespaces/default/workflows/{run}"), tab) == (True, "user-metadata")


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Debian's Chromium: apt-get install chromium")
def test_that_page_tells_in_a_real_browser_what_the_run_does(home: Home, tmp_path: Path) -> None:
    home.script({"when": {"task": "bad"}, "then": {"fault": "invalid_request"}}, ttft=0, tokens_per_second=0)
    assert home("run", plan(tmp_path, PAIR), "--id", "seen").returncode == 3
    address = home("open", "seen").stdout.strip()

    words = [str(shutil.which("chromium")), address]
    seen = subprocess.run([STARTER[0], "-c", LOOK, *words], capture_output=True, text=True, timeout=200, check=False)

    assert seen.returncode == 0, seen.stderr
    assert [
        word for word in ("PARTIAL", "SIMULATED", "2 of 2 tasks ended", "Failed (1)") if word not in seen.stdout
    ] == []


def test_init_writes_a_plan_that_runs_as_it_is(home: Home, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"

    assert home("init", str(file)).stdout == f"{file}\n"
    assert home("run", str(file)).returncode == 0

    before = file.read_text()
    again = home("init", str(file))
    assert f"starter.py --home {home.folder} init FILE" in " ".join(again.stderr.split())
    assert (again.returncode, file.read_text()) == (2, before)


def test_agents_and_schemas_are_shown(home: Home) -> None:
    agents = json.loads(home("agents", "--json").stdout)["agents"]
    assert {"researcher", "writer"} <= {agent["name"] for agent in agents}
    assert "researcher@1" in home("agents").stdout
    assert json.loads(home("schema", "report").stdout)["title"] == "nightcrew report"
    assert home("schema", "plam").returncode == 2


def test_a_shell_completes_commands_and_runs(home: Home, tmp_path: Path) -> None:
    run = home("submit", plan(tmp_path)).stdout.strip()

    def offered(*words: str) -> str:
        """What bash would show: the words are those typed so far, the last one perhaps not whole."""
        script = f"""
            source <({STARTER[0]} starter.py --show-completion bash)
            COMP_WORDS=({" ".join(words)}); COMP_CWORD={len(words) - 1}
            _starterpy_completion {words[0]}; printf '%s\\n' "${{COMPREPLY[@]}}"
        """
        environment = {**os.environ, "NIGHTCREW_HOME": str(home.folder)}
        done = subprocess.run(
            ["/bin/bash", "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        assert not done.stderr
        return done.stdout

    assert offered("./starter.py", "su") == "submit\n"
    assert offered("./starter.py", "watch", run) == f"{run}\n"


def test_a_run_that_has_ended_can_be_watched_in_a_home_that_is_down(tmp_path: Path) -> None:
    """It is the report, as `result` shows it; nothing is started."""
    home = Home(tmp_path / "home")
    assert home("run", plan(tmp_path), "--id", "over").returncode == 0

    watched, lines = home("watch", "over"), home("watch", "over", "--json")

    assert (watched.returncode, "COMPLETED" in watched.stdout, "not up" in watched.stderr) == (0, True, False)
    assert [json.loads(line)["status"] for line in lines.stdout.splitlines()] == ["COMPLETED"]
    assert home("down").stdout == "nothing was running\n"


def test_up_with_a_key_goes_on_with_simulated_runs_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home(tmp_path / "home")
    try:
        assert home("up").returncode == 0
        home.script({"when": {"task": "only"}, "then": {"ttft": 60}})
        run = home("submit", plan(tmp_path)).stdout.strip()
        home("down")
        monkeypatch.setenv("ANTHROPIC_API_KEY", "no-key")

        up = home("up")

        assert {"started worker-live", "started worker-simulated", f"goes on: {run}"} <= set(up.stdout.splitlines())
        home.script(ttft=0, tokens_per_second=0)
        assert home("watch", run).returncode == 0
    finally:
        home("down")


def test_a_store_that_cannot_be_used_is_told_in_a_sentence(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    for store in "http://127.0.0.1:1/x", "redis://x":
        monkeypatch.setenv("NIGHTCREW_STORE", store)

        refused = home("list")

        assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
        assert "s3://" in refused.stderr


def test_without_a_command_the_help_is_the_answer(home: Home) -> None:
    bare = subprocess.run([*STARTER], capture_output=True, text=True, cwd=ROOT, check=False)

    assert (bare.returncode, "submit" in bare.stdout, bare.stderr) == (2, True, "")


def test_the_version_is_that_of_the_project(home: Home) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert home("--version").stdout == f"nightcrew {project['version']}\n"
