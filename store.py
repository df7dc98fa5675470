"""Artifacts, the call ledger and the event log, over obstore: a folder by default, a bucket when shared.

Everything but the boards is written once. Contents are named by their hash and checked when they are read; the other
keys are made from run ids, numbers and hashes, never from text of a model or a user.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

import obstore
from obstore.exceptions import BaseError
from obstore.store import LocalStore, ObjectStore, from_url

from domain.estimate import Estimate
from domain.events import Event, from_envelope, to_envelope
from domain.models import ref_of
from write_once import Objects, StoreUnavailable

__all__ = ["Store", "StoreError", "StoreUnavailable", "folder_of", "open_store", "shown_location"]

REF = re.compile(r"sha256:[0-9a-f]{64}")
RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,199}")


class StoreError(Exception):
    """The store does not hold what it should. Asking again does not help."""


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


def folder_of(location: str) -> Path | None:
    """The folder that a store is in; None for a bucket."""
    parts = urlsplit(location)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    return Path(location) if len(parts.scheme) <= 1 else None


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
    location: str = field(repr=False)
    """Where it is, as it was given: a URL may have a secret in it."""

    @property
    def folder(self) -> Path | None:
        """Where it is on this machine's disks; None for a bucket."""
        return folder_of(self.location)

    @cached_property
    def _kept(self) -> Objects:
        return Objects(self.objects, self.folder)

    @property
    def name(self) -> str:
        """What others may be told of where it is: the URL without credentials, and no path of this machine."""
        parts = urlsplit(self.location)
        if len(parts.scheme) <= 1 or parts.scheme == "file":
            return "a folder"
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    # Artifacts: contents by hash

    async def put_artifact(self, content: bytes) -> str:
        """Keep a content and give its reference. Writing it twice is the same as once.

        What is there in its place was damaged: the name says what it must be, so it is written over.
        """
        ref = ref_of(content)
        key = _artifact_key(ref)
        if not await self._kept.create(key, content) and await self._kept.read(key) != content:
            await self._kept.replace(key, content)
        return ref

    async def artifact(self, ref: str) -> bytes:
        """The content of a reference, checked against its hash."""
        content = await self._kept.read(_artifact_key(ref))
        if content is None:
            raise StoreError(f"the store has no content {ref}")
        if ref_of(content) != ref:
            raise StoreError(f"the content {ref} in the store was changed after it was written")
        return content

    # Runs: what was submitted

    async def put_manifest(self, run: str, manifest: dict[str, Any]) -> dict[str, Any]:
        """Write down what a run is, once; the one that stands is returned."""
        stands = await self._kept.settle(f"runs/{_checked(run)}/manifest.json", _encode(manifest))
        return _decode(stands, f"what was submitted as run {run!r}")

    async def manifest(self, run: str) -> dict[str, Any] | None:
        """What a run is, or None when there is no such run here."""
        content = await self._kept.standing(f"runs/{_checked(run)}/manifest.json")
        return None if content is None else _decode(content, f"what was submitted as run {run!r}")

    async def estimate(self, run: str) -> Estimate | None:
        """What a run was likely to cost, as it was told before its start; runs before 0.5.0 were not told."""
        manifest = await self.manifest(run)
        ref = manifest.get("estimate_ref") if manifest else None
        return Estimate.model_validate_json(await self.artifact(ref)) if ref else None

    async def has_run(self, run: str) -> bool:
        """Whether the run was submitted to this very store, whatever its address is called here."""
        return await self._kept.read(f"runs/{_checked(run)}/manifest.json") is not None

    async def runs(self) -> list[str]:
        """The ids of all runs."""
        try:
            listed = await obstore.list_with_delimiter_async(self.objects, "runs/")
        except (BaseError, OSError) as error:
            raise StoreUnavailable(f"the store cannot be read ({type(error).__name__})") from error
        return sorted(str(prefix).rstrip("/").rpartition("/")[2] for prefix in listed["common_prefixes"])

    async def put_end(self, run: str, end: dict[str, Any]) -> None:
        """Write down how a run ended, once, so that a list need not read its whole event log."""
        await self._kept.settle(f"runs/{_checked(run)}/end.json", _encode(end))

    async def end(self, run: str) -> dict[str, Any] | None:
        """How a run ended, or None when it has not told so."""
        content = await self._kept.standing(f"runs/{_checked(run)}/end.json")
        return None if content is None else _decode(content, f"how run {run!r} ended")

    # The event log: segments named by their first number

    async def append_events(self, run: str, events: tuple[Event, ...]) -> None:
        """Append a segment. Events that are there already, as in a retry with more of them, are passed over."""
        while events:
            lines = [json.dumps(to_envelope(run, event), ensure_ascii=False) for event in events]
            key = f"runs/{_checked(run)}/events/{events[0].number:010}.jsonl"
            there = await self._kept.settle(key, ("\n".join(lines) + "\n").encode())
            events = events[len(there.splitlines()) :]

    async def events(self, run: str, after: int = 0) -> AsyncIterator[Event]:
        """The events that follow number `after`, which is 0 or the last one that this gave before.

        Segments are read whole and follow each other by number, so a reader asks for the next one by its name.
        """
        while content := await self._kept.standing(f"runs/{_checked(run)}/events/{after + 1:010}.jsonl"):
            for line in content.splitlines():
                event = from_envelope(json.loads(line))
                after = event.number
                yield event

    # The boards: what workers say of tasks at work, one small object each, written again and again

    async def put_page(self, run: str, worker: str, page: bytes) -> None:
        """Write what a worker has to say of a run in place of what it said before."""
        await self._kept.replace(f"{_live(run)}{worker}.json", page)

    async def remove_page(self, run: str, worker: str) -> None:
        """A worker has nothing more to say of a run."""
        await self._kept.remove(f"{_live(run)}{worker}.json")

    async def list_pages(self, run: str) -> dict[str, str]:
        """The pages of a run: where each is, and a mark that changes whenever it is written."""
        try:
            listed = await obstore.list_with_delimiter_async(self.objects, _live(run))
        except (BaseError, OSError) as error:
            raise StoreUnavailable(f"the store cannot be read ({type(error).__name__})") from error
        return {str(found["path"]): f"{found['last_modified']} {found['e_tag']}" for found in listed["objects"]}

    async def page(self, path: str) -> bytes | None:
        """One page, if it is still there."""
        return await self._kept.read(path)

    # The ledger: entries written once

    async def record(self, key: str, entry: dict[str, Any]) -> bool:
        """Write an entry of the ledger if there is none; whether it is this one that stands."""
        content = _encode(entry)
        return await self._kept.settle(f"ledger/{key}.json", content) == content

    async def recorded(self, key: str) -> dict[str, Any] | None:
        """An entry of the ledger. One that a power cut left empty is none."""
        content = await self._kept.standing(f"ledger/{key}.json")
        return None if content is None else _decode(content, "the entry of this call in the ledger")

    async def records(self, prefix: str) -> list[str]:
        """The keys of all entries of the ledger below a place."""
        found: list[str] = []
        try:
            async for page in obstore.list(self.objects, f"ledger/{prefix}/"):
                found += [str(entry["path"]) for entry in page]
        except (BaseError, OSError) as error:
            raise StoreUnavailable(f"the store cannot be read ({type(error).__name__})") from error
        keys = {path.removeprefix("ledger/").rpartition(".json")[0] for path in found}  # whatever place each stands at
        return sorted(keys)

    # Is it there, and does it keep its promise?

    async def probe(self, mark: str) -> None:
        """Write a few bytes, try to write others in their place, read them back and remove them."""
        key, content = f"probes/{mark}", mark.encode()
        await self._kept.create(key, content)
        try:
            if await self._kept.create(key, b"another") or await self._kept.read(key) != content:
                raise StoreError(
                    "it does not keep what was written first (If-None-Match: * on a PUT): two workers could both make "
                    "the same paid call, and neither would know"
                )
        finally:
            await self._kept.remove(key)


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


def _decode(content: bytes, what: str) -> dict[str, Any]:
    """The object that was written. Text that is damaged is told of, and nothing of it is used."""
    try:
        found = json.loads(content)
    except ValueError:  # also bytes that are no text
        found = None
    if not isinstance(found, dict):
        raise StoreError(f"{what} is damaged in the store")
    return found
