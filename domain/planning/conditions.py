"""Values of a task that must fit each other: the quorum its optional needs, the time limit its timeout."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from domain.durations import written
from domain.grammar import FilesForm
from domain.models import Agent, File, Placement, Policy
from domain.planning.drafts import Draft
from domain.planning.effective import Effective
from domain.problems import Problems, quoted

_FROM = {"task": "", "defaults": " of the defaults", "agent": " of the agent", "built in": ", which is built in"}


def check_quorum(draft: Draft, problems: Problems, width: Callable[[str], int] = lambda _: 1) -> None:
    """Report a quorum that no end of the needs could reach. `width` is how many tasks one of them may become."""
    quorum = draft.filled.form.quorum
    if quorum is None or not draft.complete:
        return
    optional = sum(width(id) for id, policy in draft.needs.items() if policy is Policy.OPTIONAL)
    if not optional:
        message = "'quorum' counts optional needs, and this task has none"
        problems.add(draft.filled.at("quorum"), message, task=draft.id, hint="needs: {ID: optional}")
    elif quorum > optional:
        message = f"'quorum' must be at most {optional:,}, the number of optional needs, not {quorum:,}"
        problems.add(draft.filled.at("quorum"), message, task=draft.id)


def check_merge(
    draft: Draft, prompt: Iterable[object], files: Sequence[File], problems: Problems, *, inside: bool
) -> None:
    """Report a task that merges nothing, or a placed result, which could not be one of many."""
    if not draft.filled.form.merge:
        return
    # The first tasks of a plan inside another one may get what that one needs.
    if not (inside or draft.needs or files or isinstance(draft.filled.form.for_each, FilesForm)) and draft.complete:
        message = "'merge' merges results and files, and this task has neither"
        problems.add(draft.filled.at("merge"), message, task=draft.id, hint="add 'needs' or 'files'")
    for piece in prompt:
        if isinstance(piece, Placement):
            message = f"a task that merges cannot place {quoted(piece.name)} in its prompt: it may not fit there"
            hint = "remove the placeholder: all that it needs is given to the agent"
            problems.add(draft.filled.at("prompt"), message, task=draft.id, hint=hint)


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
