"""One way through the door: the calls that an attempt at a task makes one after the other, and what came of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from activities.attempts import Attempt
from activities.ledger import Landed
from domain.models import Spent, Verdict

Ask = Callable[[Attempt], Awaitable[tuple[Landed, bool]]]
"""What a call comes to, and whether it was paid for before."""


@dataclass(frozen=True)
class Landing:
    """An answer to one call of an attempt, and whether it had been paid for before."""

    attempt: Attempt
    landed: Landed
    reused: bool

    @property
    def is_the_only_one(self) -> bool:
        """Whether it came of the only request that was ever made for this call."""
        return not self.reused and self.landed.number == 1 and not self.landed.overtaken and self.landed.at is not None

    @property
    def spent(self) -> Spent:
        """What the request has cost that brought it."""
        said = self.landed.completion
        return Spent(model=self.attempt.brief.model, usage=said.usage, batched=said.batched)


@dataclass
class Passage:
    """What an attempt has come to so far. It is asked when it ends, however it does."""

    calls: list[Attempt]
    """Every call that was to be made, the first one first."""
    landings: list[Landing] = field(default_factory=list)
    """Those that were answered."""
    verdicts: list[Verdict] = field(default_factory=list)
    answer: Landing | None = None
    """The last answer of the agent itself."""
    text: str = ""
    """What it said, without a summary."""

    @property
    def first(self) -> Attempt:
        """The call of the task itself."""
        return self.calls[0]

    def lands(self, attempt: Attempt, landed: Landed, *, reused: bool) -> Landing:
        """A call was answered. The same call twice is one: it was paid once."""
        landing = Landing(attempt, landed, reused)
        if all(each.attempt.entry != attempt.entry for each in self.landings):
            self.landings.append(landing)
        return landing

    def begins(self, attempt: Attempt) -> None:
        """A call is about to be made, or to be found answered."""
        if all(each.entry != attempt.entry for each in self.calls):
            self.calls.append(attempt)

    def landing_of(self, attempt: Attempt) -> Landing | None:
        """The answer to a call, if there is one."""
        return next((each for each in self.landings if each.attempt.entry == attempt.entry), None)

    def spent_beside(self, attempt: Attempt | None) -> tuple[Spent, ...]:
        """What the answers to all calls but this one have cost."""
        beside = attempt.entry if attempt is not None else None
        return tuple(each.spent for each in self.landings if each.attempt.entry != beside)
