"""The files a plan names, each read once, checked, and kept by the hash of its content."""

from __future__ import annotations

from typing import Protocol, TypeVar

from domain.document import CONTROL
from domain.models import File, ref_of
from domain.tree import Source

T = TypeVar("T")

MAX_FILE_BYTES = 5_000_000
MAX_ALL_BYTES = 50_000_000

ADDRESSES = ("http://", "https://")
"""What begins so is no file of the folder, but wanted from elsewhere."""


class FolderError(Exception):
    """Why a file cannot be given: a sentence for the person who wrote the plan."""


def is_address(pattern: str) -> bool:
    """Whether this is wanted from elsewhere. Among the files of a task that is a right of its own."""
    return pattern.casefold().startswith(ADDRESSES)


class Folder(Protocol):
    """The folder of a plan: the only files a plan can name."""

    def read(self, path: str) -> bytes:
        """The content of a file, or FolderError."""

    def match(self, pattern: str) -> list[str]:
        """The files that match, as sorted paths relative to the folder; FolderError for a pattern not allowed."""


class Attachments:
    """What was read from the folder so far."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._matches: dict[str, list[str] | FolderError] = {}
        self._files: dict[str, tuple[File, str] | FolderError] = {}
        self._bytes = 0
        self.contents: dict[str, bytes] = {}

    def matching(self, pattern: str) -> list[str]:
        """The files that match, at least one; FolderError otherwise."""
        if is_address(pattern):
            raise FolderError(f"{pattern!r} is an address, and no file in the plan's folder")
        if pattern not in self._matches:
            try:
                found = self._folder.match(pattern)
                self._matches[pattern] = found or FolderError(f"{pattern!r} matches no file")
            except FolderError as error:
                self._matches[pattern] = error
        return _right(self._matches[pattern])

    def one(self, pattern: str) -> str:
        """The only file that matches; FolderError otherwise."""
        first, *others = self.matching(pattern)
        if others:
            raise FolderError(f"{pattern!r} matches more than one file")
        return first

    def file(self, path: str) -> File:
        """The file as it is now, its content kept for the store; FolderError when it cannot be given to an agent."""
        file, text = self._read(path)
        self.contents[file.ref] = text.encode("utf-8")
        return file

    def prompt(self, path: str) -> str:
        """The text of a prompt file, with the line ends of a prompt; FolderError when it is not a text."""
        _, text = self._read(path)
        text = text.removeprefix("\ufeff").replace("\r\n", "\n")
        if not text.strip():
            raise FolderError(f"{path!r} is empty")
        if found := CONTROL.search(text):
            line, column = Source(text).place(found.start())
            code = f"U+{ord(found.group()):04X}"
            raise FolderError(f"{path!r} holds the character {code} in line {line}, column {column}")
        return text

    def _read(self, path: str) -> tuple[File, str]:
        if path not in self._files:
            try:
                self._files[path] = self._read_now(path)
            except FolderError as error:
                self._files[path] = error
        return _right(self._files[path])

    def _read_now(self, path: str) -> tuple[File, str]:
        if self._bytes > MAX_ALL_BYTES:
            raise FolderError(f"the files of this plan are larger than {MAX_ALL_BYTES // 1_000_000} MB in all")
        content = self._folder.read(path)
        if len(content) > MAX_FILE_BYTES:
            raise FolderError(f"{path!r} is larger than {MAX_FILE_BYTES // 1_000_000} MB")
        self._bytes += len(content)
        if self._bytes > MAX_ALL_BYTES:
            return self._read_now(path)
        try:
            text = content.decode("utf-8")
        except UnicodeDecodeError:
            raise FolderError(f"{path!r} is not UTF-8 text") from None
        if "\x00" in text:
            raise FolderError(f"{path!r} is not a text: it holds NUL characters")
        return File(path=path, ref=ref_of(content), size=len(content)), text


def _right(outcome: T | FolderError) -> T:
    if isinstance(outcome, FolderError):
        raise outcome
    return outcome
