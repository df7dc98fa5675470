"""The physical limit: what a fan-out and its synthesis take at least, in any order and at any concurrency. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from trap_scene import Call

from simulator.config import Limits


def physical_limit(
    calls: Sequence[Call], synthesis: Call, limits: Limits, *, capacity: int | None = None, headroom: float = 0.0
) -> float:
    """Seconds that a perfect scheduler needs at least, when it may use all of the quota but the headroom.

    A bucket begins full and refills all the time. So what has been taken by a moment is at most what fits into it and
    what has come in since, and the last call of the fan-out cannot begin before the others and its own reservation have
    been taken; the synthesis cannot begin before all have ended. Whichever call is the last, and whichever limit is the
    tightest: the best case counts, and nothing is lost on the way.
    """
    buckets = list(_buckets(limits, headroom))
    fan_out = min(_earliest(buckets, _without(calls, number), last) + last.seconds for number, last in enumerate(calls))
    if capacity:
        fan_out = max(fan_out, sum(call.seconds for call in calls) / capacity)
    return max(fan_out, _earliest(buckets, calls, synthesis)) + synthesis.seconds


def _earliest(buckets: Iterable[tuple[str, float, float]], before: Iterable[Call], last: Call) -> float:
    """The moment from which a call may begin, when those before it have taken what they use."""
    taken = list(before)
    spent = {
        "requests": len(taken) + 1,
        "input": sum(call.input_tokens for call in (*taken, last)),
        "output": sum(call.output_tokens for call in taken) + last.max_tokens,
    }
    return max((max(0.0, spent[kind] - size) / per_second for kind, size, per_second in buckets), default=0.0)


def _buckets(limits: Limits, headroom: float) -> Iterator[tuple[str, float, float]]:
    """Kind, size and refill per second of each limit that there is."""
    given = {"requests": limits.requests, "input": limits.input_tokens, "output": limits.output_tokens}
    for kind, per_minute in given.items():
        if per_minute is not None:
            left = per_minute * (1 - headroom)
            yield kind, left * limits.burst, left / 60


def _without(calls: Sequence[Call], number: int) -> list[Call]:
    return [*calls[:number], *calls[number + 1 :]]
