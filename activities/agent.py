"""The one door for paid calls: permission, ledger, draw, intent, call, outcome, record.

Every call to a model goes through these steps in this order. Here an attempt at a task becomes what its run hears of
it; how one call is made is in `calling.py`.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from time import monotonic

import structlog
from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.attempts import (
    Attempt,
    Beside,
    CallFailed,
    NoneLeft,
    TurnedAway,
    failure,
    lost,
    refusal,
    spent_in_vain,
    told_by,
)
from activities.batch_lookout import Lookout
from activities.board import Board
from activities.briefs import Briefs
from activities.calling import Calls, turn_away, worker_stops
from activities.checking import Checks, said_by
from activities.contract import RUN_AGENT, AgentReply, AgentRequest
from activities.gate import Gate
from activities.keeping import Keeper
from activities.ledger import Landed, Setbacks
from activities.meter import Meter
from activities.model import LanguageModel
from activities.model_call import attempt_answered
from activities.passage import Landing, Passage
from activities.permission import Permission
from activities.pin import OtherStore, Pin
from activities.pulse import Pulse, beating
from activities.region import OtherRegion, check_region
from activities.register_desk import RegisterDesk
from activities.room import RESERVE
from activities.spending import Spending
from activities.summaries import Summaries
from books import Books
from domain.models import Answered, Call, Failed, Outcome, Parked, Stopped, Try, ref_of
from domain.summaries import Parted
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
        lookout: Lookout,
        reserve: int = RESERVE,
        region: str | None = None,
        governed: bool = False,
    ) -> None:
        self._gate = gate
        self._region = region
        self._backoff = backoff
        self._pin = Pin(store)
        self._board = board
        self._briefs = Briefs(store)
        self._keeper = Keeper(store)
        self._calls = Calls(
            model=model,
            store=store,
            gate=gate,
            meter=meter,
            keeper=self._keeper,
            lookout=lookout,
            permission=Permission(
                RegisterDesk(store), self._briefs, Spending(Books(store)), region=region, governed=governed
            ),
            reserve=reserve,
        )
        self._checks = Checks(self._briefs, self._keeper)
        self._summaries = Summaries(self._briefs, self._keeper, backoff)

    @activity.defn(name=RUN_AGENT)
    async def run_agent(self, request: AgentRequest) -> AgentReply:
        """Do one step of a task. Safe to run again: what was answered is not asked, or paid, a second time."""
        pulse = Pulse(attempt=request.used + 1)
        async with self._board.attempt(request, pulse), beating(pulse):
            try:
                return AgentReply(outcome=await self._pass_the_door(request, pulse))
            except (OtherStore, OtherRegion) as other:
                first = activity.info().attempt == 1  # then nothing was asked in this start
                return AgentReply(outcome=Parked(why="worker", what=str(other), until=other.until, accounted=first))
            except asyncio.CancelledError:
                if not worker_stops():
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
        check_region(agent, self._region)
        relaxed, prices = await self._briefs.is_relaxed(request), await self._briefs.prices(request)
        reads = await self._briefs.reads(request)
        number = pulse.attempt = await self._keeper.attempt_number(request)
        structlog.contextvars.bind_contextvars(attempt=number)
        attempt = Attempt.of(request, brief, agent, number=number, prices=prices, relaxed=relaxed, reads=reads)
        passage = Passage([attempt])
        try:
            turn_away(standing)
            return await self._answer(passage, pulse)
        except TurnedAway as turned:
            return await self._with_used(passage, turned.outcome)
        except CallFailed as failed:
            raise await self._failure(passage, failed) from None
        except NoneLeft:
            raise lost(request) from None
        except asyncio.CancelledError:
            if not worker_stops():
                raise
            return await self._with_used(passage, WORKER_STOPPED)

    async def _answer(self, passage: Passage, pulse: Pulse) -> Answered:
        """The answer of the agent, checked, and with its summary where one is wanted. All calls are in the passage."""
        began, attempt = monotonic(), passage.first
        landed, reused = await self._calls.land(attempt, pulse)
        if activity.info().attempt > 1:  # the call may be an earlier attempt's, which this one has joined or found
            attempt = replace(attempt, number=await self._keeper.attempt_number(attempt.request))
        said = said_by(passage, passage.lands(attempt, landed, reused=reused))
        _record(landed, seconds=monotonic() - began, reused=reused)  # record

        async def ask(call: Attempt) -> tuple[Landed, bool]:
            passage.begins(call)
            there, known = await self._calls.land(call, pulse)
            passage.lands(call, there, reused=known)
            return there, known

        said = await self._checks.passed(passage, attempt, said, ask)
        answer = await self._answered(passage, attempt, said)
        _, task = await self._briefs.of(attempt.request)
        if not task.summarise:
            return await self._with_calls(answer, attempt, passage)
        await self._keeper.keep_text(said.text)
        summary = await self._summaries.summary_of(attempt, said, ask)
        answer = summary.added_to(answer, await self._keeper.keep_text(summary.text))
        return await self._with_calls(answer, attempt, passage)

    async def _answered(self, passage: Passage, attempt: Attempt, said: Parted) -> Answered:
        """What the run hears of an answer that can be used, without its summary."""
        last = passage.answer or passage.landings[0]
        before = [(each, await self._before(each)) for each in passage.landings]
        return Answered(
            output_ref=ref_of(said.text.encode()),  # the ledger has put it there, unless a summary was parted from it
            output_bytes=len(said.text.encode()),
            usage=last.landed.completion.usage,
            attempts=attempt.number,
            tries=tuple(each for _, setbacks in before for each in spent_in_vain(setbacks.all, attempt.start)),
            accounted=all(setbacks.whole for _, setbacks in before),
            waited_s=round(sum(0.0 if each.reused else each.landed.waited for each in passage.landings), 3),
            batched=last.landed.completion.batched,
            aside=passage.spent_beside(last.attempt),
            reviews=tuple(passage.verdicts),
        )

    async def _before(self, landing: Landing) -> Setbacks:
        """The requests in vain before an answer. The ledger is asked only when there may have been some."""
        if not (landing.reused or landing.landed.number > 1 or landing.landed.overtaken):
            return Setbacks()
        return await self._keeper.setbacks(landing.attempt, but=landing.landed.number)

    async def _with_calls(self, answer: Answered, attempt: Attempt, passage: Passage) -> Answered:
        """The answer with every request on the way to it. The ledger is asked only when there were others."""
        landings = passage.landings if len(passage.landings) == len(passage.calls) else []
        if len(landings) == 1 and landings[0].is_the_only_one and answer.summary_ref is None:
            calls: tuple[Call, ...] | None = (attempt.told_beside(landings[0].landed),)
        elif landings and all(landing.is_the_only_one for landing in landings):
            calls = tuple(each.attempt.answered(each.landed) for each in landings)
        else:
            calls = await self._keeper.told_at_the_end(attempt)
        return answer.model_copy(update={"calls": calls or (), "accounted": answer.accounted and calls is not None})

    async def _with_used(self, passage: Passage, outcome: Parked | Stopped | Failed) -> Outcome:
        """What parks a task uses no attempt; those that it has used before are used. All are told of."""
        if isinstance(outcome, Stopped):
            return outcome
        first = passage.first
        if isinstance(outcome, Failed):
            ref, size = await self._keeper.keep_partial(passage.text), len(passage.text.encode())
            beside = await self._beside(passage, but=None)
            raise refusal(outcome, beside, await self._keeper.told_at_the_end(first), output_ref=ref, size=size)
        found = [(call.start, await self._keeper.setbacks(call, over=True)) for call in passage.calls]
        tries = tuple(each for start, setbacks in found for each in told_by(setbacks.all, start))
        known, in_batch = (all(each.known for _, each in found), any(each.open for _, each in found))
        told = await self._keeper.told_in_passing(first) if any(each.all for _, each in found) else ()
        known = known and told is not None
        return outcome.model_copy(
            update={"tries": tries, "accounted": known, "in_batch": in_batch, "calls": told or ()}
        )

    async def _failure(self, passage: Passage, failed: CallFailed) -> ApplicationError:
        """The failure of the call that was made last, or whose answer cannot be used, and all that was before it."""
        made = failed.made or passage.calls[-1]
        attempt = replace(made, number=failed.attempt or made.number)
        setbacks = await self._keeper.setbacks(attempt, but=failed.number)
        if passage.answer is not None:
            failed.text = passage.text  # what the agent said last, whatever became of a call after it
        output_ref = await self._keeper.keep_partial(failed.text)
        calls = await self._keeper.told_at_the_end(attempt, failed)
        others = await self._beside(passage, but=made)
        return failure(
            attempt, failed, setbacks, output_ref=output_ref, backoff=self._backoff, calls=calls, others=others
        )

    async def _beside(self, passage: Passage, *, but: Attempt | None) -> Beside:
        """What is told of the calls beside one."""
        tries: list[Try] = []
        whole = True
        for call in passage.calls:
            if but is not None and call.entry == but.entry:
                continue
            if (landing := passage.landing_of(call)) is not None:
                setbacks = await self._keeper.setbacks(landing.attempt, but=landing.landed.number)
            else:
                setbacks = await self._keeper.setbacks(call, over=True)
            tries += spent_in_vain(setbacks.all, call.start)
            whole = whole and setbacks.whole
        return Beside(tuple(tries), passage.spent_beside(but), tuple(passage.verdicts), whole)


def _record(landed: Landed, *, seconds: float, reused: bool) -> None:
    """Figures alone; run, task and attempt are bound to every line of this attempt."""
    attempt_answered(reused=reused)
    usage = landed.completion.usage
    figures = {"input": usage.input, "output": usage.output, "seconds": round(seconds, 3)}
    log.info("task_answered", **figures, reused=reused)
