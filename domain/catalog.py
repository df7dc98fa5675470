"""Runs side by side: what a list shows of each, and which of them a person should look at."""

from __future__ import annotations

from domain.attention import MENTIONED
from domain.costs import AgentShare, Cost
from domain.models import RunStatus, Value
from domain.picture import Picture
from domain.progress import Census
from domain.report import Attention, Report


class RunEntry(Value):
    """One run in a list."""

    run: str
    name: str
    status: RunStatus
    simulated: bool
    census: Census | None
    submitted: str | None = None
    started: str | None
    finished: str | None
    cost: Cost = Cost()
    agents: tuple[AgentShare, ...] = ()
    """What each agent has done and cost."""
    attention: tuple[Attention, ...] = ()


def entry_of(picture: Picture, report: Report) -> RunEntry:
    """The line of a list that a report becomes."""
    return RunEntry(
        run=report.run,
        name=report.name,
        status=report.status,
        simulated=report.simulated,
        census=report.census,
        started=report.started,
        finished=report.finished,
        cost=report.cost,
        agents=picture.shares(),
        attention=report.attention[:MENTIONED],
    )
