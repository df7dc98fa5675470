"""The live view on a terminal: painted on the other screen, so that the one with the person's work stays as it was.

Only lines that changed are written, about once a second: when something was seen, and when the clock must go on.
"""

from __future__ import annotations

import os
import signal
from datetime import UTC, datetime
from time import monotonic
from types import TracebackType
from typing import Self

from rich.console import COLOR_SYSTEMS, Console
from rich.segment import Segment
from rich.text import Text

from domain.picture import Picture
from terminal.live import LiveView
from terminal.remedies import STARTER

AGAIN, CLOCK = 0.5, 1.0
"""Seconds between two frames at least when there is news, and at most when there is none."""

WHOLE = 10.0
"""Seconds after which everything is written again: what somebody typed is on the screen, too."""


class LiveScreen:
    """The other screen of a terminal, from the first look to the end."""

    def __init__(self, console: Console, starter: str = STARTER) -> None:
        self._console, self._starter = console, starter
        self._picture: Picture | None = None
        self._trouble: str | None = None
        self._notice: str | None = None
        self._last = 0
        self._on = False
        self._lines: list[Text] = []
        self._size = (0, 0)
        self._painted_at = self._whole_at = float("-inf")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()

    def look(self, picture: Picture, trouble: str | None) -> None:
        """Show this: at once if it tells something new, else when the clock goes on."""
        news = picture is not self._picture or picture.last != self._last or trouble != self._trouble
        self._picture, self._last, self._trouble = picture, picture.last, trouble
        if not self._on:
            self._enter()
        if news and monotonic() - self._painted_at >= AGAIN:
            self._paint()

    def say(self, words: str) -> None:
        """Show a word to the person at once."""
        self._notice = words
        self.repaint()

    def tick(self) -> None:
        """Let the clock of the view go on."""
        if monotonic() - self._painted_at >= CLOCK:
            self._paint()

    def repaint(self) -> None:
        """Paint everything again: the terminal has another size, or something else was written on it."""
        self._size = (0, 0)
        self._paint()

    def suspend(self) -> None:
        """Stop this process as Ctrl-Z does, with the screen as it was before; then go on."""
        on = self._on
        self._leave()
        os.kill(os.getpid(), signal.SIGSTOP)
        if on:
            self._enter()
            self.repaint()

    def _enter(self) -> None:
        self._on = self._console.set_alt_screen(enable=True)
        self._console.show_cursor(show=False)

    def _leave(self) -> None:
        if self._on:
            self._on = False
            self._console.show_cursor(show=True)
            self._console.set_alt_screen(enable=False)

    def _paint(self) -> None:
        """Write the lines that are not there yet."""
        if self._picture is None or not self._on:
            return
        now = monotonic()
        if now - self._whole_at >= WHOLE:
            self._size = (0, 0)
        size = self._console.size
        view = LiveView(
            self._picture, datetime.now(UTC), trouble=self._trouble, notice=self._notice, starter=self._starter
        )
        lines = view.lines(*size)
        if size != self._size:
            self._lines, self._whole_at, out = [], now, ["\x1b[2J"]
        else:
            out = []
        for row, line in enumerate(lines):
            if row >= len(self._lines) or line != self._lines[row]:
                out.append(f"\x1b[{row + 1};1H\x1b[K{self._encoded(line)}")
        if len(lines) < len(self._lines):
            out.append(f"\x1b[{len(lines) + 1};1H\x1b[J")
        self._lines, self._size, self._painted_at = lines, size, now
        self._console.file.write("".join(out))
        self._console.file.flush()

    def _encoded(self, line: Text) -> str:
        """The line with its colours, if the terminal has any. `Console.print` would take ten times as long for it."""
        system = COLOR_SYSTEMS.get(self._console.color_system or "")
        base = self._console.get_style(line.style) if line.style else None
        segments = line.render(self._console) if line.spans else [Segment(line.plain, base)]
        out = []
        for text, style, _ in segments:
            shown = style.without_color if style and self._console.no_color else style
            out.append(shown.render(text, color_system=system) if shown else text)
        return "".join(out)
