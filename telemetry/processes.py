"""CPU and memory of processes, as metrics: looked at when a reader asks, never in between."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from opentelemetry.metrics import CallbackOptions, Meter, Observation

from footprint import Footprint, footprint

PidOf = Callable[[], int | None]
"""The pid of a process now; it may come, go, and come back as another."""


def observe_processes(meter: Meter, processes: Mapping[str, PidOf]) -> None:
    """Let a meter tell the footprint of these processes, each under its name."""

    def observed(figure: Callable[[Footprint], float]) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def look(_: CallbackOptions) -> Iterable[Observation]:
            for name, pid_of in processes.items():
                pid = pid_of()
                found = footprint(pid) if pid is not None else None
                if found is not None:
                    yield Observation(figure(found), {"nightcrew.process": name})

        return look

    meter.create_observable_counter(
        "process.cpu.time", [observed(lambda found: found.cpu_seconds)], unit="s", description="CPU seconds used so far"
    )
    meter.create_observable_up_down_counter(
        "process.memory.usage", [observed(lambda found: found.rss_bytes)], unit="By", description="Resident memory"
    )
