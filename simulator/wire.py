"""How each fault on the way looks: a reply goes in, and comes out as what gets through. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace

from simulator.faults import PAGE, Fault
from simulator.messages import PING, encoded, error_body, sse
from simulator.replies import Ending, Frame, Reply

_BROKEN = b'{"type": "content_block_delta", "index": 0, "delta": {"type": "text_de'
_NOT_UTF8 = b'{"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "\xff\xfe\xfa"}}'


def spoil(reply: Reply, fault: Fault) -> Reply:
    """The reply as it gets through, whole when there is no fault."""
    return _SPOILED[fault.fault](reply, fault) if fault.fault else reply


def _hang_before_headers(reply: Reply, fault: Fault) -> Reply:
    return replace(reply, frames=_silent(reply), ending=Ending.HANG, patience=fault.seconds)


def _hang_after_headers(reply: Reply, fault: Fault) -> Reply:
    return replace(reply, frames=_bare(reply), ending=Ending.HANG, patience=fault.seconds)


def _hang_mid_stream(reply: Reply, fault: Fault) -> Reply:
    return replace(reply, frames=_cut(reply, fault), ending=Ending.HANG, patience=fault.seconds)


def _ping_forever(reply: Reply, fault: Fault) -> Reply:
    """A document cannot ping: it only never comes."""
    if not reply.streams:
        return _hang_after_headers(reply, Fault())
    pings = itertools.repeat(Frame(PING, wait=fault.seconds or 1.0))
    return replace(reply, frames=itertools.chain([_first(reply)], pings))


def _reset_before_headers(reply: Reply, _: Fault) -> Reply:
    return replace(reply, frames=_silent(reply), ending=Ending.RESET)


def _reset_mid_stream(reply: Reply, fault: Fault) -> Reply:
    return replace(reply, frames=_cut(reply, fault), ending=Ending.RESET)


def _close_mid_chunk(reply: Reply, fault: Fault) -> Reply:
    return replace(reply, frames=_cut(reply, fault), ending=Ending.CLOSE)


def _truncate(reply: Reply, fault: Fault) -> Reply:
    return _consistent(reply, _cut(reply, fault))


def _no_message_stop(reply: Reply, _: Fault) -> Reply:
    """A document has no such event: it is left as it is."""
    return replace(reply, frames=list(reply.frames)[:-1]) if reply.streams else reply


def _error_event(reply: Reply, fault: Fault) -> Reply:
    text = fault.message or "Simulated fault: error_event"
    body = error_body(fault.error_type or "overloaded_error", text)
    return _interrupted(reply, fault, sse("error", body), encoded(body))


def _garbage_json(reply: Reply, fault: Fault) -> Reply:
    return _interrupted(reply, fault, _delta(_BROKEN), _BROKEN)


def _bad_utf8(reply: Reply, fault: Fault) -> Reply:
    return _interrupted(reply, fault, _delta(_NOT_UTF8), _NOT_UTF8)


def _empty_stream(reply: Reply, _: Fault) -> Reply:
    return _consistent(reply, _bare(reply))


def _html_200(reply: Reply, _: Fault) -> Reply:
    return _instead(reply, "text/html", PAGE)


def _wrong_shape(reply: Reply, _: Fault) -> Reply:
    return _instead(reply, "application/json", b'{"unexpected": ["shape"]}')


_SPOILED: dict[str, Callable[[Reply, Fault], Reply]] = {
    "hang_before_headers": _hang_before_headers,
    "hang_after_headers": _hang_after_headers,
    "hang_mid_stream": _hang_mid_stream,
    "ping_forever": _ping_forever,
    "reset_before_headers": _reset_before_headers,
    "reset_mid_stream": _reset_mid_stream,
    "close_mid_chunk": _close_mid_chunk,
    "truncate": _truncate,
    "no_message_stop": _no_message_stop,
    "error_event": _error_event,
    "garbage_json": _garbage_json,
    "bad_utf8": _bad_utf8,
    "empty_stream": _empty_stream,
    "html_200": _html_200,
    "wrong_shape": _wrong_shape,
}


def _first(reply: Reply) -> Frame:
    """The first frame to leave, after all the time that passes before it."""
    frames = list(reply.frames)
    before = list(itertools.takewhile(lambda frame: frame.data is None, frames))
    first = frames[len(before)]
    return replace(first, wait=first.wait + sum(frame.wait for frame in before))


def _silent(reply: Reply) -> list[Frame]:
    """The time to the first byte, without the byte."""
    return [replace(_first(reply), data=None)]


def _bare(reply: Reply) -> list[Frame]:
    """Headers only, in their time."""
    return [replace(_first(reply), data=b"")]


def _consistent(reply: Reply, frames: list[Frame]) -> Reply:
    """A reply whose announced length is that of what it sends: as HTTP, nothing is wrong with it."""
    length = None if reply.streams else sum(len(frame.data or b"") for frame in frames)
    return replace(reply, frames=frames, length=length)


def _instead(reply: Reply, content_type: str, body: bytes) -> Reply:
    headers = [("content-type", content_type), *(pair for pair in reply.headers if pair[0] != "content-type")]
    return replace(reply, headers=headers, frames=[replace(_first(reply), data=body)], length=len(body))


def _interrupted(reply: Reply, fault: Fault, event: bytes, document: bytes) -> Reply:
    """Whole events up to the place, then this one and no more; a reply that is no stream is the document."""
    if not reply.streams:
        return _instead(reply, "application/json", document)
    kept = list(_up_to(reply, fault))
    return replace(reply, frames=[*kept, Frame(event, 0, kept[-1].output)])


def _delta(data: bytes) -> bytes:
    return b"event: content_block_delta\ndata: " + data + b"\n\n"


def _place(reply: Reply, fault: Fault) -> int:
    """How many bytes are still delivered."""
    if fault.after_bytes is not None:
        return fault.after_bytes
    total = sum(len(frame.data or b"") for frame in reply.frames)
    return int(total * (0.5 if fault.at is None else fault.at))


def _up_to(reply: Reply, fault: Fault) -> Iterator[Frame]:
    """The frames that fit before the place, but always the first: a stream has begun."""
    place, sent = _place(reply, fault), 0
    for number, frame in enumerate(reply.frames):
        sent += len(frame.data or b"")
        if number and sent > place:
            return
        yield frame


def _cut(reply: Reply, fault: Fault) -> list[Frame]:
    """What is sent up to the place, to the byte. Headers are always sent."""
    left, kept = _place(reply, fault), list[Frame]()
    for frame in reply.frames:
        kept.append(frame if frame.data is None else replace(frame, data=frame.data[:left]))
        left -= len(frame.data or b"")
        if left <= 0 and frame.data is not None:
            break
    return kept
