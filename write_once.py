"""Objects that are written once, over obstore: whoever is first decides, on a folder and in a bucket alike.

The one promise that everything else stands on is put-if-absent: a hard link in a folder, `If-None-Match: *` in a
bucket. An object that was acknowledged is there also after a power cut. With a key every object is encrypted here, for
its own place: one that was moved to another does not open.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from pathlib import Path

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import ObjectStore

from sealing import NO_KEYS, BrokenSeal, Keyring

FOLDERS_KNOWN = 100_000
"""Folders of which a process remembers that the disk has their names."""

AT_ONCE = 64
"""Objects of a bucket that are asked for side by side."""

_KEPT: set[Path] = set()


class StoreUnavailable(Exception):
    """The store does not answer or has no room. It may be mended."""


class StoreError(Exception):
    """The store does not hold what it should. Asking again does not help."""


@dataclass(frozen=True)
class Objects:
    """The objects of one store, by their keys."""

    objects: ObjectStore
    folder: Path | None
    """Where they are on this machine's disks, if they are."""
    keys: Keyring = NO_KEYS

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
            await obstore.put_async(self.objects, key, self._sealed(key, content), mode="create", use_multipart=False)
            created = True
        except AlreadyExistsError:
            created = False
        except (BaseError, OSError) as error:
            raise StoreUnavailable(f"the store cannot be written ({type(error).__name__})") from error
        try:
            await self._sync(key)
        except FileNotFoundError:
            return await self.create(key, content)  # somebody has pruned it since
        return created

    async def replace(self, key: str, content: bytes) -> None:
        """Write an object in place of what is there."""
        try:
            await obstore.put_async(self.objects, key, self._sealed(key, content), use_multipart=False)
        except (BaseError, OSError) as error:
            raise StoreUnavailable(f"the store cannot be written ({type(error).__name__})") from error

    async def read(self, key: str) -> bytes | None:
        """An object, or None when there is none."""
        try:
            content = bytes(await (await obstore.get_async(self.objects, key)).bytes_async())
        except FileNotFoundError:
            return None
        except (BaseError, OSError) as error:
            raise StoreUnavailable(f"the store cannot be read ({type(error).__name__})") from error
        return self._opened(key, content)

    async def read_all(self, keys: Sequence[str]) -> list[bytes | None]:
        """Many small objects at once, each or None: one by one they would cost more to ask for than to read."""
        if self.folder is not None:
            try:
                found = await asyncio.to_thread(_read_all, self.folder, keys)
            except OSError as error:
                raise StoreUnavailable(f"the store cannot be read ({type(error).__name__})") from error
            return [
                None if content is None else self._opened(key, content)
                for key, content in zip(keys, found, strict=True)
            ]
        places = asyncio.Semaphore(AT_ONCE)

        async def read(key: str) -> bytes | None:
            async with places:
                return await self.read(key)

        return await asyncio.gather(*map(read, keys))

    def _opened(self, key: str, content: bytes) -> bytes:
        try:
            return self.keys.opened(content, key.encode())
        except BrokenSeal as error:
            raise StoreError("an encrypted object in the store was changed after it was written") from error

    def _sealed(self, key: str, content: bytes) -> bytes:
        return self.keys.sealed(content, key.encode()) if self.keys else content

    async def remove(self, key: str) -> None:
        """See to it that there is no such object."""
        try:
            await obstore.delete_async(self.objects, key)
        except FileNotFoundError:
            return
        except (BaseError, OSError) as error:
            raise StoreUnavailable(f"the store cannot be written ({type(error).__name__})") from error

    async def refresh(self, key: str, content: bytes) -> None:
        """Make an object count as written now, if it is there: who prunes goes by its age."""
        if self.folder is None:
            await self.replace(key, content)
            return
        with suppress(FileNotFoundError):
            await asyncio.to_thread(os.utime, self.folder / key)

    async def discard(self, key: str, before: datetime) -> int:
        """Remove an object that is older; the bytes that are free now, 0 when it stays.

        In a folder nothing is lost to one who refreshes it at this very moment: it is taken aside first, and put back
        when it is found to be new. Who looked in between finds nothing, and writes it again. A bucket has no such step:
        there the moment between the question and the removal remains.
        """
        if self.folder is not None:
            return await asyncio.to_thread(_discard, self.folder / key, before.timestamp())
        if size := await self.old_size(key, before):
            await self.remove(key)
        return size

    async def old_size(self, key: str, before: datetime) -> int:
        """Bytes of an object that is older; 0 when it is not, or not there."""
        try:
            found = await obstore.head_async(self.objects, key)
        except FileNotFoundError:
            return 0
        except (BaseError, OSError) as error:
            raise StoreUnavailable(f"the store cannot be read ({type(error).__name__})") from error
        return int(found["size"]) if found["last_modified"] < before else 0

    async def tidy(self, prefix: str) -> None:
        """Remove the folders below a place in which nothing is left. A bucket has none."""
        if self.folder is not None:
            await asyncio.to_thread(_tidy, self.folder / prefix)

    async def size(self, key: str) -> int:
        """Bytes of an object; 0 when there is none."""
        try:
            return int((await obstore.head_async(self.objects, key))["size"])
        except FileNotFoundError:
            return 0
        except (BaseError, OSError) as error:
            raise StoreUnavailable(f"the store cannot be read ({type(error).__name__})") from error

    async def _sync(self, key: str) -> None:
        """Have the disk keep an object, also one that another has just written. A bucket keeps what it acknowledges."""
        if self.folder is None:
            return
        try:
            await asyncio.to_thread(_sync_up_to, self.folder, self.folder / key)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise StoreUnavailable(f"the store cannot be written ({type(error).__name__})") from error


def _read_all(folder: Path, keys: Sequence[str]) -> list[bytes | None]:
    found: list[bytes | None] = []
    for key in keys:
        try:
            with open(f"{folder}/{key}", "rb") as file:  # noqa: PTH123 - a Path takes longer to make than a file to read
                found.append(file.read())
        except FileNotFoundError:
            found.append(None)
    return found


def _discard(file: Path, before: float) -> int:
    aside = file.with_name(f"{file.name}#discarded")
    try:
        if file.stat().st_mtime >= before:
            return 0
        file.rename(aside)
        found = aside.stat()
        if found.st_mtime >= before:  # refreshed since we looked
            with suppress(FileExistsError):
                os.link(aside, file)
            aside.unlink()
            return 0
        aside.unlink()
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise StoreUnavailable(f"the store cannot be written ({type(error).__name__})") from error
    return found.st_size


def _tidy(folder: Path) -> None:
    for place in sorted((path for path in folder.rglob("*") if path.is_dir()), reverse=True):
        with suppress(OSError):  # something is in it
            place.rmdir()
    with suppress(OSError):
        folder.rmdir()


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
