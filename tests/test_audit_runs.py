"""Audit trails of real runs: whole, anchored, and call by call what the provider has had, whatever is killed."""

from __future__ import annotations

import asyncio
import csv
import hashlib
import io
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from canaries import CANARIES
from conftest import Bench, Run, eventually
from home import Home
from test_crashes import Home as Crashing
from test_steering_commands import waits_for

from audit_trail import AuditTrail
from audits import Audits, Verdict
from domain.audit import Broken, Head, Record
from domain.events import Event, EventType
from domain.models import RunStatus, Usage
from domain.registry import Registry
from embedded import Worker, down
from proof.processes import started
from runtime import Mode, load_settings
from simulator.log import Entry
from simulator.server import Simulator
from store import Store
from untold import BESIDE, Untold
from workflows import policies

STEERED = """
max_concurrency: 4
defaults: {agent: hand, timeout: 20s}
tasks:
  - {id: part, for_each: [1, 2, 3], prompt: "Read the canarypromptzq7.", files: [notes.txt]}
  - {id: publish, prompt: Join., needs: [part], approval: true}
"""

WRITTEN = f"""
defaults: {{agent: writer}}
tasks: [{{id: first, prompt: {CANARIES["prompt"]}}}, {{id: last, prompt: Go., needs: [first]}}]
"""


async def verdict_on(run: Run, store: Store) -> Verdict:
    """What is found of a trail that is anchored, as soon as a busy Temporal answers in time."""
    while (verdict := await Audits(run.client, store).verify(run.id)).anchorage.anchor is None:
        await asyncio.sleep(0.1)
    return verdict


async def records_of(run: Run, store: Store) -> list[Record]:
    return await AuditTrail(store).records(run.id)


def check_calls(run: Run, log: Iterable[Entry], records: Iterable[Record]) -> Counter[str | None]:
    """Call by call: every request of the bill has one record, answers have the tokens of the bill; what is left over.

    Only a request that was lost with its worker may be told of that the provider never saw.
    """
    user = hashlib.sha256(run.id.encode()).hexdigest()[:32]
    billed = [entry for entry in log if entry.user == user and entry.path == "/v1/messages"]
    told = [record for record in records if record.type == EventType.CALL_MADE]
    keys = Counter((record.task, record.data["prompt"], record.data["request"]) for record in told)
    assert set(keys.values()) == {1}
    answers = Counter((record.task, *_tokens(record.data["tokens"])) for record in told if record.data["answer"])
    finished = [entry for entry in billed if entry.stop_reason and not entry.client_left]
    assert not answers - Counter((entry.task, entry.billed.input, entry.billed.output) for entry in finished)
    missing = Counter(entry.task for entry in billed) - Counter(record.task for record in told)
    assert not missing
    surplus = Counter(record.task for record in told) - Counter(entry.task for entry in billed)
    lost = Counter(record.task for record in told if record.data.get("error") == "WorkerLost")
    assert not surplus - lost
    return surplus


def _tokens(tokens: dict[str, int]) -> tuple[int, int]:
    return tokens["input"], tokens["output"]


def is_of(record: Record, event: Event) -> bool:
    return record.tells(event) and record.data == event.data


async def test_a_cancel_while_events_are_written_begins_no_second_batch_with_them(
    crew: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that is slow to write them would come after the longer batch, and cut off the trail."""
    begun, append = list[int](), AuditTrail.append
    held, released = asyncio.Event(), asyncio.Event()

    async def slow_once(trail: AuditTrail, run: str, head: Head | None, events: tuple[Event, ...]) -> Head:
        begun.append(events[0].number)
        if any((event.type, event.task) == (EventType.TASK_COMPLETED, "quick") for event in events):
            held.set()
            await released.wait()
        return await append(trail, run, head, events)

    monkeypatch.setattr(AuditTrail, "append", slow_once)
    monkeypatch.setattr(policies, "CANCEL_ON_ITS_WAY", timedelta(minutes=1))  # its cancel comes, however late
    crew.simulator.script([{"when": {"task": "stuck"}, "then": {"fault": "hang_before_headers"}}])
    run = await crew.start(
        "defaults: {agent: hand}\ntasks: [{id: stuck, prompt: Go.}, {id: quick, prompt: Go.}]", continue_after=1
    )

    async def stuck_is_cancelled() -> bool:
        return (await run.children()).get("stuck") == "CANCELED"

    await held.wait()
    await run.client.cancel(run.id)
    await eventually(stuck_is_cancelled)
    released.set()
    await run.closed()

    assert len(begun) == len(set(begun))
    assert (await verdict_on(run, crew.store)).fault is None


async def test_a_trail_has_all_that_happened_and_is_anchored(crew: Bench, tmp_path: Path) -> None:
    """Through a failed attempt, a wall, an approval with a note, and a new history after every second task."""
    (tmp_path / "notes.txt").write_text("canaryfilezq7", "utf-8")
    crew.simulator.script(
        [
            {"when": {"task": "part[1]", "nth": 1}, "then": {"fault": "api_error"}},
            {"when": {"task": "part[2]", "nth": 1}, "then": {"fault": "rate_limit", "retry_after": 1}},
            {"then": {"answer": "canaryanswerzq7"}},
        ]
    )
    run = await crew.start(STEERED, continue_after=2)
    await run.until(waits_for("publish", "approval"))
    going = await verdict_on(run, crew.store)
    open_ones = await Audits(run.client, crew.store).prune(timedelta(0), dry_run=True)
    await run.client.approve(run.id, ["publish"], by="somebody", note="Be kind.")
    assert (await run.report()).status is RunStatus.COMPLETED
    await run.closed()

    verdict, records = await verdict_on(run, crew.store), await records_of(run, crew.store)

    assert going.fault is None
    assert (open_ones.runs, open_ones.kept) == ([], 1)
    assert going.anchorage.anchor is not None
    assert not going.anchorage.anchor.final
    assert (verdict.fault, verdict.superseded) == (None, 0)
    assert verdict.anchorage.anchor is not None
    assert verdict.anchorage.anchor.final
    assert verdict.anchorage.anchor.head == records[-1].head
    assert (await run.handle.result()).audit == records[-1].head

    async def continued() -> bool:
        return len(await run.chain()) > 1

    await eventually(continued)  # Temporal's list may be a moment behind
    assert all(is_of(record, event) for record, event in zip(records, await run.events(), strict=True))
    assert not check_calls(run, crew.simulator.log, records)
    assert verdict.calls == 6
    by_type = Counter(record.type for record in records)
    assert by_type["approval.given"] == 1
    content = b"".join(
        (tmp_path / "store" / path).read_bytes() for path in await AuditTrail(crew.store).everything(run.id)
    )
    assert not [word for word in CANARIES.values() if word.encode() in content]
    (read,) = [
        seen.reads
        for seen in await Audits(run.client, crew.store).of_run(run.id, "hand", None)
        if seen.record.task == "publish" and seen.reads
    ]
    assert read is not None
    assert ([result["task"] for result in read["results"]], read["note"]) == ([f"part[{n}]" for n in (1, 2, 3)], True)


async def test_a_tail_that_was_cut_off_and_a_list_that_was_changed_are_found(crew: Bench, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("a note", "utf-8")
    run = await crew.start("tasks: [{id: a, agent: hand, prompt: Go., files: [notes.txt]}]")
    await run.closed()
    trail, folder = AuditTrail(crew.store), tmp_path / "store"
    last = folder / (await trail.segments(run.id))[-1]
    kept = last.read_bytes()

    last.unlink()
    cut = (await verdict_on(run, crew.store)).fault
    last.write_bytes(kept)
    (reads,) = [path for path in await trail.everything(run.id) if "/reads/" in path]
    (folder / reads).write_text('{"files": []}', "utf-8")
    changed = (await verdict_on(run, crew.store)).fault
    (folder / reads).unlink()
    missing = (await verdict_on(run, crew.store)).fault

    assert cut is not None
    assert (cut.broken, cut.number) == (Broken.CUT_OFF, int(last.name[:10]))
    assert changed is not None
    assert missing is not None
    assert (changed.broken, missing.broken) == (Broken.CHANGED, Broken.MISSING)


async def test_a_run_that_is_cancelled_tells_of_the_calls_that_were_cut(crew: Bench) -> None:
    crew.simulator.script([{"then": {"ttft": 3600}}])
    run = await crew.start("max_concurrency: 3\ntasks: [{id: t, for_each: [1, 2, 3], agent: hand, prompt: Go.}]")
    await crew.simulator.until(lambda: crew.simulator.in_flight == 3)

    await run.client.cancel(run.id)
    await run.closed()

    records = await records_of(run, crew.store)
    assert not check_calls(run, crew.simulator.log, records)
    assert [record.data["error"] for record in records if record.type == EventType.CALL_MADE] == ["CalledOff"] * 3
    assert (await verdict_on(run, crew.store)).fault is None


async def test_calls_of_a_run_that_is_terminated_are_shown_beside_its_trail(crew: Bench) -> None:
    """Nobody writes for it any more: the ledger tells of what was under way, each call of the bill once."""
    crew.simulator.script([{"when": {"contains": "Hang."}, "then": {"ttft": 3600}}])
    run = await crew.start("""
max_concurrency: 3
defaults: {agent: hand, timeout: 60s}
tasks: [{id: hang, for_each: [1, 2], prompt: Hang.}, {id: done, prompt: Go.}]
""")
    asked = "hang[1]", "hang[2]", "done"
    await crew.simulator.until(lambda: all(crew.simulator.calls(task) == 1 for task in asked))

    async def has_begun() -> bool:
        return bool(await records_of(run, crew.store))

    await eventually(has_begun)
    await run.handle.terminate(reason="a test")
    await crew.simulator.until(lambda: crew.simulator.in_flight == 0)
    await run.ended_children()

    audits = Audits(run.client, crew.store)
    seen = [each.record for each in await audits.of_run(run.id, None, None)]
    assert not check_calls(run, crew.simulator.log, seen)
    beside = [record for record in seen if record.number == BESIDE]
    assert {record.task for record in beside} >= {"hang[1]", "hang[2]"}
    cut = [record.data for record in beside if record.task != "done"]
    assert [(data["agent"], data["answer"], "unsettled" in data) for data in cut] == [("hand@1", None, True)] * 2
    verdict = await audits.verify(run.id)
    assert (verdict.fault, verdict.untold) == (None, len(beside))
    by_hand = await audits.of_agent("hand", None)
    assert {each.record.task for each in by_hand if each.run == run.id} == {*asked}

    picture = await run.until(lambda picture: picture.ended)
    hung = [picture.tasks[task] for task in ("hang[1]", "hang[2]")]
    assert [(task.status, task.attempts) for task in hung] == [("CANCELLED", 1)] * 2
    calls = [record.data for record in seen if record.type == EventType.CALL_MADE]
    used, open_ = (
        sum((Usage.model_validate(call[kind]) for call in calls if kind in call), Usage())
        for kind in ("tokens", "unsettled")
    )
    assert (picture.tokens, picture.unsettled) == (used, open_)
    assert open_.output > 0

    await Untold(crew.store).keep(run.id)  # as `prune` does before it removes the ledger
    for path in await crew.store.listed(f"ledger/{run.id}/"):
        await crew.store.discard(path)
    assert [each.record for each in await audits.of_run(run.id, None, None)] == seen


# --- workers that are killed ---


@pytest.fixture
async def crashing(tmp_path: Path, simulator: Simulator, registry: Registry) -> AsyncIterator[Crashing]:
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "nightcrew.toml").write_text(f'simulator_url = "{simulator.url}"\nmax_calls = 2\n', "utf-8")
    settings = load_settings(folder)
    yield Crashing(settings, simulator, registry)
    await down(settings)


async def survive(home: Crashing, kills: int) -> None:
    """Kill the worker whenever it is at calls, and start it again; what it had is told of once, and no more."""
    await home.up()
    simulator, worker = home.simulator, Worker(home.settings.home, Mode.SIMULATED)
    simulator.script([{"then": {"ttft": 0.3}}])
    tasks = 5 * kills
    run = await home.submit(
        f"max_concurrency: {tasks}\ndefaults: {{agent: hand, timeout: 20s, attempts: 4}}\n"
        f"tasks: [{{id: t, for_each: {[*range(tasks)]}, prompt: Go.}}]"
    )
    for _ in range(kills):
        await simulator.until(lambda: simulator.in_flight > 0)
        await home.kill(worker)
        await started(worker)
    simulator.script([])
    report = await run.report()
    await run.closed()

    store = run.client._store
    records = await records_of(run, store)
    assert report.census.ended == tasks  # one that was lost four times has failed, and that is told of, too
    assert [record.number for record in records] == [*range(1, len(records) + 1)]
    check_calls(run, simulator.log, records)
    verdict = await verdict_on(run, store)
    assert verdict.fault is None
    assert verdict.anchorage.anchor is not None
    assert verdict.anchorage.anchor.head == records[-1].head


async def test_a_trail_survives_ten_kills_of_the_worker(crashing: Crashing) -> None:
    await survive(crashing, 10)


@pytest.mark.soak
@pytest.mark.timeout(1800)
async def test_a_trail_survives_a_hundred_kills_of_the_worker(crashing: Crashing) -> None:
    await survive(crashing, 100)


# --- the commands ---


def told(home: Home, *words: str) -> dict[str, Any]:
    done = home(*words, "--json")
    found: dict[str, Any] = json.loads(done.stdout)
    return {"exit": done.returncode, **found}


def test_the_commands_show_verify_export_and_prune(home: Home, tmp_path: Path) -> None:
    """Also when the run itself is pruned: its trail stays, until a rule of its own removes it."""
    home.script({"then": {"answer": CANARIES["answer"]}}, ttft=0, tokens_per_second=0)
    (tmp_path / "plan.yaml").write_text(WRITTEN, "utf-8")
    assert home("run", str(tmp_path / "plan.yaml"), "--id", "audited", "--simulate").returncode == 0

    assert told(home, "audit", "verify", "audited")["anchor"]["final"] is True
    by_agent = told(home, "audit", "show", "--agent", "writer", "--since", "1h")
    assert {record["type"] for record in by_agent["records"]} == {"call.made", "task.completed"}
    assert [record["read"] for record in by_agent["records"] if record["task"] == "last" and "read" in record]
    lines = home("audit", "export", "audited").stdout.splitlines()
    table = tmp_path / "audit.csv"
    assert home("audit", "export", "audited", "--format", "csv", "-o", str(table)).returncode == 0
    rows = [*csv.DictReader(io.StringIO(table.read_text("utf-8")))]
    assert [row["hash"] for row in rows] == [json.loads(line)["hash"] for line in lines]
    assert not any(cell.startswith(("=", "+", "-", "@")) for row in rows for cell in row.values())
    assert home("audit", "export", "audited", "-o", str(table)).returncode == 1  # it is there
    said = " ".join([*lines, table.read_text("utf-8"), json.dumps(by_agent)])
    assert not [word for word in CANARIES.values() if word in said]

    (segment, *_) = sorted((home.folder / "store" / "audit" / "audited").glob("*.jsonl"))
    whole = segment.read_bytes()
    segment.write_bytes(whole.replace(b"task.created", b"task.mutated", 1))
    broken = home("audit", "verify", "audited")
    segment.write_bytes(whole.replace(b'"n":2,', b'"n":?,', 1))
    torn = home("audit", "show", "audited")
    segment.write_bytes(whole)
    assert "1 line of the trail cannot be read" in torn.stderr
    assert broken.returncode == 1
    assert "BROKEN. Record 3 is changed" in broken.stdout

    assert home("prune", "--older-than", "1s").returncode == 0
    assert not (home.folder / "store" / "runs" / "audited").exists()
    assert told(home, "audit", "verify", "audited")["whole"] is True
    refused = told(home, "audit", "prune", "--older-than", "1d")
    assert (refused["exit"], refused["error"]["code"]) == (2, "too_young")
    would = told(home, "audit", "prune", "--older-than", "1s", "--yes", "--dry-run")
    gone = told(home, "audit", "prune", "--older-than", "1s", "--yes")
    assert would["runs"] == gone["runs"] == ["audited"]
    assert told(home, "audit", "verify", "audited")["exit"] == 2  # nothing is left of it
