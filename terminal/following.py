"""Staying with a run until it ends: the live view, then the report."""

from __future__ import annotations

import sys
from datetime import timedelta

from rich.console import Console

from client import RunClient
from domain.models import RunStatus
from domain.report import Report
from terminal.goal_words import words_of_planner
from terminal.outcome import Exit, exit_for, print_json, print_line
from terminal.session import Session
from terminal.show import show_report
from terminal.watching import Left, Watcher

CLOSE_PATIENCE = timedelta(seconds=30)
"""For Temporal to close a run whose last word is told."""


async def follow(
    session: Session, client: RunClient, run: str, limit: timedelta | None, *, as_json: bool, as_lines: bool = False
) -> Exit:
    """Watch a run and tell how it ended: in a report or, as JSON Lines, in the last of them."""

    def trouble() -> str | None:
        seen = watcher.picture
        return session.trouble(simulated=seen.simulated) if seen is not None and not seen.ended else None

    watcher = Watcher(client, run, trouble, starter=session.starter, tell=print_line if as_lines else None)
    left = await watcher.follow(limit)
    if left is Left.DETACHED:
        sys.stderr.write(
            f"{trouble()}\n"
            if trouble()
            else "The run goes on. To come back to it, to end it, to stop this home:\n"
            f"  {session.starter} watch {run}\n"
            f"  {session.starter} result {run} --wait\n"
            f"  {session.starter} cancel {run}\n"
            f"  {session.starter} down\n"
        )
        return Exit.INTERRUPTED
    picture = watcher.picture or await client.picture(run)
    if left is Left.ENDED and client.online:
        await client.until_closed(run, CLOSE_PATIENCE)
    if not as_lines:
        report = await client.report(picture)
        hints = ["In the Temporal Web UI:", f"  {session.starter} open {run}"]
        if picture.ended and picture.status is not RunStatus.COMPLETED:
            more = " --budget USD" if picture.status is RunStatus.BUDGET_STOPPED else ""
            again = f"  {session.starter} retry {run}{more}"
            hints = ["Do again what did not succeed, and keep the rest:", again, *hints]
        if not as_json:
            hints = [*await words_of_planner(client, picture), *hints]
        show(session, report, as_json=as_json, hints=hints)
    if left is Left.TIME:
        sys.stderr.write(f"Stopped waiting; the run goes on. `{session.starter} result {run} --wait` waits again.\n")
        return Exit.NOT_FINISHED
    return exit_for(picture.status)


def show(session: Session, report: Report, *, as_json: bool, hints: list[str]) -> None:
    """The report on stdout, for a script or for a person."""
    if as_json:
        print_json(report.document())
    else:
        show_report(Console(), report, hints=hints, starter=session.starter)
