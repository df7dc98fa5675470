"""How one call is made: ledger, draw, permission, intent, call, outcome.

A second attempt pays only for what no earlier one has brought home: it finds the completion in the ledger, or joins the
call that is still under way in this process.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from time import monotonic

from temporalio import activity

from activities.attempts import Attempt, CallFailed, NoneLeft, NotCovered, TurnedAway
from activities.batch_lookout import Lookout
from activities.batches import Batches, BatchFailed
from activities.counting import counted
from activities.flights import Flights
from activities.gate import Gate, Standing
from activities.keeping import Keeper
from activities.ledger import Landed
from activities.meter import PATIENCE, GivenBack, Hold, Meter, Wish
from activities.model import CalledOff, LanguageModel, ModelError, WorkerStopped
from activities.model_call import ModelCall
from activities.patience import RunIsOver, within
from activities.permission import Permission
from activities.prefixes import Prefixes, Turn
from activities.pulse import Pulse
from activities.reading import AnswerReader
from activities.room import Room
from activities.walls import Walls
from domain.models import Parked, Stopped, Usage
from store import Store

PAUSED = Parked(why="pause", what="the run is paused")
TOO_SLOW = Parked(why="worker", what="every grant of quota comes too late: the server or the store is slow")
TOO_SILENT = Parked(why="worker", what="its worker was silent for so long that another one may have the task")

DRAW_AGAIN = PATIENCE / 2
"""Seconds for which a call whose grants come too late is drawn for anew; then its task goes back to its run."""


class Overtaken(Exception):
    """Another worker has brought the answer while this one waited for its turn: there is nothing to ask."""

    def __init__(self, landed: Landed) -> None:
        super().__init__("the answer is there")
        self.landed = landed


class TooLate(Exception):
    """The grant must not be used any more: the call is not made, and drawn for anew."""

    def __init__(self, intent: int | None) -> None:
        super().__init__("the grant is too old")
        self.intent = intent


class Calls:
    """Makes the calls of one worker process."""

    def __init__(
        self,
        *,
        model: LanguageModel,
        store: Store,
        gate: Gate,
        meter: Meter,
        keeper: Keeper,
        lookout: Lookout,
        permission: Permission,
        reserve: int,
    ) -> None:
        self._model = model
        self._permission = permission
        self._gate = gate
        self._meter = meter
        self._keeper = keeper
        self._batches = Batches(model, store, keeper, lookout)
        self._walls = Walls()
        self._prefixes = Prefixes()
        self._room = Room(store.folder, reserve)
        self._flights = Flights[Landed]()

    async def land(self, attempt: Attempt, pulse: Pulse) -> tuple[Landed, bool]:
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

        async def check() -> None:
            self._turn_away_at_a_wall(attempt)
            await self._turn_away_without_room()
            await self._permission.check(attempt)

        @asynccontextmanager
        async def pay() -> AsyncIterator[Hold]:
            await check()  # before the draw: whoever is turned away need not stand in line
            async with self._meter.pay(_wish(attempt, pulse)) as hold:
                yield hold

        async def permit() -> None:
            turn_away(await self._gate.permission(request.run, request.chain))
            await check()

        pulse.step = "batch"
        try:
            landed = await self._batches.landed(attempt, pay, permit)
        except GivenBack as back:
            raise TurnedAway(back.parked) from None
        except NotCovered as short:
            raise TurnedAway(Parked(why="budget", what=str(short))) from None
        except BatchFailed as failed:
            raise await self._came_to_nothing(attempt, failed.number, failed.why, AnswerReader()) from None
        completion = counted(landed.completion, attempt.worst)
        stands = await self._keeper.keep(attempt, landed.model_copy(update={"completion": completion}))  # outcome
        self._walls.passed(attempt.brief.model, asked=asked)
        return stands

    async def _fly(self, attempt: Attempt, pulse: Pulse) -> Landed:
        """Make the call when there is a place for it. An intent that no request has followed serves for the next."""
        attempt.check_left()
        await self._permission.check(attempt)  # before the waits: whoever has no right need not stand in line
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
                except Overtaken as there:
                    return there.landed
                except GivenBack as back:
                    raise TurnedAway(back.parked) from None
        except (TurnedAway, asyncio.CancelledError):
            if intent is not None:
                await self._keeper.note(attempt, intent, attempt.not_made())
            raise

    async def _ask_last(self, attempt: Attempt, pulse: Pulse, hold: Hold, intent: int | None) -> int:
        """What keeps a call from being made is asked last, directly before the intent; the intent's number.

        Each of these may take long while a server hangs, and the grant does not keep.
        """
        request = attempt.request
        pulse.step = "permission"
        turn_away(await self._gate.permission(request.run, request.chain))
        self._turn_away_at_a_wall(attempt)
        await self._turn_away_without_room()
        await self._permission.check(attempt, intent)
        if hold.is_late():
            raise TooLate(intent)
        if pulse.is_lost:
            raise TurnedAway(TOO_SILENT)
        if intent is None:
            intent = await self._intend(attempt)  # intent
        if hold.is_late():
            raise TooLate(intent)
        return intent

    async def _intend(self, attempt: Attempt) -> int:
        """Write down that the call is about to be made, if what is set aside for the task covers it."""
        try:
            number = await self._keeper.intend(attempt)
        except NotCovered as short:
            raise TurnedAway(Parked(why="budget", what=str(short))) from None
        except NoneLeft:
            if (landed := await self._keeper.landed(attempt)) is not None:
                raise Overtaken(landed) from None
            raise
        if (landed := await self._keeper.landed(attempt)) is not None:
            await self._keeper.note(attempt, number, attempt.not_made())
            raise Overtaken(landed)
        return number

    async def _fly_now(
        self, attempt: Attempt, pulse: Pulse, hold: Hold, number: int, *, turn: Turn, waited: float
    ) -> Landed:
        """Make the call."""
        request, brief = attempt.request, attempt.brief
        pulse.step = "calling"
        reader = AnswerReader(on_text=_heard(pulse, hold), on_standing=hold.heard, on_begin=turn.begun)
        asked, at = monotonic(), datetime.now(UTC)
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
            elif worker_stops():
                stopped = WorkerStopped("the worker was stopped")
                await self._keeper.note(attempt, number, attempt.setback(stopped, reader, used=False))
            raise
        except ModelError as error:
            hold.refused(error)
            hold.paid(attempt.cost(*attempt.spent(error, reader)))
            nothing = await self._came_to_nothing(attempt, number, error, reader)
            if isinstance(nothing, CallFailed):
                nothing.waited = waited
            raise nothing from None
        hold.settled(cost)  # settle
        hold.paid(attempt.cost(cost))
        self._walls.passed(brief.model, asked=asked)
        return landed.model_copy(update={"waited": waited, "at": at})

    async def _call(
        self, attempt: Attempt, number: int, reader: AnswerReader, pulse: Pulse, call: ModelCall
    ) -> tuple[Landed, Usage]:
        """The answer that stands, and what ours has cost. They belong together unless another worker was first."""
        request = attempt.request
        user = hashlib.sha256(request.run.encode()).hexdigest()[:32]
        said = await within(
            request.timeout,
            self._model.complete(attempt.brief, user=user, reader=reader),  # call
            closed=self._gate.closed(request.run, request.chain),
            pulse=pulse,
        )
        came, completion = call.clock(), counted(said, attempt.worst)
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
        failed = CallFailed(error, number, usage=told.usage, unsettled=told.unsettled, text=reader.text)
        failed.attempt, failed.batched = attempt.number, told.batched
        return failed

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


def turn_away(standing: Standing) -> None:
    """Nothing is asked for a run that is over or paused."""
    if standing.over is not None:
        raise TurnedAway(Stopped(why=standing.over))
    if standing.paused:
        raise TurnedAway(PAUSED)


def _wish(attempt: Attempt, pulse: Pulse, turn: Turn | None = None) -> Wish:
    """What the meter must know of a call. What the provider has in its cache does not count for its limits."""
    return Wish(
        run=attempt.request.run,
        priority=attempt.request.priority,
        model=attempt.brief.model,
        max_tokens=attempt.brief.max_tokens,
        size=attempt.worst.input + (0 if turn is not None and turn.reads else attempt.worst.cache_write),
        wide=attempt.wide,
        agent=attempt.agent.name,
        rank=attempt.request.rank,
        pool=attempt.agent.max_concurrency,
        counted_as=attempt.agent.pool,
        probe=attempt.request.probe,
        usd=attempt.worst_usd,
        waits=pulse.waits,
    )


def _heard(pulse: Pulse, hold: Hold) -> Callable[[str], None]:
    """New text is a sign of life, and the first of it tells how busy the provider is."""

    def heard(text: str) -> None:
        pulse.heard(text)
        hold.spoke()

    return heard


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


def worker_stops() -> bool:
    """Whether this worker is going down: the task comes again, to another one or to the next."""
    why = activity.cancellation_details()
    return why is not None and why.worker_shutdown and not why.cancel_requested
