"""What a shell offers after a Tab. It must answer at once, so it looks at the folder and imports nothing heavy."""

from __future__ import annotations

import json
import os
from pathlib import Path

import typer

ROOT = Path(__file__).resolve().parent.parent
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
        digest = _plan_ref(run).removeprefix("sha256:")
        plan = json.loads((_runs().parent / "artifacts" / digest[:2] / digest).read_text("utf-8"))
        return [task["id"] for task in plan["tasks"] if task["id"].startswith(incomplete)]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def playbooks(incomplete: str) -> list[str]:
    """Names of the shipped playbooks and of those of the home."""
    folders = (ROOT / "playbooks", _home() / "playbooks")
    return sorted(
        {file.stem for folder in folders for file in folder.glob("*.yaml") if file.stem.startswith(incomplete)}
    )


def _plan_ref(run: Path) -> str:
    """The last plan of a run: it may have been changed since it was submitted."""
    for segment in sorted((run / "events").glob("*.jsonl"), reverse=True):
        changes = [json.loads(line) for line in segment.read_text("utf-8").splitlines() if '"plan.changed"' in line]
        if changes:
            return str(changes[-1]["data"]["plan_ref"])
    return str(json.loads((run / "manifest.json").read_text("utf-8"))["plan_ref"])


def _runs() -> Path:
    return _home() / "store" / "runs"


def _home() -> Path:
    return Path(os.environ.get("NIGHTCREW_HOME") or ROOT / ".nightcrew")
