"""What the meter does, as figures for OpenTelemetry. Without a provider of metrics all of this does nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from opentelemetry import metrics

from domain.quota.words import LaneWord

_meter = metrics.get_meter("nightcrew")
_wait = _meter.create_histogram(
    "nightcrew.quota.wait",
    unit="s",
    description="Seconds that a call waited for its part of the quota",
    explicit_bucket_boundaries_advisory=[0.01, 0.1, 0.5, 1, 2, 5, 10, 20, 30, 60],
)
_refused = _meter.create_counter(
    "nightcrew.quota.refusals", unit="{call}", description="Calls that the provider refused in spite of the meter"
)
_late = _meter.create_counter(
    "nightcrew.quota.late_grants", unit="{grant}", description="Grants that came too late, and went back"
)
_words: dict[str, LaneWord] = {}


def granted(lane: str, seconds: float) -> None:
    """A call may be made, after so much waiting."""
    _wait.record(seconds, {"nightcrew.lane": lane})


def refused(lane: str, kind: str) -> None:
    """The provider refused a call: a rate limit, or no room."""
    _refused.add(1, {"nightcrew.lane": lane, "error.type": kind})


def late() -> None:
    """A grant came too late."""
    _late.add(1)


def words(said: Mapping[str, LaneWord]) -> None:
    """What the bank says of each class, for whoever reads the gauges next."""
    _words.update(said)


def _used(_: metrics.CallbackOptions) -> Iterable[metrics.Observation]:
    for lane, word in _words.items():
        for measure, part in word.used.items():
            yield metrics.Observation(part, {"nightcrew.lane": lane, "nightcrew.limit": measure})


_meter.create_observable_gauge(
    "nightcrew.quota.used",
    [_used],
    unit="1",
    description="The part of a minute's limit that all workers together have drawn in the last minute",
)
