"""How fast a run was, where its time went and what to set next time, in two lines."""

from __future__ import annotations

from collections.abc import Iterator

from domain.report import Report
from terminal.text import counted, seconds

NAMES = {
    "critical_path_s": "work",
    "quota_wait_s": "quota",
    "slot_wait_s": "places",
    "person_wait_s": "people",
    "other_s": "other",
}
"""What each part of the time is called."""

SHOWN_FROM = 0.05
"""Seconds below which a part is left out: it would read 0.0 s."""


def tempo_lines(report: Report) -> Iterator[str]:
    """The lines, when there is something to say: one task alone is as fast as one at a time."""
    concurrency = report.concurrency
    if concurrency.speedup is None or report.census.total == 1:
        return
    at_once = f"with at most {counted(concurrency.peak, 'task')} at once"
    yield f"{concurrency.speedup:.1f} times as fast as one at a time, {at_once}.{_next_time(report)}"
    parts = concurrency.serial.model_dump().items()
    went = [f"{NAMES[part]} {seconds(length)}" for part, length in parts if length >= SHOWN_FROM]
    if went:
        yield f"Where the time went: {', '.join(went)}."


def _next_time(report: Report) -> str:
    """The setting for the next run of the plan, when this one has ended and another would suit it better."""
    suggested = report.concurrency.suggested
    if report.finished is None or suggested in {None, report.concurrency.max}:
        return ""
    return f" Next time: --max-concurrency {suggested}."
