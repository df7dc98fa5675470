"""`doctor`: every setting with its source, what answers, what is missing, and what mends it."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

import embedded
from checkup import Finding, examine
from domain.consent import dollars
from domain.quota.terms import in_words
from footprint import Footprint, footprint
from runtime import CannotDo, Settings, load_settings, sources_of
from store import shown_location
from terminal.outcome import Exit, print_json
from terminal.text import plain, seconds

SIGNS = {"ok": ("✓", "green"), "note": ("·", "dim"), "problem": ("✗", "bold red")}


async def doctor(home: Path | None, starter: str, *, as_json: bool) -> Exit:
    """Look at everything, change nothing. The exit code is 1 when something must be mended."""
    settings = _settings(home)
    findings: list[Finding] = []
    if not as_json:
        console = Console()
        _show_settings(console, settings)
    async for finding in examine(home, starter):
        findings.append(finding)
        if not as_json:
            _show_finding(console, finding)
    processes = _processes(home)
    problems = [finding for finding in findings if finding.state == "problem"]
    if as_json:
        print_json(
            {
                "schema": "nightcrew.doctor/1",
                "ok": not problems,
                "settings": settings,
                "checks": [vars(finding) for finding in findings],
                "processes": processes,
            }
        )
    else:
        _show_processes(console, processes)
        count = len(problems)
        console.print()
        console.print(Text(f"{count} to mend" if count else "All is well", "bold red" if count else "bold green"))
    return Exit.CANNOT if problems else Exit.DONE


def _settings(home: Path | None) -> list[dict[str, Any]]:
    """Every setting, or none when they cannot be read: the checkup says why."""
    try:
        settings, sources = load_settings(home), sources_of(home)
    except CannotDo:
        return []
    values = settings.model_dump(mode="json", exclude_none=True)
    values["store"] = shown_location(settings.store)
    meanings = _meanings(settings)
    return [
        {"key": key, "value": values.get(key), "source": source, "meaning": meanings.get(key)}
        for key, source in sources.items()
    ]


def _meanings(settings: Settings) -> dict[str, str]:
    """What values mean that do not say it themselves."""
    tier, limits = settings.tier, settings.terms.limits
    told = "; ".join(f"{name}: {in_words(limit)}" for name, limit in limits.items())
    whose = f"those of tier {tier}. " if settings.limits is None else ""
    meanings = {
        "headroom": f"{settings.headroom:.0%} of every limit is left unused",
        "daily_usd": "no limit"
        if settings.daily_usd is None
        else f"all calls of a day, UTC, may cost {dollars(settings.daily_usd)}",
        "ask_above_usd": f"a live run that will likely cost more than {dollars(settings.ask_above_usd)} is asked about",
        "governed": "only agents that are onboarded and enabled are given work, and no plan brings its own"
        if settings.governed
        else "any agent that is not disabled is given work",
        "route_by": "of agents that fit equally well, the better by what they have done"
        if settings.route_by == "record"
        else "of agents that fit equally well, the first in the file",
        "limits": f"{whose}{told}" if limits else "auto: learned from the provider's answers",
    }
    return (
        meanings if tier is None else {**meanings, "tier": f"{tier}: {settings.concurrency} tasks at once by default"}
    )


def _processes(home: Path | None) -> list[dict[str, Any]]:
    """What runs for this home, and what it uses."""
    try:
        place = load_settings(home).home
        services = [(service.name, service.find()) for service in embedded.all_services(place)]
    except CannotDo:
        return []
    shown = []
    for name, state in services:
        if state is not None and (used := footprint(state.pid)) is not None:
            shown.append(_process(name, state.pid, state.started, used))
    return shown


def _process(name: str, pid: int, started: datetime, used: Footprint) -> dict[str, Any]:
    age = max((datetime.now(UTC) - started).total_seconds(), 0.001)
    return {
        "name": name,
        "pid": pid,
        "up_s": round(age, 1),
        "cpu_s": round(used.cpu_seconds, 2),
        "cpu_percent": round(100 * used.cpu_seconds / age, 1),
        "memory_bytes": used.rss_bytes,
    }


def _show_settings(console: Console, settings: list[dict[str, Any]]) -> None:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in "setting", "value", "from":
        table.add_column(heading, overflow="fold")
    for entry in settings:
        value = entry["meaning"] or ("" if entry["value"] is None else str(entry["value"]))
        table.add_row(
            entry["key"], Text(plain(value) or "not set", "" if value else "dim"), Text(entry["source"], "dim")
        )
    console.print(table)
    console.print()


def _show_finding(console: Console, finding: Finding) -> None:
    sign, style = SIGNS[finding.state]
    console.print(
        Text.assemble((f"{sign} ", style), (f"{finding.name:18} ", "bold"), plain(finding.what)), soft_wrap=True
    )
    if finding.remedy:
        console.print(Text.assemble(" " * 21, ("→ ", "yellow"), plain(finding.remedy)), soft_wrap=True)
    sys.stdout.flush()


def _show_processes(console: Console, processes: list[dict[str, Any]]) -> None:
    if not processes:
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("process")
    for heading in "pid", "up", "CPU", "of a core", "memory":
        table.add_column(heading, justify="right", no_wrap=True)
    for found in processes:
        table.add_row(
            found["name"],
            str(found["pid"]),
            seconds(found["up_s"]),
            seconds(found["cpu_s"]),
            f"{found['cpu_percent']:.1f} %",
            f"{found['memory_bytes'] / 1e6:,.0f} MB",
        )
    console.print()
    console.print(table)
