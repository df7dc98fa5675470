"""`agents`: who there is, what became of each, and what each has done."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from agency import records
from domain.admission import State, definition_ref, state_of
from domain.consent import dollars
from domain.durations import written
from domain.merit import Merits, RunRecord, Work
from domain.models import Agent
from domain.prices import money
from domain.register import Register
from runtime import Settings
from store import open_store
from terminal.outcome import PIPED, Exit, print_json
from terminal.plans import read_registry
from terminal.roster import agents_at, has_store
from terminal.text import counted, plain, seconds

WIDE = 120
"""Columns of a terminal that has room for the limits, too; `agents show` tells them of one agent."""

STYLES = {State.ONBOARDED: "green", State.DISABLED: "yellow", State.RETIRED: "dim", State.DECLARED: "dim"}


async def list_agents(settings: Settings, file: Path | None, *, as_json: bool) -> Exit:
    """The agents of a file, and those that are registered."""
    registry = await agents_at(settings, read_registry(file), live=False)
    register, done = registry.admission.register, await records_at(settings)
    merits = {mode: Merits(done, simulated=mode == "simulated") for mode in ("live", "simulated")}
    if as_json:
        agents = [summary(agent, register, merits) for agent in registry.all]
        print_json({"schema": "nightcrew.agents/1", "agents": agents})
        return Exit.DONE
    roles = any(roles_of(agent, register) for agent in registry.all)
    console = Console() if sys.stdout.isatty() or os.environ.get("COLUMNS") else Console(width=PIPED, height=25)
    wide = console.width >= WIDE
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("agent", "state", "roles", "can", "model", "limits", "record"):
        if {"roles": roles, "limits": wide}.get(heading, True):
            table.add_column(heading, overflow="fold")
    for agent in registry.all:
        state = state_of(register, agent)
        table.add_row(
            Text(plain(agent.label)),
            Text(state_words(agent, register), STYLES.get(state, "")),
            *([Text(plain(", ".join(roles_of(agent, register))))] if roles else []),
            Text(plain(", ".join(agent.capabilities))),
            Text(plain(agent.model), "dim"),
            *([Text(", ".join(limits(agent)), "dim")] if wide else []),
            Text("; ".join(record_words(agent, merits)), "dim"),
        )
    console.print(table)
    return Exit.DONE


async def records_at(settings: Settings) -> list[RunRecord]:
    """What the agents of the last runs of a home have done."""
    return await records(open_store(settings.store)) if has_store(settings) else []


def state_words(agent: Agent, register: Register) -> str:
    """The state of an agent, and whether its file says something else of it than the register."""
    return f"{state_of(register, agent)}{', changed since' if is_changed(agent, register) else ''}"


def is_changed(agent: Agent, register: Register) -> bool:
    """Whether an agent is another one than was registered under its name and version."""
    return register.of(agent).definition not in (None, definition_ref(agent))


def roles_of(agent: Agent, register: Register) -> list[str]:
    """The names of the roles that count."""
    standing = register.of(agent)
    names = dict.fromkeys(role.name for role in (*agent.roles, *standing.roles))
    return [name for name in names if name not in standing.taken]


def limits(agent: Agent) -> list[str]:
    """What an agent is limited to, in words."""
    found = [f"{agent.max_concurrency} at once"] if agent.max_concurrency else []
    found += [f"timeout {written(agent.timeout)}"] if agent.timeout else []
    found += [f"{agent.attempts} attempts"] if agent.attempts else []
    found += [f"{agent.max_tokens:,} tokens"] if agent.max_tokens else []
    return found + ([f"{dollars(agent.budget)} a run"] if agent.budget else [])


def record_words(agent: Agent, merits: dict[str, Merits]) -> list[str]:
    """What an agent has done, live and simulated apart."""
    works = {mode: of.of(agent.pool) for mode, of in merits.items()}
    return [f"{mode}: {work_words(work)}" for mode, work in works.items() if work.tasks]


def work_words(work: Work) -> str:
    """Tasks, how many of them succeeded, and what one took."""
    if not work.tasks:
        return "nothing yet"
    words = f"{counted(work.tasks, 'task')}, {work.success or 0:.0%} well, {seconds(work.seconds / work.tasks)}"
    price = "" if work.cost_usd is None else f" and {dollars(work.cost_usd / work.tasks)}"
    judged = f", {work.accepted} of {work.reviewed} accepted in reviews" if work.reviewed else ""
    return f"{words}{price} each{judged}"


def summary(agent: Agent, register: Register, merits: dict[str, Merits]) -> dict[str, Any]:
    """An agent as a script reads it."""
    timeout = agent.timeout.total_seconds() if agent.timeout else None
    described = agent.model_dump(mode="json", exclude={"timeout", "instructions", "budget", "roles"})
    return {
        **described,
        "timeout_s": timeout,
        "budget_usd": money(agent.budget) if agent.budget else None,
        "state": state_of(register, agent).value,
        "changed": is_changed(agent, register),
        "roles": roles_of(agent, register),
        "record": {mode: of.of(agent.pool).model_dump(mode="json") for mode, of in merits.items()},
        "instructions": agent.instructions,
    }
