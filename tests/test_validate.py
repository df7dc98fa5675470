"""`validate` as a person sees it: effective values with their sources, warnings, and the options before the plan."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from home import Home

PLAN = """\
name: purchase
mode: waves
deadline: 2096-12-01T09:00:00+01:00
defaults: {agent: writer, timeout: 90s, max_tokens: 900, deadline: 12h, approval: {ask: "Is it: fine?", expires: 1d12h}}
tasks:
  - {id: offer, for_each: [desk, lamp], prompt: "{{ item }}", approval: false, files: ["*.md"]}
  - {id: order, prompt: Order., needs: {offer: optional}, quorum: 1, priority: high, time_limit: 2d}
"""
RESOLVED = """\
the plan
  max_concurrency: 4  (built in)
  mode: window  (option)
  deadline: 2096-12-01T08:00:00Z  (plan)
offer[desk]
  agent: writer  (defaults)
  priority: normal  (built in)
  deadline: 12h  (defaults)
  timeout: 1m30s  (defaults)
  attempts: 4  (built in)
  max_tokens: 900  (defaults)
  latency: normal  (built in)
  approval: false  (task)
  files: [a.md, b c.md]  (task)
"""
ORDER = """\
order
  agent: writer  (defaults)
  priority: high  (task)
  deadline: 12h  (defaults)
  timeout: 1m30s  (defaults)
  time_limit: 2d  (task)
  attempts: 4  (built in)
  max_tokens: 900  (defaults)
  latency: normal  (built in)
  needs: {'offer[desk]': optional, 'offer[lamp]': optional}
  quorum: 1  (task)
  approval: {ask: 'Is it: fine?', expires: 1d12h, on_expiry: reject}  (defaults)
purchase: 3 tasks, valid.
"""


@pytest.fixture
def nowhere(tmp_path: Path) -> Home:
    """A home that does not exist: nothing here needs one."""
    return Home(tmp_path / "none")


@pytest.fixture
def plan(tmp_path: Path) -> str:
    for name in ("a.md", "b c.md"):
        (tmp_path / name).write_text("A note.")
    file = tmp_path / "purchase.yaml"
    file.write_text(PLAN)
    return str(file)


def test_values_are_shown_as_a_plan_would_say_them(nowhere: Home, plan: str) -> None:
    done = nowhere("validate", plan, "--resolved", "--mode", "window")

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(RESOLVED)
    assert done.stdout.endswith(ORDER)
    assert not nowhere.folder.exists()


def test_the_same_values_for_scripts(nowhere: Home, plan: str) -> None:
    document = json.loads(nowhere("validate", plan, "--resolved", "--json").stdout)

    assert (document["mode"], document["deadline"]) == ("waves", "2096-12-01T08:00:00Z")
    assert document["sources"] == {
        "name": "plan",
        "max_concurrency": "built in",
        "mode": "plan",
        "deadline": "plan",
    }
    offer, _, order = document["resolved"]
    assert (offer["approval"], offer["time_limit"], offer["quorum"]) == (False, None, None)
    assert order["approval"] == {"ask": "Is it: fine?", "expires": "1d12h", "on_expiry": "reject"}
    assert (order["quorum"], order["priority"], order["time_limit"]) == (1, "high", "2d")
    assert order["sources"]["approval"] == "defaults"


FAN = """\
tasks:
  - {id: base, agent: writer, prompt: Go.}
  - {id: short, agent: writer, prompt: "Read {{ base }}", needs: [base]}
  - {id: whole, agent: writer, prompt: Go., needs: {base: {policy: require, pass: full}}}
  - {id: end, agent: writer, prompt: Go., needs: [short, whole]}
"""


def test_what_an_edge_passes_is_told_where_it_is_not_the_one_dependant(nowhere: Home) -> None:
    done = nowhere("validate", "-", "--resolved", input=FAN)

    assert [line.strip() for line in done.stdout.splitlines() if "needs:" in line] == [
        "needs: {base: {policy: tolerate, pass: summary}}",
        "needs: {base: {policy: require, pass: full}}",
        "needs: {short: tolerate, whole: tolerate}",
    ]


def test_the_brief_of_a_task_shows_what_comes_as_a_summary(nowhere: Home) -> None:
    """And who is asked for one."""
    base, short, whole = (
        nowhere("validate", "-", "--brief", id, input=FAN).stdout for id in ("base", "short", "whole")
    )

    assert "Close your answer with a summary of it, at most 80 words" in base
    assert '<summary-of-result of="base" whole="(its reference)" mark="' in short
    assert "(the summary of the result of base)" in short
    assert "--- document base: the result of task 'base'\n(the result of base)" in whole
    assert "Close your answer" not in short + whole


@pytest.mark.parametrize(("tier", "concurrency"), [(1, 4), (2, 8)])
def test_the_tier_says_how_many_at_once(tmp_path: Path, plan: str, tier: int, concurrency: int) -> None:
    (tmp_path / "nightcrew.toml").write_text(f"tier = {tier}\n")
    home = Home(tmp_path)

    assert f"  max_concurrency: {concurrency}  (tier {tier})\n" in home("validate", plan, "--resolved").stdout
    asked = home("validate", plan, "--resolved", "--max-concurrency", "3")
    assert "  max_concurrency: 3  (option)\n" in asked.stdout


def test_settings_that_cannot_be_used_are_said_before_anything_else(tmp_path: Path, plan: str) -> None:
    (tmp_path / "nightcrew.toml").write_text("tier = 3\n")

    done = Home(tmp_path)("validate", plan)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"'tier' in {tmp_path / 'nightcrew.toml'} cannot be used: must be 1 or 2. It is 3.\n"


def test_a_deadline_in_the_past_is_a_warning_also_for_scripts(nowhere: Home) -> None:
    """The same plan under the same id is the same run, also when its deadline has passed: no mistake, then."""
    late = "deadline: 2001-01-01T00:00:00Z\ntasks: [{id: a, agent: writer, prompt: Hello.}]\n"

    done, document = nowhere("validate", "-", input=late), nowhere("validate", "-", "--json", input=late)

    message = "the deadline 2001-01-01T00:00:00Z has passed"
    assert (done.returncode, done.stderr) == (0, f"-:1:11: {message}\n")
    (warning,) = json.loads(document.stdout)["warnings"]
    assert (warning["line"], warning["column"], warning["message"]) == (1, 11, message)


@pytest.mark.parametrize("command", ["run", "submit", "validate"])
def test_a_mode_that_does_not_exist_is_wrong_usage(nowhere: Home, plan: str, command: str) -> None:
    done = nowhere(command, plan, "--mode", "wave")

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "--mode 'wave' must be window or waves (did you mean 'waves'?).\n"
    assert not nowhere.folder.exists()
