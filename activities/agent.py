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

from activities.attempts import (
    Attempt,
    CallFailed,
    NotCovered,
    TurnedAway,
    failure,
    spent_in_vain,
    tells_all,
    used_up,
)
from activities.batches import Batches, BatchFailed
from activities.board import Board
from activities.briefs import Briefs
from activities.contract import RUN_AGENT, AgentReply, AgentRequest
from activities.flights import Flights
from activities.gate import Gate, Standing
from activities.keeping import Keeper
from activities.ledger import Landed, Setbacks
from activities.meter import PATIENCE, GivenBack, Hold, Meter, Wish
from activities.model import CalledOff, Completion, LanguageModel, ModelError, answer_of
from activities.model_call import ModelCall, attempt_answered
from activities.patience import RunIsOver, within
from activities.pin import OtherStore, Pin
from activities.prefixes import Prefixes, Turn
from activities.pulse import Pulse, beating
from activities.reading import AnswerReader
from activities.room import RESERVE, Room
from activities.summaries import Summaries
from activities.walls import Walls
from domain.briefing import Brief
from domain.models import Answered, Outcome, Parked, Stopped, Usage, ref_of
from domain.summaries import Parted, parted
from store import Store, StoreError, StoreUnavailable

WORKER_STOPPED = Parked(why="worker", what="its worker was stopped")
PAUSED = Parked(why="pause", what="the run is paused")
TOO_SLOW = Parked(why="worker", what="every grant of quota comes too late: the server or the store is slow")

DRAW_AGAIN = PATIENCE / 2
"""Seconds for which a call whose grants come too late is drawn for anew; then its task goes back to its run."""

log = structlog.get_logger()


class TooLate(Exception):
    """The grant must not be used any more: the call is not made, and drawn for anew."""

    def __init__(self, intent: int | None) -> None:
        super().__init__("the grant is too old")
        self.intent = intent


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
        self._model = model
        self._gate = gate
        self._meter = meter
        self._backoff = backoff
        self._pin = Pin(store)
        self._board = board
        self._briefs = Briefs(store)
        self._keeper = Keeper(store)
        self._summaries = Summaries(self._briefs, self._keeper, backoff)
        self._batches = Batches(model, store, self._keeper)
        self._walls = Walls()
        self._prefixes = Prefixes()
        self._room = Room(store.folder, reserve)
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
        relaxed = await self._briefs.is_relaxed(request)
        attempt = Attempt.of(request, brief, agent, prices=await self._briefs.prices(request), relaxed=relaxed)
        calls = [attempt]
        try:
            _turn_away(standing)
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
        landed, reused = await self._land(attempt, pulse)
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
            return await self._land(aside, pulse)

        await self._keeper.keep_text(said.text)
        summary = await self._summaries.summary_of(attempt, said, ask)
        return summary.added_to(answer, await self._keeper.keep_text(summary.text))

    async def _land(self, attempt: Attempt, pulse: Pulse) -> tuple[Landed, bool]:
        """What the provider says to a call, and whether it had been paid for before."""
        if (landed := await self._keeper.landed(attempt)) is not None:  # ledger
            return landed, True
        pulse.step = "joining"  # unless this attempt is the one that makes the call
        fly = self._go_by_batch if attempt.relaxed else self._fly
        flight = self._flights.join(attempt.entry.key, lambda: fly(attempt, pulse), flies_on=_still_wanted)
        return await flight, False

    async def _go_by_batch(self, attempt: Attempt, pulse: Pulse) -> Landed:
        """Have the answer from a batch, or come again when it has ended. No part of the quota is drawn for it."""
        request, asked = attempt.request, monotonic()

        async def permit() -> None:
            _turn_away(await self._gate.permission(request.run, request.chain))
            self._turn_away_at_a_wall(attempt)
            await self._turn_away_without_room()

        pulse.step = "batch"
        try:
            landed = await self._batches.landed(attempt, permit)
        except GivenBack as back:
            raise TurnedAway(back.parked) from None
        except NotCovered as short:
            raise TurnedAway(Parked(why="budget", what=str(short))) from None
        except BatchFailed as failed:
            raise await self._came_to_nothing(attempt, failed.number, failed.why, AnswerReader()) from None
        stands = await self._keeper.keep(attempt, landed)  # outcome
        self._walls.passed(attempt.brief.model, asked=asked)
        return stands

    async def _fly(self, attempt: Attempt, pulse: Pulse) -> Landed:
        """Make the call when there is a place for it. An intent that no request has followed serves for the next."""
        self._turn_away_at_a_wall(attempt)
        await self._turn_away_without_room()
        pulse.step = "cache"
        prefix = None if attempt.request.probe else attempt.brief.prefix
        async with self._prefixes.turn(prefix, pulse.waits) as turn:  # before the draw: a grant does not keep
            return await self._draw_and_fly(attempt, pulse, turn)

    async def _draw_and_fly(self, attempt: Attempt, pulse: Pulse, turn: Turn) -> Landed:
        """Draw for the call, again when the grant came too late, and make it."""
        asked = monotonic()
        intent: int | None = None
        try:
            while True:
                pulse.step = "quota"
                try:
                    async with self._meter.draw(_wish(attempt, pulse, turn)) as hold:  # draw
                        waited = monotonic() - asked
                        number = await self._ask_last(attempt, pulse, hold, intent)
                        intent = None
                        return await self._fly_now(attempt, pulse, hold, number, turn=turn, waited=waited)
                except TooLate as late:
                    intent = late.intent
                    if monotonic() - asked > DRAW_AGAIN:
                        raise TurnedAway(TOO_SLOW) from None
                except GivenBack as back:
                    raise TurnedAway(back.parked) from None
        except TurnedAway:
            if intent is not None:
                await self._keeper.note(attempt, intent, attempt.not_made())
            raise

    async def _ask_last(self, attempt: Attempt, pulse: Pulse, hold: Hold, intent: int | None) -> int:
        """What keeps a call from being made is asked last, directly before the intent; the intent's number.

        Each of these may take long while a server hangs, and the grant does not keep.
        """
        request = attempt.request
        pulse.step = "permission"
        _turn_away(await self._gate.permission(request.run, request.chain))
        self._turn_away_at_a_wall(attempt)
        await self._turn_away_without_room()
        if hold.is_late():
            raise TooLate(intent)
        if intent is None:
            intent = await self._intend(attempt)  # intent
        if hold.is_late():
            raise TooLate(intent)
        return intent

    async def _intend(self, attempt: Attempt) -> int:
        """Write down that the call is about to be made, if what is set aside for the task covers it."""
        try:
            return await self._keeper.intend(attempt)
        except NotCovered as short:
            raise TurnedAway(Parked(why="budget", what=str(short))) from None

    async def _fly_now(
        self, attempt: Attempt, pulse: Pulse, hold: Hold, number: int, *, turn: Turn, waited: float
    ) -> Landed:
        """Make the call."""
        request, brief = attempt.request, attempt.brief
        pulse.step = "calling"
        reader = AnswerReader(on_text=_heard(pulse, hold), on_standing=hold.heard, on_begin=turn.begun)
        asked = monotonic()
        hold.begun()
        try:
            with ModelCall(brief, run=request.run, task=request.task, attempt=attempt.number) as call:
                landed, cost = await self._call(attempt, number, reader, pulse, call)
        except RunIsOver as over:
            await self._called_off(attempt, number, reader)
            raise TurnedAway(Stopped(why=str(over))) from None
        except asyncio.CancelledError:
            if _is_wanted_no_more():
                await self._called_off(attempt, number, reader)
            raise
        except ModelError as error:
            hold.refused(error)
            nothing = await self._came_to_nothing(attempt, number, error, reader)
            if isinstance(nothing, CallFailed):
                nothing.waited = waited
            raise nothing from None
        hold.settled(cost)  # settle
        self._walls.passed(brief.model, asked=asked)
        return landed.model_copy(update={"waited": waited})

    async def _call(
        self, attempt: Attempt, number: int, reader: AnswerReader, pulse: Pulse, call: ModelCall
    ) -> tuple[Landed, Usage]:
        """The answer that stands, and what ours has cost. They belong together unless another worker was first."""
        request = attempt.request
        user = hashlib.sha256(request.run.encode()).hexdigest()[:32]
        completion = await within(
            request.timeout,
            self._model.complete(attempt.brief, user=user, reader=reader),  # call
            closed=self._gate.closed(request.run, request.chain),
            pulse=pulse,
        )
        came = call.clock()
        landed = await self._keeper.keep(attempt, Landed(completion=completion, number=number))  # outcome
        call.answered(completion, at=came)  # after it: nothing may stand between what is paid and the ledger
        return landed, completion.usage

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

    async def _called_off(self, attempt: Attempt, number: int, reader: AnswerReader) -> None:
        """Nobody wants the answer any more: the ledger knows what there is of it, and what it may have cost."""
        partial = await self._keeper.keep_partial(reader.text)
        setback = attempt.setback(CalledOff("the call was called off"), reader, used=False)
        size = len(reader.text.encode()) if partial else 0
        kept = setback.model_copy(update={"output_ref": partial, "output_bytes": size})
        await self._keeper.note(attempt, number, kept)

    def _turn_away_at_a_wall(self, attempt: Attempt) -> None:
        """Whoever is sent to find out if a wall still stands goes up to it, whatever is remembered of it here."""
        if attempt.request.probe:
            return
        if (
            wall := self._walls.before(attempt.request.run, attempt.brief.model, scheduled=attempt.scheduled)
        ) is not None:
            raise TurnedAway(wall)

    async def _turn_away_without_room(self) -> None:
        """Also whoever probes: it is to find out whether there is room, and pays nothing where there is none."""
        if (wall := await self._room.wall()) is not None:
            raise TurnedAway(wall)

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


def _wish(attempt: Attempt, pulse: Pulse, turn: Turn) -> Wish:
    """What the meter must know of a call. What the provider has in its cache does not count for its limits."""
    return Wish(
        run=attempt.request.run,
        priority=attempt.request.priority,
        model=attempt.brief.model,
        max_tokens=attempt.brief.max_tokens,
        size=attempt.worst.input + (0 if turn.reads else attempt.worst.cache_write),
        wide=attempt.wide,
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


def _still_wanted() -> bool:
    """Whether we are cancelled for something that is no reason to stop the call.

    The server gave this attempt up, or somebody pressed reset or pause: another attempt will want the answer.
    """
    why = activity.cancellation_details()
    return why is not None and not (why.cancel_requested or why.worker_shutdown)


def _is_wanted_no_more() -> bool:
    """Whether the task was cancelled: nobody comes again, and finds out what became of the call."""
    why = activity.cancellation_details()
    return why is not None and why.cancel_requested


def _worker_stops() -> bool:
    why = activity.cancellation_details()
    return why is not None and why.worker_shutdown and not why.cancel_requested
