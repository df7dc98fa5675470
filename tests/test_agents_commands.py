"""`agents ...` at a home, as a person types it: the life of an agent, and what its runs leave behind."""

from __future__ import annotations

import asyncio
import json
import time
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from conftest import Bench, Run
from home import ROOT, Home

from agency import known_agents, records
from domain.admission import definition_of, definition_ref
from domain.merit import Merits
from domain.models import Agent, Plan, TaskStatus
from domain.planning import plan_from_text
from domain.register import Act, Verb
from domain.registry import registry_from_text
from folder import PlanFolder
from registers import Registers
from store import open_store
from terminal.commands import main

FILE = """
agents:
  - name: writer
    version: "2"
    capabilities: [writing]
    model: claude-haiku-4-5
    instructions: Write.
    check: {prompt: "Say what a {{ lighthouse }} is for.", expect: LIGHT}
  - name: writer
    version: "1"
    capabilities: [writing]
    model: claude-haiku-4-5
    instructions: Write at length.
    check: {prompt: Say yes., expect: nowhere to be found}
  - {name: clerk, version: "1", capabilities: [filing], model: claude-haiku-4-5, instructions: File.}
"""
PLAN = """
name: letters
tasks:
  - {id: long, agent: writer@1, prompt: Write at length., files: [notes.md]}
  - {id: short, agent: writer, prompt: Write it short., needs: [long]}
  - {id: filed, capability: filing, prompt: File it., needs: [short]}
"""


class Said(NamedTuple):
    """What came of a command."""

    exit: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


class Terminal:
    """Types commands at a home, in this process: a new one takes a second to load its libraries."""

    def __init__(self, home: Home, team: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.home, self.team, self._capsys = home, team, capsys

    def __call__(self, *words: str) -> Said:
        self._capsys.readouterr()
        exit = main(["--home", str(self.home.folder), *words])
        return Said(exit, *self._capsys.readouterr())

    def agents(self, *words: str) -> Said:
        return self("agents", "--agents", str(self.team), *words)

    def states(self) -> dict[str, str]:
        found = self.agents("--json").document["agents"]
        return {f"{agent['name']}@{agent['version']}": agent["state"] for agent in found}

    def shown(self, name: str) -> Any:
        return self.agents("show", name, "--json").document


@pytest.fixture
def at(home: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Terminal:
    """A terminal at a home that is up."""
    (tmp_path / "team.yaml").write_text(FILE, "utf-8")
    (tmp_path / "notes.md").write_text("Notes.", "utf-8")
    (tmp_path / "plan.yaml").write_text(PLAN, "utf-8")
    return Terminal(home, tmp_path / "team.yaml", capsys)


def test_definitions_are_kept_by_name_and_version(at: Terminal) -> None:
    """The same one again is no news, and another one under the same version is refused whole."""
    assert set(at.states().values()) == {"declared"}
    refused = at.agents("onboard", "writer")
    assert (refused.exit, "is not registered" in refused.err) == (1, True)

    first = at("agents", "register", str(at.team), "--note", "the first team", "--json")
    again = at.agents("register", "--json")
    at.team.write_text(FILE.replace("Write at length.\n", "Write otherwise.\n").replace("clerk", "new"), "utf-8")
    refused, listed = at.agents("register"), at.agents()
    at.team.write_text(FILE, "utf-8")

    assert first.document["registered"] == ["writer@2", "writer@1", "clerk@1"]
    assert (again.document["registered"], len(again.document["known"])) == ([], 3)
    assert (refused.exit, "writer@1 is registered with another definition" in refused.err) == (2, True)
    assert "registered, changed since" in listed.out
    assert set(at.states().values()) == {"registered"}  # nothing of the file that was refused
    assert at.shown("writer@1")["acts"][0]["data"]["note"] == "the first team"


def test_who_passes_its_check_is_onboarded(at: Terminal) -> None:
    """The exit code tells, and the run of the check is named. What it was asked stands as it was written."""
    at.agents("register")

    passed, failed = at.agents("onboard", "writer"), at.agents("onboard", "writer@1", "--json")
    refused = at.agents("onboard", "clerk")

    assert (passed.exit, "writer@2 has passed its check: onboarded" in passed.out) == (0, True), passed
    assert (failed.exit, failed.document["onboarded"], failed.document["simulated"]) == (4, False, True)
    assert (refused.exit, "has no check" in refused.err) == (2, True)
    assert at.states() == {"writer@2": "onboarded", "writer@1": "registered", "clerk@1": "registered"}
    brief = at("status", at.shown("writer")["acts"][-1]["data"]["run"], "check", "--json").document["brief"]
    assert "Say what a {{ lighthouse }} is for." in brief


def test_what_an_agent_has_read_and_made_is_shown_and_disabling_it_refuses_the_plan(at: Terminal) -> None:
    """Two versions of one agent work in one plan; what each has done is shown by itself."""
    plan = str(at.team.with_name("plan.yaml"))
    before = at.shown("writer@1")["record"]["simulated"]["tasks"]

    ran = at("run", plan, "--agents", str(at.team), "--json")

    assert ran.exit == 0, ran.err
    report = ran.document
    assert [task["agent"] for task in report["tasks"]] == ["writer@1", "writer@2", "clerk@1"]
    shown, clerk = at.shown("writer@1"), at.shown("clerk")
    assert (shown["record"]["simulated"]["tasks"], shown["record"]["live"]["tasks"]) == (before + 1, 0)
    (made,) = shown["runs"][0]["tasks"]
    assert (shown["runs"][0]["run"], made["id"]) == (report["run"], "long")
    assert made["read"] == {"files": ["notes.md"], "results": []}
    assert made["output_ref"] == report["tasks"][0]["output_ref"]
    assert clerk["by_capability"]["simulated"]["filing"]["succeeded"] == 1
    assert clerk["runs"][0]["tasks"][0]["read"] == {"files": [], "results": ["short"]}
    assert "result of short" in at.agents("show", "clerk").out

    assert at.agents("disable", "writer@1", "--note", "too long").exit == 0
    refused = at("run", plan, "--agents", str(at.team))
    assert refused.exit == 2
    assert "task 'long': the agent 'writer@1' is disabled by " in refused.err
    assert "('too long')" in refused.err
    again = at("retry", report["run"], "long")
    assert (again.exit, "is disabled by" in again.err) == (1, True)
    assert "nothing was changed" in at.agents("disable", "writer@1").out
    assert at.agents("enable", "writer@1").exit == 0
    assert at("validate", plan, "--agents", str(at.team)).exit == 0


def test_an_item_of_a_list_is_shown_as_read_of_whoever_made_the_list(at: Terminal) -> None:
    plan = at.team.with_name("items.yaml")
    each = '{id: each, agent: clerk, for_each: {from: list}, prompt: "File {{ item }}."}'
    plan.write_text(f"tasks:\n  - {{id: list, agent: writer, prompt: List them.}}\n  - {each}\n", "utf-8")

    ran = at("run", str(plan), "--agents", str(at.team), "--json")

    assert ran.exit == 0, ran.err
    tasks = at.shown("clerk")["runs"][0]["tasks"]
    assert tasks
    assert all(task["read"] == {"files": [], "results": ["list"]} for task in tasks)
    trail = at("audit", "show", ran.document["run"], "--agent", "clerk").out
    assert trail.count("item of the list of list by writer@2 sha256:") == len(tasks)


def test_a_run_that_is_going_is_shown_as_such_also_while_no_server_answers(
    at: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has made there counts already; who has not begun there has no part in it yet."""
    plan = at.team.with_name("asking.yaml")
    plan.write_text(PLAN.replace("id: filed,", "id: filed, approval: true,"), "utf-8")
    run = at("submit", str(plan), "--agents", str(at.team), "--json").document["run"]

    def going(name: str) -> list[Any]:
        return [each for each in at.shown(name)["runs"] if each["run"] == run and each["status"]]

    while not (found := going("writer")) or found[0]["status"] != "WAITING":
        assert at("status", run, "--json").document["finished"] is None

    (made,) = found[0]["tasks"]
    assert (found[0]["finished"], found[0]["simulated"], made["status"]) == (None, True, "SUCCEEDED")
    assert (made["id"], made["read"], bool(made["output_ref"])) == ("short", {"files": [], "results": ["long"]}, True)
    assert going("clerk") == []
    with monkeypatch.context() as patched:
        patched.setattr("terminal.session.Session.is_up", lambda _: False)
        assert going("writer") == found
        assert f"{run}  SIMULATED  going: WAITING" in at.agents("show", "writer").out

    assert at("approve", run, "filed").exit == 0
    assert at("watch", run).exit == 0
    while not (recorded := [each for each in at.shown("writer")["runs"] if each["run"] == run and not each["status"]]):
        time.sleep(0.1)  # its record is written a moment after the last word that `watch` waits for
    assert going("writer") == []
    assert len(recorded) == 1
    assert at.shown("writer")["runs"][0]["run"] == run


def test_who_is_retired_does_not_come_back_and_a_new_version_does(at: Terminal) -> None:
    at.team.write_text(FILE.replace("name: writer", "name: poet"), "utf-8")
    assert len(at.agents("retire", "poet", "--json").document["acts"]) == 2

    refused = at.agents("enable", "poet")

    assert (refused.exit, "is retired by" in refused.err) == (1, True)
    at.team.write_text(FILE.replace("name: writer", "name: poet").replace('"2"', '"3"'), "utf-8")
    assert at.agents("register").exit == 0
    found = at.states()
    assert (found["poet@3"], found["poet@1"]) == ("registered", "retired")


def test_a_role_that_is_given_is_pinned_in_the_runs_that_follow(at: Terminal) -> None:
    """Without it the plan is refused. Runs that began with it keep the role as it was then, by which they may read."""
    rights = "rights: {models: ['*'], regions: ['*'], budget_usd: 1}"
    role = "roles: [{name: reader, rights: {data: ['files:*.md']}}]\n"
    scribe = f"  - {{name: scribe, version: '1', model: claude-haiku-4-5, instructions: Read., {rights}}}\n"
    at.team.write_text(f"{role}agents:\n{scribe}", "utf-8")
    plan = at.team.with_name("scribe.yaml")
    plan.write_text("tasks: [{id: read, agent: scribe, files: [notes.md], prompt: Read it.}]", "utf-8")
    started = ("run", str(plan), "--agents", str(at.team), "--json")
    assert "files:notes.md" in at(*started).document["error"]["problems"][0]["message"]

    assert at.agents("role", "scribe", "add", "reader").exit == 0
    ran = at(*started)
    at.team.write_text(f"{role.replace('*.md', '*.txt')}agents:\n{scribe}", "utf-8")

    assert ran.exit == 0, ran
    with_it = pinned(at, ran.document["run"])
    assert [(given.name, given.rights.data) for given in with_it.given] == [("reader", ("files:*.md",))]
    assert at("retry", ran.document["run"], "read").exit == 0
    assert at.agents("role", "scribe", "remove", "reader").exit == 0
    assert at(*started).exit == 2


def pinned(at: Terminal, run: str) -> Agent:
    """The agent of a run of one task, as it was when that was submitted."""
    store = at.home.folder / "store"
    manifest = json.loads(next((store / "runs" / run).glob("manifest*")).read_text())
    content = asyncio.run(open_store(str(store)).artifact(manifest["plan_ref"]))
    (agent,) = Plan.model_validate_json(content).agents
    return agent


WRONG = [
    (("disable", "wrter"), 2, "Did you mean 'writer'?"),
    (("disable", "writer@9"), 2, "There is no version '9' of 'writer': known are 2, 1."),
    (("withdraw", "writer", "modles"), 2, "did you mean 'models'?"),
    (("withdraw", "writer", "budget_usd", "x"), 2, "takes no pattern"),
    (("grant", "clerk", "tools"), 1, "nothing to give back (withdrawn: nothing)"),
    (("role", "clerk", "add", "boss"), 2, "has no role 'boss'"),
    (("role", "clerk", "remove", "boss"), 2, "has no role 'boss': it has none"),
    (("role", "clerk", "give", "boss"), 2, "role NAME add ROLE"),
    (("disable", "clerk", "--note", "x" * 2001), 2, "at most 2,000"),
]


@pytest.mark.parametrize(("words", "exit", "said"), WRONG, ids=[" ".join(words)[:30] for words, *_ in WRONG])
def test_what_is_asked_wrongly_is_refused_in_a_sentence(
    at: Terminal, words: tuple[str, ...], exit: int, said: str
) -> None:
    done = at.agents(*words)

    assert (done.exit, said in done.err) == (exit, True), done


def test_of_two_who_register_at_once_the_first_is_heard_and_the_second_is_told(
    at: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one comes between the look at the register and the word that is written into it."""
    both = (f"{{name: {name}, version: '1', model: m, instructions: Ours.}}" for name in ("calm", "hasty"))
    at.team.write_text(f"agents: [{', '.join(both)}]", "utf-8")
    theirs = Agent(name="hasty", version="1", model="m", instructions="Theirs.")
    add = Registers.add

    async def overtaken(ours: Registers, verb: Verb, agent: str, version: str | None, **more: Any) -> Act:
        if agent == theirs.name:
            ref = await ours._store.put_artifact(definition_of(theirs))
            await add(Registers(ours._store), verb, agent, version, by="mo", data={"definition": ref})
        return await add(ours, verb, agent, version, **more)

    monkeypatch.setattr(Registers, "add", overtaken)
    refused = at.agents("register")
    monkeypatch.undo()

    assert refused.exit == 2
    assert "hasty@1 was registered at the same moment with another definition, which stands" in refused.err
    assert "The others of the file are registered." in refused.err
    assert (at.shown("calm")["state"], at.shown("hasty")["definition"]) == ("registered", definition_ref(theirs))
    assert "registered, changed since" in at.agents("show", "hasty").out
    assert "hasty@1 is registered with another definition" in at.agents("register").err


def test_withdrawn_rights_are_in_the_register_until_they_are_granted_again(at: Terminal) -> None:
    assert at.agents("withdraw", "clerk", "models", "claude-*").exit == 0
    assert at.agents("withdraw", "clerk@1", "all").exit == 0

    withdrawn = at.shown("clerk")["withdrawn"]

    assert sorted(f"{each['right']} {each['pattern']}" for each in withdrawn) == [
        *("budget_usd *", "data *", "models *", "models claude-*", "regions *", "tools *"),
    ]
    assert at.agents("grant", "clerk", "models").exit == 0
    assert at.agents("grant", "clerk", "all").exit == 0
    assert at.shown("clerk")["withdrawn"] == []


def test_a_governed_home_says_so_and_refuses_who_is_not_onboarded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is started for it: it is known from the files alone."""
    at = Terminal(Home(tmp_path / "home"), tmp_path, capsys)
    at.home.folder.mkdir()
    (at.home.folder / "nightcrew.toml").write_text("governed = true\n", "utf-8")

    refused = at("run", str(ROOT / "examples/chain.yaml"))

    assert refused.exit == 2
    assert "is not registered (governed = true) (./starter.py agents register)" in refused.err
    assert not (at.home.folder / "store").exists()
    shown = {entry["key"]: entry for entry in at("doctor", "--json").document["settings"]}
    assert (shown["governed"]["value"], shown["governed"]["source"]) == (True, "nightcrew.toml")
    assert "only agents that are onboarded" in shown["governed"]["meaning"]


async def test_a_run_goes_on_with_what_it_was_started_with(bench: Bench) -> None:
    """The file changes and a better version is registered while it waits: its calls are those of the pinned agent."""
    old = registry_from_text(FILE, file="a")
    plan = "tasks: [{id: wait, agent: writer@1, approval: true, prompt: Go.}]"
    planned = plan_from_text(plan, file="p", registry=old, folder=PlanFolder.of("-"))
    async with bench.worker():
        run = await bench.client.submit(planned, id="pinned", simulated=True, queue=bench.queue)
        newer = registry_from_text(FILE.replace("Write at length.", "Write otherwise."), file="a")
        await Registers(bench.store).add(Verb.REGISTERED, "writer", "3", by="me", data={"definition": "sha256:1"})
        await Run(run, bench.client, bench.temporal).until(lambda picture: picture.tasks["wait"].wait is not None)
        await bench.client.approve(run, ["wait"], by="me")
        async for picture in bench.client.watch(run):
            ended = picture

    assert ended.tasks["wait"].status is TaskStatus.SUCCEEDED
    said = json.dumps(list(bench.simulator.requests))
    assert "Write at length." in said
    assert newer.agents[1].instructions not in said


async def test_records_decide_who_is_chosen_next(crew: Bench) -> None:
    """A run in which one agent fails and another succeeds leaves a record, and the next plan is done by the better."""
    text = FILE.replace("capabilities: [filing]", "capabilities: [writing]")
    registry = registry_from_text(text, file="a")
    crew.simulator.script([{"when": {"task": "bad"}, "then": {"fault": "invalid_request"}}])
    plan = "tasks:\n" + "".join(
        f"  - {{id: {id}, agent: {agent}, prompt: Go.}}\n" for id, agent in (("bad", "writer"), ("good", "clerk"))
    )
    planned = plan_from_text(plan, file="p", registry=registry, folder=PlanFolder.of("-"))
    run = await crew.client.submit(planned, id="two", simulated=True, queue=crew.queue)
    async for picture in crew.client.watch(run):
        assert picture.run == run
    await crew.client.until_closed(run, timedelta(seconds=30))

    by_file = await known_agents(crew.store, registry)
    by_record = await known_agents(crew.store, registry, by_record=True)
    of_live_runs = await known_agents(crew.store, registry, by_record=True, live=True)

    chosen = [each.agent_for(["writing"]) for each in (by_file, by_record, of_live_runs)]
    assert [each.label for each in chosen if each] == ["writer@2", "clerk@1", "writer@2"]
    merits = Merits(await records(crew.store), simulated=True)
    bad, good = merits.of("writer@2"), merits.of("clerk@1")
    assert (bad.tasks, bad.succeeded, good.tasks, good.succeeded, good.attempts) == (1, 0, 1, 1, 1)
    assert good.tokens.output > 0
