"""The signs, colours and words that every screen has in common."""

from __future__ import annotations

from rich.text import Text

from domain.models import RunStatus, TaskStatus
from domain.progress import Census
from terminal.text import plain

STYLES = {
    "SUCCEEDED": "green",
    "COMPLETED": "bold green",
    "RUNNING": "cyan",
    "WAITING": "yellow",
    "PAUSED": "bold yellow",
    "READY": "white",
    "PENDING": "dim",
    "FAILED": "bold red",
    "TIMED_OUT": "red",
    "PLANNING": "cyan",
    "SKIPPED": "magenta",
    "CANCELLED": "magenta",
    "NOT_STARTED": "dim",
    "DEGRADED": "bold yellow",
    "PARTIAL": "bold yellow",
    "STALLED": "bold red",
    "DEADLINE_PASSED": "bold red",
    "BUDGET_STOPPED": "bold red",
}
SIGNS = {
    TaskStatus.SUCCEEDED: "✓",
    TaskStatus.RUNNING: "●",
    TaskStatus.WAITING: "◷",
    TaskStatus.READY: "○",
    TaskStatus.PENDING: "·",
    TaskStatus.FAILED: "✗",
    TaskStatus.TIMED_OUT: "✗",
    TaskStatus.SKIPPED: "↷",
    TaskStatus.CANCELLED: "■",
    TaskStatus.NOT_STARTED: "□",
}
RUN_SIGNS = {
    RunStatus.COMPLETED: "✓",
    RunStatus.DEGRADED: "◐",
    RunStatus.PARTIAL: "◐",
    RunStatus.FAILED: "✗",
    RunStatus.CANCELLED: "■",
    RunStatus.PAUSED: "‖",
    RunStatus.WAITING: "◷",
    RunStatus.PLANNING: "●",
    RunStatus.RUNNING: "●",
    RunStatus.STALLED: "!",
    RunStatus.DEADLINE_PASSED: "◔",
    RunStatus.BUDGET_STOPPED: "$",
}


def mode_of(*, simulated: bool, provider: str | None) -> Text:
    """The word that every screen shows; of a live run also who is asked, and paid."""
    words = mode_words(simulated=simulated, provider=provider)
    return Text(f" {words} ", "black on yellow" if simulated else "white on red")


def mode_words(*, simulated: bool, provider: str | None) -> str:
    """The same in plain words."""
    return "SIMULATED" if simulated else f"LIVE {plain(provider)}" if provider else "LIVE"


def status_text(status: RunStatus | TaskStatus) -> Text:
    """A state in its colour."""
    return Text(status.value, STYLES.get(status.value, ""))


def words_of(status: TaskStatus) -> str:
    """A state as a word in a sentence: timed out, not started."""
    return "at work" if status is TaskStatus.RUNNING else status.value.lower().replace("_", " ")


def census_words(census: Census) -> str:
    """How far some tasks are, in a line."""
    counts = census.model_dump()
    states = [status for status in TaskStatus if counts[status.value.lower()]]
    words = ", ".join(f"{counts[status.value.lower()]:,} {words_of(status)}" for status in states)
    return f"{census.ended:,} of {census.total:,} ended: {words}"
