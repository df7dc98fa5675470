"""The tasks of a plan with the levels of those that merge: what is added is counted before it is paid for."""

from __future__ import annotations

from collections.abc import Sequence

from domain.merging import with_levels
from domain.models import Task
from domain.planning.building import MAX_TEXT_BYTES
from domain.planning.drafts import MAX_TASKS, Drafts
from domain.problems import Problems

PASSED_ON = (
    *(
        "agent",
        "priority",
        "deadline",
        "timeout",
        "time_limit",
        "attempts",
        "max_tokens",
        "budget_usd",
        "latency",
        "type",
    ),
)


class Levels:
    """All tasks of a plan. One `inside` another is laid out with the whole: its first tasks may get more inputs."""

    def __init__(self, tasks: Sequence[Task], drafts: Drafts, problems: Problems, *, inside: bool) -> None:
        self.tasks = tuple(tasks) if inside else with_levels(tasks)
        written = {task.id for task in tasks}
        self._added = [task for task in self.tasks if task.id not in written]
        if self._added and (too_much := self._too_much()):
            merging = next((draft for draft in drafts.all if draft.filled.form.merge), drafts.all[0])
            problems.add(merging.filled.at("merge"), too_much, task=merging.id)
            problems.raise_if_any()

    def _too_much(self) -> str | None:
        """Why this would be too large a plan."""
        if len(self.tasks) > MAX_TASKS:
            return f"with what 'merge' adds the plan has {len(self.tasks):,} tasks; at most {MAX_TASKS:,} are possible"
        if sum(len(str(task.prompt)) + len(str(task.payload)) for task in self._added) > MAX_TEXT_BYTES:
            return "with what 'merge' adds the prompts and payloads of the plan are larger than 50 MB in all"
        return None

    @property
    def sources(self) -> dict[str, dict[str, str]]:
        """Where the values of the tasks come from that were added."""
        return {task.id: dict.fromkeys(PASSED_ON, "merge") for task in self._added}
