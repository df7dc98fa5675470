"""What a run has from runs before it, in words: of the whole, and of one task."""

from __future__ import annotations

from collections.abc import Iterator

from domain.consent import dollars
from domain.costs import Savings
from domain.models import Usage
from domain.report import Report, TaskReport
from terminal.text import counted, plain

NAMED = 3
"""Runs that the sentence names."""


def reuse_lines(report: Report) -> Iterator[str]:
    """The line of a report, when there is something to say."""
    if (reuse := report.reuse) is None:
        return
    more = f" and {len(reuse.runs) - NAMED} more" if len(reuse.runs) > NAMED else ""
    runs = ", ".join(plain(run) for run in reuse.runs[:NAMED]) + more
    yield f"Reused {counted(reuse.tasks, 'result')} of {runs}, which saved {_worth(reuse.tokens, report.cost.savings)}."


def reused_words(task: TaskReport) -> str:
    """Where the end of a task is from."""
    if task.saved is None:
        return f"as it ended in {plain(task.reused or '')}; it was not done again"
    return f"from {plain(task.reused or '')}, which saved {_worth(task.saved, task.savings)}"


def _worth(tokens: Usage, savings: Savings | None) -> str:
    """Money first, where it is known."""
    usd = savings.reuse_usd if savings is not None else None
    return f"{dollars(usd)} ({_tokens(tokens)})" if usd else _tokens(tokens)


def _tokens(tokens: Usage) -> str:
    cached = f", {tokens.cache_read + tokens.cache_write:,} of the cache" * bool(tokens.cache_read + tokens.cache_write)
    return f"{tokens.input:,} tokens in, {tokens.output:,} out{cached}"
