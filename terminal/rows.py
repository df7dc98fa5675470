"""One line per task in the live view: what it says, and how the lines share the width of a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from rich.cells import cell_len
from rich.text import Text

from domain.models import TaskStatus
from domain.picture import Picture
from domain.report import TaskReport
from domain.waits import Wait
from terminal.signs import SIGNS, STYLES, words_of
from terminal.text import cut, one_line, short, until_text

STEPS = {"permission": "starting", "joining": "calling", "quota": "quota", "cache": "starting"}
"""The steps of a call that people know by another word."""

COLUMNS = ("state", "agent", "try", "tokens", "time")
"""Between the task and what it waits for. All but the time are left out when the terminal is narrow."""

RIGHT = frozenset({"tokens", "time"})
FIRST_LEFT_OUT = ("agent", "tokens", "state", "try")

NOTE_WISH = 30
"""Cells that the last column should have before the others may have theirs."""

ID_MOST, ID_LEAST = 32, 12


@dataclass(frozen=True)
class Row:
    """One task in words."""

    sign: Text
    id: str
    cells: dict[str, str]
    note: str
    style: str

    @property
    def troubled(self) -> bool:
        """Whether something is in the way of a task at work."""
        return self.style == "yellow"


def row_of(picture: Picture, id: str, now: datetime) -> Row:
    """What there is to say of a task now."""
    task, seen = picture.task(id, now), picture.tasks[id]
    style = STYLES[task.status]
    if task.status is TaskStatus.RUNNING and task.wait is not None:
        style = "yellow"
    begin = seen.started if seen.ended else seen.since
    return Row(
        sign=Text("↻" if task.progress and task.progress.step == "backoff" else SIGNS[task.status], style),
        id=one_line(id, 200),
        cells={
            "state": _state(task),
            "agent": picture.planned[id].agent,
            "try": f"{task.attempts}/{picture.planned[id].attempts}" if task.attempts else "",
            "tokens": f"{task.tokens.output:,}" if task.tokens.output else "",
            "time": short(((seen.ended or now) - begin).total_seconds()) if begin else "",
        },
        note=one_line(_note(task, now), 200),
        style=style,
    )


def laid_out(items: Sequence[Row | Text], width: int, *, heading: bool) -> list[Text]:
    """Rows as lines of at most this width, in columns; lines among them stay as they are."""
    rows = [item for item in items if isinstance(item, Row)]
    kept, widths, note = _widths(rows, width, heading=heading)
    lines = [item if isinstance(item, Text) else _line(item, kept, widths, note, width) for item in items]
    if heading and rows:
        words = [_cell(name, widths[name], right=name in RIGHT) for name in ("task", *kept)]
        why = ["waits for, why"] if note >= 14 and any(row.note for row in rows) else []
        lines.insert(0, Text(cut(f"  {'  '.join([*words, *why])}", width), "dim"))
    return lines


def _line(row: Row, kept: Sequence[str], widths: Mapping[str, int], note: int, width: int) -> Text:
    line = Text.assemble(row.sign, " ", _cell(cut(row.id, widths["task"]), widths["task"]))
    for name in kept:
        line.append(
            f"  {_cell(row.cells[name], widths[name], right=name in RIGHT)}", row.style if name == "state" else ""
        )
    words = row.note or _left_out(row, kept)
    if words and note > 1:
        line.append(f"  {cut(words, note)}", row.style if row.troubled else "dim")
    line.rstrip()
    line.truncate(width, overflow="ellipsis")
    return line


def _left_out(row: Row, kept: Sequence[str]) -> str:
    """What the columns of a narrow terminal do not say, in the place of a note."""
    words = {"state": "{}", "try": "try {}", "tokens": "{} tokens"}
    return ", ".join(
        form.format(row.cells[name]) for name, form in words.items() if name not in kept and row.cells[name]
    )


def _widths(rows: Sequence[Row], width: int, *, heading: bool) -> tuple[list[str], dict[str, int], int]:
    """The columns that there is room for, how wide each is, and what is left for the note."""
    widest = {name: max((cell_len(row.cells[name]) for row in rows), default=0) for name in COLUMNS}
    kept = [name for name in COLUMNS if widest[name]]
    widths = {name: max(widest[name], len(name) if heading else 0) for name in COLUMNS}
    widths["task"] = max(4, min(ID_MOST, max((cell_len(row.id) for row in rows), default=4)))
    wish = min(NOTE_WISH, max((cell_len(row.note) for row in rows), default=0))

    def left() -> int:
        return width - 2 - sum(2 + widths[name] for name in kept) - widths["task"] - 2

    for name in FIRST_LEFT_OUT:
        if left() >= wish:
            break
        if name in kept:
            kept.remove(name)
    if (missing := wish - left()) > 0:
        widths["task"] = max(min(ID_LEAST, widths["task"]), widths["task"] - missing)
    return kept, widths, left()


def _cell(word: str, width: int, *, right: bool = False) -> str:
    fill = " " * (width - cell_len(word))
    return fill + word if right else word + fill


def _state(task: TaskReport) -> str:
    if task.status is not TaskStatus.RUNNING:
        return words_of(task.status)
    if task.wait is not None and task.wait.reason == "worker":
        return "no word"
    step = task.progress.step if task.progress else "permission"
    return STEPS.get(step, step)


def _note(task: TaskReport, now: datetime) -> str:
    if task.wait is not None:
        return wait_text(task.wait, now)
    return task.error.message if task.error else ""


TIMELESS = {
    "inputs": "waits for {what}",
    "slot": "waits for {what}",
    "pool": "waits for its agent {what}",
    "pause": "waits until the run is resumed",
    "budget": "waits for money: {what}",
}
"""Waits whose end nobody can know."""


def wait_text(wait: Wait, now: datetime) -> str:
    """What a task waits for; the time comes first, because a narrow terminal cuts the end."""
    what = wait.what or ("a place" if wait.reason == "slot" else "")
    if wait.reason in TIMELESS:
        return TIMELESS[wait.reason].format(what=what)
    until = until_text(datetime.fromisoformat(wait.until), now) if wait.until else ""
    match wait.reason:
        case "approval":
            return f"waits for approval{f', expires {until}' if until else ''}: {what}"
        case "backoff":
            return f"tries again {until or 'soon'}: {what}"
        case "worker" if wait.since and not until:
            return f"{what} for {short((now - datetime.fromisoformat(wait.since)).total_seconds())}"
    return f"goes on {until}: {what}" if until else what or wait.reason
