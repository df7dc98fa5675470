"""Attempts: which one this is, what a failed one may have cost, and when the next one comes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cached_property
from typing import Literal

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.contract import AgentRequest
from activities.counting import counted_so_far
from activities.ledger import Entry, Landed, Setbacks
from activities.model import ModelError, RightRefused
from activities.reading import AnswerReader
from domain.briefing import Brief
from domain.models import (
    Agent,
    Call,
    Failed,
    Parked,
    Spent,
    Stopped,
    TaskError,
    TaskStatus,
    Try,
    Usage,
    Verdict,
    ref_of,
)
from domain.prices import PriceList, cost_of_calls, money
from domain.refusals import A_TOOL, Refusal
from domain.rights import Right
from domain.weighing import weight
from entries import NOBODY, Intent, Setback

BACKOFF_FIRST, BACKOFF_LAST = timedelta(seconds=1), timedelta(minutes=1)
"""Between attempts: 1, 2, 4 s ... with jitter, so that tasks that failed together do not come back together."""

MOST_DOUBLINGS = 10

NO_USAGE = Usage()

Purpose = Literal["answer", "summary", "review"]
"""What a call is for: the answer of the task's agent, or what others make of it."""


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
    purpose: Purpose = "answer"
    """What the call is for."""
    relaxed: bool = False
    """Whether it goes into a batch."""
    reads: str | None = None
    """The hash of the list of what its agent is given to read."""

    @classmethod
    def of(
        cls,
        request: AgentRequest,
        brief: Brief,
        agent: Agent,
        *,
        number: int,
        prices: PriceList | None = None,
        relaxed: bool = False,
        reads: str | None = None,
    ) -> Attempt:
        """The attempt that this activity is: `number` says which one."""
        info = activity.info()
        return cls(
            request=request,
            brief=brief,
            agent=agent,
            number=number,
            start=info.workflow_run_id or "",
            scheduled=info.current_attempt_scheduled_time,
            prices=prices,
            relaxed=relaxed,
            reads=reads,
        )

    @property
    def aside(self) -> bool:
        """Whether the call is one beside those of the agent."""
        return self.purpose != "answer"

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

    def cost(self, usage: Usage, unsettled: Usage = NO_USAGE) -> Decimal | None:
        """What a request of it costs, or may cost at most, by what was told; None when its model has no price."""
        if self.prices is None or self.brief.model not in self.prices.models:
            return None
        return cost_of_calls(self.prices.models, [Spent(model=self.brief.model, usage=usage, unsettled=unsettled)])

    @property
    def worst_usd(self) -> Decimal | None:
        """What it may cost at most."""
        cost = self.cost(NO_USAGE, self.worst)
        if cost is None or self.prices is None or not self.relaxed:
            return cost
        return cost * self.prices.models[self.brief.model].batch_factor

    @property
    def is_capped(self) -> bool:
        """Whether somebody counts what the calls of its task cost."""
        return self.request.cap is not None and self.prices is not None

    def check_left(self) -> None:
        """`NoneLeft` when it is one more than the task may make."""
        if self.number > self.request.attempts:
            raise NoneLeft

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
            agent=self.agent.label,
            reads=self.reads,
        )

    def answered(self, landed: Landed) -> Call:
        """Its request, which was answered, as the trail tells of it."""
        usage, answer = landed.completion.usage, ref_of(landed.completion.text.encode())
        return self._call(landed.number, landed.at).model_copy(update={"usage": usage, "answer": answer})

    def told_beside(self, landed: Landed) -> Call:
        """The same where the answer says all else: it travels through Temporal three times."""
        return self._call(landed.number, landed.at).model_copy(update={"model": "", "attempt": 1})

    def in_vain(self, failed: CallFailed) -> Call:
        """Its request, which brought no answer that counts, as the trail tells of it."""
        told = {"usage": failed.usage, "unsettled": failed.unsettled, "error": type(failed.why).__name__}
        return self._call(failed.number, None).model_copy(update={**told, "batched": failed.batched})

    def _call(self, number: int, at: datetime | None) -> Call:
        return Call(
            prompt=self.brief.hash,
            number=number,
            attempt=self.number,
            agent=self.agent.label,
            model=self.brief.model,
            at=at or datetime.now(UTC),
            reads=self.reads,
        )

    def error(self, error: ModelError) -> TaskError:
        """The error as people read it."""
        what = f"for a {self.purpose}: " if self.aside else ""
        message = f"{what}{error}, attempt {self.number} of {self.request.attempts}"
        return TaskError(type=type(error).__name__, message=message, attempt=self.number, retryable=error.retryable)

    def setback(self, error: ModelError, reader: AnswerReader, *, used: bool) -> Setback:
        """What is written down after a request that brought no answer."""
        usage, unsettled = self.spent(error, reader)
        told = Try(
            attempt=self.number,
            error=self.error(error),
            at=datetime.now(UTC),
            usage=usage,
            unsettled=unsettled,
            model=self.brief.model if self.aside else None,
            batched=self.relaxed,
        )
        return Setback(told=told, start=self.start, used=used)

    def overtaken(self, usage: Usage) -> Setback:
        """What is written down when the answer to another request of this call was first. Ours was paid, in vain."""
        message = "another worker's answer to the same call came first, and is the one that is used"
        error = TaskError(type="Overtaken", message=message, attempt=self.number, retryable=True)
        told = Try(attempt=self.number, error=error, at=datetime.now(UTC), usage=usage, batched=self.relaxed)
        return Setback(told=told, start=self.start, used=False)

    def tried(self, failed: CallFailed) -> Try:
        """What a task tells of this attempt, when it goes on without what it was for."""
        return Try(
            attempt=self.number,
            error=self.error(failed.why),
            at=datetime.now(UTC),
            usage=failed.usage,
            unsettled=failed.unsettled,
            model=self.brief.model if self.aside else None,
            batched=self.relaxed,
        )

    def not_made(self) -> Setback:
        """What is written down of an intent that no request has followed: it cost nothing, and used no attempt."""
        message = f"the call was not made, attempt {self.number} of {self.request.attempts}"
        error = TaskError(type="NotMade", message=message, attempt=self.number, retryable=True)
        return Setback(told=Try(attempt=self.number, error=error, at=datetime.now(UTC)), start=self.start, used=False)

    def spent(self, error: ModelError, reader: AnswerReader) -> tuple[Usage, Usage]:
        """What it cost by the provider's word, and what may be billed on top: nothing, if it refused before it read."""
        if not (error.may_be_billed or reader.begun):
            return Usage(), Usage()
        return counted_so_far(reader, self.worst)


class NotCovered(Exception):
    """What is set aside for the task does not cover one more call."""


class NoneLeft(Exception):
    """Every attempt is used: the last one was lost with its worker, which could not say so."""


class TurnedAway(Exception):
    """A call that is not made, or that met a wall: what the task hears instead of an answer.

    It fails only where its agent has no right to the call.
    """

    def __init__(self, outcome: Parked | Stopped | Failed) -> None:
        super().__init__(outcome.kind)
        self.outcome = outcome


class CallFailed(Exception):
    """A call without an answer that counts: why, which request it was, what it cost, and what came of it."""

    def __init__(self, why: ModelError, number: int, *, usage: Usage, unsettled: Usage, text: str) -> None:
        super().__init__(str(why))
        self.why, self.number = why, number
        self.usage, self.unsettled = usage, unsettled
        self.text = text
        self.attempt: int | None = None
        """Which attempt made the call: whoever joined it on the way has a number of its own."""
        self.batched = False
        self.made: Attempt | None = None
        """The call, where it is not the last one that was to be made."""
        self.waited = 0.0
        """Seconds for which it waited for its part of the quota."""


@dataclass(frozen=True)
class Beside:
    """What is told of the calls of an attempt beside the last one."""

    tries: tuple[Try, ...] = ()
    spent: tuple[Spent, ...] = ()
    reviews: tuple[Verdict, ...] = ()
    whole: bool = True
    """Whether these are all that they may have cost."""


def spent_in_vain(setbacks: Sequence[Setback], start: str) -> tuple[Try, ...]:
    """What a task that has ended must still tell of: its last start, and what no earlier one has told."""
    return told_by(setbacks, start) + told_by(setbacks, NOBODY)


def told_by(setbacks: Sequence[Setback], start: str) -> tuple[Try, ...]:
    """What a start of a task tells at its end: the attempts that it has used, and what else may have cost something."""
    return tuple(
        each.told.model_copy(update={"used": each.used})
        for each in setbacks
        if each.start == start and (each.used or _may_have_cost(each))
    )


def failure(
    attempt: Attempt,
    failed: CallFailed,
    setbacks: Setbacks,
    *,
    output_ref: str | None,
    backoff: timedelta,
    calls: tuple[Call, ...] | None,
    others: Beside | None = None,
) -> ApplicationError:
    """The failure for Temporal to retry, or to keep as the last word: with all that is known in its details."""
    why, error = failed.why, attempt.error(failed.why)
    met = 1 + sum(setback.told.error.type == error.type for setback in setbacks.all)
    again = why.retryable and (why.at_most is None or met < why.at_most) and attempt.number < attempt.request.attempts
    doublings = min(attempt.number - 1, MOST_DOUBLINGS)
    delay = why.retry_after or backoff * 2**doublings * random.uniform(0.5, 1.5)  # noqa: S311
    refused = Refusal(agent=attempt.agent.name, right=Right.TOOLS, thing=A_TOOL)
    others = others or Beside()
    details = Failed(
        refused=(refused,) if isinstance(why, RightRefused) else (),
        asked=True,
        accounted=setbacks.whole and others.whole and calls is not None,
        status=TaskStatus.TIMED_OUT if why.timed_out else TaskStatus.FAILED,
        error=error,
        usage=failed.usage,
        unsettled=failed.unsettled,
        output_ref=output_ref,
        output_bytes=len(failed.text.encode()) if output_ref else 0,
        tries=(*others.tries, *spent_in_vain(setbacks.all, attempt.start)),
        aside=others.spent,
        reviews=others.reviews,
        waited_s=round(failed.waited, 3),
        batched=failed.batched,
        calls=calls or (),
    )
    return ApplicationError(
        error.message,
        details,
        type=error.type,
        non_retryable=not again,
        next_retry_delay=min(delay, BACKOFF_LAST) if again else None,
    )


def refusal(
    refused: Failed, before: Beside, calls: tuple[Call, ...] | None, *, output_ref: str | None = None, size: int = 0
) -> ApplicationError:
    """The end of a task that must not make a call. What was said and spent before is told with it."""
    told = {
        "tries": before.tries,
        "accounted": before.whole and calls is not None,
        "calls": calls or (),
        "aside": before.spent,
        "reviews": before.reviews,
        "output_ref": output_ref,
        "output_bytes": size,
    }
    details = refused.model_copy(update=told)
    return ApplicationError(refused.error.message, details, type=refused.error.type, non_retryable=True)


def lost(request: AgentRequest) -> ApplicationError:
    """The end of a task whose last attempt was lost with its worker. What it may have cost is in the books."""
    message = f"the worker was lost in the last of {request.attempts} attempts"
    error = TaskError(type="WorkerLost", message=message, attempt=request.attempts, retryable=True)
    return ApplicationError(message, Failed(error=error), type=error.type, non_retryable=True)


def _may_have_cost(setback: Setback) -> bool:
    return setback.told.usage + setback.told.unsettled != Usage()
