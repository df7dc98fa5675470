"""`agents onboard`: an agent does the task that shows what it can do, as a run of its own."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

from pydantic import JsonValue

from client import RunClient
from domain.admission import definition_ref
from domain.models import Agent, RunStatus
from domain.picture import Picture
from domain.planning import plan_from_text
from domain.register import Verb
from domain.registry import Registry
from folder import PlanFolder
from prices import priced
from registers import Registers
from runtime import Mode
from store import StoreError, open_store
from terminal.beginnings import check_room
from terminal.following import CLOSE_PATIENCE
from terminal.outcome import Exit, Refusal, exit_for, print_json
from terminal.person import person_here
from terminal.plans import read_registry
from terminal.roster import agent_named, agents_at
from terminal.scripts import check_simulated, read_script_file
from terminal.session import Session, mode_now
from terminal.starting import Order, agree, announce, hand_over
from terminal.steering import check_note
from terminal.watching import Left, Watcher

TASK = "check"


@dataclass(frozen=True)
class How:
    """How an agent is to be checked."""

    simulate: bool = False
    script: Path | None = None
    agreed: bool = False
    limit: timedelta | None = None
    note: str | None = None


async def onboard(session: Session, file: Path | None, word: str, how: How, *, as_json: bool) -> Exit:
    """Have an agent do its check, and write down whether it has passed."""
    check_note(how.note)
    mode = mode_now(simulate=how.simulate)
    if how.script is not None:
        check_simulated(mode)
    registry = await agents_at(session.settings, read_registry(file), live=mode is Mode.LIVE)
    registry = replace(registry, admission=replace(registry.admission, governed=False))  # it is about to be onboarded
    agent = agent_named(registry, word)
    _check_it_can_be(agent, registry)
    order = _order(agent, registry, mode, how)
    check_room(session.settings)
    offer = await agree(session, order)
    announce(session, order)
    async with session.up(mode):
        client = await session.client()
        run = await hand_over(session, client, order, offer)
        left, picture = await _watched(session, client, run, how.limit)
        if left is not Left.ENDED:
            sys.stderr.write(f"The check goes on as {run}; onboard {agent.label} again for a verdict.\n")
            return Exit.INTERRUPTED if left is Left.DETACHED else Exit.NOT_FINISHED
        why = await _why_not(client, picture, agent)
    if picture.status not in (RunStatus.COMPLETED, RunStatus.FAILED):  # that says nothing of the agent
        message = f"{run} has ended {picture.status}: {agent.label} was not checked, and stands as before."
        raise Refusal(message, code="not_checked", exit=exit_for(picture.status))
    await _write_down(session, agent, run, mode, note=how.note, why=why)
    if as_json:
        found = {"agent": agent.label, "onboarded": why is None, "run": run, "simulated": mode is Mode.SIMULATED}
        print_json({"schema": "nightcrew.onboarding/1", **found, "why": why})
    else:
        verdict = "has passed its check: onboarded" if why is None else f"has not passed its check: {why}"
        sys.stdout.write(f"{agent.label} {verdict} ({run}, {mode.upper()}).\n")
    return Exit.DONE if why is None else Exit.FAILED


def _check_it_can_be(agent: Agent, registry: Registry) -> None:
    """Refuse what no check could change."""
    if (objection := registry.admission.objection(agent)) is not None:
        message = f"{objection.message[0].upper()}{objection.message[1:]}: {objection.hint}."
        raise Refusal(message, code="barred", exit=Exit.CANNOT)
    definition = registry.admission.register.of(agent).definition
    if definition is None:
        message = f"{agent.label} is not registered. `./starter.py agents register` keeps what it is; then onboard it."
        raise Refusal(message, code="not_registered", exit=Exit.CANNOT)
    if definition != definition_ref(agent):
        message = f"{agent.label} is another one than was registered: give it a new version, and register that."
        raise Refusal(message, code="other_definition", exit=Exit.WRONG)
    if agent.check is None:
        message = f"{agent.label} has no check. Give it a new version with `check: {{prompt: TEXT, expect: TEXT}}`."
        raise Refusal(message, code="no_check", exit=Exit.WRONG)


def _order(agent: Agent, registry: Registry, mode: Mode, how: How) -> Order:
    """A plan of one task, read as any plan is."""
    prompt = agent.check.prompt if agent.check is not None else ""
    task = {"id": TASK, "agent": agent.label, "prompt": prompt.replace("{{", "\\{{")}
    text = json.dumps({"name": f"onboard-{agent.name}".replace(".", "-")[:100], "tasks": [task]})
    planned = plan_from_text(text, file="-", registry=registry, folder=PlanFolder.of("-"))
    script = read_script_file(how.script) if how.script is not None else None
    return Order(replace(planned, plan=priced(planned.plan)), mode, None, script, agreed=how.agreed)


async def _watched(session: Session, client: RunClient, run: str, limit: timedelta | None) -> tuple[Left, Picture]:
    def trouble() -> str | None:
        seen = watcher.picture
        return session.trouble(simulated=seen.simulated) if seen is not None and not seen.ended else None

    watcher = Watcher(client, run, trouble, starter=session.starter)
    left = await watcher.follow(limit)
    if left is Left.ENDED:
        await client.until_closed(run, CLOSE_PATIENCE)
    return left, watcher.picture or await client.picture(run)


async def _why_not(client: RunClient, picture: Picture, agent: Agent) -> str | None:
    """Why an agent has not passed its check; None when it has. What it answered is in its run, and nowhere else."""
    ref = picture.tasks[TASK].output_ref
    if picture.status is not RunStatus.COMPLETED or ref is None:
        error = picture.tasks[TASK].error
        return f"its run has ended {picture.status}" + (f" ({error.type})" if error is not None else "")
    try:
        answer = await client.text(ref)
    except StoreError:
        return "its answer is damaged in the store"
    expected = agent.check.expect if agent.check is not None else ""
    return None if expected.casefold() in answer.casefold() else "its answer does not have the text that is expected"


async def _write_down(
    session: Session, agent: Agent, run: str, mode: Mode, *, note: str | None, why: str | None
) -> None:
    verb = Verb.ONBOARDED if why is None else Verb.CHECK_FAILED
    data: dict[str, JsonValue] = {"run": run, "simulated": mode is Mode.SIMULATED}
    data |= ({"why": why} if why else {}) | ({"note": note} if note else {})
    await Registers(open_store(session.settings.store)).add(
        verb, agent.name, agent.version, by=person_here(), data=data
    )
