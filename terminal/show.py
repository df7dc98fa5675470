"""A run as a person reads it: the picture now, or the report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime

from rich.console import Console, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from domain.models import TaskStatus
from domain.report import Report, TaskReport
from domain.waits import Wait
from terminal.remedies import STARTER, remedy
from terminal.rows import wait_text
from terminal.show_cost import cost_cell, cost_lines, plan_cost
from terminal.show_reuse import reuse_lines
from terminal.show_tempo import tempo_lines
from terminal.signs import SIGNS, STYLES, census_words, mode_of, status_text, words_of
from terminal.text import counted, one_line, plain, seconds, short

LISTED = 100
"""Tasks that a report lists one by one; of a larger run those that a person should see."""

SAMPLE = 12
"""Tasks that it lists of a larger run in which every task succeeded."""

ROOMY = 100
"""Columns from which a table also says who does a task that waits; below, names and waits need the room."""

EXPLAINED = 20
"""Tasks that did not succeed whose reason stands below the table."""

FIRST = (
    TaskStatus.FAILED,
    TaskStatus.TIMED_OUT,
    TaskStatus.RUNNING,
    TaskStatus.WAITING,
    TaskStatus.SKIPPED,
    TaskStatus.CANCELLED,
    TaskStatus.READY,
    TaskStatus.PENDING,
    TaskStatus.NOT_STARTED,
    TaskStatus.SUCCEEDED,
)
"""Which tasks of a large run are listed before which."""


def show_report(console: Console, report: Report, *, hints: list[str], starter: str = STARTER) -> None:
    """The report for a person: the tasks, then the text that the run was for, then what to do next."""
    console.print()
    shown = listed(report)
    waiting = any(task.wait for task in shown)
    console.print(task_table(shown, narrow=console.width < (ROOMY if waiting else 80)))
    if len(shown) < len(report.tasks):
        console.print(Text(_others(report, shown), "dim"))
    _explain(console, report)
    if report.output:
        text = Text(plain(report.output).strip())
        console.print(Panel(text, title="result", title_align="left", border_style="green"))
    tokens, unsettled = report.tokens, report.unsettled
    more = f" (and up to {unsettled.output:,} more)" if any(unsettled.model_dump().values()) else ""
    console.print(
        Text.assemble(
            status_text(report.status),
            " ",
            mode_of(simulated=report.simulated, provider=report.provider),
            f" in {plain(report.region)}" if report.region is not None else "",
            f"  {report.census.succeeded:,} of {counted(report.census.total, 'task')} succeeded "
            f"in {seconds(report.duration_s) or 'no time yet'}, "
            f"{tokens.input:,} tokens in, {tokens.output:,} out{more}",
        )
    )
    for each in report.plans:
        console.print(Text(f"  {plain(each.id)}: {census_words(each.census)}{plan_cost(each)}", "dim"))
    for line in cost_lines(report):
        console.print(Text(line))
    for line in [*reuse_lines(report), *tempo_lines(report)]:
        console.print(Text(line, "dim"))
    _ask_for_attention(console, report, starter)
    for hint in hints:
        console.print(Text(hint, "dim"), soft_wrap=True)


def task_table(shown: Sequence[TaskReport], *, narrow: bool = False) -> Table:
    """One line per task."""
    waiting = any(task.wait for task in shown)
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("", no_wrap=True)
    table.add_column("task", overflow="fold")
    for heading in ("state",) if narrow else ("agent", "state"):
        table.add_column(heading, no_wrap=True)
    priced = not narrow and any(task.cost_usd for task in shown)
    figures = ("time",) if narrow else ("tries", "time", "tokens", "cost") if priced else ("tries", "time", "tokens")
    for heading in figures:
        table.add_column(heading, justify="right", no_wrap=True)
    if waiting:
        table.add_column("waits for")
    now = datetime.now(UTC)
    for task in shown:
        cells: list[RenderableType] = [Text(SIGNS[task.status], STYLES[task.status]), Text(plain(task.id))]
        cells += [] if narrow else [Text(task.agent, "dim")]
        cells += [Text.assemble(status_text(task.status), (" reused" if task.reused else "", "dim"))]
        time, tokens = seconds(task.duration_s), f"{task.tokens.output:,}" if task.tokens.output else ""
        cells += [time] if narrow else [str(task.attempts or ""), time, tokens]
        cells += [cost_cell(task)] if priced else []
        cells += [Text(one_line(_wait(task.wait, now), 100) if task.wait else "", "dim")] if waiting else []
        table.add_row(*cells)
    return table


def listed(report: Report) -> tuple[TaskReport, ...]:
    """The tasks that have a line each: all of them, or the first by what a person should see, in plan order."""
    if len(report.tasks) <= LISTED:
        return report.tasks
    if report.census.succeeded == report.census.total:
        return report.tasks[:SAMPLE]
    by_need = sorted(range(len(report.tasks)), key=lambda place: FIRST.index(report.tasks[place].status))
    return tuple(report.tasks[place] for place in sorted(by_need[:LISTED]))


def _others(report: Report, shown: tuple[TaskReport, ...]) -> str:
    """How many tasks have no line, and in which states they are."""
    left_out = Counter(task.status for task in report.tasks)
    left_out.subtract(task.status for task in shown)
    states = ", ".join(f"{left_out[status]:,} {words_of(status)}" for status in FIRST if left_out[status])
    return f"and {counted(len(report.tasks) - len(shown), 'more task')}: {states}; --json shows all"


def _explain(console: Console, report: Report) -> None:
    """Why tasks did not succeed."""
    told = {TaskStatus.FAILED, TaskStatus.TIMED_OUT, TaskStatus.SKIPPED}
    problems = [task for task in report.tasks if task.error is not None and task.status in told]
    problems.sort(key=lambda task: task.status is TaskStatus.SKIPPED)
    for task in problems[:EXPLAINED]:
        console.print(Text.assemble((f"{plain(task.id)}: ", "bold"), _why(task)))
    if len(problems) > EXPLAINED:
        more = counted(len(problems) - EXPLAINED, "more task")
        console.print(Text(f"and {more} that failed or were skipped; --json shows all", "dim"))


def _why(task: TaskReport) -> str:
    """Why a task did not succeed, and whether there is something to read all the same."""
    why = plain(task.error.message if task.error else "")
    named = task.cause is None or task.cause == task.id or repr(task.cause) in why
    cause = "" if named else f" (because of {plain(task.cause or '')})"
    kept = "; what there is of its answer is kept" if task.partial else ""
    return f"{why}{cause}{kept}"


def _wait(wait: Wait, now: datetime) -> str:
    """What a task waits for, and for how long it has."""
    words = wait_text(wait, now)
    if wait.since is None or wait.reason == "worker":
        return words
    return f"{words} (for {short((now - datetime.fromisoformat(wait.since)).total_seconds())})"


def _ask_for_attention(console: Console, report: Report, starter: str) -> None:
    """What a person should do, each with the command for it. Why tasks failed is told above: one command will do."""
    failed = [found for found in report.attention if found.kind == "failure"]
    asked = [found for found in report.attention if found.kind != "failure"]
    if report.attention:
        console.print(Text("for you to look at", "bold yellow"))
    for found in asked[:EXPLAINED]:
        what = one_line(": ".join(word for word in (found.task, found.what) if word), 300)
        console.print(Text(f"  {found.kind}  {what}"), soft_wrap=True)
        console.print(Text(f"    {remedy(found, starter)}", "dim"), soft_wrap=True)
    if len(asked) > EXPLAINED:
        console.print(Text(f"  and {len(asked) - EXPLAINED:,} more; --json shows all", "dim"))
    if failed:
        names = ", ".join(found.task for found in failed if found.task) or "not everything was done"
        console.print(Text(f"  failure  {one_line(names, 300)}"), soft_wrap=True)
        console.print(Text(f"    {remedy(failed[0], starter)}", "dim"), soft_wrap=True)
