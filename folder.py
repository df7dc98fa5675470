"""The folder of a plan: the only files a plan can name, and only from inside.

A plan may come from somebody else, so a path in it is not trusted: it is relative, never climbs, and what it resolves
to must still lie in the folder, whatever links lead there.
"""

from __future__ import annotations

import fnmatch
import itertools
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from domain.planning import FolderError
from domain.planning.attachments import MAX_FILE_BYTES

MAX_VISITED = 100_000
_OPEN = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)


class PlanFolder:
    """Reads files below one root, and nothing else."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()

    @classmethod
    def of(cls, plan: str) -> PlanFolder:
        """The folder a plan file lies in; for a plan from standard input (`-`), the current one."""
        return cls(Path.cwd() if plan == "-" else Path(plan).absolute().parent)

    def read(self, path: str) -> bytes:
        """The content of one regular file inside the folder."""
        _check(path)
        real = self._inside(self.root / path, path)
        try:
            # The real path holds no link; should one appear now, it is not followed. A pipe does not make us wait.
            with os.fdopen(os.open(real, _OPEN), "rb") as file:
                about = os.fstat(file.fileno())
                if stat.S_ISDIR(about.st_mode):
                    raise FolderError(f"{path!r} is a folder; name its files, as in {path.rstrip('/') + '/*'!r}")
                if not stat.S_ISREG(about.st_mode):
                    raise FolderError(f"{path!r} is not a regular file")
                content = file.read(MAX_FILE_BYTES + 1)
        except OSError as error:
            raise FolderError(f"{path!r} cannot be read: {error.strerror}") from None
        if len(content) > MAX_FILE_BYTES:
            raise FolderError(f"{path!r} is larger than {MAX_FILE_BYTES // 1_000_000} MB")
        return content

    def match(self, pattern: str) -> list[str]:
        """The regular files that match, sorted. `*`, `?` and `[...]` within a name, `**` for any folders.

        Hidden names match only a pattern that names the dot. A pattern that is the name of a file is that file.
        """
        _check(pattern)
        if _exists(self.root / pattern) or not re.search(r"[*?\[]", pattern):
            return self._literal(pattern)
        parts = tuple(part for part in pattern.split("/") if part not in ("", "."))
        found = set()
        for entry in self._walk(parts):
            path = entry.relative_to(self.root).as_posix()
            if not path.isprintable():
                raise FolderError(f"{pattern!r} matches {path!r}, a name with unprintable characters")
            if self._inside(entry, path).is_file():
                found.add(path)
        return sorted(found)

    def _literal(self, path: str) -> list[str]:
        real = self._inside(self.root / path, path)
        if real.is_dir():
            raise FolderError(f"{path!r} is a folder; name its files, as in {path.rstrip('/') + '/*'!r}")
        if not real.is_file():
            raise FolderError(f"{path!r} is not a regular file")
        return [(self.root / path).relative_to(self.root).as_posix()]

    def _inside(self, path: Path, shown: str) -> Path:
        """The real path, all links followed, if it lies in the folder."""
        try:
            real = path.resolve(strict=True)
        except FileNotFoundError:
            raise FolderError(f"there is no file {shown!r} in {str(self.root)!r}") from None
        except (OSError, RuntimeError, ValueError):
            raise FolderError(f"{shown!r} cannot be found: too long, not allowed, or links in a circle") from None
        if not real.is_relative_to(self.root):
            raise FolderError(f"{shown!r} leads out of the plan's folder")
        return real

    def _walk(self, parts: tuple[str, ...]) -> Iterator[Path]:
        """Every entry whose names match the parts, each folder looked at once per part."""
        visits = itertools.count(1)
        waiting = [(self.root, parts)]
        seen = set(waiting)
        while waiting:
            for path, rest in self._next(*waiting.pop(), visits):
                if not rest:
                    yield path
                elif (path, rest) not in seen:
                    seen.add((path, rest))
                    waiting.append((path, rest))

    def _next(
        self, folder: Path, parts: tuple[str, ...], visits: Iterator[int]
    ) -> Iterator[tuple[Path, tuple[str, ...]]]:
        """What one part of a pattern finds in one folder, and the parts left to match below it.

        `**` does not enter hidden or linked folders; a link that is named is followed when it stays inside.
        """
        first, rest = parts[0], parts[1:]
        if first == "**" and rest:
            yield folder, rest
        for entry in _entries(folder):
            if next(visits) > MAX_VISITED:
                raise FolderError(f"the pattern looks at more than {MAX_VISITED:,} files; name a folder")
            path = folder / entry.name
            if not _exists(path):
                continue  # a link to nothing
            if first == "**":
                if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False):
                    yield path, parts
                elif not entry.name.startswith(".") and not rest:
                    yield path, ()
            elif _matches(entry.name, first) and (not rest or path.is_dir()):
                self._inside(path, path.relative_to(self.root).as_posix())
                yield path, rest


def _check(path: str) -> None:
    """Refuse a path that could mean anything but a file below the folder."""
    reason = None
    if not path.strip():
        reason = "is empty"
    elif not path.isprintable():
        reason = "holds unprintable characters"
    elif len(path) > 1_000:
        raise FolderError("a path of more than 1,000 characters is not allowed")
    elif path.startswith(("/", "~")):
        reason = "must be relative to the plan's folder"
    elif "\\" in path:
        reason = "holds a backslash; separate folders by '/'"
    elif re.match("[A-Za-z]:", path):
        reason = "names a drive; it must be relative to the plan's folder"
    elif ".." in path.split("/"):
        reason = "must not hold '..'"
    if reason is not None:
        raise FolderError(f"{path!r} {reason}")


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name too long for a file may still be a pattern
        return False


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        raise FolderError(f"{folder.name!r} cannot be read: {error.strerror}") from None


def _matches(name: str, pattern: str) -> bool:
    if name.startswith(".") and not pattern.startswith("."):
        return False
    return name == pattern or fnmatch.fnmatchcase(name, pattern)
