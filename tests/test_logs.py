"""What a worker logs: names and figures on every line, and never a word of a prompt, an answer or a key."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from canaries import CANARIES, RULES, found_in, write_plan
from processes import BARE, Home, home_at

from runtime import ROOT, Mode, queue_of

OF_THE_PROCESS = ("worker_", "telemetry_", "board_", "bank_")
"""What a worker says of itself, and on a busy machine of those whom it asks for all its runs."""

INTERRUPTED = ("Failed handling activation", "Failing workflow task")
"""What the SDK and its core say of a step that they interrupt after 2 s: the first before any names are bound."""

LOUD = """
import logging
for name in ("anthropic", "httpx", "httpx2", "httpcore", "httpcore2", "temporalio", "temporalio.workflow", "asyncio"):
    logging.getLogger(name).setLevel(logging.DEBUG)
"""
"""As sitecustomize.py: every library at the level at which it tells most."""

SLOW_THEN_GO_ON = """
tasks:
  - {id: slow, agent: writer, prompt: Think.}
  - {id: last, agent: writer, prompt: Go on., needs: [slow]}
"""


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[Home]:
    async with home_at(tmp_path / "home") as home:
        yield home


def about_runs(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What is told of runs, without what a machine that stands still for seconds adds to it.

    A step that is interrupted is done again, and was no replay: a start is told again.
    """
    interrupted = INTERRUPTED if any("_DeadlockError" in line.get("exception", "") for line in lines) else ()
    told: list[dict[str, Any]] = []
    for line in lines:
        of_others = line["event"].startswith((*OF_THE_PROCESS, "gate_unanswered"))
        again = line["event"] == "run_started" and events(told, event="run_started", run=line["run"])
        if not (of_others or again or any(words in line["event"] for words in interrupted)):
            told.append(line)
    return told


def events(lines: list[dict[str, Any]], **known: object) -> list[str]:
    return [line["event"] for line in lines if known.items() <= line.items()]


async def test_every_line_about_a_run_has_run_task_and_attempt(home: Home, tmp_path: Path) -> None:
    home.script(*RULES)

    done = await home.starter("run", str(write_plan(tmp_path)), "--simulate", "--json")

    run, lines = json.loads(done.stdout)["run"], home.lines()

    assert lines[0]["event"] == "worker_started"
    of_the_worker = [line["event"] for line in lines if line["event"].startswith("worker_")]
    assert of_the_worker[-2:] == ["worker_draining", "worker_stopped"]
    assert lines[-1]["event"] == "worker_stopped"
    told = about_runs(lines)
    assert [line for line in told if not {"run", "task", "attempt"} <= line.keys()] == []
    assert {line["run"] for line in told} == {run}
    # whoever comes to the door while the wall of `walled` stands is parked too
    told = [line for line in told if line["event"] != "task_parked" or line["task"] == "walled"]
    assert events(told, task="flaky", attempt=1) == ["attempt_failed"]
    assert events(told, task="flaky", attempt=2) == ["attempt_failed"]
    assert events(told, task="flaky", attempt=3) == ["task_answered"]
    assert events(told, task="walled") == ["task_parked", "task_answered"]
    assert events(told, task="declined") == ["attempt_failed"]
    assert events(told, task=None) == ["run_started", "run_ended"]
    assert [line["status"] for line in told if line["event"] == "run_ended"] == ["PARTIAL"]
    failed = {(line["task"], line["error"]) for line in told if line["event"] == "attempt_failed"}
    assert failed == {
        ("flaky", "Overloaded"),
        ("flaky", "ProviderFault"),
        ("declined", "RequestRefused"),
        ("cut", "AnswerCut"),
        ("garbled", "Garbled"),
    }
    answered = next(line for line in told if line["event"] == "task_answered")
    assert answered["input"] > 0
    assert answered["seconds"] > 0
    assert answered["reused"] is False


@pytest.mark.parametrize("mode", Mode)
async def test_no_word_of_anybody_is_in_any_log(home: Home, tmp_path: Path, mode: Mode) -> None:
    """Not in those of worker, server and simulator, with failing calls, echoing errors, and libraries at DEBUG."""
    (tmp_path / "loud").mkdir()
    (tmp_path / "loud" / "sitecustomize.py").write_text(LOUD, "utf-8")
    home.script(*RULES)
    environment = {
        "PYTHONPATH": str(tmp_path / "loud"),
        "ANTHROPIC_API_KEY": CANARIES["key"],
        "ANTHROPIC_BASE_URL": home.simulator,
        "ANTHROPIC_LOG": "debug",
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{CANARIES['key']}:{CANARIES['key']}@127.0.0.1:1/{CANARIES['key']}",
        "OTEL_EXPORTER_OTLP_HEADERS": f"authorization={CANARIES['header']},{CANARIES['header']}",
        "OTEL_BSP_SCHEDULE_DELAY": "100",
    }
    words = ("run", str(write_plan(tmp_path)), "--param", f"word={CANARIES['param']}", "--json")
    simulate = ["--simulate"] if mode is Mode.SIMULATED else []

    done = await home.starter(*words, *simulate, **environment)

    report = json.loads(done.stdout)
    assert (report["status"], report["simulated"]) == ("PARTIAL", mode is Mode.SIMULATED)
    assert found_in(json.dumps(report).encode()) != []  # the answers came through; it is the logs that have no words
    files = [*(home.folder / "logs").iterdir(), home.folder / "simulator.jsonl"]
    logs = {file.name: file.read_bytes() for file in files}
    assert {f"worker-{mode}.log", "server.log", "simulator.log"} <= logs.keys()
    assert b"attempt_failed" in logs[f"worker-{mode}.log"]
    assert b"telemetry_trouble" in logs[f"worker-{mode}.log"]
    assert {name: found for name, text in logs.items() if (found := found_in(text))} == {}
    assert found_in(done.stderr.encode()) == []


async def test_a_workflow_says_nothing_while_it_is_replayed(home: Home) -> None:
    """A second worker replays what the first one has told of already."""
    home.script({"when": {"task": "slow", "nth": 1}, "then": {"ttft": 8}})
    async with home.worker() as first:
        run = await home.submit(SLOW_THEN_GO_ON)
        await home.until_called("slow")
        await first.end(signal.SIGKILL)
    async with home.worker() as second:
        assert (await home.ended(run))["status"] == "COMPLETED"
        await second.says("run_ended")

    assert events(about_runs(first.lines()), run=run) == ["run_started"]
    assert events(about_runs(second.lines()), run=run, task=None) == ["run_ended"]


LIBRARIES = """
import logging
import sys

from activities.claude import Claude

complete = Claude.complete


async def complete_loudly(self, brief, **options):
    logging.getLogger("httpx2").warning("the connection is slow")
    return await complete(self, brief, **options)


async def forget(self, request):
    raise KeyError("canaryerrorzq7")


Claude.complete = complete_loudly
import worker
from activities.records import RecordActivities

RecordActivities._close_run = forget
sys.exit(worker.main())
"""


async def lines_until(home: Home, script: str, folder: Path, event: str) -> list[dict[str, Any]]:
    """What a doctored worker logs, up to a line with these words."""
    file = folder / "doctored.py"
    file.write_text(script, "utf-8")
    worker = await asyncio.create_subprocess_exec(
        *(sys.executable, str(file), "--home", str(home.folder), "--queue", queue_of(Mode.SIMULATED)),
        cwd=ROOT,
        env={**BARE, "PYTHONPATH": str(ROOT)},
        stderr=asyncio.subprocess.PIPE,
    )
    assert worker.stderr is not None
    lines: list[dict[str, Any]] = []
    try:
        while not lines or event not in lines[-1]["event"]:
            lines.append(json.loads(await worker.stderr.readline()))
    finally:
        worker.kill()
        await worker.communicate()
    return lines


async def test_lines_of_libraries_and_bugs_in_an_activity_carry_its_names(home: Home, tmp_path: Path) -> None:
    """A bug is told by its type and its place; its message may be anybody's words."""
    run = await home.submit("tasks: [{id: only, agent: writer, prompt: Go.}]")

    lines = await lines_until(home, LIBRARIES, tmp_path, "attempt_failed")

    slow = next(line for line in lines if line["event"] == "the connection is slow")
    assert (slow["run"], slow["task"], slow["attempt"], slow["logger"]) == (run, "only", 1, "httpx2")
    assert (lines[-1]["run"], lines[-1]["error"], lines[-1]["activity"]) == (run, "KeyError", "close_run")
    assert "KeyError < " in lines[-1]["exception"]
    assert "activities/records.py:" in lines[-1]["exception"]
    assert str(ROOT) not in json.dumps(lines)
    assert found_in(json.dumps(lines).encode()) == []


OTHERWISE = """
import sys
from dataclasses import replace

from domain.course import Course

launch = Course.launch


def launch_otherwise(self, progress, now):
    step = launch(self, progress, now)
    return replace(step, starts=step.starts[::-1])


Course.launch = launch_otherwise
import worker

sys.exit(worker.main())
"""


async def test_a_line_of_the_core_about_a_stalled_run_has_its_name(home: Home, tmp_path: Path) -> None:
    """It knows Temporal's id of the workflow alone."""
    home.script({"then": {"ttft": 60}})
    async with home.worker() as first:
        run = await home.submit("tasks: [{id: a, agent: writer, prompt: Go.}, {id: b, agent: writer, prompt: Go.}]")
        await home.until_called("b")
        await first.end(signal.SIGKILL)

    lines = await lines_until(home, OTHERWISE, tmp_path, "Failing workflow task")

    assert (lines[-1]["logger"], lines[-1]["run"], lines[-1]["task"]) == ("temporalio.core", run, None)
    assert str(ROOT) not in json.dumps(lines)


FAULTY = """
from simulator.__main__ import main
from simulator.provider import Provider


def judge(self, request, entry, now):
    raise ValueError(request.body.decode())


Provider.judge = judge
main()
"""


async def test_a_fault_of_the_simulator_is_told_without_words() -> None:
    """What was asked is in its hands, too."""
    simulator = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", FAULTY),
        cwd=ROOT,
        env=BARE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert simulator.stdout is not None
    assert simulator.stderr is not None
    port = json.loads(await simulator.stdout.readline())["port"]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = CANARIES["prompt"].encode()
    head = b"POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body)
    writer.write(head + body)
    assert await reader.read() == b""
    writer.close()

    said = await simulator.stderr.readline()

    simulator.terminate()
    rest = await simulator.stderr.read()
    assert await simulator.wait() == 0
    assert json.loads(said) == {"event": "simulator_failed", "error": "ValueError"}
    assert found_in(said + rest) == []
