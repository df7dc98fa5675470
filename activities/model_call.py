"""One request to a model as a span and as figures, by the names of OpenTelemetry's conventions for generative AI.

Only its API is used here: without a provider of traces and metrics all of this does nothing. Never a word of a prompt
or an answer; of what the provider says, only what looks like the name it should be.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from time import monotonic, time_ns
from types import TracebackType
from typing import Self

from opentelemetry import metrics, trace

from activities.model import Completion
from domain.briefing import Brief

NAME = re.compile(r"[A-Za-z0-9._:@/-]{1,128}")
STOP_REASONS = {
    *("end_turn", "stop_sequence", "max_tokens", "refusal"),
    *("model_context_window_exceeded", "pause_turn", "tool_use"),
}

_tracer = trace.get_tracer("nightcrew")
_meter = metrics.get_meter("nightcrew")
_tokens = _meter.create_histogram(
    "gen_ai.client.token.usage",
    unit="{token}",
    description="Tokens of one call, input and output",
    explicit_bucket_boundaries_advisory=[4**power for power in range(14)],
)
_duration = _meter.create_histogram(
    "gen_ai.client.operation.duration",
    unit="s",
    description="Seconds from a request to the end of its answer",
    explicit_bucket_boundaries_advisory=[0.01 * 2**power for power in range(16)],
)


class ModelCall:
    """`with ModelCall(...) as call:` around one request; `call.answered` when the whole answer has come."""

    def __init__(self, brief: Brief, *, run: str, task: str, attempt: int) -> None:
        self._known = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "anthropic",
            "gen_ai.request.model": brief.model,
        }
        self._span = _tracer.start_span(
            f"chat {brief.model}",
            kind=trace.SpanKind.CLIENT,
            attributes={
                **self._known,
                "gen_ai.request.max_tokens": brief.max_tokens,
                "nightcrew.run": run,
                "nightcrew.task": task,
                "nightcrew.attempt": attempt,
                "nightcrew.reused": False,
            },
        )
        self._began = monotonic()
        self._ended = False
        self._current = trace.use_span(self._span, record_exception=False, set_status_on_exception=False)

    def __enter__(self) -> Self:
        self._current.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, stack: TracebackType | None
    ) -> None:
        self._current.__exit__(kind, error, stack)
        self._end(error)

    def clock(self) -> float:
        """The time on the clock of the call."""
        return monotonic()

    def answered(self, completion: Completion, *, at: float) -> None:
        """The answer was whole at this time: what followed (it was written down) is no part of the call."""
        usage = completion.usage
        read = usage.input + usage.cache_read + usage.cache_write  # the convention counts cached tokens in
        self._span.set_attributes(
            {
                "gen_ai.response.finish_reasons": [completion.stop_reason if _is_known(completion) else "other"],
                "gen_ai.usage.input_tokens": read,
                "gen_ai.usage.output_tokens": usage.output,
                "gen_ai.usage.cache_read.input_tokens": usage.cache_read,
                "gen_ai.usage.cache_creation.input_tokens": usage.cache_write,
            }
        )
        _tokens.record(read, {**self._known, "gen_ai.token.type": "input"})
        _tokens.record(usage.output, {**self._known, "gen_ai.token.type": "output"})
        self._end(None, at)

    def _end(self, error: BaseException | None, at: float | None = None) -> None:
        if self._ended:
            return
        self._ended = True
        kind = {} if error is None else {"error.type": _kind_of(error)}
        if error is not None:
            self._span.set_attributes(kind)
            self._span.set_status(trace.StatusCode.ERROR)
        ago = monotonic() - at if at is not None else 0.0
        _duration.record(monotonic() - ago - self._began, {**self._known, **kind})
        self._span.end(time_ns() - int(ago * 1e9))


def asked_at(host: str, port: int) -> None:
    """Say on the span of the call where the request goes."""
    trace.get_current_span().set_attributes({"server.address": host, "server.port": port})


def answered_as(names: Mapping[str, str]) -> None:
    """Say on the span of the call what the provider calls its answer and its model."""
    known = {f"gen_ai.response.{key}": name for key, name in names.items() if NAME.fullmatch(name)}
    trace.get_current_span().set_attributes(known)


def attempt_answered(*, reused: bool) -> None:
    """Say on the span of the attempt whether its answer had been paid for before."""
    trace.get_current_span().set_attribute("nightcrew.reused", reused)


def _is_known(completion: Completion) -> bool:
    return completion.stop_reason in STOP_REASONS


def _kind_of(error: BaseException) -> str:
    return "Cancelled" if isinstance(error, asyncio.CancelledError) else type(error).__name__
