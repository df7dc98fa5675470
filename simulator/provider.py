"""What becomes of a request: the stand-in's judgement, before a byte is sent.

In this order: key (401), size (413), body (400), limits (429), script. So `nth` in a rule counts the requests that the
limits let through, and a fault meant for the first call is not spent on a 429.
"""

from __future__ import annotations

import json
import math
from collections import Counter, deque
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from simulator.answers import answer_to, chance, pace_of
from simulator.config import Config
from simulator.connection import Request
from simulator.faults import STATUS, refusal
from simulator.limits import Limiter
from simulator.log import Billed, Entry
from simulator.messages import error_body
from simulator.prompt import InvalidRequestError, Prompt, read_prompt
from simulator.replies import Headers, Reply, answer_reply, json_reply
from simulator.script import Document, Scripts
from simulator.wire import spoil

MESSAGES = "/v1/messages"
COUNT_TOKENS = "/v1/messages/count_tokens"
MAX_BODY = 32 * 1024 * 1024


@dataclass(frozen=True)
class Verdict:
    """A reply, the output tokens that were charged ahead for it, and how it stops when it gets through whole."""

    reply: Reply
    reserved: int = 0
    stop_reason: str | None = None


class Provider:
    """Limits, script and answers for one configuration that may change while it serves."""

    def __init__(self, config: Config, *, keep_requests: int) -> None:
        self.config = config
        self.requests: deque[object] = deque(maxlen=keep_requests)
        self._limiter = Limiter(config.limits)
        self._scripts = Scripts()
        self._occurrences: Counter[str] = Counter()

    def follow(self, document: Document, *, plan: str | None = None) -> None:
        """Take new rules, counted from zero, and the settings that are given; full buckets if the limits changed.

        With `plan` they hold for its requests alone; what holds for everybody and for other plans stays as it is.
        """
        if plan is None:
            self._set(document)
        self._scripts.replace(document, plan)

    def _set(self, document: Document) -> None:
        config = self.config.changed(document.config.model_dump(exclude_unset=True))
        if config.limits != self.config.limits:
            self._limiter = Limiter(config.limits)
        self.config = config

    def judge(self, request: Request, entry: Entry, now: float) -> Verdict:
        """The verdict on one request; the entry learns who asks, and what reading the prompt costs."""
        request_id = f"req_simulated_{entry.number:08d}"
        headers = [("request-id", request_id)]

        def refuse(status: int, kind: str, text: str, more: Headers | None = None) -> Verdict:
            body = error_body(kind, text, request_id=request_id)
            return Verdict(json_reply(status, body, [*headers, *(more or [])]))

        if "x-api-key" not in request.headers and "authorization" not in request.headers:
            return refuse(401, "authentication_error", "x-api-key header is required")
        if len(request.body) > MAX_BODY:
            return refuse(413, "request_too_large", f"Request exceeds {MAX_BODY} bytes")
        counting = request.path == COUNT_TOKENS
        try:
            document = _decoded(request.body)
            prompt = read_prompt(document, counting=counting)
        except InvalidRequestError as error:
            return refuse(400, "invalid_request_error", str(error))
        _describe(entry, prompt)
        if counting:
            return Verdict(json_reply(200, {"input_tokens": prompt.tokens}, headers))
        self.requests.append(document)
        wait = self._limiter.admit(prompt.model, input_tokens=prompt.tokens, output_tokens=prompt.max_tokens, now=now)
        headers += self._limit_headers(prompt.model, now)
        if wait:
            text = "This request would exceed your organization's rate limit."
            return refuse(429, "rate_limit_error", text, [("retry-after", str(math.ceil(wait)))])
        return self._scripted(prompt, entry, request_id, headers)

    def settle(self, entry: Entry, verdict: Verdict, now: float) -> None:
        """Give back what was charged ahead and not produced."""
        if entry.model and verdict.reserved:
            self._limiter.settle(entry.model, unused_output=verdict.reserved - entry.billed.output, now=now)

    def _scripted(self, prompt: Prompt, entry: Entry, request_id: str, headers: Headers) -> Verdict:
        then, config = self._scripts.next(prompt), self._scripts.config_for(prompt, self.config)
        entry.fault = then.fault
        if then.fault in STATUS:
            return Verdict(refusal(then, request_id=request_id, headers=headers), reserved=prompt.max_tokens)
        self._occurrences[prompt.hash] += 1
        random = chance(config, prompt, self._occurrences[prompt.hash])
        answer = answer_to(prompt, then, config, random)
        entry.billed = Billed(answer.input, 0, answer.cache_read, answer.cache_write)
        reply = answer_reply(answer, pace_of(then, config, random), stream=prompt.stream, headers=headers)
        return Verdict(
            reply=spoil(reply, then),
            reserved=prompt.max_tokens,
            stop_reason=None if then.fault else answer.stop_reason,
        )

    def _limit_headers(self, model: str, now: float) -> Headers:
        headers: Headers = []
        for name, standing in self._limiter.standings(model, now).items():
            reset = datetime.now(UTC) + timedelta(seconds=standing.seconds_to_full)
            values = {"limit": standing.limit, "remaining": standing.remaining, "reset": f"{reset:%Y-%m-%dT%H:%M:%SZ}"}
            headers += [(f"anthropic-ratelimit-{name}-{part}", str(value)) for part, value in values.items()]
        return headers


def _decoded(body: bytes) -> object:
    try:
        document: object = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"The request body is not valid JSON: {error}") from error
    return document


def _describe(entry: Entry, prompt: Prompt) -> None:
    entry.task = prompt.task
    entry.user = prompt.user
    entry.model = prompt.model
    entry.max_tokens = prompt.max_tokens or None
    entry.prompt_hash = prompt.hash
    entry.prompt_bytes = prompt.size
