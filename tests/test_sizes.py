"""Large things: they travel by reference, pay once, and never stall a workflow or end it from outside."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from conftest import Bench, Run, eventually
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType as HistoryEvent
from temporalio.api.enums.v1 import TimeoutType, WorkflowTaskFailedCause
from temporalio.api.history.v1 import HistoryEvent as Recorded
from temporalio.testing import ActivityEnvironment

from activities.contract import GrowRequest
from activities.growing import GrowActivities
from domain.carrying import packed, unpacked
from domain.models import Agent, Form, Need, Plan, RunStatus, Task, TaskStatus
from domain.planning import Planned, plan_from_text
from domain.progress import Ended, Outline, Progress, outline_of
from domain.registry import Registry
from domain.runs import RunInput
from folder import PlanFolder
from payloads import PAYLOAD_LIMIT, PayloadTooLarge, encoded_size
from store import open_store

MOON = "🌙"
"""Four bytes, and a quarter of a token to the simulator: the way to megabytes within max_tokens."""


def payloads_in(message: Any) -> Iterator[Payload]:
    """Every payload in a protobuf message."""
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        values = (
            value.values() if field.message_type.GetOptions().map_entry else value if field.is_repeated else [value]
        )
        for inner in values:
            if not hasattr(inner, "ListFields"):
                continue
            if isinstance(inner, Payload):
                yield inner
            else:
                yield from payloads_in(inner)


def payload_sizes(message: Any) -> Iterator[int]:
    """The size of every payload in a protobuf message."""
    return (payload.ByteSize() for payload in payloads_in(message))


async def history_of(bench: Bench, id: str) -> list[Recorded]:
    return list((await bench.temporal.get_workflow_handle(id).fetch_history()).events)


def size_of(history: list[Recorded]) -> int:
    return sum(event.ByteSize() for event in history)


def wide_plan(tasks: int, *, max_concurrency: int, id_bytes: int = 6) -> Planned:
    """A plan without needs, made without YAML: reading ten thousand tasks from a text takes seconds."""
    agent = Agent(name="hand", version="1", model="claude-haiku-4-5", instructions="Do the task.")
    made = tuple(
        Task(
            id=f"{number}-{secrets.token_urlsafe(id_bytes)}",
            agent="hand",
            prompt=("Go.",),
            timeout=timedelta(seconds=30),
            attempts=4,
            max_tokens=100,
        )
        for number in range(tasks)
    )
    plan = Plan(name="wide", max_concurrency=max_concurrency, agents=(agent,), tasks=made)
    return Planned(plan=plan, contents={}, sources={}, warnings=())


def carried_over(outline: Outline, progress: Progress) -> RunInput:
    """What a run gives to its next history."""
    ref = f"sha256:{secrets.token_hex(32)}"
    return RunInput(name="wide", plan_ref=ref, simulated=True, outline=outline, progress=packed(outline, progress))


def decision_of(start: Recorded) -> int:
    """The workflow task in which the start of a child was decided on."""
    return start.start_child_workflow_execution_initiated_event_attributes.workflow_task_completed_event_id


async def first_activation(bench: Bench, planned: Planned) -> list[Recorded]:
    """The history until the supervisor has made its first decisions; then the run is ended, and its worker."""
    run = Run(
        await bench.client.submit(planned, id=None, simulated=True, queue=bench.queue), bench.client, bench.temporal
    )

    async def decided() -> bool:
        events = await history_of(bench, run.id)
        return any(
            event.event_type == HistoryEvent.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_INITIATED for event in events
        )

    async with bench.worker(grace=timedelta(0)):
        await eventually(decided)
        await run.handle.terminate(reason="the test has seen enough")
    return await history_of(bench, run.id)


async def test_a_large_answer_is_paid_once(crew: Bench) -> None:
    """Three megabytes would not fit a result: activity and child hand back a reference."""
    answer = MOON * 780_000
    crew.simulator.script([{"then": {"answer": answer}}])
    run = await crew.start("tasks: [{id: a, agent: hand, prompt: Go., max_tokens: 200000, timeout: 60s}]")

    report = await run.report()

    (task,) = report.tasks
    assert report.status is RunStatus.COMPLETED
    assert (crew.simulator.calls(), task.attempts) == (1, 1)
    assert task.output is None  # too large to show in place
    assert await crew.client.text(task.output_ref or "") == answer
    assert size_of(await history_of(crew, run.id)) < 50_000
    assert size_of(await history_of(crew, f"{run.id}/a")) < 50_000


async def test_many_dependants_of_a_large_output(crew: Bench) -> None:
    """Forty tasks that need the same two megabytes carry forty references."""
    crew.simulator.script([{"when": {"task": "big"}, "then": {"answer": MOON * 475_000}}])
    run = await crew.start(f"""
max_concurrency: 8
defaults: {{agent: hand, timeout: 60s}}
tasks:
  - {{id: big, prompt: Go., max_tokens: 200000}}
  - {{id: leaf, for_each: [{", ".join(map(str, range(40)))}], prompt: Read it., needs: [big]}}
""")

    report = await run.report()

    assert report.status is RunStatus.COMPLETED
    assert crew.simulator.calls() == 41
    supervisor = await history_of(crew, run.id)
    leaf = await history_of(crew, f"{run.id}/leaf[0]")
    assert size_of(supervisor) < 1_000_000
    assert max(size for event in (*supervisor, *leaf) for size in payload_sizes(event)) < 256 * 1024


async def test_a_large_error_is_told_in_a_sentence(crew: Bench) -> None:
    """The provider's own text is not carried anywhere, however much there is of it."""
    crew.simulator.script([{"then": {"fault": "invalid_request", "message": "x" * 3_000_000}}])
    run = await crew.start("tasks: [{id: a, agent: hand, prompt: Go.}]")

    report = await run.report()

    (task,) = report.tasks
    assert (task.status, crew.simulator.calls()) == (TaskStatus.FAILED, 1)
    assert task.error is not None
    assert len(task.error.message) < 500
    assert "x" * 20 not in task.error.message
    assert size_of(await history_of(crew, f"{run.id}/a")) < 50_000


async def test_a_plan_that_cannot_travel_is_refused_by_name(bench: Bench) -> None:
    """At submit, before anything is started or called; Temporal would only say that a blob is too large."""
    planned = wide_plan(25_000, max_concurrency=4, id_bytes=75)

    with pytest.raises(PayloadTooLarge, match=r"the plan's outline.* is [\d,]+ bytes"):
        await bench.client.submit(planned, id="too-large", simulated=True, queue=bench.queue)

    assert await bench.store.manifest("too-large") is None
    assert [run async for run in bench.temporal.list_workflows("WorkflowId = 'too-large'")] == []


GROWING = """
name: growing
defaults: {agent: hand}
tasks:
  - {id: list, prompt: List them.}
"""
FAN = """  - {id: NAME, for_each: {from: list, max: 500, label: item}, prompt: "Look at {{ item }}."}
"""
VIEW = """  - {id: NAME, needs: [NEEDS], prompt: Of all of them.}
"""


@pytest.mark.parametrize(("views", "fits"), [(1, True), (20, False)])
async def test_a_plan_that_grows_beyond_what_can_travel_is_refused_in_words(
    tmp_path: Path, registry: Registry, views: int, fits: bool
) -> None:
    """As submit refuses it: adopted, its run could never begin a new history, nor could its growth be told."""
    fans = [f"fan-{number}" for number in range(8)]
    text = GROWING + "".join(FAN.replace("NAME", fan) for fan in fans)
    text += "".join(VIEW.replace("NAME", f"view-{n}").replace("NEEDS", ", ".join(fans)) for n in range(views))
    plan = plan_from_text(text, file="test.yaml", registry=registry, folder=PlanFolder(tmp_path)).plan
    items = [secrets.token_hex(27) for _ in range(500)]
    store = open_store(str(tmp_path))
    await store.put_manifest("run", {"run": "run"})
    request = GrowRequest(
        run="run",
        plan_ref=await store.put_artifact(plan.model_dump_json().encode()),
        task="list",
        output_ref=await store.put_artifact(json.dumps({"items": items}).encode()),
    )

    growth = await ActivityEnvironment().run(GrowActivities(store).grow_plan, request)

    assert (growth.amendment is not None, growth.refused is None) == (fits, fits)
    assert encoded_size(growth) < PAYLOAD_LIMIT
    if not fits:
        assert str(growth.refused).startswith('the plan would be too large: "the plan\'s outline" is ')


async def test_what_is_started_at_once_fits_one_workflow_task(bench: Bench) -> None:
    """F6: a tenth of its places, then the rest; far below the four megabytes that end a workflow."""
    history = await first_activation(bench, wide_plan(600, max_concurrency=500))

    starts = [
        event
        for event in history
        if event.event_type == HistoryEvent.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_INITIATED
    ]
    starts = [start for start in starts if decision_of(start) == decision_of(starts[0])]  # more may have followed
    assert len(starts) == 50
    assert size_of(starts) < 100_000


async def test_ten_thousand_tasks_are_taken_in_at_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first activation neither fails nor stalls, and its input stays below the limit.

    How long it takes is for benchmarks/activations.py to say: a machine that stands still is not a fault of the run.
    """
    monkeypatch.setenv("TEMPORAL_DEBUG", "1")  # the worker's own limit of 2 s
    history = await first_activation(bench, wide_plan(10_000, max_concurrency=50))

    assert max(payload_sizes(history[0])) < PAYLOAD_LIMIT
    troubles = {HistoryEvent.EVENT_TYPE_WORKFLOW_TASK_FAILED, HistoryEvent.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT}
    failed = [event for event in history if event.event_type in troubles and not was_not_taken(event)]
    ended_by_the_test = WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_FORCE_CLOSE_COMMAND
    assert not [event for event in failed if event.workflow_task_failed_event_attributes.cause != ended_by_the_test]
    assert max(size for event in history for size in payload_sizes(event)) < PAYLOAD_LIMIT


def was_not_taken(event: Recorded) -> bool:
    """Whether a step was not taken by the worker that knows the run: a busy machine hands it to any, once more."""
    timeout = event.workflow_task_timed_out_event_attributes.timeout_type
    return timeout == TimeoutType.TIMEOUT_TYPE_SCHEDULE_TO_START


@pytest.mark.parametrize(("tasks", "ended", "seconds"), [(1000, None, 10), (1001, 250, 30)])
async def test_a_large_run_gets_short_histories_and_time_to_replay_them(
    bench: Bench, tasks: int, ended: int | None, seconds: int
) -> None:
    """A full history of ten thousand tasks takes 7 s of CPU to replay: on a busy machine more than a task may take."""
    planned = wide_plan(tasks, max_concurrency=50)
    run = await bench.client.submit(planned, id=None, simulated=True, queue=bench.queue)

    first = (await history_of(bench, run))[0].workflow_execution_started_event_attributes

    assert first.workflow_task_timeout.ToSeconds() == seconds
    (input,) = await bench.temporal.data_converter.decode(first.input.payloads, [RunInput])
    assert input.continue_after == ended
    await bench.temporal.get_workflow_handle(run).terminate()


def near(place: int) -> range:
    """The two tasks before."""
    return range(max(0, place - 2), place)


def far(place: int) -> list[int]:
    """Of the last hundred tasks: 198 of all the others, each of which two of them need."""
    return [(99 * place + step) % 9_900 for step in range(198)] if place >= 9_900 else []


@pytest.mark.parametrize("needed", [near, far])
def test_ten_thousand_ended_tasks_with_summaries_fit_continue_as_new(needed: Callable[[int], Sequence[int]]) -> None:
    """Twice as many references: where every result fans out, each has its own and that of its summary."""
    planned = wide_plan(10_000, max_concurrency=50).plan
    ids = [task.id for task in planned.tasks]
    tasks = tuple(
        task.model_copy(
            update={
                "summarise": True,
                "needs": tuple(Need(task=ids[other], form=Form.SUMMARY) for other in needed(place)),
            }
        )
        for place, task in enumerate(planned.tasks)
    )
    outline = outline_of(planned.model_copy(update={"tasks": tasks}))
    ended = {
        id: Ended(
            status=TaskStatus.SUCCEEDED,
            ref=f"sha256:{secrets.token_hex(32)}",
            size=secrets.randbelow(1_000_000),
            summary_ref=f"sha256:{secrets.token_hex(32)}",
            summary_size=secrets.randbelow(600),
        )
        for id in ids
    }
    progress = Progress(ended=ended, events=40_000)

    carried = carried_over(outline, progress)

    assert encoded_size(carried) < 1_000_000
    assert unpacked(outline, carried.progress) == progress


def test_ten_thousand_ended_tasks_fit_continue_as_new() -> None:
    """References do not compress, yet a run that has nearly come to its end can still get a fresh history."""
    plan = wide_plan(10_000, max_concurrency=50).plan
    ended = {
        task.id: Ended(status=TaskStatus.SUCCEEDED, ref=f"sha256:{secrets.token_hex(32)}")
        if number % 2
        else Ended(status=TaskStatus.TIMED_OUT, why="Task timeout after 30 s, attempt 4 of 4", cause=task.id)
        for number, task in enumerate(plan.tasks)
    }

    carried = carried_over(outline_of(plan), Progress(ended=ended, events=40_000))

    assert encoded_size(carried) < 500_000
