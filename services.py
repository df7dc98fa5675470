"""One background process of a home: started once, found by anyone, stopped for certain.

The process itself holds an exclusive lock on `services/NAME.lock` for its whole life, through a file descriptor it
inherits. So "does it run" is "is the lock held": no pid that was given to somebody else can fool us, a crash or a
reboot frees the lock, and two processes of one name cannot exist. Three files beside each other in `services/`:

- `NAME.lock`   the lock; inside is the pid of who holds it, written by that process before it becomes the service
- `NAME.json`   what is known of it (pid, address, version), written when it is ready by whoever saw that first
- `NAME.ready`  what a service of ours says when it is ready: one line, a JSON object (see `announce_ready`); or why it
                refuses to begin (see `announce_refused`)

Its log is `logs/NAME.log`; a launch moves one that has become large to `NAME.log.1`.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
import subprocess
from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Any

from private_files import locked, open_lock, open_private, read_object, read_text, write_private
from runtime import ROOT, CannotDo
from sealing import Keyring

READY_FILE = "NIGHTCREW_READY_FILE"
FINGERPRINT = "NIGHTCREW_FINGERPRINT"
REFUSED = "refused"
WRITE_PID_THEN_BECOME = 'echo $$ >"$0" && exec "$@"'
"""Shell: no moment is left in which a service runs and nobody knows its pid, even if its starter is killed."""

LARGE_LOG = 10_000_000
LOG_TAIL = 16_384

_children: dict[int, subprocess.Popen[bytes]] = {}
"""Services this process started, to be reaped when they are stopped."""


def announce_ready(**details: Any) -> None:
    """Tell whoever started this process that it is ready, and with which credentials and keys it was started.

    Without such a starter nothing happens.
    """
    started_with = os.environ.pop(FINGERPRINT, None)  # neither of them is for the children of this process
    if path := os.environ.pop(READY_FILE, None):
        details |= {"fingerprint": started_with} if started_with else {}
        details |= {"keys": keys} if (keys := Keyring.from_environment().ids) else {}
        Path(path).write_text(json.dumps(details) + "\n", "utf-8")


def announce_refused(why: str) -> None:
    """Tell whoever started this process, in a sentence, why it ends instead of becoming ready."""
    if path := os.environ.get(READY_FILE):
        Path(path).write_text(json.dumps({REFUSED: why}) + "\n", "utf-8")


@dataclass(frozen=True)
class State:
    """A running service."""

    pid: int
    started: datetime
    details: dict[str, Any]


class Service(ABC):
    """One background process of a home. A kind of service says how it is launched and how one knows it is ready."""

    announces_on_stdout = False
    launches = 1
    start_seconds = 60.0  # of a machine with much else to do
    stop_seconds = 15.0

    def __init__(self, home: Path, name: str) -> None:
        self.home = home
        self.name = name
        self.log = home / "logs" / f"{name}.log"
        self._launched = 0
        self._mine: int | None = None
        self._log_start = 0

    @abstractmethod
    def command(self) -> list[str]:
        """What to execute. Called by the one starter that holds the lock."""

    @abstractmethod
    def environment(self) -> dict[str, str]:
        """The whole environment of the process. Its working directory is that of our code."""

    @abstractmethod
    async def ready(self) -> dict[str, Any] | None:
        """Its details once it is ready. Anyone may ask, also when another process started it."""

    def fits(self, state: State) -> bool:  # noqa: ARG002 - what a kind of service may look at
        """Whether the one that runs can go on as it is; if not, `start` replaces it."""
        return True

    def file(self, ending: str) -> Path:
        """One of the service's own files."""
        return self.home / "services" / f"{self.name}.{ending}"

    def announced(self) -> dict[str, Any] | None:
        """What the service itself said when it was ready, once the line is complete."""
        said = self._said()
        return None if said is None or REFUSED in said else said

    def _said(self) -> dict[str, Any] | None:
        line, end, _ = read_text(self.file("ready")).partition("\n")
        return dict(json.loads(line)) if end else None

    def find(self) -> State | None:
        """The service, when it runs and is ready."""
        pid = self.pid()
        known = read_object(self.file("json"))
        if pid is None or known.get("pid") != pid:  # another pid: what is written is of an earlier life
            return None
        return State(pid, datetime.fromisoformat(known["started"]), known["details"])

    async def start(self) -> bool:
        """Whether this call started it; it is ready in both cases. Of several starters at once one starts it."""
        self._forget_launches()
        if (state := self.find()) and not self.fits(state):
            await self.stop(only=state.pid)
        try:
            await self._become_ready(monotonic() + self.start_seconds)
        except BaseException:
            if self._mine is not None:
                await self.stop(only=self._mine)  # one that somebody else launched meanwhile is not ours to end
            raise
        return self._launched > 0

    def _forget_launches(self) -> None:
        self._launched, self._mine = 0, None

    async def _become_ready(self, deadline: float) -> None:
        while self.find() is None:
            if monotonic() > deadline:
                raise self._cannot_start(f"was not ready within {self.start_seconds:.0f} s")
            if pid := self.pid():
                if (details := await self.ready()) is not None:
                    self._write_state(pid, details)
                    continue
            elif self.is_held():
                pass  # somebody is about to launch it
            elif self._launched < self.launches:
                self._launched += self._launch()
            else:
                raise self._cannot_start("ended at its start")
            await asyncio.sleep(0.03)

    async def stop(self, only: int | None = None) -> bool:
        """Whether there was something to stop. It gets time to end cleanly, then it is killed.

        With `only`, a process that has followed the one of that pid is left alone.
        """
        if not self.is_held():
            return False
        told = only
        for order, patience in (signal.SIGTERM, self.stop_seconds), (signal.SIGKILL, 5.0):
            told, ended = await self._ended_after(order, patience, told)
            if ended:
                return True
        raise CannotDo(f"The {self.name} of this home (pid {self.pid()}) does not end, even when killed.")

    async def _ended_after(self, order: signal.Signals, patience: float, told: int | None) -> tuple[int | None, bool]:
        """Who was told to end, and whether it has: the next order is for the same process, and for no follower."""
        sent = False
        deadline = monotonic() + patience
        while monotonic() < deadline:
            pid = self.pid()
            if not sent and pid is not None and told in (None, pid):
                told, sent = pid, True
                _send(order, pid)
            elif pid not in (None, told) or not self.is_held():
                # Ended, or already followed by another one, which is not ours to end. A lock that is held by nobody
                # yet says neither: whoever was just launched writes its pid in a moment.
                if child := _children.pop(told or 0, None):
                    child.wait()
                return told, True
            await asyncio.sleep(0.02)
        return told, False

    def _launch(self) -> bool:
        """Whether the process was launched; not when another one holds the lock, or is about to."""
        reap()
        lock = open_lock(self.file("lock"))
        try:
            if not locked(lock, fcntl.LOCK_EX):
                return False
            os.ftruncate(lock, 0)
            self.file("json").unlink(missing_ok=True)
            write_private(self.file("ready"), "")
            if self.log.exists() and self.log.stat().st_size > LARGE_LOG:
                self.log.replace(self.log.with_name(f"{self.log.name}.1"))
            with open_private(self.log) as log, open_private(self.file("ready")) as said:
                self._log_start = log.tell()
                child = subprocess.Popen(
                    ["/bin/sh", "-c", WRITE_PID_THEN_BECOME, str(self.file("lock")), *self.command()],
                    cwd=ROOT,
                    env=self.environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=said if self.announces_on_stdout else log,
                    stderr=log,
                    pass_fds=(lock,),
                    start_new_session=True,  # a Ctrl-C in the terminal is not for it
                    umask=0o077,
                )
        finally:
            os.close(lock)
        _children[child.pid] = child
        self._mine = child.pid  # the shell becomes the service
        return True

    def is_held(self) -> bool:
        """Whether a process has it, ready or not."""
        try:
            lock = os.open(self.file("lock"), os.O_RDONLY)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except PermissionError as error:
            raise CannotDo(f"The home {self.home} belongs to another user: {error}. Choose one by --home.") from error
        try:
            return not locked(lock, fcntl.LOCK_SH)  # shared: those who look do not see each other
        finally:
            os.close(lock)

    def pid(self) -> int | None:
        """Who holds the lock; `None` when nobody does, or when it is just being launched."""
        text = read_text(self.file("lock")) if self.is_held() else ""
        return int(text) if text.endswith("\n") else None

    def _write_state(self, pid: int, details: dict[str, Any]) -> None:
        started = datetime.fromtimestamp(self.file("lock").stat().st_mtime, UTC)  # when it wrote its pid
        state = {"pid": pid, "started": started.isoformat(), "details": details}
        write_private(self.file("json"), json.dumps(state))

    def last_lines(self, count: int) -> list[str]:
        """The last lines of its log, of the latest launch if that was ours; without control characters."""
        if not self.log.exists():
            return []
        with self.log.open("rb") as log:
            end = log.seek(0, os.SEEK_END)
            log.seek(max(min(self._log_start, end), end - LOG_TAIL))
            written = log.read().decode("utf-8", "replace")
        printable = "".join(char for char in written if char.isprintable() or char == "\n")
        return printable.strip().splitlines()[-count:]

    def _cannot_start(self, what: str) -> CannotDo:
        if (said := self._said()) is not None and REFUSED in said:
            return CannotDo(said[REFUSED])
        tail = "\n".join(f"  {line}" for line in self.last_lines(8)) or "  (nothing)"
        return CannotDo(f"The {self.name} of this home {what}. The last lines of {self.log}:\n{tail}")


def environment_without(*prefixes: str) -> dict[str, str]:
    """The environment of this process without the variables that start with one of the prefixes."""
    return {name: value for name, value in os.environ.items() if not name.startswith(prefixes)}


def _send(order: signal.Signals, pid: int) -> None:
    try:
        os.kill(pid, order)
    except ProcessLookupError:
        pass  # it ended by itself in this moment
    except PermissionError:
        raise CannotDo(f"Process {pid} belongs to another user; stop it as that user.") from None


def reap() -> None:
    """Let go of services of this process that ended, however they did."""
    for pid, child in [*_children.items()]:
        if child.poll() is not None:
            del _children[pid]
