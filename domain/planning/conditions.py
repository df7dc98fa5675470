"""Values of a task that must fit each other: the quorum its optional needs, the time limit its timeout."""

from __future__ import annotations

from domain.durations import written
from domain.models import Agent, Policy
from domain.planning.drafts import Draft
from domain.planning.effective import Effective
from domain.problems import Problems

_FROM = {"task": "", "defaults": " of the defaults", "agent": " of the agent", "built in": ", which is built in"}


def check_quorum(draft: Draft, problems: Problems) -> None:
    """Report a quorum that no end of the needs could reach."""
    quorum = draft.filled.form.quorum
    if quorum is None or not draft.complete:
        return
    optional = sum(policy is Policy.OPTIONAL for policy in draft.needs.values())
    if not optional:
        message = "'quorum' counts optional needs, and this task has none"
        problems.add(draft.filled.at("quorum"), message, task=draft.id, hint="needs: {ID: optional}")
    elif quorum > optional:
        message = f"'quorum' must be at most {optional:,}, the number of optional needs, not {quorum:,}"
        problems.add(draft.filled.at("quorum"), message, task=draft.id)


def check_time_limit(draft: Draft, agent: Agent | None, effective: Effective, problems: Problems) -> None:
    """Report a limit of the whole task that is shorter than one attempt."""
    given = effective.given(draft, "time_limit")
    if given is None or not effective.is_known(draft, "timeout"):
        return
    if agent is None and effective.given(draft, "timeout") is None:
        return  # the timeout may be that of the agent, which has a complaint of its own
    timeout, source = effective.value(draft, agent, "timeout")
    if given[0].form.time_limit < timeout:
        limit = written(given[0].form.time_limit)
        message = f"'time_limit' {limit} is shorter than one attempt: the timeout is {written(timeout)}"
        problems.add(
            given[0].at("time_limit"), message + _FROM[source or "task"], task=draft.id, hint="lower 'timeout' too"
        )
