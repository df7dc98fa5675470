"""Which signals of OpenTelemetry the standard variables ask for. Reading them costs nothing: no import of its SDK."""

from __future__ import annotations

import os
from collections.abc import Mapping
from enum import StrEnum

SPOKEN = "http/protobuf"


class Signal(StrEnum):
    """What can be exported."""

    TRACES = "traces"
    METRICS = "metrics"


class NotSpoken(Exception):
    """The variables ask for something that we do not do; the message says what, and what we do."""


def asked_for(signal: Signal, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a signal shall be exported: it has an endpoint, and nothing turns it off. An empty variable is unset."""

    def value(name: str) -> str:
        return environment.get(name, "").strip()

    kind = signal.upper()
    endpoint = value(f"OTEL_EXPORTER_OTLP_{kind}_ENDPOINT") or value("OTEL_EXPORTER_OTLP_ENDPOINT")
    exporters = [name.strip() for name in (value(f"OTEL_{kind}_EXPORTER") or "otlp").lower().split(",")]
    if not endpoint or value("OTEL_SDK_DISABLED").lower() == "true" or "none" in exporters:
        return False
    if "otlp" not in exporters:
        raise NotSpoken(
            f"No {signal} are exported: OTEL_{kind}_EXPORTER is {exporters[0]!r}, and only 'otlp' is known."
        )
    protocol = value(f"OTEL_EXPORTER_OTLP_{kind}_PROTOCOL") or value("OTEL_EXPORTER_OTLP_PROTOCOL") or SPOKEN
    if protocol != SPOKEN:
        raise NotSpoken(
            f"No {signal} are exported: OTEL_EXPORTER_OTLP_PROTOCOL says {protocol!r}, and we speak {SPOKEN!r}. "
            "Set it so, and the endpoint to the collector's port for HTTP (usually 4318)."
        )
    return True
