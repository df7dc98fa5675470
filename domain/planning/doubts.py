"""What is allowed in a plan and probably not meant."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from datetime import datetime

from domain.briefing import INPUTS_LIMIT
from domain.forms import Filled
from domain.grammar import ListForm, PlanForm
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

    def look(
        self,
        plan: Plan,
        staffing: Staffing,
        params: Mapping[str, str],
        used_inside: AbstractSet[str],
        now: datetime | None,
    ) -> None:
        """Look for what is brought along for nothing, asked several times alike, or too late."""
        staffing.warn_of_unused(self._warnings)
        self._of_params(params, used_inside)
        self._of_fan_outs()
        self._of_large_files()
        self._of_deadlines(plan, now)

    def _of_params(self, params: Mapping[str, str], used_inside: AbstractSet[str]) -> None:
        """Parameters that stand nowhere."""
        used = {name for each in self._checked for name in each.scope.used} | used_inside
        for name in params:
            if f"params.{name}" not in used:
                self._warnings.add(self._filled.at("params", name), f"the parameter {quoted(name)} is not used")

    def _of_fan_outs(self) -> None:
        """Several tasks that are asked the same."""
        for each in self._checked:
            form = each.draft.filled.form
            listed = isinstance(form.for_each, list | ListForm) and len(each.draft.items) > 1
            if (listed or each.draft.awaits is not None) and "item" not in each.scope.used:
                at = each.draft.filled.at("for_each")
                self._warnings.add(at, "every item gets the same prompt", task=each.draft.id, hint="place {{ item }}")

    def _of_large_files(self) -> None:
        """Files of which a task that shall merge all of them reads only the beginning."""
        for each in self._checked:
            for file in each.files if each.draft.filled.form.merge else ():
                if file.size > INPUTS_LIMIT:
                    at = each.draft.filled.at("files")
                    message = (
                        f"only the first {INPUTS_LIMIT:,} of the {file.size:,} bytes of {quoted(file.path)} are read"
                    )
                    self._warnings.add(at, message, task=each.draft.id, hint="split the file")

    def _of_deadlines(self, plan: Plan, now: datetime | None) -> None:
        """Deadlines before the end of the critical path."""
        if written := list(self._deadlines()):
            warn_of_deadlines(plan, written, now, self._warnings)

    def _deadlines(self) -> Iterator[WrittenDeadline]:
        if self._filled.form.deadline is not None:
            yield WrittenDeadline(self._filled.at("deadline"), self._filled.form.deadline)
        given = [(each.draft, self._effective.given(each.draft, "deadline")) for each in self._checked]
        yield from by_place((by[0].at("deadline"), by[0].form.deadline, draft.ids) for draft, by in given if by)
