"""`up`, `down`, `open`: the processes of a home, and the page that shows its runs."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from temporalio.client import Client
from temporalio.service import RPCError

import embedded
from runtime import Mode, connect, temporal_settings
from terminal.lease import Lease
from terminal.outcome import Exit, Refusal, print_json
from terminal.session import Session, mode_now


async def open_run(session: Session, words: str, *, as_json: bool) -> Exit:
    """The address of a run in the Temporal Web UI; the home is brought up for it."""
    reader = await session.reader()
    run = await reader.resolve(words)
    own = temporal_settings() is None
    if own:
        await _bring_up_to_show(session, await reader.manifest(run))
    base = embedded.web_ui_url(session.settings.home) if own else session.settings.web_ui
    if base is None:
        message = (
            "The Temporal that is configured is not this home's own server. Say where its Web UI is: "
            f"NIGHTCREW_WEB_UI=http://HOST:PORT, or web_ui in nightcrew.toml. There, look for the workflow {run}."
        )
        raise Refusal(message, code="no_web_ui", exit=Exit.CANNOT)
    client = await connect(session.settings)
    place = f"namespaces/{quote(client.namespace, safe='')}/workflows/{quote(run, safe='')}"
    address = f"{base.rstrip('/')}/{place}/{await _tab(client, run)}".rstrip("/")
    if as_json:
        print_json({"schema": "nightcrew.open/1", "run": run, "url": address})
    else:
        sys.stdout.write(f"{address}\n")
    return Exit.DONE


async def _bring_up_to_show(session: Session, manifest: dict[str, Any] | None) -> None:
    """The page asks a worker for the current details, so a home is brought up whole; but looking never spends money.

    What is started may go on with open runs: that is told.
    """
    simulated = manifest is None or bool(manifest["simulated"])
    came = await embedded.up(session.settings, worker=simulated, simulator=simulated)
    if not came.started:
        return
    sys.stderr.write(f"Started {', '.join(came.started)}; `{session.starter} down` stops this home again.\n")
    for run in await (await session.client()).open_runs() if simulated else ():
        sys.stderr.write(f"goes on: {run}\n")


async def _tab(client: Client, run: str) -> str:
    """The tab that says what is going on. Its address needs the history that is open now; without it, the first tab."""
    try:
        return f"{(await client.get_workflow_handle(run).describe()).run_id}/user-metadata"
    except RPCError:
        return ""


async def up(session: Session, *, simulate: bool, anyway: bool = False, as_json: bool) -> Exit:
    """Server, worker and simulator of this home in the background, and a keeper that starts again what dies."""
    embedded.prepare_home(session.settings.home)
    with Lease(session.settings.home) as lease:
        mode = mode_now(simulate=simulate)
        if embedded.has_another_key(embedded.Worker(session.settings.home, mode)):
            sys.stderr.write("Stopping the worker; calls at work have up to 30 s to end.\n")
        came = await embedded.up(session.settings, mode, renew_key=True, anyway=anyway)
        lease.forget()  # from now on it stays up until `down`
        runs = await _open_runs(session)
        if mode is Mode.LIVE and any(runs.values()):
            more = await embedded.up(
                session.settings, Mode.SIMULATED, anyway=anyway
            )  # some of what was open is simulated
            found = tuple(dict.fromkeys(came.found + more.found))
            came = replace(came, found=found, started=came.started + more.started)
    waiting = [] if mode is Mode.LIVE else [run for run, simulated in runs.items() if not simulated]
    address = embedded.web_ui_url(session.settings.home)
    if as_json:
        processes = {"started": came.started, "found": came.found, "replaced": came.replaced}
        print_json({"schema": "nightcrew.up/1", **processes, "web_ui": address, "open_runs": [*runs]})
    else:
        if any(name.startswith("worker-") for name in came.replaced):
            sys.stdout.write("The worker was started with another key: replaced.\n")
        for name in came.started:
            sys.stdout.write(f"started {name}\n")
        for name in (name for name in came.found if name not in came.started):
            sys.stdout.write(f"running {name}\n")
        sys.stdout.write(f"Web UI: {address}\n" if address else "")
        sys.stdout.write("".join(f"goes on: {run}\n" for run in runs if run not in waiting))
    for run in waiting:
        sys.stderr.write(f"{run} is LIVE and waits: say `{session.starter} up` where ANTHROPIC_API_KEY is set.\n")
    for trouble in embedded.troubles(session.settings.home):
        sys.stderr.write(f"{trouble.sentence(session.starter)}\n")
    return Exit.DONE


async def _open_runs(session: Session) -> dict[str, bool]:
    """The open runs of this home, and whether each is simulated. Of a Temporal elsewhere, others take care."""
    if temporal_settings() is not None:
        return {}
    client = await session.client()
    manifests = [await client.manifest(run) for run in await client.open_runs()]
    return {found["run"]: bool(found["simulated"]) for found in manifests if found is not None}


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
