"""Claude through the real SDK over HTTP: every fault has its name, and costs one request."""

from __future__ import annotations

import asyncio
import random
import traceback
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import pytest
from pydantic import ValidationError

from activities import model, reading
from activities.claude import Claude, named_error
from activities.model import Completion, ModelError, answer_of
from activities.reading import AnswerReader
from domain.briefing import Brief
from domain.models import Usage, WallKind
from simulator import Simulator, batch_routes
from simulator.faults import Fault
from simulator.wire import spoil

KEY = "sk-ant-CANARY-KEY"
BODY = "CANARY-BODY"
BRIEF = Brief(
    model="claude-haiku-4-5",
    max_tokens=300,
    system="Be brief.",
    content=({"type": "text", "text": "Task: scan\nPlan: p\nAgent: a@1"}, {"type": "text", "text": "Say it."}),
)


@pytest.mark.parametrize("content", [Path("/etc/passwd"), {"type": "text", "text": Path("/etc/passwd")}])
def test_only_text_reaches_the_sdk(content: Any) -> None:
    """S28: the SDK reads a file where it finds a path. None can stand in a brief."""
    with pytest.raises(ValidationError):
        Brief(model="m", max_tokens=1, system="s", content=({"type": "document", "source": {"data": content}},))
    with pytest.raises(ValidationError):
        Brief(model="m", max_tokens=1, system=content, content=())


@pytest.fixture
async def claude(simulator: Simulator) -> AsyncIterator[Claude]:
    claude = Claude(base_url=simulator.url, api_key=KEY, auth_token=None, simulated=True)
    yield claude
    await claude.close()


async def ask(claude: Claude, brief: Brief = BRIEF) -> Completion:
    async with asyncio.timeout(20):
        return await claude.complete(brief, user="someone", reader=AnswerReader())


async def error_of(claude: Claude) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await ask(claude)
    return caught.value


# --- answers ---


async def test_an_answer_comes_with_its_text_usage_and_reason(simulator: Simulator, claude: Claude) -> None:
    simulator.script([{"then": {"answer": "Twelve chars and more.", "cache_read": 3, "cache_write": 2}}])
    heard: list[str] = []

    completion = await claude.complete(BRIEF, user="someone", reader=AnswerReader(on_text=heard.append))

    (entry,) = simulator.log
    assert completion == Completion(
        text="Twelve chars and more.",
        usage=Usage(input=entry.billed.input, output=6, cache_read=3, cache_write=2),
        stop_reason="end_turn",
    )
    assert "".join(heard) == completion.text
    assert simulator.calls() == 1


async def test_a_brief_is_sent_as_it_is(simulator: Simulator, claude: Claude) -> None:
    """Always as a stream, with the opaque user, and nothing that the brief does not have."""
    await ask(claude)

    assert list(simulator.requests) == [
        {
            "model": BRIEF.model,
            "max_tokens": 300,
            "system": "Be brief.",
            "messages": [{"role": "user", "content": list(BRIEF.content)}],
            "metadata": {"user_id": "someone"},
            "stream": True,
        }
    ]


async def test_an_answer_may_be_longer_than_the_sdk_waits_for_without_a_stream(
    simulator: Simulator, claude: Claude
) -> None:
    simulator.script([{"then": {"answer": "Long."}}])

    assert (await ask(claude, BRIEF.model_copy(update={"max_tokens": 64_000}))).text == "Long."


@pytest.mark.parametrize(
    "stop_reason",
    [
        *("end_turn", "stop_sequence", "max_tokens", "refusal", "pause_turn", "tool_use"),
        *("model_context_window_exceeded", "brand_new_reason"),
    ],
)
async def test_every_stop_reason_comes_through(simulator: Simulator, claude: Claude, stop_reason: str) -> None:
    """Also one that the SDK does not know: it is judged by `answer_of`, not taken for a broken stream (E11)."""
    simulator.script([{"then": {"answer": "Half of", "stop_reason": stop_reason}}])

    completion = await ask(claude)

    assert (completion.text, completion.stop_reason) == ("Half of", stop_reason)


async def test_a_tool_call_is_no_answer(simulator: Simulator, claude: Claude) -> None:
    simulator.script([{"then": {"tool": "shell", "answer": '{"command": "rm"}'}}])

    completion = await ask(claude)

    assert completion.text == ""
    with pytest.raises(model.RightRefused):
        answer_of(completion, 300)


COMPLETION = Completion(text="Half of", usage=Usage(input=5, output=7), stop_reason="end_turn")


@pytest.mark.parametrize("reason", ["end_turn", "stop_sequence"])
def test_a_text_that_came_to_its_end_is_an_answer(reason: str) -> None:
    assert answer_of(COMPLETION.model_copy(update={"stop_reason": reason}), 300) == "Half of"


@pytest.mark.parametrize(
    ("reason", "error"),
    [
        ("max_tokens", model.AnswerCut),
        ("refusal", model.Refused),
        ("model_context_window_exceeded", model.ContextExceeded),
        ("pause_turn", model.UnexpectedStop),
        ("tool_use", model.RightRefused),
        ("brand_new_reason", model.UnexpectedStop),
        ("", model.UnexpectedStop),
    ],
)
def test_a_text_that_stopped_for_another_reason_is_none(reason: str, error: type[ModelError]) -> None:
    """Each by its own name, and not retried."""
    with pytest.raises(ModelError) as caught:
        answer_of(COMPLETION.model_copy(update={"stop_reason": reason}), 300)

    assert type(caught.value) is error
    assert not caught.value.retryable
    assert caught.value.may_be_billed


def test_an_answer_cut_at_max_tokens_says_how_many_there_were() -> None:
    with pytest.raises(model.AnswerCut, match="300"):
        answer_of(COMPLETION.model_copy(update={"stop_reason": "max_tokens"}), 300)


# --- faults: the table of faults.md 1a ---

FAULTS: list[tuple[dict[str, Any], type[ModelError]]] = [
    ({"fault": "rate_limit", "message": BODY}, model.RateLimited),
    ({"fault": "spend_limit", "message": BODY}, model.SpendLimitReached),
    ({"fault": "invalid_request", "message": BODY}, model.RequestRefused),
    (
        {"fault": "invalid_request", "message": f"You reached your Usage Limits: {BODY}"},
        model.SpendLimitReached,
    ),
    ({"fault": "authentication", "message": BODY}, model.KeyRefused),
    ({"fault": "billing", "message": BODY}, model.SpendLimitReached),
    ({"fault": "permission", "message": BODY}, model.KeyRefused),
    ({"fault": "not_found", "message": BODY}, model.ModelUnknown),
    ({"fault": "request_too_large", "message": BODY}, model.RequestTooLarge),
    ({"fault": "overloaded", "message": BODY}, model.Overloaded),
    ({"fault": "api_error", "message": BODY}, model.ProviderFault),
    ({"fault": "bad_gateway"}, model.ProviderFault),
    ({"fault": "unavailable", "message": BODY}, model.ProviderFault),
    ({"fault": "gateway_timeout", "message": BODY}, model.ProviderFault),
    ({"fault": "hang_before_headers", "seconds": 0.01}, model.NoAnswer),
    ({"fault": "reset_before_headers"}, model.NoAnswer),
    ({"fault": "hang_after_headers", "seconds": 0.01}, model.StreamCut),
    ({"fault": "hang_mid_stream", "seconds": 0.01}, model.StreamCut),
    ({"fault": "reset_mid_stream", "at": 0.01}, model.StreamCut),
    ({"fault": "reset_mid_stream", "at": 0.5}, model.StreamCut),
    ({"fault": "reset_mid_stream", "at": 0.99}, model.StreamCut),
    ({"fault": "close_mid_chunk"}, model.StreamCut),
    ({"fault": "no_message_stop"}, model.StreamCut),
    ({"fault": "error_event", "message": BODY}, model.Overloaded),
    ({"fault": "error_event", "error_type": "api_error", "message": BODY}, model.ProviderFault),
    ({"fault": "error_event", "error_type": "rate_limit_error", "message": BODY}, model.RateLimited),
    ({"fault": "error_event", "error_type": "authentication_error", "message": BODY}, model.KeyRefused),
    ({"fault": "error_event", "error_type": "invalid_request_error", "message": BODY}, model.RequestRefused),
    ({"fault": "garbage_json"}, model.Garbled),
    ({"fault": "bad_utf8"}, model.Garbled),
    ({"fault": "empty_stream"}, model.Garbled),
    ({"fault": "html_200"}, model.Garbled),
    ({"fault": "wrong_shape"}, model.Garbled),
]


@pytest.mark.parametrize(("then", "error"), FAULTS, ids=lambda value: "-".join(map(str, _shown(value))))
async def test_a_fault_has_its_name_and_costs_one_request(
    simulator: Simulator, claude: Claude, then: dict[str, Any], error: type[ModelError]
) -> None:
    """Nothing retries by itself (E18), and neither key nor body is in anything that a log could show (V10)."""
    simulator.script([{"then": {"answer": f"Some text with {BODY} in it. " * 20, **then}}])

    raised = await error_of(claude)

    assert type(raised) is error
    assert simulator.calls() == 1
    shown = "".join(traceback.format_exception(raised)) + repr(raised) + repr(vars(raised))
    assert KEY not in shown
    assert BODY not in shown
    assert "<script>" not in shown
    assert len(str(raised)) < 200


def _shown(value: Any) -> list[Any]:
    return [item for item in value.values() if item != BODY] if isinstance(value, dict) else [value.__name__]


@pytest.mark.parametrize(
    ("error", "retryable", "at_most", "may_be_billed", "wall"),
    [
        (model.RateLimited, False, None, False, "rate"),
        (model.SpendLimitReached, False, None, False, "spend"),
        (model.RequestRefused, False, None, False, None),
        (model.KeyRefused, False, None, False, "key"),
        (model.ModelUnknown, False, None, False, "model"),
        (model.RequestTooLarge, False, None, False, None),
        (model.Overloaded, True, None, False, None),
        (model.ProviderFault, True, None, False, None),
        (model.Unreachable, False, None, False, "unreachable"),
        (model.NoAnswer, True, None, True, None),
        (model.StreamCut, True, None, True, None),
        (model.Garbled, True, 3, True, None),
        (model.TaskTimeout, True, None, True, None),
        (model.NoProgress, True, None, True, None),
        (model.AnswerTooLarge, False, None, True, None),
    ],
)
def test_what_a_fault_means_for_retries_and_the_bill(
    error: type[ModelError], *, retryable: bool, at_most: int | None, may_be_billed: bool, wall: WallKind | None
) -> None:
    """The last column of faults.md 1a; garbled is retried at most twice, and a wall is no fault of the call."""
    assert (error.retryable, error.at_most, error.may_be_billed) == (retryable, at_most, may_be_billed)
    assert error.wall == wall


@pytest.mark.parametrize(
    ("cause", "error"),
    [
        (httpx2.ConnectError(BODY), model.Unreachable),
        (httpx2.ConnectTimeout(BODY), model.Unreachable),
        (httpx2.ProxyError(BODY), model.Unreachable),
        (httpx2.UnsupportedProtocol(BODY), model.Unreachable),
        (httpx2.ReadError(BODY), model.NoAnswer),
        (httpx2.WriteError(BODY), model.NoAnswer),
        (httpx2.ReadTimeout(BODY), model.NoAnswer),
        (httpx2.RemoteProtocolError(BODY), model.NoAnswer),
        (None, model.NoAnswer),
    ],
    ids=lambda value: getattr(value, "__name__", type(value).__name__),
)
def test_a_connection_that_never_stood_is_told_from_one_that_broke(
    cause: Exception | None, error: type[ModelError]
) -> None:
    """Where nothing could be asked, nothing is billed; what was cut off may be."""
    raised = anthropic.APIConnectionError(message=BODY, request=httpx2.Request("POST", "http://provider"))
    raised.__cause__ = cause

    named = named_error(raised)

    assert type(named) is error
    assert BODY not in str(named)


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, model.RequestRefused),
        (401, model.KeyRefused),
        (402, model.SpendLimitReached),
        (403, model.KeyRefused),
        (404, model.ModelUnknown),
        (408, model.ProviderFault),
        (413, model.RequestTooLarge),
        (418, model.RequestRefused),
        (429, model.RateLimited),
        (500, model.ProviderFault),
        (502, model.ProviderFault),
        (503, model.ProviderFault),
        (504, model.ProviderFault),
        (529, model.Overloaded),
        (599, model.ProviderFault),
    ],
)
@pytest.mark.parametrize("body", [None, BODY, [], {"error": None}, {"error": {"type": 5}}, {"error": {"type": BODY}}])
def test_an_error_without_a_type_that_we_know_is_named_by_its_status(
    status: int, error: type[ModelError], body: object
) -> None:
    """As from a gateway, which answers with a page of its own."""
    response = httpx2.Response(status, request=httpx2.Request("POST", "http://provider"))

    named = named_error(anthropic.APIStatusError(BODY, response=response, body=body))

    assert type(named) is error
    assert BODY not in str(named)


@pytest.mark.parametrize("address", ["http://127.0.0.1:1", "http://provider.invalid"], ids=["refused", "no-such-name"])
async def test_a_provider_that_is_not_there_is_unreachable(address: str) -> None:
    claude = Claude(base_url=address, api_key=KEY, auth_token=None, simulated=True)

    assert type(await error_of(claude)) is model.Unreachable

    await claude.close()


@pytest.mark.parametrize(
    ("sent", "believed"),
    [
        (None, None),
        (-1, None),
        ("banana", None),
        ("nan", None),
        ("inf", None),
        ("", None),
        ("Wed, 21 Oct 2026 07:28:00 GMT", None),
        (30, timedelta(seconds=30)),
        (0, timedelta(seconds=1)),
        (0.5, timedelta(seconds=1)),
        (1.5, timedelta(seconds=1.5)),
        (86400, timedelta(days=1)),
        (86401, timedelta(days=1)),
        ("1e12", timedelta(days=1)),
        ("1e300", timedelta(days=1)),
        ("9" * 400, None),
    ],
)
async def test_a_delay_of_the_provider_is_believed_when_it_makes_sense(
    simulator: Simulator, claude: Claude, sent: float | str | None, believed: timedelta | None
) -> None:
    """E2: from a second, for "at once" would be a loop, to a day; what is no delay is none."""
    simulator.script([{"then": {"fault": "rate_limit", **({} if sent is None else {"retry_after": sent})}}])

    assert (await error_of(claude)).retry_after == believed


async def test_no_cut_of_the_bytes_makes_an_answer(simulator: Simulator, claude: Claude) -> None:
    """A stream that ends as HTTP should, but too early: 1,000 places by chance (E8)."""
    simulator.script([{"then": {"answer": "One two three four."}}])
    assert (await ask(claude)).text == "One two three four."
    places = sorted(random.Random(8).sample(range(1200), 1000))  # noqa: S311
    simulator.forget()

    outcomes = []
    for place in places:
        simulator.script([{"then": {"answer": "One two three four.", "fault": "truncate", "after_bytes": place}}])
        try:
            outcomes.append((await ask(claude)).text)
        except (model.StreamCut, model.Garbled) as error:
            outcomes.append(type(error).__name__)

    assert set(outcomes) == {"StreamCut", "Garbled", "One two three four."}
    first_whole = outcomes.index("One two three four.")
    assert set(outcomes[first_whole:]) == {"One two three four."}
    assert simulator.calls() == len(places)


@pytest.mark.parametrize(
    "then",
    [{"fault": "hang_before_headers"}, {"fault": "hang_mid_stream"}, {"fault": "ping_forever", "seconds": 0.01}],
    ids=lambda then: str(then["fault"]),
)
async def test_a_call_that_hangs_ends_when_it_is_cancelled(
    simulator: Simulator, claude: Claude, then: dict[str, Any]
) -> None:
    """The door's own deadline cancels it (E6); the provider sees us leave, and what is cancelled is no model error."""
    simulator.script([{"then": then}])
    call = asyncio.create_task(ask(claude))
    async with asyncio.timeout(10):
        await simulator.until(lambda: simulator.in_flight == 1)

        call.cancel()
        await asyncio.wait([call])
        await simulator.until(lambda: simulator.in_flight == 0)

    assert call.cancelled()
    assert simulator.log[0].client_left


async def test_a_huge_answer_is_cut_off_while_it_streams(
    simulator: Simulator, claude: Claude, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E13: the rest is not read."""
    monkeypatch.setattr(reading, "ANSWER_LIMIT", 10_000)
    simulator.script([{"then": {"answer_bytes": 1_000_000, "tokens_per_second": 100_000}}])

    brief = BRIEF.model_copy(update={"max_tokens": 1_000_000})
    with pytest.raises(model.AnswerTooLarge):
        await ask(claude, brief)
    async with asyncio.timeout(10):
        await simulator.until(lambda: simulator.in_flight == 0)

    assert simulator.log[0].client_left
    assert simulator.log[0].billed.output < 250_000


async def test_a_proxy_of_the_environment_is_not_asked_when_simulated(
    simulator: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    claude = Claude(base_url=simulator.url, api_key=KEY, auth_token=None, simulated=True)

    assert (await ask(claude)).text

    await claude.close()


# --- batches ---


async def test_one_bad_line_of_a_batch_takes_no_other_with_it(simulator: Simulator, claude: Claude) -> None:
    """Through the real SDK: a line without usage is an answer, one without a message is Garbled, for itself alone."""
    simulator.script([{"then": {"answer": "Yes."}}], batch_seconds=0)
    made = await claude.make_batch(dict.fromkeys(("a", "b", "c", "d"), BRIEF), user="someone")
    assert (standing := await claude.batch(made.id)) is not None
    assert standing.ended
    batch = simulator._provider.batches.find(made.id)
    assert batch is not None
    message: Any = batch.results["b"]["message"]
    batch.results["b"] = {"type": "succeeded", "message": {**message, "usage": None}}
    batch.results["c"] = {"type": "succeeded", "message": None}
    batch.results["d"] = {"type": "errored", "error": {"error": {"type": "overloaded_error", "message": BODY}}}

    results = await claude.batch_results(made.id)

    assert [type(results[id]) for id in "abcd"] == [Completion, Completion, model.Garbled, model.Overloaded]
    assert isinstance(results["b"], Completion)
    assert (results["b"].text, results["b"].batched) == ("Yes.", True)
    assert BODY not in "".join(str(result) for result in results.values() if isinstance(result, ModelError))


@pytest.mark.parametrize("fault", ["close_mid_chunk", "reset_mid_stream"])
async def test_results_of_a_batch_that_break_off_are_read_again(
    simulator: Simulator, claude: Claude, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """The transport knows: what is missing is still at the provider."""
    simulator.script([], batch_seconds=0)
    made = await claude.make_batch({"a": BRIEF, "b": BRIEF}, user="someone")
    whole = batch_routes._results
    with monkeypatch.context() as patch:
        patch.setattr(batch_routes, "_results", lambda batch: spoil(whole(batch), Fault(fault=fault, at=0.7)))
        with pytest.raises(model.StreamCut):
            await claude.batch_results(made.id)

    assert set(await claude.batch_results(made.id)) == {"a", "b"}


async def test_results_of_a_batch_that_are_not_there_have_a_name(simulator: Simulator, claude: Claude) -> None:
    simulator.script([], batch_seconds=None)
    made = await claude.make_batch({"a": BRIEF}, user="someone")

    with pytest.raises(ModelError) as caught:
        await claude.batch_results(made.id)

    assert type(caught.value) is model.Garbled
