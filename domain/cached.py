"""What of a plan's briefs the provider will likely read from its cache, and what that leaves to pay for."""

from __future__ import annotations

from collections.abc import Mapping

from domain.briefing import STANDING_RULES
from domain.forecast import BYTES_PER_TOKEN, Forecast, Outlook
from domain.graph import in_order, needs_of
from domain.models import Agent, Plan, Task
from domain.sharing import minimum, of_file, of_task
from domain.values import Usage


def likely_usage(plan: Plan, forecasts: Mapping[str, Forecast], outlook: Outlook) -> dict[str, Usage]:
    """What each task will likely use: of what siblings share, the first one writes it, and the others read it."""
    agents = {agent.called: agent for agent in plan.agents}
    tasks = {task.id: task for task in plan.tasks}
    written: set[tuple[str, tuple[str, ...]]] = set()
    found: dict[str, Usage] = {}
    for id in in_order(needs_of(plan)):
        task, one = tasks[id], forecasts[id]
        shared = min(_shared(task, agents[task.agent], forecasts, outlook), one.input.likely)
        usage = Usage(input=one.input.likely - shared, output=one.output.likely)
        if task.shares is not None and shared >= minimum(agents[task.agent].model):
            first = (task.agent, task.shares) not in written
            written.add((task.agent, task.shares))
            usage += Usage(cache_write=shared) if first else Usage(cache_read=shared)
        else:
            usage += Usage(input=shared)
        found[id] = usage
    return found


def _shared(task: Task, agent: Agent, forecasts: Mapping[str, Forecast], outlook: Outlook) -> int:
    """Tokens at the beginning of a brief that siblings begin with, too."""
    if task.shares is None:
        return 0
    files = {of_file(file.path): file.size // BYTES_PER_TOKEN for file in task.files}
    results = {
        of_task(need.task): min(forecasts[need.task].output.likely, outlook.carried(need) // BYTES_PER_TOKEN)
        for need in task.needs
    }
    said = len(f"{agent.instructions}\n\n{STANDING_RULES}".encode()) // BYTES_PER_TOKEN
    return said + sum({**files, **results}.get(name, 0) for name in task.shares)
