"""What is there, what answers, what is missing and what mends it. Nothing is started or changed."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import embedded
from checkup.encryption import keys_fit
from checkup.findings import Finding, note, ok, problem
from checkup.folders import nearest, why_unwritable
from checkup.growth import growth
from checkup.runs import runs_go_on
from checkup.store import store_answers
from checkup.temporal import asked, attributes_exist, retention_is_long, server_answers, workers_poll
from runtime import (
    CannotDo,
    Credentials,
    Mode,
    Settings,
    connect,
    load_settings,
    temporal_settings,
)
from store import folder_of

if TYPE_CHECKING:
    from temporalio.client import Client

__all__ = ["Finding", "examine"]

ROOM = 1_000_000_000
"""Bytes of disk under which a night's work may not fit."""


async def examine(home: Path | None, starter: str) -> AsyncIterator[Finding]:
    """One finding after the other, from the inside out: what a later one needs is found out before."""
    yield ok("python", f"{platform.python_version()} on {platform.system()}")
    try:
        settings = load_settings(home)
    except CannotDo as error:
        yield problem("settings", str(error), "Mend it; nothing else can be looked at before.")
        return
    usable = _home(settings)
    yield usable
    yield _credentials()
    if usable.state == "problem":
        return
    yield _room(settings)
    encryption = await keys_fit(settings.store)
    yield encryption
    if encryption.state == "problem":
        return
    store = await store_answers(settings.store)
    yield store
    if store.state == "ok":
        yield await growth(settings)
    for trouble in embedded.troubles(settings.home):
        yield problem("services", trouble.sentence(starter), f"{starter} up")
    async for finding in _temporal(settings, starter, readable=store.state == "ok"):
        yield finding
    yield _tracing()


async def _temporal(settings: Settings, starter: str, *, readable: bool) -> AsyncIterator[Finding]:
    try:
        configured = temporal_settings()
    except CannotDo as error:
        yield problem("temporal", str(error), "Set TEMPORAL_ADDRESS, or unset every TEMPORAL_* variable.")
        return
    if configured is None and embedded.find_server(settings.home) is None:
        yield problem("temporal", f"This home ({settings.home}) is not up: no server.", f"{starter} up")
        return
    try:
        client = await connect(settings)
    except CannotDo as error:
        remedy = (
            "Check TEMPORAL_ADDRESS (or the profile) and the network; unset every TEMPORAL_* variable to use this "
            "home's own server."
            if configured
            else f"{starter} down, then {starter} up"
        )
        yield problem("temporal", str(error), remedy)
        return
    yield await asked("temporal", server_answers(client))
    retention = await asked("retention", retention_is_long(client))
    yield retention
    if retention.name == "namespace":
        return  # nothing else can be asked of a namespace that is not there
    yield await asked("search attributes", attributes_exist(client))
    for mode in Mode:
        finding = await asked(f"worker, {mode}", _workers(settings, client, mode, starter))
        if finding.state == "ok" or mode is _mode_now():
            yield finding
    if readable:
        async for finding in runs_go_on(client, settings.store, starter):
            yield finding
    yield _web_ui(settings, own=configured is None)


def _mode_now() -> Mode:
    """The mode that a run would have now: of this one a worker is needed, of the other it is told when there is one."""
    return Mode.LIVE if Credentials.from_environment() else Mode.SIMULATED


async def _workers(settings: Settings, client: Client, mode: Mode, starter: str) -> Finding:
    name = f"worker, {mode}"
    if temporal_settings() is not None:
        return await workers_poll(client, mode, remedy=f"{starter} up")
    # Temporal remembers a poller for a while after it died; the lock of a worker of this home does not lie.
    if embedded.Worker(settings.home, mode).find() is None:
        return problem(name, f"No worker for {mode} runs is running in this home.", f"{starter} up")
    if embedded.Keeper(settings.home, mode).find() is None:
        return problem(name, "It runs, but nobody would start it again if it died.", f"{starter} up")
    return await workers_poll(client, mode, remedy=f"{starter} up")


def _home(settings: Settings) -> Finding:
    home = settings.home
    if why := why_unwritable(home):
        remedy = f"Make {nearest(home)} writable for you, or choose another by --home DIR or NIGHTCREW_HOME."
        return problem("home", f"{home} cannot be written: {why}.", remedy)
    if not home.exists():
        return note("home", f"{home} does not exist yet; the first command that starts something makes it.")
    if home.stat().st_mode & 0o077:
        return note("home", f"{home}; others on this machine can look into it.", f"chmod 700 {home}")
    return ok("home", str(home))


def _room(settings: Settings) -> Finding:
    """Of the disks of the home and of a store in a folder, the one with less."""
    folder = folder_of(settings.store)
    places = {"home": settings.home, **({"store": folder} if folder is not None else {})}
    room = {name: shutil.disk_usage(nearest(place)).free for name, place in places.items()}
    if "store" in room and room["store"] < settings.reserve_mb * 1_000_000:
        what = f"Only {room['store'] / 1e6:,.0f} MB free for the store. No call is made below {settings.reserve_mb}."
        return problem("disk", what, "Make room there, and runs go on by themselves; or set reserve_mb lower.")
    free = min(room.values())
    what = f"{free / 1e9:,.1f} GB free"
    return ok("disk", what) if free >= ROOM else problem("disk", f"Only {what}.", "Make room before the next run.")


def _credentials() -> Finding:
    found = Credentials.from_environment()
    if found is None:
        return note("provider", "No credentials: runs are SIMULATED.", "Set ANTHROPIC_API_KEY for live runs.")
    name = "ANTHROPIC_API_KEY" if found.api_key else "ANTHROPIC_AUTH_TOKEN"
    return ok("provider", f"{name} is set: runs are LIVE at {found.base_url or 'the provider itself'}.")


def _web_ui(settings: Settings, *, own: bool) -> Finding:
    address = embedded.web_ui_url(settings.home) if own else settings.web_ui
    if address:
        return ok("web ui", address)
    return note("web ui", "Its address is not known.", "Set NIGHTCREW_WEB_UI, so that `open` can name it.")


def _tracing() -> Finding:
    names = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT")
    found = [name for name in names if os.environ.get(name)]
    return ok("telemetry", f"exported ({', '.join(found)})") if found else note("telemetry", "off")
