"""A home is copied while runs go on, comes back whole, and goes on; what is damaged is refused with what mends it."""

from __future__ import annotations

import asyncio
import io
import json
import os
import sqlite3
import stat
import tarfile
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from processes import Done, Home

import database
from backing_up import MANIFEST, back_up
from embedded import all_services, down
from runtime import CannotDo, load_settings

SLOW = """
name: slow
max_concurrency: 4
tasks:
  - {id: early, agent: writer, for_each: [1, 2, 3, 4], prompt: Go.}
  - {id: late, agent: writer, needs: [early], approval: {ask: "Now?"}, prompt: Go on.}
  - {id: last, agent: writer, needs: [late], prompt: Sum up.}
"""


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[Home]:
    found = Home(load_settings(tmp_path / "home"))
    try:
        yield found
    finally:
        await down(found.settings)


@pytest.fixture
async def other(tmp_path: Path) -> AsyncIterator[Home]:
    """Another home, to restore to."""
    found = Home(load_settings(tmp_path / "other"))
    try:
        yield found
    finally:
        await down(found.settings)


def plan(folder: Path, text: str = SLOW) -> str:
    file = folder / "plan.yaml"
    file.write_text(text)
    return str(file)


async def status(home: Home, run: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((await home.starter("status", run, "--json")).stdout)
    return found


async def until_waiting(home: Home, run: str) -> None:
    while (await status(home, run))["status"] != "WAITING":
        pass


def paid(*homes: Home) -> list[str]:
    """The bill: the task of every call that a simulator has answered."""
    bills = [home.folder / "simulator.jsonl" for home in homes]
    lines = [line for bill in bills if bill.exists() for line in bill.read_text().splitlines()]
    return sorted(json.loads(line)["task"] for line in lines)


async def test_a_home_is_backed_up_while_a_run_goes_on_and_another_goes_on_from_there(
    home: Home, other: Home, tmp_path: Path
) -> None:
    """B5. What was paid before the backup is not paid again; results, events and the question are there."""
    run = (await home.starter("submit", plan(tmp_path), "--id", "slow")).stdout.strip()
    await until_waiting(home, run)
    (home.folder / "nightcrew.toml").write_text("reserve_mb = 100\n")
    file = tmp_path / "night.tar"

    made = await home.starter("backup", str(file), "--json")
    await home.starter("down")
    restored = await other.starter("restore", str(file), "--json")
    went_on = await other.starter("up")
    await other.starter("approve", run, "late")
    ended = await other.starter("result", run, "--wait", "--json")

    assert (made.code, restored.code, went_on.code, ended.code) == (0, 0, 0, 0), restored.stderr
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert json.loads(made.stdout)["open_runs"] == json.loads(restored.stdout)["open_runs"] == [run]
    assert f"goes on: {run}" in went_on.stdout
    assert (other.folder / "nightcrew.toml").read_text() == "reserve_mb = 100\n"
    assert paid(home) == ["early[1]", "early[2]", "early[3]", "early[4]"]
    assert paid(other) == ["last", "late"]
    report = json.loads(ended.stdout)
    assert report["status"] == "COMPLETED"
    assert report["census"]["succeeded"] == 6
    numbers = [int(json.loads(line)["id"].rpartition("/")[2]) for line in (await events(other, run)).splitlines()]
    assert numbers == [*range(1, len(numbers) + 1)]
    trail = json.loads((await other.starter("audit", "verify", run, "--json")).stdout)
    assert (trail["whole"], trail["anchor"]["number"]) == (True, len(numbers))
    assert sorted(path.name for path in tmp_path.glob(".*night*")) == [], "nothing is left beside it"


async def events(home: Home, run: str) -> str:
    return (await home.starter("events", run, "--json")).stdout


BUSY = """
name: busy
max_concurrency: 8
tasks:
  - {id: work, agent: writer, for_each: [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t], prompt: Go.}
  - {id: more, agent: writer, for_each: [a, b, c, d, e, f, g, h, i, j], needs: [work], prompt: Go.}
"""


async def test_backups_of_a_busy_home_are_each_whole(home: Home, other: Home, tmp_path: Path) -> None:
    """Taken one after the other while tasks run. From any of them the run comes to its end, and its log has no gap."""
    assert (await home.starter("up")).code == 0
    home.script(ttft=2)
    run = (await home.starter("submit", plan(tmp_path, BUSY), "--id", "busy")).stdout.strip()
    files: list[Path] = []
    while not (home.folder / "store" / "runs" / run / "end.json").exists():
        files.append(tmp_path / f"{len(files)}.tar")
        await asyncio.to_thread(back_up, home.settings, files[-1], "test")
        await asyncio.sleep(0.5)
    await home.starter("down")
    with_work = [file for file in files if open_in(file)]
    assert with_work
    file = with_work[len(with_work) // 2]

    assert (await other.starter("restore", str(file))).code == 0
    known = completed_in(other.folder)
    assert (await other.starter("up")).code == 0
    ended = await other.starter("result", run, "--wait", "--json")

    report = json.loads(ended.stdout)
    assert (ended.code, report["status"], report["census"]["succeeded"]) == (0, "COMPLETED", 30)
    log = [json.loads(line) for line in (await events(other, run)).splitlines()]
    assert [int(event["id"].rpartition("/")[2]) for event in log] == [*range(1, len(log) + 1)]
    ends = [event["subject"] for event in log if event["type"] == "task.completed"]
    assert len(ends) == len({*ends}) == 30
    assert len(paid(other)) == 30 - known, "what the ledger of the backup had is not paid again"


def open_in(file: Path) -> list[str]:
    with tarfile.open(file) as tar:
        found = tar.extractfile(MANIFEST)
        assert found is not None
        runs: list[str] = json.load(found)["open_runs"]
    return runs


def completed_in(folder: Path) -> int:
    return len([*(folder / "store" / "ledger").rglob("completion.json")])


async def test_a_backup_is_refused_where_it_cannot_be_used(home: Home, tmp_path: Path) -> None:
    file = tmp_path / "night.tar"
    nothing = await home.starter("backup", str(file))
    assert (await home.starter("up")).code == 0
    assert (await home.starter("backup", str(file))).code == 0
    assert (await home.starter("backup", str(file))).code == 0  # a newer one takes its place
    (tmp_path / "letter.txt").write_text("Dear all,")
    over_a_letter = await home.starter("backup", str(tmp_path / "letter.txt"))

    while_up = await home.starter("restore", str(file))
    await home.starter("down")
    over_it = await home.starter("restore", str(file))
    nowhere = await home.starter("backup", str(tmp_path / "no" / "such" / "folder.tar"))
    missing = await home.starter("--home", str(tmp_path / "new"), "restore", str(tmp_path / "missing.tar"))

    for told, words in (
        (nothing, "nothing to back up"),
        (over_a_letter, "is no backup"),
        (while_up, "is up"),
        (over_it, "is not empty"),
        (nowhere, "cannot be written"),
        (missing, "no file"),
    ):
        assert (told.code, "Traceback" in told.stderr) == (1, False)
        assert words in told.stderr
    assert (tmp_path / "letter.txt").read_text() == "Dear all,"


# --- what is damaged ---


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A backup of a small home, made without a server: a database with one table of ours, and a store."""
    folder = tmp_path_factory.mktemp("sound")
    home = folder / "home"
    (home / "store" / "artifacts" / "ab").mkdir(parents=True)
    (home / "store" / "artifacts" / "ab" / "abcd").write_bytes(b"an answer" * 1000)
    (home / "store" / "runs" / "run-1").mkdir(parents=True)
    (home / "store" / "runs" / "run-1" / "manifest.json").write_text("{}")
    with closing(sqlite3.connect(home / database.NAME)) as live:
        live.execute("PRAGMA journal_mode = WAL")
        live.execute("CREATE TABLE current_executions (workflow_id TEXT, status INT)")
        live.executemany("INSERT INTO current_executions VALUES (?, 2)", [("x" * 50,)] * 2000)
        live.commit()
    return back_up(load_settings(home), folder / "sound.tar", "test").file


def member(tar: tarfile.TarFile, name: str) -> tarfile.TarInfo:
    return tar.getmember(name)


def rewritten(source: Path, target: Path, change: Callable[[tarfile.TarInfo, bytes], list[tuple[Any, bytes]]]) -> None:
    with tarfile.open(source) as old, tarfile.open(target, "w") as new:
        for found in old:
            content = old.extractfile(found)
            for info, data in change(found, content.read() if content else b""):
                info.size = len(data)
                new.addfile(info, io.BytesIO(data))


def info(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, link
    return made


CHANGES: dict[str, tuple[Callable[[tarfile.TarInfo, bytes], list[tuple[Any, bytes]]], str]] = {
    "a content that was changed": (
        lambda found, data: [(found, b"y" + data[1:] if found.name.endswith("abcd") else data)],
        "store/artifacts/ab/abcd was changed",
    ),
    "a file that is missing": (
        lambda found, data: [] if found.name.endswith("abcd") else [(found, data)],
        "store/artifacts/ab/abcd is missing",
    ),
    "a file that was added": (
        lambda found, data: (
            [(info("store/artifacts/ab/more"), b"x")] if found.name == MANIFEST else []
        ) + [(found, data)],
        "store/artifacts/ab/more was added",
    ),
    "no manifest": (lambda found, data: [] if found.name == MANIFEST else [(found, data)], "its end is missing"),
    "a way up": (lambda found, data: [(info("../escaped"), b"x"), (found, data)], "'../escaped' does not belong"),
    "a way up inside": (
        lambda found, data: [(info("store/../../escaped"), b"x"), (found, data)],
        "'store/../../escaped' does not belong",
    ),
    "a way from the root": (lambda found, data: [(info("/tmp/escaped"), b"x"), (found, data)], "does not belong"),  # noqa: S108
    "a link": (
        lambda found, data: [(info("store/link", tarfile.SYMTYPE, "/etc"), b""), (found, data)],
        "'store/link' in it is not a plain file",
    ),
    "a hard link": (
        lambda found, data: [(found, data), (info("store/hard", tarfile.LNKTYPE, "/etc/passwd"), b"")],
        "'store/hard' in it is not a plain file",
    ),
    "a device": (lambda found, data: [(info("store/device", tarfile.CHRTYPE), b""), (found, data)], "not a plain file"),
    "another program's file": (lambda found, data: [(info("services/x"), b"1"), (found, data)], "does not belong"),
    "a file twice": (lambda found, data: [(found, data), (found, data)], "does not belong"),
}  # fmt: skip


@pytest.mark.parametrize("case", CHANGES)
async def test_a_backup_that_was_changed_is_refused_by_name(sound: Path, tmp_path: Path, case: str) -> None:
    """S8: and nothing of it is written, neither in the home nor anywhere else."""
    change, words = CHANGES[case]
    file, folder = tmp_path / "changed.tar", tmp_path / "new"
    rewritten(sound, file, change)

    from restoring import restore

    with pytest.raises(CannotDo, match=".*".join(map(escaped, [str(file), words]))):
        await restore(load_settings(folder), file)

    left = [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file() and path != file]
    assert left == ["new/services/turn.lock"]


def escaped(words: str) -> str:
    import re

    return re.escape(words)


@pytest.mark.parametrize("how", ["half", "header", "text", "empty"])
async def test_a_file_that_is_no_backup_is_refused(sound: Path, tmp_path: Path, how: str) -> None:
    content = sound.read_bytes()
    file = tmp_path / "broken.tar"
    file.write_bytes(
        {
            "half": content[: len(content) // 2],
            "header": b"\xff" * 512 + content[512:],
            "text": b"no tar at all",
            "empty": b"",
        }[how]
    )

    from restoring import restore

    with pytest.raises(CannotDo, match="is damaged or none"):
        await restore(load_settings(tmp_path / "new"), file)


async def test_a_database_that_is_not_sound_is_not_restored(sound: Path, tmp_path: Path) -> None:
    """A backup that was whole by its hashes, of a database that was not."""
    import hashlib

    broken: dict[str, bytes] = {}

    def change(found: tarfile.TarInfo, data: bytes) -> list[tuple[Any, bytes]]:
        if found.name == database.NAME:
            data = broken["db"] = data[:8192] + b"\xff" * 4096 + data[12288:]
        if found.name == MANIFEST:
            manifest = json.loads(data)
            manifest["files"][database.NAME] = [len(broken["db"]), hashlib.sha256(broken["db"]).hexdigest()]
            data = json.dumps(manifest).encode()
        return [(found, data)]

    file = tmp_path / "broken.tar"
    rewritten(sound, file, change)

    from restoring import restore

    with pytest.raises(CannotDo, match="its database is not sound"):
        await restore(load_settings(tmp_path / "new"), file)


async def test_a_sound_backup_is_restored(sound: Path, tmp_path: Path) -> None:
    from restoring import restore

    rehearsed = tmp_path / "new" / "services" / "nightcrew.edition"  # of a home that was emptied by hand
    rehearsed.parent.mkdir(parents=True)
    rehearsed.write_text("whatever ran here before")

    found = await restore(load_settings(tmp_path / "new"), sound)

    assert found.runs == 1
    assert not rehearsed.exists()
    with closing(sqlite3.connect(tmp_path / "new" / database.NAME)) as restored:
        assert restored.execute("SELECT count(*) FROM current_executions").fetchone() == (2000,)
    assert (tmp_path / "new" / "store" / "artifacts" / "ab" / "abcd").read_bytes() == b"an answer" * 1000
    new = tmp_path / "new"
    private = [*new.iterdir(), *(path for path in new.rglob("*") if path.is_file())]
    assert {stat.S_IMODE(path.stat().st_mode) & 0o077 for path in private} == {0}


def test_the_copy_shows_one_moment_whoever_writes_meanwhile(tmp_path: Path) -> None:
    """And what is in the journal beside the file alone is in it."""
    file, target = tmp_path / "live.db", tmp_path / "copy.db"
    with closing(sqlite3.connect(file, isolation_level=None)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("CREATE TABLE current_executions (workflow_id TEXT, status INT)")
        for number in range(50):
            writer.execute("INSERT INTO current_executions VALUES (?, 1)", [f"run-{number}"])
        assert file.stat().st_size < 10_000, "all of it is in the journal"

        database.copy_database(file, target)

        writer.execute("INSERT INTO current_executions VALUES ('later', 1)")
    assert len(database.open_runs(target)) == 50
    assert [path.name for path in tmp_path.glob("copy.db*")] == ["copy.db"]


DAMAGE: dict[str, Callable[[Path], object]] = {
    "gone": lambda file: file.unlink(),
    "truncated": lambda file: os.truncate(file, file.stat().st_size // 2 // 4096 * 4096 + 100),
    "empty": lambda file: os.truncate(file, 0),
    "no header": lambda file: flip(file, 0, 64),
    "a page flipped": lambda file: flip(file, 4096 * 3, 4096),
}


def flip(file: Path, at: int, count: int) -> None:
    with file.open("r+b") as content:
        content.seek(at)
        found = content.read(count)
        content.seek(at)
        content.write(bytes(byte ^ 0xFF for byte in found))


@pytest.fixture(scope="module")
async def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home that has been up, and is down, with a backup of it."""
    found = Home(load_settings(tmp_path_factory.mktemp("ran") / "home"))
    assert (await found.starter("up")).code == 0
    assert (await found.starter("backup", str(found.folder.parent / "last.tar"))).code == 0
    assert (await found.starter("down")).code == 0
    return found.folder


@pytest.mark.parametrize("damage", DAMAGE)
async def test_a_home_with_a_damaged_database_does_not_start_and_names_its_backup(
    ran: Path, tmp_path: Path, damage: str
) -> None:
    """B4. The command that it prints mends it."""
    import shutil
    import subprocess

    folder = tmp_path / "home"
    shutil.copytree(ran, folder)
    DAMAGE[damage](folder / database.NAME)
    for journal in folder.glob(f"{database.NAME}-*"):
        journal.unlink()
    home = Home(load_settings(folder))

    told = await home.starter("up")

    assert told.code == 1, told.stdout
    assert "is gone" in told.stderr if damage == "gone" else "is damaged" in told.stderr
    assert str(ran.parent / "last.tar") in told.stderr
    assert not any(service.is_held() for service in all_services(folder)), "nobody tries again and again"
    command = told.stderr[told.stderr.index("mv ") :].strip()
    environment = {"PATH": os.environ["PATH"], "TEMPORAL_CONFIG_FILE": os.devnull}
    mended = subprocess.run(command, shell=True, check=False, capture_output=True, text=True, env=environment)  # noqa: S602, ASYNC221
    assert mended.returncode == 0, mended.stderr
    if damage == "truncated":  # once is enough: it comes up
        assert (await home.starter("up")).code == 0
        assert (await home.starter("down")).code == 0


async def test_a_bucket_is_named_and_not_copied(home: Home, bucket: str, tmp_path: Path) -> None:
    import tarfile as tars

    environment = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    environment["NIGHTCREW_STORE"] = bucket
    assert (await home.starter("up", **environment)).code == 0

    told: Done = await home.starter("backup", str(tmp_path / "b.tar"), **environment)

    assert told.code == 0
    assert bucket in told.stderr
    with tars.open(tmp_path / "b.tar") as tar:
        assert {name.partition("/")[0] for name in tar.getnames()} == {database.NAME, "temporal.version", MANIFEST}
