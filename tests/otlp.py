"""A collector for tests: takes OTLP over real HTTP and keeps what came, as values and as bytes."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import monotonic, sleep
from types import TracebackType
from typing import Any, Self

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

KINDS = {1: "internal", 2: "server", 3: "client"}


@dataclass(frozen=True)
class Span:
    """One span as it was exported."""

    service: str
    name: str
    kind: str
    trace: str
    id: str
    parent: str | None
    failed: bool
    attributes: dict[str, Any] = field(hash=False)


@dataclass(frozen=True)
class Point:
    """One figure of a metric."""

    service: str
    name: str
    attributes: dict[str, Any] = field(hash=False)
    value: float


class Collector:
    """`with Collector() as collector:` listens at `collector.url`, the value of OTEL_EXPORTER_OTLP_ENDPOINT."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.points: list[Point] = []
        self.received = b""
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                collector.take(self.path, gzip.decompress(body) if self.headers["content-encoding"] == "gzip" else body)
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, stack: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def take(self, path: str, body: bytes) -> None:
        self.received += body
        if path == "/v1/traces":
            self.spans += _spans(ExportTraceServiceRequest.FromString(body))
        elif path == "/v1/metrics":
            self.points += _points(ExportMetricsServiceRequest.FromString(body))
        else:
            raise AssertionError(f"nobody exports to {path}")

    def until(self, true: Callable[[], bool]) -> None:
        """Wait until something is true of what came. The limit is for a test that fails."""
        deadline = monotonic() + 200
        while not true():
            assert monotonic() < deadline, [span.name for span in self.spans]
            sleep(0.02)

    def named(self, name: str) -> list[Span]:
        return [span for span in self.spans if span.name == name]

    def path_to(self, span: Span) -> list[str]:
        """The names from the root to a span; an error when a parent is missing."""
        by_id = {span.id: span for span in self.spans}
        names = [span.name]
        while span.parent is not None:
            span = by_id[span.parent]
            names.insert(0, span.name)
        return names


def _spans(request: ExportTraceServiceRequest) -> Iterable[Span]:
    for resource in request.resource_spans:
        service = _plain(resource.resource.attributes)["service.name"]
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield Span(
                    service=service,
                    name=span.name,
                    kind=KINDS[span.kind],
                    trace=span.trace_id.hex(),
                    id=span.span_id.hex(),
                    parent=span.parent_span_id.hex() or None,
                    failed=span.status.code == 2,
                    attributes=_plain(span.attributes),
                )


def _points(request: ExportMetricsServiceRequest) -> Iterable[Point]:
    for resource in request.resource_metrics:
        service = _plain(resource.resource.attributes)["service.name"]
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                for point in [*metric.sum.data_points, *metric.gauge.data_points]:
                    value = point.as_double if point.HasField("as_double") else float(point.as_int)
                    yield Point(service, metric.name, _plain(point.attributes), value)
                for histogram in metric.histogram.data_points:
                    yield Point(service, metric.name, _plain(histogram.attributes), histogram.sum)


def _plain(attributes: Iterable[KeyValue]) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in attributes}


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(item) for item in value.array_value.values]
    return getattr(value, kind) if kind else None
