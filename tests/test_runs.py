"""Whole runs on the real server, with the simulator's log as the truth of every call."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pytest
from conftest import Bench, Run, eventually
from temporalio.client import WorkflowExecutionStatus, WorkflowFailureError
from temporalio.common import SearchAttributeKey
from temporalio.exceptions import ApplicationError

from attributes import COST
from client import OtherPlan, SteeringRefused
from domain.events import EventType
from domain.models import RunStatus, TaskStatus
from domain.picture import Picture
from domain.planning import plan_from_text
from domain.prices import Price, PriceList
from domain.registry import Registry
from domain.report import Report, TaskReport
from domain.runs import RunSummary
from payloads import inflated
from simulator.log import Entry
from simulator.server import Simulator
from workflows.supervisor import SupervisorWorkflow

DIAMOND = """
defaults: {agent: hand}
tasks:
  - {id: a, prompt: Begin.}
  - {id: b, prompt: Left., needs: [a]}
  - {id: c, prompt: Right., needs: [a]}
  - {id: d, prompt: "Join {{ b }} and {{ c }}.", needs: [b, c]}
"""
PAIR = """
defaults: {agent: hand, attempts: 1}
tasks:
  - {id: first, prompt: Begin., timeout: 3s}
  - {id: second, prompt: Go on., needs: {first: POLICY}}
"""
REFUSAL = {"stop_reason": "refusal"}
HANG = {"fault": "hang_before_headers"}


def rule(task: str | None, then: Mapping[str, object], **when: object) -> dict[str, object]:
    return {"when": {**({"task": task} if task else {}), **when}, "then": then}


def task_of(report: Report, id: str) -> TaskReport:
    return next(task for task in report.tasks if task.id == id)


def request_of(simulator: Simulator, task: str) -> dict[str, Any]:
    """The body of the last call of a task."""
    bodies: list[Any] = [body for body in simulator.requests if f'"Task: {task}\\n' in json.dumps(body)]
    found: dict[str, Any] = bodies[-1]
    return found


def told(simulator: Simulator, task: str) -> str:
    """All that the agent of a task was told, as text."""
    return json.dumps(request_of(simulator, task)["messages"], ensure_ascii=False)


def lacks(simulator: Simulator, task: str) -> list[tuple[str, str, str]]:
    """The inputs that the agent of a task was told are missing: which, how they ended, and why."""
    assignment = request_of(simulator, task)["messages"][0]["content"][-1]["text"]
    found = re.search(
        r'<missing-inputs of=[^\n]* mark="(\w+)">\n(.*)\n</missing-inputs mark="\1">', assignment, re.DOTALL
    )
    assert found is not None
    return [(lack["task"], lack["status"], lack["reason"]) for lack in json.loads(found[2])]


def most_at_once(calls: Iterable[Entry]) -> int:
    """How many of these calls were in flight at the same time, at most."""
    moves = sorted((time, step) for call in calls for time, step in ((call.started, 1), (call.ended or 1e12, -1)))
    level = peak = 0
    for _, step in moves:
        level += step
        peak = max(peak, level)
    return peak


# What runs, how often, and in which order


async def test_a_diamond_makes_four_calls(crew: Bench) -> None:
    """Each task runs exactly once, a shared need too."""
    run = await crew.start(DIAMOND)

    report = await run.report()

    assert report.status is RunStatus.COMPLETED
    assert sorted(entry.task or "" for entry in crew.simulator.log) == ["a", "b", "c", "d"]
    assert [task.attempts for task in report.tasks] == [1, 1, 1, 1]


async def test_a_chain_is_called_in_its_order(crew: Bench) -> None:
    """No call begins before the one it needs has ended."""
    tasks = "\n".join(f"  - {{id: t{n}, prompt: Go., needs: [{f't{n - 1}' if n else ''}]}}" for n in range(6))
    run = await crew.start(f"defaults: {{agent: hand}}\ntasks:\n{tasks}")

    report = await run.report()

    assert report.status is RunStatus.COMPLETED
    assert [entry.task for entry in crew.simulator.log] == [f"t{n}" for n in range(6)]
    assert all(one.ended and one.ended <= next.started for one, next in pairwise(crew.simulator.log))


async def test_a_fan_out_is_gathered(crew: Bench) -> None:
    """A task with for_each runs once per item; what needs it is given every result, labelled with its task."""
    crew.simulator.script([rule(f"scan[{item}]", {"answer": f"about {item}"}) for item in ("x", "y", "z")])
    run = await crew.start("""
defaults: {agent: hand}
tasks:
  - {id: scan, for_each: [x, y, z], prompt: "Look at {{ item }}."}
  - {id: join, prompt: Compare., needs: [scan]}
""")

    report = await run.report()

    assert report.status is RunStatus.COMPLETED
    assert sorted(entry.task or "" for entry in crew.simulator.log) == ["join", "scan[x]", "scan[y]", "scan[z]"]
    documents = [block for block in request_of(crew.simulator, "join")["messages"][0]["content"] if "source" in block]
    assert {block["title"]: block["source"]["data"] for block in documents} == {
        f"scan[{item}]": f"about {item}" for item in ("x", "y", "z")
    }


async def test_the_provider_never_sees_more_than_the_plan_allows(crew: Bench) -> None:
    """Twelve slow tasks that could all run fill the three places, and no more."""
    crew.simulator.script([], ttft=1)
    run = await crew.start("""
max_concurrency: 3
tasks: [{id: t, for_each: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12], agent: hand, prompt: Work.}]
""")

    report = await run.report()

    assert crew.simulator.peak == 3
    assert report.concurrency.peak == report.concurrency.max == 3
    assert crew.simulator.calls() == 12


async def test_an_agent_never_has_more_than_its_instances(crew: Bench) -> None:
    """A pool of two keeps its own limit while others use the rest of the places."""
    crew.simulator.script([], ttft=3)
    run = await crew.start("""
max_concurrency: 6
tasks:
  - {id: two, for_each: [1, 2, 3, 4, 5, 6], agent: pair, prompt: Work.}
  - {id: many, for_each: [1, 2, 3, 4, 5, 6], agent: hand, prompt: Work.}
""")

    await run.report()

    calls = crew.simulator.log
    assert most_at_once(call for call in calls if (call.task or "").startswith("two")) == 2
    assert 4 <= most_at_once(calls) <= 6


# What becomes of a task whose need did not succeed


async def test_edges_decide_after_a_failure(crew: Bench) -> None:
    """After a failure only an optional edge lets its dependant run, and it is told what is missing."""
    crew.simulator.script([rule("bad", REFUSAL)])
    run = await crew.start("""
defaults: {agent: hand}
tasks:
  - {id: bad, prompt: Begin.}
  - {id: strict, prompt: Go., needs: {bad: require}}
  - {id: usual, prompt: Go., needs: [bad]}
  - {id: easy, prompt: Go., needs: {bad: optional}}
  - {id: after, prompt: Go., needs: [strict]}
""")

    report = await run.report()

    states = {task.id: task.status for task in report.tasks}
    assert states == {
        "bad": TaskStatus.FAILED,
        "strict": TaskStatus.SKIPPED,
        "usual": TaskStatus.SKIPPED,
        "easy": TaskStatus.SUCCEEDED,
        "after": TaskStatus.SKIPPED,
    }
    assert report.status is RunStatus.PARTIAL
    assert task_of(report, "after").cause == "bad"
    assert sorted(entry.task or "" for entry in crew.simulator.log) == ["bad", "easy"]
    assert lacks(crew.simulator, "easy") == [("bad", "FAILED", "the model declined to answer, attempt 1 of 4")]


@pytest.mark.parametrize(("policy", "runs"), [("require", False), ("tolerate", True), ("optional", True)], ids=str)
async def test_edges_decide_after_a_timeout(crew: Bench, policy: str, runs: bool) -> None:
    """A timed-out need is told by its own words; all but a strict dependant run, and know what is missing."""
    crew.simulator.script([rule("first", HANG)])
    run = await crew.start(PAIR.replace("POLICY", policy))

    report = await run.report()

    first, second = report.tasks
    assert first.status is TaskStatus.TIMED_OUT
    assert first.error is not None
    assert first.error.message == "Task timeout after 3 s, attempt 1 of 1"
    assert crew.simulator.log[0].client_left
    if not runs:
        assert second.status is TaskStatus.SKIPPED
        assert crew.simulator.calls("second") == 0
        return
    assert second.status is TaskStatus.SUCCEEDED
    assert report.status is RunStatus.DEGRADED
    assert lacks(crew.simulator, "second") == [("first", "TIMED_OUT", "Task timeout after 3 s, attempt 1 of 1")]


async def test_an_answer_reaches_its_dependant_as_data(crew: Bench) -> None:
    """In a document of its own, never in the instructions."""
    crew.simulator.script([rule("first", {"answer": "the walrus sings"})])
    run = await crew.start(PAIR.replace("POLICY", "require").replace("3s", "20s"))

    await run.report()

    request = request_of(crew.simulator, "second")
    (document,) = [block for block in request["messages"][0]["content"] if block["type"] == "document"]
    assert document["title"] == "first"
    assert document["source"]["data"] == "the walrus sings"
    assert "walrus" not in json.dumps(request["system"])


async def test_a_cut_answer_is_kept_but_not_passed_on(crew: Bench) -> None:
    """What came before max_tokens can be read by people; a dependant is told that the input is missing."""
    crew.simulator.script([rule("first", {"answer": "the walrus sings and sings and sings"})])
    run = await crew.start("""
defaults: {agent: hand}
tasks:
  - {id: first, prompt: Begin., max_tokens: 4}
  - {id: second, prompt: Go on., needs: {first: optional}}
""")

    report = await run.report()

    first = task_of(report, "first")
    assert (first.status, first.error and first.error.type) == (TaskStatus.FAILED, "AnswerCut")
    assert first.output_ref is not None
    assert await crew.client.text(first.output_ref) == "the walrus sings"
    assert first.tokens.output == 4
    assert "walrus" not in told(crew.simulator, "second")
    assert [lack[:2] for lack in lacks(crew.simulator, "second")] == [("first", "FAILED")]
    assert crew.simulator.calls("first") == 1


# Attempts and walls


async def test_an_overloaded_provider_is_asked_again(crew: Bench) -> None:
    """A fault of one call uses an attempt; the second one succeeds."""
    crew.simulator.script([rule("a", {"fault": "overloaded"}, nth=1)])
    run = await crew.start("tasks: [{id: a, agent: hand, prompt: Go.}]")

    report = await run.report()

    assert report.status is RunStatus.COMPLETED
    assert report.tasks[0].attempts == 2
    assert [entry.status for entry in crew.simulator.log] == [529, 200]


@pytest.mark.parametrize(
    ("then", "calls", "kind"),
    [
        (REFUSAL, 1, "Refused"),
        ({"fault": "invalid_request"}, 1, "RequestRefused"),
        ({"fault": "garbage_json"}, 3, "Garbled"),
        ({"fault": "truncate"}, 4, "StreamCut"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_what_is_worth_another_attempt(crew: Bench, then: dict[str, object], calls: int, kind: str) -> None:
    """A refusal is never asked again, garbage at most three times, a cut answer as often as the task allows."""
    crew.simulator.script([rule(None, then)])
    run = await crew.start("tasks: [{id: a, agent: hand, prompt: Go., attempts: 4}]")

    report = await run.report()

    (task,) = report.tasks
    assert crew.simulator.calls() == calls
    assert task.error is not None
    assert (task.status, task.error.type, task.attempts) == (TaskStatus.FAILED, kind, calls)


async def test_a_rate_limit_parks_the_task(crew: Bench) -> None:
    """A wall with a known end uses no attempt: the task waits outside, then starts again under the same id."""
    crew.simulator.script([rule("a", {"fault": "rate_limit", "retry_after": 2}, nth=1)])
    run = await crew.start("tasks: [{id: a, agent: hand, prompt: Go.}]")

    report = await run.report()

    waiting = await picture_when(run, lambda picture: picture.tasks["a"].status is TaskStatus.WAITING)
    assert waiting.tasks["a"].wait is not None
    assert waiting.tasks["a"].wait.reason == "wall"
    assert (await picture_when(run, lambda picture: picture.status is RunStatus.WAITING)).tasks["a"].wait is not None
    assert (report.status, report.tasks[0].attempts) == (RunStatus.COMPLETED, 1)
    assert [entry.status for entry in crew.simulator.log] == [429, 200]
    one, two = crew.simulator.log
    assert two.started - one.started >= 2  # a wall with a known end is not asked before it

    async def both_are_listed() -> bool:  # the list may be a moment behind
        children = [child async for child in crew.temporal.list_workflows(f"WorkflowId = '{run.id}/a'")]
        return [child.status for child in children] == [WorkflowExecutionStatus.COMPLETED] * 2

    await eventually(both_are_listed)


async def picture_when(run: Run, true: Callable[[Picture], bool]) -> Picture:
    """The run as it was when something became true of it, by its events: nobody need have looked in time."""
    now = await run.client.picture(run.id)
    before = Picture(run.id, now.plan, simulated=True)
    for event in await run.events():
        before.add([event])
        if true(before):
            return before
    raise AssertionError("it never was so")


# How a run closes


@pytest.mark.parametrize(
    ("status", "failing", "policy"),
    [
        (RunStatus.COMPLETED, (), "require"),
        (RunStatus.DEGRADED, ("a",), "optional"),
        (RunStatus.PARTIAL, ("b",), "optional"),
        (RunStatus.FAILED, ("b", "c"), "optional"),
    ],
    ids=lambda value: value.value if isinstance(value, RunStatus) else "",
)
async def test_all_tell_the_same_end(crew: Bench, status: RunStatus, failing: tuple[str, ...], policy: str) -> None:
    """Result, memo, report, event log and close status agree."""
    crew.simulator.script([rule(task, REFUSAL) for task in failing])
    run = await crew.start(f"""
defaults: {{agent: hand}}
tasks:
  - {{id: a, prompt: Begin.}}
  - {{id: b, prompt: Left., needs: {{a: {policy}}}}}
  - {{id: c, prompt: Right., needs: {{a: {policy}}}}}
""")

    summary = await summary_of(run, status)
    closed = await run.closed()
    report = await run.report()

    kept = json.loads(await crew.client.text(summary.report_ref or ""))
    remembered = RunSummary.model_validate(await closed.memo_value("summary"))
    assert (summary.status, remembered.status, report.status, kept["status"]) == (status,) * 4
    assert summary == remembered
    assert await closed.memo_value("status") == status
    assert summary.census == report.census
    assert summary.tokens == report.tokens
    assert (await run.events())[-1].data["status"] == status
    assert closed.status is (
        WorkflowExecutionStatus.FAILED if status is RunStatus.FAILED else WorkflowExecutionStatus.COMPLETED
    )


async def summary_of(run: Run, status: RunStatus) -> RunSummary:
    """What the workflow handed back: as its result, or in the details of its failure."""
    if status is not RunStatus.FAILED:
        return await run.handle.result()
    with pytest.raises(WorkflowFailureError) as failure:
        await run.handle.result()
    cause = failure.value.cause
    assert isinstance(cause, ApplicationError)
    assert cause.type == "RunFailed"
    return RunSummary.model_validate(cause.details[0])


async def test_a_cancelled_run_tells_the_same_end(crew: Bench) -> None:
    """A cancelled run closes as Canceled; its summary is in the memo, its report in the store."""
    crew.simulator.script([rule("b", HANG)])
    run = await crew.start(DIAMOND)
    await crew.simulator.until(lambda: crew.simulator.calls("b") == 1)

    await run.client.cancel(run.id)

    closed = await run.closed()
    report = await run.report()
    summary = RunSummary.model_validate(await closed.memo_value("summary"))
    kept = json.loads(await crew.client.text(summary.report_ref or ""))
    assert closed.status is WorkflowExecutionStatus.CANCELED
    assert (summary.status, report.status, kept["status"]) == (RunStatus.CANCELLED,) * 3
    assert summary.census == report.census


# One id, one run


async def test_the_same_id_is_the_same_run(crew: Bench) -> None:
    """Submitted at the same moment, again, and after its end: there is one run, and every task is called once."""
    await asyncio.gather(*(crew.start(DIAMOND, id="once") for _ in range(5)))
    run = await crew.start(DIAMOND, id="once")
    first = (await run.handle.describe()).run_id
    await run.report()

    await crew.start(DIAMOND, id="once")

    assert sorted(entry.task or "" for entry in crew.simulator.log) == ["a", "b", "c", "d"]
    assert (await run.handle.describe()).run_id == first


async def test_the_same_plan_at_other_prices_is_the_same_run(crew: Bench, registry: Registry) -> None:
    """It was submitted by an older release, or prices have changed since: those of its submit stand."""
    run = await crew.start(DIAMOND, id="dearer")
    planned = plan_from_text(DIAMOND, file="test.yaml", registry=registry, folder=crew.folder)
    priced = planned.plan.model_copy(update={"prices": PriceList(source="a list", date="2026-01-01")})

    again = await crew.client.submit(replace(planned, plan=priced), id="dearer", simulated=True, queue=crew.queue)

    await run.report()
    assert again == "dearer"
    assert (await crew.client.picture("dearer")).plan.prices is None
    assert len(crew.simulator.log) == 4


async def test_what_a_run_has_cost_is_the_same_everywhere(crew: Bench, registry: Registry) -> None:
    """In its report, in its result, and in the search attribute."""
    planned = plan_from_text(DIAMOND, file="test.yaml", registry=registry, folder=crew.folder)
    rate = Price(input=Decimal(1), output=Decimal(10), cache_read=Decimal(0), cache_write=Decimal(0))
    prices = PriceList(source="s", date="d", models={agent.model: rate for agent in planned.plan.agents})
    priced = replace(planned, plan=planned.plan.model_copy(update={"prices": prices}))

    id = await crew.client.submit(priced, id=None, simulated=True, queue=crew.queue)

    run = Run(id, crew.client, crew.temporal)
    report, summary = await run.report(), await run.handle.result()
    billed = [entry.billed for entry in crew.simulator.log]
    expected = sum(Decimal(call.input + 10 * call.output) for call in billed) / 1_000_000
    found = (await run.handle.describe()).typed_search_attributes
    assert report.cost.actual_usd == expected > 0
    assert Decimal(summary.cost_usd or "0") == expected
    assert found[SearchAttributeKey.for_float(COST)] == float(expected)


async def test_an_id_belongs_to_its_plan(crew: Bench) -> None:
    """Another plan under the same id is refused, before anything is started."""
    run = await crew.start("tasks: [{id: a, agent: hand, prompt: One.}]", id="taken")

    with pytest.raises(OtherPlan, match="taken"):
        await crew.start("tasks: [{id: a, agent: hand, prompt: Another.}]", id="taken")

    await run.report()
    assert crew.simulator.calls() == 1


# Pause, resume, and what may be asked


async def test_a_paused_run_makes_no_call(crew: Bench) -> None:
    """Once the pause is acknowledged nothing new is called; the call at work finishes, and is kept."""
    crew.simulator.script([{"when": {"nth": 1}, "then": {"ttft": 15}}])  # so long that the pause comes before its end
    run = await crew.start("""
max_concurrency: 1
tasks: [{id: t, for_each: [1, 2, 3], agent: hand, prompt: Work., timeout: 60s}]
""")
    await crew.simulator.until(lambda: crew.simulator.calls() == 1)

    await run.client.pause(run.id, by="a test")
    paused = await run.until(lambda picture: picture.census.succeeded == 1)
    assert paused.census.ready == 2  # the place is free, and nobody took it
    calls_while_paused = crew.simulator.calls()
    with pytest.raises(SteeringRefused):
        await run.client.pause(run.id, by="a test")
    await run.client.resume(run.id, by="a test")
    with pytest.raises(SteeringRefused):
        await run.client.resume(run.id, by="a test")
    report = await run.report()

    assert paused.status is RunStatus.PAUSED
    assert calls_while_paused == 1
    assert report.status is RunStatus.COMPLETED
    assert crew.simulator.calls() == 3
    types = [event.type for event in await run.events()]
    assert types.count(EventType.RUN_PAUSED) == types.count(EventType.RUN_RESUMED) == 1


async def test_a_pause_holds_at_the_door(crew: Bench) -> None:
    """An attempt that was to follow a failed one is not made in a pause, and is not lost by it."""
    crew.simulator.script([rule("a", {"fault": "overloaded", "retry_after": 15}, nth=1)])
    run = await crew.start("tasks: [{id: a, agent: hand, prompt: Go., timeout: 60s}]")
    await crew.simulator.until(lambda: crew.simulator.calls() == 1)

    await run.client.pause(run.id, by="a test")
    parked = await run.until(lambda picture: picture.tasks["a"].status is TaskStatus.WAITING)
    calls_while_paused = crew.simulator.calls()
    await run.client.resume(run.id, by="a test")
    report = await run.report()

    assert parked.tasks["a"].wait is not None
    assert parked.tasks["a"].wait.reason == "pause"
    assert calls_while_paused == 1
    assert report.status is RunStatus.COMPLETED
    assert crew.simulator.calls() == 2


async def test_a_query_serves_what_is_not_written_yet(crew: Bench) -> None:
    """Store and query together are the whole log, and the query does not repeat what the store has had for long."""
    crew.simulator.script([rule("b", HANG)])
    run = await crew.start(DIAMOND)
    await run.until(lambda picture: picture.tasks["b"].status is TaskStatus.RUNNING)

    async def c_is_written() -> bool:
        stored = [event async for event in crew.store.events(run.id)]
        return any((event.task, event.type) == ("c", EventType.TASK_COMPLETED) for event in stored)

    await eventually(c_is_written)  # the last event so far
    await run.written()

    view = await run.handle.query(SupervisorWorkflow.view)

    assert view.census.running == 1
    assert view.census.total == 4
    assert {id: (wait.reason, wait.what, wait.since is not None) for id, wait in view.waits.items()} == {
        "d": ("inputs", "b", True)
    }
    await run.client.cancel(run.id)
    await run.closed()


async def test_the_event_log_has_no_gap(crew: Bench) -> None:
    """Numbers follow each other, and every task has exactly one last word."""
    crew.simulator.script([rule("b", REFUSAL), rule("c", {"fault": "rate_limit", "retry_after": 1}, nth=1)])
    # One after the other: when c meets the wall nothing else is at work, however slow the machine is.
    run = await crew.start(
        DIAMOND.replace("prompt: Right., needs: [a]", "prompt: Right., needs: {a: require, b: optional}")
    )

    await run.report()

    events = await run.events()
    assert [event.number for event in events] == list(range(1, len(events) + 1))
    last_words = [
        event.task
        for event in events
        if event.type in {EventType.TASK_COMPLETED, EventType.TASK_FAILED, EventType.TASK_SKIPPED}
    ]
    assert sorted(task or "" for task in last_words) == ["a", "b", "c", "d"]
    of_the_run = [event.type for event in events if event.task is None]
    assert of_the_run[:2] == [EventType.RUN_SUBMITTED, EventType.RUN_STARTED]
    assert of_the_run[-1] is EventType.RUN_COMPLETED
    assert sorted(of_the_run[2:-1]) == [EventType.QUOTA_CLEARED, EventType.QUOTA_WALL, EventType.RUN_WAITING]


# What Temporal is told


async def test_no_text_of_a_prompt_or_an_answer_is_in_a_history(crew: Bench) -> None:
    """Not of the supervisor and not of a task, whether it succeeded, was cut, or failed with a provider's words."""
    crew.simulator.script(
        [
            rule("a", {"answer": "CANARY-ANSWER " * 300}),
            rule("b", {"answer": "CANARY-CUT " * 300, "stop_reason": "max_tokens"}),
            rule("c", {"fault": "invalid_request", "message": "CANARY-ERROR"}),
        ]
    )
    run = await crew.start("""
defaults: {agent: hand, max_tokens: 2000}
tasks:
  - {id: a, prompt: CANARY-PROMPT., payload: {k: CANARY-PAYLOAD}}
  - {id: b, prompt: Left., needs: [a]}
  - {id: c, prompt: Right., needs: [a]}
  - {id: d, prompt: "Join {{ b }} and {{ c }}.", needs: {b: optional, c: optional}}
""")

    await run.report()

    assert crew.simulator.calls() == 4
    for id in (run.id, *(f"{run.id}/{task}" for task in "abcd")):
        history = await crew.temporal.get_workflow_handle(id).fetch_history()
        said = b"".join(readable(event) for event in history.events)
        assert run.id.encode() in said  # the search does look inside of payloads
        assert b"CANARY" not in said


def readable(message: Any) -> bytes:
    """Every byte of a protobuf message, with compressed payloads inflated."""
    found = [message.SerializeToString()]
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        entry = field.message_type.GetOptions().map_entry
        values = value.values() if entry else value if field.is_repeated else [value]
        for inner in values:
            if not hasattr(inner, "ListFields"):
                continue
            if inner.DESCRIPTOR.full_name == "temporal.api.common.v1.Payload":
                found.append(inflated(inner).SerializeToString())
            else:
                found.append(readable(inner))
    return b"".join(found)
