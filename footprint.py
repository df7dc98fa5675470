"""What a process costs the machine: the CPU it has used so far, and the memory it holds now."""

from __future__ import annotations

from typing import NamedTuple


class Footprint(NamedTuple):
    """Of one process, without its children."""

    cpu_seconds: float
    rss_bytes: int


def footprint(pid: int) -> Footprint | None:
    """CPU time (user and system) since its start, and resident memory; `None` when there is no such process."""
    import psutil  # noqa: PLC0415 - who never asks does not pay for the import

    try:
        process = psutil.Process(pid)
        with process.oneshot():
            times = process.cpu_times()
            return Footprint(times.user + times.system, process.memory_info().rss)
    except psutil.Error:  # gone, a zombie, or of another user
        return None
