"""Whether what is in Temporal and in the store is encrypted, and with which keys: their ids, never the keys."""

from __future__ import annotations

import asyncio

from checkup.findings import Finding, note, ok, problem
from checkup.store import PATIENCE
from sealing import KEY, Keyring, WrongKey, missing
from store import folder_of, open_store


async def keys_fit(location: str) -> Finding:
    """The keys that are set here, and whether the store has seen others."""
    try:
        keys = Keyring.from_environment()
        folder = folder_of(location)
        async with asyncio.timeout(PATIENCE):
            used = await open_store(location, keys).key_ids() if folder is None or folder.exists() else []
    except WrongKey as error:
        return problem("encryption", str(error), "Mend it; nothing else can be looked at before.")
    except Exception:  # noqa: BLE001  whatever a bucket's library makes of a wrong address
        return note("encryption", f"on, key {keys.ids[0]}" if keys else "off")  # the store itself is told of elsewhere
    if lacking := [id for id in used if id not in keys.ids]:
        return problem("encryption", missing(lacking[0], keys.ids), f"Set {KEY} to every key that was used here.")
    if not keys:
        return note("encryption", "off", f"Set {KEY} before the first run, if the database and the store may be seen.")
    first, *others = keys.ids
    more = f"; {', '.join(others)} decrypt{'s' if len(others) == 1 else ''}" if others else ""
    return ok("encryption", f"on: key {first} encrypts{more}")
