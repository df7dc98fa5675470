"""Message batches of the stand-in, met over HTTP by the real SDK."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import pytest
from anthropic import AsyncAnthropic
from anthropic.types import TextBlock
from anthropic.types.messages import MessageBatchIndividualResponse

from simulator import Config, Limits, Simulator

AT_ONCE = Config(ttft=0, tokens_per_second=0, batch_seconds=0)


@pytest.fixture
async def simulator(tmp_path: Path) -> AsyncIterator[Simulator]:
    async with Simulator(AT_ONCE, log_file=tmp_path / "bill.jsonl") as simulator:
        yield simulator


@pytest.fixture
async def client(simulator: Simulator) -> AsyncIterator[AsyncAnthropic]:
    async with AsyncAnthropic(api_key="a-key", base_url=simulator.url, max_retries=0, timeout=10) as client:
        yield client


def request(custom_id: str, content: Any = None, **params: Any) -> Any:
    messages = [{"role": "user", "content": content or f"Task: {custom_id}\nSay it."}]
    return {"custom_id": custom_id, "params": {"model": "a-model", "max_tokens": 50, "messages": messages, **params}}


async def results(client: AsyncAnthropic, id: str) -> dict[str, MessageBatchIndividualResponse]:
    return {line.custom_id: line async for line in await client.messages.batches.results(id)}


async def test_a_batch_brings_an_answer_for_every_request(
    simulator: Simulator, client: AsyncAnthropic, tmp_path: Path
) -> None:
    """By custom id, in no order that one could count on; each is billed once, as part of a batch."""
    simulator.script([{"when": {"task": "b"}, "then": {"answer": "Eight...Eight..."}}])

    made = await client.messages.batches.create(requests=[request("a"), request("b"), request("c")])
    ended = await client.messages.batches.retrieve(made.id)
    lines = await results(client, made.id)
    again = await results(client, made.id)

    assert (made.processing_status, made.request_counts.processing, made.results_url) == ("in_progress", 3, None)
    assert (ended.processing_status, ended.request_counts.succeeded, ended.request_counts.processing) == ("ended", 3, 0)
    assert ended.ended_at is not None
    assert ended.ended_at >= ended.created_at
    assert list(lines) != sorted(lines) == ["a", "b", "c"]
    assert lines.keys() == again.keys()
    result = lines["b"].result
    assert result.type == "succeeded"
    (block,) = result.message.content
    assert isinstance(block, TextBlock)
    assert (block.text, result.message.usage.output_tokens) == ("Eight...Eight...", 4)
    assert result.message.usage.service_tier == "batch"
    paid = [entry for entry in simulator.log if entry.batch]
    assert [(entry.custom_id, entry.task, entry.batch_id) for entry in paid] == [
        (id, id, made.id) for id in ("a", "b", "c")
    ]
    assert (paid[1].billed.input, paid[1].billed.output) == (result.message.usage.input_tokens, 4)
    assert [(entry.path, entry.batch_id) for entry in simulator.log if not entry.batch] == [
        ("/v1/messages/batches", made.id)
    ]
    written = [json.loads(line) for line in (tmp_path / "bill.jsonl").read_text().splitlines()]
    assert [line["batch"] for line in written] == [False, True, True, True]
    assert simulator.peak == 0


async def test_a_batch_takes_its_time(simulator: Simulator, client: AsyncAnthropic) -> None:
    """Until it has ended there are no results and no bill. It ends without anybody looking, or never."""
    simulator.script([], batch_seconds=None)
    made = await client.messages.batches.create(requests=[request("a")])

    going = await client.messages.batches.retrieve(made.id)
    with pytest.raises(anthropic.AnthropicError, match="in_progress"):
        await client.messages.batches.results(made.id)
    assert (going.processing_status, simulator.calls()) == ("in_progress", 0)

    simulator.script([], batch_seconds=0.01)
    async with asyncio.timeout(10):
        await simulator.until(lambda: simulator.calls() == 1)
    assert (await client.messages.batches.retrieve(made.id)).processing_status == "ended"


async def test_some_requests_of_a_batch_fail_or_expire(simulator: Simulator, client: AsyncAnthropic) -> None:
    """They cost nothing, and the others are not touched. A request that is none is found while it is worked on."""
    simulator.script(
        [
            {"when": {"task": "faulty", "batch": "request"}, "then": {"fault": "overloaded", "message": "full"}},
            {"when": {"task": "late"}, "then": {"expires": True}},
        ]
    )
    asked = [request("faulty"), request("late"), request("odd", max_tokens=0), request("good")]

    made = await client.messages.batches.create(requests=asked)
    lines = await results(client, made.id)
    counts = (await client.messages.batches.retrieve(made.id)).request_counts

    faulty, odd = lines["faulty"].result, lines["odd"].result
    assert faulty.type == odd.type == "errored"
    assert (faulty.error.error.type, faulty.error.error.message) == ("overloaded_error", "full")
    assert odd.error.error.type == "invalid_request_error"
    assert (lines["late"].result.type, lines["good"].result.type) == ("expired", "succeeded")
    assert (counts.errored, counts.expired, counts.succeeded) == (2, 1, 1)
    paid = {entry.custom_id: entry.billed.input + entry.billed.output for entry in simulator.log if entry.batch}
    assert [id for id, tokens in paid.items() if tokens] == ["good"]


async def test_a_batch_can_be_cancelled_before_its_end(simulator: Simulator, client: AsyncAnthropic) -> None:
    simulator.script([], batch_seconds=None)
    made = await client.messages.batches.create(requests=[request("a")])

    told = await client.messages.batches.cancel(made.id)
    ended = await client.messages.batches.retrieve(made.id)
    lines = await results(client, made.id)

    assert (told.processing_status, ended.processing_status) == ("canceling", "ended")
    assert ended.cancel_initiated_at == told.cancel_initiated_at is not None
    assert lines["a"].result.type == "canceled"
    assert simulator.calls() == 0
    with pytest.raises(anthropic.BadRequestError):
        await client.messages.batches.cancel(made.id)


async def test_batches_are_listed_newest_first_by_pages(client: AsyncAnthropic) -> None:
    made = [(await client.messages.batches.create(requests=[request("a")])).id for _ in range(5)]

    page = await client.messages.batches.list(limit=2)
    everything = [batch.id async for batch in client.messages.batches.list(limit=2)]
    after = await client.messages.batches.list(limit=2, after_id=made[1])
    before = await client.messages.batches.list(limit=2, before_id=made[1])

    assert ([batch.id for batch in page.data], page.has_more) == ([made[4], made[3]], True)
    assert everything == made[::-1]
    assert ([batch.id for batch in after.data], after.has_more) == ([made[0]], False)
    assert ([batch.id for batch in before.data], before.has_more) == ([made[3], made[2]], True)


async def test_the_same_requests_again_are_another_batch(simulator: Simulator, client: AsyncAnthropic) -> None:
    """There is no idempotency key: who asks twice pays twice."""
    same = [request("a")]

    one, two = [await client.messages.batches.create(requests=same) for _ in range(2)]
    await client.messages.batches.retrieve(two.id)

    assert one.id != two.id
    assert simulator.calls() == 2


@pytest.mark.parametrize(
    ("requests", "complaint"),
    [
        ([], "requests"),
        ([request("a"), request("a")], "not unique"),
        ([request("a b")], "custom_id"),
        ([request("a" * 65)], "custom_id"),
        ([{"custom_id": "a"}], "params"),
    ],
    ids=["none", "twice", "odd id", "long id", "no params"],
)
async def test_a_batch_that_is_none_is_refused(
    simulator: Simulator, client: AsyncAnthropic, requests: Any, complaint: str
) -> None:
    with pytest.raises(anthropic.BadRequestError, match=complaint):
        await client.messages.batches.create(requests=requests)

    assert [entry.batch_id for entry in simulator.log] == [None]


async def test_an_unknown_batch_is_not_found(client: AsyncAnthropic) -> None:
    with pytest.raises(anthropic.NotFoundError):
        await client.messages.batches.retrieve("msgbatch_unknown")


async def test_a_batch_can_be_made_whose_maker_never_hears_of_it(simulator: Simulator, client: AsyncAnthropic) -> None:
    """The connection breaks before the answer: the batch is there all the same, and the list has it."""
    simulator.script([{"when": {"batch": "create", "nth": 1}, "then": {"fault": "reset_before_headers"}}])

    with pytest.raises(anthropic.APIConnectionError):
        await client.messages.batches.create(requests=[request("a")])

    (found,) = (await client.messages.batches.list()).data
    assert list(await results(client, found.id)) == ["a"]


async def test_the_making_of_a_batch_can_be_refused(simulator: Simulator, client: AsyncAnthropic) -> None:
    simulator.script([{"when": {"batch": "create", "task": "a"}, "then": {"fault": "rate_limit", "retry_after": 3}}])

    with pytest.raises(anthropic.RateLimitError) as refused:
        await client.messages.batches.create(requests=[request("a")])

    assert refused.value.response.headers["retry-after"] == "3"
    assert (await client.messages.batches.list()).data == []


async def test_rules_for_messages_say_nothing_of_the_making(simulator: Simulator, client: AsyncAnthropic) -> None:
    """A fault for every message spoils the requests in a batch, not the batch."""
    simulator.script([{"then": {"fault": "api_error"}}])

    made = await client.messages.batches.create(requests=[request("a")])

    assert (await results(client, made.id))["a"].result.type == "errored"


async def test_a_batch_does_not_count_for_the_limits_of_calls(simulator: Simulator, client: AsyncAnthropic) -> None:
    simulator.script([], limits=Limits(requests=1))

    made = await client.messages.batches.create(requests=[request(str(number)) for number in range(5)])

    assert {line.result.type for line in (await results(client, made.id)).values()} == {"succeeded"}


async def test_requests_of_a_batch_share_the_prompt_cache(simulator: Simulator, client: AsyncAnthropic) -> None:
    simulator.script([], cache_minimum=100)
    prefix = {"type": "text", "text": "x" * 400, "cache_control": {"type": "ephemeral"}}

    made = await client.messages.batches.create(
        requests=[request(id, [prefix, {"type": "text", "text": id}]) for id in ("a", "b", "c")]
    )
    await results(client, made.id)

    billed = [(entry.billed.cache_write, entry.billed.cache_read) for entry in simulator.log if entry.batch]
    assert billed == [(100, 0), (0, 100), (0, 100)]


async def test_a_batch_without_a_key_is_refused(simulator: Simulator) -> None:
    async with httpx2.AsyncClient(base_url=simulator.url) as http:
        assert (await http.get("/v1/messages/batches")).status_code == 401
