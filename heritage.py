"""What a run has from runs before it: results that it takes over, and the family in which it does again what they did.

A family is a run and its retries, one after the other: RUN, RUN-r2, RUN-r3. The manifest of each names the family and
the one before it. Ids are derived and manifests are written once, so that two retries at the same moment are one run.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from domain.caps import spent_under
from domain.growing import NotGrown, grown
from domain.items import withdrawn
from domain.models import Plan, TaskStatus
from domain.past import past_of
from domain.picture import Picture
from domain.prices import NOTHING as NO_MONEY
from domain.prices import cost_of_calls, money
from domain.reuse import Kept, Past, taken_over, unfinished, with_what_they_lacked
from reader import RunReader
from store import StoreError
from unheard import past_with_unheard

READ_AT_ONCE = 32
"""Results that are looked at side by side before they are taken over."""

ID_MOST = 180
"""Characters of a family's name in the ids of its runs; of a longer one a hash stands for the rest."""


@dataclass(frozen=True)
class Heritage:
    """What a run starts with."""

    kept: Mapping[str, Kept] = field(default_factory=dict)
    reuses: str | None = None
    """The run whose results were asked for."""
    retry_of: str | None = None
    """The run that is done again, when it is."""
    family: str | None = None
    """The first of a run and its retries; a run that is no retry is the first of its own."""
    redo: tuple[str, ...] = ()
    """The tasks that were named; without any it is all that did not succeed."""
    before: Decimal = NO_MONEY
    """What the family has spent so far: its budget is one for all of it."""
    capped: Mapping[str, Decimal] = field(default_factory=dict)
    """What of that counts for which cap of a task or an agent: these are for all of it, too."""

    def manifest(self, run: str) -> dict[str, Any]:
        """What the manifest of the run says of it."""
        return {
            "family": self.family or run,
            "retry_of": self.retry_of,
            "redo": list(self.redo),
            "reuses": self.reuses,
            "before_usd": money(self.before),
            **({"capped_usd": {cap: money(spent) for cap, spent in self.capped.items()}} if self.capped else {}),
        }

    def is_of(self, manifest: Mapping[str, Any]) -> bool:
        """Whether a run that is there already does again the same."""
        return (manifest.get("retry_of"), manifest.get("redo", [])) == (self.retry_of, list(self.redo))


NOTHING = Heritage()


@dataclass(frozen=True)
class Successor:
    """The run that does another one again, or is to."""

    id: str
    of: Picture
    """The run that it follows; of one that is going already, itself."""
    plan: Plan
    heritage: Heritage
    going: bool = False
    """Whether somebody has started it already."""

    @property
    def tasks(self) -> list[str]:
        """What it does itself, in plan order."""
        if self.going:
            return [id for id, seen in self.of.tasks.items() if seen.reused is None]
        return [task.id for task in self.plan.tasks if task.id not in self.heritage.kept]


class HeritageRefused(Exception):
    """Nothing is taken over, and nothing is started: why, in a sentence."""


async def reused(reader: RunReader, plan: Plan, before: Picture, *, simulated: bool) -> Heritage:
    """What a plan has from an earlier run: all that succeeded there and has not changed since."""
    if before.simulated is not simulated:
        was, is_to_be = ("simulated", "live") if before.simulated else ("live", "simulated")
        raise HeritageRefused(
            f"{before.run} was {was} and this run is {is_to_be}: one takes nothing over from the other."
        )
    past = await past_with_unheard(reader, before)
    again = {*unfinished(past), *_unmade(plan)}
    kept = await _sound(reader, plan, before, past, again)
    return Heritage(kept=kept, reuses=before.run)


async def regrown(reader: RunReader, plan: Plan, before: Picture) -> Plan:
    """A plan with the items of lists that an earlier run has made: they need not be made again, nor what was done."""
    past = past_of(before)
    kept = taken_over(plan, before.plan, past, unfinished(past))
    for source in _unmade(plan):
        task = next(task for task in plan.tasks if task.id == source)
        if (ref := kept[source].ref if source in kept else None) is not None:
            with suppress(NotGrown, StoreError):  # then it is made anew
                plan = grown(plan, task, await reader.text(ref)).plan
    return plan


def _unmade(plan: Plan) -> list[str]:
    """The tasks whose lists are to be made for a fan-out."""
    return list(dict.fromkeys(task.each.source for task in plan.tasks if task.each is not None))


async def successor(reader: RunReader, run: str, redo: Sequence[str], shape: Mapping[str, Any]) -> Successor:
    """The run that does again a run that has ended: these tasks and what follows, or all that did not succeed.

    It follows the newest of the family, and a family has one run at a time: while one goes that does the very same,
    it is that one. `shape` is what of the plan shall be otherwise: how many at once, in which mode, for how much.
    """
    members, id = await _family(reader, run)
    root = str(members[0]["run"])
    while True:
        newest = members[-1]
        picture = await reader.picture(newest["run"])
        if len(members) == 1 or (picture.last and picture.ended):
            break
        same = newest["redo"] == list(redo) and _shaped(picture.plan, shape) == picture.plan
        if picture.last or not (same or picture.ended):
            return _going(run, picture, newest, same=same)
        # It was written down, and has not begun. Unless Temporal has ended it, whoever asks for the same may start it.
        id = picture.run if same and picture.finished is None else id
        members.pop()
    heritage, grown_back = await _to_do_again(reader, picture, redo)
    spent, capped = await _spent(reader, picture, members[-1])
    heritage = replace(heritage, family=root, before=spent, capped=capped)
    plan = grown_back.model_copy(update={"budget": picture.budget})  # a person may have set it meanwhile
    return Successor(id, picture, _shaped(plan, shape), heritage)


async def _spent(reader: RunReader, run: Picture, manifest: Mapping[str, Any]) -> tuple[Decimal, dict[str, Decimal]]:
    """What a run and those before it have spent, and may have spent: in all, and under each cap of a task or an agent.

    A run that was ended from outside has not told of all its calls: the ledger has them.
    """
    costs = {task.id: _told(run, task.id) for task in run.plan.tasks}
    if run.ended and not run.settled and run.plan.prices is not None:
        for task, calls in (await reader.books.calls_of_run(run.run)).items():
            costs[task] = max(costs.get(task, NO_MONEY), cost_of_calls(run.plan.prices.models, calls))
    before = manifest.get("capped_usd", {})
    capped = spent_under(run.plan, lambda task: costs.get(task, NO_MONEY))
    spent = Decimal(manifest.get("before_usd", 0)) + sum(costs.values(), NO_MONEY)
    return spent, {cap: Decimal(before.get(cap, 0)) + usd for cap, usd in capped.items()}


def _told(run: Picture, task: str) -> Decimal:
    """What a task has cost and may have cost, as its run has told."""
    charge = run.bills.of(task)
    return NO_MONEY if charge is None else charge.actual + charge.unsettled


async def _to_do_again(reader: RunReader, before: Picture, redo: Sequence[str]) -> tuple[Heritage, Plan]:
    """What a run has from the one that it does again, and its plan: a list that is made anew has no items yet."""
    plan, past = before.plan, await past_with_unheard(reader, before)
    if isinstance(plan.deadline, datetime) and plan.deadline <= datetime.now(UTC):
        message = f"The deadline of {before.run} has passed. Give its plan another one, and start that with --reuse"
        raise HeritageRefused(f"{message} {before.run}.")
    again = with_what_they_lacked(plan, past, redo) if redo else unfinished(past)
    plan = withdrawn(plan, again)
    kept = await _sound(reader, plan, before, past, again)
    if len(kept) == len(past) and not unfinished(past_of(before)):
        message = f"{before.run} has ended {before.status}: every task has succeeded, and its result is there"
        raise HeritageRefused(f"{message}. Name the tasks to do again.")
    return Heritage(kept=kept, reuses=before.run, retry_of=before.run, redo=tuple(redo)), plan


def _going(run: str, picture: Picture, manifest: Mapping[str, Any], *, same: bool) -> Successor:
    """The run that does it already, if it does what is asked for."""
    if not same:
        message = f"{run} is being done again already, by {picture.run}, which is still going"
        raise HeritageRefused(f"{message}. Steer that one, or wait for its end.")
    return Successor(picture.run, picture, picture.plan, Heritage(retry_of=manifest["retry_of"]), going=True)


def successor_id(family: str, number: int) -> str:
    """The id of a run of a family."""
    if len(family) > ID_MOST:
        family = f"{family[:ID_MOST]}-{hashlib.sha256(family.encode()).hexdigest()[:8]}"
    return f"{family}-r{number}"


async def _family(reader: RunReader, run: str) -> tuple[list[dict[str, Any]], str]:
    """The manifests of a family, oldest first, and the id that its next run would have."""
    given = await reader.manifest(run) or {"run": run}
    root = str(given.get("family") or run)
    members = [await reader.manifest(root) or given]
    number = 2
    while (found := await reader.manifest(successor_id(root, number))) is not None:
        if found.get("family") == root:  # any other was given that name by somebody
            members.append(found)
        number += 1
    return members, successor_id(root, number)


async def _sound(
    reader: RunReader, plan: Plan, before: Picture, past: Mapping[str, Past], again: Collection[str]
) -> dict[str, Kept]:
    """What is taken over, without what the store has lost or what was changed in it: that is simply done again."""
    kept = taken_over(plan, before.plan, past, again)
    places = asyncio.Semaphore(READ_AT_ONCE)

    async def is_lost(found: Kept) -> bool:
        async with places:
            return found.ref is None or not await reader.holds(found.ref)

    results = {id: found for id, found in kept.items() if found.status is TaskStatus.SUCCEEDED}
    lost = await asyncio.gather(*map(is_lost, results.values()))
    damaged = {id for id, gone in zip(results, lost, strict=True) if gone}
    return taken_over(plan, before.plan, past, {*again, *damaged}) if damaged else kept


def _shaped(plan: Plan, shape: Mapping[str, Any]) -> Plan:
    return plan.model_copy(update={name: value for name, value in shape.items() if value is not None})
