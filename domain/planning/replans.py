"""`replan` of a plan: after which tasks an agent is asked whether the rest of the plan should change."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from domain.forms import Filled
from domain.grammar import ApprovalForm, PlanForm, ReplanForm
from domain.models import Agent, Approval, Grows, Task
from domain.planning.drafts import Drafts
from domain.planning.staffing import Staffing
from domain.problems import Problems, quoted
from domain.replanning import REPAIRS, REPLAN, SCHEMA, assignment, with_round
from domain.tree import Mapping

PLANNER = "planner"
ROUNDS, MAX_TASKS = 1, 20
TIMEOUT, ATTEMPTS, MAX_TOKENS = timedelta(seconds=120), 4, 4_096
"""Where neither the plan nor the agent says anything: a proposal has several prompts in it."""


class Replans:
    """What a plan says of changes that it allows, checked."""

    def __init__(
        self, filled: Filled[PlanForm], drafts: Drafts, staffing: Staffing, problems: Problems, *, inside: bool
    ) -> None:
        self._filled, self._drafts, self._staffing, self._problems = filled, drafts, staffing, problems
        self._form = filled.form.replan
        self._after: tuple[str, ...] = ()
        self._agent: Agent | None = None
        # Names are read though a number beside them is wrong: one mistake hides no other.
        if isinstance(written := filled.value("replan"), Mapping):
            self._check(written, inside=inside)

    def agents(self) -> tuple[Agent, ...]:
        """The agents of the plan: of one that may change all that may work, so that none that came since is used."""
        if self._form is not None and self._agent is not None:
            self._staffing.use(self._agent)
            self._staffing.use_all()
        return self._staffing.used()

    def added_to(self, tasks: Sequence[Task]) -> tuple[Task, ...]:
        """The tasks of the plan, with the one that is asked for changes."""
        if self._form is None or self._agent is None:
            return tuple(tasks)
        form, agent = self._form, self._agent
        most = form.max_tasks or MAX_TASKS
        replan = Task(
            id="replan-1",
            agent=agent.called,
            prompt=(assignment(most),),
            timeout=agent.timeout or TIMEOUT,
            attempts=agent.attempts or ATTEMPTS,
            max_tokens=agent.max_tokens or MAX_TOKENS,
            schema_=SCHEMA,
            repairs=REPAIRS,
            grows=Grows(kind="changes", max_tasks=most, rounds=(form.rounds or ROUNDS) - 1, approval=_approval(form)),
        )
        return with_round(tasks, replan, self._after)

    def _check(self, written: Mapping, *, inside: bool) -> None:
        if inside:
            self._complain("replan", "a plan inside another one cannot have 'replan'", "write it in the outer plan")
            return
        for draft in self._drafts.all:
            if REPLAN.fullmatch(draft.id):
                message = "with 'replan' in the plan, ids like this one are those of the tasks that propose changes"
                self._problems.add(draft.filled.at("id"), message, task=draft.id, hint="choose another id")
        after: dict[str, None] = {}
        for name, at in self._filled.names("replan", "after"):
            ids = self._drafts.lookup(name)
            if ids is None and name not in self._drafts.broken:
                message = f"'replan' is to be after {quoted(name)}, which is no task of this plan"
                self._problems.add(at, message, hint=self._drafts.suggest.hint(name))
            after |= dict.fromkeys(ids or ())
        self._after = tuple(after)
        self._agent = self._asked(written)

    def _asked(self, written: Mapping) -> Agent | None:
        """Who is asked for changes. Nobody when that is wrong (and reported)."""
        for name, at in self._filled.names("replan", "by"):
            return next(iter(self._staffing.named(name, at, self._problems, None).agents), None)
        agent = self._staffing.get(PLANNER)
        if agent is None and "by" not in written.entries:
            message = f"'replan' asks the agent {quoted(PLANNER)}, and there is none that may work"
            self._complain("replan", message, "name one: replan: {after: [ID], by: AGENT}")
        return agent

    def _complain(self, key: str, message: str, hint: str) -> None:
        self._problems.add(self._filled.at(key), message, hint=hint)


def _approval(form: ReplanForm) -> Approval | None:
    """Whether a person must agree to a change."""
    given = form.approval
    if not isinstance(given, ApprovalForm):
        return Approval() if given else None
    return Approval(ask=given.ask, expires=given.expires, on_expiry=given.on_expiry or "reject")
