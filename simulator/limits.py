"""Rate limits as the provider keeps them: token buckets that refill all the time. Pure: time comes in."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.config import Limits

_ROUNDING = 1e-6


@dataclass
class Bucket:
    """An allowance that refills continuously up to its capacity."""

    per_minute: int
    capacity: float
    level: float
    at: float

    def refill(self, now: float) -> None:
        """Add what has come in since the last look. A clock that went back adds nothing."""
        passed = max(0.0, now - self.at)
        self.level = min(self.capacity, self.level + passed * self.per_minute / 60)
        self.at = now

    def wait_for(self, amount: float) -> float:
        """Seconds until so much may be taken.

        More than the bucket ever holds may be taken when it is full, and leaves a debt: otherwise a request with a
        large max_tokens would be refused for ever.
        """
        lacking = min(amount, self.capacity) - self.level
        return lacking * 60 / self.per_minute if lacking > _ROUNDING else 0.0


@dataclass(frozen=True)
class Standing:
    """What a response's headers tell of one limit."""

    limit: int
    remaining: int
    seconds_to_full: float


class Limiter:
    """The buckets of every model, for one set of limits."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._models: dict[str, dict[str, Bucket]] = {}

    def admit(self, model: str, *, input_tokens: int, output_tokens: int, now: float) -> float:
        """0 when the request may pass, which charges it; otherwise the seconds to wait, and nothing is charged.

        Output is charged with all that might come; `settle` gives back what did not.
        """
        buckets = self._buckets(model, now)
        ask = {"requests": 1, "input-tokens": input_tokens, "output-tokens": output_tokens}
        wait = max((bucket.wait_for(ask[name]) for name, bucket in buckets.items()), default=0.0)
        if wait == 0:
            for name, bucket in buckets.items():
                bucket.level -= ask[name]
        return wait

    def settle(self, model: str, *, unused_output: int, now: float) -> None:
        """Give back the output tokens that were charged and never produced."""
        bucket = self._buckets(model, now).get("output-tokens")
        if bucket is not None:
            bucket.level = min(bucket.capacity, bucket.level + unused_output)

    def standings(self, model: str, now: float) -> dict[str, Standing]:
        """Limit, remainder and time to full of each limit that there is."""
        return {
            name: Standing(bucket.per_minute, max(0, int(bucket.level)), bucket.wait_for(bucket.capacity))
            for name, bucket in self._buckets(model, now).items()
        }

    def _buckets(self, model: str, now: float) -> dict[str, Bucket]:
        if model not in self._models:
            given = {
                "requests": self._limits.requests,
                "input-tokens": self._limits.input_tokens,
                "output-tokens": self._limits.output_tokens,
            }
            sizes = {name: (limit, max(1.0, limit * self._limits.burst)) for name, limit in given.items() if limit}
            self._models[model] = {name: Bucket(limit, size, size, now) for name, (limit, size) in sizes.items()}
        for bucket in self._models[model].values():
            bucket.refill(now)
        return self._models[model]
