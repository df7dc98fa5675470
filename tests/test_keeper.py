"""A home that is up stays up: what dies is started again, and only `down` ends it."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import shutil
import signal
import socket
import subprocess
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from conftest import Run

from client import RunClient
from domain.models import RunStatus
from domain.planning import plan_from_text
from domain.registry import Registry
from embedded import Keeper, Simulator, Worker, all_services, down, find_server, simulator_url, troubles, up
from folder import PlanFolder
from ports import LOOPBACK, listens
from runtime import ROOT, CannotDo, Mode, Settings, connect, load_settings, queue_of
from services import Service
from store import open_store
from temporal_server import Server

PACE = ("--ttft", "1.5", "--tokens-per-second", "0", "--jitter", "0")
PLAN = """
max_concurrency: 3
defaults: {agent: hand, timeout: 60s}
tasks:
  - {id: done, for_each: [1, 2, 3], prompt: Go.}
  - {id: slow, for_each: [1, 2, 3], prompt: Think., needs: [done]}
  - {id: last, for_each: [1, 2, 3], prompt: Go., needs: [slow]}
"""
DONE = {"done[1]", "done[2]", "done[3]"}
SLOW = {"slow[1]", "slow[2]", "slow[3]"}
HELD = {"when": {"contains": "Think.", "nth": [1, 3]}, "then": {"ttft": 20}}
"""They are at work for longer than a busy machine needs until something is killed, and done sooner the next time."""


class Home:
    """A home of one test, with the real processes, and the bill that its simulator leaves in a file."""

    def __init__(self, folder: Path, registry: Registry) -> None:
        self.settings: Settings = load_settings(folder)
        self.folder = self.settings.home
        self.server, self.simulator = Server(self.folder), Simulator(self.folder)
        self.worker, self.keeper = Worker(self.folder, Mode.SIMULATED), Keeper(self.folder, Mode.SIMULATED)
        self._registry = registry

    async def submit(self) -> Run:
        """A run whose first tasks are answered and whose next ones are being answered."""
        temporal = await connect(self.settings)
        client = RunClient(temporal, open_store(self.settings.store))
        planned = plan_from_text(PLAN, file="test.yaml", registry=self._registry, folder=PlanFolder(self.folder))
        await asyncio.to_thread(self._script, HELD)
        run = await client.submit(planned, id=None, simulated=True, queue=queue_of(Mode.SIMULATED))
        while not (self.answered() == Counter(DONE) and await asyncio.to_thread(self._in_flight) == 3):
            await asyncio.sleep(0.05)
        return Run(run, client, temporal)

    def _script(self, *rules: dict[str, Any]) -> None:
        body = json.dumps({"rules": rules}).encode()
        request = urllib.request.Request(f"{simulator_url(self.settings)}/script", data=body, method="POST")
        urllib.request.urlopen(request, timeout=60).close()

    def _in_flight(self) -> int:
        with urllib.request.urlopen(f"{simulator_url(self.settings)}/in-flight", timeout=60) as reply:
            return int(json.load(reply)["now"])

    def bill(self) -> list[dict[str, Any]]:
        """Every call that came to an end, in all lives of the simulator."""
        file = self.folder / "simulator.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.is_file() else []

    def answered(self) -> Counter[str]:
        """How often each task got its whole answer: that is what would be paid in full."""
        return Counter(line["task"] for line in self.bill() if line["status"] == 200 and not line["client_left"])

    def pid(self, service: Service) -> int:
        state = service.find()
        assert state is not None, f"{service.name} is not up"
        return state.pid

    async def until_again(self, service: Service, pid: int) -> int:
        """The pid of the one that has followed."""
        while (state := service.find()) is None or state.pid == pid:
            await asyncio.sleep(0.05)
        return state.pid

    def account(self, name: str) -> dict[str, Any]:
        """What the keeper has written of a service."""
        told = json.loads((self.folder / "services" / "keeper-simulated.state.json").read_text())
        account: dict[str, Any] = told["services"][name]
        return account

    def processes(self) -> list[psutil.Process]:
        """Whatever has this folder on its command line."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.NoSuchProcess):
                if any(str(self.folder) in word for word in process.cmdline()):
                    found.append(process)
        return found

    async def starter(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command with next to no environment and no standard input."""
        shell = ["/bin/sh", "-c", 'exec "$0" "$@" <&-', str(ROOT / "starter.py"), "--home", str(self.folder), *words]
        bare = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "TEMPORAL_CONFIG_FILE": os.devnull}
        return await asyncio.to_thread(
            subprocess.run, shell, cwd=ROOT, env=bare, capture_output=True, text=True, check=False
        )


@pytest.fixture
async def home(tmp_path: Path, registry: Registry) -> AsyncIterator[Home]:
    home = Home(tmp_path / "home", registry)
    yield home
    await down(home.settings)
    left = home.processes()
    for process in left:
        process.kill()
    assert left == []


async def check_that_it_ends_and_nothing_is_paid_twice(home: Home, run: Run) -> None:
    report = await run.report()

    assert report.status is RunStatus.COMPLETED
    assert set(home.answered().values()) == {1}
    assert len(home.answered()) == 9
    assert {Counter(line["task"] for line in home.bill())[task] for task in DONE} == {1}


@pytest.mark.parametrize(
    "dies", [["worker-simulated"], ["server"], ["simulator"], ["server", "simulator", "worker-simulated"]]
)
async def test_what_is_killed_comes_back_and_the_run_ends(home: Home, dies: list[str]) -> None:
    """On the same ports, with the same options, and without anybody's help."""
    came = await up(home.settings, simulator_options=PACE)
    assert came.started == ("server", "simulator", "worker-simulated", "keeper-simulated")
    addresses = (find_server(home.folder), simulator_url(home.settings))
    run = await home.submit()
    services: list[Service] = [service for service in all_services(home.folder) if service.name in dies]

    pids = [home.pid(service) for service in services]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    for service, pid in zip(services, pids, strict=True):
        await home.until_again(service, pid)

    await check_that_it_ends_and_nothing_is_paid_twice(home, run)
    server, url = find_server(home.folder), simulator_url(home.settings)
    assert addresses[0] is not None
    assert server is not None
    assert (server.address, server.web_ui, url) == (addresses[0].address, addresses[0].web_ui, addresses[1])
    assert [home.account(service.name)["restarts"] for service in services] == [1] * len(services)
    assert troubles(home.folder) == []
    again = await up(home.settings)
    assert (again.started, again.found) == ((), came.started)


async def test_a_crash_loop_is_said_costs_nothing_and_ends_when_it_is_mended(home: Home) -> None:
    await up(home.settings, simulator_options=PACE)
    run = await home.submit()
    broken = home.folder / "nightcrew.toml"

    broken.write_text("no_such_key = 1\n")
    os.kill(home.pid(home.worker), signal.SIGKILL)
    while not (account := home.account("worker-simulated"))["crash_loop"]:
        await asyncio.sleep(0.1)

    assert account["crashes"] == 5
    assert account["restarts"] == 0
    assert account["next_try"] > account["last_crash"]
    assert "unknown key" in account["last_words"]
    assert account["last_words"].isprintable()
    assert len(home.bill()) == len(DONE | SLOW)  # what was under way, and not a call more
    (trouble,) = troubles(home.folder)
    assert (trouble.service, trouble.up) == ("worker-simulated", False)
    told = trouble.sentence("./starter.py")
    for words in ["worker-simulated", "crash loop", "5 crashes", "next try", str(home.worker.log), "starter.py up"]:
        assert words in told
    lines = [json.loads(line) for line in home.keeper.log.read_text().splitlines()]
    crashes = [line for line in lines if line["event"] in {"crashed", "crash_loop"}]
    assert [line["next_try_in_s"] for line in crashes] == [0, 1, 2, 4, 8]
    assert (crashes[-1]["event"], crashes[-1]["level"]) == ("crash_loop", "error")

    broken.unlink()
    await check_that_it_ends_and_nothing_is_paid_twice(home, run)
    assert home.account("worker-simulated")["restarts"] == 1


async def test_up_tries_at_once_what_its_keeper_cannot_start(home: Home) -> None:
    """It tells why it fails, and leaves the rest running and kept; when it succeeds, the keeper is a new one."""
    await up(home.settings)
    keeper, bill = home.pid(home.keeper), home.folder / "simulator.jsonl"
    bill.unlink()
    bill.mkdir()
    simulator = home.pid(home.simulator)
    os.kill(simulator, signal.SIGKILL)
    while home.simulator.pid() == simulator:
        await asyncio.sleep(0.01)

    failed = await home.starter("up")
    assert (failed.returncode, failed.stdout) == (1, "")
    assert "simulator" in failed.stderr
    assert "Is a directory" in failed.stderr
    assert home.pid(home.keeper) == keeper

    while home.account("simulator")["crashes"] < 5:  # from now on the keeper waits for 8 s
        await asyncio.sleep(0.05)
    os.kill(keeper, signal.SIGSTOP)  # and for longer, should that be needed
    bill.rmdir()
    again = await up(home.settings)
    assert again.started == ("simulator", "keeper-simulated")
    assert again.owned == ()
    assert home.pid(home.keeper) != keeper
    assert home.account("simulator")["crashes"] == 0


async def test_what_waits_for_another_service_says_so(home: Home) -> None:
    await up(home.settings, worker=False)
    database, aside = home.folder / "temporal.db", home.folder / "aside"
    keeper = home.pid(home.keeper)

    os.kill(keeper, signal.SIGSTOP)
    for service in home.server, home.simulator:
        os.kill(home.pid(service), signal.SIGKILL)
    aside.mkdir()
    for file in home.folder.glob("temporal.db*"):
        file.rename(aside / file.name)
    database.mkdir()
    os.kill(keeper, signal.SIGCONT)
    while home.account("server")["crashes"] < 2:
        await asyncio.sleep(0.05)

    server, simulator = troubles(home.folder)
    assert (server.service, server.waits_for) == ("server", None)
    assert "as soon as the server is up" in simulator.sentence("./starter.py")
    assert home.account("simulator")["crashes"] == 0
    database.rmdir()
    for file in aside.iterdir():
        file.rename(home.folder / file.name)
    while troubles(home.folder):
        await asyncio.sleep(0.05)


async def test_down_leaves_no_process_also_while_one_is_being_started_again(home: Home) -> None:
    for moment in (0.2, 0.8):
        await up(home.settings)
        assert len(home.processes()) == 4
        os.kill(home.pid(home.worker), signal.SIGKILL)
        await asyncio.sleep(moment)

        stopped = await down(home.settings)

        assert stopped[0] == "keeper-simulated"
        assert stopped[-2:] == ["simulator", "server"]
        assert home.processes() == []


async def test_two_up_at_the_same_moment_give_one_of_each(home: Home) -> None:
    done = await asyncio.gather(*(home.starter("up", "--json") for _ in range(3)))

    assert [run.returncode for run in done] == [0, 0, 0], done
    started = [name for run in done for name in json.loads(run.stdout)["started"]]
    assert sorted(started) == ["keeper-simulated", "server", "simulator", "worker-simulated"]
    assert len(home.processes()) == 4


async def test_the_end_of_the_terminal_is_not_the_end_of_the_home(home: Home) -> None:
    """The terminal hangs up, and all of its processes are killed: services and keeper are not among them."""
    command = [str(ROOT / "starter.py"), "--home", str(home.folder), "up"]
    shell, terminal = pty.fork()
    if shell == 0:
        os.execv("/bin/sh", ["/bin/sh", "-c", '"$0" "$@"; read -r answer', *command])  # noqa: S606
    while home.keeper.find() is None:
        await asyncio.sleep(0.05)
    for service in (home.keeper, home.server, home.simulator, home.worker):
        pid = home.pid(service)
        assert os.getsid(pid) == pid
        assert psutil.Process(pid).terminal() is None
        assert Path(f"/proc/{pid}/fd/0").readlink() == Path(os.devnull)
    before = {process.pid for process in home.processes()}

    with suppress(ProcessLookupError):
        os.killpg(shell, signal.SIGHUP)
        os.killpg(shell, signal.SIGKILL)
    os.close(terminal)
    await asyncio.to_thread(os.waitpid, shell, 0)

    services = [home.keeper, home.server, home.simulator, home.worker]
    assert {home.pid(service) for service in services} <= before
    run = await home.submit()
    await check_that_it_ends_and_nothing_is_paid_twice(home, run)
    simulator = home.pid(home.simulator)
    os.kill(simulator, signal.SIGKILL)
    await home.until_again(home.simulator, simulator)


async def test_after_a_reboot_up_brings_everything_back(home: Home) -> None:
    """With the files of the earlier life, an empty environment and no standard input."""
    await up(home.settings, simulator_options=PACE)
    run = await home.submit()
    address, url = run.temporal.service_client.config.target_host, simulator_url(home.settings)

    for number in signal.SIGSTOP, signal.SIGKILL:  # first stopped, so that none of them sees another one die
        for process in home.processes():
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)
    while any(service.pid() for service in all_services(home.folder)):
        await asyncio.sleep(0.02)
    files = {file.name for file in (home.folder / "services").iterdir()}
    again = await home.starter("up", "--json")

    assert again.returncode == 0, again.stderr
    assert {"server.json", "worker-simulated.json", "keeper-simulated.json", "keeper-simulated.state.json"} <= files
    assert json.loads(again.stdout)["started"] == ["server", "simulator", "worker-simulated", "keeper-simulated"]
    server = find_server(home.folder)
    assert server is not None
    assert (server.address, simulator_url(home.settings)) == (address, url)
    await check_that_it_ends_and_nothing_is_paid_twice(home, run)


async def test_a_worker_follows_a_server_whose_port_was_taken(home: Home) -> None:
    await up(home.settings, simulator_options=PACE)
    before, keeper, worker = find_server(home.folder), home.pid(home.keeper), home.pid(home.worker)
    assert before is not None

    os.kill(keeper, signal.SIGSTOP)
    os.kill(before.pid, signal.SIGKILL)
    port = int(before.address.rpartition(":")[2])
    while home.server.pid() or listens(port):
        await asyncio.sleep(0.01)
    with socket.socket() as stranger:
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        stranger.bind((LOOPBACK, port))
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)  # from here on it is not shared
        os.kill(keeper, signal.SIGCONT)
        await home.until_again(home.worker, worker)

    after = find_server(home.folder)
    assert after is not None
    assert after.address != before.address
    await check_that_it_ends_and_nothing_is_paid_twice(home, await home.submit())


async def test_each_mode_has_a_keeper_with_what_its_worker_needs(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both keep the server, and there is one. Only the live one has credentials, and restarts its worker with them."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", f"http://{LOOPBACK}:1")
    live, live_keeper = Worker(home.folder, Mode.LIVE), Keeper(home.folder, Mode.LIVE)
    await up(home.settings)
    assert (await up(home.settings, Mode.LIVE)).started == ("worker-live", "keeper-live")

    killed = {service: home.pid(service) for service in (home.server, live, home.worker)}
    for pid in killed.values():
        os.kill(pid, signal.SIGKILL)
    for service, pid in killed.items():
        await home.until_again(service, pid)

    keys = {
        service.name: "ANTHROPIC_API_KEY" in psutil.Process(home.pid(service)).environ()
        for service in (live, live_keeper, home.worker, home.keeper)
    }
    assert keys == {"worker-live": True, "keeper-live": True, "worker-simulated": False, "keeper-simulated": False}
    assert len(home.processes()) == 6
    assert not [word for process in home.processes() for word in process.cmdline() if "secret" in word]
    assert (await down(home.settings))[:2] == ["keeper-simulated", "keeper-live"]


async def test_what_a_keeper_kept_belongs_to_whoever_brought_it_up(home: Home) -> None:
    """A `run` that finds something dead starts it, but does not stop it when it leaves."""
    assert (await up(home.settings, worker=False)).owned == ("server", "simulator", "keeper-simulated")
    os.kill(home.pid(home.keeper), signal.SIGSTOP)
    simulator = home.pid(home.simulator)
    os.kill(simulator, signal.SIGKILL)
    while home.simulator.pid() == simulator:
        await asyncio.sleep(0.01)

    again = await up(home.settings)

    assert again.started == ("simulator", "worker-simulated", "keeper-simulated")
    assert again.owned == ("worker-simulated",)
    assert home.keeper.kept() == ["server", "simulator", "worker-simulated"]


async def test_a_keeper_ends_when_its_home_is_gone(home: Home) -> None:
    await up(home.settings, worker=False, simulator=False)
    keeper, server = psutil.Process(home.pid(home.keeper)), psutil.Process(home.pid(home.server))

    gone = home.folder.rename(home.folder.with_name("gone"))  # at once: whoever still writes cannot hinder it

    while keeper.is_running() and keeper.status() != psutil.STATUS_ZOMBIE:
        await asyncio.sleep(0.05)
    server.kill()  # nobody else can: the folder that says who it is has gone
    await asyncio.to_thread(server.wait)
    shutil.rmtree(gone)


async def test_nobody_waits_for_ever_for_a_turn(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turns.PATIENCE", 0.2)
    await up(home.settings, worker=False, simulator=False, keep=False)
    from turns import turn

    async with turn(home.folder):
        with pytest.raises(CannotDo, match="Another command"):
            await down(home.settings)
