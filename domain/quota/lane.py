"""One class of models, as the bank knows it: its limits, the provider's buckets, the window, and who waits."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from domain.models import Value
from domain.quota.terms import MEASURES, Amounts, Limits, Measure, minus

MINUTE = 60.0


class Ticket(Value):
    """A process whose first call did not fit: until it is served, those who came later leave that much for it."""

    since: datetime
    seen: datetime
    need: Amounts


class OnItsWay(Value):
    """What a process was granted, and may not have arrived yet."""

    worker: str
    amounts: Amounts
    seconds: float
    """Until it has arrived for sure, or will never be used."""


class Lane(Value):
    """What the bank knows of one class."""

    limits: Limits | None = None
    """What the provider allows; None while nobody knows."""
    told: dict[Measure, int] = Field(default_factory=dict)
    """Limits by the latest headers that spoke of each."""
    sizes: Amounts = Field(default_factory=dict)
    """What the provider's buckets hold when they are full."""
    levels: Amounts = Field(default_factory=dict)
    """What is in them. Below zero after a call that is larger than its bucket."""
    drawn: Amounts = Field(default_factory=dict)
    """All that was ever drawn."""
    back: Amounts = Field(default_factory=dict)
    """All of it that ever came back."""
    used: dict[int, Amounts] = Field(default_factory=dict)
    """What was drawn in the last minute, without what came back, by spans of five seconds."""
    wall: datetime | None = None
    """Until then the provider wants no call."""
    window: float | None = None
    """How many calls may be under way; None: as many as the limits allow."""
    wide: float = 0.0
    """What the window has to grow to."""
    calm: datetime | None = None
    """Before then the window is not narrowed again. None until it was narrowed for the first time."""
    answers: int = 0
    recent: float | None = None
    usual: float | None = None
    """Seconds to the first word: of late, and when all is well."""
    tickets: dict[str, Ticket] = Field(default_factory=dict)
    on_its_way: tuple[OnItsWay, ...] = ()
    """Grants that the provider may not know of yet."""

    @property
    def out(self) -> Amounts:
        """All that was drawn and has not come back."""
        return minus(self.drawn, self.back)

    def room(self, measure: Measure, after: float = 0.0) -> float:
        """What a bucket holds at most in so many seconds, by our count.

        The provider's is full when it holds this and what is on its way, and takes nothing in from then on.
        """
        coming = sum(grant.amounts.get(measure, 0.0) for grant in self.on_its_way if grant.seconds > after)
        return self.sizes[measure] - coming

    @property
    def free(self) -> bool:
        """Whether nothing is limited."""
        unlimited = self.limits is not None and not any(self.limits.of(measure) for measure in MEASURES)
        return unlimited and self.window is None and self.wall is None

    def rate(self, measure: Measure, headroom: float) -> float | None:
        """What flows in each second; None: no limit."""
        limit = self.limits.of(measure) if self.limits is not None else None
        return None if limit is None else limit * (1 - headroom) / MINUTE
