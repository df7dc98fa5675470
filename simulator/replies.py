"""A reply as it will be on the wire: what leaves, when, and how it ends. Decided before the first byte is sent.

That makes every fault a change to a value (faults.py), and the sending of any reply one loop (server.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, auto

from simulator.messages import Answer, events, message
from simulator.prompt import CHARACTERS_PER_TOKEN

WRITES_PER_SECOND = 5
"""Often enough to look alive, seldom enough that a hundred streams cost little."""

TOKENS_AT_ONCE = 1024
"""Tokens in one write when there is no pace."""

Headers = list[tuple[str, str]]


class Ending(Enum):
    """What happens to the connection after the last frame."""

    COMPLETE = auto()
    CLOSE = auto()  # before the body is complete
    RESET = auto()
    HANG = auto()


@dataclass(frozen=True)
class Frame:
    """Bytes that leave together after a wait. None: time passes and tokens are made, but nothing leaves."""

    data: bytes | None = None
    wait: float = 0.0
    output: int = 0


@dataclass(frozen=True)
class Reply:
    """Status and headers leave with the first frame that has data, so a reply without such frames never shows them."""

    status: int
    headers: Headers
    frames: Iterable[Frame]
    length: int | None = None  # announced length of the body; None: chunked
    ending: Ending = Ending.COMPLETE
    patience: float | None = None  # seconds until a hanging connection is closed; None: never

    @property
    def streams(self) -> bool:
        """Whether the body is a stream of events."""
        return self.length is None


@dataclass(frozen=True)
class Pace:
    """How fast this one reply comes."""

    ttft: float
    tokens_per_second: float


def body_reply(status: int, body: bytes, *, headers: Headers, content_type: str = "application/json") -> Reply:
    """A whole body at once."""
    return Reply(status, [("content-type", content_type), *headers], [Frame(body)], length=len(body))


def json_reply(status: int, document: object, headers: Headers | None = None) -> Reply:
    """A JSON document at once."""
    return body_reply(status, json.dumps(document).encode(), headers=headers or [])


def answer_reply(answer: Answer, pace: Pace, *, stream: bool, headers: Headers) -> Reply:
    """An answer that takes its time, as a stream or as one document at the end."""
    frames = list(_frames(answer, pace))
    if stream:
        return Reply(200, [("content-type", "text/event-stream; charset=utf-8"), *headers], frames)
    body = json.dumps(message(answer)).encode()
    silent = [Frame(None, frame.wait, frame.output) for frame in frames]
    return Reply(
        200, [("content-type", "application/json"), *headers], [*silent, Frame(body, 0, answer.tokens)], len(body)
    )


def _frames(answer: Answer, pace: Pace) -> Iterator[Frame]:
    """Start, text in pieces, end, and the stop by itself, so that a fault can leave it out."""
    start, deltas, end, stop = events(answer, list(_pieces(answer.text, pace)))
    yield Frame(start, pace.ttft)
    made = 0
    for delta, tokens in deltas:
        yield Frame(delta, tokens / pace.tokens_per_second if pace.tokens_per_second else 0.0, made + tokens)
        made += tokens
    yield Frame(end, 0, made)
    yield Frame(stop, 0, made)


def _pieces(text: str, pace: Pace) -> Iterator[str]:
    tokens = max(1, int(pace.tokens_per_second / WRITES_PER_SECOND)) if pace.tokens_per_second else TOKENS_AT_ONCE
    size = tokens * CHARACTERS_PER_TOKEN
    return (text[start : start + size] for start in range(0, len(text), size))
