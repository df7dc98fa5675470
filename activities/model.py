"""What we ask of a language model, and the names of all that can go wrong. No SDK here."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, ClassVar, Protocol

from domain.briefing import Brief
from domain.models import Unsaid, Usage, Value, WallKind
from domain.quota.words import Standing

if TYPE_CHECKING:
    from activities.reading import AnswerReader  # it raises what is named here


class Completion(Value):
    """What the provider said, to the end: a message that stopped for a reason it gave."""

    text: str
    usage: Usage
    stop_reason: str
    batched: bool = False
    """Whether it came in a batch, at half the price."""
    tool_block: Annotated[bool, Unsaid] = False
    """Whether the model's answer has a tool to be used in it. What it called the tool is not kept."""
    untold: Annotated[frozenset[str], Unsaid] = frozenset()
    """The kinds of tokens in `usage` that the provider has not told, or not credibly. None once it is kept."""

    @property
    def wants_tool(self) -> bool:
        """Whether the model asked for a tool. Nothing is ever done about it."""
        return self.tool_block or self.stop_reason == "tool_use"


class BatchStanding(Value):
    """How a batch stands at the provider."""

    id: str
    created: datetime
    ended: bool
    requests: int


class LanguageModel(Protocol):
    """A model that answers briefs. One brief is one request: nothing below retries."""

    async def complete(self, brief: Brief, *, user: str, reader: AnswerReader) -> Completion:
        """The whole answer. `user` is an opaque id for the provider.

        The reader takes in what comes: when the call breaks off, or is called off, it knows how far it had come.
        """
        ...

    async def make_batch(self, briefs: Mapping[str, Brief], *, user: str) -> BatchStanding:
        """Have briefs answered within a day, each known by its custom id. There is no idempotency: twice is twice."""
        ...

    async def batch(self, id: str) -> BatchStanding | None:
        """How a batch stands; None when the provider knows none of this id."""
        ...

    async def cancel_batch(self, id: str) -> None:
        """Have a batch worked on no more: what was done is billed, the rest is not. It ends some time later."""
        ...

    async def batches(self, first: datetime, last: datetime) -> list[BatchStanding]:
        """The batches that were made between these times, by whomever."""
        ...

    async def batch_results(self, id: str) -> dict[str, Completion | ModelError]:
        """What came of each request of a batch that has ended, by its custom id."""
        ...


class ModelError(Exception):
    """A call that gave no answer that counts. Its message is ours: never a body of the provider, a header or a key."""

    retryable: ClassVar[bool] = False
    at_most: ClassVar[int | None] = None
    """How often a task may meet even a retryable error: the last time is final."""
    may_be_billed: ClassVar[bool] = False
    """Also when no word of an answer has come."""
    wall: ClassVar[WallKind | None] = None
    """The condition of the account or the provider that this is a sign of, where it is no fault of the one call."""
    timed_out: ClassVar[bool] = False

    def __init__(self, message: str, *, retry_after: timedelta | None = None, standing: Standing | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.standing = standing
        """How the account stands, where the provider said so."""


class RateLimited(ModelError):
    """The account's requests or tokens per minute are used up."""

    wall = "rate"


class SpendLimitReached(ModelError):
    """The account's own limit of money is reached."""

    wall = "spend"


class RequestRefused(ModelError):
    """The provider calls the request invalid."""


class KeyRefused(ModelError):
    """The credentials are wrong, withdrawn or not allowed to do this."""

    wall = "key"


class ModelUnknown(ModelError):
    """The provider does not know the model."""

    wall = "model"


class RequestTooLarge(ModelError):
    """The request is larger than the provider takes."""


class Overloaded(ModelError):
    """The provider has no capacity at the moment: a fault of the one call, and a wall when several tasks see it."""

    retryable = True


class ProviderFault(ModelError):
    """The provider failed inside."""

    retryable = True


class Unreachable(ModelError):
    """No connection came about, so nothing was asked."""

    wall = "unreachable"


class NoAnswer(ModelError):
    """The connection stood, and broke before a word of an answer had come."""

    retryable = True
    may_be_billed = True


class StreamCut(ModelError):
    """The answer broke off; what came is not used."""

    retryable = True
    may_be_billed = True


class Garbled(ModelError):
    """What came is not an answer of the Messages API. The same proxy tends to say the same thing again."""

    retryable = True
    at_most = 3
    may_be_billed = True


class TaskTimeout(ModelError):
    """The call took longer than the task allows."""

    retryable = True
    may_be_billed = True
    timed_out = True


class NoProgress(ModelError):
    """No new text came for too long: a provider that only keeps the line open does not answer."""

    retryable = True
    may_be_billed = True
    timed_out = True


class CalledOff(ModelError):
    """The run ended, or the task was stopped while the call was under way."""

    may_be_billed = True


class WorkerStopped(ModelError):
    """The worker went down while the call was under way: the task comes again."""

    retryable = True
    may_be_billed = True


class AnswerTooLarge(ModelError):
    """The answer grew beyond what we keep."""

    may_be_billed = True


class AnswerInvalid(ModelError):
    """The answer is not as it must be, also after its agent was told so."""


class PlanTooDear(ModelError):
    """The answer is a plan that will likely cost more than the budget, also after its planner was told so."""


class ReviewRejected(ModelError):
    """A reviewer did not accept the answer, also after its agent was told why."""


class ReviewFailed(ModelError):
    """A reviewer was asked, and what it said is no review: nobody has accepted the answer."""


class BatchExpired(ModelError):
    """The provider did not come to it within a day, or the batch was cancelled. It is not billed."""

    retryable = True


class BatchNotSent(ModelError):
    """The worker was lost before it had made the batch."""

    retryable = True


class BatchLost(ModelError):
    """A batch that was made, or may have been, and that the provider does not know: it may be billed all the same."""

    retryable = True
    may_be_billed = True


class AnswerCut(ModelError):
    """The answer ended at max_tokens: what there is of it is kept, but does not count."""

    may_be_billed = True


class Refused(ModelError):
    """The model declined. The same request would be declined, and billed, again."""

    may_be_billed = True


class ContextExceeded(ModelError):
    """The request and its answer do not fit the model's context window."""

    may_be_billed = True


class UnexpectedStop(ModelError):
    """The model stopped for a reason that this task has no use for, or that we do not know."""

    may_be_billed = True


class RightRefused(ModelError):
    """The model asked for a tool, and its agent was given none. Asked again, it would ask, and be billed, again."""

    may_be_billed = True


def answer_of(completion: Completion, max_tokens: int) -> str:
    """The text of a completion that counts as an answer."""
    if completion.wants_tool:
        raise RightRefused("the model asked for a tool, and its agent was given none: its answer is not used")
    match completion.stop_reason:
        case "end_turn" | "stop_sequence":
            return completion.text
        case "max_tokens":
            raise AnswerCut(f"the answer was cut at max_tokens ({max_tokens}): give the task more")
        case "refusal":
            raise Refused("the model declined to answer")
        case "model_context_window_exceeded":
            raise ContextExceeded("request and answer do not fit the model's context window: give the task less input")
        case "pause_turn":
            raise UnexpectedStop("the model stopped for 'pause_turn', which needs tools")
        case _:
            raise UnexpectedStop("the model stopped for a reason that we do not know")
