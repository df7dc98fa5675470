"""The prompt cache of the stand-in, met over HTTP by the real SDK."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import anthropic
import pytest
from anthropic import AsyncAnthropic
from anthropic.types import Usage

from simulator import Config, Limits, Simulator
from simulator.caching import Cache, boundaries

INSTANT = Config(ttft=0, tokens_per_second=0, cache_minimum=100)
LONG = "x" * 400
"""100 tokens: just enough to be kept."""


@pytest.fixture
async def simulator() -> AsyncIterator[Simulator]:
    async with Simulator(INSTANT) as simulator:
        yield simulator


@pytest.fixture
async def client(simulator: Simulator) -> AsyncIterator[AsyncAnthropic]:
    async with AsyncAnthropic(api_key="a-key", base_url=simulator.url, max_retries=0, timeout=60) as client:
        yield client


def block(text: str, *, mark: bool = False, **mark_more: str) -> dict[str, Any]:
    return {"type": "text", "text": text, **({"cache_control": {"type": "ephemeral", **mark_more}} if mark else {})}


async def ask(client: AsyncAnthropic, *content: dict[str, Any], model: str = "a-model", **more: Any) -> Usage:
    messages: Any = [{"role": "user", "content": [*content]}]
    async with client.messages.stream(model=model, max_tokens=9, messages=messages, **more) as stream:
        return (await stream.get_final_message()).usage


def figures(usage: Usage) -> tuple[int, int | None, int | None]:
    return usage.input_tokens, usage.cache_creation_input_tokens, usage.cache_read_input_tokens


async def test_the_first_call_writes_and_the_next_one_reads(simulator: Simulator, client: AsyncAnthropic) -> None:
    """Input tokens are only the rest, in what the client is told and on the bill."""
    first = await ask(client, block(LONG, mark=True), block("abcd"))
    second = await ask(client, block(LONG, mark=True), block("efghijkl"))

    assert (figures(first), figures(second)) == ((1, 100, 0), (2, 0, 100))
    bills = [(entry.billed.input, entry.billed.cache_write, entry.billed.cache_read) for entry in simulator.log]
    assert bills == [(1, 100, 0), (2, 0, 100)]


@pytest.mark.parametrize(
    ("content", "more"),
    [
        ([block("y" + LONG, mark=True)], {}),
        ([block("y"), block(LONG, mark=True)], {}),
        ([block(LONG, mark=True)], {"system": "s"}),
        ([block(LONG, mark=True)], {"model": "another-model"}),
        ([block(LONG, mark=True)], {"tools": [{"name": "look", "input_schema": {"type": "object"}}]}),
        ([block(LONG)], {}),
    ],
    ids=["another text", "another beginning", "another system", "another model", "other tools", "no mark"],
)
async def test_only_the_same_prefix_of_the_same_model_is_read(
    client: AsyncAnthropic, content: list[dict[str, Any]], more: dict[str, Any]
) -> None:
    await ask(client, block(LONG, mark=True))

    usage = await ask(client, *content, **more)

    assert usage.cache_read_input_tokens == 0


async def test_a_mark_in_the_system_prompt_keeps_it_for_every_message(client: AsyncAnthropic) -> None:
    system = [block(LONG, mark=True)]

    await ask(client, block("one"), system=system)
    usage = await ask(client, block("two"), system=system)

    assert figures(usage) == (1, 0, 100)


async def test_a_longer_prefix_reads_the_shorter_one_and_writes_the_rest(client: AsyncAnthropic) -> None:
    """It looks back from its own mark: the earlier one need not be repeated."""
    await ask(client, block(LONG, mark=True))

    usage = await ask(client, block(LONG), block("z" * 80, mark=True))

    assert figures(usage) == (0, 20, 100)


async def test_what_is_too_short_is_not_kept(client: AsyncAnthropic) -> None:
    """And nothing says so: the request is billed as any other."""
    await ask(client, block(LONG[:-4], mark=True))

    assert figures(await ask(client, block(LONG[:-4], mark=True))) == (99, 0, 0)


async def test_a_mark_on_the_whole_request_is_one_on_its_last_block(client: AsyncAnthropic) -> None:
    mark: dict[str, Any] = {"cache_control": {"type": "ephemeral"}}

    first = await ask(client, block(LONG), **mark)
    second = await ask(client, block(LONG), **mark)

    assert (figures(first), figures(second)) == ((0, 100, 0), (0, 0, 100))


async def test_more_than_four_marks_are_refused(client: AsyncAnthropic) -> None:
    with pytest.raises(anthropic.BadRequestError, match="maximum of 4"):
        await ask(client, *(block("x", mark=True) for _ in range(5)))


async def test_a_prefix_is_readable_only_once_the_answer_that_writes_it_has_begun(
    simulator: Simulator, client: AsyncAnthropic
) -> None:
    """Calls that leave together all write; one that waits for the first token of another reads."""
    prefix = block(LONG, mark=True)
    simulator.script([{"when": {"contains": "early"}, "then": {"ttft": 100}}], tokens_per_second=1)

    early = [asyncio.create_task(ask(client, prefix, block(f"early {number}"))) for number in range(2)]
    async with asyncio.timeout(60):
        await simulator.until(lambda: simulator.calls() == 2)
        third = await _begun(client, prefix)
        fourth = await _begun(client, prefix)

    assert [entry.billed.cache_write for entry in simulator.log] == [100, 100, 100, 0]
    assert (third, fourth) == (100, 0)
    for task in early:
        task.cancel()
    await asyncio.gather(*early, return_exceptions=True)


async def _begun(client: AsyncAnthropic, prefix: dict[str, Any]) -> int | None:
    """What a call writes, left as soon as its answer has begun."""
    messages: Any = [{"role": "user", "content": [prefix]}]
    async with await client.messages.create(model="a-model", max_tokens=9, messages=messages, stream=True) as stream:
        async for event in stream:
            assert event.type == "message_start"
            return event.message.usage.cache_creation_input_tokens
    return None


def test_an_unused_prefix_is_forgotten_and_use_keeps_it() -> None:
    """Time is the cache's own argument: nobody waits five minutes for this."""
    cache, prefix = Cache(), boundaries("a-model", [("a", 100, "5m")])
    cache.begin(cache.look(prefix, minimum=1, now=0), life=300, now=0)

    assert cache.look(prefix, minimum=1, now=299).read == 100
    cache.use(cache.look(prefix, minimum=1, now=299), now=299)
    assert cache.look(prefix, minimum=1, now=598).read == 100
    assert cache.look(prefix, minimum=1, now=599).read == 0


async def test_what_is_read_from_the_cache_does_not_count_for_the_limits(
    simulator: Simulator, client: AsyncAnthropic
) -> None:
    simulator.script([], limits=Limits(input_tokens=150))
    prefix = block(LONG, mark=True)

    await ask(client, prefix)
    for _ in range(3):
        await ask(client, prefix, block("1234"))

    with pytest.raises(anthropic.RateLimitError):
        await ask(client, block(LONG))


async def test_a_call_that_is_refused_writes_nothing(simulator: Simulator, client: AsyncAnthropic) -> None:
    simulator.script([{"when": {"nth": 1}, "then": {"fault": "overloaded"}}])
    with pytest.raises(anthropic.APIStatusError):
        await ask(client, block(LONG, mark=True))

    usage = await ask(client, block(LONG, mark=True))

    assert figures(usage) == (0, 100, 0)
