"""Where the backups of a home are, remembered for the day on which one is needed."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from private_files import read_object, write_private

KNOWN = "backups.json"
MOST = 10


def remember(home: Path, file: Path, made: datetime) -> None:
    """Write down that there is one. A home that cannot be written was backed up all the same."""
    known = [each for each in known_backups(home) if each["file"] != str(file)]
    known.append({"file": str(file), "made": made.isoformat()})
    with suppress(OSError):
        write_private(home / KNOWN, json.dumps({"backups": known[-MOST:]}))


def known_backups(home: Path) -> list[dict[str, str]]:
    """The last backups of a home that are still where they were written, oldest first."""
    found = read_object(home / KNOWN).get("backups", [])
    return [each for each in found if isinstance(each, dict) and Path(str(each.get("file"))).is_file()]
