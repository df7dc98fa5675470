"""Reading a streamed answer: it counts only when it is whole."""

from __future__ import annotations

from typing import Any

from activities.model import AnswerTooLarge, Completion, Garbled, StreamCut
from domain.models import Usage

ANSWER_LIMIT = 8 * 1024 * 1024
"""Bytes of one answer; the largest model output is far below, so more is a fault."""


class AnswerReader:
    """Takes the events of one stream in order and gives the completion, or says why there is none."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._size = 0
        self._usage: dict[str, Any] = {}
        self._stop_reason: str | None = None
        self._begun = self._stopped = False

    def feed(self, event: dict[str, Any]) -> str:
        """Take one event; gives the new text in it. Kinds that we do not know are passed over."""
        match event:
            case {"type": "message_start", "message": {"usage": dict(usage)}}:
                self._begun = True
                self._usage |= _counts(usage)
            case {"type": "content_block_delta", "delta": {"type": "text_delta", "text": str(text)}}:
                return self._take(text)
            case {"type": "message_delta", "delta": {"stop_reason": str(reason)}}:
                self._stop_reason = reason
                self._usage |= _counts(event.get("usage"))
            case {"type": "message_delta", "delta": {"stop_reason": None}}:
                self._usage |= _counts(event.get("usage"))
            case {"type": "message_stop"}:
                self._stopped = True
            case {"type": "content_block_delta", "delta": {"type": str(kind)}} if kind != "text_delta":
                pass  # thinking, citations, the input of tools: not the text
            case {"type": "message_start" | "message_delta" | "content_block_delta"}:
                raise Garbled("the provider's answer has a shape that we do not know")
        return ""

    def completion(self) -> Completion:
        """The whole answer. A stream that ended early is never one, however cleanly it ended."""
        if not self._begun:
            raise Garbled("the provider's answer is not a message")
        if not self._stopped or self._stop_reason is None:
            raise StreamCut("the answer broke off before its end")
        return Completion(text="".join(self._pieces), usage=self._checked_usage(), stop_reason=self._stop_reason)

    def _take(self, text: str) -> str:
        if not self._begun or self._stopped:
            raise Garbled("the provider's answer has text outside of its message")
        self._size += len(text.encode(errors="surrogatepass"))
        if self._size > ANSWER_LIMIT:
            raise AnswerTooLarge(f"the answer is larger than {ANSWER_LIMIT} bytes")
        # A lone surrogate cannot be written as UTF-8: what cannot be stored is replaced where it comes in.
        self._pieces.append(text.encode(errors="replace").decode())
        return text

    def _checked_usage(self) -> Usage:
        return Usage(
            input=self._usage.get("input_tokens", 0),
            output=self._usage.get("output_tokens", 0),
            cache_read=self._usage.get("cache_read_input_tokens", 0),
            cache_write=self._usage.get("cache_creation_input_tokens", 0),
        )


def _counts(usage: object) -> dict[str, int]:
    """The token counts that are there; message_delta repeats those of message_start, and its word is the later one."""
    if not isinstance(usage, dict):
        return {}
    return {name: count for name, count in usage.items() if isinstance(count, int) and count >= 0}
