"""What a shell offers after a Tab. It must answer at once, so it looks at the folder and imports nothing heavy."""

from __future__ import annotations

import json
import os
from pathlib import Path

import typer

NEWEST = 50
"""Runs that are offered: the newest ones, of a home that may have thousands."""


def runs(incomplete: str) -> list[str]:
    """Ids of runs in the home's own store, newest first, and `latest`."""
    try:
        folders = sorted(_runs().iterdir(), key=lambda folder: folder.stat().st_mtime, reverse=True)
    except OSError:
        folders = []
    return [name for name in ("latest", *(folder.name for folder in folders[:NEWEST])) if name.startswith(incomplete)]


def tasks(ctx: typer.Context, incomplete: str) -> list[str]:
    """Ids of the tasks of the run that was named before, from its plan in the home's own store."""
    try:
        run = _runs() / str(ctx.params.get("run"))
        digest = json.loads((run / "manifest.json").read_text("utf-8"))["plan_ref"].removeprefix("sha256:")
        plan = json.loads((_runs().parent / "artifacts" / digest[:2] / digest).read_text("utf-8"))
        return [task["id"] for task in plan["tasks"] if task["id"].startswith(incomplete)]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _runs() -> Path:
    home = os.environ.get("NIGHTCREW_HOME") or Path(__file__).resolve().parent.parent / ".nightcrew"
    return Path(home) / "store" / "runs"
