"""What we ask of a language model, and the names of all that can go wrong. No SDK here."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import ClassVar, Protocol

from domain.briefing import Brief
from domain.models import Usage, Value


class Completion(Value):
    """What the provider said, to the end: a message that stopped for a reason it gave."""

    text: str
    usage: Usage
    stop_reason: str


class LanguageModel(Protocol):
    """A model that answers briefs. One brief is one request: nothing below retries."""

    async def complete(self, brief: Brief, *, user: str, on_text: Callable[[str], None]) -> Completion:
        """The whole answer. `on_text` hears every piece of new text; `user` is an opaque id for the provider."""
        ...


class ModelError(Exception):
    """A call that gave no answer that counts. Its message is ours: never a body of the provider, a header or a key."""

    retryable: ClassVar[bool] = False
    at_most: ClassVar[int | None] = None
    """Attempts after which even a retryable error is final."""
    may_be_billed: ClassVar[bool] = False

    def __init__(
        self, message: str, *, retry_after: timedelta | None = None, completion: Completion | None = None
    ) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.partial = completion.text if completion else None
        self.usage = completion.usage if completion else Usage()


class RateLimited(ModelError):
    """A wall: the account's requests or tokens per minute are used up."""


class SpendLimitReached(ModelError):
    """The account's own limit of money is reached."""


class RequestRefused(ModelError):
    """The provider calls the request invalid."""


class KeyRefused(ModelError):
    """The credentials are wrong, withdrawn or not allowed to do this."""


class ModelUnknown(ModelError):
    """The provider does not know the model."""


class RequestTooLarge(ModelError):
    """The request is larger than the provider takes."""


class Overloaded(ModelError):
    """The provider has no capacity at the moment."""

    retryable = True


class ProviderFault(ModelError):
    """The provider failed inside."""

    retryable = True


class Unreachable(ModelError):
    """No answer came back at all."""

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


class AnswerTooLarge(ModelError):
    """The answer grew beyond what we keep."""

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


def answer_of(completion: Completion, max_tokens: int) -> str:
    """The text of a completion that counts as an answer."""
    match completion.stop_reason:
        case "end_turn" | "stop_sequence":
            return completion.text
        case "max_tokens":
            message = f"the answer was cut at max_tokens ({max_tokens}): give the task more"
            raise AnswerCut(message, completion=completion)
        case "refusal":
            raise Refused("the model declined to answer", completion=completion)
        case "model_context_window_exceeded":
            message = "request and answer do not fit the model's context window: give the task less input"
            raise ContextExceeded(message, completion=completion)
        case "pause_turn" | "tool_use" as reason:
            raise UnexpectedStop(f"the model stopped for {reason!r}, which needs tools", completion=completion)
        case _:
            raise UnexpectedStop("the model stopped for a reason that we do not know", completion=completion)
