"""The results of a batch: one bad line is bad for its request alone, wherever the bytes are cut on their way."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from activities.batch_reading import results_in
from activities.model import BatchExpired, Completion, Garbled, ModelError, Overloaded, StreamCut
from domain.models import Usage

USAGE = {"input_tokens": 5, "output_tokens": 2, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}


def message(**changes: Any) -> dict[str, Any]:
    """A message as it is in a line, with something else in it; None leaves it out."""
    whole = {"content": [{"type": "text", "text": "Yes,\u2028é."}], "stop_reason": "end_turn", "usage": USAGE}
    return {key: value for key, value in {**whole, **changes}.items() if value is not None}


def line(id: Any, result: Any) -> bytes:
    return json.dumps({"custom_id": id, "result": result}, ensure_ascii=False).encode()


def answered(id: str, **changes: Any) -> bytes:
    return line(id, {"type": "succeeded", "message": message(**changes)})


async def read(body: bytes, piece: int = 1000) -> dict[str, Completion | ModelError]:
    async def chunks() -> AsyncIterator[bytes]:
        for place in range(0, len(body), piece):
            yield body[place : place + piece]

    return await results_in(chunks(), Overloaded)


GOOD = Completion(
    text="Yes,\u2028é.", usage=Usage(input=5, output=2), stop_reason="end_turn", batched=True, untold=frozenset()
)

BAD = {
    "no result": b'{"custom_id": "bad"}',
    "no message": line("bad", {"type": "succeeded"}),
    "a message that is a text": line("bad", {"type": "succeeded", "message": "yes"}),
    "no content": answered("bad", content=None),
    "a block that is a text": answered("bad", content=[{"type": "text", "text": 5}]),
    "no stop reason": line("bad", {"type": "succeeded", "message": {"content": []}}),
    "a stop reason that is a number": answered("bad", stop_reason=5),
    "an unknown type": line("bad", {"type": "brand_new"}),
    "an error without a type": line("bad", {"type": "errored", "error": {}}),
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
async def test_a_bad_line_is_garbled_for_its_request_alone(bad: bytes) -> None:
    """The others were paid, and are used (E14)."""
    results = await read(b"\n".join([answered("a"), bad, answered("b"), b""]))

    assert type(results.pop("bad")) is Garbled
    assert results == {"a": GOOD, "b": GOOD}


@pytest.mark.parametrize("bad", [b"{", b"5", b"<html>", b"\xff\xfe", b"[" * 100_000, line(5, {}), b""])
async def test_a_line_that_is_nobodys_takes_no_other_with_it(bad: bytes) -> None:
    results = await read(b"\n".join([answered("a"), bad, answered("b"), b""]))

    assert results == {"a": GOOD, "b": GOOD}


@pytest.mark.parametrize("usage", [None, {}, {"output_tokens": -5}, {"input_tokens": "many"}, "much", []], ids=str)
async def test_an_answer_whose_usage_is_not_told_is_an_answer(usage: Any) -> None:
    """What it counts is for whoever knows its worst case."""
    completion = (await read(answered("a", usage=usage) + b"\n"))["a"]

    assert isinstance(completion, Completion)
    assert (completion.text, completion.batched) == (GOOD.text, True)
    assert {"input", "output"} <= completion.untold


async def test_each_has_what_came_of_it() -> None:
    cut = line("cut", {"type": "succeeded", "message": {**message(), "stop_reason": None}})
    failed = line("failed", {"type": "errored", "error": {"type": "error", "error": {"type": "overloaded_error"}}})
    tool = answered("tool", content=[{"type": "tool_use", "name": "x", "input": {}}], stop_reason="tool_use")
    ends = [line("canceled", {"type": "canceled"}), line("expired", {"type": "expired"})]

    results = await read(b"\r\n".join([cut, failed, tool, *ends, answered("last")]))

    kinds = {id: type(result) for id, result in results.items() if isinstance(result, ModelError)}
    assert kinds == {"cut": StreamCut, "failed": Overloaded, "canceled": BatchExpired, "expired": BatchExpired}
    assert isinstance(results["tool"], Completion)
    assert results["tool"].wants_tool
    assert results["last"] == GOOD


@pytest.mark.parametrize("bad", [b"{", b"5", b"<html>", b"\xff\xfe", line(5, {}), answered("b")[:-1]])
async def test_a_bad_last_line_takes_no_other_with_it(bad: bytes) -> None:
    """Also without an end: it is as bad whenever it is read, and nobody could ever have the others (E14)."""
    assert await read(answered("a") + b"\n" + bad) == {"a": GOOD}


async def test_in_whatever_pieces_the_results_come_they_are_the_same() -> None:
    body = answered("a") + b"\n" + answered("b")

    for piece in range(1, len(body)):
        assert await read(body, piece) == await read(body + b"\n", piece) == {"a": GOOD, "b": GOOD}


async def test_results_that_break_off_are_told_by_no_part_of_them() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield answered("a") + b"\n" + answered("b")
        raise ConnectionError

    with pytest.raises(ConnectionError):
        await results_in(chunks(), Overloaded)


@pytest.mark.parametrize("body", [b"", b"\n", b"<html>\n</html>\n", b"{}\n", b"{", answered("a")[:-1]])
async def test_results_of_nobody_are_none(body: bytes) -> None:
    """A batch has a request at least: what was paid is not taken for what was never done."""
    with pytest.raises(Garbled):
        await read(body)
