"""Markdown pages as a test reads them: fenced blocks, the commands in them, links, headings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

_FENCE = re.compile(r"^```(?P<language>[\w-]*)[^\n]*\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`([^`]+)`")
_LINK = re.compile(r"\]\((?P<path>[^)#\s]*)(?:#(?P<anchor>[^)\s]+))?\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_EXIT = re.compile(r"\s#.*\bexit (\d+)$")
_FILE = re.compile(r"# ([\w.-]+\.yaml)\n")


@dataclass(frozen=True)
class Fence:
    """A fenced block, and the line of its first content."""

    language: str
    text: str
    line: int

    @property
    def file(self) -> str | None:
        """The file that a plan says it is, in its first line."""
        found = _FILE.match(self.text) if self.language == "yaml" else None
        return found[1] if found else None

    @property
    def commands(self) -> list[Command]:
        """The lines of a shell block that are no comments; of a console block, those behind the `$`."""
        if self.language not in ("sh", "console"):
            return []
        lines = [(self.line + number, line) for number, line in enumerate(self.text.splitlines())]
        if self.language == "console":
            lines = [(number, line.removeprefix("$ ")) for number, line in lines if line.startswith("$ ")]
        return [Command(number, line) for number, line in lines if line.strip() and not line.startswith("#")]


@dataclass(frozen=True)
class Command:
    """One line for a shell. The exit code is 0, or the one that its comment ends with: `# exit 3`."""

    line: int
    text: str

    @property
    def exit(self) -> int:
        """How it must end."""
        found = _EXIT.search(self.text)
        return int(found[1]) if found else 0


@dataclass(frozen=True)
class Page:
    """One Markdown file of the repository."""

    path: Path

    @property
    def name(self) -> str:
        """Its path as people write it."""
        return self.path.relative_to(ROOT).as_posix()

    @property
    def text(self) -> str:
        """All of it."""
        return self.path.read_text("utf-8")

    @property
    def fences(self) -> list[Fence]:
        """Its blocks, in order."""
        text = self.text
        return [
            Fence(found["language"], found["text"], text.count("\n", 0, found.start()) + 2)
            for found in _FENCE.finditer(text)
        ]

    @property
    def prose(self) -> str:
        """The page without its blocks."""
        return _FENCE.sub("", self.text)

    def code(self) -> Iterator[str]:
        """What is set as code: lines of blocks that call the command line, and what stands between backticks."""
        for fence in self.fences:
            yield from (line for line in fence.text.splitlines() if "./starter.py" in line)
        for found in _CODE.finditer(self.prose):
            yield " ".join(found[1].split())

    def links(self) -> Iterator[tuple[Path, str | None]]:
        """Where its relative links and pictures lead: a file, and a heading of it."""
        for found in _LINK.finditer(self.prose):
            if not found["path"].startswith(("http://", "https://", "mailto:")):
                target = self.path.parent / found["path"] if found["path"] else self.path
                yield target.resolve(), found["anchor"]

    def anchors(self) -> set[str]:
        """Its headings as GitHub names them in links."""
        headings = _HEADING.findall(self.prose)
        return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
