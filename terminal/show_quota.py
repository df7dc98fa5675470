"""The quota of an account on a terminal: limits and use, what stands in the way, workers, agents."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from rich.console import Console
from rich.table import Table
from rich.text import Text

from domain.quota.terms import MEASURES
from domain.quota.view import LaneView, QuotaView, day_words, window_words
from terminal.text import counted, local_time, plain, short, until_text

NARROW = 80
"""Columns under which only what is ours and what is used of it is shown."""

LIMITS = {
    "provider": "limits learned from the provider",
    "settings": "limits from the settings",
    "settings and provider": "limits from the settings, and from the provider where it allows less",
    "the provider tells none": "without limits: the provider tells none",
}


def show_quota(console: Console, account: str, mode: str, view: QuotaView, now: datetime) -> None:
    """One bank, from its account to those who wait."""
    last = f"last asked {_ago(view.at, now)}" if view.at else "never asked"
    head = (plain(account), "bold"), f" {plain(mode)}  ", (f"{view.headroom:.0%} headroom, {last}", "dim")
    console.print(Text.assemble(*head))
    for part in _parts(view, now, narrow=console.width < NARROW):
        console.print(part)


def _parts(view: QuotaView, now: datetime, *, narrow: bool) -> Iterator[Table | Text]:
    """What there is to show: an empty part is left out."""
    if view.day is not None:
        used_up = view.day.spent_usd + view.day.held_usd >= view.day.limit_usd
        yield Text(day_words(view.day), "yellow" if used_up else "")
    if any(lane.limits for lane in view.lanes.values()):
        yield _limits(view, narrow=narrow)
    for name, lane in view.lanes.items():
        yield from _state(name, lane, now)
    if view.workers:
        yield Text()
        yield _workers(view, now, narrow=narrow)
    if view.pools:
        yield Text()
        yield _agents(view, narrow=narrow)


def _limits(view: QuotaView, *, narrow: bool) -> Table:
    table = _table("class", "a minute", "used", "ours", *(() if narrow else ("limit", "left")), words=2)
    for name, lane in view.lanes.items():
        for place, measure in enumerate(measure for measure in MEASURES if measure in lane.limits):
            seen = lane.limits[measure]
            used = Text(f"{seen.used:,}", "yellow" if seen.used >= seen.ours else "")
            rest = () if narrow else (f"{seen.limit:,}", f"{seen.left:,}")
            table.add_row("" if place else plain(name), measure.replace("_", " "), used, f"{seen.ours:,}", *rest)
    return table


def _state(name: str, lane: LaneView, now: datetime) -> Iterator[Text]:
    """What there is to say of a class beside its figures; the worst first."""
    if lane.wall is not None:
        until = until_text(datetime.fromisoformat(lane.wall), now)
        yield Text.assemble(f"{plain(name)}: ", (f"the provider takes no calls; goes on {until}", "yellow"))
    if lane.window is not None:
        words = f"at most {counted(lane.window, 'call')} at once, {window_words(narrowed=lane.narrowed)}"
        yield Text.assemble(f"{plain(name)}: ", (words, "yellow"))
    limits = LIMITS.get(lane.source, "limits not known yet: the first answer tells them")
    yield Text(f"{plain(name)}: {counted(lane.flying, 'call')} under way, {limits}", "dim")


def _workers(view: QuotaView, now: datetime, *, narrow: bool) -> Table:
    table = _table("worker", "draws", "calls", "waiting", *(() if narrow else ("heard",)))
    table.add_column("of runs", overflow="fold")
    for name, worker in view.workers.items():
        runs = ", ".join(f"{plain(run)} {count}" for run, count in worker.runs.items()) if worker.waiting else ""
        heard = () if narrow else (_ago(worker.seen, now),)
        figures = (f"{worker.draws:,}", f"{worker.flying:,}", f"{worker.waiting:,}")
        table.add_row(plain(name), *figures, *heard, Text(runs, "dim"))
    return table


def _agents(view: QuotaView, *, narrow: bool) -> Table:
    table = _table("agent", "at work", *(() if narrow else ("promised",)))
    table.add_column("runs that wait for one", overflow="fold")
    for agent, pool in view.pools.items():
        promised = () if narrow else (f"{pool.promised:,}",)
        table.add_row(plain(agent), f"{pool.at_work:,}", *promised, Text(plain(", ".join(pool.waiting)), "dim"))
    return table


def _table(*headings: str, words: int = 1) -> Table:
    """A table whose first columns are words, and the others figures."""
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for place, heading in enumerate(headings):
        if place < words:
            table.add_column(heading, overflow="fold")
        else:
            table.add_column(heading, justify="right", no_wrap=True)
    return table


def _ago(time: str, now: datetime) -> str:
    then = datetime.fromisoformat(time)
    passed = (now - then).total_seconds()
    return f"{short(passed)} ago" if passed < 3600 else f"at {local_time(then, now)}"
