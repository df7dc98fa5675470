"""D4: wherever a worker and its readers are, what is written down is in UTC, and the same for everybody."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from processes import Home, home_at

ZONES = ("UTC", "America/St_Johns")

PLAN = """
deadline: 2099-07-01T08:00:00+05:30
defaults: {agent: writer}
tasks: [{id: first, prompt: Go.}, {id: second, prompt: Go., needs: [first]}]
"""

UTC_TIME = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d{3})?Z")
SOME_TIME = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}")


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[Home]:
    async with home_at(tmp_path / "home") as home:
        yield home


def texts_in(value: Any) -> Iterator[str]:
    """Every text in a JSON value."""
    match value:
        case str():
            yield value
        case dict():
            for inner in value.values():
                yield from texts_in(inner)
        case list():
            for inner in value:
                yield from texts_in(inner)


async def test_what_is_written_is_in_utc_wherever_it_was_written_or_is_read(home: Home) -> None:
    """A worker in India, readers in Newfoundland and at Greenwich: the same bytes for both."""
    before = datetime.now(UTC) - timedelta(seconds=1)
    async with home.worker(TZ="Asia/Kolkata"):
        run = await home.submit(PLAN, {"TZ": "America/St_Johns"})
        assert (await home.ended(run))["status"] == "COMPLETED"
    after = datetime.now(UTC)

    for words in ("events", run, "--json"), ("result", run, "--json"):
        read = [await home.starter(*words, TZ=zone) for zone in ZONES]
        assert {done.code for done in read} == {0}
        assert len({done.stdout for done in read}) == 1
    stored = [file.read_text("utf-8") for file in sorted((home.folder / "store" / "runs" / run).rglob("*.json*"))]
    values = [json.loads(line) for text in stored for line in text.splitlines()]
    times = [text for text in texts_in(values) if SOME_TIME.match(text)]
    assert [time for time in times if not UTC_TIME.fullmatch(time)] == []
    told = [datetime.fromisoformat(time) for time in times if not time.startswith("2099")]
    assert told
    assert before <= min(told) <= max(told) <= after
