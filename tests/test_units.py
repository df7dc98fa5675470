"""The units for systemd: read by its own checker, and their commands carried out as it would, reboot included."""

from __future__ import annotations

import asyncio
import configparser
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from embedded import Keeper, all_services, down
from runtime import ROOT, Mode, load_settings

UNITS = {"nightcrew.service": "/opt/nightcrew", "nightcrew-user.service": "%h/nightcrew"}
PLAN = """
name: overnight
defaults: {agent: writer, timeout: 60s}
tasks:
  - {id: first, prompt: Go.}
  - {id: second, prompt: Go., needs: [first]}
  - {id: third, prompt: Go., needs: [second]}
"""


def unit(name: str) -> configparser.ConfigParser:
    read = configparser.ConfigParser(interpolation=None, delimiters=("=",))
    read.optionxform = str  # type: ignore[assignment, method-assign]
    read.read_string((ROOT / "deploy" / name).read_text("utf-8"))
    return read


@pytest.mark.parametrize("name", UNITS)
def test_systemd_understands_every_line(name: str, tmp_path: Path) -> None:
    if (checker := shutil.which("systemd-analyze")) is None:
        pytest.skip("no systemd here")
    installed = tmp_path / "nightcrew.service"
    installed.write_text((ROOT / "deploy" / name).read_text("utf-8").replace(UNITS[name], str(ROOT)), "utf-8")
    scope = ["--user"] if "user" in name else []

    done = subprocess.run(
        [checker, *scope, "verify", str(installed)],
        capture_output=True,
        text=True,
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
        check=False,
    )

    assert (done.returncode, done.stderr, done.stdout) == (0, "", "")


@pytest.mark.parametrize("name", UNITS)
def test_a_stop_has_time_for_calls_at_work(name: str) -> None:
    """The worker has 40 s, and is one of four; SIGTERM goes to the first process alone, which ends them in order."""
    service = unit(name)["Service"]

    assert service["KillMode"] == "mixed"
    assert int(service["TimeoutStopSec"]) >= sum(each.stop_seconds for each in all_services(Path("/nowhere")))


class Machine:
    """What systemd does with a unit: start its command with its variables, hear that it is ready, end it by SIGTERM."""

    def __init__(self, name: str, folder: Path) -> None:
        self.service, self.home, self._tree = unit(name)["Service"], folder / "home", UNITS[name]
        self._door = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._door.bind(str(folder / "notify"))
        self._door.setblocking(False)  # noqa: FBT003 - as the library has it
        self.main: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        command = shlex.split(self.service["ExecStart"].replace(self._tree, str(ROOT)))
        own = dict([self.service["Environment"].split("=", 1)]) if "Environment" in self.service else {}
        own = {key: value.replace("/var/lib/nightcrew", str(self.home)) for key, value in own.items()}
        own |= {"NIGHTCREW_HOME": str(self.home), "NOTIFY_SOCKET": self._door.getsockname()}
        bare = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "TEMPORAL_CONFIG_FILE": os.devnull}
        self.main = await asyncio.create_subprocess_exec(
            *command, cwd="/", env={**bare, **own}, stdin=asyncio.subprocess.DEVNULL, start_new_session=True
        )
        assert await self.hears() == "READY=1"

    async def hears(self) -> str:
        return (await asyncio.get_running_loop().sock_recv(self._door, 100)).decode()

    async def stop(self) -> int:
        assert self.main is not None
        self.main.send_signal(signal.SIGTERM)
        return await self.main.wait()

    def processes(self) -> list[psutil.Process]:
        """Whatever has this home on its command line or in its environment."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                if process.environ().get("NIGHTCREW_HOME") == str(self.home) or str(self.home) in " ".join(
                    process.cmdline()
                ):
                    found.append(process)
        return found

    async def pull_the_plug(self) -> None:
        """Everything ends in the same moment, and nothing is told."""
        assert self.main is not None
        for signal_number in signal.SIGSTOP, signal.SIGKILL:  # first stopped, so that none of them sees another one die
            for process in self.processes():
                with suppress(psutil.NoSuchProcess):
                    process.send_signal(signal_number)
        await self.main.wait()
        while any(service.is_held() for service in all_services(self.home)):
            await asyncio.sleep(0.02)

    async def starter(self, *words: str, input: str | None = None) -> subprocess.CompletedProcess[str]:
        command = [str(ROOT / "starter.py"), "--home", str(self.home), *words]
        return await asyncio.to_thread(
            subprocess.run, command, input=input, capture_output=True, text=True, cwd=ROOT, check=False
        )

    def answered(self) -> list[str]:
        bill = self.home / "simulator.jsonl"
        lines = [json.loads(line) for line in bill.read_text().splitlines()] if bill.is_file() else []
        return [line["task"] for line in lines if line["status"] == 200 and not line["client_left"]]

    async def close(self) -> None:
        if self.main is not None and self.main.returncode is None:
            self.main.kill()
            await self.main.wait()
        await down(load_settings(self.home))
        self._door.close()


@pytest.fixture
async def machine(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Machine]:
    machine = Machine(getattr(request, "param", "nightcrew.service"), tmp_path)
    yield machine
    await machine.close()


@pytest.mark.parametrize("machine", UNITS, indirect=True)
async def test_after_a_reboot_everything_starts_unattended(machine: Machine) -> None:
    """The run goes on by itself, what was answered is not asked again, and a stop leaves nothing behind."""
    await machine.start()
    submitted = await machine.starter("submit", "-", input=PLAN)
    assert submitted.returncode == 0, submitted.stderr
    run = submitted.stdout.strip()
    while not [
        *(machine.home / "store" / "ledger").rglob("completion*")
    ]:  # in the ledger: what the provider alone knows is asked again
        await asyncio.sleep(0.05)

    await machine.pull_the_plug()
    await machine.start()

    report: dict[str, Any] = json.loads((await machine.starter("result", run, "--wait", "--json")).stdout)
    assert report["status"] == "COMPLETED"
    paid = Counter(machine.answered())
    assert (set(paid), paid["first"]) == ({"first", "second", "third"}, 1)
    assert paid.total() <= 4, "one was under way"
    assert await machine.stop() == 0
    assert await machine.hears() == "STOPPING=1"
    assert machine.processes() == []


async def test_a_keeper_that_dies_is_started_again(machine: Machine) -> None:
    """Nobody else would: it is the one that starts again what dies."""
    await machine.start()
    keeper = Keeper(machine.home, Mode.SIMULATED)
    before = keeper.pid()
    assert before is not None

    os.kill(before, signal.SIGKILL)
    while (now := keeper.find()) is None or now.pid == before:
        await asyncio.sleep(0.05)

    assert await machine.stop() == 0
    assert machine.processes() == []


async def test_whoever_says_down_ends_it(machine: Machine) -> None:
    """With success: systemd then leaves it alone."""
    await machine.start()
    assert machine.main is not None

    assert (await machine.starter("down")).returncode == 0

    assert await machine.main.wait() == 0
    assert machine.processes() == []
