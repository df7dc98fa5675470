"""The faults of a provider in whole runs: one request per attempt, the right name, and no partial answer accepted.

The simulator's log is the truth of what was asked. What parks a task (walls) is in test_walls.py.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import pytest
from conftest import Bench, Run

from activities import patience
from domain.models import Answered, Failed, Outcome, RunStatus, TaskResult, TaskStatus
from simulator import Simulator

WHOLE = "The walrus sings, and this is all of its song. " * 40
FAILED, TIMED_OUT = TaskStatus.FAILED, TaskStatus.TIMED_OUT

FAULTS: dict[str, tuple[dict[str, Any], int, str, TaskStatus]] = {
    # refused before it was read
    "invalid": ({"fault": "invalid_request"}, 1, "RequestRefused", FAILED),
    "large": ({"fault": "request_too_large"}, 1, "RequestTooLarge", FAILED),
    "broken": ({"fault": "api_error"}, 4, "ProviderFault", FAILED),
    "gateway": ({"fault": "bad_gateway"}, 4, "ProviderFault", FAILED),
    "unavailable": ({"fault": "unavailable"}, 4, "ProviderFault", FAILED),
    "late": ({"fault": "gateway_timeout"}, 4, "ProviderFault", FAILED),
    "overloaded": ({"fault": "overloaded"}, 4, "Overloaded", FAILED),
    # cut off on the way
    "reset-early": ({"fault": "reset_before_headers"}, 4, "NoAnswer", FAILED),
    "reset-begin": ({"fault": "reset_mid_stream", "at": 0.01}, 4, "StreamCut", FAILED),
    "reset-middle": ({"fault": "reset_mid_stream", "at": 0.5}, 4, "StreamCut", FAILED),
    "reset-end": ({"fault": "reset_mid_stream", "at": 0.99}, 4, "StreamCut", FAILED),
    "closed": ({"fault": "close_mid_chunk"}, 4, "StreamCut", FAILED),
    "truncated": ({"fault": "truncate", "at": 0.9}, 4, "StreamCut", FAILED),
    "unstopped": ({"fault": "no_message_stop"}, 4, "StreamCut", FAILED),
    # errors inside of an answer, by their type
    "event-overloaded": ({"fault": "error_event"}, 4, "Overloaded", FAILED),
    "event-broken": ({"fault": "error_event", "error_type": "api_error"}, 4, "ProviderFault", FAILED),
    "event-invalid": ({"fault": "error_event", "error_type": "invalid_request_error"}, 1, "RequestRefused", FAILED),
    # no answer of the Messages API: asked for at most twice more
    "garbage": ({"fault": "garbage_json"}, 3, "Garbled", FAILED),
    "bytes": ({"fault": "bad_utf8"}, 3, "Garbled", FAILED),
    "empty": ({"fault": "empty_stream"}, 3, "Garbled", FAILED),
    "page": ({"fault": "html_200"}, 3, "Garbled", FAILED),
    "shape": ({"fault": "wrong_shape"}, 3, "Garbled", FAILED),
    # answers to their end that do not count
    "cut": ({"stop_reason": "max_tokens"}, 1, "AnswerCut", FAILED),
    "refused": ({"stop_reason": "refusal"}, 1, "Refused", FAILED),
    "paused": ({"stop_reason": "pause_turn"}, 1, "UnexpectedStop", FAILED),
    "context": ({"stop_reason": "model_context_window_exceeded"}, 1, "ContextExceeded", FAILED),
    "unknown": ({"stop_reason": "brand_new_reason"}, 1, "UnexpectedStop", FAILED),
    "tool": ({"tool": "shell", "answer": '{"command": "rm'}, 1, "RightRefused", FAILED),
    # silence
    "silent": ({"fault": "hang_before_headers"}, 2, "NoProgress", TIMED_OUT),
    "headers": ({"fault": "hang_after_headers"}, 2, "NoProgress", TIMED_OUT),
    "halfway": ({"fault": "hang_mid_stream"}, 2, "NoProgress", TIMED_OUT),
    "pings": ({"fault": "ping_forever", "seconds": 0.1}, 2, "NoProgress", TIMED_OUT),
    "slow": ({"tokens_per_second": 20}, 2, "TaskTimeout", TIMED_OUT),
}
"""By task: what the provider does to each of its calls, how many there are, and how the task ends."""

SILENT = {name for name, (*_, status) in FAULTS.items() if status is TIMED_OUT}
PERMANENT = {name for name, (_, calls, _, _) in FAULTS.items() if calls == 1}
KEEPS_TEXT = {
    *("reset-middle", "reset-end", "closed", "truncated", "unstopped", "event-overloaded", "event-broken"),
    *("event-invalid", "garbage", "bytes", "cut", "refused", "paused", "context", "unknown", "halfway", "slow"),
}


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Silence is half the timeout here, however short that is."""
    monkeypatch.setattr(patience, "LEAST_SILENCE", 0.5)


def plan(ids: Iterable[str]) -> str:
    """One task for each: whether a silent provider is given up early is a question of the timeout.

    Half of it is so long that a machine which stands still for a moment is not taken for a provider which does.
    """
    limits = {id: "timeout: 16s, attempts: 2" if id in SILENT else "timeout: 20s" for id in ids}
    tasks = [f"{{id: {id}, prompt: Sing., {limit}}}" for id, limit in limits.items()]
    return f"max_concurrency: 50\ndefaults: {{agent: hand}}\ntasks: [{', '.join(tasks)}]"


async def outcomes(run: Run, tasks: Iterable[str]) -> dict[str, Outcome]:
    """What the door replied for each task."""
    handles = {id: run.temporal.get_workflow_handle(f"{run.id}/{id}", result_type=TaskResult) for id in tasks}
    return {id: (await handle.result()).outcome for id, handle in handles.items()}


def assert_covered(simulator: Simulator, id: str, outcome: Failed) -> None:
    counted = sum((one.usage + one.unsettled for one in outcome.tries), outcome.usage + outcome.unsettled)
    billed = [entry.billed for entry in simulator.log if entry.task == id]
    assert sum(bill.input for bill in billed) <= counted.input, id
    assert sum(bill.output for bill in billed) <= counted.output, id


async def test_every_fault_has_its_name_and_costs_one_request_per_attempt(crew: Bench) -> None:
    """All in one run: each keeps to its own task, and what it counts is never below the provider's bill (E7)."""
    crew.simulator.script(
        [{"when": {"task": id}, "then": {"answer": WHOLE, **then}} for id, (then, *_) in FAULTS.items()],
        tokens_per_second=1000,
    )
    run = await crew.start(plan(FAULTS))

    report = await run.report()

    assert report.status is RunStatus.FAILED
    told = await outcomes(run, FAULTS)
    for id, (_, calls, kind, status) in FAULTS.items():
        outcome = told[id]
        assert isinstance(outcome, Failed), id
        assert (id, outcome.error.type, outcome.status) == (id, kind, status)
        assert (id, outcome.error.attempt, crew.simulator.calls(id)) == (id, calls, calls)
        assert (id, outcome.error.retryable) == (id, id not in PERMANENT)
        assert (id, [one.attempt for one in outcome.tries]) == (id, [*range(1, calls)])
        assert (id, outcome.output_ref is not None) == (id, id in KEEPS_TEXT)
        assert_covered(crew.simulator, id, outcome)


async def test_after_a_fault_the_whole_answer_is_accepted_and_nothing_of_the_broken_one(crew: Bench) -> None:
    once = {id: then for id, (then, calls, *_) in FAULTS.items() if calls > 1}
    crew.simulator.script(
        [
            *({"when": {"task": id, "nth": 1}, "then": {"answer": f"BROKEN {WHOLE}", **once[id]}} for id in once),
            {"then": {"answer": WHOLE}},
        ],
        tokens_per_second=1000,
    )
    run = await crew.start(plan(once))

    report = await run.report()

    assert report.status is RunStatus.COMPLETED
    for id, outcome in (await outcomes(run, once)).items():
        assert isinstance(outcome, Answered), id
        assert (id, outcome.attempts, crew.simulator.calls(id)) == (id, 2, 2)
        assert await crew.client.text(outcome.output_ref) == WHOLE
        assert (id, [one.error.type for one in outcome.tries]) == (id, [FAULTS[id][2]])
        paid = next(entry for entry in crew.simulator.log if entry.task == id and entry.stop_reason == "end_turn")
        assert (outcome.usage.input, outcome.usage.output) == (paid.billed.input, paid.billed.output)


async def test_no_answer_that_was_cut_anywhere_is_accepted(crew: Bench) -> None:
    """Fifty places by chance, ended as HTTP should, reset or closed; a thousand more are in test_claude.py (E8)."""
    chance = random.Random(8)  # noqa: S311
    faults = ["truncate", "reset_mid_stream", "close_mid_chunk"]
    cuts = {f"t{n}": {"fault": faults[n % 3], "after_bytes": chance.randrange(2500)} for n in range(50)}
    crew.simulator.script(
        [
            *({"when": {"task": id, "nth": 1}, "then": {"answer": f"BROKEN {WHOLE}", **cuts[id]}} for id in cuts),
            {"then": {"answer": WHOLE}},
        ]
    )
    run = await crew.start(plan(cuts))

    report = await run.report()

    assert report.status is RunStatus.COMPLETED
    for id, outcome in (await outcomes(run, cuts)).items():
        assert isinstance(outcome, Answered)
        assert (id, crew.simulator.calls(id)) == (id, 2)
        assert await crew.client.text(outcome.output_ref) == WHOLE


async def test_no_body_of_the_provider_is_told_on(crew: Bench) -> None:
    """E5: neither in the history of the task nor in anything that is shown."""
    crew.simulator.script(
        [
            {"when": {"task": "page"}, "then": {"fault": "bad_gateway"}},
            {"then": {"fault": "invalid_request", "message": "CANARY-BODY <script>alert(1)</script>"}},
        ]
    )
    run = await crew.start(plan(["page", "said"]))

    report = await run.report()

    said = "".join(outcome.model_dump_json() for outcome in (await outcomes(run, ["page", "said"])).values())
    assert "script" not in said + report.model_dump_json()
    assert "CANARY" not in said + report.model_dump_json()
