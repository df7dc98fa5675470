"""Steering by the command line and by the client: what is asked for is done once, or refused in a sentence."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from conftest import Bench, Run
from home import Home
from temporalio.client import WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

import client as client_module
from client import RunClient, SteeringRefused
from domain.models import RunStatus, TaskStatus
from domain.picture import Picture
from domain.steering import Steered
from store import Store
from terminal import completing
from terminal.commands import app

ASKED = """
tasks:
  - {id: draft, agent: hand, prompt: Write it.}
  - {id: publish, agent: hand, prompt: Send it., needs: [draft], approval: {ask: Send it to everybody?, expires: 2h}}
  - {id: after, agent: hand, prompt: Count them., needs: [publish]}
"""
FANNED = """
tasks:
  - {id: scan, for_each: [a, b], agent: hand, prompt: "{{ item }}", attempts: 1}
  - {id: report, agent: hand, prompt: Sum up., needs: [scan]}
  - {id: slow, agent: hand, prompt: Take your time., timeout: 20m}
"""
FAILS = {"fault": "invalid_request"}
SLOW = {"when": {"task": "slow"}, "then": {"ttft": 600}}


def waits_for(task: str, reason: str) -> Callable[[Picture], bool]:
    def true(picture: Picture) -> bool:
        wait = picture.tasks[task].wait
        return wait is not None and wait.reason == reason

    return true


def has(task: str, status: TaskStatus) -> Callable[[Picture], bool]:
    return lambda picture: picture.tasks[task].status is status


# --- the client, on a run ---


async def test_an_approved_task_runs_and_its_agent_is_told_the_note(crew: Bench) -> None:
    run = await crew.start(ASKED)
    picture = await run.until(waits_for("publish", "approval"))
    assert picture.status is RunStatus.WAITING

    steered = await crew.client.approve(run.id, ["publish"], by="ann", note="Mind the tone.")

    report = await run.report()
    assert (steered.tasks, report.status) == (("publish",), RunStatus.COMPLETED)
    decision = report.tasks[1].approval
    assert decision is not None
    assert (decision.answer, decision.by, decision.note) == ("approved", "ann", "Mind the tone.")
    assert "Mind the tone." in await crew.client.brief(await crew.client.picture(run.id), "publish")


async def test_a_rejected_task_skips_its_branch_with_the_note_as_the_reason(crew: Bench) -> None:
    run = await crew.start(ASKED)
    await run.until(waits_for("publish", "approval"))

    await crew.client.reject(run.id, ["publish"], by="ann", note="not today")

    report = await run.report()
    publish, after = report.tasks[1:]
    assert (publish.status, after.status, after.cause) == (TaskStatus.SKIPPED, TaskStatus.SKIPPED, "publish")
    assert publish.error is not None
    assert "not today" in publish.error.message


async def failed_scan(crew: Bench) -> Run:
    """A run that goes on, in which one item of a fan-out has failed."""
    crew.simulator.script([{"when": {"task": "scan[a]", "nth": 1}, "then": FAILS}, SLOW])
    run = await crew.start(FANNED)
    await run.until(has("report", TaskStatus.SKIPPED))
    await run.until(has("slow", TaskStatus.RUNNING))
    return run


async def test_what_failed_is_done_again_with_what_was_skipped_because_of_it(crew: Bench) -> None:
    run = await failed_scan(crew)

    steered = await crew.client.retry(run.id, [], by="ann")

    assert set(steered.tasks) == {"scan[a]", "report"}
    picture = await run.until(has("report", TaskStatus.SUCCEEDED))
    assert picture.tasks["scan[a]"].tries[0].error.message
    await crew.client.skip(run.id, ["slow"], by="ann")
    report = await run.report()
    assert [task.status for task in report.tasks] == [*[TaskStatus.SUCCEEDED] * 3, TaskStatus.SKIPPED]


async def test_a_change_that_the_run_does_not_take_is_refused_in_its_words(crew: Bench) -> None:
    run = await crew.start(ASKED)
    await run.until(waits_for("publish", "approval"))

    with pytest.raises(SteeringRefused, match="'draft' does not wait for approval"):
        await crew.client.approve(run.id, ["draft"], by="ann")
    with pytest.raises(SteeringRefused, match="the run is not paused"):
        await crew.client.resume(run.id, by="ann")

    await crew.client.cancel(run.id)
    await run.closed()
    with pytest.raises(SteeringRefused, match="the run has ended"):
        await crew.client.pause(run.id, by="ann")


async def test_places_can_be_changed_while_a_run_goes(crew: Bench) -> None:
    crew.simulator.script([{"then": {"ttft": 60}}])
    run = await crew.start("max_concurrency: 1\ntasks: [{id: t, for_each: [a, b, c], agent: hand, prompt: Go.}]")
    await run.until(lambda picture: picture.census.running == 1)

    await crew.client.set(run.id, by="ann", max_concurrency=3)

    picture = await run.until(lambda picture: picture.census.running == 3)
    assert picture.max_concurrency == 3
    await run.handle.terminate()


# --- the client, when Temporal does not hear ---


class Deaf:
    """A handle whose first answers are these troubles, then the words of a run."""

    def __init__(self, *troubles: Exception) -> None:
        self.troubles = list(troubles)
        self.ids: list[str] = []

    async def execute_update(self, verb: str, steering: Any, *, id: str, result_type: Any, rpc_timeout: Any) -> Any:
        del verb, steering, result_type, rpc_timeout
        self.ids.append(id)
        if self.troubles:
            raise self.troubles.pop(0)
        return Steered(done="paused")


def trouble(status: RPCStatusCode) -> RPCError:
    return RPCError("trouble", status, b"")


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "SEND_AGAIN", 0.0)


def client_of(handle: Deaf, store: Store, monkeypatch: pytest.MonkeyPatch) -> RunClient:
    monkeypatch.setattr(RunClient, "_handle", lambda *_: handle)
    return RunClient(None, store)


@pytest.mark.usefixtures("hasty")
async def test_what_did_not_get_through_is_sent_again_under_the_same_id(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run has perhaps heard it: the id tells it that this is no second wish."""
    handle = Deaf(trouble(RPCStatusCode.RESOURCE_EXHAUSTED), trouble(RPCStatusCode.UNAVAILABLE))

    steered = await client_of(handle, bench.store, monkeypatch).pause("run", by="ann")

    assert steered.done == "paused"
    assert len(handle.ids) == 3
    assert len(set(handle.ids)) == 1


@pytest.mark.usefixtures("hasty")
async def test_two_wishes_have_two_ids(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    handle = Deaf()
    client = client_of(handle, bench.store, monkeypatch)

    await client.pause("run", by="ann")
    await client.pause("run", by="ann")

    assert len(set(handle.ids)) == 2


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (trouble(RPCStatusCode.PERMISSION_DENIED), RPCError),
        (trouble(RPCStatusCode.NOT_FOUND), SteeringRefused),
        (WorkflowUpdateFailedError(ApplicationError("no", type="Refused")), SteeringRefused),
    ],
)
async def test_what_would_not_get_better_is_not_sent_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, error: Exception, raised: type[Exception]
) -> None:
    handle = Deaf(error)

    with pytest.raises(raised):
        await client_of(handle, bench.store, monkeypatch).pause("run", by="ann")

    assert len(handle.ids) == 1


@pytest.mark.usefixtures("hasty")
async def test_of_what_was_sent_twice_nobody_says_that_it_was_refused(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first try was perhaps applied, its answer lost, and the run has ended since."""
    handle = Deaf(trouble(RPCStatusCode.UNAVAILABLE), trouble(RPCStatusCode.NOT_FOUND))

    with pytest.raises(SteeringRefused, match="may have been applied") as told:
        await client_of(handle, bench.store, monkeypatch).pause("run", by="ann")

    assert "refused" not in str(told.value)
    assert len(handle.ids) == 2


# --- the command line ---


def submitted(home: Home, tmp_path: Path, plan: str) -> str:
    file = tmp_path / "plan.yaml"
    file.write_text(plan.replace("hand", "writer"))
    done = home("submit", str(file))
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def until(home: Home, run: str, true: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The document of a run as soon as something is true of it."""
    while True:
        document: dict[str, Any] = json.loads(home("status", run, "--json").stdout)
        if true(document):
            return document


def state(document: dict[str, Any], task: str) -> str:
    return str(next(found["status"] for found in document["tasks"] if found["id"] == task))


def test_a_question_is_seen_listed_shown_and_answered(home: Home, tmp_path: Path) -> None:
    run = submitted(home, tmp_path, ASKED)
    document = until(home, run, lambda found: found["status"] == "WAITING")
    assert document["tasks"][1]["wait"]["for"] == "approval"
    assert [(found["kind"], found["do"]) for found in document["attention"]] == [("approval", f"approve {run} publish")]

    while run not in [found["run"] for found in json.loads(home("list", "--attention", "--json").stdout)["runs"]]:
        pass  # the list goes by what is written, which is a moment behind what the run says itself
    shown = home("status", run, "publish").stdout
    assert "This task waits for your approval: Send it to everybody?" in shown
    assert f"approve {run} publish --note TEXT" in shown
    assert "Send it." in shown, "the brief is a part of what is approved"
    document = json.loads(home("status", run, "publish", "--json").stdout)
    assert "Send it." in document["brief"]
    assert [input["task"] for input in document["inputs"]] == ["draft"]
    whole = home("status", run).stdout
    assert "approval  publish: Send it to everybody?" in whole

    done = home("approve", run, "publish", "--note", "Well done.")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert done.stderr.startswith(f"approve {run}: approved publish.")
    assert home("result", run, "--wait").returncode == 0
    assert "approved by" in home("status", run, "publish").stdout
    again = home("approve", run, "publish")
    assert (again.returncode, again.stderr) == (1, f"{run} has ended (COMPLETED): nothing to approve.\n")


def test_retry_prints_the_run_and_takes_the_name_of_a_fan_out(home: Home, tmp_path: Path) -> None:
    home.script(
        {"when": {"task": "scan[a]", "nth": 1}, "then": FAILS},
        {"when": {"task": "scan[b]", "nth": 1}, "then": FAILS},
        SLOW,
        ttft=0,
        tokens_per_second=0,
    )
    run = submitted(home, tmp_path, FANNED)
    until(home, run, lambda found: state(found, "report") == "SKIPPED")

    done = home("retry", run, "scan", "--json")

    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert (answer["schema"], answer["run"], answer["did"]) == ("nightcrew.steering/1", run, "retry")
    assert set(answer["tasks"]) == {"scan[a]", "scan[b]", "report"}
    until(home, run, lambda found: state(found, "report") == "SUCCEEDED")
    skipped = home("skip", run, "slow", "--note", "enough")
    assert skipped.returncode == 0, skipped.stderr
    assert home("result", run, "--wait").returncode == 3
    ended = home("retry", run)
    assert (ended.returncode, ended.stdout) == (0, f"{run}-r2\n"), "after its end, a new run does it again"
    home("cancel", f"{run}-r2")


def test_a_run_that_waits_for_money_goes_on_with_more(home: Home, tmp_path: Path) -> None:
    """What is left does not cover another call at its worst: nothing is lost, and `set` is what the page says."""
    file = tmp_path / "dear.yaml"
    file.write_text(
        "on_budget: wait\ndefaults: {agent: writer, attempts: 1}\n"
        "tasks: [{id: t, for_each: [1, 2, 3, 4, 5, 6], prompt: '{{ item }}'}]"
    )
    submitted = home("submit", str(file), "--budget", "0.0145")
    assert submitted.returncode == 0, submitted.stderr
    run = submitted.stdout.strip()
    waiting = until(home, run, lambda found: found["status"] == "WAITING")  # what it had begun has come to its end
    assert [each["kind"] for each in waiting["attention"]] == ["budget"]
    before = len(home.calls(run))

    more = home("set", run, "--budget", "1")

    assert more.returncode == 0, more.stderr
    assert home("result", run, "--wait").returncode == 0
    assert 0 < before < len(home.calls(run)) == 6


def test_wrong_words_are_refused_before_the_run_hears_them(home: Home, tmp_path: Path) -> None:
    run = submitted(home, tmp_path, ASKED)
    try:
        until(home, run, lambda found: found["status"] == "WAITING")

        unknown = home("approve", run, "publsh")
        nothing = home("set", run)
        long = home("approve", run, "publish", "--note", "x" * 2001)
        refused = home("approve", run, "draft", "--json")
        again = home("retry", run)

        assert (unknown.returncode, "Did you mean 'publish'?" in unknown.stderr) == (2, True)
        assert (nothing.returncode, nothing.stderr) == (2, "Say what to set: --max-concurrency N or --budget USD.\n")
        assert (long.returncode, "at most 2,000 characters" in long.stderr) == (2, True)
        assert refused.returncode == 1
        assert "'draft' does not wait for approval" in json.loads(refused.stdout)["error"]["message"]
        assert (again.returncode, "there is nothing to do again" in again.stderr) == (1, True)
        assert home("approve", run).returncode == 2
    finally:
        home("cancel", run)


def test_a_shell_offers_the_tasks_of_the_run_that_was_named(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = submitted(home, tmp_path, ASKED)
    monkeypatch.setenv("NIGHTCREW_HOME", str(home.folder))

    assert completing.tasks(typed(run), "") == ["draft", "publish", "after"]
    assert completing.tasks(typed(run), "pu") == ["publish"]
    assert completing.tasks(typed("nobody"), "") == []
    home("cancel", run)


def typed(run: str) -> typer.Context:
    """What a shell knows when the run was typed."""
    context = typer.Context(typer.main.get_command(app))
    context.params = {"run": run}
    return context
