"""Attempts: which one this is, what a failed one may have cost, and when the next one comes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.contract import AgentRequest
from activities.ledger import Entry, Intent, Setback, Setbacks
from activities.model import ModelError
from activities.reading import AnswerReader
from domain.briefing import Brief
from domain.models import Agent, Failed, Parked, Spent, Stopped, TaskError, TaskStatus, Try, Usage
from domain.prices import PriceList, cost_of_calls, money
from domain.weighing import weight

BACKOFF_FIRST, BACKOFF_LAST = timedelta(seconds=1), timedelta(minutes=1)
"""Between attempts: 1, 2, 4 s ... with jitter, so that tasks that failed together do not come back together."""

MOST_DOUBLINGS = 10


@dataclass(frozen=True)
class Attempt:
    """One attempt at one call."""

    request: AgentRequest
    brief: Brief
    agent: Agent
    number: int
    start: str
    scheduled: datetime
    """When it was due, by Temporal's clock."""
    prices: PriceList | None = None
    aside: bool = False
    """Whether the call is one beside that of the agent: for a summary."""
    relaxed: bool = False
    """Whether it goes into a batch."""

    @classmethod
    def of(
        cls,
        request: AgentRequest,
        brief: Brief,
        agent: Agent,
        *,
        prices: PriceList | None = None,
        relaxed: bool = False,
    ) -> Attempt:
        """The attempt that this activity is."""
        info = activity.info()
        return cls(
            request=request,
            brief=brief,
            agent=agent,
            number=attempt_of(request),
            start=info.workflow_run_id or "",
            scheduled=info.current_attempt_scheduled_time,
            prices=prices,
            relaxed=relaxed,
        )

    @cached_property
    def entry(self) -> Entry:
        """Its place in the ledger: the same for every attempt at the same call."""
        return Entry(self.request.run, self.request.task, self.request.step, self.brief.hash)

    @cached_property
    def worst(self) -> Usage:
        """What it may use at most. What is marked may be written to the cache."""
        size = weight(self.brief)
        kept = min(size, self.brief.prefix_bytes)
        return Usage(input=size - kept, output=self.brief.max_tokens, cache_write=kept)

    @property
    def is_capped(self) -> bool:
        """Whether somebody counts what the calls of its task cost."""
        return self.request.cap is not None and self.prices is not None

    def check_cover(self, calls: Sequence[Spent]) -> None:
        """`NotCovered` when what was set aside for the task does not cover one more call beside these."""
        cap, prices = self.request.cap, self.prices
        if cap is None or prices is None:
            return
        cost = cost_of_calls(prices.models, (*calls, Spent(model=self.brief.model, unsettled=self.worst)))
        if cost > cap:
            raise NotCovered(f"this call may bring its cost to ${money(cost)}, and ${money(cap)} is set aside for it")

    @cached_property
    def wide(self) -> int:
        """How many characters of what is sent are not ASCII: they make more tokens than their bytes tell."""
        text = self.brief.model_dump_json()
        return len(text) - len(text.encode("ascii", "ignore"))

    def intent(self, batch: str | None = None) -> Intent:
        """What is written down before the request."""
        return Intent(
            run=self.request.run,
            task=self.request.task,
            step=self.request.step,
            start=self.start,
            attempt=self.number,
            attempts=self.request.attempts,
            model=self.brief.model,
            max_tokens=self.brief.max_tokens,
            worst=self.worst,
            at=datetime.now(UTC),
            aside=self.aside,
            batch=batch,
        )

    def error(self, error: ModelError) -> TaskError:
        """The error as people read it."""
        what = "for a summary: " if self.aside else ""
        message = f"{what}{error}, attempt {self.number} of {self.request.attempts}"
        return TaskError(type=type(error).__name__, message=message, attempt=self.number, retryable=error.retryable)

    def setback(self, error: ModelError, reader: AnswerReader, *, used: bool) -> Setback:
        """What is written down after a request that brought no answer."""
        told = Try(
            attempt=self.number,
            error=self.error(error),
            at=datetime.now(UTC),
            usage=reader.usage,
            unsettled=self._unsettled(error, reader),
            model=self.brief.model if self.aside else None,
        )
        return Setback(told=told, start=self.start, used=used)

    def overtaken(self, usage: Usage) -> Setback:
        """What is written down when the answer to another request of this call was first. Ours was paid, in vain."""
        message = "another worker's answer to the same call came first, and is the one that is used"
        error = TaskError(type="Overtaken", message=message, attempt=self.number, retryable=True)
        return Setback(
            told=Try(attempt=self.number, error=error, at=datetime.now(UTC), usage=usage), start=self.start, used=False
        )

    def tried(self, failed: CallFailed) -> Try:
        """What a task tells of this attempt, when it goes on without what it was for."""
        return Try(
            attempt=self.number,
            error=self.error(failed.why),
            at=datetime.now(UTC),
            usage=failed.usage,
            unsettled=failed.unsettled,
            model=self.brief.model if self.aside else None,
        )

    def not_made(self) -> Setback:
        """What is written down of an intent that no request has followed: it cost nothing, and used no attempt."""
        message = f"the call was not made, attempt {self.number} of {self.request.attempts}"
        error = TaskError(type="NotMade", message=message, attempt=self.number, retryable=True)
        return Setback(told=Try(attempt=self.number, error=error, at=datetime.now(UTC)), start=self.start, used=False)

    def _unsettled(self, error: ModelError, reader: AnswerReader) -> Usage:
        """What the provider may bill beyond what it said: nothing, when it refused before it read the prompt."""
        if not (error.may_be_billed or reader.begun):
            return Usage()
        return Usage(
            input=0 if reader.input_told else self.worst.input,
            output=max(0, self.worst.output - reader.usage.output),
            cache_write=0 if reader.input_told else self.worst.cache_write,
        )


def attempt_of(request: AgentRequest) -> int:
    """Which attempt of its task this activity is. Earlier starts of the task count: a wall gives no attempt back."""
    return request.used + activity.info().attempt


class NotCovered(Exception):
    """What is set aside for the task does not cover one more call."""


class TurnedAway(Exception):
    """A call that is not made, or that met a wall: what the task hears instead of an answer."""

    def __init__(self, outcome: Parked | Stopped) -> None:
        super().__init__(outcome.kind)
        self.outcome = outcome


class CallFailed(Exception):
    """A call without an answer that counts: why, which request it was, what it cost, and what came of it."""

    def __init__(self, why: ModelError, number: int, *, usage: Usage, unsettled: Usage, text: str) -> None:
        super().__init__(str(why))
        self.why, self.number = why, number
        self.usage, self.unsettled = usage, unsettled
        self.text = text
        self.batched = False
        self.waited = 0.0
        """Seconds for which it waited for its part of the quota."""


def spent_in_vain(setbacks: Sequence[Setback], start: str) -> tuple[Try, ...]:
    """What a task that has ended must still tell of.

    The attempts of this start. Of earlier starts only what used none of them: theirs were told when they were parked.
    """
    return tuple(
        setback.told for setback in setbacks if (setback.start == start if setback.used else _may_have_cost(setback))
    )


def tells_all(setbacks: Setbacks, start: str) -> bool:
    """Whether the attempts that a start has used are all that it may have cost."""
    return setbacks.whole and not any(
        each.start == start and not each.used and _may_have_cost(each) for each in setbacks.all
    )


def used_up(setbacks: Sequence[Setback], start: str) -> tuple[Try, ...]:
    """The attempts that this start of a task has used."""
    return tuple(setback.told for setback in setbacks if setback.used and setback.start == start)


def failure(
    attempt: Attempt,
    failed: CallFailed,
    setbacks: Setbacks,
    *,
    output_ref: str | None,
    backoff: timedelta,
) -> ApplicationError:
    """The failure for Temporal to retry, or to keep as the last word: with all that is known in its details."""
    why, error = failed.why, attempt.error(failed.why)
    met = 1 + sum(setback.told.error.type == error.type for setback in setbacks.all)
    again = why.retryable and (why.at_most is None or met < why.at_most)
    doublings = min(attempt.number - 1, MOST_DOUBLINGS)
    delay = why.retry_after or backoff * 2**doublings * random.uniform(0.5, 1.5)  # noqa: S311
    details = Failed(
        asked=True,
        accounted=setbacks.whole,
        status=TaskStatus.TIMED_OUT if why.timed_out else TaskStatus.FAILED,
        error=error,
        usage=failed.usage,
        unsettled=failed.unsettled,
        output_ref=output_ref,
        output_bytes=len(failed.text.encode()) if output_ref else 0,
        tries=spent_in_vain(setbacks.all, attempt.start),
        waited_s=round(failed.waited, 3),
        batched=failed.batched,
    )
    return ApplicationError(
        error.message,
        details,
        type=error.type,
        non_retryable=not again,
        next_retry_delay=min(delay, BACKOFF_LAST) if again else None,
    )


def _may_have_cost(setback: Setback) -> bool:
    return setback.told.usage + setback.told.unsettled != Usage()
