"""The one door for paid calls: permission, ledger, draw, intent, call, outcome, record.

Every call to a model goes through these steps in this order. Here an attempt at a task becomes what its run hears of
it; how one call is made is in `calling.py`.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from time import monotonic

import structlog
from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.attempts import (
    Attempt,
    CallFailed,
    TurnedAway,
    failure,
    spent_in_vain,
    tells_all,
    used_up,
)
from activities.board import Board
from activities.briefs import Briefs
from activities.calling import Calls, turn_away
from activities.contract import RUN_AGENT, AgentReply, AgentRequest
from activities.gate import Gate
from activities.keeping import Keeper
from activities.ledger import Landed, Setbacks
from activities.meter import Meter
from activities.model import Completion, LanguageModel, ModelError, answer_of
from activities.model_call import attempt_answered
from activities.pin import OtherStore, Pin
from activities.pulse import Pulse, beating
from activities.room import RESERVE
from activities.summaries import Summaries
from domain.briefing import Brief
from domain.models import Answered, Outcome, Parked, Stopped, Usage, ref_of
from domain.summaries import Parted, parted
from store import Store, StoreError, StoreUnavailable

WORKER_STOPPED = Parked(why="worker", what="its worker was stopped")

log = structlog.get_logger()


class AgentActivities:
    """Does steps of tasks on whichever language model the worker was given."""

    def __init__(
        self,
        *,
        model: LanguageModel,
        store: Store,
        gate: Gate,
        meter: Meter,
        backoff: timedelta,
        board: Board,
        reserve: int = RESERVE,
    ) -> None:
        self._gate = gate
        self._backoff = backoff
        self._pin = Pin(store)
        self._board = board
        self._briefs = Briefs(store)
        self._keeper = Keeper(store)
        self._calls = Calls(model=model, store=store, gate=gate, meter=meter, keeper=self._keeper, reserve=reserve)
        self._summaries = Summaries(self._briefs, self._keeper, backoff)

    @activity.defn(name=RUN_AGENT)
    async def run_agent(self, request: AgentRequest) -> AgentReply:
        """Do one step of a task. Safe to run again: what was answered is not asked, or paid, a second time."""
        pulse = Pulse()
        async with self._board.attempt(request, pulse), beating(pulse):
            try:
                return AgentReply(outcome=await self._pass_the_door(request, pulse))
            except OtherStore as other:
                first = activity.info().attempt == 1  # then nothing was asked in this start
                return AgentReply(outcome=Parked(why="worker", what=str(other), until=other.until, accounted=first))
            except asyncio.CancelledError:
                if not _worker_stops():
                    raise
                return AgentReply(outcome=WORKER_STOPPED)
            except (StoreError, StoreUnavailable) as error:
                final = isinstance(error, StoreError)
                raise ApplicationError(str(error), type=type(error).__name__, non_retryable=final) from None

    async def _pass_the_door(self, request: AgentRequest, pulse: Pulse) -> Outcome:
        standing = await self._gate.standing(request.run, request.chain)  # permission
        if standing.over is not None:
            return Stopped(why=standing.over)
        await self._pin.check(request.run)
        brief, agent = await self._briefs.for_request(request), await self._briefs.agent(request)
        relaxed = await self._briefs.is_relaxed(request)
        attempt = Attempt.of(request, brief, agent, prices=await self._briefs.prices(request), relaxed=relaxed)
        calls = [attempt]
        try:
            turn_away(standing)
            return await self._answer(calls, pulse)
        except TurnedAway as turned:
            return await self._with_used(calls, turned.outcome)
        except CallFailed as failed:
            raise await self._failure(attempt, failed) from None
        except asyncio.CancelledError:
            if not _worker_stops():
                raise
            return await self._with_used(calls, WORKER_STOPPED)

    async def _answer(self, calls: list[Attempt], pulse: Pulse) -> Answered:
        """The answer of the agent, with its summary where one is wanted. Every call on the way is added to `calls`."""
        began, attempt = monotonic(), calls[0]
        landed, reused = await self._calls.land(attempt, pulse)
        try:
            said = _said(landed.completion, attempt.brief)
        except ModelError as error:
            raise _without_use(landed, error) from None
        _record(landed, seconds=monotonic() - began, reused=reused)  # record
        before = (
            await self._keeper.setbacks(attempt, but=landed.number)
            if reused or landed.number > 1 or landed.overtaken
            else Setbacks()
        )
        answer = Answered(
            output_ref=ref_of(said.text.encode()),  # the ledger has put it there, unless a summary was parted from it
            output_bytes=len(said.text.encode()),
            usage=landed.completion.usage,
            attempts=attempt.number,
            tries=spent_in_vain(before.all, attempt.start),
            accounted=before.whole,
            waited_s=0.0 if reused else round(landed.waited, 3),
            batched=landed.completion.batched,
        )
        if attempt.brief.closing is None:
            return answer

        async def ask(aside: Attempt) -> tuple[Landed, bool]:
            calls.append(aside)
            return await self._calls.land(aside, pulse)

        await self._keeper.keep_text(said.text)
        summary = await self._summaries.summary_of(attempt, said, ask)
        return summary.added_to(answer, await self._keeper.keep_text(summary.text))

    async def _with_used(self, calls: list[Attempt], outcome: Parked | Stopped) -> Outcome:
        """What parks a task uses no attempt; those that it has used before are used."""
        if isinstance(outcome, Stopped):
            return outcome
        found = [(call.start, await self._keeper.setbacks(call)) for call in calls]
        tries = tuple(each for start, setbacks in found for each in used_up(setbacks.all, start))
        whole = all(tells_all(setbacks, start) for start, setbacks in found)
        return outcome.model_copy(update={"tries": tries, "accounted": whole})

    async def _failure(self, attempt: Attempt, failed: CallFailed) -> ApplicationError:
        setbacks = await self._keeper.setbacks(attempt, but=failed.number)
        output_ref = await self._keeper.keep_partial(failed.text)
        return failure(attempt, failed, setbacks, output_ref=output_ref, backoff=self._backoff)


def _said(completion: Completion, brief: Brief) -> Parted:
    """The answer, parted from its summary. One that was cut in its summary is whole: a summary can be made."""
    said = parted(completion.text, brief.closing)
    if completion.stop_reason == "max_tokens" and said.closed:
        return said._replace(summary=None)
    answer_of(completion, brief.max_tokens)
    return said


def _without_use(landed: Landed, error: ModelError) -> CallFailed:
    """A completion that is no answer: the provider has said what it costs."""
    completion = landed.completion
    failed = CallFailed(error, landed.number, usage=completion.usage, unsettled=Usage(), text=completion.text)
    failed.batched = completion.batched
    return failed


def _record(landed: Landed, *, seconds: float, reused: bool) -> None:
    """Figures alone; run, task and attempt are bound to every line of this attempt."""
    attempt_answered(reused=reused)
    usage = landed.completion.usage
    figures = {"input": usage.input, "output": usage.output, "seconds": round(seconds, 3)}
    log.info("task_answered", **figures, reused=reused)


def _worker_stops() -> bool:
    why = activity.cancellation_details()
    return why is not None and why.worker_shutdown and not why.cancel_requested
