"""Traces and metrics as a collector gets them from real processes; and runs that do not depend on either."""

from __future__ import annotations

import gzip
import json
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

import pytest
from canaries import CANARIES, RULES, found_in, write_plan
from conftest import Bench
from otlp import Collector, Span
from processes import BARE, Home, home_at
from processes import run as finished

from footprint import footprint
from runtime import ROOT
from telemetry.variables import NotSpoken, Signal, asked_for

QUICK = {"OTEL_BSP_SCHEDULE_DELAY": "100", "OTEL_METRIC_EXPORT_INTERVAL": "300"}

PATIENT = f"{ROOT / 'tests' / 'patient'}:{ROOT}"
"""With a sitecustomize.py: a process waits longer than two seconds for its last spans to leave."""

PATH_TO_A_CALL = [
    "submit",
    "StartWorkflow:SupervisorWorkflow",
    "RunWorkflow:SupervisorWorkflow",
    "StartChildWorkflow:TaskWorkflow",
    "RunWorkflow:TaskWorkflow",
    "StartActivity:run_agent",
    "RunActivity:run_agent",
]

ONE = "tasks: [{id: only, agent: writer, prompt: Go.}]"
THREE = """
max_concurrency: 2
defaults: {agent: writer}
tasks:
  - {id: quick, prompt: Go.}
  - {id: slow, prompt: Think.}
  - {id: last, prompt: Go on., needs: [quick, slow]}
"""
SLOW = {"when": {"task": "slow", "nth": 1}, "then": {"ttft": 8}}


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[Home]:
    async with home_at(tmp_path / "home") as home:
        yield home


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as collector:
        yield collector


def exporting_to(collector: Collector, **more: str) -> dict[str, str]:
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "PYTHONPATH": PATIENT, **QUICK, **more}


def calls(collector: Collector) -> list[Span]:
    return [span for span in collector.spans if span.name.startswith("chat ")]


def attempts(spans: list[Span]) -> Counter[tuple[str, int]]:
    return Counter((span.attributes["nightcrew.task"], span.attributes["nightcrew.attempt"]) for span in spans)


async def test_one_trace_leads_from_the_submit_to_every_call(home: Home, collector: Collector, tmp_path: Path) -> None:
    """One span for each attempt, parents without a hole, and no word of a prompt, an answer, an error or a key."""
    home.script(*RULES)
    environment = exporting_to(collector, OTEL_EXPORTER_OTLP_COMPRESSION="gzip", ANTHROPIC_API_KEY=CANARIES["key"])
    content = {"ANTHROPIC_BASE_URL": home.simulator, "ANTHROPIC_OPEN_TELEMETRY_TRACES_CONTENT_MODE": "content"}

    done = await home.starter("run", str(write_plan(tmp_path)), "--json", **environment, **content)

    asked = calls(collector)
    once = {(task, 1): 1 for task in ("declined", "cut", "garbled", "last")}
    assert attempts(asked) == {("flaky", 1): 1, ("flaky", 2): 1, ("flaky", 3): 1, ("walled", 1): 2, **once}
    (submit,) = collector.named("submit")
    assert (submit.service, submit.kind, submit.parent) == ("nightcrew-starter", "client", None)
    assert submit.attributes == {"nightcrew.run": json.loads(done.stdout)["run"]}
    for span in asked:
        assert (span.trace, span.kind, span.service) == (submit.trace, "client", "nightcrew-worker")
        assert collector.path_to(span) == [*PATH_TO_A_CALL, span.name]
        assert span.attributes["nightcrew.run"] == json.loads(done.stdout)["run"]
    assert {span.name for span in collector.spans if span.trace != submit.trace} <= {
        "QueryWorkflow:view",
        "HandleQuery:view",
    }
    told = {(span.id, span.name, span.parent) for span in collector.spans}  # a step that was repeated, again as it was
    assert len({span.id for span in collector.spans}) == len(told)
    assert found_in(collector.received) == []
    assert b"(status" not in collector.received  # of our own errors, too, only the types are exported


async def test_a_call_is_described_by_the_conventions(home: Home, collector: Collector, tmp_path: Path) -> None:
    """What is not due yet leaves at the end of each process."""
    environment = exporting_to(collector, OTEL_BSP_SCHEDULE_DELAY="600000")
    home.script({"when": {"nth": 1}, "then": {"fault": "overloaded"}}, {"then": {"answer": "Well.", "cache_read": 7}})
    (tmp_path / "plan.yaml").write_text(ONE, "utf-8")

    done = await home.starter("run", str(tmp_path / "plan.yaml"), "--json", **environment)

    run = json.loads(done.stdout)["run"]
    failed, answered = calls(collector)
    port = int(home.simulator.rpartition(":")[2])
    known = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "anthropic",
        "gen_ai.request.model": "claude-sonnet-5-5",
        "gen_ai.request.max_tokens": 1024,
        "server.address": "127.0.0.1",
        "server.port": port,
        "nightcrew.run": run,
        "nightcrew.task": "only",
        "nightcrew.reused": False,
    }
    assert failed.attributes == {**known, "nightcrew.attempt": 1, "error.type": "Overloaded"}
    assert failed.failed
    response_id = answered.attributes.pop("gen_ai.response.id")
    assert response_id.startswith("msg_")
    tokens = json.loads(done.stdout)["tokens"]
    assert answered.attributes == {
        **known,
        "nightcrew.attempt": 2,
        "gen_ai.response.model": "claude-sonnet-5-5",
        "gen_ai.response.finish_reasons": ["end_turn"],
        "gen_ai.usage.input_tokens": tokens["input"] + 7,
        "gen_ai.usage.output_tokens": tokens["output"],
        "gen_ai.usage.cache_read.input_tokens": 7,
        "gen_ai.usage.cache_creation.input_tokens": 0,
    }
    assert not answered.failed
    first, second = collector.named("RunActivity:run_agent")
    assert (first.attributes["nightcrew.attempt"], first.attributes["error.type"]) == (1, "Overloaded")
    assert (second.attributes["nightcrew.attempt"], second.attributes["nightcrew.reused"]) == (2, False)
    assert {span.attributes.get("error.type") for span in collector.spans if span.failed} == {"Overloaded"}


@pytest.mark.parametrize("order", [signal.SIGTERM, signal.SIGKILL])
async def test_the_trace_goes_on_with_another_worker_and_another_history(
    home: Home, collector: Collector, order: signal.Signals
) -> None:
    """Through continue-as-new, the attachment to tasks in flight, and a worker that is stopped or killed."""
    environment = exporting_to(collector)
    home.script(SLOW)
    async with home.worker(**environment) as first:
        run = await home.submit(THREE, environment, continue_after=1)
        await first.says("run_continues")
        await first.end(order)
    async with home.worker(**environment):
        report = await home.ended(run)

    assert report["status"] == "COMPLETED"
    spans = [span for span in collector.spans if not span.name.startswith("HandleQuery")]  # of whoever looks meanwhile
    assert len({span.trace for span in spans}) == 1
    # a step that the first worker could not hand in any more is told again by the second, as what it was
    told = {(span.id, span.name, span.parent) for span in collector.spans}
    assert len({span.id for span in collector.spans}) == len(told)
    assert len(collector.named("RunWorkflow:SupervisorWorkflow")) >= 2
    assert collector.named("RunActivity:await_tasks")
    if order is signal.SIGTERM:  # who is killed takes its last spans along
        assert attempts(calls(collector)).keys() == {("quick", 1), ("slow", 1), ("last", 1)}
        for span in spans:
            assert collector.path_to(span)[0] == "submit"


@pytest.mark.parametrize("traced", [(False, True), (True, False)])
async def test_a_run_goes_on_when_the_next_worker_traces_and_the_last_did_not(
    home: Home, collector: Collector, traced: tuple[bool, bool]
) -> None:
    """And the other way round: tracing changes no command of a workflow."""
    before, after = (exporting_to(collector) if on else {} for on in traced)
    home.script(SLOW)
    async with home.worker(**before) as first:
        run = await home.submit(THREE, before)
        await home.until_called("slow")
        await first.end(signal.SIGKILL)
    async with home.worker(**after) as second:
        report = await home.ended(run)

    assert report["status"] == "COMPLETED"
    assert [task["status"] for task in report["tasks"]] == ["SUCCEEDED"] * 3
    errors = [line for line in second.lines() if line["level"] == "error"]
    # but for a step that Temporal breaks off after its 2 s on a busy machine
    assert not [line for line in errors if not line.get("exception", "").startswith("_DeadlockError")]
    told = {span.attributes["nightcrew.task"] for span in calls(collector)}
    assert told >= {"last"} if traced[1] else "last" not in told


REPLAY = """
import asyncio, gzip, json, sys
from pathlib import Path
from opentelemetry import trace
from temporalio.client import WorkflowHistory
from temporalio.contrib.opentelemetry import OpenTelemetryPlugin, create_tracer_provider
from temporalio.worker import Replayer
from payloads import DATA_CONVERTER
from telemetry.witness import Witness
from versioning import unversioned_runner
from workflows.quota import QuotaBank
from workflows.supervisor import SupervisorWorkflow
from workflows.task import TaskWorkflow

async def replay(folders):
    trace.set_tracer_provider(create_tracer_provider())
    replayer = Replayer(
        workflows=[SupervisorWorkflow, TaskWorkflow, QuotaBank], data_converter=DATA_CONVERTER,
        workflow_runner=unversioned_runner(), interceptors=[Witness()],
        plugins=[OpenTelemetryPlugin(add_temporal_spans=True)],
        debug_mode=True,  # a replay that is slow has not failed
    )
    histories = [file for folder in folders for file in sorted(Path(folder).rglob("*.json.gz"))]
    for file in histories:
        content = json.loads(gzip.decompress(file.read_bytes()))
        await replayer.replay_workflow(WorkflowHistory.from_json(content["id"], content["history"]))
    print(len(histories))

asyncio.run(replay(sys.argv[1:]))
"""


async def test_histories_without_traces_replay_with_the_plugin(crew: Bench, tmp_path: Path) -> None:
    """Those of a run that has just ended, and those that are kept."""
    run = await crew.start(THREE.replace("writer", "hand"), continue_after=1)
    await run.report()
    folder = tmp_path / "histories"
    folder.mkdir()
    await run.closed()
    chain = await run.chain()
    children = [crew.temporal.get_workflow_handle(f"{run.id}/{task}") for task in ("quick", "slow", "last")]
    for number, handle in enumerate([*chain, *children]):
        content = {"id": handle.id, "history": (await handle.fetch_history()).to_json_dict()}
        (folder / f"{number}.json.gz").write_bytes(gzip.compress(json.dumps(content).encode()))

    done = await finished([sys.executable, "-c", REPLAY, str(folder), str(ROOT / "tests" / "histories")])

    assert done.code == 0, done.stderr
    assert int(done.stdout) >= len(chain) + 3 >= 5


async def test_metrics_tell_of_worker_server_and_calls(home: Home, collector: Collector) -> None:
    home.script({"when": {"task": "slow"}, "then": {"fault": "api_error"}}, {"then": {"answer": "Well."}})
    async with home.worker(**exporting_to(collector), OTEL_SERVICE_NAME="crew", OTEL_TRACES_EXPORTER="none"):
        run = await home.submit(
            "tasks: [{id: slow, agent: writer, prompt: Go., attempts: 1}, {id: b, agent: writer, prompt: Go.}]"
        )
        tokens = (await home.ended(run))["tokens"]

    def latest(name: str, key: str, value: str) -> float:
        return [point.value for point in collector.points if point.name == name and point.attributes.get(key) == value][
            -1
        ]

    assert collector.spans == []
    assert {point.service for point in collector.points} == {"crew"}
    for process in "worker", "server":
        assert latest("process.cpu.time", "nightcrew.process", process) > 0
        assert latest("process.memory.usage", "nightcrew.process", process) > 10_000_000
    for kind in "input", "output":
        assert latest("gen_ai.client.token.usage", "gen_ai.token.type", kind) == tokens[kind]
    assert latest("gen_ai.client.operation.duration", "error.type", "ProviderFault") > 0
    assert latest("nightcrew.attempts.failed", "error.type", "ProviderFault") == 1
    at_work = [point.value for point in collector.points if point.name == "nightcrew.agents.at_work"]
    assert at_work[-1] == 0
    assert latest("temporal_workflow_completed", "workflow_type", "SupervisorWorkflow") == 1
    labels = {key for point in collector.points for key in point.attributes}
    assert not labels & {"nightcrew.run", "nightcrew.task"}  # they would be a new series each


async def test_metrics_tell_of_the_quota(home: Home, collector: Collector) -> None:
    """What calls have waited, what of a limit is used, and what was refused in spite of it."""
    home.script({"when": {"task": "first", "nth": 1}, "then": {"fault": "rate_limit", "retry_after": 1}})
    limits = {"NIGHTCREW_LIMITS": '{"default": {"requests": 100}}', "OTEL_TRACES_EXPORTER": "none"}
    plan = "tasks: [{id: first, agent: writer, prompt: Go.}, {id: then, agent: writer, prompt: Go., needs: [first]}]"

    async with home.worker(**exporting_to(collector), **limits):
        run = await home.submit(plan)
        assert (await home.ended(run))["status"] == "COMPLETED"

    points = {point.name: point for point in collector.points if point.name.startswith("nightcrew.quota.")}
    assert {point.attributes.get("nightcrew.lane", "sonnet-5") for point in points.values()} == {"sonnet-5"}
    assert points["nightcrew.quota.wait"].value > 0
    assert points["nightcrew.quota.used"].attributes["nightcrew.limit"] == "requests"
    assert 0 < points["nightcrew.quota.used"].value <= 0.05  # a draw that was not answered in time may be lost
    refused = points["nightcrew.quota.refusals"]
    assert (refused.value, refused.attributes["error.type"]) == (1, "RateLimited")


@pytest.fixture(params=["refuses", "hangs"])
def dead_end(request: pytest.FixtureRequest) -> Iterator[str]:
    """A collector that is not there, or that takes connections and never answers."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        if request.param == "hangs":
            listening.listen(100)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


async def test_a_collector_that_does_not_answer_changes_nothing(home: Home, tmp_path: Path, dead_end: str) -> None:
    """The exit code, the terminal and the run are as without it; the worker's log has a line about it, not many."""
    (tmp_path / "plan.yaml").write_text(THREE, "utf-8")
    environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": dead_end, "OTEL_EXPORTER_OTLP_TIMEOUT": "1", **QUICK}

    done = await home.starter("run", str(tmp_path / "plan.yaml"), "--json", **environment)

    assert done.code == 0
    assert json.loads(done.stdout)["status"] == "COMPLETED"
    # the last two only where the machine is so busy that the server does not answer for a while
    said = ("Estimate", "RUNNING", "COMPLETED", "Temporal does not answer.", "The run goes on.")
    assert all(any(word in line for word in said) for line in done.stderr.splitlines()), done.stderr
    complaints = [line for line in home.lines() if line["event"] == "telemetry_trouble"]
    assert len(complaints) == 1
    assert not [line for line in home.lines() if line.get("logger", "").startswith(("opentelemetry", "urllib3"))]


async def test_a_protocol_that_we_do_not_speak_is_said_and_changes_nothing(
    home: Home, collector: Collector, tmp_path: Path
) -> None:
    (tmp_path / "plan.yaml").write_text(ONE, "utf-8")
    environment = exporting_to(collector, OTEL_EXPORTER_OTLP_PROTOCOL="grpc")

    done = await home.starter("run", str(tmp_path / "plan.yaml"), **environment)

    assert done.code == 0
    assert "OTEL_EXPORTER_OTLP_PROTOCOL says 'grpc', and we speak 'http/protobuf'" in done.stderr
    refused = [line["why"] for line in home.lines() if line["event"] == "telemetry_refused"]
    assert [why.partition(":")[0] for why in refused] == ["No traces are exported", "No metrics are exported"]
    assert collector.received == b""


BASE = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}


@pytest.mark.parametrize(
    ("variables", "traces", "metrics"),
    [
        ({}, False, False),
        (BASE, True, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, False, False),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c/v1/traces"}, True, False),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://c/v1/metrics"}, False, True),
        (BASE | {"OTEL_SDK_DISABLED": "True"}, False, False),
        (BASE | {"OTEL_SDK_DISABLED": "false"}, True, True),
        (BASE | {"OTEL_TRACES_EXPORTER": "none"}, False, True),
        (BASE | {"OTEL_METRICS_EXPORTER": "none"}, True, False),
        (BASE | {"OTEL_TRACES_EXPORTER": "console, otlp"}, True, True),
        (BASE | {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, True, True),
        (BASE | {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_SDK_DISABLED": "true"}, False, False),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, False, False),
    ],
)
def test_the_standard_variables_decide(variables: Mapping[str, str], traces: bool, metrics: bool) -> None:
    assert (asked_for(Signal.TRACES, variables), asked_for(Signal.METRICS, variables)) == (traces, metrics)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("OTEL_TRACES_EXPORTER", "zipkin"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "grpc"),
    ],
)
def test_what_we_do_not_speak_is_named(variable: str, value: str) -> None:
    with pytest.raises(NotSpoken, match=rf"No traces are exported: OTEL_\w+ \w+ '{value}'"):
        asked_for(Signal.TRACES, {**BASE, variable: value})


@pytest.mark.parametrize(
    ("program", "unwanted"),
    [
        ("import terminal.following, client; exporting.start('x'); exporting.plugins()", "opentelemetry"),
        ("import worker; worker.start_telemetry(worker.load_settings(None))", "opentelemetry.sdk"),
    ],
)
def test_without_the_variables_nothing_of_it_is_loaded(program: str, unwanted: str) -> None:
    """No import, no thread, no plugin."""
    ending = f"assert {unwanted!r} not in sys.modules; assert threading.active_count() == 1; leave(0)"
    code = f"import sys, threading; from runtime import leave; from telemetry import exporting; {program}; {ending}"

    subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=BARE, check=True)


def test_variables_that_cannot_be_followed_are_said() -> None:
    """Whatever is wrong with telemetry, the work goes on."""
    code = "from telemetry import exporting; print(*exporting.start('x', processes={}), exporting.plugins(), sep='\\n')"
    environment = {**BARE, **BASE, "OTEL_BSP_MAX_QUEUE_SIZE": "-1", "OTEL_METRICS_EXPORTER": "none"}

    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, check=True, capture_output=True, text=True
    )

    problem, plugins = done.stdout.splitlines()
    assert problem.startswith("No traces are exported: the OTEL_* variables cannot be followed (max_queue_size")
    assert plugins == "[]"


def test_a_footprint_is_of_a_process_that_is_there() -> None:
    mine = footprint(os.getpid())

    assert mine is not None
    assert mine.cpu_seconds > 0
    assert mine.rss_bytes > 1_000_000
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    assert footprint(gone.pid) is None
