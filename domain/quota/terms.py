"""What a provider allows an account: so much a minute, for each class of models."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated, Literal, get_args

from pydantic import ConfigDict, Field

from domain.models import Unsaid, Value

Measure = Literal["requests", "input_tokens", "output_tokens"]
MEASURES: tuple[Measure, ...] = get_args(Measure)

Amounts = dict[Measure, float]
"""So much of each measure; one that is not there is nothing."""

WORDS: dict[Measure, str] = {
    "requests": "requests a minute",
    "input_tokens": "input tokens a minute",
    "output_tokens": "output tokens a minute",
}

HEADROOM = 0.10
"""The part of every limit that is left unused: well inside is where nothing is refused."""

_FAMILY = re.compile(r"claude-(?P<family>[a-z]+)-(?P<major>\d+)(?:-|$)")
_OLD_FAMILY = re.compile(r"claude-(?P<major>\d+)(?:-\d+)?-(?P<family>[a-z]+)(?:-|$)")


class Limits(Value):
    """What a minute allows. None: no limit."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    requests: int | None = Field(default=None, ge=1)
    input_tokens: int | None = Field(default=None, ge=1)
    output_tokens: int | None = Field(default=None, ge=1)
    burst: float | None = Field(
        default=None, gt=0, le=1, description="the part of a minute that may be used at once; by default it is learned"
    )

    def of(self, measure: Measure) -> int | None:
        """The limit of one measure."""
        limit: int | None = getattr(self, measure)
        return limit


def in_words(limits: Limits) -> str:
    """The limits as a person says them."""
    named = [(limits.of(measure), measure.replace("_", " ")) for measure in MEASURES]
    told = [f"{limit:,} {name}" for limit, name in named if limit is not None]
    if not told:
        return "without limit"
    at_once = f", {limits.burst:.0%} of it at once" if limits.burst is not None and limits.burst < 1 else ""
    return f"{', '.join(told)} a minute{at_once}"


class Terms(Value):
    """What a person has set: the part to leave unused, and limits by class; without limits they are learned."""

    headroom: float = HEADROOM
    limits: dict[str, Limits] = Field(default_factory=dict)
    daily: Annotated[Decimal | None, Unsaid] = None
    """US dollars that all calls of the account may cost on one day, UTC."""

    def limits_for(self, lane: str) -> Limits | None:
        """The limits that are set for a class: by its name, by its family, or for all that have none of their own."""
        for name in lane, lane.partition("-")[0], "default":
            if name in self.limits:
                return self.limits[name]
        return None


class Tier(Value):
    """A step of the provider's price list: how many tasks at once make sense, and what is allowed."""

    concurrency: int
    limits: dict[str, Limits]


TIERS = {
    1: Tier(
        concurrency=4,
        limits={
            "default": Limits(requests=50, input_tokens=30_000, output_tokens=8_000),
            "haiku": Limits(requests=50, input_tokens=50_000, output_tokens=10_000),
        },
    ),
    2: Tier(concurrency=8, limits={"default": Limits(requests=1_000, input_tokens=450_000, output_tokens=90_000)}),
}
"""As the provider has published them. What its answers say goes before what is written here, when it is less."""


def lane_of(model: str) -> str:
    """The class that a model shares its limits with: family and main version, such as `haiku-5`.

    A name that we cannot read is a class of its own.
    """
    found = _FAMILY.match(model) or _OLD_FAMILY.match(model)
    return f"{found['family']}-{found['major']}" if found else model


def plus(some: Amounts, more: Amounts) -> Amounts:
    """Both together."""
    return {measure: some.get(measure, 0.0) + more.get(measure, 0.0) for measure in MEASURES}


def minus(some: Amounts, less: Amounts) -> Amounts:
    """The one without the other."""
    return {measure: some.get(measure, 0.0) - less.get(measure, 0.0) for measure in MEASURES}
