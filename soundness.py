"""Whether the database of a home is there and whole: looked at before each start of its server.

A server that finds a damaged file may go on with half of it, and one that finds none begins a new one in silence, with
no run in it. Both are worse than not to start.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import database
from last_backups import known_backups
from runtime import ROOT, CannotDo
from server_version import VERSION_FILE


def check_database(home: Path) -> None:
    """Refuse a database that is gone or damaged."""
    file = home / database.NAME
    if not (home / VERSION_FILE).exists():
        return  # no server has ever been ready here
    if not file.exists():
        raise CannotDo(f"The database of this home ({file}) is gone. {_remedy(home)}")
    if why := database.why_damaged(file):
        raise CannotDo(f"The database of this home ({file}) is damaged: {why}. {_remedy(home)}")


def _remedy(home: Path) -> str:
    """Which backup to restore, and how."""
    known = known_backups(home)
    if not known:
        return (
            "No backup of it is known here. If you have one: move this home away, and restore it. Without one, what "
            "the store has can still be read: results, events, what was paid."
        )
    last = known[-1]
    starter = shlex.quote(str(ROOT / "starter.py"))
    place, file = shlex.quote(str(home)), shlex.quote(last["file"])
    return (
        f"Its last backup is {last['file']}, of {last['made'][:19]}Z: "
        f"mv {place} {place}.damaged && {starter} --home {place} restore {file}"
    )
