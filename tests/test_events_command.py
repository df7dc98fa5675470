"""`events` by the real command line: all runs, readers that are killed and go on, and what is refused."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from subprocess import Popen
from typing import Any

import jsonschema
import pytest
from home import Home
from plans import START, plan_of
from pydantic import JsonValue

from domain.events import Event, EventType, timestamp
from domain.progress import Outline
from domain.schemas import json_schema
from store import Store, open_store
from terminal.commands import main

PLAN = """
defaults: {agent: writer}
tasks:
  - {id: first, prompt: Begin.}
  - {id: second, prompt: Go on., needs: [first]}
"""
TOLD = 400
"""Events that are more than a pipe takes, and two batches."""


@pytest.fixture
def quiet(tmp_path: Path) -> Home:
    """A home that is not up, with a run in its store that nobody has ended."""
    home = Home(tmp_path / "quiet")
    asyncio.run(fill(open_store(str(home.folder / "store"))))
    return home


async def fill(store: Store) -> None:
    plan = plan_of(Outline(tasks=(), max_concurrency=1))
    ref = await store.put_artifact(plan.model_dump_json().encode())
    manifest = {"run": "old", "submitted": timestamp(START), "plan_ref": ref, "simulated": True}
    await store.put_manifest("old", manifest)
    data: dict[str, JsonValue] = {"by": "ann", "note": "x" * 1000}
    told = (Event(number=number, type=EventType.RUN_PAUSED, time=START, data=data) for number in range(1, TOLD + 1))
    await store.append_events("old", tuple(told))


class Told:
    """Commands that are carried out in this process: what they wrote, and their exit codes."""

    def __init__(self, home: Home, capsys: pytest.CaptureFixture[str]) -> None:
        self._home, self._capsys = home, capsys

    def __call__(self, *words: str) -> tuple[int, str, str]:
        self._capsys.readouterr()
        code = main(["--home", str(self._home.folder), *words])
        said = self._capsys.readouterr()
        return code, said.out, said.err


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def ids(found: list[dict[str, Any]]) -> list[str]:
    return [str(event["id"]) for event in found]


def whole_lines(process: Popen[str]) -> Iterator[str]:
    """What a process has written, line by line, until it has ended."""
    assert process.stdout is not None
    return (line for line in process.stdout if line.endswith("\n"))


def test_a_reader_that_is_killed_while_it_writes_repeats_and_loses_nothing(
    quiet: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody reads on, so it is killed between the first line and the last: its place is still before them."""
    asked = ("events", "--all", "--reader", "ops", "--json")
    process = quiet.begin(*asked)
    written = whole_lines(process)
    seen = [json.loads(next(written))]
    process.send_signal(signal.SIGKILL)
    seen += [json.loads(line) for line in written]
    process.communicate()
    told = Told(quiet, capsys)

    (_, again, _), after = told(*asked), told(*asked)

    assert 1 <= len(seen) < TOLD
    assert ids(lines(again)) == [f"old/{number}" for number in range(1, TOLD + 1)]
    assert seen == lines(again)[: len(seen)]
    assert after == (0, "", "")


def test_readers_are_listed_and_forgotten(quiet: Home, capsys: pytest.CaptureFixture[str]) -> None:
    told = Told(quiet, capsys)
    assert told("events", "--all", "--type", "run.completed", "--reader", "ops") == (0, "", "")
    assert len(lines(told("events", "old", "--reader", "audit", "--json")[1])) == TOLD

    listed = json.loads(told("events", "readers", "--json")[1])
    forgotten = told("events", "--forget", "ops")

    assert listed["schema"] == "nightcrew.readers/1"
    assert [(reader["name"], reader["runs"]) for reader in listed["readers"]] == [
        ("audit", {"old": TOLD}),
        ("ops", {"old": TOLD}),
    ]
    assert forgotten[0] == 0
    assert told("events", "--forget", "ops")[0] == 2
    shown = told("events", "readers")[1]
    assert "400 events" in shown
    assert "ops" not in shown
    assert told("events", "--all", "--reader", "audit", "--json") == (0, "", "")
    assert len(lines(told("events", "--all", "--reader", "ops", "--json")[1])) == TOLD


@pytest.mark.parametrize(
    ("words", "sentence", "code"),
    [
        ("", "or say --all", 2),
        ("old --all", "not both", 2),
        ("old --run old", "not both", 2),
        ("--all --type tusk.", "no type of event", 2),
        ("--all --type task.faild", "did you mean 'task.failed'?", 2),
        ("--run new", "There is no run 'new' here", 2),
        ("--all --since soon", "must be a duration", 2),
        ("--all --reader ../x", "no name for a reader", 2),
        ("--forget nobody", "There is no reader 'nobody' here", 2),
    ],
)
def test_what_is_not_clear_is_refused_in_a_sentence(
    quiet: Home, capsys: pytest.CaptureFixture[str], words: str, sentence: str, code: int
) -> None:
    found, out, said = Told(quiet, capsys)("events", *words.split())

    assert (found, out, sentence in said) == (code, "", True), said


def test_who_follows_all_runs_hears_those_that_begin_later_and_goes_on_after_a_kill(
    home: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As CloudEvents that pass the schema; what the killed one had not kept comes again, and nothing is lost."""
    plan, told = tmp_path / "plan.yaml", Told(home, capsys)
    plan.write_text(PLAN)
    follower = home.begin("events", "--all", "--follow", "--reader", "ops", "--json")
    for run in "one", "two":
        assert home("submit", str(plan), "--id", run).returncode == 0
    seen: list[dict[str, Any]] = []
    for line in whole_lines(follower):
        seen.append(json.loads(line))
        if sum(event["type"] == "run.completed" for event in seen) == 2:
            break
    follower.send_signal(signal.SIGKILL)
    follower.communicate()
    assert home("run", str(plan), "--id", "three").returncode == 0

    rest = lines(told("events", "--all", "--reader", "ops", "--json")[1])

    everything = lines(told("events", "--all", "--json")[1])
    assert {*ids(seen), *ids(rest)} == {*ids(everything)}
    assert [event["time"] for event in everything] == sorted(event["time"] for event in everything)
    by_run = {run: [event for event in everything if event["correlationid"] == run] for run in ("one", "two", "three")}
    for run, events in by_run.items():
        assert ids(events) == [f"{run}/{number}" for number in range(1, len(events) + 1)]
    assert not {*ids(seen)} & {*ids(by_run["three"])}
    assert {*ids(rest)} >= {*ids(by_run["three"])}
    schema = jsonschema.Draft202012Validator(json_schema("event"))
    assert [error.message for event in everything for error in schema.iter_errors(event)] == []
    ends = told("events", "--subject", "*/second", "--type", "task.completed", "--type", "run.")[1]
    assert sorted(line.split()[2] for line in ends.splitlines()) == ["one", "three", "two"]
    to_its_end = told("events", "three", "--follow", "--reader", "one-run", "--json")[1]
    assert ids(lines(to_its_end)) == ids(by_run["three"])
