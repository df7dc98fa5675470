"""The tables of the trap. Pure: samples in, Markdown out."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median, pstdev

from trap_sample import OURS, OWN, SDK, UNTIL_DONE, Arm, Sample
from trap_taken import CALLS, SWEEP, Taken, all_arms, arms_of_the_sweep, arms_to_compare

RETRIES = {SDK: "SDK default", UNTIL_DONE: "until done", OWN: "its own"}


def table(taken: Taken) -> str:
    """A row for each arm that was run."""
    rows = [
        "| how | retries | seconds | low to high | s.d. | first | calls lost | timeouts | 429s | times the limit |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    rows += [_row(arm, found, taken.limit) for arm in arms_to_compare() if (found := taken.of(arm))]
    return "\n".join(rows)


def _row(arm: Arm, found: Sequence[Sample], limit: float) -> str:
    seconds = [sample.seconds for sample in found]
    cells = [
        f"**{arm.title}**" if arm.way == OURS else arm.title,
        RETRIES[arm.retries],
        f"{median(seconds):.1f}",
        f"{min(seconds):.1f} to {max(seconds):.1f}",
        f"{pstdev(seconds):.1f}",
        f"{median(sample.first for sample in found):.1f}",
        spread([sample.lost for sample in found], of=CALLS),
        spread([sample.timeouts for sample in found]),
        spread([sample.refused for sample in found]),
        "" if any(sample.lost for sample in found) else f"{median(seconds) / limit:.2f}",  # less work is no speed
    ]
    return f"| {' | '.join(cells)} |"


def uneven(taken: Taken) -> str | None:
    """Which arms were not run on every seed: a median of fewer must not pass for one of all."""
    short = [f"{arm.title} ({RETRIES[arm.retries]})" for arm in all_arms() if len(taken.of(arm)) < len(taken.limits)]
    return f"Not run on every seed: {', '.join(short)}." if short else None


def sweep(taken: Taken) -> str:
    """How time, 429s and timeouts go with concurrency."""
    rows = [
        "| at a time | semaphore: seconds | 429s | timeouts | Nightcrew: seconds | 429s | timeouts |",
        "|---|---|---|---|---|---|---|",
    ]
    for places in SWEEP:
        cells = [cell for arm in arms_of_the_sweep(places) for cell in _brief_cells(taken.of(arm))]
        rows.append(f"| {places} | {' | '.join(cells)} |")
    return "\n".join(rows)


def _brief_cells(found: Sequence[Sample]) -> list[str]:
    if not found:
        return ["", "", ""]
    seconds = f"{median(sample.seconds for sample in found):.1f}"
    return [seconds, spread([sample.refused for sample in found]), spread([sample.timeouts for sample in found])]


def spread(counts: Sequence[int], *, of: int | None = None) -> str:
    """Counts over the seeds: one figure when they agree."""
    low, high = min(counts), max(counts)
    told = f"{low}" if low == high else f"{low} to {high}"
    return f"{told} of {of}" if of and high else told
