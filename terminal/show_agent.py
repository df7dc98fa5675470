"""`agents show`: one agent, how it stands, what it has done, and its recent runs with what it read and made."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from catalog import is_open, run_list
from client import RunClient, UnknownRun
from domain.events import timestamp
from domain.items import source_of_item
from domain.merit import Merits, RunRecord
from domain.models import Agent
from domain.picture import Picture
from domain.register import Act, Register, rights_of
from domain.rights import Right
from terminal.outcome import Exit, print_json
from terminal.plans import read_registry
from terminal.roster import agent_named, agents_at, has_store
from terminal.session import Session
from terminal.show_agents import limits, records_at, roles_of, state_words, summary, work_words
from terminal.text import counted, one_line, plain

RECENT = 5
"""Runs that are shown of those that are going, and of those that have ended."""

NAMED = 20
"""Files and results that are named of one task."""


@dataclass(frozen=True)
class Shown:
    """All that is known of one agent."""

    agent: Agent
    register: Register
    merits: dict[str, Merits]
    runs: list[dict[str, Any]]

    @property
    def acts(self) -> tuple[Act, ...]:
        """What was done to it."""
        return self.register.acts_of(self.agent.name, self.agent.version)


async def show_agent(session: Session, file: Path | None, word: str, *, as_json: bool) -> Exit:
    """What an agent is, how it stands, and what it has done. Nothing is started."""
    registry = await agents_at(session.settings, read_registry(file), live=False)
    agent = agent_named(registry, word)
    done = await records_at(session.settings)
    merits = {mode: Merits(done, simulated=mode == "simulated") for mode in ("live", "simulated")}
    shown = Shown(agent, registry.admission.register, merits, await _runs(session, agent, done))
    if as_json:
        print_json(_document(shown))
    else:
        _show(Console(), shown)
    return Exit.DONE


async def _runs(session: Session, agent: Agent, records: list[RunRecord]) -> list[dict[str, Any]]:
    """The last runs of an agent, those that are going before those that have ended, and the newest of both first."""
    if not has_store(session.settings):
        return []
    reader = await session.reader()
    return [*await _going(reader, agent), *await _ended(reader, agent, records)]


async def _going(reader: RunClient, agent: Agent) -> list[dict[str, Any]]:
    """The runs in which an agent has begun, and that have not ended as far as their event log tells."""
    found: list[dict[str, Any]] = []
    for entry in reversed(await run_list(reader, since=timedelta(0))):
        if is_open(entry) and len(found) < RECENT and (tasks := await _tasks(reader, entry.run, agent)):
            run = {"run": entry.run, "status": entry.status.value, "finished": None, "simulated": entry.simulated}
            found.append({**run, "tasks": tasks})
    return found


async def _ended(reader: RunClient, agent: Agent, records: list[RunRecord]) -> list[dict[str, Any]]:
    """The runs of an agent that have left a record. Of one that was pruned that is all."""
    mine = [record for record in records if any(line.agent == agent.pool for line in record.lines)]
    mine.sort(key=lambda record: record.finished or "", reverse=True)
    found = []
    for record in mine[:RECENT]:
        run = {"run": record.run, "status": None, "finished": record.finished, "simulated": record.simulated}
        found.append({**run, "tasks": await _tasks(reader, record.run, agent)})
    return found


async def _tasks(reader: RunClient, run: str, agent: Agent) -> list[dict[str, Any]] | None:
    """What an agent has read and made in a run; None when the run was pruned."""
    try:
        picture = await reader.glance(run)
    except UnknownRun:
        return None
    mine = [task.id for task in picture.plan.tasks if picture.agents[task.agent].pool == agent.pool]
    return [_task(picture, id) for id in mine if picture.tasks[id].started is not None]


def _task(picture: Picture, id: str) -> dict[str, Any]:
    seen = picture.tasks[id]
    planned = picture.planned[id]
    results = [input.task for input in picture.inputs(id) if input.ref is not None]
    if (source := source_of_item(picture.plan, planned)) is not None and source not in results:
        results.append(source)
    read = {"files": [file.path for file in planned.files], "results": results}
    return {"id": id, "status": seen.status.value, "read": read, "output_ref": seen.output_ref}


def _document(shown: Shown) -> dict[str, Any]:
    agent, standing = shown.agent, shown.register.of(shown.agent)
    rights = rights_of(agent.rights, agent.roles, standing)
    by_capability = {
        mode: {name or "": work.model_dump(mode="json") for name, work in of.by_capability(agent.pool).items()}
        for mode, of in shown.merits.items()
    }
    return {
        "schema": "nightcrew.agent/1",
        **summary(agent, shown.register, shown.merits),
        "definition": standing.definition,
        "rights": rights.model_dump(mode="json") if rights is not None else None,
        "withdrawn": [each.model_dump(mode="json") for each in standing.withdrawn],
        "acts": [act.model_dump(mode="json") for act in shown.acts],
        "by_capability": by_capability,
        "runs": shown.runs,
    }


def _show(console: Console, shown: Shown) -> None:
    agent, standing = shown.agent, shown.register.of(shown.agent)
    lines = {
        "state": state_words(agent, shown.register),
        "can": ", ".join(agent.capabilities),
        "model": agent.model,
        "limits": ", ".join(limits(agent)),
        "roles": ", ".join(roles_of(agent, shown.register)),
        "rights": _rights(shown),
        "withdrawn": "; ".join(f"{each.right} {each.pattern} by {each.by}" for each in standing.withdrawn),
        "check": one_line(f"{agent.check.prompt} → {agent.check.expect}", 200) if agent.check else "",
        "instructions": one_line(agent.instructions, 200),
    }
    console.print(Text(plain(agent.label), "bold"))
    for name, value in lines.items():
        if value:
            console.print(Text.assemble((f"  {name:13}", "dim"), plain(value)), soft_wrap=True)
    _show_acts(console, shown.acts)
    _show_record(console, shown)
    _show_runs(console, shown)


def _rights(shown: Shown) -> str:
    """What the definition and the roles grant, before what is withdrawn."""
    rights = rights_of(shown.agent.rights, shown.agent.roles, shown.register.of(shown.agent))
    if rights is None:
        return "none written down: what its definition and its plan hand it"
    granted = {right.value: rights.of(right) for right in Right if right is not Right.BUDGET}
    words = [f"{name}: {', '.join(patterns)}" for name, patterns in granted.items() if patterns]
    words += [f"budget_usd: {rights.budget_usd}"] if rights.budget_usd is not None else []
    return "; ".join(words) or "none"


def _show_acts(console: Console, acts: tuple[Act, ...]) -> None:
    if acts:
        console.print(Text("\nWhat was done to it", "bold"))
    for act in acts:
        told_of = [str(act.data[key]) for key in ("run", "right", "pattern", "why") if key in act.data]
        whose = "" if act.version else " (all versions)"
        words = f"{act.verb.value.replace('_', ' ')}{whose} {' '.join(told_of)}".rstrip()
        console.print(Text(f"  {act.number:>4}  {one_line(words, 120)}, {one_line(_whose(act), 200)}"), soft_wrap=True)


def _whose(act: Act) -> str:
    note = act.data.get("note")
    return f"by {act.by}, {timestamp(act.time)}" + (f": {note}" if note else "")


def _show_record(console: Console, shown: Shown) -> None:
    console.print(Text("\nWhat it has done", "bold"))
    for mode, merits in shown.merits.items():
        console.print(Text(f"  {mode}: {work_words(merits.of(shown.agent.pool))}"))
        for capability, work in merits.by_capability(shown.agent.pool).items():
            asked = f"as {capability}" if capability else "by its name"
            console.print(Text(f"    {plain(asked)}: {work_words(work)}, {counted(work.attempts, 'attempt')}", "dim"))


def _show_runs(console: Console, shown: Shown) -> None:
    if shown.runs:
        console.print(Text("\nIts last runs", "bold"))
    for run in shown.runs:
        mode = "SIMULATED" if run["simulated"] else "LIVE"
        end = f"going: {run['status']}" if run["status"] else run["finished"] or ""
        console.print(Text(f"  {run['run']}  {mode}  {end}"), soft_wrap=True)
        if run["tasks"] is None:
            console.print(Text("    pruned: what it read and made there is gone", "dim"))
        for task in run["tasks"] or ():
            read = [*task["read"]["files"], *(f"result of {name}" for name in task["read"]["results"])]
            more = f" and {len(read) - NAMED} more" if len(read) > NAMED else ""
            words = f"{task['id']}  {task['status']}  read {', '.join(read[:NAMED]) or 'nothing'}{more}"
            console.print(Text(f"    {plain(words)}  →  {task['output_ref'] or 'nothing'}", "dim"), soft_wrap=True)
