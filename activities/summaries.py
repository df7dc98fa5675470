"""The summary of an answer: the text itself, what the agent gave, or one more call through the same door.

That call has its own place in the ledger. So whatever dies between the two calls, neither is paid again; and whatever
becomes of the second, the task has its answer and succeeds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from time import monotonic

import structlog

from activities.attempts import Attempt, CallFailed, NoneLeft, TurnedAway, failure, spent_in_vain
from activities.briefs import Briefs
from activities.keeping import Keeper
from activities.ledger import Setbacks
from activities.passage import Ask
from domain.models import Answered, Failed, Parked, Spent, Stopped, Try, WallKind
from domain.refusals import A_TOOL, REFUSED, Refusal
from domain.rights import Right
from domain.summaries import Parted, beginning, is_its_own

TIMEOUT, LONGEST = timedelta(seconds=30), timedelta(seconds=60)
"""Of the call for a summary: that of its agent within a bound, because it runs within the attempt of its task."""

NOT_WORTH_WAITING_FOR: frozenset[WallKind] = frozenset({"key", "model", "spend"})
"""Walls that a person must mend. A task that has its answer does not wait for them."""

USABLE = frozenset({"end_turn", "stop_sequence", "max_tokens"})
"""How a summary may have stopped: what was said up to the limit is one, too."""

log = structlog.get_logger()


@dataclass(frozen=True)
class Summary:
    """The summary of an answer, and what it took."""

    text: str
    aside: tuple[Spent, ...] = ()
    tries: tuple[Try, ...] = ()
    whole: bool = True
    """Whether these are all that it may have cost."""
    waited: float = 0.0
    refused: tuple[Refusal, ...] = ()
    """What there was no right to."""

    def added_to(self, answer: Answered, ref: str) -> Answered:
        """The answer with its summary, which is kept under this reference."""
        return answer.model_copy(
            update={
                "summary_ref": ref,
                "summary_bytes": len(self.text.encode()),
                "aside": (*answer.aside, *self.aside),
                "tries": (*answer.tries, *self.tries),
                "accounted": answer.accounted and self.whole,
                "waited_s": round(answer.waited_s + self.waited, 3),
                "refused": self.refused,
            }
        )


class Summaries:
    """Finds or makes the summary of an answer."""

    def __init__(self, briefs: Briefs, keeper: Keeper, backoff: timedelta) -> None:
        self._briefs, self._keeper, self._backoff = briefs, keeper, backoff

    async def summary_of(self, attempt: Attempt, answer: Parted, ask: Ask) -> Summary:
        """The summary of the answer of this attempt."""
        if is_its_own(answer.text):
            return Summary(answer.text)
        if answer.summary is not None:
            return Summary(answer.summary)
        return await self._made(await self._aside(attempt, answer.text), answer.text, ask)

    async def _aside(self, attempt: Attempt, text: str) -> Attempt:
        """The attempt at the call for a summary: of the same number as the attempt at the task that it is made in."""
        brief, agent = await self._briefs.for_summary(attempt.request, text)
        reads = await self._briefs.reads_aside(attempt.request, text)
        timeout = min(agent.timeout or TIMEOUT, LONGEST)
        request = attempt.request.model_copy(update={"timeout": timeout, "probe": False})
        return replace(
            attempt, request=request, brief=brief, agent=agent, purpose="summary", relaxed=False, reads=reads
        )

    async def _made(self, aside: Attempt, text: str, ask: Ask) -> Summary:
        began = monotonic()
        try:
            landed, reused = await ask(aside)
        except (TurnedAway, NoneLeft) as turned:
            if isinstance(turned, TurnedAway) and (wait := _own_wait(turned)) is not None:
                raise wait from None
            refused = _refused(turned)
            why = "lost" if isinstance(turned, NoneLeft) else "wall"
            log.warning("summary_failed", error=REFUSED if refused else why)
            before = await self._in_vain(aside)
            tries = spent_in_vain(before.all, aside.start)
            return Summary(beginning(text), tries=tries, whole=before.whole, refused=refused)
        except CallFailed as failed:
            return await self._failed(aside, text, failed)
        said = landed.completion
        made = said.text.strip() if said.stop_reason in USABLE and not said.wants_tool else ""
        log.info("summary_made", used=bool(made), seconds=round(monotonic() - began, 3), reused=reused)
        before = await self._in_vain(aside, but=landed.number)
        return Summary(
            beginning(made or text),
            aside=(Spent(model=aside.brief.model, usage=said.usage),),
            tries=spent_in_vain(before.all, aside.start),
            whole=before.whole,
            waited=0.0 if reused else landed.waited,
            refused=(Refusal(agent=aside.agent.name, right=Right.TOOLS, thing=A_TOOL),) if said.wants_tool else (),
        )

    async def _failed(self, aside: Attempt, text: str, failed: CallFailed) -> Summary:
        """Another attempt at it, when there is one left. Else the task succeeds with the beginning of its text."""
        before = await self._keeper.setbacks(aside, but=failed.number)
        calls = await self._keeper.told_at_the_end(aside, failed)
        error = failure(aside, failed, before, output_ref=None, backoff=self._backoff, calls=calls)
        if not error.non_retryable and aside.number < aside.request.attempts:
            raise error from None
        log.warning("summary_failed", error=type(failed.why).__name__)
        tries = (*spent_in_vain(before.all, aside.start), aside.tried(failed))
        return Summary(beginning(text), tries=tries, whole=before.whole)

    async def _in_vain(self, aside: Attempt, *, but: int | None = None) -> Setbacks:
        return await self._keeper.setbacks(aside, but=but)


def _refused(turned: TurnedAway | NoneLeft) -> tuple[Refusal, ...]:
    """What whoever sums up has no right to. The answer is there, so its task does not fail for it."""
    if isinstance(turned, TurnedAway) and isinstance(turned.outcome, Failed):
        return turned.outcome.refused
    return ()


def _own_wait(turned: TurnedAway) -> TurnedAway | None:
    """What a task does that met something on the way to its summary; nothing when it does not wait for it.

    A wall before the model of the summarizer is none before the model of the task: it waits alone.
    """
    outcome = turned.outcome
    if isinstance(outcome, Failed) or (isinstance(outcome, Parked) and outcome.why == "budget"):
        return None
    if isinstance(outcome, Stopped) or outcome.wall is None:
        return turned
    if outcome.wall in NOT_WORTH_WAITING_FOR:
        return None
    return TurnedAway(outcome.model_copy(update={"wall": None, "what": f"for its summary: {outcome.what}"}))
