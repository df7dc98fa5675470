"""Old runs are forgotten: what they said, what was paid for them, and what nobody else refers to.

A run and its retries go together or not at all: each names the one before it, and they have one budget. Nothing of an
open run is touched, whatever its age. A content goes only if a run that goes has named it, no run that stays does, and
nobody has written or taken it over for an hour: somebody may be about to name it.
"""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from agency import definitions
from client import RunClient
from domain.events import timestamp
from store import REF, Store, StoreError
from untold import Untold

GRACE = timedelta(hours=1)
"""How long a content that was written, or taken over, is safe although no run is seen to name it. A run names what it
has written within seconds, and one that takes over results is submitted within minutes."""

AT_ONCE = 16
"""Questions to store and server in flight."""

NAMED = re.compile(REF.pattern.encode())

NAMING = re.compile(rb'"(?:plan_ref|estimate_ref)":\s*"(' + REF.pattern.encode() + rb')"')
"""What of a manifest or an event names others: a plan names its files."""


@dataclass
class Pruned:
    """What was removed, or would be."""

    runs: list[str] = field(default_factory=list)
    objects: int = 0
    bytes: int = 0
    kept: int = 0
    """Runs that stay."""
    waiting: int = 0
    """Contents that are too new to be removed, though nobody is seen to need them: the next time takes them."""


async def prune(client: RunClient, store: Store, older_than: timedelta, *, dry_run: bool) -> Pruned:
    """Remove what ended before that time. Asks Temporal of each run whether it is open: it must answer."""
    now = datetime.now(UTC)
    manifests = [found for run in await store.runs() if (found := await store.manifest(run))]
    old = await _old(client, store, manifests, timestamp(now - older_than))
    going = [manifest for manifest in manifests if manifest["run"] in old]
    staying = [manifest for manifest in manifests if manifest["run"] not in old]
    pruned = Pruned(sorted(old), kept=len(staying))
    if not going:
        return pruned
    for manifest in () if dry_run else going:
        await Untold(store).keep(manifest["run"])
    named = await _named(store, going) - await _named(store, staying) - await definitions(store)
    await _remove_artifacts(store, named, now - GRACE, pruned, dry_run=dry_run)
    for manifest in going:  # its contents first, its manifest last: what was cut short is found again
        await _remove_run(store, manifest["run"], pruned, dry_run=dry_run)
    return pruned


async def _old(client: RunClient, store: Store, manifests: list[dict[str, Any]], before: str) -> set[str]:
    """The runs that may go: of families whose every run has ended before that time."""
    families: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for manifest in manifests:
        families[str(manifest.get("family") or manifest["run"])].append(manifest)
    found: set[str] = set()
    for members in families.values():
        ends = [await _ended(client, store, manifest, before) for manifest in members]
        if all(ends):
            found.update(str(manifest["run"]) for manifest in members)
    return found


async def _ended(client: RunClient, store: Store, manifest: dict[str, Any], before: str) -> bool:
    """Whether a run has ended before that time. Temporal has the last word: what it has open stays."""
    if str(manifest["submitted"]) >= before:
        return False
    end = await store.end(manifest["run"])
    if end is not None and str(end.get("finished") or before) >= before:
        return False
    return not await client.is_open(manifest["run"])


async def _named(store: Store, manifests: Iterable[dict[str, Any]]) -> set[str]:
    """Every reference in what is written down of runs, and in the contents that name others."""
    places = asyncio.Semaphore(AT_ONCE)

    async def refs(path: str) -> tuple[set[str], set[str]]:
        async with places:
            content = await store.content(path)
            naming = {found[1].decode() for found in NAMING.finditer(content)}
            return {ref.decode() for ref in NAMED.findall(content)}, naming

    async def of_content(ref: str) -> set[str]:
        async with places:
            try:
                return {found.decode() for found in NAMED.findall(await store.artifact(ref))}
            except StoreError:
                return set()

    found: set[str] = set()
    for manifest in manifests:
        run = manifest["run"]
        paths = [*await store.listed(f"runs/{run}/"), *await store.listed(f"ledger/{run}/")]
        naming: set[str] = set()
        for named, plans in await asyncio.gather(*map(refs, paths)):
            found |= named
            naming |= plans
        for part in await asyncio.gather(*map(of_content, sorted(naming))):
            found |= part
    return found


async def _remove_artifacts(store: Store, refs: set[str], before: datetime, pruned: Pruned, *, dry_run: bool) -> None:
    for ref in sorted(refs):
        size = await (store.old_artifact_size if dry_run else store.discard_artifact)(ref, before)
        pruned.waiting += not size and await store.artifact_size(ref) > 0
        pruned.bytes += size
        pruned.objects += size > 0


async def _remove_run(store: Store, run: str, pruned: Pruned, *, dry_run: bool) -> None:
    """Remove all that is written down of a run, the manifest last."""
    paths = [*await store.listed(f"ledger/{run}/"), *await store.listed(f"runs/{run}/")]
    paths.sort(key=lambda path: path.endswith("/manifest.json"))
    for path in paths:
        pruned.bytes += await store.size(path)
        pruned.objects += 1
        if not dry_run:
            await store.discard(path)
    for place in () if dry_run else (f"ledger/{run}", f"runs/{run}"):
        await store.tidy(place)
