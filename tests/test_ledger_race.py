"""Two worker processes and one entry of the ledger: put-if-absent decides, on a folder and in a bucket."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

import obstore
import pytest

from activities.ledger import Entry
from domain.models import ref_of
from runtime import ROOT
from store import Store

CALLS = 25
RACERS = 3
RACER = """
import asyncio, json, sys
from datetime import UTC, datetime
from activities.ledger import Entry, Ledger
from entries import Intent
from activities.model import Completion
from domain.models import Usage, ref_of
from store import open_store

async def race(location, who, calls):
    ledger = Ledger(open_store(location))
    print("ready", flush=True)
    sys.stdin.readline()
    heard = []
    for call in range(calls):
        entry = Entry(run="run", task="task", step=call + 1, content=ref_of(b"brief"))
        intent = Intent(run="run", task="task", step=1, start=who, attempt=1, model="m", max_tokens=9,
                        worst=Usage(output=9), at=datetime.now(UTC))
        number = await ledger.intend(entry, intent)
        mine = Completion(text=f"{who} says", usage=Usage(output=len(who)), stop_reason="end_turn")
        stands = await ledger.complete(entry, mine, number)
        heard.append([number, stands.number, stands.completion.text, stands.overtaken])
    print(json.dumps(heard), flush=True)

asyncio.run(race(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""


async def racer(location: str, who: str) -> asyncio.subprocess.Process:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", RACER, location, who, str(CALLS)),
        cwd=ROOT,
        env={**os.environ},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"ready\n"
    return process


@pytest.mark.parametrize("left_empty", [False, True])
async def test_of_two_workers_at_the_same_call_one_is_first_and_both_use_its_answer(
    place: str, store: Store, left_empty: bool
) -> None:
    """Each request has a number of its own. Also where a power cut has left every entry empty."""
    calls = [Entry(run="run", task="task", step=call + 1, content=ref_of(b"brief")) for call in range(CALLS)]
    if left_empty:
        for entry in calls:
            for name in "intent-1", "completion":
                await obstore.put_async(store.objects, f"ledger/{entry.key}/{name}.json", b"", use_multipart=False)
    racers = [await racer(place, f"worker {'x' * number}") for number in range(RACERS)]

    done = await asyncio.gather(*(process.communicate(b"go\n") for process in racers))

    heard: list[list[list[Any]]] = [json.loads(out) for out, _ in done]
    for call in zip(*heard, strict=True):
        numbers, first, texts, overtaken = zip(*call, strict=True)
        assert sorted(numbers) == [*range(1, RACERS + 1)]
        assert (len(set(first)), len(set(texts))) == (1, 1)
        assert sorted(overtaken) == [False, *[True] * (RACERS - 1)]
        assert first[0] == numbers[overtaken.index(False)]
    assert len({call[0] for one in heard for call in one}) > 1, "they did not meet"
