"""The stand-in for the Messages API, met over HTTP by the real SDK as our workers meet it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import pytest
from anthropic import AsyncAnthropic
from anthropic.types import Message, TextBlock, ToolUseBlock
from anthropic.types.shared import EnforcedSpendLimitReachedError

from simulator import Config, Limits, Simulator
from simulator.faults import PARAMETERS, STATUS
from simulator.limits import Limiter
from simulator.script import ScriptError, read_script
from simulator.wire import _SPOILED

ROOT = Path(__file__).parent.parent
INSTANT = Config(ttft=0, tokens_per_second=0)
HANG = {"fault": "hang_before_headers"}


@pytest.fixture
async def simulator() -> AsyncIterator[Simulator]:
    async with Simulator(INSTANT) as simulator:
        yield simulator


@pytest.fixture
async def client(simulator: Simulator) -> AsyncIterator[AsyncAnthropic]:
    async with client_of(simulator.url) as client:
        yield client


@pytest.fixture
async def http(simulator: Simulator) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=simulator.url, timeout=60) as http:
        yield http


def client_of(url: str) -> AsyncAnthropic:
    return AsyncAnthropic(api_key="a-key", base_url=url, max_retries=0, timeout=60)


async def ask(
    client: AsyncAnthropic, content: Any = "Task: scan\nSay it.", max_tokens: int = 300, **more: Any
) -> Message:
    messages: Any = [{"role": "user", "content": content}]
    async with client.messages.stream(model="a-model", max_tokens=max_tokens, messages=messages, **more) as stream:
        return await stream.get_final_message()


async def ask_whole(client: AsyncAnthropic, content: Any = "Task: scan\nSay it.", max_tokens: int = 300) -> Message:
    return await client.messages.create(
        model="a-model", max_tokens=max_tokens, messages=[{"role": "user", "content": content}]
    )


def text_of(message: Message) -> str:
    (block,) = message.content
    assert isinstance(block, TextBlock)
    return block.text


async def ended(simulator: Simulator) -> None:
    await simulator.until(lambda: all(entry.ended is not None for entry in simulator.log))


# --- answers ---


@pytest.mark.parametrize("way", [ask, ask_whole])
async def test_an_answer_arrives(simulator: Simulator, client: AsyncAnthropic, way: Callable[..., Any]) -> None:
    """As a stream or as one document: same text, same usage, and the bill agrees with what the client is told."""
    simulator.script([{"then": {"answer": "Twelve chars and more."}}])

    message = await way(client)

    assert text_of(message) == "Twelve chars and more."
    assert message.stop_reason == "end_turn"
    assert message.usage.output_tokens == 6
    await ended(simulator)
    (entry,) = simulator.log
    assert (entry.billed.input, entry.billed.output) == (message.usage.input_tokens, 6)
    assert (entry.task, entry.status, entry.fault, entry.stop_reason) == ("scan", 200, None, "end_turn")


async def test_a_stream_has_the_events_of_the_api_in_order(simulator: Simulator, client: AsyncAnthropic) -> None:
    simulator.script([{"then": {"answer": "One."}}])

    async with client.messages.with_streaming_response.create(
        model="a-model", max_tokens=9, messages=[{"role": "user", "content": "Hello"}], stream=True
    ) as response:
        names = [line.removeprefix("event: ") async for line in response.iter_lines() if line.startswith("event: ")]

    assert names == [
        *("message_start", "content_block_start", "ping", "content_block_delta"),
        *("content_block_stop", "message_delta", "message_stop"),
    ]
    assert response.headers["request-id"].startswith("req_")


async def test_a_default_answer_is_about_the_task_and_says_it_is_simulated(client: AsyncAnthropic) -> None:
    """It names subject, role, inputs and what was missing, and carries none of the input's text."""
    source = {"type": "text", "media_type": "text/plain", "data": "canary " * 500}
    content = [
        {"type": "text", "text": "Task: report\nPlan: brief\nAgent: writer@1"},
        {"type": "document", "title": "outline", "context": "the result of task 'outline'", "source": source},
        {
            "type": "text",
            "text": 'Compare durable engines.\n\nMissing inputs:\n<missing-inputs of="report" mark="0a1b">\n'
            '[\n{"task": "scan", "status": "TIMED_OUT", "reason": "late"}\n]\n'
            '</missing-inputs mark="0a1b">',
        },
    ]

    message = await ask(client, content, system=[{"type": "text", "text": "You are a careful writer. Be brief."}])

    text = text_of(message)
    assert text.startswith("[Simulated answer]")
    for part in ("a careful writer", "durable engines", "outline", "scan was missing"):
        assert part in text
    assert "canary" not in text
    assert 50 <= message.usage.output_tokens <= 160


async def test_an_answer_is_cut_at_max_tokens(simulator: Simulator, client: AsyncAnthropic) -> None:
    simulator.script([{"then": {"answer_tokens": 500}}])

    message = await ask(client, max_tokens=20)

    assert message.stop_reason == "max_tokens"
    assert message.usage.output_tokens == 20
    assert len(text_of(message)) == 80


async def test_an_answer_can_have_an_exact_size(simulator: Simulator, client: AsyncAnthropic) -> None:
    simulator.script([{"then": {"answer_bytes": 2_000_001}}])

    message = await ask(client, max_tokens=1_000_000)

    assert len(text_of(message).encode()) == 2_000_001


@pytest.mark.parametrize(
    "reason", ["refusal", "max_tokens", "pause_turn", "model_context_window_exceeded", "out_of_the_blue"]
)
async def test_any_stop_reason_can_be_scripted(simulator: Simulator, client: AsyncAnthropic, reason: str) -> None:
    simulator.script([{"then": {"stop_reason": reason}}])

    assert (await ask(client)).stop_reason == reason
    assert (await ask_whole(client)).stop_reason == reason


async def test_counted_tokens_are_the_billed_input_tokens(simulator: Simulator, client: AsyncAnthropic) -> None:
    content: Any = [
        {"type": "document", "title": "t", "source": {"type": "text", "media_type": "text/plain", "data": "d" * 99}},
        {"type": "text", "text": "x" * 300},
    ]

    counted = await client.messages.count_tokens(
        model="a-model", system="s" * 40, messages=[{"role": "user", "content": content}]
    )
    message = await ask(client, content, system="s" * 40)

    assert counted.input_tokens == 110
    assert message.usage.input_tokens == 110
    assert simulator.calls() == 1  # counting is no call


async def test_a_cached_prompt_is_billed_as_such(simulator: Simulator, client: AsyncAnthropic) -> None:
    simulator.script([{"then": {"cache_read": 30, "cache_write": 20}}])

    usage = (await ask(client, "x" * 400)).usage

    assert (usage.input_tokens, usage.cache_read_input_tokens, usage.cache_creation_input_tokens) == (50, 30, 20)
    billed = simulator.log[0].billed
    assert (billed.input, billed.cache_read, billed.cache_write) == (50, 30, 20)


async def test_a_tool_call_arrives_as_scripted(simulator: Simulator, client: AsyncAnthropic) -> None:
    """Whole, or so broken that the SDK cannot read it."""
    simulator.script(
        [
            {"when": {"nth": 1}, "then": {"tool": "look", "answer": '{"at": [1, 2]}'}},
            {"then": {"tool": "look", "answer": '{"at": nothing}'}},
        ]
    )

    message = await ask(client)

    (block,) = message.content
    assert isinstance(block, ToolUseBlock)
    assert (block.name, block.input, message.stop_reason) == ("look", {"at": [1, 2]}, "tool_use")
    with pytest.raises(ValueError, match="Unable to parse tool parameter"):
        await ask(client)


# --- faults ---

FAULTS: list[tuple[dict[str, Any], type[Exception]]] = [
    ({"fault": "invalid_request"}, anthropic.BadRequestError),
    ({"fault": "authentication"}, anthropic.AuthenticationError),
    ({"fault": "billing"}, anthropic.APIStatusError),
    ({"fault": "permission"}, anthropic.PermissionDeniedError),
    ({"fault": "not_found"}, anthropic.NotFoundError),
    ({"fault": "request_too_large"}, anthropic.RequestTooLargeError),
    ({"fault": "rate_limit"}, anthropic.RateLimitError),
    ({"fault": "spend_limit"}, EnforcedSpendLimitReachedError),
    ({"fault": "api_error"}, anthropic.InternalServerError),
    ({"fault": "bad_gateway"}, anthropic.InternalServerError),
    ({"fault": "unavailable"}, anthropic.ServiceUnavailableError),
    ({"fault": "gateway_timeout"}, anthropic.DeadlineExceededError),
    ({"fault": "overloaded"}, anthropic.OverloadedError),
    ({"fault": "hang_before_headers"}, anthropic.APITimeoutError),
    ({"fault": "hang_after_headers"}, httpx2.ReadTimeout),
    ({"fault": "hang_mid_stream"}, httpx2.ReadTimeout),
    ({"fault": "ping_forever", "seconds": 0.05}, TimeoutError),
    ({"fault": "reset_before_headers"}, anthropic.APIConnectionError),
    ({"fault": "reset_mid_stream", "at": 0.01}, httpx2.ReadError),
    ({"fault": "reset_mid_stream", "at": 0.5}, httpx2.ReadError),
    ({"fault": "reset_mid_stream", "at": 0.99}, httpx2.ReadError),
    ({"fault": "close_mid_chunk", "at": 0}, httpx2.RemoteProtocolError),
    ({"fault": "close_mid_chunk", "at": 0.99}, httpx2.RemoteProtocolError),
    ({"fault": "error_event"}, anthropic.APIStatusError),
    ({"fault": "garbage_json"}, json.JSONDecodeError),
    ({"fault": "bad_utf8"}, UnicodeDecodeError),
    ({"fault": "empty_stream"}, AssertionError),
    ({"fault": "html_200"}, AssertionError),
    ({"fault": "wrong_shape"}, AssertionError),
    ({"usage": None}, AttributeError),
]
PATIENCE: dict[type[Exception], tuple[float, float | None]] = {
    anthropic.APITimeoutError: (2, None),
    httpx2.ReadTimeout: (2, None),
    TimeoutError: (5, 6),
}
"""Seconds that the client waits for the next byte, and those that the test gives it, where time is what ends a call.

Only pings for ever outlast the client's own patience, which is longer than a busy machine stands still.
"""

SILENT = {"truncate", "no_message_stop"}
"""Faults that the SDK does not notice at all; they have tests of their own."""


@pytest.mark.parametrize(("then", "error"), FAULTS, ids=[f"{then.get('fault')}-{then.get('at')}" for then, _ in FAULTS])
async def test_a_fault_reaches_the_sdk_as_its_class(
    simulator: Simulator, client: AsyncAnthropic, then: dict[str, Any], error: type[Exception]
) -> None:
    """Exactly the class of faults.md 1a; an error instead of an answer costs nothing, the others their input."""
    simulator.script([{"then": then}])
    patience, limit = PATIENCE.get(error, (60, None))

    with pytest.raises(error) as raised:
        async with asyncio.timeout(limit):
            await ask(client.with_options(timeout=patience))

    assert type(raised.value) is error
    await ended(simulator)
    (entry,) = simulator.log
    assert entry.fault == then.get("fault")
    assert (entry.billed.input > 0) is (then.get("fault") not in STATUS)
    if isinstance(raised.value, anthropic.APIStatusError):
        assert entry.status == raised.value.status_code
    assert entry.client_left is (error in (anthropic.APITimeoutError, httpx2.ReadTimeout, TimeoutError))


def test_every_fault_is_built_and_tested() -> None:
    assert set(STATUS) | set(_SPOILED) == set(PARAMETERS)
    assert {then.get("fault") for then, _ in FAULTS} - {None} | SILENT == set(PARAMETERS)


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("reset_mid_stream", anthropic.APIConnectionError),
        ("close_mid_chunk", anthropic.APIConnectionError),
        ("truncate", json.JSONDecodeError),
    ],
)
async def test_a_document_is_cut_too(
    simulator: Simulator, client: AsyncAnthropic, fault: str, error: type[Exception]
) -> None:
    """Short of its announced length, reset, or announced shorter than it should be."""
    simulator.script([{"then": {"fault": fault}}])

    with pytest.raises(error) as raised:
        await ask_whole(client)

    assert type(raised.value) is error


async def test_a_proxy_page_and_a_wrong_shape_pass_for_messages(simulator: Simulator, client: AsyncAnthropic) -> None:
    """The silent ones of a reply that is no stream: the SDK hands them over as if nothing had happened."""
    simulator.script([{"when": {"nth": 1}, "then": {"fault": "html_200"}}, {"then": {"fault": "wrong_shape"}}])

    page: object = await ask_whole(client)
    message = await ask_whole(client)

    assert isinstance(page, str)
    assert "<html>" in page
    assert message.content is None


async def test_wherever_a_stream_is_truncated_its_stop_is_missing(simulator: Simulator, client: AsyncAnthropic) -> None:
    """The SDK returns a message all the same; only the absent message_stop tells."""
    simulator.script([{"then": {"answer": "A short answer, cut."}}])
    whole = await events_of(client)
    assert whole[-1] == "message_stop"

    for place in range(0, 1001, 25):
        simulator.script([{"then": {"answer": "A short answer, cut.", "fault": "truncate", "at": place / 1001}}])
        names = await events_of(client)

        assert names == whole[: len(names)]
        assert "message_stop" not in names


async def test_a_message_without_its_stop_looks_complete(simulator: Simulator, client: AsyncAnthropic) -> None:
    simulator.script([{"then": {"answer": "All of it.", "fault": "no_message_stop"}}])

    assert (await events_of(client))[-1] == "message_delta"
    assert (await ask(client)).stop_reason == "end_turn"


async def events_of(client: AsyncAnthropic) -> list[str]:
    stream = await client.messages.create(
        model="a-model", max_tokens=99, messages=[{"role": "user", "content": "Hello"}], stream=True
    )
    return [event.type async for event in stream]


async def test_an_error_inside_a_stream_tells_its_type_and_not_its_status(
    simulator: Simulator, client: AsyncAnthropic
) -> None:
    simulator.script([{"then": {"fault": "error_event", "error_type": "invalid_request_error"}}])

    with pytest.raises(anthropic.APIStatusError) as raised:
        await ask(client)

    assert (raised.value.type, raised.value.status_code) == ("invalid_request_error", 200)


@pytest.mark.parametrize(
    ("given", "sent"), [(30, "30"), (86400, "86400"), (-1, "-1"), ("banana", "banana"), (None, None)]
)
async def test_retry_after_is_sent_as_written(
    simulator: Simulator, client: AsyncAnthropic, given: object, sent: str | None
) -> None:
    simulator.script([{"then": {"fault": "rate_limit", "retry_after": given}}])

    with pytest.raises(anthropic.RateLimitError) as raised:
        await ask(client)

    assert raised.value.response.headers.get("retry-after") == sent
    assert raised.value.type == "rate_limit_error"
    body = raised.value.body
    assert isinstance(body, dict)
    assert body["request_id"] == raised.value.request_id


@pytest.mark.parametrize("claim", [-5, 10**12])
async def test_usage_can_lie_and_the_bill_does_not(simulator: Simulator, client: AsyncAnthropic, claim: int) -> None:
    simulator.script([{"then": {"answer": "Four", "usage": {"output_tokens": claim}}}])

    message = await ask(client)

    assert message.usage.output_tokens == claim
    await ended(simulator)
    assert simulator.log[0].billed.output == 1


async def test_a_hang_can_end(simulator: Simulator, client: AsyncAnthropic) -> None:
    """With `seconds`, the connection is closed by the server, and the client has not left."""
    simulator.script([{"then": {"fault": "hang_before_headers", "seconds": 0.05}}])

    with pytest.raises(anthropic.APIConnectionError):
        await ask(client)

    await ended(simulator)
    assert not simulator.log[0].client_left


# --- what is refused ---


async def test_a_request_without_a_key_is_refused(http: httpx2.AsyncClient) -> None:
    response = await http.post("/v1/messages", json={})

    assert response.status_code == 401
    assert response.json()["error"]["type"] == "authentication_error"


async def test_a_bearer_token_is_a_key_too(simulator: Simulator) -> None:
    async with AsyncAnthropic(auth_token="a-token", base_url=simulator.url, max_retries=0) as client:  # noqa: S106
        assert (await ask(client)).stop_reason == "end_turn"


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"model": None}, "model"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user", "content": ""}]}, "messages.0.content"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages.0.content.0.text"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages.0.role"),
    ],
)
async def test_a_body_that_is_no_request_is_refused(
    simulator: Simulator, http: httpx2.AsyncClient, change: dict[str, object], complaint: str
) -> None:
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "x"}]} | change

    response = await http.post("/v1/messages", json=body, headers={"x-api-key": "k"})

    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"
    assert response.json()["error"]["message"].startswith(complaint)
    assert simulator.log[0].status == 400


async def test_a_body_that_is_not_json_is_refused(http: httpx2.AsyncClient) -> None:
    response = await http.post("/v1/messages", content=b'{"model": ', headers={"x-api-key": "k"})

    assert response.status_code == 400
    assert "not valid JSON" in response.json()["error"]["message"]


# --- limits ---


async def test_a_request_over_the_limit_gets_429_with_all_headers(simulator: Simulator, client: AsyncAnthropic) -> None:
    simulator.script([], limits={"requests": 1, "output_tokens": 6000})

    first = await client.messages.with_raw_response.create(
        model="a-model", max_tokens=9, messages=[{"role": "user", "content": "Hello"}]
    )
    with pytest.raises(anthropic.RateLimitError) as raised:
        await ask(client)

    assert first.headers["anthropic-ratelimit-requests-remaining"] == "0"
    headers = raised.value.response.headers
    assert 30 < int(headers["retry-after"]) <= 60  # what is left of the minute, however long the two calls took
    assert headers["anthropic-ratelimit-requests-limit"] == "1"
    assert headers["anthropic-ratelimit-output-tokens-limit"] == "6000"
    assert "anthropic-ratelimit-input-tokens-limit" not in headers
    assert datetime.fromisoformat(headers["anthropic-ratelimit-requests-reset"]).tzinfo is not None
    assert [entry.billed.input > 0 for entry in simulator.log] == [True, False]


async def test_unused_output_is_given_back_at_the_end(simulator: Simulator, client: AsyncAnthropic) -> None:
    """max_tokens is charged ahead: it stands in the way of others while the call runs, and no longer after it."""
    rules: list[dict[str, Any]] = [{"when": {"task": "hold"}, "then": HANG}, {"then": {"answer": "Four"}}]
    simulator.script(rules, limits={"output_tokens": 400})
    holding = asyncio.create_task(ask(client, "Task: hold", max_tokens=300))
    await simulator.until(lambda: simulator.in_flight == 1)

    with pytest.raises(anthropic.RateLimitError):
        await ask(client, max_tokens=300)
    await given_up(holding)
    await ended(simulator)

    for _ in range(3):
        assert (await ask(client, max_tokens=300)).usage.output_tokens == 1


def test_a_bucket_refills_continuously() -> None:
    """60 a minute and a burst of 2: two at once, then one a second, and never more than the burst."""
    limiter = Limiter(Limits(requests=60, burst=2 / 60))

    def wait(now: float) -> float:
        return limiter.admit("m", input_tokens=1, output_tokens=1, now=now)

    assert [wait(0), wait(0)] == [0, 0]
    assert wait(0) == pytest.approx(1)
    assert wait(0.5) == pytest.approx(0.5)
    assert wait(1.0) == 0
    assert [wait(100), wait(100), wait(100) > 0] == [0, 0, True]
    assert limiter.admit("another", input_tokens=1, output_tokens=1, now=100) == 0


def test_an_ask_larger_than_the_bucket_passes_when_it_is_full_and_leaves_a_debt() -> None:
    limiter = Limiter(Limits(output_tokens=60))

    assert limiter.admit("m", input_tokens=1, output_tokens=120, now=0) == 0
    assert limiter.admit("m", input_tokens=1, output_tokens=1, now=0) == pytest.approx(61)
    assert limiter.standings("m", 0)["output-tokens"].remaining == 0


# --- time ---


async def test_an_answer_takes_its_time(simulator: Simulator, client: AsyncAnthropic) -> None:
    """0.1 s to the first token, then 40 tokens at 200 a second."""
    simulator.script([{"then": {"answer_tokens": 40, "ttft": 0.1, "tokens_per_second": 200}}])

    await ask(client)

    await ended(simulator)
    assert duration(simulator) >= 0.3 - 0.01


async def test_above_capacity_everything_takes_longer(simulator: Simulator, client: AsyncAnthropic) -> None:
    """Four calls in flight where one fits: the fourth waits four times as long for its first token."""
    rules: list[dict[str, Any]] = [{"when": {"task": "hold"}, "then": HANG}, {"then": {"ttft": 0.05}}]
    simulator.script(rules, capacity=1)
    holding = [asyncio.create_task(ask(client, "Task: hold")) for _ in range(3)]
    await simulator.until(lambda: simulator.in_flight == 3)

    await ask(client)

    await simulator.until(lambda: simulator.in_flight == 3)
    assert duration(simulator) >= 0.2 - 0.01
    await given_up(*holding)


async def test_a_call_that_is_refused_slows_nobody_down(simulator: Simulator, client: AsyncAnthropic) -> None:
    """Of 20 calls at once one is admitted, and takes as long as it would alone."""
    simulator.script([], capacity=1, limits={"requests": 1})
    stretches: list[float] = []

    def look() -> bool:
        stretches.append(simulator._stretch())
        return False

    watching = asyncio.create_task(simulator.until(look))

    answers = await asyncio.gather(*(ask(client) for _ in range(20)), return_exceptions=True)

    watching.cancel()
    assert sum(isinstance(answer, anthropic.RateLimitError) for answer in answers) == 19
    assert {*stretches} == {1.0}


def duration(simulator: Simulator) -> float:
    entry = simulator.log[-1]
    assert entry.ended is not None
    return entry.ended - entry.started


# --- the script ---


async def test_the_first_rule_that_matches_wins(simulator: Simulator, client: AsyncAnthropic) -> None:
    simulator.script(
        [
            {"when": {"task": "scan", "nth": 2}, "then": {"answer": "second scan"}},
            {"when": {"contains": "moon", "nth": [1, 2]}, "then": {"answer": "moon"}},
            {"when": {"model": "another"}, "then": {"answer": "never"}},
            {"then": {"answer": "else"}},
        ]
    )

    contents = ["Task: scan\nx", "Task: scan\nx", "Task: scan\nx", "the moon", "a moon", "no moon", "the sun"]
    answers = [text_of(await ask(client, content)) for content in contents]

    assert answers == ["else", "second scan", "else", "moon", "moon", "else", "else"]
    assert (simulator.calls("scan"), simulator.calls()) == (3, 7)


async def test_a_script_can_be_replaced_over_http(
    simulator: Simulator, client: AsyncAnthropic, http: httpx2.AsyncClient
) -> None:
    """A good one takes the place of the old one, with its settings; a bad one changes nothing."""
    script = {"config": {"seed": 7}, "rules": [{"then": {"answer": "posted"}}]}

    accepted = await http.post("/script", json=script)
    refused = await http.post("/script", json={"config": {"seed": 8}, "rules": [{"then": {"fault": "gremlin"}}]})

    assert (accepted.status_code, refused.status_code) == (200, 400)
    assert "unknown fault 'gremlin'" in refused.json()["error"]["message"]
    assert text_of(await ask(client)) == "posted"
    assert (simulator.config.seed, simulator.config.ttft) == (7, 0)


async def test_scripts_of_plans_stand_beside_each_other_and_before_the_general_one(
    simulator: Simulator, client: AsyncAnthropic, http: httpx2.AsyncClient
) -> None:
    """Each holds for the requests of its own plan; what it leaves open, the general rules say."""
    general = [{"when": {"plan": "other"}, "then": {"answer": "by condition"}}, {"then": {"answer": "general"}}]
    await http.post("/script", json={"rules": general})
    for plan in ("tea", "coffee", "café"):
        own = {"rules": [{"when": {"task": "scan"}, "then": {"answer": f"for {plan}"}}]}
        assert (await http.post("/script", params={"plan": plan}, json=own)).status_code == 200

    async def answer(task: str, plan: str) -> str:
        return text_of(await ask(client, f"Task: {task}\nPlan: {plan}\nAgent: a@1"))

    assert [await answer("scan", plan) for plan in ("tea", "coffee", "café")] == ["for tea", "for coffee", "for café"]
    assert [await answer("sum", "tea"), await answer("scan", "other")] == ["general", "by condition"]
    await http.post("/script", params={"plan": "tea"}, json={"rules": [{"then": {"answer": "new"}}]})
    await http.post("/script", params={"plan": "coffee"}, json={})
    await http.post("/script", json={"rules": [{"then": {"answer": "anew"}}]})
    assert [await answer("scan", plan) for plan in ("tea", "coffee", "café")] == ["new", "anew", "for café"]
    assert text_of(await ask(client, "Plan: tea\nTask: scan")) == "anew"  # no heading of a task: of no plan


async def test_every_rule_counts_whichever_script_wins(simulator: Simulator, client: AsyncAnthropic) -> None:
    """`nth` of a general rule counts the requests that a plan's own rule has taken, as it does within one script."""
    simulator.script([{"when": {"task": "scan", "nth": 2}, "then": {"answer": "second"}}, {"then": {"answer": "else"}}])
    simulator.follow(read_script("rules: [{when: {nth: 1}, then: {answer: own}}]"), plan="tea")

    answers = [text_of(await ask(client, "Task: scan\nPlan: tea\n")) for _ in range(3)]

    assert answers == ["own", "second", "else"]


async def test_settings_of_a_plan_hold_for_its_requests_alone(simulator: Simulator, client: AsyncAnthropic) -> None:
    """And what they leave out is what holds for everybody at that moment."""
    simulator.follow(read_script("config: {answer_tokens: [20, 20]}"), plan="tea")
    simulator.script([], answer_tokens=(200, 200), seed=5)

    tea = await ask(client, "Task: scan\nPlan: tea\nDescribe the harbour.")
    other = await ask(client, "Task: scan\nPlan: coffee\nDescribe the harbour.")

    assert len(text_of(tea)) < len(text_of(other))
    assert simulator.config.answer_tokens == (200, 200)


@pytest.mark.parametrize(
    ("query", "script", "complaint"),
    [
        ("?plan=tea", "config: {limits: {requests: 5}}", "config.limits: holds for the whole simulator"),
        ("?plan=tea", "config: {capacity: 5}", "config.capacity: holds for the whole simulator"),
        ("?plan=tea", "rules: [{when: {plan: milk}, then: {}}]", "rules.0.when.plan: 'milk' in a script for"),
        ("?plan=", "rules: []", "nothing but one plan=NAME"),
        ("?plan=a&plan=b", "rules: []", "nothing but one plan=NAME"),
        ("?plam=tea", "rules: []", "nothing but one plan=NAME"),
    ],
)
async def test_a_script_that_cannot_hold_for_one_plan_is_refused_and_changes_nothing(
    simulator: Simulator, client: AsyncAnthropic, http: httpx2.AsyncClient, query: str, script: str, complaint: str
) -> None:
    simulator.script([{"then": {"answer": "as before"}}])

    refused = await http.post(f"/script{query}", content=script)

    assert (refused.status_code, complaint in refused.json()["error"]["message"]) == (400, True)
    assert text_of(await ask(client, "Task: scan\nPlan: tea\n")) == "as before"


@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        ("rules: [{then: {answr: x}}]", "rules.0.then.answr: Extra inputs"),
        ("rules: [{then: {fault: truncate, seconds: 3}}]", "seconds: not a parameter of fault 'truncate'"),
        ("rules: [{then: {fault: truncate, at: 0.5, after_bytes: 3}}]", "at or after_bytes, not both"),
        ("rules: [{then: {at: 0.5}}]", "at: not a parameter of an answer without a fault"),
        ("rules: [{then: {answer: x, answer_bytes: 3}}]", "one of answer, answer_bytes"),
        ("rules: [{when: {nth: 0}, then: {answer: x}}]", "rules.0.when.nth"),
        ("config: {ttft: -1}", "config.ttft"),
        ("config: {answer_tokens: [9, 3]}", "must ascend"),
        ("rules:\n  - {then: {answer: x}", "not YAML: line 2, column"),
    ],
)
def test_a_script_with_a_mistake_is_refused_with_its_place(script: str, complaint: str) -> None:
    with pytest.raises(ScriptError) as raised:
        read_script(script)

    assert complaint in str(raised.value)


# --- chance ---


async def test_answers_depend_on_seed_and_prompt_and_not_on_the_order_of_arrival() -> None:
    prompts = [f"Task: t{number}\nDescribe the harbour." for number in range(5)]

    async def answers(seed: int, order: list[str]) -> dict[str, list[str]]:
        async with Simulator(INSTANT.changed({"seed": seed})) as simulator, client_of(simulator.url) as client:
            return {prompt: [text_of(await ask(client, prompt)) for _ in range(2)] for prompt in order}

    forward, backward, other = await answers(1, prompts), await answers(1, prompts[::-1]), await answers(2, prompts)

    assert forward == backward
    assert forward != other
    assert any(first != second for first, second in forward.values())  # asked twice, a model says two things


# --- the bill ---


async def test_calls_in_flight_are_counted(
    simulator: Simulator, client: AsyncAnthropic, http: httpx2.AsyncClient
) -> None:
    simulator.script([{"then": HANG}])
    calls = [asyncio.create_task(ask(client)) for _ in range(3)]
    await simulator.until(lambda: simulator.in_flight == 3)
    assert (await http.get("/in-flight")).json() == {"now": 3, "peak": 3}

    await given_up(*calls)
    await ended(simulator)
    simulator.script([])
    await ask(client)
    await ended(simulator)

    assert (await http.get("/in-flight")).json() == {"now": 0, "peak": 3}
    assert [entry.in_flight for entry in simulator.log] == [1, 2, 3, 1]
    assert [(entry.client_left, entry.status) for entry in simulator.log] == [(True, None)] * 3 + [(False, 200)]


async def test_a_call_is_over_when_its_client_has_it(simulator: Simulator) -> None:
    """Whoever calls one after another is never seen in flight twice, whichever way the calls end."""
    simulator.script(
        [
            {"when": {"contains": "reset"}, "then": {"fault": "reset_mid_stream"}},
            {"when": {"contains": "close"}, "then": {"fault": "close_mid_chunk"}},
            {"when": {"contains": "hang"}, "then": {"fault": "hang_after_headers"}},
        ]
    )
    # Two in turn, so that a call is never on the connection of the one before it.
    clients = [httpx2.AsyncClient(base_url=simulator.url, headers={"x-api-key": "k"}) for _ in range(2)]

    for number in range(48):
        content = ("whole", "reset", "close", "hang")[number % 4]
        messages = [{"role": "user", "content": content}]
        asked = {"model": "m", "max_tokens": 99, "stream": number % 8 < 4, "messages": messages}
        with contextlib.suppress(httpx2.TransportError):
            patience = httpx2.Timeout(10, read=0.1 if content == "hang" else 10)
            await clients[number % 2].post("/v1/messages", json=asked, timeout=patience)
    for client in clients:
        await client.aclose()

    assert len(simulator.log) == 48
    assert {entry.in_flight for entry in simulator.log} == {1}


async def given_up(*calls: asyncio.Task[Any]) -> None:
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)


async def test_a_client_that_leaves_pays_for_what_was_made(simulator: Simulator, client: AsyncAnthropic) -> None:
    """Noticed at once: the rest of an answer of 50 seconds is neither made nor billed."""
    simulator.script([{"then": {"answer_tokens": 1000, "ttft": 0, "tokens_per_second": 20}}])

    async with client.messages.stream(
        model="a-model", max_tokens=2000, messages=[{"role": "user", "content": "Hello"}]
    ) as stream:
        async for event in stream:
            if event.type == "text":
                break
    await ended(simulator)

    (entry,) = simulator.log
    assert entry.client_left
    assert 0 < entry.billed.output < 500
    assert entry.billed.input == 2
    assert (entry.status, entry.stop_reason, simulator.in_flight) == (200, None, 0)
    assert duration(simulator) < 25


async def test_a_cut_stream_is_billed_for_what_was_made(simulator: Simulator, client: AsyncAnthropic) -> None:
    then = {"answer_tokens": 300, "tokens_per_second": 500, "fault": "reset_mid_stream"}
    billed = []
    for at in (0.0, 0.5, 1.0):
        simulator.script([{"then": {**then, "at": at}}])
        with pytest.raises(httpx2.ReadError):
            await ask(client, max_tokens=300)
        await ended(simulator)
        billed.append(simulator.log[-1].billed.output)

    assert billed[0] == 0
    assert billed[2] == 300
    assert all(less < more for less, more in pairwise(billed))


async def test_the_bill_is_served_in_parts_and_can_be_started_anew(
    simulator: Simulator, client: AsyncAnthropic, http: httpx2.AsyncClient
) -> None:
    for task in ("a", "b", "c"):
        await ask(client, f"Task: {task}\nx", metadata={"user_id": "run-1"})

    entries = (await http.get("/log", params={"after": 1})).json()

    assert [(entry["number"], entry["task"], entry["user"]) for entry in entries] == [
        (2, "b", "run-1"),
        (3, "c", "run-1"),
    ]
    assert (await http.get("/log", params={"after": "x"})).status_code == 400
    assert (await http.delete("/log")).status_code == 200
    assert (await http.get("/log")).json() == []
    await ask(client)
    assert [entry["number"] for entry in (await http.get("/log")).json()] == [4]


async def test_the_bill_has_every_field_and_no_text(
    simulator: Simulator, client: AsyncAnthropic, http: httpx2.AsyncClient
) -> None:
    """Prompts and answers may be secret. In this process a test can read the requests; nobody can over HTTP."""
    simulator.script([{"then": {"answer": "canary-answer"}}])
    await ask(client, "Task: scan\ncanary-prompt", system="canary-system")

    served = (await http.get("/log")).text

    assert "canary" not in served
    assert set(json.loads(served)[0]) == {
        *("number", "path", "task", "user", "model", "max_tokens", "prompt_hash", "prompt_bytes", "started", "ended"),
        *("in_flight", "status", "fault", "stop_reason", "billed", "client_left", "documents"),
        *("batch", "batch_id", "custom_id"),
    }
    assert simulator.log[0].prompt_bytes == len("canary-systemTask: scan\ncanary-prompt")
    (request,) = simulator.requests
    assert "canary-prompt" in json.dumps(request)


async def test_a_connection_serves_many_requests(simulator: Simulator) -> None:
    """Also when the second comes before the first is answered."""
    reader, writer = await asyncio.open_connection("127.0.0.1", simulator.port)
    writer.write(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n" * 2)

    bodies = [await reader.readuntil(b'{"ok": true}') for _ in range(2)]

    writer.close()
    await writer.wait_closed()
    assert all(body.startswith(b"HTTP/1.1 200") for body in bodies)


async def test_an_unknown_route_is_not_found(http: httpx2.AsyncClient) -> None:
    response = await http.get("/v1/models")

    assert response.status_code == 404
    assert response.json()["error"]["type"] == "not_found_error"


# --- the process ---


async def start(*arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "simulator", *arguments),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_the_process_serves_and_stops_when_told(tmp_path: Path, number: signal.Signals) -> None:
    """Ready with one line; exit 0 even with a call in flight, which is on the bill like the one before it."""
    script, log = tmp_path / "script.yaml", tmp_path / "bill.jsonl"
    script.write_text("config: {ttft: 9, seed: 3}\nrules: [{when: {task: hold}, then: {fault: hang_after_headers}}]")
    process = await start("--script", str(script), "--log", str(log), "--ttft", "0", "--tokens-per-second", "0")
    assert process.stdout is not None
    ready = json.loads(await process.stdout.readline())
    async with client_of(ready["url"]) as client:
        assert ready["url"] == f"http://127.0.0.1:{ready['port']}"
        await ask(client)
        await client.messages.create(
            model="m", max_tokens=9, messages=[{"role": "user", "content": "Task: hold"}], stream=True
        )

        process.send_signal(number)
        out, err = await process.communicate()

    assert (process.returncode, out, err) == (0, b"", b"")
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(entry["task"], entry["fault"]) for entry in entries] == [("scan", None), ("hold", "hang_after_headers")]


async def test_the_bill_outlives_a_killed_process(tmp_path: Path) -> None:
    log = tmp_path / "bill.jsonl"
    for _ in range(2):
        process = await start("--log", str(log), "--ttft", "0", "--tokens-per-second", "0")
        assert process.stdout is not None
        async with client_of(json.loads(await process.stdout.readline())["url"]) as client:
            await ask(client)
            await ask(client)  # so that the first has surely ended
            process.kill()
            await process.communicate()

    assert len(log.read_text().splitlines()) >= 2


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--jitter", "3"], "jitter: Input should be less than or equal to 1"),
        (["--script", "SCRIPT"], "unknown fault 'gremlin'"),
        (["--requests-per-minute", "0"], "limits.requests"),
    ],
)
async def test_a_wrong_command_line_is_refused(tmp_path: Path, arguments: list[str], complaint: str) -> None:
    script = tmp_path / "script.yaml"
    script.write_text("rules: [{then: {fault: gremlin}}]")

    process = await start(*(str(script) if argument == "SCRIPT" else argument for argument in arguments))
    out, err = await process.communicate()

    assert (process.returncode, out) == (2, b"")
    assert complaint in err.decode()


SUMMARY_ASKED = 'Task: scan\nSay it.\n\nClose with a summary below this line:\n<summary mark="0123456789ab">'


async def test_an_answer_ends_with_the_summary_that_is_asked_for(simulator: Simulator, client: AsyncAnthropic) -> None:
    """A script may say which, or that it is forgotten."""
    simulator.script(
        [
            {"when": {"nth": 2}, "then": {"answer": "Exactly this.", "summary": "In short."}},
            {"when": {"nth": 3}, "then": {"answer": "Exactly this.", "summary": False}},
            {"when": {"nth": 4}, "then": {"answer_bytes": 200}},
        ]
    )

    made_up, scripted, forgotten, sized = [text_of(await ask(client, SUMMARY_ASKED)) for _ in range(4)]
    not_asked = text_of(await ask(client, SUMMARY_ASKED + "\nAnd more."))

    mark = '\n\n<summary mark="0123456789ab">\n'
    assert made_up.split(mark)[1].startswith("[Simulated summary] In short, on ")
    assert scripted == f"Exactly this.{mark}In short."
    assert forgotten == "Exactly this."
    assert len(sized.split(mark)[0]) == 200
    assert "<summary" not in not_asked
