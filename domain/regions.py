"""Regions: a run or an agent may be bound to one, and only workers that were started for it take its work.

A region is the suffix of a task queue. So it is Temporal that keeps it, and not a check that somebody could forget: a
worker polls the queues of its region, and nothing else is ever handed to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from domain.models import Agent, Plan
from domain.problems import Mistake

REGION = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
"""No sign that parts a queue from its region, and none that a shell or a path knows."""

SIGN = "@"


def checked(region: str) -> str:
    """The name of a region, if it can be one."""
    if not REGION.fullmatch(region):
        raise Mistake("must be lower-case letters, digits and '-', at most 32, and start with a letter or digit")
    return region


def regional(queue: str, region: str | None) -> str:
    """The queue of a region, by the queue of no region or of another one."""
    base = base_of(queue)
    return base if region is None else f"{base}{SIGN}{region}"


def region_of(queue: str) -> str | None:
    """The region whose queue it is."""
    return queue.partition(SIGN)[2] or None


def base_of(queue: str) -> str:
    """The queue without its region: what is one for all regions has its name from it."""
    return queue.partition(SIGN)[0]


def with_suffix(queue: str, suffix: str) -> str:
    """A queue beside another, in the same region. The region stays last, so that no name of one can be mistaken."""
    return regional(f"{base_of(queue)}{suffix}", region_of(queue))


def elsewhere(agents: Iterable[Agent], region: str | None) -> dict[str, str]:
    """The regions of agents that are not where their run is, by agent."""
    return {agent.called: agent.region for agent in agents if agent.region is not None and agent.region != region}


def needed(plan: Plan) -> tuple[str, ...]:
    """The regions in which somebody must work for a plan to get on; none when no region is named."""
    own = (plan.region,) if plan.region is not None else ()
    return tuple(dict.fromkeys((*own, *elsewhere(plan.agents, plan.region).values())))
