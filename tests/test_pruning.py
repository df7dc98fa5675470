"""Old runs go, with all that is theirs alone; whatever is open, shared or just being written stays."""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import obstore
import pytest
from conftest import Bench, Run, eventually
from home import Home

import pruning
from audit_trail import AuditTrail
from audits import Audits
from domain.admission import definition_of
from domain.events import timestamp
from domain.models import RunStatus, ref_of
from domain.register import Verb
from heritage import reused, successor
from pruning import Pruned, prune
from registers import Registers
from store import Store, StoreError, open_store

MONTH = timedelta(days=30)
TWO = """
name: two
defaults: {agent: hand}
tasks:
  - {id: first, prompt: Begin.}
  - {id: second, needs: [first], prompt: Go on.}
"""
ASKS = f"{TWO}  - {{id: third, needs: [second], approval: true, prompt: End.}}\n"


async def age(store: Store, run: str, days: int) -> None:
    """Make a run look as if it had ended so many days ago, and its contents as old."""
    then = timestamp(datetime.now(UTC) - timedelta(days=days))
    for name, key in (("manifest", "submitted"), ("end", "finished")):
        path = f"runs/{run}/{name}.json"
        if (content := await store.content(path)) != b"":
            found: dict[str, Any] = json.loads(content)
            await store._kept.replace(path, json.dumps({**found, key: then}).encode())
    for file in Path(store.location).joinpath("artifacts").rglob("*"):
        if file.is_file():
            os.utime(file, (0, 0))


async def pruned(bench: Bench, *, dry_run: bool = False) -> Pruned:
    return await prune(bench.client, bench.store, MONTH, dry_run=dry_run)


STAYING = ("audit", "register")


async def everything(store: Store) -> set[str]:
    """All but audit trails, which have a rule of their own, and the records of agents, which stay."""
    paths = {str(each["path"]) async for batch in obstore.list(store.objects) for each in batch}
    return {path for path in paths if not path.startswith(("audit/", "register/records/"))}


async def done(bench: Bench, plan: str = TWO, **more: Any) -> Run:
    run = await bench.start(plan, **more)
    assert (await run.report()).status is RunStatus.COMPLETED
    await run.closed()
    await no_page_is_left(run)
    return run


async def no_page_is_left(run: Run) -> None:
    """Wait until the worker has taken down what it said of tasks at work: it does so every two seconds."""

    async def is_silent() -> bool:
        return not await run.client._store.list_pages(run.id)

    await eventually(is_silent)


async def asks(bench: Bench) -> Run:
    """A run that waits for a person, and of which nothing is left to be written until then."""
    run = await bench.start(ASKS)
    await run.until(lambda picture: bool(picture.attention))
    await run.written()
    await no_page_is_left(run)
    return run


async def test_an_old_run_goes_with_all_that_is_its_own(crew: Bench) -> None:
    """And the simulation says the same before. Not a file of it is left but the record of its agents."""
    run = await done(crew)
    await age(crew.store, run.id, 31)
    store = Path(crew.store.location)
    files = [file for file in store.rglob("*") if file.is_file() and file.relative_to(store).parts[0] not in STAYING]
    size = sum(file.stat().st_size for file in files)

    told = await pruned(crew, dry_run=True)
    before = await everything(crew.store)
    gone = await pruned(crew)

    assert gone == told
    assert gone.runs == [run.id]
    assert before != set()
    assert (await everything(crew.store), gone.bytes) == (set(), size)
    assert await crew.store.listed("register/") == [f"register/records/{run.id}.json"]


async def test_what_is_younger_or_open_stays_whatever_it_is(crew: Bench) -> None:
    """An open run stays, however old it looks, and comes to its end."""
    young, waiting = await done(crew), await asks(crew)
    await age(crew.store, young.id, 29)
    await age(crew.store, waiting.id, 400)
    before = await everything(crew.store)

    gone = await pruned(crew)

    assert (gone.runs, gone.objects, gone.kept) == ([], 0, 2)
    assert await everything(crew.store) == before
    await crew.client.approve(waiting.id, ("third",), by="test")
    assert (await waiting.report()).status is RunStatus.COMPLETED


async def test_what_another_run_refers_to_stays(crew: Bench) -> None:
    """Two runs with the same plan and the same answers, of which one goes: the other can be read whole."""
    crew.simulator.script([{"then": {"answer": "The very same."}}])
    old, young = await done(crew), await done(crew)
    await age(crew.store, old.id, 40)

    gone = await pruned(crew)

    assert (gone.runs, gone.kept) == ([old.id], 1)
    report = await young.report()
    assert report.outputs == {"second": "The very same."}
    assert await crew.store.runs() == [young.id]
    assert not [path for path in await everything(crew.store) if old.id in path]


async def test_results_that_a_run_has_taken_over_stay(crew: Bench, registry: Any) -> None:
    from domain.planning import plan_from_text

    before = await done(crew)
    planned = plan_from_text(TWO.replace("Go on.", "Go on!"), file="t.yaml", registry=registry, folder=crew.folder)
    heritage = await reused(crew.client, planned.plan, await crew.client.picture(before.id), simulated=True)
    assert set(heritage.kept) == {"first"}
    id = await crew.client.submit(planned, id=None, simulated=True, queue=crew.queue, heritage=heritage)
    after = Run(id, crew.client, crew.temporal)
    await after.report()
    await after.closed()
    await age(crew.store, before.id, 40)

    gone = await pruned(crew)

    assert gone.runs == [before.id]
    report = await after.report()
    assert [task.output is not None for task in report.tasks] == [True, True]


async def test_a_run_and_its_retries_go_together(crew: Bench) -> None:
    """Else the next retry would have the name of one that is there, and another budget."""
    crew.simulator.script([{"when": {"task": "second", "nth": 1}, "then": {"fault": "invalid_request"}}])
    first = await crew.start(TWO)
    assert (await first.report()).status is RunStatus.FAILED
    await first.closed()
    await no_page_is_left(first)
    follows = await successor(crew.client, first.id, (), {})
    from domain.planning import Planned

    planned = Planned(plan=follows.plan, contents={}, sources={}, warnings=())
    await crew.client.submit(planned, id=follows.id, simulated=True, queue=crew.queue, heritage=follows.heritage)
    second = Run(follows.id, crew.client, crew.temporal)
    assert (await second.report()).status is RunStatus.COMPLETED
    await second.closed()
    await no_page_is_left(second)
    await age(crew.store, first.id, 40)

    assert (await pruned(crew)).runs == []
    await age(crew.store, second.id, 40)
    assert (await pruned(crew)).runs == [first.id, second.id]
    assert await everything(crew.store) == set()


async def test_a_run_that_was_terminated_goes_when_it_is_old(crew: Bench) -> None:
    """It has no end of its own to tell."""
    run = await asks(crew)
    await run.handle.terminate()
    await age(crew.store, run.id, 40)

    assert (await pruned(crew)).runs == [run.id]
    assert await everything(crew.store) == set()


async def test_what_prune_keeps_beside_a_trail_goes_by_the_rule_of_trails(crew: Bench) -> None:
    """A run that was terminated before its trail began: what the ledger had of it is kept, and not for ever."""
    run = await asks(crew)
    await run.handle.terminate()
    trail, audits = AuditTrail(crew.store), Audits(crew.client, crew.store)
    for path in await trail.everything(run.id):
        await crew.store.discard(path)
    await age(crew.store, run.id, 40)

    assert (await pruned(crew)).runs == [run.id]
    kept = [each["task"] for each in await trail.beside(run.id)]
    young = await audits.prune(timedelta(hours=1), dry_run=False)
    told = await audits.prune(timedelta(0), dry_run=True)
    gone = await audits.prune(timedelta(0), dry_run=False)

    assert kept == ["first", "second"]
    assert (young.runs, young.kept) == ([], 1)
    assert gone == told
    assert (gone.runs, gone.objects) == ([run.id], 1)
    assert await trail.runs() == []


async def test_a_trail_that_was_removed_does_not_come_back(crew: Bench) -> None:
    """Of a run that has told its end: its calls stood in the trail, which somebody had go."""
    run = await done(crew)
    trail, audits = AuditTrail(crew.store), Audits(crew.client, crew.store)
    assert (await audits.prune(timedelta(0), dry_run=False)).runs == [run.id]
    await age(crew.store, run.id, 40)

    assert (await pruned(crew)).runs == [run.id]

    assert await trail.everything(run.id) == []


async def test_a_content_that_somebody_has_just_written_again_stays(crew: Bench) -> None:
    """A run that is at work may not have named it yet. The next time it goes, when nobody has."""
    crew.simulator.script([{"then": {"answer": "Wanted by two."}}])
    run = await done(crew)
    await age(crew.store, run.id, 40)
    ref = await crew.store.put_artifact(b"Wanted by two.")

    gone = await pruned(crew)

    assert (gone.runs, gone.waiting) == ([run.id], 1)
    assert await crew.store.artifact(ref) == b"Wanted by two."


async def test_what_was_cut_short_is_found_again(crew: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    run = await done(crew)
    await age(crew.store, run.id, 40)

    async def dies(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(pruning, "_remove_run", dies)
        with pytest.raises(KeyboardInterrupt):
            await pruned(crew)

    assert (await pruned(crew)).runs == [run.id]
    assert await everything(crew.store) == set()


async def test_whoever_writes_a_content_while_it_is_removed_has_it(tmp_path: Path) -> None:
    """Writer and pruner at the same moment, again and again: after both, who wrote can read."""
    store = open_store(str(tmp_path / "store"))
    ref = ref_of(b"wanted")
    file = tmp_path / "store" / "artifacts" / ref[7:9] / ref[7:]
    removed = 0
    for _ in range(300):
        await store.put_artifact(b"wanted")
        os.utime(file, (0, 0))
        limit = datetime.now(UTC) - timedelta(hours=1)

        freed, _ = await asyncio.gather(store.discard_artifact(ref, limit), store.put_artifact(b"wanted"))

        removed += freed > 0
        assert await store.artifact(ref) == b"wanted"
    assert not [*file.parent.glob("*#*")]


async def test_age_decides(store: Store) -> None:
    """On a folder and in a bucket."""
    ref = await store.put_artifact(b"content")

    assert await store.discard_artifact(ref, datetime.now(UTC) - timedelta(hours=1)) == 0
    assert await store.artifact(ref) == b"content"
    assert await store.discard_artifact(ref, datetime.now(UTC) + timedelta(hours=1)) == len(b"content")
    assert await store.discard_artifact(ref, datetime.now(UTC) + timedelta(hours=1)) == 0
    with pytest.raises(StoreError):
        await store.artifact(ref)


def test_the_command_says_what_became_free(home: Home, tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text("tasks:\n  - {id: one, agent: writer, prompt: Go.}\n")
    assert home("run", str(plan), "--id", "old").returncode == 0
    live = home.folder / "store" / "runs" / "old" / "live"
    while any(live.glob("*")):
        time.sleep(0.05)  # its worker takes away what it told of the call a moment after the end

    young = home("prune", "--older-than", "30d", "--json")
    wrong = home("prune", "--older-than", "soon")
    dry = home("prune", "--older-than", "1s", "--dry-run")
    gone = home("prune", "--older-than", "1s")

    assert json.loads(young.stdout)["runs"] == []
    assert (wrong.returncode, "must be a duration" in wrong.stderr) == (2, True)
    assert "would remove old" in dry.stdout
    assert "removed old" in gone.stdout
    assert "free again" in gone.stdout
    files = re.compile(r"\d+ files?")
    assert files.findall(dry.stdout) == files.findall(gone.stdout)  # what is too new to go is not promised before
    assert home("status", "old").returncode == 2


async def test_a_definition_that_was_registered_stays(crew: Bench) -> None:
    """Also when an agent has answered with exactly its text, and that answer goes."""
    agent = crew._registry.agents[0]
    crew.simulator.script([{"then": {"answer": definition_of(agent).decode()}}])
    run = await done(crew, "defaults: {agent: hand}\ntasks: [{id: only, prompt: Say who you are.}]")
    ref = await crew.store.put_artifact(definition_of(agent))
    assert (await run.report()).tasks[0].output_ref == ref
    await Registers(crew.store).add(Verb.REGISTERED, agent.name, agent.version, by="me", data={"definition": ref})
    await age(crew.store, run.id, 31)

    assert (await pruned(crew)).runs == [run.id]

    assert await crew.store.artifact(ref) == definition_of(agent)
