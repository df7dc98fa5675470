"""Why the tasks of a run do not get on, as the supervisor itself knows it: what its query answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from domain import barriers, purse, waits
from domain.chart import Chart
from domain.models import Pace
from domain.progress import Progress
from domain.waits import Wait

MOST = 500
"""Waits that one answer holds: those outside first, then those that could start, then those to come."""


def waits_of(chart: Chart, progress: Progress) -> dict[str, Wait]:
    """What each task waits for that has neither ended nor is at work."""
    found: dict[str, Wait] = {}
    for id, wait in _all(chart, progress):
        if len(found) == MOST:
            break
        found[id] = wait
    return found


def _all(chart: Chart, progress: Progress) -> Iterator[tuple[str, Wait]]:
    for id, wait in progress.parked.items():
        yield (
            id,
            Wait(reason=wait.reason, what=wait.what, since=waits.stamp(wait.since), until=waits.stamp(wait.until)),
        )
    order = chart.order(progress.started)
    busy = Counter(chart.tasks[id].agent for id in progress.active)
    for rank in sorted(rank for line in progress.ready.values() for rank in line):
        yield order.ids[rank], _of_ready(chart, progress, order.ids[rank], busy)
    for id in progress.unmet:
        open_needs = [need for need in chart.tasks[id].needs if need not in progress.ended]
        yield id, waits.for_inputs(open_needs, progress.since.get(id, progress.started))


def _of_ready(chart: Chart, progress: Progress, id: str, busy: Counter[str]) -> Wait:
    """A task that could start waits for the run to be resumed, a wall to fall, the next wave, its agent, or a place."""
    outline, agent, since = chart.outline, chart.tasks[id].agent, progress.since.get(id)
    if progress.paused:
        return waits.for_the_pause(since)
    walls = [progress.barriers.get(place) for place in barriers.places_before(chart, id)]
    if standing := [wall for wall in walls if wall is not None and wall.probe != id]:
        highest = max(standing, key=lambda wall: wall.until)
        return waits.for_a_wall(highest, since, progress.walled.get(id))
    if purse.is_in_the_way(chart, progress, id):
        return waits.for_money(since)
    if outline.mode is Pace.WAVES:
        return waits.for_a_wave(progress.waves, since)
    pool = outline.pools.get(agent)
    if (
        pool is not None
        and busy[agent] >= pool
        and busy.total() < (progress.max_concurrency or outline.max_concurrency)
    ):
        return waits.for_an_agent(agent, pool, since)
    all_taken = busy.total() >= (progress.max_concurrency or outline.max_concurrency)
    return waits.for_a_place(since, None if all_taken else chart.tasks[id].part)
