"""Reading what came of a batch, a line for each of its requests. What is wrong with a line is wrong for one request."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from activities.model import BatchExpired, Completion, Garbled, ModelError
from activities.reading import AnswerReader

Named = Callable[[str], ModelError]
"""The error of ours for a type of the provider."""


async def results_in(chunks: AsyncIterator[bytes], named: Named) -> dict[str, Completion | ModelError]:
    """What came of each request, by its custom id; a line that does not say of which it is is nobody's.

    The last line is as any other, also without an end: a body that breaks off is told by the transport, which raises.
    `Garbled` where nothing can be read at all: a batch has a request at least.
    """
    results: dict[str, Completion | ModelError] = {}
    rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            results |= _told_by(line, named)
    results |= _told_by(rest, named)
    if not results:
        raise Garbled("in the results of the batch is no line that can be read")
    return results


def _told_by(line: bytes, named: Named) -> dict[str, Completion | ModelError]:
    try:
        told = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    match told:
        case {"custom_id": str(id), "result": {"type": str(kind)} as result}:
            return {id: _result(kind, result, named)}
        case {"custom_id": str(id)}:
            return {id: Garbled("its line in the results of the batch has a shape that we do not know")}
    return {}


def _result(kind: str, result: Mapping[str, Any], named: Named) -> Completion | ModelError:
    match kind, result:
        case "succeeded", {"message": {"content": [*blocks], "stop_reason": reason} as message}:
            try:
                return _answer(message, blocks, reason)
            except ModelError as error:
                return error
        case "errored", {"error": {"error": {"type": str(word)}}}:
            return named(word)
        case "canceled" | "expired", _:
            return BatchExpired(f"the provider did not come to it: {kind}")
    return Garbled("its line in the results of the batch has a shape that we do not know")


def _answer(message: dict[str, Any], blocks: list[Any], reason: object) -> Completion:
    """A message as it would have come in a stream: it is whole, too large or none by the same rules."""
    reader = AnswerReader()
    reader.feed({"type": "message_start", "message": message})
    for block in blocks:
        reader.feed({"type": "content_block_start", "content_block": block})
        if isinstance(block, dict) and block.get("type") == "text":
            delta = {"type": "text_delta", "text": block.get("text")}
            reader.feed({"type": "content_block_delta", "delta": delta})
    reader.feed({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": message.get("usage")})
    reader.feed({"type": "message_stop"})
    return reader.completion().model_copy(update={"batched": True})
