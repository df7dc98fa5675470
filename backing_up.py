"""Writing a backup: the database, the store and the settings of a home in one file, while runs go on.

Who refers is copied before what it refers to: the database, then manifests and events, then the ledger, then the
contents. So everything that the copy names is in the copy, whatever is written meanwhile. Of manifests, events and
ends only what was there at the moment of the database goes along: what is later belongs to a course of things that the
restored server does not know. Of ledger and contents the later is welcome: what is paid for is not paid again.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import database
from last_backups import remember
from runtime import SETTINGS_FILE, CannotDo, Settings
from server_version import VERSION_FILE
from store import folder_of, shown_location

SCHEMA = "nightcrew.backup/1"
MANIFEST = "manifest.json"
ORDER = ("keys", "audit", "runs", "ledger", "register", "artifacts")
STAGED = "#"
"""In the names of objects that are just being written."""


@dataclass
class Backup:
    """What was written down of a home."""

    file: Path
    made: datetime
    bytes: int = 0
    runs: int = 0
    open_runs: list[str] = field(default_factory=list)
    store: str | None = None
    """A store in a bucket: it is named, and not copied."""


def back_up(settings: Settings, file: Path, version: str) -> Backup:
    """Write a backup of a home, up or down. The file appears when it is whole, and takes the place of an older one."""
    home = settings.home
    if not (home / database.NAME).exists():
        raise CannotDo(f"There is nothing to back up in {home}: its server was never started.")
    if file.exists() and file.stat().st_size and not _is_backup(file):
        raise CannotDo(f"{file} is there, and is no backup: nothing was written. Name another file.")
    begun = file.with_name(f".{file.name}.{os.getpid()}")
    copy = file.with_name(f".{file.name}.{os.getpid()}.db")
    try:
        found = _write(settings, begun, copy, version)
        os.replace(begun, file)  # noqa: PTH105  at once, over one that is there
        _sync(file.parent)
    except OSError as error:
        raise CannotDo(f"The backup {file} cannot be written: {error.strerror or error}.") from error
    finally:
        for left in begun, copy:
            with suppress(OSError):
                left.unlink(missing_ok=True)
    found.file, found.bytes = file, file.stat().st_size
    remember(home, file, found.made)
    return found


def _is_backup(file: Path) -> bool:
    """Whether a file begins as ours do."""
    try:
        with tarfile.open(file, mode="r:") as tar:
            first = tar.next()
    except (OSError, tarfile.TarError):
        return False
    return first is not None and first.name == database.NAME


def _write(settings: Settings, begun: Path, copy: Path, version: str) -> Backup:
    os.close(os.open(copy, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    moment = database.copy_database(settings.home / database.NAME, copy)
    if why := database.why_damaged(copy):
        raise CannotDo(f"The database of {settings.home} is damaged ({why}): a backup of it would be worth nothing.")
    found = Backup(begun, moment, open_runs=database.open_runs(copy))
    folder = folder_of(settings.store)
    files: dict[str, list[Any]] = {}
    with os.fdopen(os.open(begun, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as out:
        with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
            _add_large(tar, database.NAME, copy, files)
            for name in SETTINGS_FILE, VERSION_FILE:
                if (settings.home / name).is_file():
                    _add(tar, name, (settings.home / name).read_bytes(), files)
            if folder is None:
                found.store = shown_location(settings.store)
            else:
                for name, path in _objects(folder, moment):
                    with suppress(FileNotFoundError):  # somebody prunes meanwhile
                        _add(tar, f"store/{name}", path.read_bytes(), files)
                found.runs = sum(name.startswith("store/runs/") and name.endswith("/manifest.json") for name in files)
            manifest = {
                "schema": SCHEMA,
                "version": version,
                "made": moment.isoformat(),
                "store": found.store,
                "open_runs": found.open_runs,
                "files": files,
            }
            _add(tar, MANIFEST, json.dumps(manifest).encode(), {})
        out.flush()
        os.fsync(out.fileno())
    return found


def _objects(folder: Path, moment: datetime) -> Iterator[tuple[str, Path]]:
    """What is copied of a store, in the order of reference."""
    for part in ORDER:
        for path in sorted((folder / part).rglob("*")):
            name = path.relative_to(folder).as_posix()
            if not path.is_file() or STAGED in path.name or "/live/" in name:
                continue
            if not _is_of_one_course(name) or path.stat().st_mtime <= moment.timestamp():
                yield name, path


def _is_of_one_course(name: str) -> bool:
    """Whether it tells how things went, and not what was paid or said: that a task has ended, above all."""
    return name.startswith(("audit/", "register/records/", "runs/")) or name.endswith("/closed.json")


def _add(tar: tarfile.TarFile, name: str, content: bytes, files: dict[str, list[Any]]) -> None:
    files[name] = [len(content), hashlib.sha256(content).hexdigest()]
    tar.addfile(_member(name, len(content)), io.BytesIO(content))


def _add_large(tar: tarfile.TarFile, name: str, path: Path, files: dict[str, list[Any]]) -> None:
    with path.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
        size = content.tell()
        content.seek(0)
        files[name] = [size, digest]
        tar.addfile(_member(name, size), content)


def _member(name: str, size: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, 0o600
    member.mtime = int(datetime.now(UTC).timestamp())
    return member


def _sync(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
