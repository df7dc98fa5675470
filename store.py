"""Artifacts, the call ledger and the event log, over obstore: a folder by default, a bucket when shared.

Everything but the boards is written once. Contents are named by their hash and checked when they are read; the other
keys are made from run ids, numbers and hashes, never from text of a model or a user.
"""

from __future__ import annotations

import heapq
import json
import re
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

import obstore
from obstore.exceptions import BaseError
from obstore.store import LocalStore, ObjectStore, from_url

from domain.estimate import Estimate
from domain.events import Event, Logged, logged
from domain.models import ref_of
from sealing import Keyring, WrongKey, missing
from write_once import Objects, StoreError, StoreUnavailable

__all__ = ["Store", "StoreError", "StoreUnavailable", "folder_of", "open_store", "shown_location"]

REF = re.compile(r"sha256:[0-9a-f]{64}")
RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,199}")
READER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


def open_store(location: str, keys: Keyring | None = None) -> Store:
    """The store at a folder or at any URL that obstore takes. Its keys are those of the environment."""
    keys = Keyring.from_environment() if keys is None else keys
    scheme = urlsplit(location).scheme
    if len(scheme) > 1:
        try:
            objects = from_url(location)
        except (BaseError, ValueError, NotImplementedError) as error:
            raise StoreError(_unusable(location)) from error
        if scheme in {"http", "https"}:  # a web server cannot promise to write a thing once
            raise StoreError(_unusable(location))
        return Store(objects, location, keys)
    folder = Path(location).absolute()
    try:
        return Store(LocalStore(folder, mkdir=True), str(folder), keys)
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
    keys: Keyring = field(default_factory=Keyring, repr=False)
    """What encrypts everything in it, if anything does."""
    _told: dict[str, int] = field(default_factory=dict, init=False, repr=False, compare=False)
    """The last event of each run that was written from here, where nothing stands after it in its segment."""

    @property
    def folder(self) -> Path | None:
        """Where it is on this machine's disks; None for a bucket."""
        return folder_of(self.location)

    @cached_property
    def _kept(self) -> Objects:
        return Objects(self.objects, self.folder, self.keys)

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
        while not await self._kept.create(key, content):
            await self._kept.refresh(key, content)  # before it is looked at: whoever prunes leaves it from now on
            there = await self._there(key)
            if there is not None and there != content:
                await self._kept.replace(key, content)
            if there is not None:
                break
        return ref

    async def artifact(self, ref: str) -> bytes:
        """The content of a reference, checked against its hash."""
        content = await self._kept.read(_artifact_key(ref))
        if content is None:
            raise StoreError(f"the store has no content {ref}")
        if ref_of(content) != ref:
            raise StoreError(f"the content {ref} in the store was changed after it was written")
        return content

    async def artifacts(self, refs: Sequence[str]) -> list[bytes]:
        """The contents of many references. Each is as `artifact` gives it."""
        found = await self._kept.read_all([*map(_artifact_key, refs)])
        return [
            content if content is not None and ref_of(content) == ref else await self.artifact(ref)
            for ref, content in zip(refs, found, strict=True)
        ]

    async def _there(self, key: str) -> bytes | None:
        """What stands there: something else when it is damaged, and None when it has just been removed."""
        try:
            return await self._kept.read(key)
        except StoreError:
            return b""

    # Keys: who writes here must have every key that was ever used here

    async def claim(self) -> None:
        """Write down that our first key is used here, and refuse when we lack one: nothing is written as plain text
        beside what is encrypted, and nobody takes a task that it could not read.
        """
        if unknown := [id for id in await self.key_ids() if id not in self.keys.ids]:
            raise WrongKey(missing(unknown[0], self.keys.ids))
        if self.keys:
            await Objects(self.objects, self.folder).create(f"keys/{self.keys.ids[0]}", b"")

    async def key_ids(self) -> list[str]:
        """The ids of all keys that were used here."""
        try:
            listed = await obstore.list_with_delimiter_async(self.objects, "keys/")
        except (BaseError, OSError) as error:
            raise StoreUnavailable(f"the store cannot be read ({type(error).__name__})") from error
        return sorted(str(found["path"]).rpartition("/")[2] for found in listed["objects"])

    async def take_over(self, ref: str) -> bool:
        """Whether the store has a content, unchanged, for a run that did not write it: it counts as new from now on."""
        try:
            await self._kept.refresh(_artifact_key(ref), await self.artifact(ref))
            await self.artifact(ref)
        except StoreError:
            return False
        return True

    # What is no longer needed

    async def discard_artifact(self, ref: str, before: datetime) -> int:
        """Remove a content that nobody has written or taken over since; the bytes that are free now."""
        return await self._kept.discard(_artifact_key(ref), before)

    async def old_artifact_size(self, ref: str, before: datetime) -> int:
        """The bytes that `discard_artifact` would set free."""
        return await self._kept.old_size(_artifact_key(ref), before)

    async def size(self, path: str) -> int:
        """Bytes of one object, as it stands; 0 when there is none."""
        return await self._kept.size(path)

    async def artifact_size(self, ref: str) -> int:
        """Bytes of a content, as it stands; 0 when there is none."""
        return await self._kept.size(_artifact_key(ref))

    async def discard(self, path: str) -> None:
        """Remove one object, as it stands."""
        await self._kept.remove(path)

    async def tidy(self, prefix: str) -> None:
        """Leave no empty folder below a place."""
        await self._kept.tidy(prefix)

    async def content(self, path: str) -> bytes:
        """One object, as it stands; nothing when there is none."""
        return await self._kept.read(path) or b""

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

    async def put_report(self, run: str, ref: str) -> None:
        """Write down where the report of a run is, so that it goes when the run does."""
        await self._kept.settle(f"runs/{_checked(run)}/report.json", _encode({"report_ref": ref}))

    async def put_end(self, run: str, end: dict[str, Any]) -> None:
        """Write down how a run ended, once, so that a list need not read its whole event log."""
        await self._kept.settle(f"runs/{_checked(run)}/end.json", _encode(end))
        self._told.pop(run, None)

    async def end(self, run: str) -> dict[str, Any] | None:
        """How a run ended, or None when it has not told so."""
        content = await self._kept.standing(f"runs/{_checked(run)}/end.json")
        return None if content is None else _decode(content, f"how run {run!r} ended")

    # The event log: segments named by their first number

    async def append_events(self, run: str, events: tuple[Event, ...], family: str | None = None) -> None:
        """Append a segment. Events that are there already, as in a retry with more of them, are passed over.

        What is there and tells another course of things is from before an older database was restored, and gives way:
        Temporal alone knows how the run goes on.
        """
        if events and self._told.pop(run, 0) + 1 != events[0].number:
            await self._make_way(run, events[0].number)
        while events:
            ours = _lines(Logged(run, event, correlation=family or run) for event in events)
            key = f"runs/{_checked(run)}/events/{events[0].number:010}.jsonl"
            there = (await self._kept.settle(key, ours)).splitlines()
            told = zip(ours.splitlines(), there, strict=False)
            if not all(_is_one(json.loads(one), json.loads(other)) for one, other in told):
                await self._forget_from(run, events[0].number)
                continue
            if len(there) <= len(events):
                self._told[run] = events[len(there) - 1].number
            events = events[len(there) :]

    async def _make_way(self, run: str, number: int) -> None:
        """Cut a segment short that goes on over a number with which what is now told begins.

        Within one course each batch follows the one before. So that segment is from before a restore, and whoever reads
        it would never come to the new one.
        """
        try:
            segment = await self.segment_with(run, number)
        except StoreUnavailable:
            raise
        except StoreError:
            return  # it is damaged, and whoever reads it is told so
        first = segment[0].event.number if segment else number
        if first < number <= segment[-1].event.number:
            await self._forget_from(run, number)
            key = f"runs/{_checked(run)}/events/{first:010}.jsonl"
            await self._kept.replace(key, _lines(segment[: number - first]))

    async def _forget_from(self, run: str, number: int) -> None:
        """Remove the events from a number on, the last first, and the end that they led to."""
        paths = [path for path in await self.listed(f"runs/{_checked(run)}/events/") if _number(path) >= number]
        for path in [*sorted(paths, reverse=True), f"runs/{run}/end.json"]:
            await self._kept.remove(path)

    async def events(self, run: str, after: int = 0) -> AsyncIterator[Event]:
        """The events that follow number `after`, which is 0 or the last one that this gave before.

        Segments are read whole and follow each other by number, so a reader asks for the next one by its name.
        """
        while segment := await self.segment(run, after):
            for each in segment:
                after = each.event.number
                yield each.event

    async def segment(self, run: str, after: int = 0) -> list[Logged]:
        """The segment that follows number `after`, the last of the one before; empty when it is not written yet."""
        content = await self._kept.standing(f"runs/{_checked(run)}/events/{after + 1:010}.jsonl")
        return _opened_segment(content or b"", run)

    async def segment_with(self, run: str, number: int) -> list[Logged]:
        """The segment that has this very event, wherever it begins; empty when there is none."""
        paths = await self.listed(f"runs/{_checked(run)}/events/")
        first = max((begins for path in paths if (begins := _number(path)) <= number), default=None)
        return await self.segment(run, first - 1) if first is not None else []

    # Readers of the event log: how far each has come

    async def put_reader(self, name: str, place: bytes) -> None:
        """Write how far a reader has come, in place of what stood there."""
        await self._kept.replace(_reader(name), place)

    async def reader(self, name: str) -> bytes | None:
        """How far a reader has come. What a power cut left empty is nothing: it begins anew, and loses nothing."""
        return await self._kept.read(_reader(name)) or None

    async def readers(self) -> list[str]:
        """The names of all readers."""
        return sorted(path.removeprefix("readers/").removesuffix(".json") for path in await self.listed("readers/"))

    async def remove_reader(self, name: str) -> None:
        """Forget a reader."""
        await self._kept.remove(_reader(name))

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
        found = await self.listed(f"ledger/{prefix}/")
        keys = {path.removeprefix("ledger/").rpartition(".json")[0] for path in found}  # whatever place each stands at
        return sorted(keys)

    async def listed(self, prefix: str) -> list[str]:
        """The places of all objects below a place, as they stand."""
        found: list[str] = []
        try:
            async for page in obstore.list(self.objects, prefix):
                found += [str(entry["path"]) for entry in page]
        except (BaseError, OSError) as error:
            raise StoreUnavailable(f"the store cannot be read ({type(error).__name__})") from error
        return found

    # The register: acts by number

    async def put_act(self, number: int, act: dict[str, Any]) -> bool:
        """Write down what was done to an agent, if nothing has this number; whether it is this one that stands."""
        content = _encode(act)
        return await self._kept.settle(_act_key(number), content) == content

    async def acts(self, numbers: range) -> list[dict[str, Any]]:
        """What was done to agents under these numbers, as far as so many things were done."""
        found: list[dict[str, Any]] = []
        for number, content in zip(numbers, await self._kept.read_all([*map(_act_key, numbers)]), strict=True):
            stands = await self._kept.standing(_act_key(number)) if content == b"" else content
            if stands is None:
                break
            found.append(_decode(stands, f"act {number} of the register"))
        return found

    async def put_record(self, run: str, record: dict[str, Any]) -> None:
        """Write down once what the agents of a run have done. It stays when the run is pruned."""
        await self._kept.settle(f"register/records/{_checked(run)}.json", _encode(record))

    async def records_of_runs(self, last: int) -> list[bytes]:
        """What the agents of the last so many runs have done, in no order."""
        newest: list[tuple[datetime, str]] = []
        try:
            async for page in obstore.list(self.objects, "register/records/"):
                newest += [(entry["last_modified"], str(entry["path"])) for entry in page if entry["size"]]
        except (BaseError, OSError) as error:
            raise StoreUnavailable(f"the store cannot be read ({type(error).__name__})") from error
        found = await self._kept.read_all([path for _, path in heapq.nlargest(last, newest)])
        return [content for content in found if content]

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


def _lines(told: Iterable[Logged]) -> bytes:
    """A segment, as it stands."""
    return "".join(json.dumps(each.envelope, ensure_ascii=False) + "\n" for each in told).encode()


def _is_one(event: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two envelopes are of one event: another version may say more of it, but not when it was or what."""
    return all(event[key] == other[key] for key in ("id", "type", "subject", "time"))


def _opened_segment(content: bytes, run: str) -> list[Logged]:
    """The events of a segment. Damage is told of, and nothing of it is used."""
    try:
        return [logged(json.loads(line)) for line in content.splitlines()]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(f"the events of run {run!r} are damaged in the store") from error


def _number(path: str) -> int:
    """That of the first event of a segment."""
    return int(path.rpartition("/")[2].partition(".")[0])


def _artifact_key(ref: str) -> str:
    if not REF.fullmatch(ref):
        raise StoreError("not a reference of this store")
    digest = ref.removeprefix("sha256:")
    return f"artifacts/{digest[:2]}/{digest}"


def _act_key(number: int) -> str:
    return f"register/acts/{number:08}.json"


def _reader(name: str) -> str:
    if not READER.fullmatch(name):
        raise StoreError(f"not a name of a reader: {name!r}")
    return f"readers/{name}.json"


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
