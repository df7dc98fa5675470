"""The shapes of the Messages API: a message, the events of a stream, an error."""

from __future__ import annotations

import json
from dataclasses import dataclass

from pydantic import JsonValue

from simulator.prompt import count_tokens

Json = dict[str, JsonValue]

PING = b'event: ping\ndata: {"type": "ping"}\n\n'


@dataclass(frozen=True)
class Answer:
    """What the model says, and what it tells about it. With `tool`, the text is the JSON of a tool call's input."""

    id: str
    model: str
    text: str
    stop_reason: str
    input: int
    cache_read: int
    cache_write: int
    claims: Json | None  # said in place of the true usage; None: no usage is told at all
    tool: str | None = None

    @property
    def tokens(self) -> int:
        """Output tokens."""
        return count_tokens(self.text)


def message(answer: Answer, *, tier: str | None = None) -> Json:
    """The whole message as one document; `tier` is how it was served, where that is told."""
    block: Json = {"type": "text", "text": answer.text}
    if answer.tool:
        block = {**_empty_block(answer), "input": _loaded(answer.text)}
    told = _usage(answer, answer.tokens)
    if tier and isinstance(usage := told.get("usage"), dict):
        told = {"usage": {**usage, "service_tier": tier}}
    return {**_envelope(answer), **_stop(answer), "content": [block], **told}


def events(answer: Answer, pieces: list[str]) -> tuple[bytes, list[tuple[bytes, int]], bytes, bytes]:
    """The stream in four parts: start, one delta a piece with its tokens, end, and the final stop."""
    told = _usage(answer, 1)
    unsaid: Json = {"stop_reason": None, "stop_sequence": None, "content": []}
    start = (
        sse("message_start", {"message": {**_envelope(answer), **unsaid, **told}})
        + sse("content_block_start", {"index": 0, "content_block": _empty_block(answer)})
        + PING
    )
    deltas = [
        (sse("content_block_delta", {"index": 0, "delta": _delta(answer, piece)}), count_tokens(piece))
        for piece in pieces
    ]
    end = sse("content_block_stop", {"index": 0}) + sse(
        "message_delta", {"delta": _stop(answer), **_usage(answer, answer.tokens)}
    )
    return start, deltas, end, sse("message_stop", {})


def sse(name: str, data: Json) -> bytes:
    """One server-sent event."""
    return b"event: %s\ndata: %s\n\n" % (name.encode(), encoded({"type": name, **data}))


def encoded(document: Json) -> bytes:
    """JSON as it is sent."""
    return json.dumps(document).encode()


def error_body(kind: str, text: str, *, request_id: str | None = None, error_code: str | None = None) -> Json:
    """An error; a code goes where the SDK looks for it, under details."""
    error: Json = {"type": kind, "message": text}
    if error_code:
        error["details"] = {"error_code": error_code}
    return {"type": "error", "error": error, "request_id": request_id}


def _envelope(answer: Answer) -> Json:
    return {"id": answer.id, "type": "message", "role": "assistant", "model": answer.model}


def _stop(answer: Answer) -> Json:
    details: Json = {"type": "refusal", "category": None, "explanation": None}
    refusal: Json = {"stop_details": details} if answer.stop_reason == "refusal" else {}
    return {"stop_reason": answer.stop_reason, "stop_sequence": None, **refusal}


def _usage(answer: Answer, output: int) -> Json:
    if answer.claims is None:
        return {}
    truth: Json = {
        "input_tokens": answer.input,
        "cache_read_input_tokens": answer.cache_read,
        "cache_creation_input_tokens": answer.cache_write,
        "output_tokens": output,
    }
    return {"usage": {**truth, **answer.claims}}


def _empty_block(answer: Answer) -> Json:
    if answer.tool:
        return {"type": "tool_use", "id": answer.id.replace("msg", "toolu"), "name": answer.tool, "input": {}}
    return {"type": "text", "text": ""}


def _delta(answer: Answer, piece: str) -> Json:
    if answer.tool:
        return {"type": "input_json_delta", "partial_json": piece}
    return {"type": "text_delta", "text": piece}


def _loaded(text: str) -> JsonValue:
    """A tool's input as one document; broken JSON cannot be put there, so it arrives empty."""
    try:
        loaded: JsonValue = json.loads(text)
    except ValueError:
        return {}
    return loaded
