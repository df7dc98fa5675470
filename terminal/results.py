"""`result`: the report of a run, its texts, or its files."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path

from client import RunClient
from domain.picture import Picture
from domain.report import Report
from terminal.following import show
from terminal.looking import task_of
from terminal.outcome import Exit, Refusal, exit_for, print_json
from terminal.session import Session
from terminal.text import plain
from terminal.watching import Left, Watcher


async def result(
    session: Session,
    words: str,
    task: str | None,
    *,
    wait: bool,
    limit: timedelta | None,
    text: bool,
    save: Path | None,
    as_json: bool,
) -> Exit:
    """The report of a run, or the text of it."""
    client = await session.reader()
    run = await client.resolve(words)
    picture = await client.picture(run)
    session.check_current(client, picture)
    if wait and not picture.ended:
        watcher = Watcher(client, run, lambda: session.trouble(simulated=picture.simulated), starter=session.starter)
        if await watcher.follow(limit) is Left.DETACHED:
            return Exit.INTERRUPTED
        picture = watcher.picture or picture
    report = await client.report(picture)
    if task is not None:
        task_of(report, task)  # it must be one
    if save is not None:
        try:
            count = await _save(client, picture, save, task)
        except OSError as error:
            message = f"{save} cannot be written: {error.strerror}. Name another folder."
            raise Refusal(message, code="unwritable", exit=Exit.CANNOT) from None
        sys.stderr.write(f"{count} files written to {save}\n")
    if not as_json and (text or task is not None):
        await _print_text(client, picture, [task] if task is not None else list(report.outputs), report)
    elif task is not None:
        print_json(task_of(report, task))
    else:
        show(session, report, as_json=as_json, hints=[])
    return exit_for(report.status)


async def _print_text(client: RunClient, picture: Picture, tasks: list[str], report: Report) -> None:
    """The texts on stdout; of a task that has none, the reason on stderr."""
    entries = {entry.id: entry for entry in report.tasks}
    for id in tasks:
        ref = picture.tasks[id].output_ref
        if not entries[id].success:
            error = entries[id].error
            why = f", {plain(error.message)}" if error else ""
            kept = "; what there is of its answer follows" if ref else ""
            sys.stderr.write(f"{plain(id)}: {entries[id].status}{why}{kept}\n")
        if ref is not None:
            heading = f"{id}:\n" if len(tasks) > 1 else ""
            sys.stdout.write(f"{heading}{plain(await client.text(ref)).rstrip()}\n" + ("\n" if len(tasks) > 1 else ""))


async def _save(client: RunClient, picture: Picture, folder: Path, only: str | None) -> int:
    """One file per task that has an output, or that of one task alone; what does not count is named so.

    Names are made from ids, with all that a path could misread replaced.
    """
    folder.mkdir(parents=True, exist_ok=True)
    outputs = [
        (position, id, task.output_ref, ".partial" if task.partial else "")
        for position, (id, task) in enumerate(picture.tasks.items(), start=1)
        if task.output_ref is not None and only in (None, id)
    ]
    for position, id, ref, partial in outputs:
        name = "".join(letter if letter.isalnum() or letter in "-_" else "_" for letter in id)[:80].strip("_")
        (folder / f"{position:03}-{name}{partial}.md").write_text(await client.text(ref) + "\n", encoding="utf-8")
    return len(outputs)
