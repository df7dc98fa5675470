"""`change RUN PLAN` by the command line: what is too dear, not allowed or too late changes nothing."""

from __future__ import annotations

import json
from pathlib import Path

from home import Home

PLAN = """
budget_usd: 0.20
defaults: {agent: writer, attempts: 1}
tasks:
  - {id: first, prompt: Take your time., timeout: 20m}
  - {id: last, prompt: Sum it up., needs: [first]}
"""
MORE = f"""
  - {{id: more, needs: [first], for_each: {[*range(60)]}, prompt: "{"word " * 6_000} {{{{ item }}}}"}}
"""
CLERK = """
agents:
  - name: clerk
    version: "1"
    model: claude-haiku-4-5
    instructions: File it.
    rights: {data: ["results:*"], budget_usd: 1}
"""
FILED = """
  - {id: filed, prompt: File it., agent: clerk, needs: [first]}
"""


def tasks(home: Home, run: str) -> list[str]:
    """The tasks that the run has by now; those of a fan-out by its name, once."""
    found = json.loads(home("status", run, "--json").stdout)["tasks"]
    return [*dict.fromkeys(task["id"].partition("[")[0] for task in found)]


def test_what_is_too_dear_not_allowed_or_too_late_is_refused_and_yes_agrees_to_the_cost(
    home: Home, tmp_path: Path
) -> None:
    home.script({"when": {"task": "first"}, "then": {"ttft": 600}}, ttft=0, tokens_per_second=0)
    file = tmp_path / "plan.yaml"

    def written(text: str) -> str:
        file.write_text(text)
        return str(file)

    submitted = home("submit", written(PLAN), "--id", "changing")
    assert submitted.returncode == 0, submitted.stderr
    try:
        while json.loads(home("status", "changing", "--json").stdout)["tasks"][0]["status"] != "RUNNING":
            pass  # each question is a process of its own, which takes its time

        dear = home("change", "changing", written(PLAN + MORE))
        refused = home("change", "changing", written(CLERK + PLAN + FILED))
        late = home("change", "changing", written(PLAN.replace("Take your time.", "Be quick.")))
        unchanged = tasks(home, "changing")
        agreed = home("change", "changing", written(PLAN + MORE), "--yes")

        assert dear.returncode == 6, dear.stderr
        assert "Of what has not started of what is left: it will likely cost $" in dear.stderr
        assert "The plan was not changed. `set changing --budget USD` raises the budget, and --yes" in dear.stderr
        assert refused.returncode == 2, refused.stderr
        assert "'clerk' may not use the model 'claude-haiku-4-5'" in refused.stderr
        assert late.returncode == 1, late.stderr
        assert "'first' is at work" in late.stderr
        assert "The plan was not changed." in late.stderr
        assert unchanged == ["first", "last"]
        assert agreed.returncode == 0, agreed.stderr
        assert tasks(home, "changing") == ["first", "last", "more"]
    finally:
        home("cancel", "changing")
