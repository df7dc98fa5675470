"""`retry` of a run that has ended: a new run does again what is to be done again, and takes over the rest."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from client import OtherPlan, RunClient
from domain.models import Agent, TaskStatus
from domain.planning import Planned
from heritage import HeritageRefused, Successor, successor
from runtime import Credentials, Mode
from terminal.outcome import Exit, Refusal, print_json
from terminal.roster import check_may_work
from terminal.session import Session
from terminal.starting import Order, leave_running, tell_how_to_come_back
from terminal.text import one_line

NAMED = 5
"""Tasks that are named in a sentence."""


async def do_again(
    session: Session, reader: RunClient, run: str, tasks: Sequence[str], shape: Mapping[str, Any], *, as_json: bool
) -> Exit:
    """Find or start the run that does it, and print its id. What cannot be done is known before anything is started."""
    found = await successor(reader, run, tasks, shape)
    if found.going:
        session.check_current(reader, found.of)
        _tell(found, "is being done again by it already; nothing was started", run, as_json=as_json)
        return Exit.DONE
    mode = _mode(found)
    if found.of.run != run:
        sys.stderr.write(f"{run} was done again already: {found.of.run} is the newest, and is done again now.\n")
    await check_may_work(session.settings, _staff(found), live=mode is Mode.LIVE)
    order = Order(
        planned=Planned(plan=found.plan, contents={}, sources={}, warnings=()),  # its files are in the store
        mode=mode,
        id=found.id,
        script=None,
        heritage=found.heritage,
    )
    try:
        id, _ = await leave_running(session, order)
    except OtherPlan:
        message = f"{run} is being done again already, by {found.id}, and in another way"
        raise HeritageRefused(f"{message}. Steer that one, or wait for its end.") from None
    _tell(found, "is done again by it", run, as_json=as_json)
    if followers := _followers(found):
        more = f" and {len(followers) - NAMED} more" if len(followers) > NAMED else ""
        names = ", ".join(map(one_line, followers[:NAMED])) + more
        sys.stderr.write(f"Had succeeded, and is done anew because something that it needs is: {names}.\n")
    tell_how_to_come_back(session, order, id)
    return Exit.DONE


def _followers(found: Successor) -> list[str]:
    """What had succeeded, was not asked for, and is done again all the same: it was told what is done again."""
    before = found.of.tasks
    succeeded = [id for id in found.tasks if id in before and before[id].status is TaskStatus.SUCCEEDED]
    return [id for id in succeeded if id not in found.heritage.redo]


def _staff(found: Successor) -> list[Agent]:
    """Who has something to do in it."""
    needed = {task.agent for task in found.plan.tasks if task.id in set(found.tasks)}
    return [agent for agent in found.plan.agents if agent.called in needed]


def _mode(found: Successor) -> Mode:
    """Simulated or live, as the run before was: this never changes in a family."""
    if found.of.simulated:
        return Mode.SIMULATED
    if Credentials.from_environment() is None:
        message = f"{found.of.run} was live. Set ANTHROPIC_API_KEY to have it done again."
        raise Refusal(message, code="no_key", exit=Exit.CANNOT)
    return Mode.LIVE


def _tell(found: Successor, words: str, run: str, *, as_json: bool) -> None:
    """The run that does it: for a script with the tasks that it does, for a person its id alone on stdout."""
    if as_json:
        did = {"did": "retry", "done": f"{run} {words}", "tasks": found.tasks}
        print_json({"schema": "nightcrew.steering/1", "run": found.id, **did})
        return
    sys.stdout.write(f"{found.id}\n")
    sys.stdout.flush()
    sys.stderr.write(f"{run} {words}.\n")
