"""What the article says, and what was found; and what Nightcrew promises. Pure: samples in, sentences out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from statistics import median

from trap_sample import ALL, OURS, OWN, SDK, SEMAPHORE, UNTIL_DONE, WAVES, Arm
from trap_table import RETRIES, spread
from trap_taken import CALLS, SWEEP, Taken, arms_of_the_sweep

ARTICLE = 120 / 45
SAME = 1.05
"""Times that differ by less than this factor count as the same: the machine is noisy."""

GOAL = 1.15
"""Times the limit that the headroom leaves, within which Nightcrew at 22 is to finish."""

NOT_MEASURED = "not measured."


def claims(scenes: Iterable[Taken]) -> str:
    """For each claim of the article and each scene, whether it held."""
    known = list(scenes)
    lines: list[str] = []
    for title, judged in (
        ("22 at once take 120 s, waves of 4 take 45 s", took_so_long),
        ("22 at once are slower than waves of 4", slower_at_once),
        ("3 to 5 at a time is the sweet spot", sweet_spot),
        ("Four at a time avoid at least 95 % of 429s", avoided),
    ):
        lines.append(f"- *{title}.*")
        lines += [f"  - {taken.title}: {judged(taken)}" for taken in known]
    return "\n".join(lines)


def took_so_long(taken: Taken) -> str:
    """By the ratio: this provider is faster than the article's. Three quarters of it count."""
    if (times := _at_once_and_waves(taken)) is None:
        return NOT_MEASURED
    ratio = times[0] / times[1]
    figures = f"{times[0]:.1f} s against {times[1]:.1f} s, {ratio:.1f} to 1; the article has {ARTICLE:.1f} to 1"
    return f"{_held(ratio >= 0.75 * ARTICLE)}: {figures}."


def slower_at_once(taken: Taken) -> str:
    """When both are retried until all is done; what is lost otherwise is told beside it."""
    if (times := _at_once_and_waves(taken)) is None:
        return NOT_MEASURED
    lost = [sample.lost for sample in taken.of(Arm(ALL, 22, SDK))]
    losing = f" With the SDK's default retries {spread(lost, of=CALLS)} calls at once are lost." if any(lost) else ""
    return f"{_held(times[0] > SAME * times[1])}: {times[0]:.1f} s against {times[1]:.1f} s.{losing}"


def sweet_spot(taken: Taken) -> str:
    """A spot is sweet when nothing is faster, and much more is slower."""
    return "; ".join(_sweet_spots(taken)) + "."


def _sweet_spots(taken: Taken) -> Iterator[str]:
    for who, times in zip(("a semaphore", "Nightcrew"), _swept(taken), strict=True):
        if not times:
            yield f"not measured for {who}"
            continue
        best = min(times.values())
        fastest = [str(places) for places, seconds in times.items() if seconds <= SAME * best]
        sweet = "4" in fastest and "22" not in fastest
        verb = "is" if len(fastest) == 1 else "are"
        yield f"{_held(sweet)} for {who}, where {_listed(fastest)} at a time {verb} fastest ({best:.1f} s)"


def _swept(taken: Taken) -> list[dict[int, float]]:
    """Of semaphore and ours the times by concurrency, or nothing when one is missing."""
    columns: list[dict[int, float]] = []
    for column in (0, 1):
        times = {places: taken.seconds(arms_of_the_sweep(places)[column]) for places in SWEEP}
        known = {places: seconds for places, seconds in times.items() if seconds is not None}
        columns.append(known if len(known) == len(SWEEP) else {})
    return columns


def avoided(taken: Taken) -> str:
    """429s of a semaphore of 4 beside those of all at once."""
    told: list[str] = []
    for retries in SDK, UNTIL_DONE:
        many, few = (
            [sample.refused for sample in taken.of(Arm(way, places, retries))]
            for way, places in ((ALL, 22), (SEMAPHORE, 4))
        )
        if not (many and few):
            return NOT_MEASURED
        if median(many) == 0:
            return "there were none to avoid."
        part = 1 - median(few) / median(many)
        figures = f"{median(few):.0f} in place of {median(many):.0f}, {100 * part:.0f} % fewer ({RETRIES[retries]})"
        told.append(f"{_held(part >= 0.95)}: {figures}")
    return "; ".join(told) + "."


def goal(taken: Taken) -> str:
    """Whether Nightcrew at 22 keeps its promise, by the worst seed."""
    found = taken.of(Arm(OURS, 22, OWN))
    if not found:
        return "Nightcrew at 22 was not measured."
    worst = max(sample.seconds / taken.limits[sample.seed][1] for sample in found)
    lost, refused, requests = (
        sum(counts) for counts in zip(*((one.lost, one.refused, one.requests) for one in found), strict=True)
    )
    kept = "within" if worst <= GOAL else "above"
    return (
        f"Nightcrew at 22 took at most **{worst:.2f}** times the limit that the headroom leaves, {kept} the goal of "
        f"{GOAL}; it lost {lost} calls, and met {refused} 429s in {requests} requests."
    )


def _at_once_and_waves(taken: Taken) -> tuple[float, float] | None:
    at_once, waves = taken.seconds(Arm(ALL, 22, UNTIL_DONE)), taken.seconds(Arm(WAVES, 4, UNTIL_DONE))
    return None if at_once is None or waves is None else (at_once, waves)


def _held(held: bool) -> str:  # noqa: FBT001 - a word for a verdict
    return "**held**" if held else "**did not hold**"


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
