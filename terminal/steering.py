"""Steering: a person changes the course of a run that is going."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from client import RunClient
from domain.models import Pace
from domain.picture import Picture
from domain.steering import Steered
from terminal.again import do_again
from terminal.outcome import Exit, Refusal, ended, print_json
from terminal.person import person_here
from terminal.session import Session
from terminal.tasks import tasks_named
from terminal.text import plain

NOTE_LIMIT, AT_ONCE = 2_000, 1_000
"""Characters of a note and tasks of a change that a run takes."""


@dataclass(frozen=True)
class Wish:
    """What a person asks for."""

    verb: str
    tasks: Sequence[str] = ()
    note: str | None = None
    max_concurrency: int | None = None
    budget: Decimal | None = None
    pace: Pace | None = None


async def steer(session: Session, words: str, wish: Wish, *, as_json: bool) -> Exit:
    """Have a run changed, and tell what came of it."""
    if wish.verb == "set" and wish.max_concurrency is None and wish.budget is None:
        raise Refusal("Say what to set: --max-concurrency N or --budget USD.", code="usage", exit=Exit.WRONG)
    check_note(wish.note)
    client = await session.reader()
    run = await client.resolve(words)
    picture = await client.picture(run)
    if picture.ended and wish.verb == "retry":
        if wish.note is not None:
            message = f"{run} has ended: it is done again by a new run, and --note is for one that is going."
            raise Refusal(message, code="usage", exit=Exit.WRONG)
        tasks = tasks_named(picture, wish.tasks)
        shape = {"max_concurrency": wish.max_concurrency, "mode": wish.pace, "budget": wish.budget}
        return await do_again(session, client, run, tasks, shape, as_json=as_json)
    if picture.ended:
        message = f"{run} has ended ({picture.status}): nothing to {wish.verb}."
        raise Refusal(message, code="ended", exit=Exit.CANNOT)
    session.check_current(client, picture)
    if wish.verb == "retry" and (wish.max_concurrency or wish.pace or wish.budget):
        message = f"{run} is still going, and `retry` changes nothing of it but its tasks: see `{session.starter} set`."
        raise Refusal(message, code="usage", exit=Exit.WRONG)
    trouble = session.trouble(simulated=picture.simulated)
    if trouble and wish.verb != "cancel":
        raise Refusal(trouble, code="no_worker", exit=Exit.CANNOT)
    if wish.verb == "cancel":
        await client.cancel(run, by=person_here())
        steered = Steered(done="asked for")
    else:
        steered = await _ask(client, picture, wish)
    _tell(run, wish.verb, steered, trouble, as_json=as_json)
    return Exit.DONE


async def _ask(client: RunClient, picture: Picture, wish: Wish) -> Steered:
    run = picture.run
    who: dict[str, Any] = {"by": person_here(), "note": wish.note}
    tasks = tasks_named(picture, wish.tasks)
    if len(tasks) > AT_ONCE:
        message = f"These are {len(tasks):,} tasks; one change takes {AT_ONCE:,} at most."
        raise Refusal(message, code="usage", exit=Exit.WRONG)
    about_tasks = {
        "approve": client.approve,
        "reject": client.reject,
        "skip": client.skip,
        "retry": client.retry,
    }
    if wish.verb in about_tasks:
        return await about_tasks[wish.verb](run, tasks, **who)
    if wish.verb == "set":
        return await client.set(run, max_concurrency=wish.max_concurrency, budget=wish.budget, **who)
    return await (client.pause if wish.verb == "pause" else client.resume)(run, **who)


def _tell(run: str, verb: str, steered: Steered, trouble: str | None, *, as_json: bool) -> None:
    """What came of it: for a script, or for a person; of `retry` the run that does it, too."""
    if as_json:
        did = {"did": verb, "done": steered.done, "tasks": list(steered.tasks)}
        print_json({"schema": "nightcrew.steering/1", "run": run, **did})
        return
    if verb == "retry":
        sys.stdout.write(f"{run}\n")
        sys.stdout.flush()
    sys.stderr.write(f"{verb} {run}: {ended(plain(steered.done))} {trouble or ''}".rstrip() + "\n")


def check_note(note: str | None) -> None:
    """Refuse a note that is too long to be kept."""
    if len(note or "") > NOTE_LIMIT:
        raise Refusal(f"--note takes at most {NOTE_LIMIT:,} characters.", code="usage", exit=Exit.WRONG)
