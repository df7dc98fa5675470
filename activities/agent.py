"""The one door for paid calls: permission, ledger, draw, intent, call, outcome, record.

Every call to a model goes through these steps in this order. A second attempt pays only for what no earlier one has
brought home: it finds the completion in the ledger, or joins the call that is still under way in this process.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog
from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.briefs import Briefs
from activities.contract import RUN_AGENT, AgentReply, AgentRequest
from activities.flights import Flights
from activities.gate import Gate
from activities.ledger import Entry, Ledger
from activities.meter import Meter
from activities.model import Completion, LanguageModel, ModelError, RateLimited, TaskTimeout, answer_of
from activities.pulse import Pulse, beating
from domain.briefing import Brief
from domain.models import Answered, Failed, Outcome, Parked, Stopped, TaskError, TaskStatus, ref_of
from store import Store, StoreError, StoreUnavailable

BACKOFF_FIRST, BACKOFF_LAST = timedelta(seconds=1), timedelta(minutes=1)
"""Between attempts: 1, 2, 4 s ... with jitter, so that tasks that failed together do not come back together."""

KEEP_PATIENCE = 10.0
"""Seconds that a cancel waits for a paid answer to be written down."""

log = structlog.get_logger()


class RunIsOver(Exception):
    """The run ended while its call was under way."""


class AgentActivities:
    """Does steps of tasks on whichever language model the worker was given."""

    def __init__(self, *, model: LanguageModel, store: Store, gate: Gate, meter: Meter, backoff: timedelta) -> None:
        self._model = model
        self._store = store
        self._gate = gate
        self._meter = meter
        self._backoff = backoff
        self._briefs = Briefs(store)
        self._ledger = Ledger(store)
        self._flights = Flights[Completion]()

    @activity.defn(name=RUN_AGENT)
    async def run_agent(self, request: AgentRequest) -> AgentReply:
        """Do one step of a task. Safe to run again: what was answered is not asked, or paid, a second time."""
        pulse = Pulse()
        async with beating(pulse):
            try:
                return AgentReply(outcome=await self._pass_the_door(request, pulse))
            except RunIsOver as over:
                return AgentReply(outcome=Stopped(why=str(over)))
            except RateLimited as wall:
                return AgentReply(outcome=_parked(wall))
            except ModelError as error:
                raise await self._failure(request, error) from None
            except (StoreError, StoreUnavailable) as error:
                final = isinstance(error, StoreError)
                raise ApplicationError(str(error), type=type(error).__name__, non_retryable=final) from None
            except asyncio.CancelledError:
                if not _worker_stops():
                    raise
                return AgentReply(outcome=Parked(why="worker", what="its worker was stopped"))

    async def _pass_the_door(self, request: AgentRequest, pulse: Pulse) -> Outcome:
        standing = await self._gate.standing(request.run, request.chain)  # permission
        if standing.over is not None:
            return Stopped(why=standing.over)
        if standing.paused:
            return Parked(why="pause", what="the run is paused")
        brief = await self._briefs.for_request(request)
        entry = Entry(request.run, request.task, request.step, brief.hash)
        completion = await self._ledger.completion(entry)  # ledger
        reused = completion is not None
        if completion is None:
            completion = await self._flights.join(
                entry.key, lambda: self._fly(request, brief, entry, pulse), flies_on=_still_wanted
            )
        text = answer_of(completion, brief.max_tokens).encode()
        self._record(request, completion, reused=reused)  # record
        return Answered(
            output_ref=ref_of(text),  # the ledger has put it there
            output_bytes=len(text),
            usage=completion.usage,
            attempts=activity.info().attempt,
        )

    async def _fly(self, request: AgentRequest, brief: Brief, entry: Entry, pulse: Pulse) -> Completion:
        pulse.step = "quota"
        await self._meter.draw(request.run, brief)  # draw
        pulse.step = "calling"
        await self._ledger.intend(entry, _intent(request, brief))  # intent
        return await self._call_while_open(request, self._call(request, brief, entry, pulse))

    async def _call(self, request: AgentRequest, brief: Brief, entry: Entry, pulse: Pulse) -> Completion:
        user = hashlib.sha256(request.run.encode()).hexdigest()[:32]
        completion = await self._model.complete(brief, user=user, on_text=pulse.heard)  # call
        await self._keep(entry, completion)  # outcome
        return completion

    async def _keep(self, entry: Entry, completion: Completion) -> None:
        """Write down what is paid for, through a cancel and a store that is full or away: nobody shall pay it again."""

        async def keep() -> None:
            while True:
                try:
                    return await self._ledger.complete(entry, completion)
                except StoreUnavailable as error:
                    log.warning("answer_not_kept_yet", run=entry.run, task=entry.task, error=str(error))
                    await asyncio.sleep(1)

        keeping = asyncio.create_task(keep())
        try:
            await asyncio.shield(keeping)
        except asyncio.CancelledError:
            await asyncio.wait([keeping], timeout=KEEP_PATIENCE)
            raise
        finally:
            keeping.cancel()

    async def _call_while_open(self, request: AgentRequest, calling: Coroutine[Any, Any, Completion]) -> Completion:
        """One request, within the task's timeout and for as long as the run may pay."""
        call = asyncio.create_task(calling)
        closed = asyncio.create_task(self._gate.closed(request.run, request.chain))
        seconds = request.timeout.total_seconds()
        try:
            await asyncio.wait([call, closed], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if call.done():
                return call.result()
            if closed.done():
                raise RunIsOver(closed.result())
            raise TaskTimeout(f"Task timeout after {seconds:g} s")
        finally:
            call.cancel()
            closed.cancel()
            await asyncio.wait([call, closed])

    async def _failure(self, request: AgentRequest, error: ModelError) -> ApplicationError:
        """The failure for Temporal to retry, or to keep as the last word: with all that is known in its details."""
        attempt = activity.info().attempt
        again = error.retryable and (error.at_most is None or attempt < error.at_most)
        delay = error.retry_after or self._backoff * 2 ** (attempt - 1) * random.uniform(0.5, 1.5)  # noqa: S311
        message = f"{error}, attempt {attempt} of {request.attempts}"
        partial = error.partial.encode() if error.partial else b""
        details = Failed(
            status=TaskStatus.TIMED_OUT if isinstance(error, TaskTimeout) else TaskStatus.FAILED,
            error=TaskError(type=type(error).__name__, message=message, attempt=attempt, retryable=error.retryable),
            usage=error.usage,
            output_ref=await self._store.put_artifact(partial) if partial else None,
            output_bytes=len(partial),
        )
        log.warning("call_failed", **_names(request), error=type(error).__name__, attempt=attempt)
        return ApplicationError(
            message,
            details,
            type=type(error).__name__,
            non_retryable=not again,
            next_retry_delay=min(delay, BACKOFF_LAST) if again else None,
        )

    def _record(self, request: AgentRequest, completion: Completion, *, reused: bool) -> None:
        usage = completion.usage
        log.info("answered", **_names(request), input=usage.input, output=usage.output, reused=reused)


def _parked(wall: RateLimited) -> Parked:
    until = None if wall.retry_after is None else datetime.now(UTC) + wall.retry_after
    return Parked(why="wall", what=str(wall), until=until)


def _still_wanted() -> bool:
    """Whether we are cancelled for something that is no reason to stop the call.

    The server gave this attempt up, or somebody pressed reset or pause: another attempt will want the answer.
    """
    why = activity.cancellation_details()
    return why is not None and not (why.cancel_requested or why.worker_shutdown)


def _worker_stops() -> bool:
    why = activity.cancellation_details()
    return why is not None and why.worker_shutdown and not why.cancel_requested


def _intent(request: AgentRequest, brief: Brief) -> dict[str, object]:
    return {
        **_names(request),
        "attempt": activity.info().attempt,
        "model": brief.model,
        "max_tokens": brief.max_tokens,
        "at": datetime.now(UTC).isoformat(),
    }


def _names(request: AgentRequest) -> dict[str, object]:
    return {"run": request.run, "task": request.task, "step": request.step}
