"""One background process of a home: started once, found by anyone, stopped for certain.

The process itself holds an exclusive lock on `services/NAME.lock` for its whole life, through a file descriptor it
inherits. So "does it run" is "is the lock held": no pid that was given to somebody else can fool us, a crash or a
reboot frees the lock, and two processes of one name cannot exist. Three files beside each other in `services/`:

- `NAME.lock`   the lock; inside is the pid of who holds it, written by that process before it becomes the service
- `NAME.json`   what is known of it (pid, address, version), written when it is ready by whoever saw that first
- `NAME.ready`  what a service of ours says when it is ready: one line, a JSON object (see `announce_ready`)
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
from typing import IO, Any

from runtime import ROOT, CannotDo

READY_FILE = "NIGHTCREW_READY_FILE"
WRITE_PID_THEN_BECOME = 'echo $$ >"$0" && exec "$@"'
"""Shell: no moment is left in which a service runs and nobody knows its pid, even if its starter is killed."""

_children: dict[int, subprocess.Popen[bytes]] = {}
"""Services this process started, to be reaped when they are stopped."""


def announce_ready(**details: Any) -> None:
    """Tell whoever started this process that it is ready. Without such a starter nothing happens."""
    if path := os.environ.get(READY_FILE):
        Path(path).write_text(json.dumps(details) + "\n", "utf-8")


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
    start_seconds = 30.0
    stop_seconds = 15.0

    def __init__(self, home: Path, name: str) -> None:
        self.home = home
        self.name = name
        self.log = home / "logs" / f"{name}.log"
        self._launched = 0
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

    def file(self, ending: str) -> Path:
        """One of the service's own files."""
        return self.home / "services" / f"{self.name}.{ending}"

    def announced(self) -> dict[str, Any] | None:
        """What the service itself said when it was ready, once the line is complete."""
        line, end, _ = _text(self.file("ready")).partition("\n")
        return dict(json.loads(line)) if end else None

    def find(self) -> State | None:
        """The service, when it runs and is ready."""
        pid = self._pid()
        known = json.loads(_text(self.file("json")) or "{}")
        if pid is None or known.get("pid") != pid:  # another pid: what is written is of an earlier life
            return None
        return State(pid, datetime.fromisoformat(known["started"]), known["details"])

    async def start(self) -> bool:
        """Whether this call started it; it is ready in both cases. Of several starters at once one starts it."""
        self._launched = 0
        try:
            await self._become_ready(monotonic() + self.start_seconds)
        except BaseException:
            if self._launched:
                await self.stop()
            raise
        return self._launched > 0

    async def _become_ready(self, deadline: float) -> None:
        while self.find() is None:
            if monotonic() > deadline:
                raise self._cannot_start(f"was not ready within {self.start_seconds:.0f} s")
            if pid := self._pid():
                if (details := await self.ready()) is not None:
                    self._write_state(pid, details)
                    continue
            elif self._held():
                pass  # somebody is about to launch it
            elif self._launched < self.launches:
                self._launched += self._launch()
            else:
                raise self._cannot_start("ended at its start")
            await asyncio.sleep(0.03)

    async def stop(self) -> bool:
        """Whether there was something to stop. It gets time to end cleanly, then it is killed."""
        if not self._held():
            return False
        for order, patience in (signal.SIGTERM, self.stop_seconds), (signal.SIGKILL, 5.0):
            if await self._ended_after(order, patience):
                return True
        raise CannotDo(f"The {self.name} of this home (pid {self._pid()}) does not end, even when killed.")

    async def _ended_after(self, order: signal.Signals, patience: float) -> bool:
        told: int | None = None
        deadline = monotonic() + patience
        while monotonic() < deadline:
            pid = self._pid()
            if told is None and pid is not None:
                told = pid
                _send(order, pid)
            elif pid != told or not self._held():  # ended, or already followed by another one, which is not ours to end
                if child := _children.pop(told or 0, None):
                    child.wait()
                return True
            await asyncio.sleep(0.02)
        return False

    def _launch(self) -> bool:
        """Whether the process was launched; not when another one holds the lock, or is about to."""
        _reap()
        lock = os.open(self.file("lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if not _locked(lock, fcntl.LOCK_EX):
                return False
            os.ftruncate(lock, 0)
            self.file("json").unlink(missing_ok=True)
            write_private(self.file("ready"), "")
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
        return True

    def _held(self) -> bool:
        try:
            lock = os.open(self.file("lock"), os.O_RDONLY)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except PermissionError as error:
            raise CannotDo(f"The home {self.home} belongs to another user: {error}. Choose one by --home.") from error
        try:
            return not _locked(lock, fcntl.LOCK_SH)  # shared: those who look do not see each other
        finally:
            os.close(lock)

    def _pid(self) -> int | None:
        """Who holds the lock; `None` when nobody does, or when it is just being launched."""
        text = _text(self.file("lock")) if self._held() else ""
        return int(text) if text.endswith("\n") else None

    def _write_state(self, pid: int, details: dict[str, Any]) -> None:
        started = datetime.fromtimestamp(self.file("lock").stat().st_mtime, UTC)  # when it wrote its pid
        state = {"pid": pid, "started": started.isoformat(), "details": details}
        write_private(self.file("json"), json.dumps(state))

    def _cannot_start(self, what: str) -> CannotDo:
        written = self.log.read_bytes()[self._log_start :].decode("utf-8", "replace")
        printable = "".join(char for char in written if char.isprintable() or char == "\n")
        tail = "\n".join(f"  {line}" for line in printable.strip().splitlines()[-8:]) or "  (nothing)"
        return CannotDo(f"The {self.name} of this home {what}. The last lines of {self.log}:\n{tail}")


def environment_without(*prefixes: str) -> dict[str, str]:
    """The environment of this process without the variables that start with one of the prefixes."""
    return {name: value for name, value in os.environ.items() if not name.startswith(prefixes)}


def write_private(path: Path, text: str) -> None:
    """Replace a file at once, whoever reads it meanwhile; only this user may read it."""
    new = path.with_name(f"{path.name}.{os.getpid()}")
    new.unlink(missing_ok=True)
    with open_private(new) as file:
        file.write(text.encode())
    new.replace(path)


def open_private(path: Path) -> IO[bytes]:
    """The file for appending; only this user may read it."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "ab")


def _locked(file: int, kind: int) -> bool:
    """Whether we got the lock at once."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _send(order: signal.Signals, pid: int) -> None:
    try:
        os.kill(pid, order)
    except ProcessLookupError:
        pass  # it ended by itself in this moment
    except PermissionError:
        raise CannotDo(f"Process {pid} belongs to another user; stop it as that user.") from None


def _reap() -> None:
    """Let go of services of this process that ended, however they did."""
    for pid, child in [*_children.items()]:
        if child.poll() is not None:
            del _children[pid]


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return ""
