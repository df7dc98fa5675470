"""What the commands do once their words are understood."""

from __future__ import annotations

import getpass
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

import embedded
from client import RunClient
from domain.events import Event, to_envelope
from domain.models import TaskStatus
from domain.planning import Planned
from domain.problems import did_you_mean
from domain.report import Picture, Report
from runtime import Mode, queue_of
from terminal.lease import Lease
from terminal.outcome import Exit, Refusal, exit_for, print_json, print_line
from terminal.session import Session, mode_now
from terminal.show import show_report, status_text
from terminal.text import one_line, plain
from terminal.watching import Left, Watcher

CLOSE_PATIENCE = timedelta(seconds=15)
"""For Temporal to close a run whose last word is told."""


async def run_plan(
    session: Session, planned: Planned, *, id: str | None, simulate: bool, limit: timedelta | None, as_json: bool
) -> Exit:
    """Up, submit, watch, report."""
    mode = mode_now(simulate=simulate)
    for warning in planned.warnings:
        sys.stderr.write(f"{warning}\n")
    _say(session, f"Starting in {session.settings.home} ...")
    async with session.up(mode):
        client = await session.client()
        run = await client.submit(planned, id=id, simulated=mode is Mode.SIMULATED, queue=queue_of(mode))
        return await _follow(session, client, run, limit, as_json=as_json)


async def _follow(session: Session, client: RunClient, run: str, limit: timedelta | None, *, as_json: bool) -> Exit:
    picture = await client.picture(run)
    watcher = Watcher(client, run, lambda: session.trouble(simulated=picture.simulated))
    left = await watcher.follow(limit)
    if left is Left.DETACHED and (trouble := session.trouble(simulated=picture.simulated)):
        sys.stderr.write(f"{trouble}\n")
        return Exit.INTERRUPTED
    if left is Left.DETACHED:
        sys.stderr.write(
            "The run goes on. To come back to it, to end it, to stop this home:\n"
            f"  {session.starter} result {run} --wait\n"
            f"  {session.starter} cancel {run}\n"
            f"  {session.starter} down\n"
        )
        return Exit.INTERRUPTED
    picture = watcher.picture or picture
    if left is Left.ENDED:
        await client.until_closed(run, CLOSE_PATIENCE)
    report = await client.report(picture)
    show(report, as_json=as_json, hints=["In the Temporal Web UI:", f"  {session.starter} open {run}"])
    if left is Left.TIME:
        sys.stderr.write(f"Stopped waiting; the run goes on. `{session.starter} result {run} --wait` waits again.\n")
        return Exit.NOT_FINISHED
    return exit_for(report.status)


async def status(session: Session, words: str, task: str | None, *, as_json: bool) -> Exit:
    """One picture now; of one task, all that is known of it."""
    client = await session.reader()
    picture = await client.picture(await client.resolve(words))
    session.check_current(client, picture)
    report = await client.report(picture)
    if task is not None:
        await _show_task(client, picture, report, task, as_json=as_json)
    elif as_json:
        print_json(report.document())
    else:
        show_report(Console(), report, hints=[])
    return Exit.DONE


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
        watcher = Watcher(client, run, lambda: session.trouble(simulated=picture.simulated))
        if await watcher.follow(limit) is Left.DETACHED:
            return Exit.INTERRUPTED
        picture = watcher.picture or picture
    report = await client.report(picture)
    if save is not None:
        try:
            count = await _save(client, picture, save)
        except OSError as error:
            message = f"{save} cannot be written: {error.strerror}. Name another folder."
            raise Refusal(message, code="unwritable", exit=Exit.CANNOT) from None
        sys.stderr.write(f"{count} files written to {save}\n")
    if task is not None:
        _task_of(report, task)
    if text or (task is not None and not as_json):
        await _print_text(client, picture, [task] if task is not None else list(report.outputs), report)
    elif task is not None:
        print_json(_task_of(report, task))
    else:
        show(report, as_json=as_json, hints=[])
    return exit_for(report.status)


async def events(
    session: Session, words: str, *, type: str | None, since: datetime | None, follow: bool, as_json: bool
) -> Exit:
    """What happened, line by line."""
    client = await session.reader()
    run = await client.resolve(words)
    follow = follow and client.online
    async for event in client.events(run, follow=follow):
        if (type is None or event.type == type) and (since is None or event.time >= since):
            if as_json:
                print_line(to_envelope(run, event))
            else:
                sys.stdout.write(f"{_event_line(event)}\n")
                sys.stdout.flush()
    return Exit.DONE


async def steer(session: Session, verb: str, words: str, *, as_json: bool) -> Exit:
    """Cancel, pause or resume a run."""
    client = await session.reader()
    run = await client.resolve(words)
    picture = await client.picture(run)
    if picture.ended:
        raise Refusal(f"{run} has ended ({picture.status}): nothing to {verb}.", code="ended", exit=Exit.CANNOT)
    session.check_current(client, picture)
    trouble = session.trouble(simulated=picture.simulated)
    if trouble and verb != "cancel":
        raise Refusal(trouble, code="no_worker", exit=Exit.CANNOT)
    match verb:
        case "cancel":
            await client.cancel(run)
        case "pause":
            await client.pause(run, by=getpass.getuser())
        case "resume":
            await client.resume(run, by=getpass.getuser())
    if as_json:
        print_json({"schema": "nightcrew.steering/1", "run": run, "did": verb})
    else:
        sys.stderr.write(
            f"{verb} {run}: asked for. {trouble or ''}\n" if verb == "cancel" else f"{verb} {run}: done.\n"
        )
    return Exit.DONE


async def open_run(session: Session, words: str, *, as_json: bool) -> Exit:
    """The address of a run in the Temporal Web UI; the home is brought up for it."""
    client = await session.reader()
    run = await client.resolve(words)
    await embedded.up(session.settings, mode_now(simulate=True), worker=False, simulator=False)
    base = embedded.web_ui_url(session.settings.home)
    if base is None:
        message = "Temporal is not this home's own server: open its Web UI and look for the workflow " + run
        raise Refusal(message, code="no_web_ui", exit=Exit.CANNOT)
    address = f"{base}/namespaces/default/workflows/{run}"
    if as_json:
        print_json({"schema": "nightcrew.open/1", "run": run, "url": address})
    else:
        sys.stdout.write(f"{address}\n")
        sys.stderr.write(f"`{session.starter} down` stops this home again.\n")
    return Exit.DONE


async def up(session: Session, *, simulate: bool, as_json: bool) -> Exit:
    """Server, worker and simulator of this home in the background."""
    embedded.prepare_home(session.settings.home)
    with Lease(session.settings.home) as lease:
        came = await embedded.up(session.settings, mode_now(simulate=simulate))
        lease.forget()  # from now on it stays up until `down`
    address = embedded.web_ui_url(session.settings.home)
    if as_json:
        print_json({"schema": "nightcrew.up/1", "started": came.started, "found": came.found, "web_ui": address})
    else:
        for name in came.started:
            sys.stdout.write(f"started {name}\n")
        for name in came.found:
            sys.stdout.write(f"running {name}\n")
        sys.stdout.write(f"Web UI: {address}\n" if address else "")
    return Exit.DONE


async def down(session: Session, *, as_json: bool) -> Exit:
    """Stop what runs for this home. Open runs wait for the next up."""
    services = embedded.all_services(session.settings.home)
    if any(service.find() for service in services if isinstance(service, embedded.Worker)):
        sys.stderr.write("Stopping; calls at work have up to 30 s to end, so that what is paid for is kept.\n")
    stopped = await embedded.down(session.settings)
    if as_json:
        print_json({"schema": "nightcrew.down/1", "stopped": stopped})
    else:
        sys.stdout.write("".join(f"stopped {name}\n" for name in stopped) or "nothing was running\n")
    return Exit.DONE


def show(report: Report, *, as_json: bool, hints: list[str]) -> None:
    """The report on stdout, for a script or for a person."""
    if as_json:
        print_json(report.document())
    else:
        show_report(Console(), report, hints=hints)


async def _show_task(client: RunClient, picture: Picture, report: Report, task: str, *, as_json: bool) -> None:
    found = _task_of(report, task)
    if as_json:
        print_json(found)
        return
    console = Console()
    for name, value in found.items():
        if name not in {"schema", "output"} and value is not None:
            console.print(Text.assemble((f"{name:12} ", "dim"), plain(str(value))))
    for input in client.inputs(picture, task):
        what = input.ref if input.status is TaskStatus.SUCCEEDED else f"missing: {input.why or 'no result yet'}"
        console.print(Text.assemble(("input        ", "dim"), f"{input.task} ", status_text(input.status), f" {what}"))
    console.print(Text(plain(await client.brief(picture, task))), soft_wrap=True)


def _task_of(report: Report, task: str) -> dict[str, Any]:
    found = next((entry for entry in report.tasks if entry.id == task), None)
    if found is None:
        group = [entry.id for entry in report.tasks if entry.id.startswith(f"{task}[")]
        hint = did_you_mean(task, [entry.id for entry in report.tasks])
        remedy = f" It stands for {', '.join(group[:5])}{' ...' if len(group) > 5 else ''}." if group else ""
        message = f"The run {report.run} has no task {task!r}.{remedy}" + (f" {hint}." if hint and not group else "")
        raise Refusal(message, code="unknown_task", exit=Exit.WRONG)
    return {"schema": "nightcrew.task/1", "run": report.run, **found.model_dump(mode="json", by_alias=True)}


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


async def _save(client: RunClient, picture: Picture, folder: Path) -> int:
    """One file per task that has an output. Names are made from ids, with all that a path could misread replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    outputs = [
        (position, id, task.output_ref)
        for position, (id, task) in enumerate(picture.tasks.items(), start=1)
        if task.output_ref is not None
    ]
    for position, id, ref in outputs:
        name = "".join(letter if letter.isalnum() or letter in "-_" else "_" for letter in id)[:80].strip("_")
        (folder / f"{position:03}-{name}.md").write_text(await client.text(ref) + "\n", encoding="utf-8")
    return len(outputs)


def _event_line(event: Event) -> str:
    local = event.time.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    data = " ".join(f"{name}={one_line(str(value), 80)}" for name, value in event.data.items() if value is not None)
    return f"{local}  {event.number:>5}  {event.type:16} {plain(event.task or ''):24} {data}".rstrip()


def _say(session: Session, words: str) -> None:
    if embedded.find_server(session.settings.home) is None:
        sys.stderr.write(f"{words}\n")
