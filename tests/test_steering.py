"""What people do to a run that is going: each change is made exactly once, or refused in a sentence."""

from __future__ import annotations

import asyncio
import json
from asyncio.subprocess import PIPE, STDOUT
from collections import Counter

import pytest
from conftest import Bench, Run, answer_to, eventually
from temporalio.api.enums.v1 import EventType as HistoryEvent
from temporalio.client import WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError

from client import SteeringRefused
from domain.events import EventType
from domain.models import RunStatus, TaskStatus
from domain.steering import Steered, TaskSteering
from temporal_server import temporal_binary

HANG = {"fault": "hang_before_headers"}
REFUSAL = {"stop_reason": "refusal"}


async def asked(run: Run) -> None:
    """Wait until the run asks a person."""
    await run.until(lambda picture: picture.census.waiting > 0)


# --- people ---


async def test_an_approval_holds_one_task_while_its_siblings_go_on(crew: Bench) -> None:
    """Two wait at once, neither holds a place; the note reaches the agent as data, in its brief."""
    run = await crew.start(
        """
max_concurrency: 1
defaults: {agent: hand}
tasks:
  - {id: pay, prompt: Pay., approval: {ask: Pay the bill?}}
  - {id: sign, prompt: Sign., approval: true}
  - {id: other, prompt: Go.}
"""
    )

    picture = await run.until(lambda picture: picture.status is RunStatus.WAITING)
    assert picture.tasks["other"].status is TaskStatus.SUCCEEDED
    assert picture.census.waiting == 2
    assert crew.simulator.calls() == 1
    await run.client.approve(run.id, ["pay"], by="ann", note="Only the first <invoice>.")
    await run.client.approve(run.id, ["sign"], by="bob")
    report = await run.report()

    assert report.status is RunStatus.COMPLETED
    assert crew.simulator.calls() == 3
    given = [event for event in await run.events() if event.type is EventType.APPROVAL_GIVEN]
    assert [(event.task, event.data["by"], event.data["note"]) for event in given] == [
        ("pay", "ann", "Only the first <invoice>."),
        ("sign", "bob", None),
    ]
    brief = await run.client.brief(await run.client.picture(run.id), "pay")
    assert "Only the first <invoice>." in brief


async def test_a_rejection_skips_the_branch_with_the_note_as_its_reason(crew: Bench) -> None:
    run = await crew.start(
        """
defaults: {agent: hand}
tasks:
  - {id: pay, prompt: Pay., approval: true}
  - {id: book, prompt: Go., needs: [pay]}
  - {id: note, prompt: Go., needs: {pay: optional}}
"""
    )

    await asked(run)
    await run.client.reject(run.id, ["pay"], by="ann", note="too much")
    report = await run.report()

    pay, book, note = report.tasks
    assert (pay.status, book.status, note.status) == (TaskStatus.SKIPPED, TaskStatus.SKIPPED, TaskStatus.SUCCEEDED)
    assert pay.error is not None
    assert pay.error.message == "rejected by ann: too much"
    assert book.cause == "pay"
    assert "too much" in await run.client.brief(await run.client.picture(run.id), "note")
    assert report.status is RunStatus.PARTIAL


async def test_a_task_at_work_can_be_skipped(crew: Bench) -> None:
    """Its call is cut, its child ends cancelled, and who can do without it goes on."""
    crew.simulator.script([{"when": {"task": "stuck"}, "then": HANG}])
    run = await crew.start(
        """
defaults: {agent: hand}
tasks:
  - {id: stuck, prompt: Go.}
  - {id: after, prompt: Go., needs: {stuck: optional}}
"""
    )

    async def is_called() -> bool:
        return crew.simulator.calls() == 1

    await eventually(is_called)
    await run.client.skip(run.id, ["stuck"], by="ann", note="it hangs")
    report = await run.report()

    stuck, after = report.tasks
    assert (stuck.status, after.status) == (TaskStatus.SKIPPED, TaskStatus.SUCCEEDED)
    assert stuck.error is not None
    assert stuck.error.message == "skipped by ann: it hangs"
    assert report.status is RunStatus.DEGRADED
    assert (await run.ended_children())["stuck"] == "CANCELED"


async def test_a_failed_task_is_done_again_and_so_is_what_was_skipped_because_of_it(crew: Bench) -> None:
    """It is asked anew: the refusal that was paid for is not taken for the answer."""
    crew.simulator.script([{"when": {"task": "a", "nth": 1}, "then": REFUSAL}])
    run = await crew.start(
        """
defaults: {agent: hand}
tasks:
  - {id: a, prompt: Go.}
  - {id: b, prompt: Go., needs: [a]}
  - {id: c, prompt: Go., needs: [b]}
  - {id: hold, prompt: Go., approval: true}
"""
    )

    await run.until(lambda picture: picture.tasks["c"].status is TaskStatus.SKIPPED)
    answer = await run.client.retry(run.id, [], by="ann")
    assert set(answer.tasks) == {"a", "b", "c"}
    await run.until(lambda picture: picture.tasks["c"].status is TaskStatus.SUCCEEDED)
    await run.client.approve(run.id, ["hold"], by="ann")
    report = await run.report()

    assert report.status is RunStatus.COMPLETED
    assert Counter(entry.task for entry in crew.simulator.log) == {"a": 2, "b": 1, "c": 1, "hold": 1}


async def test_the_number_of_places_can_be_changed(crew: Bench) -> None:
    crew.simulator.script([{"when": {}, "then": HANG}])
    run = await crew.start("max_concurrency: 2\ntasks: [{id: t, for_each: [1, 2, 3, 4, 5], agent: hand, prompt: Go.}]")

    await run.until(lambda picture: picture.census.running == 2)
    await run.client.set(run.id, by="ann", max_concurrency=4)
    await run.until(lambda picture: picture.census.running == 4)
    await run.client.cancel(run.id)
    await run.closed()


# --- what cannot be done ---


@pytest.mark.parametrize(
    ("verb", "tasks", "words"),
    [
        ("approve", ["done"], "does not wait for approval"),
        ("approve", ["nobody"], "no task 'nobody'"),
        ("approve", [], "say which tasks"),
        ("reject", ["later"], "does not wait for approval"),
        ("skip", ["done"], "has ended SUCCEEDED"),
        ("skip", ["hold", "hold"], "named twice"),
        ("retry", ["done"], "has succeeded"),
        ("retry", ["later"], "has not ended yet"),
        ("retry", [], "nothing to do again"),
    ],
)
async def test_what_cannot_be_done_is_refused_and_changes_nothing(
    crew: Bench, verb: str, tasks: list[str], words: str
) -> None:
    """A refused update is not even written into the history."""
    run = await crew.start(
        """
defaults: {agent: hand}
tasks:
  - {id: done, prompt: Go.}
  - {id: hold, prompt: Go., approval: true}
  - {id: later, prompt: Go., needs: [hold]}
"""
    )
    await run.until(lambda picture: picture.status is RunStatus.WAITING)
    await run.written()
    before = len(await run.events())

    with pytest.raises(SteeringRefused, match=words):
        await getattr(run.client, verb)(run.id, tasks, by="ann")

    assert len(await run.events()) == before
    kinds = {event.event_type for event in (await run.handle.fetch_history()).events}
    assert HistoryEvent.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED not in kinds
    await run.client.cancel(run.id)
    await run.closed()


@pytest.mark.parametrize(
    "input", [{"tasks": "hold"}, {"tasks": [1]}, {"task": ["hold"]}, {"note": "x" * 3000}, "hold", 7, None]
)
async def test_a_wrong_input_is_refused_and_stalls_nothing(crew: Bench, input: object) -> None:
    """As somebody may type it in the Web UI."""
    run = await crew.start("tasks: [{id: hold, agent: hand, prompt: Go., approval: true}]")
    await asked(run)

    with pytest.raises(WorkflowUpdateFailedError):
        await answer_to(run.handle, "approve", input)

    await run.client.approve(run.id, ["hold"], by="ann")
    assert (await run.report()).status is RunStatus.COMPLETED


async def test_a_slip_in_the_input_of_a_retry_does_not_do_everything_again(crew: Bench) -> None:
    """Without tasks it means all that failed, and all of it is paid again."""
    crew.simulator.script([{"when": {"task": "bad"}, "then": REFUSAL}])
    run = await crew.start(
        """
defaults: {agent: hand}
tasks: [{id: bad, prompt: Go.}, {id: hold, prompt: Go., approval: true}]
"""
    )
    await run.until(lambda picture: picture.census.failed == 1)

    with pytest.raises(WorkflowUpdateFailedError):
        await answer_to(run.handle, "retry", {"task": ["hold"]})

    await run.until(lambda picture: picture.census.failed == 1)
    await run.client.cancel(run.id)
    await run.closed()
    assert crew.simulator.calls("bad") == 1


# --- as Temporal's own command sends it ---


async def test_every_change_can_be_asked_for_by_temporals_own_command(crew: Bench) -> None:
    """With the inputs that the page shows; those that need none also without."""
    crew.simulator.script([{"when": {"task": "bad"}, "then": REFUSAL}, {"when": {"task": "long"}, "then": HANG}])
    run = await crew.start(
        """
defaults: {agent: hand}
tasks:
  - {id: bad, prompt: Go.}
  - {id: long, prompt: Go., timeout: 10m}
  - {id: pay, prompt: Go., approval: true}
  - {id: sue, prompt: Go., approval: true}
""",
        with_prices=True,
    )
    await run.until(lambda picture: picture.census.failed == 1 and picture.census.waiting == 2)

    assert "say which tasks" in await by_command(run, "approve")
    assert "paused" in await by_command(run, "pause")
    assert "resumed" in await by_command(run, "resume", {"by": "ann", "note": "why"})
    assert "max_concurrency is 8" in await by_command(run, "set", {"max_concurrency": 8, "by": "ann"})
    assert "the budget is $5" in await by_command(run, "set", {"budget_usd": "5", "by": "ann"})
    assert "does again bad" in await by_command(run, "retry", {"tasks": ["bad"], "by": "ann"})
    assert "approved pay" in await by_command(run, "approve", {"tasks": ["pay"], "note": "why", "by": "ann"})
    assert "rejected sue" in await by_command(run, "reject", {"tasks": ["sue"], "note": "why", "by": "ann"})
    assert "skipped long" in await by_command(run, "skip", {"tasks": ["long"], "note": "why", "by": "ann"})

    report = await run.report()
    ends = {task.id: task.status.value for task in report.tasks}
    assert ends == {"bad": "FAILED", "long": "SKIPPED", "pay": "SUCCEEDED", "sue": "SKIPPED"}


async def by_command(run: Run, verb: str, input: dict[str, object] | None = None) -> str:
    """What the command says."""
    words = ["workflow", "update", "execute", "--workflow-id", run.id, "--name", verb]
    words += ["--address", run.temporal.service_client.config.target_host]
    words += ["--input", json.dumps(input)] if input is not None else []
    command = await asyncio.create_subprocess_exec(temporal_binary(), *words, stdout=PIPE, stderr=STDOUT)
    said, _ = await command.communicate()
    return said.decode()


# --- exactly once ---


async def test_the_same_change_sent_again_after_continue_as_new_is_not_made_again(crew: Bench) -> None:
    """The server forgets the ids of updates with each history; the run does not."""
    run = await crew.start(
        """
max_concurrency: 1
defaults: {agent: hand}
tasks:
  - {id: hold, prompt: Go., approval: true}
  - {id: t, for_each: [1, 2, 3, 4], prompt: Go.}
  - {id: last, prompt: Go., approval: true}
""",
        continue_after=2,
    )
    await asked(run)
    change = TaskSteering(tasks=("hold",), by="ann")

    async def send() -> Steered:
        answer: Steered = await answer_to(run.handle, "approve", change, id="once", result_type=Steered)
        return answer

    first = await send()
    await run.until(lambda picture: picture.census.succeeded == 5)
    assert len(await run.chain()) > 1
    again = await send()
    with pytest.raises(WorkflowUpdateFailedError) as refused:
        await answer_to(run.handle, "approve", change, id="twice")
    await run.client.approve(run.id, ["last"], by="ann")
    report = await run.report()

    assert first == again
    assert isinstance(refused.value.cause, ApplicationError)
    assert refused.value.cause.type == "Refused"
    assert report.status is RunStatus.COMPLETED
    given = [event.task for event in await run.events() if event.type is EventType.APPROVAL_GIVEN]
    assert given == ["hold", "last"]


async def test_a_change_that_comes_with_the_start_is_not_lost(bench: Bench) -> None:
    """Temporal hands it to the run before its first step: from its acknowledgement on nothing is called."""
    run = await bench.start("tasks: [{id: a, agent: hand, prompt: Go.}]")
    sent = asyncio.create_task(run.client.pause(run.id, by="ann"))
    await asyncio.sleep(0)
    await run.handle.describe()  # a round trip: the change is there before the worker is
    async with bench.worker():
        await sent
        await run.until(lambda picture: picture.status is RunStatus.PAUSED)
        assert bench.simulator.calls() == 0
        await run.client.resume(run.id, by="ann")
        report = await run.report()

    assert report.status is RunStatus.COMPLETED
    types = [event.type for event in await run.events()]
    assert types.index(EventType.RUN_STARTED) < types.index(EventType.RUN_PAUSED) < types.index(EventType.TASK_STARTED)


async def test_changes_sent_while_the_worker_restarts_are_made_once(bench: Bench) -> None:
    """They wait for the next worker; nothing is lost, nothing is doubled."""
    plan = "defaults: {agent: hand}\ntasks: [{id: t, for_each: [1, 2, 3, 4, 5, 6], prompt: Go., approval: true}]"
    async with bench.worker():
        run = await bench.start(plan)
        await run.until(lambda picture: picture.census.waiting == 6)
    sent = [asyncio.create_task(run.client.approve(run.id, [f"t[{n}]"], by="ann")) for n in range(1, 6)]
    sent.append(asyncio.create_task(run.client.pause(run.id, by="ann")))
    await asyncio.sleep(0)
    async with bench.worker():
        await asyncio.gather(*sent)
        await run.until(lambda picture: picture.status is RunStatus.PAUSED)
        await run.client.resume(run.id, by="ann")
        await run.client.reject(run.id, ["t[6]"], by="ann")
        report = await run.report()

    assert report.census.succeeded == 5
    assert bench.simulator.calls() == 5
    kinds = Counter(event.type for event in await run.events())
    assert kinds[EventType.APPROVAL_GIVEN] == 5
    assert kinds[EventType.RUN_PAUSED] == kinds[EventType.RUN_RESUMED] == 1


async def test_two_hundred_of_two_hundred_changes_are_made_once_while_the_run_continues_as_new(crew: Bench) -> None:
    """All of them in one burst, each for a task of its own."""
    items = list(range(200))
    run = await crew.start(
        f"max_concurrency: 20\ntasks: [{{id: t, for_each: {items}, agent: hand, prompt: Go., approval: true}}]",
        continue_after=10,
    )
    await run.until(lambda picture: picture.census.waiting == len(items))

    await asyncio.gather(*(run.client.approve(run.id, [f"t[{number}]"], by="ann") for number in items))
    report = await run.report()

    assert (report.status, report.census.succeeded) == (RunStatus.COMPLETED, len(items))
    given = Counter(event.task for event in await run.events() if event.type is EventType.APPROVAL_GIVEN)
    assert given == {f"t[{number}]": 1 for number in items}
    assert Counter(entry.task for entry in crew.simulator.log) == given
    assert len(await run.chain()) > 3


async def test_two_hundred_changes_in_a_burst_while_the_run_continues_as_new(crew: Bench) -> None:
    """Each approval is given exactly once; whoever sends the same wish twice at once is refused once."""
    run = await crew.start(
        f"""
max_concurrency: 20
defaults: {{agent: hand}}
tasks:
  - {{id: t, for_each: {list(range(100))}, prompt: Go., approval: true}}
""",
        continue_after=10,
    )
    await run.until(lambda picture: picture.census.waiting == 100)

    async def approve(number: int) -> str:
        try:
            await run.client.approve(run.id, [f"t[{number}]"], by="ann")
        except SteeringRefused as refused:
            fitting = any(words in str(refused) for words in ("does not wait for approval", "at its end", "has ended"))
            return "refused" if fitting else str(refused)
        return "given"

    answers = await asyncio.gather(*(approve(number % 100) for number in range(200)))
    report = await run.report()

    assert Counter(answers) == {"given": 100, "refused": 100}
    assert report.status is RunStatus.COMPLETED
    given = Counter(event.task for event in await run.events() if event.type is EventType.APPROVAL_GIVEN)
    assert len(given) == 100
    assert set(given.values()) == {1}
    assert Counter(entry.task for entry in crew.simulator.log) == dict.fromkeys(given, 1)
    assert len(await run.chain()) > 3
