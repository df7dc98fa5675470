"""Small files of a home that several processes read and write: private to this user, replaced at once, or locks."""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import IO, Any


def write_private(path: Path, text: str) -> None:
    """Replace a file at once, whoever reads it meanwhile; only this user may read it."""
    new = path.with_name(f"{path.name}.{os.getpid()}")
    new.unlink(missing_ok=True)
    with open_private(new) as file:
        file.write(text.encode())
    new.replace(path)


def written_once(path: Path, text: str) -> str:
    """What the first one who came has written here for good: this text, or that of somebody else."""
    if not path.exists():
        new = path.with_name(f"{path.name}.{os.getpid()}")
        write_private(new, text)
        with suppress(FileExistsError):
            os.link(new, path)
        new.unlink()
    return path.read_text("utf-8")


def open_private(path: Path) -> IO[bytes]:
    """The file for appending; only this user may read it."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "ab")


def read_text(path: Path) -> str:
    """The content; nothing when there is no such file."""
    try:
        return path.read_text("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return ""


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file; an empty one when there is none, as after a power cut that left half a file."""
    try:
        found = json.loads(read_text(path))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def open_lock(path: Path) -> int:
    """A descriptor to lock, and to pass on: never 0, 1 or 2, which a service replaces by its own."""
    given = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        return fcntl.fcntl(given, fcntl.F_DUPFD_CLOEXEC, 3)
    finally:
        os.close(given)


def locked(file: int, kind: int) -> bool:
    """Whether we got the lock at once."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
