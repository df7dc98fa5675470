"""The background processes of a home: one of each, found by anyone, gone when told to go."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import WorkflowExecutionStatus

import embedded
import ports
import service_kinds
import services
from embedded import all_services, down, find_server, prepare_home, simulator_url, up, web_ui_url
from ports import LOOPBACK, OURS, choose_ports
from runtime import ROOT, CannotDo, Mode, Settings, connect, load_settings
from services import Service
from temporal_server import Server


@pytest.fixture(autouse=True, scope="module")
def bare_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing of the person who runs the tests can send them to another Temporal."""
    with pytest.MonkeyPatch.context() as patch:
        for name in os.environ:
            if name.startswith(("TEMPORAL_", "NIGHTCREW_", "ANTHROPIC_")):
                patch.delenv(name)
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        yield


@pytest.fixture
async def settings(tmp_path: Path) -> AsyncIterator[Settings]:
    """A home of this test alone; whatever it started is stopped."""
    settings = load_settings(tmp_path / "home")
    yield settings
    await down(settings)


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Settings]:
    """A home with a server, for tests that only look."""
    settings = load_settings(tmp_path_factory.mktemp("shared") / "home")
    await up(settings, worker=False, simulator=False, keep=False)
    yield settings
    await down(settings)


class Stub(Service):
    """A service in a few lines of Python."""

    announces_on_stdout = True
    stop_seconds = 0.5

    def __init__(self, home: Path, code: str) -> None:
        super().__init__(home, "stub")
        self.code = code

    def command(self) -> list[str]:
        return [sys.executable, "-uc", f"import signal, sys, time\n{self.code}\ntime.sleep(60)"]

    def environment(self) -> dict[str, str]:
        return dict(os.environ)

    async def ready(self) -> dict[str, Any] | None:
        return self.announced()


READY = "print('{\"a\": 1}')"


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[Path]:
    """A home for stubs."""
    prepare_home(tmp_path)
    yield tmp_path
    await Stub(tmp_path, "").stop()


# Any service


async def test_a_service_is_started_found_and_stopped(home: Path) -> None:
    assert await Stub(home, READY).start()

    assert not await Stub(home, READY).start()
    state = Stub(home, READY).find()
    assert state is not None
    assert state.details == {"a": 1}
    assert os.getsid(state.pid) == state.pid
    assert await Stub(home, READY).stop()
    assert not psutil.pid_exists(state.pid)
    assert Stub(home, READY).find() is None
    assert not await Stub(home, READY).stop()


async def test_of_many_starters_one_starts_it(home: Path) -> None:
    """The others wait until it is ready."""
    started = await asyncio.gather(*(Stub(home, f"time.sleep(0.2); {READY}").start() for _ in range(8)))

    assert sorted(started) == [False] * 7 + [True]


async def test_a_starter_that_was_killed_leaves_a_service_that_others_find(home: Path) -> None:
    assert Stub(home, f"time.sleep(0.2); {READY}")._launch()

    assert not Stub(home, READY)._launch()
    assert not await Stub(home, READY).start()
    assert Stub(home, READY).find() is not None


async def test_a_service_that_does_not_listen_is_killed(home: Path) -> None:
    await Stub(home, f"signal.signal(signal.SIGTERM, signal.SIG_IGN); {READY}").start()

    assert await Stub(home, READY).stop()

    assert Stub(home, READY).find() is None


async def test_a_service_that_ends_at_its_start_shows_its_log(home: Path) -> None:
    """Without control characters: a log may hold anything."""
    with pytest.raises(CannotDo) as caught:
        await Stub(home, "sys.exit('no \x1b[31mmoon')").start()

    assert "ended at its start" in str(caught.value)
    assert str(home / "logs" / "stub.log") in str(caught.value)
    assert str(caught.value).endswith("  no [31mmoon")


async def test_a_service_that_refuses_to_begin_is_taken_at_its_word(home: Path) -> None:
    """Its sentence is all that is shown, and it does not count as ready."""
    with pytest.raises(CannotDo, match=r"^The moon is gone\.$"):
        await Stub(home, 'print(\'{"refused": "The moon is gone."}\'); sys.exit(1)').start()

    assert Stub(home, READY).find() is None


async def test_a_service_that_is_never_ready_is_stopped(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Stub, "start_seconds", 0.3)

    with pytest.raises(CannotDo, match="was not ready within"):
        await Stub(home, "").start()

    assert not Stub(home, "").is_held()


async def test_a_pid_that_now_belongs_to_somebody_else_is_left_alone(home: Path) -> None:
    bystander = await asyncio.create_subprocess_exec("/bin/sleep", "60")
    state = {"pid": bystander.pid, "started": "2026-01-01T00:00:00+00:00", "details": {}}
    (home / "services" / "stub.lock").write_text(f"{bystander.pid}\n")
    (home / "services" / "stub.json").write_text(json.dumps(state))

    assert Stub(home, READY).find() is None
    assert not await Stub(home, READY).stop()

    bystander.kill()
    assert await bystander.wait() == -signal.SIGKILL  # by us, and by nobody before


async def test_a_file_that_a_power_cut_left_half_written_is_no_obstacle(home: Path) -> None:
    (home / "services" / "stub.json").write_text('{"pid": 1')
    (home / "services" / "stub.ports.json").write_bytes(bytes(20))

    assert await Stub(home, READY).start()

    assert choose_ports(home / "services" / "stub.ports.json", ("a",))["a"] > 0


async def test_a_large_log_is_moved_away_at_the_next_launch(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "LARGE_LOG", 10)
    log = home / "logs" / "stub.log"
    log.write_text("of an earlier life")

    with pytest.raises(CannotDo) as caught:
        await Stub(home, "sys.exit('now')").start()

    assert str(caught.value).endswith(f"The last lines of {log}:\n  now")
    assert (home / "logs" / "stub.log.1").read_text() == "of an earlier life"


WITHOUT_STDIN = """
import asyncio, os, pathlib, sys
sys.path.insert(0, sys.argv[2])
from test_embedded import READY, Stub
async def main():
    os.close(0)
    await Stub(pathlib.Path(sys.argv[1]), READY).start()
asyncio.run(main())
"""


async def test_a_starter_without_standard_input_gives_the_service_its_lock(home: Path) -> None:
    """The lock's descriptor could be 0 there, which in the service is /dev/null."""
    command = [sys.executable, "-c", WITHOUT_STDIN, str(home), str(ROOT / "tests")]
    await asyncio.to_thread(subprocess.run, command, cwd=ROOT, check=True, stderr=subprocess.DEVNULL)

    assert Stub(home, READY).find() is not None


async def test_only_the_process_that_was_meant_is_stopped(home: Path) -> None:
    await Stub(home, READY).start()
    state = Stub(home, READY).find()
    assert state is not None

    await Stub(home, READY).stop(only=state.pid + 1)
    assert Stub(home, READY).find() == state

    await Stub(home, READY).stop(only=state.pid)
    assert Stub(home, READY).find() is None


async def test_a_service_that_has_not_told_its_pid_yet_is_stopped_all_the_same(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever gives up in the moment of a launch must neither leave the process behind nor wait for its own end."""
    monkeypatch.setattr(services, "WRITE_PID_THEN_BECOME", f"sleep 0.3; {services.WRITE_PID_THEN_BECOME}")
    monkeypatch.setattr(Stub, "stop_seconds", 30.0)
    stub = Stub(home, READY)
    assert stub._launch()
    assert stub._mine is not None
    child = services._children[stub._mine]

    assert await stub.stop(only=stub._mine)

    assert child.returncode == -signal.SIGTERM
    assert not stub.is_held()


def test_ports_are_remembered_unless_taken(tmp_path: Path) -> None:
    first = choose_ports(tmp_path / "ports.json", ("a", "b"))
    assert set(first.values()) < set(OURS), "none that Temporal's server may take for itself"
    assert choose_ports(tmp_path / "ports.json", ("a", "b")) == first

    with socket.socket() as taken:
        taken.bind((LOOPBACK, first["a"]))
        taken.listen()
        second = choose_ports(tmp_path / "ports.json", ("a", "b"))

    assert second["b"] == first["b"]
    assert second["a"] not in first.values()


def test_no_two_services_get_one_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chance may name a port twice, and so may a file of before: Temporal's server would end at its start each time."""
    (tmp_path / "ports.json").write_text(json.dumps({"a": OURS[3], "b": OURS[3]}), "utf-8")
    monkeypatch.setattr(ports, "PATIENCE", 0.0)
    monkeypatch.setattr("ports.random.sample", lambda ours, _: ours[:4])

    chosen = choose_ports(tmp_path / "ports.json", ("a", "b", "c", "d"))

    assert len({*chosen.values()}) == 4


def test_a_port_that_is_just_being_given_back_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = choose_ports(tmp_path / "ports.json", ("a",))
    with socket.socket() as dying:
        dying.bind((LOOPBACK, first["a"]))
        dying.listen()
        monkeypatch.setattr(ports, "PATIENCE", 60.0)
        monkeypatch.setattr(ports, "sleep", lambda _: dying.close())

        second = choose_ports(tmp_path / "ports.json", ("a",))

    assert second == first


# The home


def test_a_home_is_private(tmp_path: Path) -> None:
    prepare_home(tmp_path / "home")

    assert {p.stat().st_mode & 0o777 for p in [tmp_path / "home", *(tmp_path / "home").iterdir()]} == {0o700}


def test_a_folder_with_other_things_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").touch()
    tmp_path.chmod(0o755)

    prepare_home(tmp_path)

    assert tmp_path.stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "services").stat().st_mode & 0o777 == 0o700


async def test_a_home_that_cannot_be_written_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(CannotDo, match=r"cannot be used: Not a directory\. Choose another folder by --home"):
        await up(load_settings(tmp_path / "file" / "home"))


# The server


async def test_everything_a_server_leaves_is_private(server: Settings) -> None:
    files = [path for path in server.home.rglob("*") if path.is_file()]

    assert server.home / "temporal.db" in files
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}


async def test_closed_workflows_are_kept_for_a_month(server: Settings) -> None:
    client = await connect(server)

    found = await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace="default"))

    assert found.config.workflow_execution_retention_ttl.ToTimedelta() == timedelta(hours=720)


@pytest.mark.parametrize("action", ["workflows/victim/terminate", "workflows/planted"])
async def test_a_web_page_cannot_post_to_the_server(server: Settings, action: str) -> None:
    """The two calls of faults.md S1: terminate one workflow, start another."""
    port = json.loads((server.home / "services" / "server.ports.json").read_text())["http"]
    body = b'{"workflowType": {"name": "W"}, "taskQueue": {"name": "q"}}'
    headers = {"Content-Type": "text/plain", "Origin": "https://evil.example"}
    address = f"http://{LOOPBACK}:{port}/api/v1/namespaces/default/{action}"
    request = urllib.request.Request(address, data=body, headers=headers)

    with pytest.raises(urllib.error.HTTPError) as caught:
        await asyncio.to_thread(urllib.request.urlopen, request)

    with caught.value:
        assert caught.value.code == 403


async def test_the_server_listens_on_this_machine_only(server: Settings) -> None:
    state = find_server(server.home)
    assert state is not None

    listening = [c.laddr.ip for c in psutil.Process(state.pid).net_connections("inet") if c.status == "LISTEN"]

    assert set(listening) <= {"127.0.0.1", "::1"}
    assert web_ui_url(server.home) == state.web_ui
    with await asyncio.to_thread(urllib.request.urlopen, state.web_ui) as page:
        assert page.status == 200


async def test_the_environment_of_a_server_is_clean(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("TEMPORAL_ADDRESS", f"{LOOPBACK}:1")
    prepare_home(settings.home)

    assert await Server(settings.home).start()

    state = find_server(settings.home)
    assert state is not None
    names = psutil.Process(state.pid).environ()
    assert not [name for name in names if name.startswith(("ANTHROPIC_", "OTEL_", "TEMPORAL_"))]


async def test_data_and_address_survive_a_kill(settings: Settings) -> None:
    await up(settings, worker=False, simulator=False, keep=False)
    before = find_server(settings.home)
    assert before is not None
    client = await connect(settings)
    await client.start_workflow("Any", id="kept", task_queue="nobody")

    process = psutil.Process(before.pid)
    process.kill()
    process.wait(timeout=60)
    again = await up(settings, worker=False, simulator=False, keep=False)

    assert again.started == ("server",)
    after = find_server(settings.home)
    assert after is not None
    assert (after.address, after.web_ui) == (before.address, before.web_ui)
    kept = await (await connect(settings)).get_workflow_handle("kept").describe()
    assert kept.status is WorkflowExecutionStatus.RUNNING


UP = """
import asyncio, json, pathlib, sys
import embedded, runtime
settings = runtime.load_settings(pathlib.Path(sys.argv[1]))
found = asyncio.run(embedded.up(settings, worker=False, simulator=False, keep=False))
print(json.dumps([found.found, found.started, embedded.find_server(settings.home).pid]))
runtime.leave(0)
"""


async def test_two_commands_at_once_give_one_server(settings: Settings) -> None:
    """Two servers on one database would destroy it. The one that runs outlives the commands."""
    command = [sys.executable, "-c", UP, str(settings.home)]
    runs = [asyncio.to_thread(subprocess.run, command, cwd=ROOT, capture_output=True, check=True) for _ in range(2)]
    done = await asyncio.gather(*runs)

    a, b = sorted(json.loads(run.stdout) for run in done)
    assert [run.stderr for run in done] == [b"", b""]
    assert (a[:2], b[:2]) == ([[], ["server"]], [["server"], []])
    assert a[2] == b[2]
    assert not Server(settings.home)._launch()
    assert await down(settings) == ["server"]
    assert find_server(settings.home) is None
    with pytest.raises(CannotDo, match="is not up"):
        await connect(settings)


async def test_a_configured_temporal_replaces_the_server(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", f"{LOOPBACK}:1")

    home = await up(settings, worker=False, simulator=False, keep=False)

    assert (home.found, home.started) == ((), ())
    assert find_server(settings.home) is None


CORE_LOG = """
import asyncio, pathlib, sys
import psutil, temporalio.service
import embedded, runtime
runtime.configure_logs()
async def main():
    settings = runtime.load_settings(pathlib.Path(sys.argv[1]))
    await embedded.up(settings, worker=False, simulator=False, keep=False)
    client = await runtime.connect(settings)
    server = psutil.Process(embedded.find_server(settings.home).pid)
    server.kill()
    server.wait()
    try:
        await client.count_workflows()
    except temporalio.service.RPCError:
        pass
asyncio.run(main())
runtime.leave(0)
"""


async def test_the_logs_of_the_core_stay_off_stdout(settings: Settings) -> None:
    """By default its warnings, here about a server that is gone, are printed among the results."""
    command = [sys.executable, "-c", CORE_LOG, str(settings.home)]
    done = await asyncio.to_thread(subprocess.run, command, cwd=ROOT, capture_output=True, check=True)

    assert done.stdout == b""
    assert b"retried 5 times" in done.stderr


LEAVE = """
import asyncio, pathlib, sys
import runtime
async def main():
    client = await runtime.connect(runtime.load_settings(pathlib.Path(sys.argv[1])))
    await client.count_workflows()
asyncio.run(main())
print("said")
runtime.leave(3)
"""


async def test_a_command_ends_with_its_own_exit_code(server: Settings) -> None:
    """Without `leave` about one in four ends by a signal."""
    command = [sys.executable, "-c", LEAVE, str(server.home)]
    two_at_once = asyncio.Semaphore(2)  # each must connect within its time

    async def end() -> tuple[int, bytes]:
        async with two_at_once:
            run = await asyncio.to_thread(subprocess.run, command, cwd=ROOT, capture_output=True, check=False)
        return run.returncode, run.stdout

    ends = await asyncio.gather(*(end() for _ in range(8)))

    assert ends == [(3, b"said\n")] * 8


# Simulator and worker

WORKER = """
import os, sys, time
sys.path.insert(0, os.getcwd())
import services
services.announce_ready(arguments=sys.argv[1:], keys=[name for name in os.environ if name.startswith("ANTHROPIC_")])
time.sleep(60)
"""


@pytest.fixture
def stub_worker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A `worker.py` that only says how it was started."""
    monkeypatch.setattr(service_kinds, "ROOT", tmp_path)
    monkeypatch.setattr(embedded, "temporal_settings", lambda: "somewhere else")
    (tmp_path / "worker.py").write_text(WORKER)
    return tmp_path / "worker.py"


async def test_worker_and_simulator_of_a_mode(
    settings: Settings, stub_worker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A simulated worker has no credentials; a live one has, and there is no simulator."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")

    assert (await up(settings, keep=False)).started == ("simulator", "worker-simulated")
    assert (await up(settings, keep=False)).found == ("simulator", "worker-simulated")
    assert (await up(settings, Mode.LIVE, keep=False)).started == ("worker-live",)

    said = {s.name: state.details for s in all_services(settings.home) if (state := s.find())}
    assert said["worker-simulated"] == {
        "arguments": ["--home", str(settings.home), "--queue", "nightcrew-simulated"],
        "keys": [],
        "reaches": {"server": None, "simulator": said["simulator"]["url"]},
    }
    assert said["worker-live"]["keys"] == ["ANTHROPIC_API_KEY"]
    assert simulator_url(settings) == said["simulator"]["url"]
    assert await down(settings, ["worker-live"]) == ["worker-live"]
    assert await down(settings) == ["worker-simulated", "simulator"]


@pytest.fixture
def broken_worker(stub_worker: Path) -> None:
    """A `worker.py` that cannot start."""
    stub_worker.write_text("raise SystemExit('no such model')")


async def test_after_an_error_nothing_is_left_running(settings: Settings, broken_worker: None) -> None:
    with pytest.raises(CannotDo, match="no such model"):
        await up(settings)  # with a keeper, which is not started then

    assert await down(settings) == []
