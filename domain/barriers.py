"""Walls: conditions of the account or of one model. What they concern waits outside; everything else goes on.

A wall is known to the whole run, not to the task that met it: nobody else asks before its end. When the provider told
the end, the wall falls then. Otherwise one task finds out after 1, 2, 4 ... 15 minutes whether it still stands.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from pydantic import JsonValue

from domain.chart import Chart
from domain.events import EventType, timestamp
from domain.models import Parked, WallKind
from domain.progress import Progress, Waiting, Wall
from domain.settling import make_ready, park
from domain.step import Draft

ACCOUNT = ""
"""Where a wall stands that concerns every model."""


def at_agent(agent: str) -> str:
    """Where a wall stands that concerns one agent: it is at work as often as it may be, in all runs together."""
    return f"agent {agent}"


def places_before(chart: Chart, id: str) -> tuple[str, str, str]:
    """Where walls stand that concern a task: before the account, its model, its agent."""
    return ACCOUNT, chart.model(id), at_agent(chart.tasks[id].agent)


OF_THE_ACCOUNT: frozenset[WallKind] = frozenset({"spend", "key", "unreachable", "disk"})

PROBE_FIRST, PROBE_LAST = timedelta(minutes=1), timedelta(minutes=15)
"""A wall without a known end is probed after 1, 2, 4 ... 15 minutes."""

PROBE_LAST_DISK = timedelta(minutes=2)
"""Of a disk without room: to look at it asks nobody, and whoever has made room waits for the run."""


LEAST = timedelta(seconds=2)
"""How long a told end that has passed is awaited all the same: the clock of the worker that heard it may be slow, and
its calls would turn back at once, again and again."""


def allows(chart: Chart, barriers: dict[str, Wall], id: str) -> bool:
    """Whether no wall keeps a task from starting."""
    return all(wall.probe == id for _, wall in _before(chart, barriers, id))


def is_error(chart: Chart, draft: Draft, id: str, kind: WallKind) -> bool:
    """Whether a wall is none: a key or a model that has never worked in this run is a mistake, and will not mend."""
    if kind == "key":
        return not draft.proven
    return kind == "model" and chart.model(id) not in draft.proven


def meet(chart: Chart, draft: Draft, id: str, parked: Parked) -> None:
    """A task has met a wall: raise it, or keep it up for longer, and let the task wait before it."""
    kind: WallKind = parked.wall or "rate"
    account, model, agent = places_before(chart, id)
    place = account if kind in OF_THE_ACCOUNT else agent if kind == "pool" else model
    draft.probes_no_more(id, but=place)
    known = draft.barriers.get(place)
    wall = _raised(known, id, parked, kind, draft.now)
    if known is not None and not chart.era.before_0_4 and _outlasts(known, id, parked, kind):
        wall = known
    if wall != known:
        draft.barriers[place] = wall
        _tell(draft, place, wall)
        _move_ends(chart, draft, place, wall)
    draft.wave.pop(id, None)
    busy = wall.kind == "pool"
    since = draft.now if parked.tries else draft.walled.get(id, draft.now)  # of one that got on meanwhile: from now on
    draft.walled[id] = since
    park(draft, id, Waiting(why="wall", what=wall.what, since=since, until=wall.until, busy=busy))


def _outlasts(known: Wall, id: str, parked: Parked, kind: WallKind) -> bool:
    """Whether a wall of another kind stands there whose end nobody knows, and this task was not sent to find it out.

    A told end, such as that of our own quota, says nothing of an overload or of a model that is gone: believed, it
    would send everybody there, again and again, in place of one task after 1, 2, 4 ... minutes.
    """
    return parked.until is not None and not known.told and known.kind != kind and known.probe != id


def _raised(known: Wall | None, id: str, parked: Parked, kind: WallKind, now: datetime) -> Wall:
    """The wall as it stands after one more task has met it."""
    if parked.until is not None:
        told = parked.until if parked.until > now else now + LEAST
        until = max(told, known.until) if known is not None and known.told else told
        return Wall(kind=kind, what=parked.what, since=known.since if known else now, until=until, told=True)
    if known is None:
        return Wall(kind=kind, what=parked.what, since=now, until=now + PROBE_FIRST, told=False)
    if known.probe != id:
        return known  # it was under way when the wall was met by another
    probes = min(known.probes + 1, 10)
    until = now + min(PROBE_FIRST * 2**probes, PROBE_LAST_DISK if kind == "disk" else PROBE_LAST)
    return Wall(kind=kind, what=parked.what, since=known.since, until=until, told=False, probes=probes)


def passed(chart: Chart, draft: Draft, id: str) -> None:
    """The provider took a call of this task: a wall that it was to probe has fallen."""
    for place, wall in [*_before(chart, draft.barriers, id)]:
        if wall.probe == id:
            fall(chart, draft, place)


def fall(chart: Chart, draft: Draft, place: str) -> None:
    """The wall is gone: what waited before it, and before no other, is ready."""
    del draft.barriers[place]
    draft.tell(EventType.QUOTA_CLEARED, **_place(place))
    for id, wait in [*draft.parked.items()]:
        if wait.why == "wall" and _stands_at(chart, id, place) and not [*_before(chart, draft.barriers, id)]:
            del draft.parked[id]
            make_ready(chart, draft, id)


def look(chart: Chart, draft: Draft) -> None:
    """Walls whose time has come fall, or are probed. A task before two of them probes both."""
    for place in [*draft.barriers]:
        if not _is_due(draft, place):
            continue
        waiting = _waiting_at(chart, draft, place)
        if draft.barriers[place].told or not waiting:
            fall(chart, draft, place)
            continue
        free = [id for id in waiting if all(_may_probe(draft, at, id) for at, _ in _before(chart, draft.barriers, id))]
        if free:
            _send(chart, draft, free[0])
        else:
            until = min(_others_end(chart, draft, place, id) for id in waiting)
            draft.barriers[place] = draft.barriers[place].model_copy(update={"until": until})
            _tell(draft, place, draft.barriers[place])


def _is_due(draft: Draft, place: str) -> bool:
    """Whether a wall is to be looked at now."""
    wall = draft.barriers.get(place)
    return wall is not None and wall.until <= draft.now and wall.probe is None


def _others_end(chart: Chart, draft: Draft, place: str, id: str) -> datetime:
    """When the other walls before a task may all be looked at together with this one."""
    others = [wall for at, wall in _before(chart, draft.barriers, id) if at != place]
    ends = [wall.until if wall.probe is None else draft.now + PROBE_FIRST for wall in others]
    return max(*ends, draft.now + timedelta(seconds=1))


def _may_probe(draft: Draft, place: str, id: str) -> bool:
    """Whether this task may be the one to find out about a wall."""
    wall = draft.barriers[place]
    return wall.probe == id or (_is_due(draft, place) and not wall.told)


def ask(chart: Chart, draft: Draft, places: Collection[str]) -> None:
    """A person says that these walls may be gone: they are looked at now, and nobody believes in a told end.

    At an agent that was busy all may ask at once: it costs nothing, and one of them alone would keep the others waiting
    until its call is over.
    """
    for place in places:
        wall = draft.barriers[place]
        if wall.probe is None:
            draft.barriers[place] = wall.model_copy(update={"until": draft.now, "told": wall.kind == "pool"})
    look(chart, draft)


def next_look(progress: Progress) -> Iterator[datetime]:
    """The times at which a wall must be looked at."""
    return (wall.until for wall in progress.barriers.values() if wall.probe is None)


def is_behind(chart: Chart, barriers: dict[str, Wall], id: str) -> bool:
    """Whether a wall stands before a task."""
    return bool(barriers) and any(True for _ in _before(chart, barriers, id))


def _send(chart: Chart, draft: Draft, id: str) -> None:
    """Let one task find out about every wall before it."""
    for place, wall in [*_before(chart, draft.barriers, id)]:
        if wall.probe != id:
            draft.barriers[place] = wall.model_copy(update={"probe": id})
            _tell(draft, place, draft.barriers[place])
    if id in draft.parked:
        del draft.parked[id]
        make_ready(chart, draft, id)


def _waiting_at(chart: Chart, draft: Draft, place: str) -> list[str]:
    """The tasks that a wall keeps waiting: those that met it first, in order, then those that could start."""
    order = chart.order(draft.started)
    walled = [id for id, wait in draft.parked.items() if wait.why == "wall" and _stands_at(chart, id, place)]
    met = [id for id in walled if all(need in draft.ended for need in chart.tasks[id].needs)]
    firsts = [order.ids[line[0]] for line in draft.ready.values() if line]
    probes = [wall.probe for wall in draft.barriers.values() if wall.probe and _in_line(chart, draft, wall.probe)]
    ready = dict.fromkeys([*firsts, *probes])
    return [
        *sorted(met, key=order.rank.__getitem__),
        *sorted((id for id in ready if _stands_at(chart, id, place)), key=order.rank.__getitem__),
    ]


def _in_line(chart: Chart, draft: Draft, id: str) -> bool:
    """Whether a task could start."""
    return chart.order(draft.started).rank[id] in draft.ready.get(chart.tasks[id].line, ())


def _before(chart: Chart, barriers: dict[str, Wall], id: str) -> Iterator[tuple[str, Wall]]:
    for place in places_before(chart, id) if barriers else ():
        if (wall := barriers.get(place)) is not None:
            yield place, wall


def _stands_at(chart: Chart, id: str, place: str) -> bool:
    return place in places_before(chart, id)


def _place(place: str) -> dict[str, JsonValue]:
    """Where a wall stands, as events tell it."""
    agent = place.removeprefix(at_agent(""))
    return {"model": None, "agent": agent} if agent != place else {"model": place or None}


def place_of(told: Mapping[str, Any]) -> str:
    """Where a wall stands that an event tells of."""
    return at_agent(told["agent"]) if told.get("agent") else told["model"] or ACCOUNT


def _move_ends(chart: Chart, draft: Draft, place: str, wall: Wall) -> None:
    """Those that wait before the wall wait until its new end."""
    for id, wait in draft.parked.items():
        if wait.why == "wall" and _stands_at(chart, id, place):
            draft.parked[id] = wait.model_copy(update={"until": wall.until})


def _tell(draft: Draft, place: str, wall: Wall) -> None:
    draft.tell(
        EventType.QUOTA_WALL,
        **_place(place),
        kind=wall.kind,
        what=wall.what,
        until=timestamp(wall.until),
        told=wall.told,
        probe=wall.probe,
    )
