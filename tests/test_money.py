"""Money at the command line: what is foreseen, agreed to, and spent. The simulator's bill is the truth."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from home import ROOT, STARTER, Home

from domain.prices import cost_of
from domain.values import Usage
from prices import price_list

EXAMPLES = ("chain", "code-team", "competitor-brief", "map-files")
SMALL = "name: small\ntasks: [{id: only, agent: writer, prompt: Say hello.}]\n"
ODD = """
name: odd
agents: [{name: odd, version: "1", model: gpt-9, instructions: You are odd.}]
tasks: [{id: only, agent: odd, prompt: Say hello.}]
"""


def write(folder: Path, text: str, name: str = "plan.yaml") -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def billed(calls: list[dict[str, Any]]) -> Decimal:
    """What the provider would charge for these calls."""
    prices = price_list({call["model"] for call in calls})
    return sum((cost_of(prices.price(call["model"]), Usage(**call["billed"])) for call in calls), Decimal(0))


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """A home in which no agent has been at work yet, with a simulator that answers at once and as usual."""
    with Home(tmp_path_factory.mktemp("fresh")) as home:
        home.script(ttft=0, tokens_per_second=0)
        yield home


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_costs_about_what_was_likely(fresh: Home, name: str) -> None:
    """Within 30 % of it, never outside of low and high, and the report has what the provider has billed."""
    foreseen = json.loads(fresh("estimate", f"examples/{name}.yaml", "--json").stdout)

    report = json.loads(fresh("run", f"examples/{name}.yaml", "--json").stdout)

    cost, actual = report["cost"], billed(fresh.calls(report["run"]))
    low, likely, high = (Decimal(foreseen["usd"][level]) for level in ("low", "likely", "high"))
    assert Decimal(cost["actual_usd"]) == actual > 0
    assert low <= actual <= high
    assert abs(likely - actual) <= actual * Decimal("0.3")
    assert (Decimal(cost["estimate_usd"]), cost["price_source"]) == (likely, foreseen["price_source"])
    assert sum(Decimal(task["cost_usd"]) for task in report["tasks"]) == actual
    assert sum(Decimal(task["estimate_usd"]) for task in report["tasks"]) == likely
    assert (cost["retries_usd"], cost["unsettled_usd"]) == ("0", "0")


def test_what_agents_did_before_is_what_is_likely_next(home: Home, tmp_path: Path) -> None:
    """Answers of ten tokens, where the guess was ten times that."""
    plan = write(tmp_path, SMALL)
    home.script({"when": {}, "then": {"answer_tokens": 10}}, ttft=0, tokens_per_second=0)

    def likely() -> tuple[int, Decimal, int]:
        found = json.loads(home("estimate", plan, "--json").stdout)
        return found["tokens"]["output"]["likely"], Decimal(found["usd"]["likely"]), found["tasks"][0]["answers"]

    before = likely()
    assert home("run", plan, "--id", "first").returncode == 0
    after = likely()
    assert home("run", plan, "--id", "second").returncode == 0

    assert (before[2], after[2]) == (0, 1)
    assert 10 < likely()[0] < after[0] <= (before[0] + 10) / 2 < before[0]
    assert after[1] < before[1]


def test_what_attempts_in_vain_cost_is_told_apart(home: Home, tmp_path: Path) -> None:
    """A first answer that is cut off: the provider has billed it, whatever it told."""
    home.script(
        {"when": {"task": "only", "nth": 1}, "then": {"fault": "reset_mid_stream", "at": 0.5}},
        ttft=0,
        tokens_per_second=0,
    )

    done = home("run", write(tmp_path, SMALL), "--json")

    report = json.loads(done.stdout)
    cost, (task,) = report["cost"], report["tasks"]
    actual = billed(home.calls(report["run"]))
    retries, unsettled = Decimal(cost["retries_usd"]), Decimal(cost["unsettled_usd"])
    assert task["attempts"] == 2, done.stderr
    assert retries + unsettled > 0
    assert Decimal(cost["actual_usd"]) <= actual <= Decimal(cost["actual_usd"]) + unsettled
    assert "for attempts in vain" in " ".join(home("result", report["run"]).stdout.split())


def test_an_estimate_starts_nothing(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")

    done = home("estimate", "examples/chain.yaml", "--json")

    document = json.loads(done.stdout)
    assert done.returncode == 0
    assert list(document) == [
        *("schema", "name", "simulated", "usd", "tokens", "seconds", "tasks", "price_source", "unpriced", "live_usd"),
        *("decision", "why"),
    ]
    assert [task["id"] for task in document["tasks"]] == ["idea", "outline", "draft", "edit", "title"]
    assert Decimal(document["live_usd"]["likely"]) > Decimal(document["usd"]["likely"])
    assert "It would start: it is simulated" in home("estimate", "examples/chain.yaml").stdout
    assert not home.folder.exists()


def test_more_than_the_budget_is_refused_before_anything_is_started(tmp_path: Path) -> None:
    """Of a simulated run, too: its budget is the consent."""
    home = Home(tmp_path / "home")

    refused = home("run", "examples/chain.yaml", "--budget", "0.001")
    as_json = home("submit", "examples/chain.yaml", "--budget", "0.001", "--json")
    early = json.loads(home("estimate", "examples/chain.yaml", "--budget", "0.05", "--json").stdout)

    assert refused.returncode == as_json.returncode == 6
    assert "the budget is $0.0010. Nothing was started." in refused.stderr
    assert json.loads(as_json.stdout)["error"]["code"] == "money"
    assert (early["decision"], "it may stop early" in early["why"]) == ("run", True)
    assert not home.folder.exists()


@pytest.mark.parametrize("word", ["-1", "nan", "inf", "1e999", "0", "", "1,5", "two"])
def test_a_budget_that_is_no_amount_is_refused(tmp_path: Path, word: str) -> None:
    done = Home(tmp_path / "home")("run", "examples/chain.yaml", f"--budget={word}")

    assert (done.returncode, f"--budget {word!r} must be an amount" in done.stderr) == (2, True), done.stderr


@pytest.fixture
def paying(home: Home, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Live runs, at a provider that is the simulator; a person is asked above so many dollars."""

    def set_up(ask_above: str) -> None:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "not-a-key")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", home.url)
        monkeypatch.setenv("NIGHTCREW_ASK_ABOVE_USD", ask_above)

    return set_up


def test_without_a_terminal_a_dear_live_run_is_refused_and_the_provider_hears_nothing(
    home: Home, paying: Callable[[str], None], tmp_path: Path
) -> None:
    paying("0.0001")
    asked = len(home.calls())

    refused = home("run", write(tmp_path, SMALL), "--id", "dear")

    assert refused.returncode == 6
    assert "more than ask_above_usd ($0.00010). Nothing was started. --yes starts it all the same." in refused.stderr
    assert len(home.calls()) == asked
    assert home("status", "dear").returncode == 2
    assert json.loads(home("estimate", write(tmp_path, SMALL), "--json").stdout)["decision"] == "ask"


def test_yes_starts_a_dear_live_run_and_naming_it_again_asks_nobody(
    home: Home, paying: Callable[[str], None], tmp_path: Path
) -> None:
    paying("0.0001")

    done = home("run", write(tmp_path, SMALL), "--id", "agreed", "--yes", "--json")
    again = home("run", write(tmp_path, SMALL), "--id", "agreed", "--json")

    report = json.loads(done.stdout)
    assert (done.returncode, report["simulated"], again.returncode) == (0, False, 0), done.stderr
    assert Decimal(report["cost"]["actual_usd"]) == billed(home.calls("agreed")) > 0
    assert "paid" in home("costs").stdout


def look_at(terminal: int) -> None:
    """Take what is shown on a terminal until nobody shows anything more there: a full one would stop who writes."""
    with suppress(OSError):
        while os.read(terminal, 4096):
            pass


@pytest.mark.parametrize(("answer", "code"), [(b"n\n", 6), (b"\n", 6), (b"y\n", 0)])
def test_on_a_terminal_a_person_is_asked(
    home: Home, paying: Callable[[str], None], tmp_path: Path, answer: bytes, code: int
) -> None:
    paying("0.0001")
    ours, theirs = pty.openpty()
    command = [*STARTER, "--home", str(home.folder), "run", write(tmp_path, SMALL), "--json"]
    with subprocess.Popen(command, stdin=theirs, stdout=subprocess.PIPE, stderr=theirs, cwd=ROOT) as person:
        os.close(theirs)
        said = b""
        while b"[y/N]" not in said:
            said += os.read(ours, 4096)
        os.write(ours, answer)
        screen = threading.Thread(target=look_at, args=(ours,))
        screen.start()
        out, _ = person.communicate(timeout=100)
    screen.join()
    os.close(ours)

    assert person.returncode == code
    assert json.loads(out).get("status") == ("COMPLETED" if code == 0 else None)


@pytest.mark.parametrize(
    ("words", "live", "code"),
    [
        ([], False, 0),
        (["--budget", "1"], False, 2),
        ([], True, 2),
        (["--budget", "1", "--yes"], True, 2),
        (["--yes"], True, 0),
    ],
)
def test_a_model_without_a_price_is_refused_where_money_is_limited(
    home: Home, paying: Callable[[str], None], tmp_path: Path, words: list[str], live: bool, code: int
) -> None:
    if live:
        paying("1")

    done = home("run", write(tmp_path, ODD), *words, "--json")

    document = json.loads(done.stdout)
    assert done.returncode == code, done.stderr
    if code:
        assert document["error"]["code"] == "unknown_price"
        assert "no price for the model 'gpt-9'" in document["error"]["message"]
    else:
        assert (document["cost"]["actual_usd"], document["cost"]["unpriced"]) == (None, ["gpt-9"])
        assert document["tasks"][0]["cost_usd"] is None
        shown = " ".join(home("result", document["run"]).stdout.split())
        assert "What it cost is not known: there is no price for gpt-9" in shown


def test_costs_add_up_in_every_way(fresh: Home) -> None:
    """The same sum by run, plan, agent and day, and it is the provider's."""
    for plan in ("chain", "competitor-brief"):
        assert fresh("run", f"examples/{plan}.yaml").returncode == 0

    found = {by: json.loads(fresh("costs", "--by", by, "--json").stdout) for by in ("run", "plan", "agent", "day")}

    whole = billed(fresh.calls())
    for document in found.values():
        assert Decimal(document["all"]["simulated_usd"]) == whole
        assert sum(Decimal(line["simulated_usd"]) for line in document["lines"]) == whole
    assert {"chain", "competitor-brief"} <= {line["name"] for line in found["plan"]["lines"]}
    assert {"writer@1", "researcher@1"} <= {line["name"] for line in found["agent"]["lines"]}
    runs = {entry["run"]: entry["cost"]["actual_usd"] for entry in json.loads(fresh("list", "--json").stdout)["runs"]}
    assert {line["name"]: line["simulated_usd"] for line in found["run"]["lines"]} == runs
    assert fresh("costs", "--by", "week").returncode == 2
    assert json.loads(fresh("costs", "--since", "2h", "--json").stdout)["all"] == found["run"]["all"]


def test_a_home_without_runs_has_no_costs(tmp_path: Path) -> None:
    done = Home(tmp_path / "home")("costs")

    assert (done.returncode, done.stdout) == (0, "no runs\n")


@pytest.mark.parametrize("where", ["task", "agent", "day"])
def test_no_model_without_a_price_starts_under_a_cap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    plan = {
        "task": ODD.replace("prompt: Say hello.", "prompt: Say hello., budget_usd: 1"),
        "agent": ODD.replace("instructions: You are odd.", "instructions: You are odd., budget_usd: 1"),
        "day": ODD,
    }[where]
    if where == "day":
        monkeypatch.setenv("NIGHTCREW_DAILY_USD", "1")

    refused = Home(tmp_path / "home")("run", write(tmp_path, plan), "--yes", "--simulate")

    assert refused.returncode == 2, refused.stderr
    assert "Without it a budget cannot be kept" in refused.stderr


def test_a_cap_that_is_too_small_is_refused_before_anything_starts(tmp_path: Path) -> None:
    small = SMALL.replace("prompt: Say hello.", "prompt: Say hello., budget_usd: 0.005")

    refused = Home(tmp_path / "home")("run", write(tmp_path, small), "--simulate")

    assert refused.returncode == 6, refused.stderr
    assert "One call of task 'only' may cost up to" in refused.stderr
    assert "and its budget_usd is $0.0050: it could not start. Nothing was started." in refused.stderr
