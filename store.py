"""Artifacts, the call ledger and the event log, over obstore: a folder by default, a bucket when shared.

Everything but the boards is written once. Contents are named by their hash and checked when they are read; the other
keys are made from run ids, numbers and hashes, never from text of a model or a user.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit, urlunsplit

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import LocalStore, ObjectStore, from_url

from domain.events import Event, from_envelope, to_envelope
from domain.models import ref_of

REF = re.compile(r"sha256:[0-9a-f]{64}")
RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,199}")


class StoreError(Exception):
    """The store does not hold what it should. Asking again does not help."""


class StoreUnavailable(Exception):
    """The store does not answer or has no room. It may be mended."""


def open_store(location: str) -> Store:
    """The store at a folder or at any URL that obstore takes."""
    scheme = urlsplit(location).scheme
    if len(scheme) > 1:
        try:
            objects = from_url(location)
        except (BaseError, ValueError, NotImplementedError) as error:
            raise StoreError(_unusable(location)) from error
        if scheme in {"http", "https"}:  # a web server cannot promise to write a thing once
            raise StoreError(_unusable(location))
        return Store(objects, location)
    folder = Path(location).absolute()
    try:
        return Store(LocalStore(folder, mkdir=True), str(folder))
    except (BaseError, OSError) as error:  # a disk that is not mounted, a file in its place
        raise StoreUnavailable(f"the store {folder} cannot be opened or made ({type(error).__name__})") from error


def _unusable(location: str) -> str:
    return f"The store {shown_location(location)} cannot be used: give a folder, or a URL such as s3://BUCKET/PATH."


def shown_location(location: str) -> str:
    """Where a store is, as people may read it: a URL without what could be a secret."""
    parts = urlsplit(location)
    if len(parts.scheme) <= 1:
        return location
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


@dataclass(frozen=True)
class Store:
    """All that outlives a process, besides Temporal's own database."""

    objects: ObjectStore
    location: str

    @property
    def name(self) -> str:
        """What others may be told of where it is: the URL without credentials, and no path of this machine."""
        parts = urlsplit(self.location)
        if len(parts.scheme) <= 1 or parts.scheme == "file":
            return "a folder"
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    # Artifacts: contents by hash

    async def put_artifact(self, content: bytes) -> str:
        """Keep a content and give its reference. Writing it twice is the same as once."""
        ref = ref_of(content)
        await self._create(_artifact_key(ref), content)
        return ref

    async def artifact(self, ref: str) -> bytes:
        """The content of a reference, checked against its hash."""
        content = await self._read(_artifact_key(ref))
        if content is None:
            raise StoreError(f"the store has no content {ref}")
        if ref_of(content) != ref:
            raise StoreError(f"the content {ref} in the store was changed after it was written")
        return content

    # Runs: what was submitted

    async def put_manifest(self, run: str, manifest: dict[str, Any]) -> dict[str, Any]:
        """Write down what a run is, once; the one that stands is returned."""
        key = f"runs/{_checked(run)}/manifest.json"
        if not await self._create(key, _encode(manifest)):
            if standing := await self.manifest(run):
                return standing
            await self._replace(key, _encode(manifest))  # a power cut left it empty
        return manifest

    async def manifest(self, run: str) -> dict[str, Any] | None:
        """What a run is, or None when there is no such run here."""
        content = await self._read(f"runs/{_checked(run)}/manifest.json")
        return cast("dict[str, Any]", json.loads(content)) if content else None  # empty: a power cut before the start

    async def has_run(self, run: str) -> bool:
        """Whether the run was submitted to this very store, whatever its address is called here."""
        return await self._read(f"runs/{_checked(run)}/manifest.json") is not None

    async def runs(self) -> list[str]:
        """The ids of all runs."""
        try:
            listed = await obstore.list_with_delimiter_async(self.objects, "runs/")
        except (BaseError, OSError) as error:
            raise StoreUnavailable(f"the store cannot be read ({type(error).__name__})") from error
        return sorted(str(prefix).rstrip("/").rpartition("/")[2] for prefix in listed["common_prefixes"])

    async def put_end(self, run: str, end: dict[str, Any]) -> None:
        """Write down how a run ended, once, so that a list need not read its whole event log."""
        await self._create(f"runs/{_checked(run)}/end.json", _encode(end))

    async def end(self, run: str) -> dict[str, Any] | None:
        """How a run ended, or None when it has not told so."""
        content = await self._read(f"runs/{_checked(run)}/end.json")
        return cast("dict[str, Any]", json.loads(content)) if content else None

    # The event log: segments named by their first number

    async def append_events(self, run: str, events: tuple[Event, ...]) -> None:
        """Append a segment. Events that are there already, as in a retry with more of them, are passed over."""
        while events:
            lines = [json.dumps(to_envelope(run, event), ensure_ascii=False) for event in events]
            key = f"runs/{_checked(run)}/events/{events[0].number:010}.jsonl"
            if await self._create(key, ("\n".join(lines) + "\n").encode()):
                return
            there = (await self._read(key) or b"").splitlines()
            events = events[len(there) :]

    async def events(self, run: str, after: int = 0) -> AsyncIterator[Event]:
        """The events that follow number `after`, which is 0 or the last one that this gave before.

        Segments are read whole and follow each other by number, so a reader asks for the next one by its name.
        """
        while content := await self._read(f"runs/{_checked(run)}/events/{after + 1:010}.jsonl"):
            for line in content.splitlines():
                event = from_envelope(json.loads(line))
                after = event.number
                yield event

    # The boards: what workers say of tasks at work, one small object each, written again and again

    async def put_page(self, run: str, worker: str, page: bytes) -> None:
        """Write what a worker has to say of a run in place of what it said before."""
        await self._replace(f"{_live(run)}{worker}.json", page)

    async def remove_page(self, run: str, worker: str) -> None:
        """A worker has nothing more to say of a run."""
        try:
            await obstore.delete_async(self.objects, f"{_live(run)}{worker}.json")
        except FileNotFoundError:
            return
        except (BaseError, OSError) as error:
            raise StoreUnavailable(f"the store cannot be written ({type(error).__name__})") from error

    async def list_pages(self, run: str) -> dict[str, str]:
        """The pages of a run: where each is, and a mark that changes whenever it is written."""
        try:
            listed = await obstore.list_with_delimiter_async(self.objects, _live(run))
        except (BaseError, OSError) as error:
            raise StoreUnavailable(f"the store cannot be read ({type(error).__name__})") from error
        return {str(found["path"]): f"{found['last_modified']} {found['e_tag']}" for found in listed["objects"]}

    async def page(self, path: str) -> bytes | None:
        """One page, if it is still there."""
        return await self._read(path)

    # The ledger: entries written once

    async def record(self, key: str, entry: dict[str, Any]) -> bool:
        """Write an entry of the ledger if there is none; whether this call wrote it."""
        path = f"ledger/{key}.json"
        if await self._create(path, _encode(entry)):
            return True
        if await self._read(path):
            return False
        await self._replace(path, _encode(entry))  # a power cut left it empty
        return True

    async def recorded(self, key: str) -> dict[str, Any] | None:
        """An entry of the ledger. One that a power cut left empty is none: it was never acknowledged."""
        content = await self._read(f"ledger/{key}.json")
        return cast("dict[str, Any]", json.loads(content)) if content else None

    # Is it there?

    async def probe(self, mark: str) -> None:
        """Write a few bytes, read them back and remove them."""
        key = f"probes/{mark}"
        await self._create(key, mark.encode())
        if await self._read(key) != mark.encode():
            raise StoreError("it does not give back what was written")
        await obstore.delete_async(self.objects, key)

    async def _create(self, key: str, content: bytes) -> bool:
        try:
            await obstore.put_async(self.objects, key, content, mode="create", use_multipart=False)
        except AlreadyExistsError:
            return False
        except (BaseError, OSError) as error:
            raise StoreUnavailable(f"the store cannot be written ({type(error).__name__})") from error
        return True

    async def _replace(self, key: str, content: bytes) -> None:
        try:
            await obstore.put_async(self.objects, key, content, use_multipart=False)
        except (BaseError, OSError) as error:
            raise StoreUnavailable(f"the store cannot be written ({type(error).__name__})") from error

    async def _read(self, key: str) -> bytes | None:
        try:
            return bytes(await (await obstore.get_async(self.objects, key)).bytes_async())
        except FileNotFoundError:
            return None
        except (BaseError, OSError) as error:
            raise StoreUnavailable(f"the store cannot be read ({type(error).__name__})") from error


def _artifact_key(ref: str) -> str:
    if not REF.fullmatch(ref):
        raise StoreError("not a reference of this store")
    digest = ref.removeprefix("sha256:")
    return f"artifacts/{digest[:2]}/{digest}"


def _live(run: str) -> str:
    return f"runs/{_checked(run)}/live/"


def _checked(run: str) -> str:
    if not RUN_ID.fullmatch(run):
        raise StoreError(f"not a run id: {run!r}")
    return run


def _encode(entry: dict[str, Any]) -> bytes:
    return json.dumps(entry, sort_keys=True).encode()
