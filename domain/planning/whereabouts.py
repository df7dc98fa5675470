"""Where the tasks of a plan are done: an agent that is bound to a region must be able to be there."""

from __future__ import annotations

from collections.abc import Iterable

from domain.forms import Filled
from domain.grammar import PlanForm
from domain.models import Agent, Task
from domain.planning.checking import Checked
from domain.problems import Problems, quoted
from domain.summaries import SUMMARIZER


class Whereabouts:
    """The region of one plan: what whoever starts it says, else what it says itself. Inside another, that of it."""

    def __init__(self, filled: Filled[PlanForm], asked: str | None, problems: Problems, *, inside: bool) -> None:
        self._filled, self._problems = filled, problems
        written = filled.form.region
        self.region = asked if inside or asked is not None else written
        self.source = {"region": "option" if asked is not None else "plan"} if self.region is not None else {}
        if inside and written not in (None, asked):
            message = f"a plan inside another one is where that one is, {_where(asked)}"
            problems.add(filled.at("region"), message, hint="write it in the outer plan")

    def check(self, checked: Iterable[Checked]) -> None:
        """Report tasks whose agent is bound to another region than their run."""
        for each in checked:
            if self.region is not None and each.agent is not None and each.agent.region not in (None, self.region):
                message = f"its agent {quoted(each.agent.name)} is bound to {_where(each.agent.region)}"
                message += f", and the run to {_where(self.region)}"
                self._problems.add(
                    each.draft.filled.at("agent"), message, task=each.draft.id, hint="choose one of them"
                )

    def check_summaries(self, tasks: Iterable[Task], agents: Iterable[Agent]) -> None:
        """Report a summary that would be made elsewhere than its agent may be: it is made where the result is."""
        by_name = {agent.called: agent for agent in agents}
        bound = by_name[SUMMARIZER].region if SUMMARIZER in by_name else None
        for task in tasks if bound is not None else ():
            where = by_name[task.agent].region or self.region
            if task.summarise and where != bound:
                message = (
                    f"its result is summed up by the agent {quoted(SUMMARIZER)}, which is bound to {_where(bound)}"
                )
                message += f", and it is done in {_where(where)}"
                self._problems.add(self._filled.at("tasks"), message, task=task.id, hint="pass: full needs no summary")
                return


def _where(region: str | None) -> str:
    return "no region" if region is None else f"the region {quoted(region)}"
