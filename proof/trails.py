"""V8: the audit trail of every run is whole, and tells of exactly the calls that the provider has had."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

from proof.evidence import Case, Run

HASH_AT_THE_END = 64 + len(',"hash":""}')

Found = Iterator[tuple[Run | None, str]]


def the_trail_is_whole(case: Case) -> Found:
    """V8: no record is missing, twice or changed; its head is that of the workflow; its calls are those of the bill."""
    for run in case.runs:
        hash, told = hashlib.sha256(run.id.encode()).hexdigest(), []
        for number, line in enumerate(run.trail, 1):
            hash = hashlib.sha256(hash.encode() + line[:-HASH_AT_THE_END] + b"}").hexdigest()
            try:
                record = json.loads(line)
            except ValueError:
                record = {}
            if record.get("n") != number or record.get("hash") != hash:
                yield run, f"record {number} of its trail does not follow the one before"
                break
            told.append(record)
        else:
            yield from _other_faults(run, told, hash)


def _other_faults(run: Run, told: list[dict[str, Any]], hash: str) -> Found:
    if run.head is not None and run.head != {"number": len(told), "hash": hash}:
        yield run, f"its trail ends with record {len(told)}, and its workflow knows {run.head['number']}"
    elif [(event.type, event.task, event.data) for event in run.events] != [
        (record["type"], record.get("task"), record["data"]) for record in told
    ]:
        yield run, "its trail and its event log tell different things"
    else:
        yield from _calls(run, [record for record in told if record["type"] == "call.made"])


def _calls(run: Run, told: list[dict[str, Any]]) -> Found:
    """Every call of the bill is told of once. One that was cut off on its way need not be on the bill."""
    firsts = [record for record in told if not record["data"].get("amends")]
    keys = Counter((record["task"], *_request(record["data"])) for record in firsts)
    for (task, *_), count in keys.items():
        if count > 1:
            yield run, f"a call for task {task} is told of {count} times"
    for task in run.tasks:
        billed = Counter(_figures(call.billed) for call in run.calls_of(task))
        of_task = [record["data"] for record in firsts if record["task"] == task]
        answers = Counter(_figures(data["tokens"]) for data in of_task if data["answer"] is not None)
        if len(of_task) < billed.total():
            yield run, f"task {task} was called for {billed.total()} times, and {len(of_task)} are told of"
        elif answers - billed:
            yield run, f"an answer for task {task} is told of that the provider never gave"
        elif sum("error" not in data for data in of_task) > billed.total():
            yield run, f"more answers for task {task} are told of than there were calls"


def _request(data: dict[str, Any]) -> tuple[Any, ...]:
    return data["step"], data["prompt"], data["request"]


def _figures(tokens: dict[str, int]) -> tuple[int, ...]:
    return tuple(tokens[kind] for kind in ("input", "output", "cache_read", "cache_write"))
