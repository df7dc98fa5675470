"""What becomes of a request: the stand-in's judgement, before a byte is sent.

In this order: key (401), size (413), body (400), limits (429), script. So `nth` in a rule counts the requests that the
limits let through, and a fault meant for the first call is not spent on a 429.
"""

from __future__ import annotations

import json
import math
import random
import time
from collections import Counter, deque
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from simulator.answers import answer_to, chance, is_scripted, pace_of
from simulator.batches import Batch, Batches
from simulator.caching import NOTHING, Cache, Cached
from simulator.config import Config
from simulator.connection import Request
from simulator.faults import STATUS, refusal
from simulator.limits import Limiter
from simulator.log import Billed, Entry, Log
from simulator.messages import Answer, Json, error_body, message
from simulator.prompt import InvalidRequestError, Prompt, read_prompt
from simulator.replies import Headers, Reply, answer_reply, json_reply
from simulator.script import Document, Scripts, Then
from simulator.wire import spoil

MESSAGES = "/v1/messages"
COUNT_TOKENS = "/v1/messages/count_tokens"
MAX_BODY = 32 * 1024 * 1024


@dataclass(frozen=True)
class Verdict:
    """A reply, the output tokens that were charged ahead for it, and how it stops when it gets through whole.

    `cached` is what its prompt writes to the cache when the answer begins.
    """

    reply: Reply
    reserved: int = 0
    stop_reason: str | None = None
    cached: Cached = NOTHING


class Provider:
    """Limits, script and answers for one configuration that may change while it serves."""

    def __init__(self, config: Config, *, keep_requests: int) -> None:
        self.config = config
        self.requests: deque[object] = deque(maxlen=keep_requests)
        self._limiter = Limiter(config.limits)
        self.scripts = Scripts()
        self.batches = Batches()
        self._cache = Cache()
        self._occurrences: Counter[str] = Counter()

    def follow(self, document: Document, *, plan: str | None = None) -> None:
        """Take new rules, counted from zero, and the settings that are given; full buckets if the limits changed.

        With `plan` they hold for its requests alone; what holds for everybody and for other plans stays as it is.
        """
        if plan is None:
            self._set(document)
        self.scripts.replace(document, plan)

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
            document = decoded(request.body)
            prompt = read_prompt(document, counting=counting)
        except InvalidRequestError as error:
            return refuse(400, "invalid_request_error", str(error))
        describe(entry, prompt)
        if counting:
            return Verdict(json_reply(200, {"input_tokens": prompt.tokens}, headers))
        self.requests.append(document)
        cached = self._look(prompt, now)
        wait = self._limiter.admit(
            prompt.model, input_tokens=prompt.tokens - cached.read, output_tokens=prompt.max_tokens, now=now
        )
        headers += self._limit_headers(prompt.model, now)
        if wait:
            text = "This request would exceed your organization's rate limit."
            return refuse(429, "rate_limit_error", text, [("retry-after", str(math.ceil(wait)))])
        self._cache.use(cached, now=now)
        return self._scripted(prompt, entry, cached, request_id, headers)

    def begin(self, verdict: Verdict, now: float) -> None:
        """The answer begins: what its prompt wrote to the cache can be read from now on."""
        self._cache.begin(verdict.cached, life=self.config.cache_life, now=now)

    def work(self, log: Log, *, now: float) -> None:
        """Do the batches whose time has come. Each request is billed once, here."""

        def do(batch: Batch, custom_id: str, params: dict[str, Any]) -> Json | None:
            entry = log.open(MESSAGES, started=time.time(), in_flight=0)
            entry.batch, entry.batch_id, entry.custom_id = True, batch.id, custom_id
            result = self._result(params, entry, now)
            entry.status = 200 if result is not None and result["type"] == "succeeded" else None
            log.end(entry, time.time())
            return result

        self.batches.work(self.config.batch_seconds, now=now, at=datetime.now(UTC), do=do)

    def _result(self, params: dict[str, Any], entry: Entry, now: float) -> Json | None:
        """What becomes of one request of a batch. Limits are for calls: a batch has all the time it needs."""
        try:
            prompt = read_prompt(params)
        except InvalidRequestError as error:
            return {"type": "errored", "error": error_body("invalid_request_error", str(error))}
        describe(entry, prompt)
        then, config = self.scripts.next(prompt, "request"), self.scripts.config_for(prompt, self.config)
        if then.hangs:
            return None
        if then.expires:
            return {"type": "expired"}
        if then.fault:
            entry.fault = then.fault
            _, kind = STATUS.get(then.fault, (500, "api_error"))
            return {"type": "errored", "error": error_body(kind, then.message or f"Simulated fault: {then.fault}")}
        self.requests.append(params)
        answer, cached, _ = self._answer(prompt, then, config, self._look(prompt, now))
        self._cache.use(cached, now=now)
        self._cache.begin(cached, life=self.config.cache_life, now=now)
        entry.billed = Billed(answer.input, answer.tokens, answer.cache_read, answer.cache_write)
        entry.stop_reason = answer.stop_reason
        return {"type": "succeeded", "message": message(answer, tier="batch")}

    def _look(self, prompt: Prompt, now: float) -> Cached:
        return self._cache.look(prompt.prefix, minimum=self.config.cache_minimum, now=now)

    def _answer(
        self, prompt: Prompt, then: Then, config: Config, cached: Cached
    ) -> tuple[Answer, Cached, random.Random]:
        """The answer, what it means for the cache, and the randomness that is left for its pace."""
        self._occurrences[prompt.hash] += 1
        luck = chance(config, prompt, self._occurrences[prompt.hash])
        answer = answer_to(prompt, then, config, luck, cached)
        return answer, NOTHING if is_scripted(then) else cached, luck

    def settle(self, entry: Entry, verdict: Verdict, now: float) -> None:
        """Give back what was charged ahead and not produced."""
        if entry.model and verdict.reserved:
            self._limiter.settle(entry.model, unused_output=verdict.reserved - entry.billed.output, now=now)

    def _scripted(self, prompt: Prompt, entry: Entry, cached: Cached, request_id: str, headers: Headers) -> Verdict:
        then, config = self.scripts.next(prompt), self.scripts.config_for(prompt, self.config)
        entry.fault = then.fault
        if then.fault in STATUS:
            return Verdict(refusal(then, request_id=request_id, headers=headers), reserved=prompt.max_tokens)
        answer, cached, luck = self._answer(prompt, then, config, cached)
        entry.billed = Billed(answer.input, 0, answer.cache_read, answer.cache_write)
        reply = answer_reply(answer, pace_of(then, config, luck), stream=prompt.stream, headers=headers)
        return Verdict(
            reply=spoil(reply, then),
            reserved=prompt.max_tokens,
            stop_reason=None if then.fault else answer.stop_reason,
            cached=cached,
        )

    def _limit_headers(self, model: str, now: float) -> Headers:
        headers: Headers = []
        for name, standing in self._limiter.standings(model, now).items():
            reset = datetime.now(UTC) + timedelta(seconds=standing.seconds_to_full)
            values = {"limit": standing.limit, "remaining": standing.remaining, "reset": f"{reset:%Y-%m-%dT%H:%M:%SZ}"}
            headers += [(f"anthropic-ratelimit-{name}-{part}", str(value)) for part, value in values.items()]
        return headers


def decoded(body: bytes) -> object:
    """The JSON of a body."""
    try:
        document: object = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"The request body is not valid JSON: {error}") from error
    return document


def describe(entry: Entry, prompt: Prompt) -> None:
    """Write down who asks for what."""
    entry.task = prompt.task
    entry.user = prompt.user
    entry.model = prompt.model
    entry.max_tokens = prompt.max_tokens or None
    entry.prompt_hash = prompt.hash
    entry.prompt_bytes = prompt.size
    entry.documents = prompt.documents
