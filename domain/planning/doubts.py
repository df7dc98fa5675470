"""What is allowed in a plan and probably not meant."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

from domain.forms import Filled
from domain.grammar import PlanForm
from domain.models import Plan
from domain.planning.checking import Checked
from domain.planning.effective import Effective
from domain.planning.foresight import WrittenDeadline, by_place, warn_of_deadlines
from domain.planning.staffing import Staffing
from domain.problems import Problem, Problems, quoted


class Doubts:
    """Gathers the warnings about a plan that is valid."""

    def __init__(self, filled: Filled[PlanForm], checked: Iterable[Checked], effective: Effective, file: str) -> None:
        self._filled = filled
        self._checked = list(checked)
        self._effective = effective
        self._warnings = Problems(file)

    def told(self) -> tuple[Problem, ...]:
        """All of them, by position."""
        return self._warnings.in_order()

    def of_agents(self, staffing: Staffing) -> None:
        """Agents that the plan brings along for nothing."""
        staffing.warn_of_unused(self._warnings)

    def of_params(self, params: Mapping[str, str]) -> None:
        """Parameters that stand nowhere."""
        used = {name for each in self._checked for name in each.scope.used}
        for name in params:
            if f"params.{name}" not in used:
                self._warnings.add(self._filled.at("params", name), f"the parameter {quoted(name)} is not used")

    def of_fan_outs(self) -> None:
        """Several tasks that are asked the same."""
        for each in self._checked:
            form = each.draft.filled.form
            if isinstance(form.for_each, list) and len(form.for_each) > 1 and "item" not in each.scope.used:
                at = each.draft.filled.at("for_each")
                self._warnings.add(at, "every item gets the same prompt", task=each.draft.id, hint="place {{ item }}")

    def of_deadlines(self, plan: Plan, now: datetime | None) -> None:
        """Deadlines before the end of the critical path."""
        if written := list(self._deadlines()):
            warn_of_deadlines(plan, written, now, self._warnings)

    def _deadlines(self) -> Iterator[WrittenDeadline]:
        if self._filled.form.deadline is not None:
            yield WrittenDeadline(self._filled.at("deadline"), self._filled.form.deadline)
        given = [(each.draft, self._effective.given(each.draft, "deadline")) for each in self._checked]
        yield from by_place((by[0].at("deadline"), by[0].form.deadline, draft.ids) for draft, by in given if by)
