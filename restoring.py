"""A backup becomes a home: into an empty one alone, after every byte of it was checked."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import database
from backing_up import MANIFEST, SCHEMA
from embedded import all_services, prepare_home
from runtime import SETTINGS_FILE, CannotDo, Settings, load_settings
from server_version import VERSION_FILE
from store import folder_of
from turns import turn

ALLOWED = re.compile(rf"{database.NAME}|{re.escape(SETTINGS_FILE)}|{re.escape(VERSION_FILE)}|store(/[A-Za-z0-9_.#-]+)+")
LARGEST_MANIFEST = 1_000_000_000
PIECE = 1_000_000
MADE_BY_US = frozenset({"services", "logs", "store"})


@dataclass(frozen=True)
class Restored:
    """What a home has again."""

    made: str
    runs: int
    open_runs: list[str]
    store: str | None
    """The bucket that was named, and must still be there."""


class Damaged(CannotDo):
    """The file is no backup, or not the one that was written."""

    def __init__(self, file: Path, what: str) -> None:
        super().__init__(f"The backup {file} is damaged or none: {what}. Nothing was restored; take another one.")


async def restore(settings: Settings, file: Path) -> Restored:
    """Make a home of a backup. If anything is wrong, the home stays as it was."""
    home = settings.home
    if not file.is_file():
        raise CannotDo(f"There is no file {file}.")
    _check_empty(home)
    prepare_home(home)
    async with turn(home):
        _check_empty(home)
        stage = Path(tempfile.mkdtemp(prefix=".restoring-", dir=home))
        try:
            manifest = _unpack(file, stage)
            if why := database.why_damaged(stage / database.NAME, thorough=True):
                raise Damaged(file, f"its database is not sound ({why})")
            return _put_in_place(home, stage, manifest)
        except OSError as error:
            raise CannotDo(f"{file} cannot be restored to {home}: {error.strerror or error}.") from error
        finally:
            shutil.rmtree(stage, ignore_errors=True)


def _check_empty(home: Path) -> None:
    if any(service.is_held() for service in all_services(home)):
        raise CannotDo(f"The home {home} is up. A backup is restored into an empty home: name another by --home.")
    there = [path.name for path in home.iterdir() if path.name not in MADE_BY_US] if home.is_dir() else []
    if there or ((home / "store").is_dir() and any((home / "store").iterdir())):
        what = there[0] if there else "store"
        raise CannotDo(
            f"The home {home} is not empty ({what} is there). A backup is restored into an empty one, so that nothing "
            "is lost: move this one away, or name another by --home."
        )


def _unpack(file: Path, stage: Path) -> dict[str, Any]:
    """Write what is in a backup below a folder, and check all of it against its manifest, which is given."""
    found: dict[str, list[Any]] = {}
    manifest: dict[str, Any] | None = None
    try:
        with tarfile.open(file, mode="r:") as tar:
            for member in tar:
                content = tar.extractfile(member) if _is_plain(member) else None
                if content is None:
                    raise Damaged(file, f"{member.name[:100]!r} in it is not a plain file")
                if member.name == MANIFEST:
                    manifest = _manifest(file, content.read(LARGEST_MANIFEST))
                elif not _is_allowed(member, stage) or member.name in found:
                    raise Damaged(file, f"{member.name[:100]!r} does not belong into it")
                else:
                    found[member.name] = _write(stage / member.name, content)
    except tarfile.TarError as error:
        raise Damaged(file, f"it cannot be read ({error})") from error
    if manifest is None:
        raise Damaged(file, "its end is missing")
    told: dict[str, list[Any]] = manifest["files"]
    for name in sorted(told.keys() | found.keys()):
        if told.get(name) != found.get(name):
            how = "is missing" if name not in found else "was added" if name not in told else "was changed"
            raise Damaged(file, f"{name} {how}")
    if database.NAME not in found:
        raise Damaged(file, "there is no database in it")
    return manifest


def _is_plain(member: tarfile.TarInfo) -> bool:
    return member.type in {tarfile.REGTYPE, tarfile.AREGTYPE} and member.sparse is None


def _is_allowed(member: tarfile.TarInfo, stage: Path) -> bool:
    """Whether it may be written: one of our names, below the folder, by our rules and by those of Python."""
    if not ALLOWED.fullmatch(member.name) or {".", ".."} & {*member.name.split("/")}:
        return False
    try:
        tarfile.data_filter(member, str(stage))
    except tarfile.FilterError:
        return False
    return (stage / member.name).resolve().is_relative_to(stage.resolve())


def _manifest(file: Path, content: bytes) -> dict[str, Any]:
    try:
        found = json.loads(content)
    except ValueError:
        raise Damaged(file, "its manifest cannot be read") from None
    if not isinstance(found, dict) or found.get("schema") != SCHEMA or not isinstance(found.get("files"), dict):
        raise Damaged(file, f"its manifest is not of the kind {SCHEMA}")
    return found


def _write(path: Path, content: IO[bytes]) -> list[Any]:
    """Write a file; its size and hash."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    digest, size = hashlib.sha256(), 0
    with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as out:
        while piece := content.read(PIECE):
            digest.update(piece)
            size += out.write(piece)
    return [size, digest.hexdigest()]


def _put_in_place(home: Path, stage: Path, manifest: dict[str, Any]) -> Restored:
    """Move what was unpacked to where it belongs; the database last: with it the home is whole."""
    if (stage / SETTINGS_FILE).exists():
        (stage / SETTINGS_FILE).replace(home / SETTINGS_FILE)
    try:
        for memory in (home / "services").glob("*.edition"):
            memory.unlink()  # of an earlier life: what replays here was not rehearsed yet
        folder = folder_of(load_settings(home).store)
        if (stage / "store").exists():
            _place_store(stage / "store", folder)
        for name in VERSION_FILE, database.NAME:
            if (stage / name).exists():
                (stage / name).replace(home / name)
    except BaseException:
        (home / SETTINGS_FILE).unlink(missing_ok=True)
        raise
    os.sync()
    names = manifest["files"]
    runs = sum(name.startswith("store/runs/") and name.endswith("/manifest.json") for name in names)
    return Restored(str(manifest["made"]), runs, [str(run) for run in manifest["open_runs"]], manifest["store"])


def _place_store(staged: Path, folder: Path | None) -> None:
    if folder is None:
        raise CannotDo(
            "The backup has a store in a folder, and the settings name one in a bucket. Unset NIGHTCREW_STORE, "
            "restore, and copy the folder into the bucket after that."
        )
    if folder.exists() and any(folder.iterdir()):
        raise CannotDo(f"The store {folder} is not empty. Move it away, or name another by NIGHTCREW_STORE.")
    if folder.exists():
        folder.rmdir()
    folder.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(staged, folder)
    folder.chmod(0o700)
