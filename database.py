"""The database of a home's own Temporal server: a SQLite file. It is copied while it is written, and looked at."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

NAME = "temporal.db"
PARTS = (NAME, f"{NAME}-wal", f"{NAME}-shm")
NOT_SOUND = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})

OPEN = "SELECT workflow_id FROM current_executions WHERE status = 1"
OF_OTHERS = ("temporal-sys-", "quota:")
"""What begins so is no run: workflows of Temporal itself, and the banks. Tasks have a slash in their ids."""


def copy_database(file: Path, target: Path) -> datetime:
    """Copy it by SQLite itself, whoever writes meanwhile; gives the moment that the copy shows.

    The moment is fixed first, by a read transaction, and the copy is made inside of it. Copying the file would miss
    what is still in the journal beside it, which may be all of it.
    """
    with _opened(file) as live, closing(sqlite3.connect(target)) as copy:
        live.execute("BEGIN")
        live.execute("SELECT count(*) FROM sqlite_master").fetchone()
        moment = datetime.now(UTC)
        live.backup(copy)
        live.rollback()
        copy.execute("PRAGMA journal_mode = DELETE")  # one file, with nothing beside it
    return moment


def why_damaged(file: Path, *, thorough: bool = False) -> str | None:
    """What is wrong with it, if anything is. Not thorough: without a look whether every index fits its table.

    SQLite has no checksums: that a letter inside of a value has changed nobody can tell.
    """
    check = "integrity_check" if thorough else "quick_check"
    try:
        with _opened(file) as database:
            (found,) = database.execute(f"PRAGMA {check}(1)").fetchone()
            if found != "ok":
                return str(found).splitlines()[-1]
            if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'current_executions'").fetchone():
                return "its tables are gone"
    except sqlite3.DatabaseError as error:
        # What is locked or cannot be opened now is not damaged: the server itself tells more of that.
        return str(error) if (error.sqlite_errorcode & 0xFF) in NOT_SOUND else None
    return None


def open_runs(file: Path) -> list[str]:
    """The runs that it has open, by its own word; none when there is no such file."""
    if not file.exists():
        return []
    with _opened(file) as database:
        found = [str(id) for (id,) in database.execute(OPEN)]
    return sorted(id for id in found if "/" not in id and not id.startswith(OF_OTHERS))


def size_of(home: Path) -> int:
    """Bytes of the database with its journal."""
    return sum((home / part).stat().st_size for part in PARTS[:2] if (home / part).exists())


@contextmanager
def _opened(file: Path) -> Iterator[sqlite3.Connection]:
    """The database for reading; nothing in it is changed."""
    with closing(sqlite3.connect(f"file:{quote(str(file))}?mode=ro", uri=True, timeout=10)) as database:
        yield database
