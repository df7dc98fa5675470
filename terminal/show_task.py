"""One task of a run, all that is known of it: a label and its value on each line, then the brief."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import zip_longest

from rich.console import Console
from rich.text import Text

from domain.attention import command
from domain.consent import dollars
from domain.models import Input, Task, TaskStatus
from domain.report import Decision, TaskReport
from terminal.rows import wait_text
from terminal.show_cost import spared_words
from terminal.show_reuse import reused_words
from terminal.signs import status_text
from terminal.text import counted, local_time, one_line, plain, seconds, short

LABEL = 10
REVIEW = 2_000
"""Cells of a review that are shown: it was asked for at most 80 words."""


def show_task(
    console: Console,
    task: TaskReport,
    planned: Task,
    inputs: Iterable[Input],
    brief: str,
    *,
    reviews: Iterable[str | None] = (),
) -> None:
    """What a person asks of a task: how it stands, why, what reviewers said of it, what it got, what it was told."""
    now = datetime.now(UTC)
    for label, value in _facts(task, planned, now, reviews):
        console.print(Text.assemble((f"{label:{LABEL}} ", "dim"), value), soft_wrap=True)
    for input in inputs:
        console.print(Text.assemble((f"{'input':{LABEL}} ", "dim"), _input(input)), soft_wrap=True)
    console.print()
    console.print(Text("brief", "dim"))
    console.print(Text(plain(brief)), soft_wrap=True)


def _facts(
    task: TaskReport, planned: Task, now: datetime, reviews: Iterable[str | None]
) -> Iterator[tuple[str, Text | str]]:
    yield "task", plain(task.id)
    yield "state", _state(task, now)
    yield "agent", task.agent
    if task.region is not None:
        yield "region", plain(task.region)
    if task.type:
        yield "type", plain(task.type)
    if planned.item is not None:
        yield "item", one_line(planned.item, 500)
    yield "attempts", f"{task.attempts} of {planned.attempts}, each at most {seconds(task.timeout_s)}"
    if task.reused is not None:
        yield "reused", reused_words(task)
    if task.duration_s is not None:
        yield "time", seconds(task.duration_s)
    yield from _costs(task)
    if task.wait is not None:
        since = local_time(datetime.fromisoformat(task.wait.since), now) if task.wait.since else None
        yield "waits", one_line(wait_text(task.wait, now), 500) + (f" (since {since})" if since else "")
    yield from _history(task, now, reviews)
    yield from _reasons(task)
    if task.cause is not None and task.cause != task.id:
        yield "because of", plain(task.cause)
    if task.output_ref is not None:
        yield (
            "output",
            f"{task.output_ref}{' (partial: what there is of an answer that does not count)' * task.partial}",
        )

    if task.summary is not None and task.summary != task.output:
        yield "summary", one_line(task.summary, 700)


def _reasons(task: TaskReport) -> Iterator[tuple[str, str]]:
    """Why it did not succeed, or not in all."""
    if task.error is not None:
        again = "may be tried again" if task.error.retryable else "trying again would not help"
        hint = f" ({again})" if task.status in {TaskStatus.FAILED, TaskStatus.TIMED_OUT} and not task.refused else ""
        yield "error", f"{task.error.type}: {one_line(task.error.message, 500)}{hint}"
    for refused in task.refused:
        yield "refused", one_line(refused.sentence, 500)
        if refused.remedy is not None:
            yield "", one_line(refused.remedy, 500)


def _costs(task: TaskReport) -> Iterator[tuple[str, str]]:
    if any(task.tokens.model_dump().values()):
        yield "tokens", _tokens(task)
    if task.cost_usd is not None and (task.cost_usd or task.estimate_usd):
        likely = f" (likely: {dollars(task.estimate_usd)})" if task.estimate_usd is not None else ""
        vain = f", {dollars(task.retries_usd)} of it for attempts in vain" if task.retries_usd else ""
        yield "cost", f"{dollars(task.cost_usd)}{likely}{vain}"
    if spared := spared_words(task.savings):
        yield "saved", spared
    if any((most := task.unsettled).model_dump().values()):
        worth = f", {dollars(task.unsettled_usd)}" if task.unsettled_usd else ""
        yield "unsettled", f"up to {most.input:,} in and {most.output:,} out more{worth}, for attempts in vain"


def _history(task: TaskReport, now: datetime, reviews: Iterable[str | None]) -> Iterator[tuple[str, str]]:
    """What a person said of it, and what was tried in vain."""
    if task.approval is not None:
        yield "approval", _decision(task.approval, now)
    for review, why in zip_longest(task.reviews, reviews):
        verdict = "accepted" if review.accepted else "did not accept"
        said = f": {one_line(why, REVIEW)}" if why else ""
        yield "review", f"{plain(review.by)} {verdict} answer {review.number}{said}"
    for attempt in task.tries:
        at = local_time(datetime.fromisoformat(attempt.at), now)
        yield f"attempt {attempt.attempt}", one_line(f"{at}  {attempt.error.type}: {attempt.error.message}", 500)


def show_question(console: Console, run: str, task: TaskReport, planned: Task, starter: str) -> None:
    """What a person is asked, after everything that helps to answer it.

    A question about an item of a list has its words in the plan alone: events tell it without them.
    """
    asked = task.wait.what if task.wait else None
    if planned.item is not None and planned.approval is not None:
        asked = planned.approval.ask or asked
    ask = plain(asked or "")
    console.print()
    console.print(Text.assemble(("This task waits for your approval: ", "bold yellow"), ask), soft_wrap=True)
    for verb in ("approve", "reject"):
        console.print(Text(f"  {starter} {command(verb, run, task.id)} --note TEXT"), soft_wrap=True)


def _decision(decision: Decision, now: datetime) -> str:
    """Who has answered what, and when."""
    who = f" by {plain(decision.by)}" if decision.by else ""
    note = f": {plain(decision.note)}" if decision.note else ""
    return one_line(f"{decision.answer}{who} at {local_time(datetime.fromisoformat(decision.at), now)}{note}", 500)


def _state(task: TaskReport, now: datetime) -> Text:
    if task.progress is None:
        return status_text(task.status)
    since = short((now - datetime.fromisoformat(task.progress.since)).total_seconds())
    heard = short((now - datetime.fromisoformat(task.progress.heard)).total_seconds())
    return Text.assemble(
        status_text(task.status), f", {task.progress.step} for {since} (its worker was heard {heard} ago)"
    )


def _tokens(task: TaskReport) -> str:
    tokens = task.tokens
    if task.progress is not None:
        return f"about {counted(tokens.output, 'token')} of the answer so far"
    cached = f", {tokens.cache_read:,} read from the cache" if tokens.cache_read else ""
    written = f", {tokens.cache_write:,} written to it" if tokens.cache_write else ""
    return f"{tokens.input:,} in, {tokens.output:,} out{cached}{written}"


def _input(input: Input) -> Text:
    if input.whole is not None:
        whole = f"  as a summary, {input.ref}; the whole has {input.whole_bytes:,} bytes, {input.whole}"
        return Text.assemble(plain(input.task), "  ", status_text(input.status), whole)
    if input.status is TaskStatus.SUCCEEDED:
        return Text.assemble(plain(input.task), "  ", status_text(input.status), f"  {input.ref}")
    missing = one_line(f"missing: {input.why}", 500) if input.why else "no result yet"
    return Text.assemble(plain(input.task), "  ", status_text(input.status), f"  {missing}")
