"""Which Temporal server a database belongs to: another version opens it only when no run is open.

Nothing upstream checks that a SQLite file fits the server, and nothing leads back from a newer one.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import database
from private_files import read_text, write_private
from runtime import CannotDo

VERSION_FILE = "temporal.version"
"""Which server has written the database. Where there is none, no server has ever been ready."""


def check_server(home: Path, binary: str, *, anyway: bool = False) -> None:
    """Refuse a server of another version than the one that has runs open in the database of the home."""
    before, now = read_text(home / VERSION_FILE).strip(), version_of(binary)
    if anyway or not (before and now) or before == now:
        return
    if count := len(database.open_runs(home / database.NAME)):
        raise CannotDo(
            f"The Temporal server was changed from {before} to {now}, and {count} run{'s are' if count > 1 else ' is'} "
            f"open in this home. Go back to the version of Nightcrew that has server {before}, say `up`, and let "
            "them end there or cancel them. `up --anyway` lets the other server open the database all the same; make "
            "a backup of the home before."
        )


def note_server(home: Path, version: str) -> None:
    """Write down by which server the database is written from now on."""
    write_private(home / VERSION_FILE, f"{version}\n")


def version_of(binary: str) -> str | None:
    """The version of the server in Temporal's command; `None` when it does not say."""
    said = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=20, check=False).stdout
    found = re.search(r"Server (\d[\w.+-]*)", said)
    return found[1] if found else None
