"""Reading a streamed answer: it counts only when it is whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from activities.model import AnswerTooLarge, Completion, Garbled, StreamCut
from domain.models import Usage
from domain.quota.words import Standing

ANSWER_LIMIT = 8 * 1024 * 1024
"""Bytes of one answer; the largest model output is far below, so more is a fault."""

KINDS = {
    "input_tokens": "input",
    "output_tokens": "output",
    "cache_read_input_tokens": "cache_read",
    "cache_creation_input_tokens": "cache_write",
}
"""What the provider calls the tokens of each kind, and what we call them."""

TOOLS = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})
"""Blocks of an answer by which a model asks for something to be done."""


class AnswerReader:
    """Takes the events of one stream in order and gives the completion, or says why there is none.

    `on_text` hears every piece of new text, `on_standing` what the provider says of the account's limits, `on_begin`
    that the answer begins: the prompt was read then. What has come of an answer that broke off stays readable.
    """

    def __init__(
        self,
        on_text: Callable[[str], None] | None = None,
        on_standing: Callable[[Standing], None] | None = None,
        on_begin: Callable[[], None] | None = None,
    ) -> None:
        self._on_begin = on_begin
        self._on_text = on_text
        self._on_standing = on_standing
        self._pieces: list[str] = []
        self._size = 0
        self._said: dict[str, int | None] = {}
        self._stop_reason: str | None = None
        self.names: dict[str, str] = {}
        """What the provider calls this answer (`id`), and the model that gave it."""
        self._begun = self._stopped = self._tool_block = self._summed_up = False

    @property
    def text(self) -> str:
        """What has come so far. It is an answer only when `completion` says so."""
        return "".join(self._pieces)

    @property
    def usage(self) -> Usage:
        """What the provider has said of the cost so far."""
        return Usage(**{kind: count or 0 for kind, count in self._said.items()})

    @property
    def untold(self) -> frozenset[str]:
        """The kinds of tokens of which the provider has said nothing, or what cannot be.

        What it says of the output where an answer begins is no more than a place for the count.
        """
        untold = {kind for kind in KINDS.values() if self._said.get(kind) is None}
        if not self._summed_up or (self._size and not self.usage.output):
            untold.add("output")
        if self.usage.all == self.usage.output:  # a prompt of no token
            untold.add("input")
        return frozenset(untold)

    @property
    def begun(self) -> bool:
        """Whether the provider has begun to answer: the prompt was read then, and is billed."""
        return self._begun

    def stands(self, standing: Standing) -> None:
        """The provider has said how the account stands, before the first word of its answer."""
        if self._on_standing is not None:
            self._on_standing(standing)

    def feed(self, event: dict[str, Any]) -> None:
        """Take one event. Kinds that we do not know are passed over."""
        match event:
            case {"type": "message_start", "message": {**message}}:
                self._begun = True
                self.names = {name: word for name in ("id", "model") if isinstance(word := message.get(name), str)}
                self._said |= _counts(message.get("usage"))
                if self._on_begin is not None:
                    self._on_begin()
            case {"type": "content_block_start", "content_block": {"type": str(kind)}} if kind in TOOLS:
                self._tool_block = True
            case {"type": "content_block_delta", "delta": {"type": "text_delta", "text": str(text)}}:
                self._take(text)
            case {"type": "message_delta", "delta": {"stop_reason": str(reason)}}:
                self._stop_reason = reason
                self._sum_up(event.get("usage"))
            case {"type": "message_delta", "delta": {"stop_reason": None}}:
                self._sum_up(event.get("usage"))
            case {"type": "message_stop"}:
                self._stopped = True
            case {"type": "content_block_delta", "delta": {"type": str(kind)}} if kind != "text_delta":
                pass  # thinking, citations, the input of tools: not the text
            case {"type": "message_start" | "message_delta" | "content_block_delta"}:
                raise Garbled("the provider's answer has a shape that we do not know")

    def completion(self) -> Completion:
        """The whole answer. A stream that ended early is never one, however cleanly it ended."""
        if not self._begun:
            raise Garbled("the provider's answer is not a message")
        if not self._stopped or self._stop_reason is None:
            raise StreamCut("the answer broke off before its end")
        return Completion(
            text=self.text,
            usage=self.usage,
            stop_reason=self._stop_reason,
            tool_block=self._tool_block,
            untold=self.untold,
        )

    def _sum_up(self, usage: object) -> None:
        """The later word on usage stands, also when it makes no sense: then the earlier one is not believed either."""
        counts = _counts(usage)
        self._said |= counts
        self._summed_up |= "output" in counts

    def _take(self, text: str) -> None:
        if not self._begun or self._stopped:
            raise Garbled("the provider's answer has text outside of its message")
        self._size += len(text.encode(errors="surrogatepass"))
        if self._size > ANSWER_LIMIT:
            raise AnswerTooLarge(f"the answer is larger than {ANSWER_LIMIT} bytes")
        # A lone surrogate cannot be written as UTF-8: what cannot be stored is replaced where it comes in.
        self._pieces.append(text.encode(errors="replace").decode())
        if text and self._on_text is not None:
            self._on_text(text)


def _counts(usage: object) -> dict[str, int | None]:
    """What is said of each kind of tokens: None of one whose count makes no sense. A null says nothing."""
    if not isinstance(usage, dict):
        return {}
    said = {kind: usage[name] for name, kind in KINDS.items() if usage.get(name) is not None}
    return {kind: count if type(count) is int and count >= 0 else None for kind, count in said.items()}
