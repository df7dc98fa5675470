"""Whether an answer can end its task: checked by rule, reviewed by another agent, and sent back while it may be.

Every call on the way has a place of its own in the ledger. So whatever dies between two of them, none is paid again. An
answer that nobody could review is not an accepted one.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import structlog

from activities.attempts import Attempt, CallFailed, TurnedAway
from activities.briefs import Briefs
from activities.keeping import Keeper
from activities.model import AnswerInvalid, ModelError, PlanTooDear, ReviewFailed, ReviewRejected, answer_of
from activities.passage import Ask, Landing, Passage
from domain.asking_again import asked_again
from domain.briefing import Brief
from domain.checks import complaint, in_short, too_dear
from domain.models import Failed, Parked, Plan, Task, TaskError, Usage, Verdict, WallKind
from domain.opinions import Opinion, opinion_of
from domain.reviewing import review_brief, reviewer_of
from domain.summaries import Parted, parted

NEVER_PASSES: frozenset[WallKind] = frozenset({"model"})
"""Walls before a reviewer that are a mistake of the plan: the task does not wait for them."""

log = structlog.get_logger()


class Checks:
    """Looks at the answers of one worker process."""

    def __init__(self, briefs: Briefs, keeper: Keeper) -> None:
        self._briefs, self._keeper = briefs, keeper

    async def passed(self, passage: Passage, attempt: Attempt, said: Parted, ask: Ask) -> Parted:
        """The answer that can be used: this one, or one that was given after it. `CallFailed` when there is none."""
        plan, task = await self._briefs.of(attempt.request)
        check = _Check(plan, task, passage, attempt, ask, briefs=self._briefs)
        while True:
            if (fault := await self._fault(plan, task, said.text)) is not None:
                said = await check.repaired(fault)
                continue
            if task.review is None:
                return said
            opinion = await self._opinion(check)
            if opinion.accept:
                return said
            said = await check.revised(opinion)

    async def _fault(self, plan: Plan, task: Task, text: str) -> str | None:
        """What is wrong with an answer. A proposal is judged with its whole plan, in a thread: heartbeats go on."""
        if task.grows is None:
            return complaint(plan, task, text)
        return await asyncio.to_thread(complaint, plan, task, text)

    async def _opinion(self, check: _Check) -> Opinion:
        """What the reviewer says of the last answer."""
        attempt, passage = check.attempt, check.passage
        await self._keeper.keep_text(passage.text)  # what is reviewed can be read, also when it was parted from more
        brief, agent = review_brief(check.plan, check.task, passage.text), reviewer_of(check.plan, check.task)
        reads = await self._briefs.reads_aside(attempt.request, passage.text)
        request = attempt.request.model_copy(update={"probe": False})  # the wall is before another model
        aside = replace(check.again(brief), request=request, agent=agent, purpose="review", reads=reads)
        try:
            landed, _ = await check.ask(aside)
        except TurnedAway as turned:
            raise _own_wait(turned, attempt) from None
        opinion = None if landed.completion.wants_tool else opinion_of(landed.completion.text)
        if opinion is None:
            raise _unusable(passage, ReviewFailed(f"what {agent.called!r} said of its answer is no review"))
        ref = await self._keeper.keep_text(landed.completion.text)
        passage.verdicts.append(Verdict(by=agent.label, accepted=opinion.accept, ref=ref))
        log.info("answer_reviewed", accepted=opinion.accept)
        return opinion


class _Check:
    """The check of one answer, and of those that are given after it."""

    def __init__(self, plan: Plan, task: Task, passage: Passage, attempt: Attempt, ask: Ask, *, briefs: Briefs) -> None:
        self.plan, self.task, self.passage, self.attempt, self.ask = plan, task, passage, attempt, ask
        self._briefs = briefs
        self._repairs = task.repairs
        self._tries = task.review.tries if task.review is not None else 0
        self._number = 0

    def again(self, brief: Brief) -> Attempt:
        """One more call in the same attempt. It is made at once, whatever the first one was."""
        return replace(self.attempt, brief=brief, relaxed=False)

    async def repaired(self, fault: str) -> Parted:
        """What the agent says to a fault of its answer, as long as it may be asked."""
        if not self._repairs:
            text = self.passage.text
            dear = await asyncio.to_thread(too_dear, self.plan, self.task, text)
            raise _unusable(self.passage, PlanTooDear(dear) if dear else AnswerInvalid(in_short(self.task, text)))
        self._repairs -= 1
        return await self._corrected(fault, reads=self.attempt.reads, rejected=False)

    async def revised(self, opinion: Opinion) -> Parted:
        """The same to a review that did not accept it. It reads the words of the reviewer, as the plan wants it."""
        verdict = self.passage.verdicts[-1]
        if not self._tries:
            raise _unusable(self.passage, ReviewRejected(f"{verdict.by} did not accept its answer"))
        self._tries -= 1
        reads = await self._briefs.reads_again(self.attempt.request, verdict)
        return await self._corrected(opinion.why, reads=reads, rejected=True)

    async def _corrected(self, fault: str, *, reads: str | None, rejected: bool) -> Parted:
        self._number += 1
        log.info("answer_went_back", rejected=rejected, number=self._number)
        text, number = self.passage.text, self._number
        brief = asked_again(self.attempt.brief, self.task, text, fault, number=number, rejected=rejected)
        call = replace(self.again(brief), reads=reads)
        landed, reused = await self.ask(call)
        return said_by(self.passage, self.passage.lands(call, landed, reused=reused))


def said_by(passage: Passage, landing: Landing) -> Parted:
    """The answer of the agent, parted from its summary. `CallFailed` when it is none.

    One that was cut in its summary is whole: a summary can be made.
    """
    completion, brief = landing.landed.completion, landing.attempt.brief
    said = parted(completion.text, brief.closing)
    passage.answer, passage.text = landing, said.text
    if completion.stop_reason == "max_tokens" and said.closed and not completion.wants_tool:
        return said._replace(summary=None)
    try:
        answer_of(completion, brief.max_tokens)
    except ModelError as error:
        raise without_use(landing, error, completion.text) from None
    return said


def without_use(landing: Landing, error: ModelError, text: str) -> CallFailed:
    """A completion that is no answer: the provider has said what it costs."""
    completion = landing.landed.completion
    failed = CallFailed(error, landing.landed.number, usage=completion.usage, unsettled=Usage(), text=text)
    failed.batched = completion.batched
    failed.made = landing.attempt
    return failed


def _unusable(passage: Passage, error: ModelError) -> CallFailed:
    """The end of a task whose answer cannot be used. What was said is kept for people to read."""
    if passage.answer is None:
        raise error
    return without_use(passage.answer, error, passage.text)


def _own_wait(turned: TurnedAway, attempt: Attempt) -> TurnedAway:
    """What a task does that met something on the way to its review.

    A wall before the model of the reviewer is none before the model of the task: it waits alone.
    """
    outcome = turned.outcome
    if not isinstance(outcome, Parked) or outcome.wall is None:
        return turned
    what = f"for its review: {outcome.what}"
    if outcome.wall in NEVER_PASSES:
        error = TaskError(type="ModelUnknown", message=what, attempt=attempt.number)
        return TurnedAway(Failed(error=error, asked=True))
    return TurnedAway(outcome.model_copy(update={"wall": None, "what": what}))
