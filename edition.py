"""Which edition of the workflow code this is: what decides whether a history that was written before still replays."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from runtime import ROOT

CODE = ("workflows", "domain", "activities/contract.py", "attributes.py", "payloads.py", "versioning.py")
"""The workflows, what they are made of, and what travels between them. A change elsewhere changes no command."""

LIBRARIES = ("temporalio", "pydantic")
"""They turn a history into what our code sees."""


def edition(root: Path = ROOT) -> str:
    """A hash of the workflow code on the disk, and of what it runs on."""
    digest = hashlib.sha256()
    for library in LIBRARIES:
        digest.update(f"{library} {version(library)}\n".encode())
    digest.update(f"python {platform.python_version()}\n".encode())
    for file in sorted(_files(root)):
        digest.update(f"{file.relative_to(root).as_posix()}\n".encode())
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:32]


def _files(root: Path) -> Iterator[Path]:
    for name in CODE:
        place = root / name
        yield from place.rglob("*.py") if place.is_dir() else [place]
