"""An exporter of spans that passes on what happened, but no words: messages of errors may quote what was asked."""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.trace import Status

TYPE = "exception.type"
ERROR = "error.type"


class DiscreetExporter(SpanExporter):
    """Stands before another exporter. Temporal's plugin records every exception with its message and stack."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Pass the spans on, each without words."""
        return self._exporter.export([without_words(span) for span in spans])

    def shutdown(self) -> None:
        """End the exporter behind."""
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Nothing is held back here."""
        return self._exporter.force_flush(timeout_millis)


def without_words(span: ReadableSpan) -> ReadableSpan:
    """The span with the types of its errors, and without their messages and stacks."""
    if not span.events and not span.status.description:
        return span
    kinds = [str(event.attributes[TYPE]) for event in span.events if event.attributes and TYPE in event.attributes]
    known = dict(span.attributes or {})
    if kinds and ERROR not in known:
        known[ERROR] = kinds[-1].rpartition(".")[2]
    return ReadableSpan(
        name=span.name,
        context=span.context,
        parent=span.parent,
        resource=span.resource,
        attributes=known,
        events=[_without_words(event) for event in span.events],
        links=span.links,
        kind=span.kind,
        status=Status(span.status.status_code),
        start_time=span.start_time,
        end_time=span.end_time,
        instrumentation_scope=span.instrumentation_scope,
    )


def _without_words(event: Event) -> Event:
    kept = {name: value for name, value in (event.attributes or {}).items() if name == TYPE}
    return Event(event.name, kept, event.timestamp)
