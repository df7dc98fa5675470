"""Objects that are written once, over obstore: whoever is first decides, on a folder and in a bucket alike.

The one promise that everything else stands on is put-if-absent: a hard link in a folder, `If-None-Match: *` in a
bucket. An object that was acknowledged is there also after a power cut.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import ObjectStore

FOLDERS_KNOWN = 100_000
"""Folders of which a process remembers that the disk has their names."""

_KEPT: set[Path] = set()


class StoreUnavailable(Exception):
    """The store does not answer or has no room. It may be mended."""


@dataclass(frozen=True)
class Objects:
    """The objects of one store, by their keys."""

    objects: ObjectStore
    folder: Path | None
    """Where they are on this machine's disks, if they are."""

    async def settle(self, key: str, content: bytes) -> bytes:
        """Write an object if there is none; what stands there from now on, ours or that of whoever was first.

        Ours also when somebody heard no reply and wrote it again: the same bytes are the same object. One that a power
        cut left empty is no object, and is never written over, or two who found it would both be the first: there is a
        place after it, and put-if-absent decides there.
        """
        for place in _places(key):
            if await self.create(place, content):
                return content
            if there := await self.read(place):
                return there
        raise AssertionError  # the places do not end

    async def standing(self, key: str) -> bytes | None:
        """What stands at a key that was settled, if anything does."""
        for place in _places(key):
            there = await self.read(place)
            if there != b"":
                return there
        raise AssertionError

    async def create(self, key: str, content: bytes) -> bool:
        """Write an object if there is none; whether this call wrote it."""
        try:
            await obstore.put_async(self.objects, key, content, mode="create", use_multipart=False)
            created = True
        except AlreadyExistsError:
            created = False
        except (BaseError, OSError) as error:
            raise StoreUnavailable(f"the store cannot be written ({type(error).__name__})") from error
        await self._sync(key)
        return created

    async def replace(self, key: str, content: bytes) -> None:
        """Write an object in place of what is there."""
        try:
            await obstore.put_async(self.objects, key, content, use_multipart=False)
        except (BaseError, OSError) as error:
            raise StoreUnavailable(f"the store cannot be written ({type(error).__name__})") from error

    async def read(self, key: str) -> bytes | None:
        """An object, or None when there is none."""
        try:
            return bytes(await (await obstore.get_async(self.objects, key)).bytes_async())
        except FileNotFoundError:
            return None
        except (BaseError, OSError) as error:
            raise StoreUnavailable(f"the store cannot be read ({type(error).__name__})") from error

    async def remove(self, key: str) -> None:
        """See to it that there is no such object."""
        try:
            await obstore.delete_async(self.objects, key)
        except FileNotFoundError:
            return
        except (BaseError, OSError) as error:
            raise StoreUnavailable(f"the store cannot be written ({type(error).__name__})") from error

    async def _sync(self, key: str) -> None:
        """Have the disk keep an object, also one that another has just written. A bucket keeps what it acknowledges."""
        if self.folder is None:
            return
        try:
            await asyncio.to_thread(_sync_up_to, self.folder, self.folder / key)
        except OSError as error:
            raise StoreUnavailable(f"the store cannot be written ({type(error).__name__})") from error


def _places(key: str) -> Iterator[str]:
    """A key, and those after it for as long as power cuts have left empty what is there."""
    yield key
    yield from (f"{key}.{number}" for number in count(2))


def _sync_up_to(folder: Path, file: Path) -> None:
    """Sync a file and the folder that has its name; the folders above only until one whose own name is kept already."""
    _sync_one(file)
    above = [place for place in file.parents if place.is_relative_to(folder)]
    new = [place for place in above if place not in _KEPT]
    for place in above[: len(new) + 1]:
        _sync_one(place)
    if len(_KEPT) < FOLDERS_KNOWN:
        _KEPT.update(new)


def _sync_one(place: Path) -> None:
    opened = os.open(place, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
