"""The one door for paid calls: permission, ledger, draw, intent, call, outcome, record.

Every call to a model goes through these steps in this order. A second attempt pays only for what no earlier one has
brought home: it finds the completion in the ledger, or joins the call that is still under way in this process.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from datetime import timedelta
from time import monotonic

import structlog
from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.attempts import Attempt, CallFailed, failure, spent_in_vain, used_up
from activities.batches import Batches, BatchFailed
from activities.board import Board
from activities.briefs import Briefs
from activities.contract import RUN_AGENT, AgentReply, AgentRequest
from activities.flights import Flights
from activities.gate import Gate, Standing
from activities.keeping import Keeper
from activities.ledger import Landed
from activities.meter import GivenBack, Hold, Meter, Wish
from activities.model import LanguageModel, ModelError, answer_of
from activities.model_call import ModelCall, attempt_answered
from activities.patience import RunIsOver, within
from activities.pin import OtherStore, Pin
from activities.prefixes import Prefixes, Turn
from activities.pulse import Pulse, beating
from activities.reading import AnswerReader
from activities.walls import Walls
from domain.models import Answered, Outcome, Parked, Stopped, Usage, ref_of
from store import Store, StoreError, StoreUnavailable

WORKER_STOPPED = Parked(why="worker", what="its worker was stopped")
PAUSED = Parked(why="pause", what="the run is paused")

log = structlog.get_logger()


class TurnedAway(Exception):
    """A call that is not made, or that met a wall: what the task hears instead of an answer."""

    def __init__(self, outcome: Parked | Stopped) -> None:
        super().__init__(outcome.kind)
        self.outcome = outcome


class AgentActivities:
    """Does steps of tasks on whichever language model the worker was given."""

    def __init__(
        self, *, model: LanguageModel, store: Store, gate: Gate, meter: Meter, backoff: timedelta, board: Board
    ) -> None:
        self._model = model
        self._gate = gate
        self._meter = meter
        self._backoff = backoff
        self._pin = Pin(store)
        self._board = board
        self._briefs = Briefs(store)
        self._keeper = Keeper(store)
        self._batches = Batches(model, store, self._keeper)
        self._walls = Walls()
        self._prefixes = Prefixes()
        self._flights = Flights[Landed]()

    @activity.defn(name=RUN_AGENT)
    async def run_agent(self, request: AgentRequest) -> AgentReply:
        """Do one step of a task. Safe to run again: what was answered is not asked, or paid, a second time."""
        pulse = Pulse()
        async with self._board.attempt(request, pulse), beating(pulse):
            try:
                return AgentReply(outcome=await self._pass_the_door(request, pulse))
            except OtherStore as other:
                return AgentReply(outcome=Parked(why="worker", what=str(other), until=other.until))
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
        attempt = Attempt.of(request, brief, agent, relaxed=await self._briefs.is_relaxed(request))
        try:
            _turn_away(standing)
            return await self._answer(attempt, pulse)
        except TurnedAway as turned:
            return await self._with_used(attempt, turned.outcome)
        except CallFailed as failed:
            raise await self._failure(attempt, failed) from None
        except asyncio.CancelledError:
            if not _worker_stops():
                raise
            return await self._with_used(attempt, WORKER_STOPPED)

    async def _answer(self, attempt: Attempt, pulse: Pulse) -> Answered:
        began = monotonic()
        landed = await self._keeper.landed(attempt)  # ledger
        reused = landed is not None
        if landed is None:
            pulse.step = "joining"  # unless this attempt is the one that makes the call
            fly = self._go_by_batch if attempt.relaxed else self._fly
            landed = await self._flights.join(attempt.entry.key, lambda: fly(attempt, pulse), flies_on=_still_wanted)
        completion = landed.completion
        try:
            text = answer_of(completion, attempt.brief.max_tokens).encode()
        except ModelError as error:
            raise _without_use(landed, error) from None
        _record(landed, seconds=monotonic() - began, reused=reused)  # record
        before = await self._keeper.setbacks(attempt, but=landed.number) if reused or landed.number > 1 else ()
        return Answered(
            output_ref=ref_of(text),  # the ledger has put it there
            output_bytes=len(text),
            usage=completion.usage,
            attempts=attempt.number,
            tries=spent_in_vain(before, attempt.start),
            waited_s=0.0 if reused else round(landed.waited, 3),
            batched=completion.batched,
        )

    async def _go_by_batch(self, attempt: Attempt, pulse: Pulse) -> Landed:
        """Have the answer from a batch, or come again when it has ended. No part of the quota is drawn for it."""
        request, asked = attempt.request, monotonic()

        async def permit() -> None:
            _turn_away(await self._gate.permission(request.run, request.chain))
            self._turn_away_at_a_wall(attempt)

        pulse.step = "batch"
        try:
            landed = await self._batches.landed(attempt, permit)
        except GivenBack as back:
            raise TurnedAway(back.parked) from None
        except BatchFailed as failed:
            raise await self._came_to_nothing(attempt, failed.number, failed.why, AnswerReader()) from None
        await self._keeper.keep(attempt, landed)  # outcome
        self._walls.passed(attempt.brief.model, asked=asked)
        return landed

    async def _fly(self, attempt: Attempt, pulse: Pulse) -> Landed:
        """Make the call when there is a place for it."""
        self._turn_away_at_a_wall(attempt)
        pulse.step = "cache"
        prefix = None if attempt.request.probe else attempt.brief.prefix
        async with self._prefixes.turn(prefix, pulse.waits) as turn:  # before the draw: a grant does not keep
            pulse.step = "quota"
            asked = monotonic()
            try:
                async with self._meter.draw(_wish(attempt, pulse, turn)) as hold:  # draw
                    return await self._fly_now(attempt, pulse, hold, turn, waited=monotonic() - asked)
            except GivenBack as back:
                raise TurnedAway(back.parked) from None

    async def _fly_now(self, attempt: Attempt, pulse: Pulse, hold: Hold, turn: Turn, *, waited: float) -> Landed:
        """Make the call. What keeps it from being made is asked last, directly before the intent."""
        request, brief = attempt.request, attempt.brief
        pulse.step = "permission"
        _turn_away(await self._gate.permission(request.run, request.chain))
        self._turn_away_at_a_wall(attempt)
        pulse.step = "calling"
        number = await self._keeper.intend(attempt)  # intent
        reader = AnswerReader(on_text=_heard(pulse, hold), on_standing=hold.heard, on_begin=turn.begun)
        asked = monotonic()
        hold.begun()
        try:
            with ModelCall(brief, run=request.run, task=request.task, attempt=attempt.number) as call:
                landed = await self._call(attempt, number, reader, pulse, call)
        except RunIsOver as over:
            raise TurnedAway(Stopped(why=str(over))) from None
        except ModelError as error:
            hold.refused(error)
            nothing = await self._came_to_nothing(attempt, number, error, reader)
            if isinstance(nothing, CallFailed):
                nothing.waited = waited
            raise nothing from None
        hold.settled(landed.completion.usage)  # settle
        self._walls.passed(brief.model, asked=asked)
        return landed.model_copy(update={"waited": waited})

    async def _call(self, attempt: Attempt, number: int, reader: AnswerReader, pulse: Pulse, call: ModelCall) -> Landed:
        request = attempt.request
        user = hashlib.sha256(request.run.encode()).hexdigest()[:32]
        completion = await within(
            request.timeout,
            self._model.complete(attempt.brief, user=user, reader=reader),  # call
            closed=self._gate.closed(request.run, request.chain),
            pulse=pulse,
        )
        came = call.clock()
        landed = Landed(completion=completion, number=number)
        await self._keeper.keep(attempt, landed)  # outcome
        call.answered(completion, at=came)  # after it: nothing may stand between what is paid and the ledger
        return landed

    async def _came_to_nothing(
        self, attempt: Attempt, number: int, error: ModelError, reader: AnswerReader
    ) -> TurnedAway | CallFailed:
        """A wall, or a fault of this call. Either way the ledger knows what it may have cost."""
        task = (attempt.request.run, attempt.request.task)
        wall = self._walls.meet(error, attempt.brief.model, task, probe=attempt.request.probe)
        setback = attempt.setback(error, reader, used=wall is None)
        await self._keeper.note(attempt, number, setback)
        if wall is not None:
            return TurnedAway(wall)
        told = setback.told
        return CallFailed(error, number, usage=told.usage, unsettled=told.unsettled, text=reader.text)

    def _turn_away_at_a_wall(self, attempt: Attempt) -> None:
        """Whoever is sent to find out if a wall still stands goes up to it, whatever is remembered of it here."""
        if attempt.request.probe:
            return
        if (
            wall := self._walls.before(attempt.request.run, attempt.brief.model, scheduled=attempt.scheduled)
        ) is not None:
            raise TurnedAway(wall)

    async def _with_used(self, attempt: Attempt, outcome: Parked | Stopped) -> Outcome:
        """What parks a task uses no attempt; those that it has used before are used."""
        if isinstance(outcome, Stopped):
            return outcome
        setbacks = await self._keeper.setbacks(attempt)
        return outcome.model_copy(update={"tries": used_up(setbacks, attempt.start)})

    async def _failure(self, attempt: Attempt, failed: CallFailed) -> ApplicationError:
        setbacks = await self._keeper.setbacks(attempt, but=failed.number)
        output_ref = await self._keeper.keep_partial(failed.text)
        return failure(attempt, failed, setbacks, output_ref=output_ref, backoff=self._backoff)


def _wish(attempt: Attempt, pulse: Pulse, turn: Turn) -> Wish:
    """What the meter must know of a call. What the provider has in its cache does not count for its limits."""
    return Wish(
        run=attempt.request.run,
        priority=attempt.request.priority,
        model=attempt.brief.model,
        max_tokens=attempt.brief.max_tokens,
        size=attempt.worst.input + (0 if turn.reads else attempt.worst.cache_write),
        agent=attempt.agent.name,
        rank=attempt.request.rank,
        pool=attempt.agent.max_concurrency,
        probe=attempt.request.probe,
        waits=pulse.waits,
    )


def _heard(pulse: Pulse, hold: Hold) -> Callable[[str], None]:
    """New text is a sign of life, and the first of it tells how busy the provider is."""

    def heard(text: str) -> None:
        pulse.heard(text)
        hold.spoke()

    return heard


def _turn_away(standing: Standing) -> None:
    if standing.over is not None:
        raise TurnedAway(Stopped(why=standing.over))
    if standing.paused:
        raise TurnedAway(PAUSED)


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


def _still_wanted() -> bool:
    """Whether we are cancelled for something that is no reason to stop the call.

    The server gave this attempt up, or somebody pressed reset or pause: another attempt will want the answer.
    """
    why = activity.cancellation_details()
    return why is not None and not (why.cancel_requested or why.worker_shutdown)


def _worker_stops() -> bool:
    why = activity.cancellation_details()
    return why is not None and why.worker_shutdown and not why.cancel_requested
