"""Claude over the anthropic SDK: the only file that imports it.

One brief is one request: the SDK's own retries are off, and nothing here catches an error to try again. Whatever the
SDK raises, or returns without raising, becomes one of the named errors of `model.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from typing import Any, NotRequired, TypedDict, cast

import anthropic
import httpx2
from anthropic.types import MessageParam, OutputConfigParam, TextBlockParam
from anthropic.types.messages import MessageBatch
from anthropic.types.messages.batch_create_params import Request
from pydantic import JsonValue

from activities import model
from activities.batch_reading import results_in
from activities.model import BatchStanding, Completion, ModelError
from activities.model_call import answered_as, asked_at
from activities.reading import AnswerReader
from domain.briefing import Brief
from domain.quota.terms import Measure
from domain.quota.words import Standing

PATIENCE = 60.0
"""Seconds for one request about batches: it is asked again."""

CONNECT_TIMEOUT = 10.0
"""Seconds to reach the provider. The call as a whole has the task's own deadline, set around it."""

RETRY_AFTER_LEAST, RETRY_AFTER_MOST = timedelta(seconds=1), timedelta(days=1)
"""The delays of the provider that we believe; "at once" would be a loop without an end."""


MARK: dict[str, JsonValue] = {"cache_control": {"type": "ephemeral"}}
"""The end of a prefix that the provider shall keep for five minutes after its last use."""


class Claude:
    """The Messages API, always streamed."""

    def __init__(self, *, base_url: str | None, api_key: str | None, auth_token: str | None, simulated: bool) -> None:
        self._client = anthropic.AsyncAnthropic(
            api_key=api_key,
            auth_token=auth_token,
            base_url=base_url or "https://api.anthropic.com",
            max_retries=0,
            timeout=httpx2.Timeout(None, connect=CONNECT_TIMEOUT),
            http_client=_direct() if simulated else None,
            # Our own span is enough. The SDK's can be told by a variable to hold prompts, and would tell the provider
            # about our traces.
            open_telemetry={"traces": False, "propagation": False},
        )
        if self._client.max_retries != 0:
            raise RuntimeError("the anthropic client retries by itself: Temporal must be the only layer that does")
        url = self._client.base_url
        self._host, self._port = url.host, url.port or (80 if url.scheme == "http" else 443)

    async def close(self) -> None:
        """Give the connections back."""
        await self._client.close()

    async def complete(self, brief: Brief, *, user: str, reader: AnswerReader) -> Completion:
        """The whole answer to a brief, or a named error."""
        asked_at(self._host, self._port)
        try:
            stream = await self._client.messages.create(
                **request_of(brief),
                metadata={"user_id": user},
                stream=True,
            )
            reader.stands(standing_of(stream.response.headers))
            async with stream:
                async for event in stream:
                    reader.feed(event.to_dict(mode="json", warnings=False))
            answered_as(reader.names)
        except ModelError:
            raise
        except Exception as error:  # noqa: BLE001  the SDK lets bare assertion, decoding and httpx errors through
            raise named_error(error) from None
        return reader.completion()

    async def make_batch(self, briefs: Mapping[str, Brief], *, user: str) -> BatchStanding:
        """Have briefs answered within a day, at half the price."""
        requests = [
            cast("Request", {"custom_id": id, "params": {**request_of(brief), "metadata": {"user_id": user}}})
            for id, brief in briefs.items()
        ]
        with _named():
            return _standing_of_batch(await self._client.messages.batches.create(requests=requests, timeout=PATIENCE))

    async def batch(self, id: str) -> BatchStanding | None:
        """How a batch stands."""
        with _named(), suppress(anthropic.NotFoundError):
            return _standing_of_batch(await self._client.messages.batches.retrieve(id, timeout=PATIENCE))
        return None

    async def cancel_batch(self, id: str) -> None:
        """Have a batch worked on no more. One that has ended, or that nobody knows, is left as it is."""
        with _named(), suppress(anthropic.NotFoundError, anthropic.BadRequestError, anthropic.ConflictError):
            await self._client.messages.batches.cancel(id, timeout=PATIENCE)

    async def batches(self, first: datetime, last: datetime) -> list[BatchStanding]:
        """The batches that were made between these times. The provider lists the newest first."""
        found: list[BatchStanding] = []
        with _named():
            async for batch in self._client.messages.batches.list(limit=100, timeout=PATIENCE):
                if batch.created_at < first:
                    break
                if batch.created_at <= last:
                    found.append(_standing_of_batch(batch))
        return found

    async def batch_results(self, id: str) -> dict[str, Completion | ModelError]:
        """What came of each request of a batch."""
        with _named():
            # As bytes: the SDK's reader of lines ends at the first that is none, and would take all others with it.
            results = self._client.messages.batches.with_streaming_response.results(id, timeout=PATIENCE)
            async with results as response:
                return await results_in(response.iter_bytes(), _in_a_batch)


class Asked(TypedDict):
    """What is asked, whichever way it goes to the provider."""

    model: str
    max_tokens: int
    system: str | list[TextBlockParam]
    messages: list[MessageParam]
    output_config: NotRequired[OutputConfigParam]


def request_of(brief: Brief) -> Asked:
    """The brief as a request: what siblings share goes first, and a mark at its end has the provider keep it."""
    system: str | list[TextBlockParam] = brief.system
    shared = list(brief.shared)
    if shared:
        shared[-1] = {**shared[-1], **MARK}
    elif brief.first is not None:
        system = [cast("TextBlockParam", {"type": "text", "text": brief.system, **MARK})]
    first = cast("MessageParam", {"role": "user", "content": [*shared, *brief.own]})
    turns = [cast("MessageParam", {"role": turn.role, "content": turn.text}) for turn in brief.turns]
    asked: Asked = {
        "model": brief.model,
        "max_tokens": brief.max_tokens,
        "system": system,
        "messages": [first, *turns],
    }
    if brief.schema_:
        asked["output_config"] = {"format": {"type": "json_schema", "schema": dict[str, object](brief.schema_)}}
    return asked


def _standing_of_batch(batch: MessageBatch) -> BatchStanding:
    counts = batch.request_counts
    requests = counts.processing + counts.succeeded + counts.errored + counts.canceled + counts.expired
    ended = batch.processing_status == "ended"
    return BatchStanding(id=batch.id, created=batch.created_at, ended=ended, requests=requests)


def _in_a_batch(kind: str) -> ModelError:
    """Why one request of a batch failed, in our words."""
    error = BY_TYPE.get(kind, model.ProviderFault)
    return error(f"{MESSAGES[error]} (in a batch)")


@contextmanager
def _named() -> Iterator[None]:
    """Whatever the SDK raises, by our names."""
    try:
        yield
    except ModelError:
        raise
    except Exception as error:  # noqa: BLE001  as in `complete`
        raise named_error(error) from None


def _direct() -> httpx2.AsyncClient:
    """HTTP without the proxies of the environment: the simulator is ours alone."""
    return httpx2.AsyncClient(trust_env=False, limits=anthropic.DEFAULT_CONNECTION_LIMITS)


def named_error(error: Exception) -> ModelError:
    """The error of ours that stands for one of the SDK, by its type and status; its text is not passed on."""
    match error:
        case anthropic.APIStatusError():
            return _of_status(error)
        case anthropic.APIConnectionError() if isinstance(error.__cause__, NEVER_CONNECTED):
            return model.Unreachable("the provider could not be reached")
        case anthropic.APIConnectionError():
            return model.NoAnswer("the connection broke before the provider answered")
        case httpx2.TransportError():
            return model.StreamCut("the connection broke in the middle of the answer")
        case _:
            return model.Garbled(f"what the provider sent is not an answer ({type(error).__name__})")


NEVER_CONNECTED = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError, httpx2.UnsupportedProtocol)
"""What httpx raises before a connection stands: refused, no such name, no route, no handshake."""

USAGE_LIMITS = "usage limits"
"""What a customer's own limit of money is told by: in the message of a 400, which has no type or code for it."""

BY_TYPE: dict[str, type[ModelError]] = {
    "overloaded_error": model.Overloaded,
    "rate_limit_error": model.RateLimited,
    "authentication_error": model.KeyRefused,
    "permission_error": model.KeyRefused,
    "billing_error": model.SpendLimitReached,
    "not_found_error": model.ModelUnknown,
    "request_too_large": model.RequestTooLarge,
    "api_error": model.ProviderFault,
    "timeout_error": model.ProviderFault,
    "invalid_request_error": model.RequestRefused,
}
BY_STATUS: dict[int, type[ModelError]] = {
    401: model.KeyRefused,
    402: model.SpendLimitReached,
    403: model.KeyRefused,
    404: model.ModelUnknown,
    408: model.ProviderFault,
    409: model.ProviderFault,
    413: model.RequestTooLarge,
    429: model.RateLimited,
    529: model.Overloaded,
}
HEADERS: dict[Measure, str] = {
    "requests": "requests",
    "input_tokens": "input-tokens",
    "output_tokens": "output-tokens",
}
MESSAGES: dict[type[ModelError], str] = {
    model.Overloaded: "the provider is overloaded",
    model.RateLimited: "the account's rate limit is reached",
    model.KeyRefused: "the provider refused the credentials: check ANTHROPIC_API_KEY",
    model.SpendLimitReached: "the account's limit of money is reached: raise it at the provider",
    model.ModelUnknown: "the provider does not know the model: check the agent's model",
    model.RequestTooLarge: "the request is too large for the provider: give the task less input",
    model.ProviderFault: "the provider failed inside",
    model.RequestRefused: "the provider calls the request invalid",
}


def _of_status(error: anthropic.APIStatusError) -> ModelError:
    """By the code and the type in the body first: inside a stream an error has the status 200."""
    status = error.status_code
    refuses = 400 <= status < 500
    other = model.RequestRefused if refuses else model.ProviderFault
    kind = BY_TYPE.get(_body_type(error) or "") or BY_STATUS.get(status, other)
    if error.error_code == "enforced_spend_limit_reached" or (
        kind is model.RequestRefused and USAGE_LIMITS in str(error.api_message).lower()
    ):
        kind = model.SpendLimitReached
    standing = standing_of(error.response.headers) if kind is model.RateLimited else None
    return kind(f"{MESSAGES[kind]} (status {status})", retry_after=_retry_after(error), standing=standing)


def standing_of(headers: Mapping[str, str]) -> Standing:
    """What the headers of an answer say of the account's limits; what makes no sense is passed over."""

    def told(part: str) -> dict[Measure, int]:
        found = {measure: headers.get(f"anthropic-ratelimit-{name}-{part}", "") for measure, name in HEADERS.items()}
        return {measure: int(word) for measure, word in found.items() if word.isascii() and word.isdigit()}

    limits = {measure: limit for measure, limit in told("limit").items() if limit > 0}
    remaining = {measure: left for measure, left in told("remaining").items() if measure in limits}
    return Standing(limits=limits, remaining=remaining)


def _body_type(error: anthropic.APIStatusError) -> str | None:
    body: Any = error.body
    inner = body.get("error") if isinstance(body, dict) else None
    kind = inner.get("type") if isinstance(inner, dict) else None
    return kind if isinstance(kind, str) else None


def _retry_after(error: anthropic.APIStatusError) -> timedelta | None:
    """The provider's own delay, when it makes sense."""
    try:
        seconds = float(error.response.headers.get("retry-after", ""))
    except ValueError:
        return None
    if not 0 <= seconds < float("inf"):
        return None
    return max(min(timedelta(seconds=min(seconds, 1e8)), RETRY_AFTER_MOST), RETRY_AFTER_LEAST)
