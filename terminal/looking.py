"""`status` and `watch`: a run as it is, and as it goes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from rich.console import Console

from client import RunClient
from domain.picture import Picture
from domain.report import Report
from terminal.following import follow as follow_run
from terminal.outcome import Exit, print_json
from terminal.reviews import with_words, words_of_reviews
from terminal.session import Session
from terminal.show import show_report
from terminal.show_task import show_question, show_task
from terminal.tasks import unknown_task


async def status(session: Session, words: str, task: str | None, *, as_json: bool) -> Exit:
    """One picture now; of one task, all that is known of it."""
    client = await session.reader()
    picture = await client.picture(await client.resolve(words))
    session.check_current(client, picture)
    report = await client.report(picture)
    if task is not None:
        await _show_task(session, client, picture, report, task, as_json=as_json)
    elif as_json:
        print_json(report.document())
    else:
        show_report(Console(), report, hints=[], starter=session.starter)
    return Exit.DONE


async def watch(session: Session, words: str, limit: timedelta | None, *, as_json: bool) -> Exit:
    """A run that somebody started, live; with `as_json` as JSON Lines."""
    client = await session.reader()
    run = await client.resolve(words)
    if not client.online:
        session.check_current(client, await client.picture(run))
    return await follow_run(session, client, run, limit, as_json=as_json, as_lines=as_json)


async def _show_task(
    session: Session, client: RunClient, picture: Picture, report: Report, task: str, *, as_json: bool
) -> None:
    found = task_of(report, task)
    inputs, brief = picture.inputs(task), await client.brief(picture, task)
    entry = next(entry for entry in report.tasks if entry.id == task)
    words = await words_of_reviews(client, entry)
    if as_json:
        print_json(
            {**with_words(found, words), "inputs": [input.model_dump(mode="json") for input in inputs], "brief": brief}
        )
        return
    show_task(Console(), entry, picture.planned[task], inputs, brief, reviews=words)
    if entry.wait is not None and entry.wait.reason == "approval":
        show_question(Console(), picture.run, entry, picture.planned[task], session.starter)


def task_of(report: Report, task: str) -> dict[str, Any]:
    """One task of a report as a document; a refusal when there is none of that name."""
    found = next((entry for entry in report.tasks if entry.id == task), None)
    if found is None:
        raise unknown_task(report.run, task, [entry.id for entry in report.tasks])
    return {"schema": "nightcrew.task/1", "run": report.run, **found.model_dump(mode="json", by_alias=True)}
