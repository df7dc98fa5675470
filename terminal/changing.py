"""`change`: a run goes on with another plan. What is otherwise is shown; what cannot be is refused, all at once."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from client import RunClient
from domain.changing import Changed, changed
from domain.consent import Consent
from domain.models import TaskStatus
from domain.picture import Picture
from domain.planning import Planned
from domain.prices import NOTHING
from prices import priced
from runtime import Mode
from terminal.estimating import offer_for
from terminal.outcome import Exit, Refusal, ended, print_json
from terminal.person import person_here
from terminal.plans import read_plan
from terminal.session import Session
from terminal.steering import check_note
from terminal.text import counted, one_line, plain

SET_ONLY = ("max_concurrency", "mode", "budget_usd", "deadline", "on_budget")
"""What a file may say of the plan itself that a run does not take from it."""


@dataclass(frozen=True)
class Wanted:
    """What a person asks for."""

    file: str
    params: Mapping[str, str]
    agents: Path | None = None
    note: str | None = None
    agreed: bool = False
    dry_run: bool = False


async def change(session: Session, words: str, wanted: Wanted, *, as_json: bool) -> Exit:
    """Have a run go on with the plan of a file, and tell what is otherwise now."""
    check_note(wanted.note)
    client = await session.reader()
    picture = await client.picture(await client.resolve(words))
    if picture.ended:
        message = f"{picture.run} has ended ({picture.status}): nothing to change."
        raise Refusal(message, code="ended", exit=Exit.CANNOT)
    session.check_current(client, picture)
    if (trouble := session.trouble(simulated=picture.simulated)) and not wanted.dry_run:
        raise Refusal(trouble, code="no_worker", exit=Exit.CANNOT)
    planned = _read(session, picture, wanted)
    found = changed(picture.plan, planned.plan, _started(picture), await _answers(client, picture))
    if found.refused:
        raise Refusal(_sentence(found.refused), code="refused", exit=Exit.CANNOT)
    if not as_json:
        for line in (*_ignored(planned, picture), *_lines(found, picture)):
            sys.stderr.write(f"{line}\n")
    if found.difference:
        await _agree(session, picture, replace(planned, plan=found.plan), wanted)
    return await _have_changed(client, picture, found, planned, wanted, as_json=as_json)


async def _have_changed(
    client: RunClient, picture: Picture, found: Changed, planned: Planned, wanted: Wanted, *, as_json: bool
) -> Exit:
    what: dict[str, Any] = {"contents": planned.contents, "by": person_here(), "note": wanted.note}
    plan, base = found.plan, (picture.plan, picture.plan_ref)
    document = {"schema": "nightcrew.change/1", "run": picture.run, **_document(found)}
    done = "the plan is like that already"
    if found.difference and wanted.dry_run:
        done = "nothing was changed"
        document["update"] = (await client.amended(plan, *base, **what)).model_dump(mode="json")
    elif found.difference:
        done = (await client.change(picture.run, plan, *base, **what)).done
    if as_json:
        print_json({**document, "done": done})
    else:
        sys.stderr.write(f"change {picture.run}: {ended(plain(done))}\n")
    return Exit.DONE


def _read(session: Session, picture: Picture, wanted: Wanted) -> Planned:
    planned = read_plan(
        wanted.file,
        params=wanted.params,
        agents=wanted.agents,
        max_concurrency=picture.plan.max_concurrency,
        mode=picture.plan.mode,
        region=picture.plan.region,
        settings=session.settings,
        live=not picture.simulated,
        pinned=picture.plan.agents,
    )
    return replace(planned, plan=priced(planned.plan))


def _started(picture: Picture) -> dict[str, str]:
    """The tasks that have started, and how they stand."""
    found: dict[str, str] = {}
    for id, seen in picture.tasks.items():
        if seen.ended is not None:
            found[id] = f"has ended {seen.status}"
        elif seen.status is TaskStatus.RUNNING:
            found[id] = "is at work"
        elif seen.started is not None:
            found[id] = "has started"
    return found


async def _answers(client: RunClient, picture: Picture) -> dict[str, str]:
    """The lists by which the plan has grown so far."""
    sources = {task.each.source for task in picture.plan.templates if task.each is not None}
    refs = {id: picture.tasks[id].output_ref for id in sources if id in picture.tasks}
    return {id: await client.text(ref) for id, ref in refs.items() if ref is not None}


async def _agree(session: Session, picture: Picture, planned: Planned, wanted: Wanted) -> None:
    """Refuse what will likely cost more than is left of the budget."""
    rest = None
    if picture.budget is not None:
        cost = picture.cost
        gone = picture.before + (cost.actual_usd or NOTHING) + (cost.unsettled_usd or NOTHING) + cost.reserved_usd
        rest = max(picture.budget - gone, NOTHING)
    mode = Mode.SIMULATED if picture.simulated else Mode.LIVE
    offer = await offer_for(
        session.settings, planned, mode, budget=rest, agreed=wanted.agreed, kept=set(_started(picture))
    )
    if offer.consent.decision == "refuse" and not wanted.agreed:
        raise Refusal(_too_dear(picture, offer.consent), code="money", exit=Exit.MONEY)


def _too_dear(picture: Picture, consent: Consent) -> str:
    left = " of what is left" if picture.budget is not None and not consent.capped else ""
    remedy = f"`set {picture.run} --budget USD` raises the budget, and --yes changes it all the same."
    return f"Of what has not started{left}: {ended(consent.why)} The plan was not changed. {remedy}"


def _ignored(planned: Planned, picture: Picture) -> Iterator[str]:
    """What the file says of the plan itself, and the run does not take from it."""
    written = [key for key in SET_ONLY if planned.plan_sources.get(key) == "plan"]
    for key in written:
        name = key.removesuffix("_usd")
        if getattr(planned.plan, name) != getattr(picture.plan, name):
            yield f"{key} stays as the run has it; `set {picture.run}` changes what can be changed of it."


def _lines(found: Changed, picture: Picture) -> Iterator[str]:
    """The difference, a line for each task; of those that stay, how many there are."""
    for id in found.difference.added:
        yield f"+ {one_line(id)}"
    for id in found.difference.edited:
        yield f"~ {one_line(id)}: {', '.join(found.keys[id])}"
    for id in found.difference.removed:
        yield f"- {one_line(id)}"
    same = [task.id for task in found.plan.tasks if task.id in picture.tasks and task.id not in found.keys]
    started = sum(picture.tasks[id].started is not None for id in same)
    yield f"= {counted(len(same), 'task')} unchanged, {started:,} of which {'has' if started == 1 else 'have'} started"


def _document(found: Changed) -> dict[str, Any]:
    change = found.difference
    edited = [{"id": id, "keys": list(found.keys[id])} for id in change.edited]
    return {"added": list(change.added), "edited": edited, "removed": list(change.removed)}


def _sentence(refused: tuple[str, ...]) -> str:
    shown = [f"{one_line(each)[0].upper()}{one_line(each)[1:]}." for each in refused[:5]]
    more = [f"And {len(refused) - 5} more."] if len(refused) > 5 else []
    return " ".join((*shown, *more, "The plan was not changed."))
