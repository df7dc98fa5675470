"""What the last runs of a store teach about its agents, read from the small file that each leaves at its end."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping

from domain.catalog import RunEntry
from domain.experience import Experience, experience_of
from store import Store

RUNS = 20
"""Runs that count: agents change, and so do the models behind them."""

LOOKED_AT = 60
"""Runs that are looked at to find them. Those of the other mode, and those that are open, do not count."""

STAMP = re.compile(r"-(\d{4}-\d{6})-[0-9a-f]{4}$")
"""The time in an id that we made. An id that a person chose tells none, and is looked at last."""


async def recent_experience(store: Store, *, simulated: bool) -> Mapping[str, Experience]:
    """What the last ended runs have taught: of simulated ones for simulated ones, and of live ones for live ones."""
    ids = sorted(await store.runs(), key=_when)
    ends = await asyncio.gather(*(store.end(id) for id in ids[-LOOKED_AT:]))
    entries = [RunEntry.model_validate(end) for end in ends if end]
    counted = [entry for entry in entries if entry.simulated == simulated and _worked(entry)]
    counted.sort(key=lambda entry: entry.finished or "")
    return experience_of(entry.agents for entry in counted[-RUNS:])


def _worked(entry: RunEntry) -> bool:
    """Whether an agent was at work: one whose tasks were all taken over has taught nothing."""
    return any(share.tasks for share in entry.agents)


def _when(run: str) -> tuple[str, str]:
    """An order of runs by their ids alone: to read when each was submitted would take a look at every one."""
    return (found[1] if (found := STAMP.search(run)) else "", run)
