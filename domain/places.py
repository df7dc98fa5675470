"""Who starts: the free places of a run, given out by rank; as a sliding window, or a whole wave at a time."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator

from domain import barriers, caps, purse
from domain.chart import Chart
from domain.events import EventType
from domain.models import Pace
from domain.prices import money
from domain.progress import Progress
from domain.rooms import Rooms
from domain.step import Draft

INPUTS_AT_ONCE = 5_000
"""Inputs that the tasks of one launch carry together, about 200 KB: a workflow task that sends 4 MB is terminated."""

STARTS_AHEAD = 4
"""Starts that the server need not have confirmed before a run goes on, or a tenth of its places if that is more.

A machine that cannot keep up confirms slowly: what a large run has too many of then waits here, where it costs nothing,
and not in the queues of server and worker, where the few tasks of a small run would wait behind them.
"""


def ahead(places: int) -> int:
    """How many starts of a run may be unconfirmed at a time."""
    return max(STARTS_AHEAD, places // 10)


def fill(chart: Chart, draft: Draft, unconfirmed: int | None = None) -> tuple[list[str], bool]:
    """Start whatever may start now; whether more could, but not in the same breath.

    `unconfirmed` starts are on their way to the server; None, where nobody counts them.
    """
    outline = chart.outline
    places = draft.max_concurrency or outline.max_concurrency
    room = places if unconfirmed is None else ahead(places) - unconfirmed
    rooms = Rooms(chart, draft, places)
    purse.look_again(chart, draft)
    if outline.mode is Pace.WAVES:
        _keep_waves(chart, draft, places)
    order = chart.order(draft.started)
    busy = Counter(chart.tasks[id].agent for id in draft.active)
    fanned = Counter(chart.tasks[id].fan for id in draft.active)
    starts: list[str] = []
    carried = 0
    held_up, short = purse.holds_up(chart, draft), caps.waiting_at(draft)
    while len(draft.active) < places:
        full = {agent for agent, pool in outline.pools.items() if busy[agent] >= pool}
        ranks = sorted({*_firsts(chart, draft), *(_paid_for(chart, draft) if short else ())})
        tasks = (chart.tasks[order.ids[rank]] for rank in ranks)
        paid = [task for task in tasks if task.id in draft.reserved or short.isdisjoint(caps.names(chart, task.id))]
        rooms.share_out({task.part for task in paid})
        narrow = {fan for fan, most in outline.fans.items() if fanned[fan] >= most}
        free = (task for task in paid if task.agent not in full and task.fan not in narrow)
        fit = (task for task in free if not (draft.active and held_up) or purse.has_its_own(chart, draft, task.id))
        task = next((task for task in fit if rooms.has_one_for(task)), None)
        if task is None and purse.lets_go(chart, draft):
            held_up, short = False, caps.waiting_at(draft)
            continue
        if task is None and outline.mode is Pace.WAVES and _begins_another_wave(chart, draft, places):
            continue
        if task is None:
            break
        if len(starts) >= room or (starts and carried + len(task.needs) > INPUTS_AT_ONCE):
            draft.peak = max(draft.peak, len(draft.active))
            return starts, True
        draft.ready[task.line].remove(order.rank[task.id])
        if not purse.reserve(chart, draft, task.id):
            purse.turn_away(chart, draft, task.id)
            held_up = held_up or purse.is_awaited(chart, draft, task.id)  # nobody passes it while others may settle
            short = caps.waiting_at(draft)
            continue
        carried += len(task.needs)
        busy[task.agent] += 1
        fanned[task.fan] += 1
        rooms.took(task)
        starts.append(task.id)
        _start(chart, draft, task.id)
    draft.peak = max(draft.peak, len(draft.active))
    return starts, False


def can_start(chart: Chart, progress: Progress) -> bool:
    """Whether a ready task has no wall before it: it waits for a place, if for anything.

    What stands before the first of a line stands before all of it, but those that are sent to find out.
    """
    if not progress.barriers:
        return bool(progress.ready)
    order = chart.order(progress.started)
    probes = {wall.probe for wall in progress.barriers.values()}
    candidates = (
        id
        for line in progress.ready.values()
        for place, id in enumerate(order.ids[rank] for rank in line)
        if place == 0 or id in probes
    )
    return any(barriers.allows(chart, progress.barriers, id) for id in candidates)


def _start(chart: Chart, draft: Draft, id: str) -> None:
    draft.active[id] = draft.now
    draft.since.pop(id, None)
    draft.begun[id] = None
    limit = chart.tasks[id].time_limit
    if limit is not None:
        draft.limits.setdefault(id, draft.now + limit)
    held = draft.reserved.get(id)
    draft.tell(EventType.TASK_STARTED, id, **({"reserved_usd": money(held.usd)} if held is not None else {}))


def _firsts(chart: Chart, draft: Draft) -> Iterator[int]:
    """The first task of each line that may start, by rank."""
    order = chart.order(draft.started)
    waves = chart.outline.mode is Pace.WAVES
    for line in draft.ready.values():
        for rank in line:
            id = order.ids[rank]
            if (not waves or id in draft.wave) and barriers.allows(chart, draft.barriers, id):
                yield rank
                break
            if not waves and not any(wall.probe for wall in draft.barriers.values()):
                break  # the wall before the first of a line stands before all of it


def _paid_for(chart: Chart, draft: Draft) -> Iterator[int]:
    """The ready tasks for which money is set aside already, by rank: they come for what a batch has brought.

    Others may wait for what is set aside for them, so they pass those in their line.
    """
    order = chart.order(draft.started)
    for id in draft.reserved:
        line, rank = draft.ready.get(chart.tasks[id].line, []), order.rank[id]
        place = bisect_left(line, rank)
        if place < len(line) and line[place] == rank and barriers.allows(chart, draft.barriers, id):
            yield rank


def _begins_another_wave(chart: Chart, draft: Draft, places: int) -> bool:
    """Whether a wave has begun because nothing is left of the one before: there was no money for the rest of it.

    Those of the next may cost less, and while nothing is at work nobody would come to look. Until 0.7 they waited.
    """
    if draft.wave or chart.era.before_0_8:
        return False
    _keep_waves(chart, draft, places)
    return bool(draft.wave)


def _keep_waves(chart: Chart, draft: Draft, places: int) -> None:
    """A wave is the first ready tasks in plan order; the next one begins when all of them have ended, or left.

    A task before a wall has left: it comes with a later wave.
    """
    order = chart.order(draft.started)
    draft.wave = dict.fromkeys(
        id for id in draft.wave if id in draft.active or barriers.allows(chart, draft.barriers, id)
    )
    if draft.wave:
        return
    ready = sorted(rank for line in draft.ready.values() for rank in line)
    free = (order.ids[rank] for rank in ready if barriers.allows(chart, draft.barriers, order.ids[rank]))
    draft.wave = dict.fromkeys(id for id, _ in zip(free, range(places), strict=False))
    if draft.wave:
        draft.waves += 1
        draft.tell(EventType.WAVE_STARTED, number=draft.waves, tasks=list(draft.wave))
