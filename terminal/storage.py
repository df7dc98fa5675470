"""The commands that keep a home, bring it back and clear it up. Heavy imports are inside, as those of all commands."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from terminal.said import Said, do, hear, session
from terminal.words import Home, Json, age_of

BackupFile = Annotated[Path, typer.Argument(metavar="FILE", help="The backup.")]


def backup(file: BackupFile, home: Home = None, json: Json = False) -> int:
    """Write database, store and settings of this home into one file, also while runs go on."""
    hear(home, json)
    from terminal import keeping

    return keeping.backup(session(), file, as_json=Said.json)


def restore(file: BackupFile, home: Home = None, json: Json = False) -> int:
    """Make an empty home what it was when a backup was written."""
    hear(home, json)
    from terminal import keeping

    return do(keeping.restore(session(), file, as_json=Said.json))


def prune(
    older_than: Annotated[str, typer.Option("--older-than", metavar="30d", help="Of runs that ended before that.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", metavar="", help="Say what would go, remove nothing.")] = False,
    home: Home = None,
    json: Json = False,
) -> int:
    """Remove ended runs, with what was said and paid in them, and say what became free."""
    hear(home, json)
    from terminal import keeping

    return do(keeping.prune(session(), age_of(older_than), dry_run=dry_run, as_json=Said.json))


COMMANDS: dict[str, Callable[..., int]] = {"backup": backup, "restore": restore, "prune": prune}
