"""What each agent has done in a run, and what that has cost: for the sums of `costs`, and for the next estimate."""

from __future__ import annotations

from domain.costs import AgentShare, Savings, total
from domain.models import TaskStatus
from domain.picture import Picture
from domain.prices import NOTHING
from domain.trail import Part


def shares_of(picture: Picture) -> tuple[AgentShare, ...]:
    """A share for every agent that was at work, or was spared it, in the order of the plan."""
    found: dict[str, AgentShare] = {}
    for task in picture.plan.tasks:
        if picture.tasks[task.id].started is None and picture.tasks[task.id].reused is None:
            continue
        agent = picture.agents[task.agent]
        share = found.get(agent.called) or AgentShare(
            agent=agent.label,
            model=agent.model,
            cost_usd=NOTHING,
            retries_usd=NOTHING,
            unsettled_usd=NOTHING,
            savings=Savings(),
        )
        found[agent.called] = _with(share, picture, task.id)
    return tuple(found.values())


def _with(share: AgentShare, picture: Picture, id: str) -> AgentShare:
    """A share, and one more task."""
    seen, charged = picture.tasks[id], picture.bills.of(id)
    worked = seen.started is not None
    done = worked and seen.status is TaskStatus.SUCCEEDED
    return AgentShare(
        agent=share.agent,
        model=share.model,
        tasks=share.tasks + worked,
        answers=share.answers + done,
        answered=share.answered + seen.answered,
        seconds=round(share.seconds + (seconds_of_work(picture, id) if done else 0.0), 3),
        tokens=share.tokens + seen.tokens,
        cost_usd=total((share.cost_usd, charged.actual if charged else None)),
        retries_usd=total((share.retries_usd, charged.retries if charged else None)),
        unsettled_usd=total((share.unsettled_usd, charged.unsettled if charged else None)),
        savings=share.savings + charged.savings if share.savings is not None and charged else None,
    )


def seconds_of_work(picture: Picture, id: str) -> float:
    """Seconds of work on a task that has ended, without its waits."""
    since, until = picture.started, picture.tasks[id].ended
    if since is None or until is None:
        return 0.0
    stretches = picture.trail.stretches(id, since, until)
    return sum(stretch.length.total_seconds() for stretch in stretches if stretch.part is Part.WORK)
