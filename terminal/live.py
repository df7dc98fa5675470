"""The live view of a run: what is at work, what waits and why, in as many lines as the terminal has.

A frame takes time by what it shows, not by the size of the plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from domain.board import BACKOFF
from domain.consent import dollars
from domain.models import Pace, RunStatus, TaskStatus
from domain.picture import Picture
from terminal.remedies import STARTER, remedy
from terminal.rows import Row, laid_out, row_of, wait_text
from terminal.signs import SIGNS, STYLES, census_words, mode_of, status_text, words_of
from terminal.text import counted, cut, local_time, one_line, plain, seconds, wrapped

S = TaskStatus
ROOMY, TIGHT = 18, 14
"""Lines of a terminal from which there is room for blank lines, and below which everything but the news is left out."""

BAD = (S.FAILED, S.TIMED_OUT)
GONE = (S.SKIPPED, S.CANCELLED, S.NOT_STARTED)
ENDED = (S.SUCCEEDED, *BAD, *GONE)
CENSUS = (S.RUNNING, S.WAITING, S.READY, S.PENDING, *ENDED)
GROUPS = (("at work", (S.RUNNING,)), ("waiting", (S.WAITING,)), ("failed", BAD))
"""Tasks that have a line each."""
FOLDED = (S.READY, S.PENDING, *GONE, S.SUCCEEDED)
"""Tasks that have a line together."""

PLANS_SHOWN = 4
"""Plans inside the plan that have a line each."""

HELP = "Ctrl-C leaves, and the run goes on; twice cancels it."


@dataclass(frozen=True)
class LiveView:
    """A run at one moment."""

    picture: Picture
    now: datetime
    trouble: str | None = None
    notice: str | None = None
    starter: str = STARTER

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from self.lines(options.max_width, options.height or 40)

    def lines(self, width: int, height: int) -> list[Text]:
        """At most so many lines, none wider than the width."""
        top = [*self._head(width), *self._census(width, most=2), *self._plans(width), *self._sentences(width)]
        bottom = self._bottom(width, height)
        if height >= TIGHT:
            top, bottom = [*top, Text()], [Text(), *bottom] if bottom else []
        room = height - len(top) - len(bottom)
        return [*top, *self._body(width, room, roomy=height >= ROOMY), *bottom][:height]

    # The run

    def _head(self, width: int) -> list[Text]:
        picture = self.picture
        length = ((picture.finished or self.now) - picture.started).total_seconds() if picture.started else None
        clock = seconds(int(length)).replace(".0 s", " s") if length is not None else ""
        state = Text.assemble(
            status_text(picture.status), " ", mode_of(simulated=picture.simulated, provider=picture.provider)
        )
        id = cut(plain(picture.run), max(4, width - state.cell_len - len(clock) - 4))
        left = Text.assemble((id, "bold"), "  ", state)
        head = Text.assemble(left, " " * max(1, width - left.cell_len - len(clock)), (clock, "dim"))
        return [_fitted(head, width), self._bar(width)]

    def _bar(self, width: int) -> Text:
        """Ended tasks in full, those that did not succeed in red; tasks at work dotted. It is full only at the end."""
        total = max(1, len(self.picture.tasks))
        ended, bad = self._count(*ENDED), self._count(*BAD, *GONE)
        words = f"{ended:,} of {counted(len(self.picture.tasks), 'task')} ended"
        cells = max(0, width - len(words) - 2)
        full = cells * ended // total
        red = min(full, -(-cells * bad // total))
        dotted = min(cells - full, -(-cells * self._count(S.RUNNING) // total))
        return _fitted(
            Text.assemble(
                ("━" * (full - red), "green"),
                ("━" * red, "red"),
                ("╍" * dotted, "cyan"),
                ("─" * (cells - full - dotted), "dim"),
                f"  {words}",
            ),
            width,
        )

    def _census(self, width: int, most: int) -> list[Text]:
        """The count of tasks by state in words, without the zeros, the tokens, and what they cost."""
        words = [
            Text(f"{self._count(status):,} {words_of(status)}", STYLES[status])
            for status in CENSUS
            if self._count(status)
        ]
        tokens = self.picture.tokens
        if self.picture.reused:
            words.append(Text(f"{self.picture.reused:,} reused", "dim"))
        if tokens.output:
            words.append(Text(f"{tokens.input:,} tokens in, {tokens.output:,} out", "dim"))
        if (charged := self.picture.bills.all) is not None and charged.actual:
            words.append(Text(dollars(charged.actual), "dim"))
        return _packed(words, width, most)

    def _plans(self, width: int) -> list[Text]:
        """How far the plans inside the plan are: those that go on first."""
        found = sorted(self.picture.plans.items(), key=lambda each: each[1].ended == each[1].total)
        lines = [Text(cut(f"  {plain(id)}: {census_words(census)}", width), "dim") for id, census in found]
        more = [Text(cut(f"  … {len(lines) - PLANS_SHOWN:,} more plans inside", width), "dim")]
        return lines if len(lines) <= PLANS_SHOWN else [*lines[:PLANS_SHOWN], *more]

    def _sentences(self, width: int) -> list[Text]:
        """Why the run does not get on: what is wrong around it, or what it waits for."""
        told = [
            (self.trouble, "bold yellow"),
            (self._why(), STYLES.get(self.picture.status, "")),
            (self._attention(), "bold yellow"),
        ]
        return [Text(line, style) for words, style in told if words for line in wrapped(words, width, most=4)]

    def _attention(self) -> str | None:
        """What a person must do for the run to get on. Failures have their own lines, a stall is told as trouble."""
        asked = [found for found in self.picture.attention if found.kind not in {"failure", "stall"}]
        if not asked:
            return None
        more = f" (and {len(asked) - 1:,} more)" if len(asked) > 1 else ""
        return f"For you: {remedy(asked[0], self.starter)}{more}"

    def _why(self) -> str | None:
        at_work = self._count(S.RUNNING)
        if self.picture.status is RunStatus.PAUSED:
            finishing = f"{counted(at_work, 'task')} at work may finish" if at_work else "nothing is at work"
            return f"Paused: nothing new starts, {finishing}. The command `resume` goes on."
        if self.picture.status is not RunStatus.WAITING:
            return None
        ids = [*self.picture.of(S.WAITING), *islice(self.picture.of(S.READY), 1)]
        waits = [wait for id in ids if (wait := self.picture.wait(id, self.now)) is not None]
        first = min(waits, key=lambda wait: wait.until or "~", default=None)
        waiting = counted(self._count(S.WAITING, S.READY), "task waits", "tasks wait")
        return f"Nothing is at work: {waiting}{f'; the first: {wait_text(first, self.now)}' if first else ''}."

    # Its tasks

    def _body(self, width: int, room: int, *, roomy: bool) -> list[Text]:
        """The tasks that there is something to say of, then the others in one line for each state."""
        heading = roomy and width >= 60
        counts = [self._count(*states) for _, states in GROUPS]
        folded = [status for status in FOLDED if self._count(status)]
        if not roomy and sum(counts) + len(folded) > room:
            folded = []  # the census tells how many there are
        places = shared(counts, room - len(folded) - heading)
        items: list[Row | Text] = []
        for (words, states), count, place in zip(GROUPS, counts, places, strict=True):
            shown = count if place == count else max(0, place - 1)
            items += self._rows(states, shown)
            if place and shown < count:
                items.append(Text(cut(f"… {count - shown:,}{' more' if shown else ''} {words}", width), "dim"))
        items += self._others(folded, width, spare=room - len(folded) - heading - len(items))
        return laid_out(items, width, heading=heading)

    def _rows(self, states: Sequence[TaskStatus], number: int) -> list[Row]:
        """The tasks to show; of too many at work those in trouble come first, of too many that failed the last stay."""
        ids = [id for status in states for id in self.picture.of(status)]
        if len(ids) > number:
            ids = ids[len(ids) - number :] if states == BAD else sorted(ids, key=self._is_fine)[:number]
        return [row_of(self.picture, id, self.now) for id in ids]

    def _is_fine(self, id: str) -> bool:
        live = self.picture.tasks[id].live
        return live is None or (live.note.step != BACKOFF and not live.silent(self.now))

    def _others(self, states: Sequence[TaskStatus], width: int, spare: int) -> list[Row | Text]:
        """Tasks that have not begun one by one where there is room for all of a state; else a line for each state."""
        items: list[Row | Text] = []
        for status in states:
            extra = self._count(status) - 1
            if status in {S.READY, S.PENDING} and extra <= spare:
                spare -= extra
                items += self._rows((status,), extra + 1)
            else:
                items.append(self._fold(status, width))
        return items

    def _fold(self, status: TaskStatus, width: int) -> Text:
        """All tasks of a state in one line."""
        count = self._count(status)
        match status:
            case S.READY:
                words = f"{count:,} ready, {self._why_not_started()}"
            case S.PENDING:
                words = f"{count:,} pending, they wait for tasks before them"
            case S.SUCCEEDED:
                last = ", ".join(islice(self.picture.newest(status), 10))
                words = f"{count:,} succeeded, the last: {last}" if count > 10 else f"{count:,} succeeded: {last}"
            case _:
                id = next(self.picture.newest(status))
                error = self.picture.tasks[id].error
                words = f"{count:,} {words_of(status)}; {id}: {error.message if error else ''}"
        return Text.assemble((f"{SIGNS[status]} ", STYLES[status]), (one_line(words, width - 2), "dim"))

    def _why_not_started(self) -> str:
        if self.picture.paused:
            return "they wait until the run is resumed"
        first = islice(self.picture.of(S.READY), 3)  # one of them may be sent to find out whether the wall still stands
        if wall := next(filter(None, map(self.picture.wall_before, first)), None):
            return f"they wait until {local_time(wall.until, self.now)}: {wall.what}"
        if self.picture.plan.mode is Pace.WAVES:
            return f"they wait for the end of wave {self.picture.wave}"
        if not self.picture.has_places:
            return f"they wait for a place, all {self.picture.max_concurrency:,} are taken"
        return "they wait for a place or for their agent"

    def _bottom(self, width: int, height: int) -> list[Text]:
        if self.notice is not None:
            return [Text(line, "bold yellow") for line in wrapped(self.notice, width, most=2)]
        return [Text(cut(HELP, width), "dim")] if height >= ROOMY else []

    def _count(self, *states: TaskStatus) -> int:
        return sum(len(self.picture.of(status)) for status in states)


def live_view(picture: Picture, now: datetime | None = None) -> LiveView:
    """The run at this moment."""
    return LiveView(picture, now or datetime.now(UTC))


def shared(counts: Sequence[int], room: int) -> list[int]:
    """How many of so many lines each group gets: all it needs, or its part of what there is; none is wasted."""
    places = [0] * len(counts)
    left = max(0, room)
    while left and (wanting := [index for index, count in enumerate(counts) if places[index] < count]):
        each = max(1, left // len(wanting))
        for index in wanting:
            given = min(each, counts[index] - places[index], left)
            places[index] += given
            left -= given
    return places


def _packed(words: Iterable[Text], width: int, most: int) -> list[Text]:
    """Words side by side on as few lines as they fit; a figure is never cut, what has no room is left out."""
    lines = [Text()]
    for word in words:
        if not lines[-1].cell_len:
            lines[-1] = word
        elif lines[-1].cell_len + 2 + word.cell_len <= width - (2 if len(lines) == most else 0):
            lines[-1] = Text.assemble(lines[-1], "  ", word)
        elif len(lines) < most:
            lines.append(word)
        else:
            lines[-1] = Text.assemble(lines[-1], " …")
            break
    return [_fitted(line, width) for line in lines]


def _fitted(line: Text, width: int) -> Text:
    line.truncate(width, overflow="ellipsis")
    return line
