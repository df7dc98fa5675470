"""What travels through Temporal comes back as it was, or is refused by name."""

import json
import os
import subprocess
import sys
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel
from temporalio.api.common.v1 import Payload

import payloads
from payloads import (
    COMPRESS_FROM,
    DATA_CONVERTER,
    ENCODING,
    PAYLOAD_LIMIT,
    PayloadTooLarge,
    check_size,
    compressed,
    inflated,
)


class Note(BaseModel):
    text: str
    tags: list[str] = []


@given(data=st.binary(max_size=3 * COMPRESS_FROM), copies=st.integers(1, 5), name=st.text(max_size=10))
def test_a_payload_comes_back_as_it_was(data: bytes, copies: int, name: str) -> None:
    payload = Payload(metadata={"encoding": b"binary/plain", "name": name.encode()}, data=data * copies)

    small = compressed(payload)

    assert small.ByteSize() <= payload.ByteSize()
    assert inflated(small) == payload


async def test_a_large_value_is_compressed_and_read_again() -> None:
    note = Note(text="night shift " * 1_000, tags=["a"])

    (payload,) = await DATA_CONVERTER.encode([note])

    assert payload.metadata["encoding"] == ENCODING
    assert payload.ByteSize() < 500
    assert await DATA_CONVERTER.decode([payload], [Note]) == [note]


async def test_a_small_value_stays_readable() -> None:
    """The stock Web UI shows it; and what the Web UI sends is read without any codec."""
    (payload,) = await DATA_CONVERTER.encode([Note(text="hello")])

    assert payload.metadata["encoding"] == b"json/plain"
    assert payload.data == b'{"text":"hello","tags":[]}'


@pytest.mark.parametrize("encoding", [b"json/plain", b"json/protobuf"])
def test_a_text_that_people_read_stays_as_it_is(encoding: bytes) -> None:
    """Details and summaries in the stock Web UI: a page of them, and what Temporal answers about a workflow."""
    data = json.dumps("night shift " * 1_500).encode()
    if encoding == b"json/protobuf":
        data = b'{"currentDetails": ' + data + b"}"
    payload = Payload(metadata={"encoding": encoding}, data=data)

    assert payload.ByteSize() > COMPRESS_FROM
    assert compressed(payload) is payload


async def test_a_text_of_an_earlier_release_is_still_read() -> None:
    """It was compressed then."""
    (payload,) = DATA_CONVERTER.payload_converter.to_payloads(["night shift " * 1_000])
    old = Payload(metadata={"encoding": ENCODING}, data=zlib.compress(payload.SerializeToString()))

    assert await DATA_CONVERTER.decode([old], [str]) == ["night shift " * 1_000]


async def test_a_text_too_long_for_a_page_is_compressed() -> None:
    (payload,) = await DATA_CONVERTER.encode(["night shift " * 20_000])

    assert payload.metadata["encoding"] == ENCODING


def test_a_bomb_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payloads, "INFLATED_LIMIT", 10_000)
    bomb = Payload(metadata={"encoding": ENCODING}, data=zlib.compress(b"0" * 10_001))

    with pytest.raises(ValueError, match="larger than 10,000 bytes"):
        inflated(bomb)


@pytest.mark.parametrize("data", [b"", b"no zlib", zlib.compress(b"x" * 100)[:-6]])
def test_a_damaged_payload_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="compressed payload"):
        inflated(Payload(metadata={"encoding": ENCODING}, data=data))


def test_the_limit_counts_what_temporal_would_get() -> None:
    """Text that compresses well may be larger than the limit; noise may not."""
    check_size("report", "a" * 3 * PAYLOAD_LIMIT)

    with pytest.raises(PayloadTooLarge, match=r"'report' is 1,500,\d+ bytes when encoded; at most 1,500,000"):
        check_size("report", os.urandom(PAYLOAD_LIMIT))


def test_the_import_is_light() -> None:
    code = "import sys, payloads; assert not {'anthropic', 'temporalio.worker', 'temporalio.client'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
