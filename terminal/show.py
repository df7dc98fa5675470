"""A run as a person sees it: the live view, the picture now, the report."""

from __future__ import annotations

from datetime import UTC, datetime

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from domain.models import RunStatus, TaskStatus
from domain.report import Picture, Report, TaskReport
from terminal.text import one_line, plain, seconds

STYLES = {
    "SUCCEEDED": "green",
    "COMPLETED": "bold green",
    "RUNNING": "cyan",
    "WAITING": "yellow",
    "PAUSED": "yellow",
    "READY": "white",
    "PENDING": "dim",
    "FAILED": "bold red",
    "TIMED_OUT": "red",
    "SKIPPED": "magenta",
    "CANCELLED": "magenta",
    "NOT_STARTED": "dim",
    "DEGRADED": "bold yellow",
    "PARTIAL": "bold yellow",
}
SIGNS = {
    TaskStatus.SUCCEEDED: "✓",
    TaskStatus.RUNNING: "●",
    TaskStatus.WAITING: "◷",
    TaskStatus.READY: "○",
    TaskStatus.PENDING: "·",
    TaskStatus.FAILED: "✗",
    TaskStatus.TIMED_OUT: "⏱",
    TaskStatus.SKIPPED: "↷",
    TaskStatus.CANCELLED: "■",
    TaskStatus.NOT_STARTED: "□",
}
SHOWN = 12
"""Lines of tasks in the live view: those at work first, then what failed, then what comes next."""

LISTED = 100
"""Tasks that a report lists one by one."""

ORDER = [
    TaskStatus.RUNNING,
    TaskStatus.WAITING,
    TaskStatus.FAILED,
    TaskStatus.TIMED_OUT,
    TaskStatus.SKIPPED,
    TaskStatus.CANCELLED,
    TaskStatus.READY,
    TaskStatus.SUCCEEDED,
    TaskStatus.PENDING,
]


def mode_of(*, simulated: bool) -> Text:
    """The word that every screen shows."""
    return Text(" SIMULATED ", "black on yellow") if simulated else Text(" LIVE ", "white on red")


def live_view(picture: Picture, now: datetime | None = None) -> RenderableType:
    """The run at this moment, in a few lines whatever its size."""
    now = now or datetime.now(UTC)
    census = picture.census
    ended = census.total - census.pending - census.ready - census.waiting - census.running
    clock = seconds((picture.finished or now).timestamp() - picture.started.timestamp()) if picture.started else ""
    head = Table.grid(padding=(0, 1), expand=True)
    head.add_column(width=14)
    head.add_column()
    head.add_column(justify="right", no_wrap=True)
    bar = ProgressBar(total=max(census.total, 1), completed=ended, complete_style="green")
    head.add_row(Text(f"{ended}/{census.total} ended"), bar, Text(clock, "dim"))
    parts: list[RenderableType] = [head, counts(census.model_dump()), Text("")]
    parts.extend(_task_lines(picture, now))
    title = Text.assemble(
        (f" {picture.run} ", "bold"), status_text(picture.status), " ", mode_of(simulated=picture.simulated)
    )
    return Panel(Group(*parts), title=title, title_align="left", border_style="dim")


def counts(census: dict[str, int]) -> Text:
    """The census in words, without the zeros."""
    shown = [(name, count) for name, count in census.items() if name != "total" and count]
    return Text("  ").join(
        Text(f"{count} {name.replace('_', ' ')}", STYLES.get(name.upper(), "")) for name, count in shown
    )


def status_text(status: RunStatus | TaskStatus) -> Text:
    """A state in its colour."""
    return Text(status.value, STYLES.get(status.value, ""))


def plain_line(picture: Picture) -> str:
    """The run in one line, for output that is not a terminal."""
    census = {name: count for name, count in picture.census.model_dump().items() if count}
    figures = ", ".join(f"{name} {count}" for name, count in census.items())
    return f"{picture.run} {picture.status}: {figures}{' (SIMULATED)' if picture.simulated else ' (LIVE)'}"


def show_report(console: Console, report: Report, *, hints: list[str]) -> None:
    """The report for a person: the tasks, then the text that the run was for, then what to do next."""
    console.print()
    console.print(task_table(report, narrow=console.width < 80))
    told = {TaskStatus.FAILED, TaskStatus.TIMED_OUT, TaskStatus.SKIPPED}
    problems = [task for task in report.tasks if task.error is not None and task.status in told]
    for task in problems[:20]:
        console.print(Text.assemble((f"{task.id}: ", "bold"), plain(task.error.message if task.error else "")))
    if report.output:
        text = Text(plain(report.output).strip())
        console.print(Panel(text, title="result", title_align="left", border_style="green"))
    tokens = report.tokens
    console.print(
        Text.assemble(
            status_text(report.status),
            f"  {report.census.succeeded} of {report.census.total} tasks succeeded in {seconds(report.duration_s)}, ",
            f"{tokens.input} tokens in, {tokens.output} out  ",
            mode_of(simulated=report.simulated),
        )
    )
    for hint in hints:
        console.print(Text(hint, "dim"), soft_wrap=True)


def task_table(report: Report, *, narrow: bool = False) -> Table:
    """One line per task; of a very large run, those that did not succeed, or the first ones."""
    shown = report.tasks
    if len(shown) > LISTED:
        shown = tuple(task for task in shown if not task.success)[:LISTED] or shown[:SHOWN]
    waiting = any(task.wait for task in shown)
    table = Table(box=None, pad_edge=False, header_style="dim", caption_justify="left")
    table.add_column("", no_wrap=True)
    table.add_column("task", overflow="fold")
    for heading in ("state",) if narrow else ("agent", "state"):
        table.add_column(heading, no_wrap=True)
    for heading in ("time",) if narrow else ("tries", "time", "tokens"):
        table.add_column(heading, justify="right", no_wrap=True)
    if waiting:
        table.add_column("waits for")
    for task in shown:
        cells: list[RenderableType] = [Text(SIGNS[task.status], STYLES[task.status]), Text(plain(task.id))]
        cells += [] if narrow else [Text(task.agent, "dim")]
        cells += [status_text(task.status)]
        time, tokens = seconds(task.duration_s), str(task.tokens.output or "")
        cells += [time] if narrow else [str(task.attempts or ""), time, tokens]
        cells += [Text(_waits_for(task), "dim")] if waiting else []
        table.add_row(*cells)
    if len(shown) < len(report.tasks):
        table.caption = f"and {len(report.tasks) - len(shown)} more; --json shows all"
    return table


def _waits_for(task: TaskReport) -> str:
    if task.wait is None:
        return ""
    until = f" until {task.wait.until}" if task.wait.until else ""
    return one_line(f"{task.wait.reason}{': ' + task.wait.what if task.wait.what else ''}{until}", 60)


def _task_lines(picture: Picture, now: datetime) -> list[RenderableType]:
    by_state: dict[TaskStatus, list[str]] = {}
    for id, task in picture.tasks.items():
        by_state.setdefault(task.status, []).append(id)
    chosen = [id for state in ORDER for id in by_state.get(state, [])][:SHOWN]
    table = Table.grid(padding=(0, 1))
    position = {id: place for place, id in enumerate(picture.tasks)}
    agents = {task.id: task.agent for task in picture.plan.tasks}
    for id in sorted(chosen, key=position.__getitem__):
        task = picture.tasks[id]
        since = task.started if task.status is not TaskStatus.WAITING else task.since
        length = (task.ended or now).timestamp() - since.timestamp() if since else None
        note = task.wait.what if task.wait and task.wait.what else (task.error.message if task.error else "")
        table.add_row(
            Text(SIGNS[task.status], STYLES[task.status]),
            Text(one_line(id, 40)),
            status_text(task.status),
            Text(agents[id], "dim"),
            Text(seconds(length), "dim"),
            Text(one_line(note or "", 60), "dim"),
        )
    hidden = len(picture.tasks) - len(chosen)
    return [table, *([Text(f"and {hidden} more", "dim")] if hidden else [])]
