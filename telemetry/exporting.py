"""OpenTelemetry over OTLP, when the standard variables ask for it. Otherwise nothing of it is even imported."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import wraps
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, ParamSpec

from telemetry.variables import NotSpoken, Signal, asked_for

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from temporalio.client import Plugin
    from temporalio.runtime import MetricBuffer

    from telemetry.processes import PidOf

WORKER, STARTER = "nightcrew-worker", "nightcrew-starter"
SCOPE = "nightcrew"

FLUSH_PATIENCE = 2.0
"""Seconds that the end of a process waits for the last spans and figures to leave."""

CORE_BUFFER = 100_000
"""Updates of Temporal's own metrics between two drains, a second apart; what is above is dropped."""

P = ParamSpec("P")


@dataclass
class _Exporting:
    """What this process exports."""

    started: bool = False
    traces: bool = False
    core: MetricBuffer | None = None
    shutdowns: list[Callable[[], object]] = field(default_factory=list)
    losses: _Losses | None = None


class _Losses(logging.Handler):
    """Hears of everything that could not be exported, and tells it to whoever shall know."""

    def __init__(self, tell: Callable[[logging.LogRecord], None] | None) -> None:
        super().__init__(logging.WARNING)
        self.tell = tell
        self.heard = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.heard.set()
        if self.tell is not None:
            self.tell(record)


_exporting = _Exporting()


def start(
    service: str,
    *,
    tell: Callable[[logging.LogRecord], None] | None = None,
    processes: Mapping[str, PidOf] | None = None,
) -> list[str]:
    """Export what the environment asks for, once per process; gives a sentence for everything that cannot be done.

    Telemetry never fails a run: whatever is wrong with it, the work goes on without. `tell` hears the exporters'
    complaints; without it they are dropped. Metrics are exported by processes that name what there is to measure.
    """
    if _exporting.started:
        return []
    _exporting.started = True
    problems: list[str] = []
    wanted = []
    for signal in Signal if processes is not None else [Signal.TRACES]:
        try:
            if asked_for(signal):
                wanted.append(signal)
        except NotSpoken as problem:
            problems.append(str(problem))
    if wanted:
        _exporting.losses = _listen(tell)
    for signal in wanted:
        try:
            _start_traces(service) if signal is Signal.TRACES else _start_metrics(service, processes or {})
        except Exception as error:  # noqa: BLE001  the SDK raises plain errors for variables it cannot read
            problems.append(f"No {signal} are exported: the OTEL_* variables cannot be followed ({_words(error)}).")
    return problems


def plugins() -> list[Plugin]:
    """For every Temporal client of this process: the one that traces, when traces are exported."""
    if not _exporting.traces:
        return []
    from temporalio.contrib.opentelemetry import OpenTelemetryPlugin  # noqa: PLC0415

    return [OpenTelemetryPlugin(add_temporal_spans=True)]


def core_metrics() -> MetricBuffer | None:
    """Where Temporal's own runtime shall put its metrics, when metrics are exported."""
    return _exporting.core


@asynccontextmanager
async def draining_core_metrics() -> AsyncIterator[None]:
    """While the block runs, Temporal's own metrics go the way of all others."""
    if _exporting.core is None:
        yield
        return
    from temporalio.contrib.opentelemetry import MetricsExporter  # noqa: PLC0415

    async with MetricsExporter(_exporting.core):
        yield


def traced(name: str) -> Callable[[Callable[P, Awaitable[str]]], Callable[P, Coroutine[Any, Any, str]]]:
    """Put a span around what a client asks for and gets a run's id from; nothing when traces are not exported."""

    def wrap(ask: Callable[P, Awaitable[str]]) -> Callable[P, Coroutine[Any, Any, str]]:
        @wraps(ask)
        async def asked(*args: P.args, **options: P.kwargs) -> str:
            if not _exporting.traces:
                return await ask(*args, **options)
            from opentelemetry import trace  # noqa: PLC0415

            with trace.get_tracer(SCOPE).start_as_current_span(name, kind=trace.SpanKind.CLIENT) as span:
                run = await ask(*args, **options)
                span.set_attribute("nightcrew.run", run)
                return run

        return asked

    return wrap


def finish(patience: float = FLUSH_PATIENCE) -> None:
    """Send what is still here, within a bounded time. A process that tells nobody of losses does not wait for them."""
    threads = [threading.Thread(target=shutdown, daemon=True) for shutdown in _exporting.shutdowns]
    _exporting.shutdowns.clear()
    for thread in threads:
        thread.start()
    losses = _exporting.losses
    deadline = monotonic() + patience
    while any(thread.is_alive() for thread in threads) and monotonic() < deadline:
        if losses is not None and losses.tell is None and losses.heard.is_set():
            return
        sleep(0.01)


def _start_traces(service: str) -> None:
    from opentelemetry import trace  # noqa: PLC0415
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    from temporalio.contrib.opentelemetry import create_tracer_provider  # noqa: PLC0415

    from telemetry.discreet import DiscreetExporter  # noqa: PLC0415

    provider = create_tracer_provider(resource=_resource(service), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(DiscreetExporter(OTLPSpanExporter())))
    trace.set_tracer_provider(provider)
    _exporting.shutdowns.append(provider.shutdown)
    _exporting.traces = True


def _start_metrics(service: str, processes: Mapping[str, PidOf]) -> None:
    from opentelemetry import metrics  # noqa: PLC0415
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter  # noqa: PLC0415
    from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader  # noqa: PLC0415
    from temporalio.runtime import MetricBuffer  # noqa: PLC0415

    from telemetry.processes import observe_processes  # noqa: PLC0415

    reader = PeriodicExportingMetricReader(OTLPMetricExporter())
    provider = MeterProvider([reader], resource=_resource(service), shutdown_on_exit=False)
    metrics.set_meter_provider(provider)
    observe_processes(provider.get_meter(SCOPE), processes)
    _exporting.shutdowns.append(provider.shutdown)
    _exporting.core = MetricBuffer(CORE_BUFFER)


def _resource(service: str) -> Resource:
    """Who we are: what the environment says goes before our own words."""
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource  # noqa: PLC0415

    ours = Resource.create({"service.name": service, "service.instance.id": str(uuid.uuid4())})
    return ours.merge(OTELResourceDetector().detect())


def _words(error: Exception) -> str:
    """A complaint about a value; other errors by their name, for an endpoint or a header may hold a key."""
    return str(error).rstrip(".") if isinstance(error, ValueError) else type(error).__name__


def _listen(tell: Callable[[logging.LogRecord], None] | None) -> _Losses:
    """Take the complaints of the exporters off the terminal."""
    losses = _Losses(tell)
    logger = logging.getLogger("opentelemetry")
    logger.addHandler(losses)
    logger.propagate = False
    return losses
