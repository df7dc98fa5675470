"""With a key, no word of a run is in any file of its home: database, its journal, logs, store. And never the key."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
from canaries import CANARIES, RULES, found_in, write_plan
from processes import Home, run
from test_sealing import fresh_key

from runtime import ROOT, load_settings
from sealing import KEY, Keyring

ASKED = """
name: asked
params: {word: {default: canarydefaultzq7}}
tasks:
  - {id: first, agent: writer, prompt: "canarypromptzq7 {{ params.word }}"}
  - {id: second, agent: writer, needs: [first], approval: {ask: "canaryaskzq7?"}, prompt: "canarypromptzq7"}
"""

LISTED = """
name: listed
defaults: {agent: writer}
tasks:
  - {id: list, prompt: List them.}
  - {id: t, for_each: {from: list}, prompt: "Write of {{ item }}.", approval: {ask: "May {{ item }} go?"}}
"""

NOTE = "canarynotezq7"


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[Home]:
    """A home that is not up yet."""
    home = Home(load_settings(tmp_path / "home"))
    try:
        yield home
    finally:
        await home.starter("down")


def files_of(folder: Path) -> dict[str, bytes]:
    """What is in every file. One that is written while we look has another name until it is whole."""
    found: dict[str, bytes] = {}
    for path in folder.rglob("*"):
        if not path.is_file():
            continue
        with suppress(FileNotFoundError):
            found[str(path.relative_to(folder))] = path.read_bytes()
    return found


def leaks(files: dict[str, bytes], key: str) -> dict[str, list[str]]:
    """Which files have which words: canaries, and the key in any form."""
    raw = base64.b64decode(key)
    words = {"a canary": b"zq7", "the key": key.encode(), "the raw key": raw, "the key in hex": raw.hex().encode()}
    found = {name: [what for what, word in words.items() if word in content] for name, content in files.items()}
    return {name: what for name, what in found.items() if what}


async def test_with_a_key_no_word_of_a_run_is_in_any_file_of_its_home(home: Home, tmp_path: Path) -> None:
    """Prompts, files, params, answers, errors of the provider, notes: neither while it is up nor after that."""
    key = fresh_key()
    secret = {KEY: key}
    assert (await home.starter("up", **secret)).code == 0
    home.script(*RULES)
    plan, asked = write_plan(tmp_path), tmp_path / "asked.yaml"
    asked.write_text(ASKED)

    param = f"word={CANARIES['param']}"
    done = await home.starter("run", str(plan), "--param", param, "--json", **secret)
    left = await home.starter("submit", str(asked), "--id", "asked", **secret)
    approved = await home.starter("approve", "asked", "second", "--note", NOTE, **secret)
    while approved.code != 0:  # its question is not there yet
        approved = await home.starter("approve", "asked", "second", "--note", NOTE, **secret)
    ended = await home.starter("result", "asked", "--wait", "--json", **secret)

    assert (left.code, ended.code) == (0, 0), left.stderr
    assert found_in(done.stdout.encode()) != [], "the answers came through; it is the files that have no words"
    while_up = files_of(home.folder)
    assert any(name.endswith("temporal.db-wal") for name in while_up)
    assert leaks(while_up, key) == {}
    assert NOTE in (await home.starter("events", "asked", "--json", **secret)).stdout
    assert (await home.starter("down")).code == 0
    assert leaks(files_of(home.folder), key) == {}


async def test_without_a_key_the_words_are_there(home: Home, tmp_path: Path) -> None:
    """The test above can fail."""
    asked = tmp_path / "asked.yaml"
    asked.write_text(ASKED)
    assert (await home.starter("submit", str(asked), "--id", "asked")).code == 0
    while '"WAITING"' not in (await home.starter("status", "asked", "--json")).stdout:
        pass

    found = leaks(files_of(home.folder), fresh_key())

    assert any(name.startswith("temporal.db") for name in found)
    assert any(name.startswith("store/") for name in found)


async def test_a_key_is_changed_while_a_run_waits(home: Home, tmp_path: Path) -> None:
    """I6: the run that began under the old key ends under the new one; `up` replaces the worker."""
    old, new = fresh_key(), fresh_key()
    asked = tmp_path / "asked.yaml"
    asked.write_text(ASKED)
    assert (await home.starter("submit", str(asked), "--id", "asked", **{KEY: old})).code == 0
    while '"WAITING"' not in (await home.starter("status", "asked", "--json", **{KEY: old})).stdout:
        pass

    refused = await home.starter("submit", str(asked), "--id", "other", **{KEY: f"{new},{old}"})
    raised = await home.starter("up", **{KEY: f"{new},{old}"})
    approved = await home.starter("approve", "asked", "second", **{KEY: f"{new},{old}"})
    ended = await home.starter("result", "asked", "--wait", "--json", **{KEY: f"{new},{old}"})

    assert refused.code == 1
    assert "started with other keys of encryption" in refused.stderr
    assert (raised.code, approved.code, ended.code) == (0, 0, 0), (raised.stderr, approved.stderr, ended.stderr)
    assert "replaced" in raised.stdout
    assert {task["attempts"] for task in json.loads(ended.stdout)["tasks"]} == {1}
    used = [Keyring.from_environment({KEY: key}).ids[0] for key in (old, new)]
    assert sorted(path.name for path in (home.folder / "store" / "keys").iterdir()) == sorted(used)
    told = await home.starter("doctor", "--json", **{KEY: f"{new},{old}"})
    assert f"on: key {used[1]} encrypts; {used[0]} decrypts" in told.stdout
    assert old not in told.stdout
    assert new not in told.stdout


async def test_no_word_of_a_list_that_a_task_makes_is_where_ids_and_questions_are(home: Home, tmp_path: Path) -> None:
    """Without a key, too: its items are in no id, event, record, log or attribute. Who is asked about one reads it."""
    listed = tmp_path / "listed.yaml"
    listed.write_text(LISTED)
    assert (await home.starter("up")).code == 0
    home.script(
        {"when": {"task": "list"}, "then": {"answer": json.dumps({"items": ["canary secret zq7", "canaryotherzq7"]})}},
        {"then": {"answer": "canaryanswerzq7"}},
    )
    assert (await home.starter("submit", str(listed), "--id", "listed")).code == 0
    waiting: list[str] = []
    while len(waiting) < 2:
        document = json.loads((await home.starter("status", "listed", "--json")).stdout)
        waiting = [task["id"] for task in document["tasks"] if task["status"] == "WAITING"]
    assert waiting == ["t[1]", "t[2]"]

    asked = (await home.starter("status", "listed", "t[1]")).stdout
    while_asked = [await home.starter(*words) for words in (("status", "listed"), ("events", "listed", "--json"))]
    answers = [await home.starter(verb, "listed", task) for verb, task in (("approve", "t[1]"), ("reject", "t[2]"))]
    assert (await home.starter("result", "listed", "--wait")).code == 3  # degraded: one is rejected
    told = [
        await home.starter(*words, "listed", *more)
        for words, more in ((("events",), ["--json"]), (("audit", "show"), ["--json"]), (("audit", "export"), []))
    ]
    program = """
import asyncio, sys
from pathlib import Path
from runtime import connect, leave, load_settings

async def main(home):
    client = await connect(load_settings(Path(home)))
    ids = set()
    while not {"listed", "listed/list", "listed/t[1]"} <= ids:  # the list may be a moment behind
        ids = {found.id async for found in client.list_workflows()}
    async for found in client.list_workflows():
        print(found.id, found.typed_search_attributes, await found.memo())

asyncio.run(main(sys.argv[1]))
leave(0)
"""
    told.append(await run([sys.executable, "-c", program, str(home.folder)], {"PYTHONPATH": str(ROOT)}))

    assert "This task waits for your approval: May canary secret zq7 go?" in asked
    assert [answer.code for answer in answers] == [0, 0]
    assert [one.code for one in told] == [0] * 4, told
    for one in *while_asked, *answers, *told:
        assert "t[1]" in one.stdout + one.stderr or "t[2]" in one.stdout + one.stderr
        assert "zq7" not in one.stdout + one.stderr
    assert "May (item) go?" in while_asked[0].stdout
    having = {name for name, content in files_of(home.folder).items() if b"zq7" in content}
    assert {name.split("/", 2)[1] for name in having if not name.startswith("temporal.db")} == {"artifacts"}, having


async def test_a_wrong_or_missing_key_is_one_sentence(home: Home, tmp_path: Path) -> None:
    """Of every command, and of a worker, which takes no task."""
    key, other = fresh_key(), fresh_key()
    asked = tmp_path / "asked.yaml"
    asked.write_text(ASKED)
    assert (await home.starter("submit", str(asked), "--id", "asked", **{KEY: key})).code == 0

    none: dict[str, str] = {}
    wrong, nonsense = {KEY: other}, {KEY: "nonsense"}
    for environment, words in (
        (none, ("submit", str(asked))),
        (none, ("doctor",)),
        (wrong, ("status", "asked")),
        (nonsense, ("list",)),
    ):
        told = await home.starter(*words, **environment)
        assert told.code == 1, (words, told.stdout)
        assert "Traceback" not in told.stderr + told.stdout
        assert "key" in told.stderr + told.stdout
        assert key not in told.stderr + told.stdout
    for environment in none, wrong:
        worker = await home.run_worker(**environment)
        assert worker.code == 1
        assert len(worker.stderr.strip().splitlines()) == 1, worker.stderr


async def test_neither_server_nor_simulator_has_the_key(home: Home) -> None:
    """S23: who does not need it does not get it. It is on no command line."""
    key = fresh_key()
    assert (await home.starter("up", **{KEY: key})).code == 0

    having = {}
    for lock in (home.folder / "services").glob("*.lock"):
        if (pid := lock.read_text().strip()).isdecimal():
            having[lock.stem] = key.encode() in Path(f"/proc/{pid}/environ").read_bytes()
            assert key.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()

    assert {name for name, has in having.items() if has} == {"keeper-simulated", "worker-simulated"}
    assert {"server", "simulator"} <= having.keys()


async def test_what_carries_no_cipher_carries_no_words(home: Home, tmp_path: Path) -> None:
    """Ids, search attributes, types of failures and of workflows: a plan's name and task ids, and nothing else."""
    key = fresh_key()
    plan = write_plan(tmp_path)
    assert (await home.starter("up", **{KEY: key})).code == 0
    home.script(*RULES)
    await home.starter("run", str(plan), "--id", "canaries", **{KEY: key})
    program = """
import asyncio, sys
from pathlib import Path
from runtime import connect, leave, load_settings

async def main(home):
    client = await connect(load_settings(Path(home)))
    ours = "WorkflowId STARTS_WITH 'canaries'"
    listed = {}
    while "canaries/flaky" not in listed or "RUNNING" in listed.values():  # the list may be a moment behind
        listed = {found.id: found.status.name async for found in client.list_workflows(ours)}
    async for found in client.list_workflows():
        history = await client.get_workflow_handle(found.id, run_id=found.run_id).fetch_history()
        leaks = [event.event_id for event in history.events if b"zq7" in event.SerializeToString()]
        sealed = any(b"binary/encrypted" in event.SerializeToString() for event in history.events)
        print(found.id, found.workflow_type, found.typed_search_attributes, "leaks", leaks, "sealed", sealed)

asyncio.run(main(sys.argv[1]))
leave(0)
"""
    told = await run([sys.executable, "-c", program, str(home.folder)], {"PYTHONPATH": str(ROOT)})

    assert told.code == 0, told.stderr
    assert "TaskWorkflow" in told.stdout
    assert "canaries/flaky" in told.stdout
    assert "zq7" not in told.stdout
    ours = [line for line in told.stdout.splitlines() if line.startswith("canaries")]
    assert len(ours) > 5
    assert all("leaks [] sealed True" in line for line in ours), told.stdout
