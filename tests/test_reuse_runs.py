"""Finished work is kept, on the real server: the provider's own bill says what was paid."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from conftest import Bench, Run
from test_sizes import wide_plan

from domain.models import RunStatus, TaskStatus, Usage
from domain.planning import Planned, plan_from_text
from domain.progress import outline_of
from domain.registry import Registry
from domain.report import TaskReport
from domain.reuse import Kept
from domain.runs import RunInput
from heritage import Heritage, HeritageRefused, reused, successor, successor_id
from payloads import PAYLOAD_LIMIT, encoded_size

TWENTY = """
name: twenty
max_concurrency: {at_once}
defaults: {{agent: hand, timeout: 60s}}
tasks:
  - {{id: scan, for_each: [a, b, c, d, e, f, g, h], prompt: "Look at {{{{ item }}}}."}}
  - {{id: odd, prompt: {odd}}}
  - {{id: left, prompt: Join., needs: ["scan[a]", "scan[b]", "scan[c]"]}}
  - {{id: right, prompt: Join., needs: ["scan[d]", "scan[e]", odd]}}
  - {{id: far, prompt: Far., needs: ["scan[f]", "scan[g]", "scan[h]"]}}
  - {{id: note, for_each: [1, 2, 3, 4], prompt: "Note {{{{ item }}}}.", needs: [left]}}
  - {{id: end, prompt: End., needs: [right, far]}}
  - {{id: last, prompt: Last., needs: {{end: optional, left: require}}}}
  - {{id: alone, for_each: [x, y], prompt: "Alone {{{{ item }}}}."}}
"""
CONE = {"odd", "right", "end", "last"}
FAILS = {"fault": "invalid_request"}


def twenty(odd: str = "Look at odd things.", at_once: int = 6) -> str:
    return TWENTY.format(odd=odd, at_once=at_once)


async def start_with(
    bench: Bench, registry: Registry, plan: str, before: Run, *, continue_after: int | None = None
) -> Run:
    """The run that `submit PLAN --reuse RUN` starts."""
    planned = plan_from_text(plan, file="test.yaml", registry=registry, folder=bench.folder)
    picture = await bench.client.picture(before.id)
    heritage = await reused(bench.client, planned.plan, picture, simulated=True)
    run = await bench.client.submit(
        planned, id=None, simulated=True, queue=bench.queue, heritage=heritage, continue_after=continue_after
    )
    return Run(run, bench.client, bench.temporal)


async def again(bench: Bench, before: str, *tasks: str, **shape: Any) -> Run:
    """The run that `retry RUN TASK...` starts after its end."""
    found = await successor(bench.client, before, tasks, shape)
    planned = Planned(plan=found.plan, contents={}, sources={}, warnings=())
    run = await bench.client.submit(planned, id=found.id, simulated=True, queue=bench.queue, heritage=found.heritage)
    return Run(run, bench.client, bench.temporal)


def paid(bench: Bench) -> Counter[str]:
    """The provider's bill since it was last forgotten."""
    return Counter(str(entry.task) for entry in bench.simulator.log)


def by_id(tasks: tuple[TaskReport, ...]) -> dict[str, TaskReport]:
    return {task.id: task for task in tasks}


@pytest.mark.parametrize("at_once", [1, 20])
@pytest.mark.parametrize("late", ["scan[a]", "odd", "alone[x]"])
async def test_one_changed_prompt_of_twenty_pays_for_its_cone_alone(
    crew: Bench, registry: Registry, at_once: int, late: str
) -> None:
    """Whatever the first run finished first: one by one or all at once, and with any task the last of its kind."""
    crew.simulator.script([{"when": {"task": late}, "then": {"ttft": 0.4}}])
    before = await crew.start(twenty(at_once=at_once))
    first = await before.report()
    assert (first.status, len(first.tasks)) == (RunStatus.COMPLETED, 20)
    crew.simulator.forget()

    run = await start_with(crew, registry, twenty("Look at even things."), before)
    report = await run.report()

    assert report.status is RunStatus.COMPLETED
    assert paid(crew) == Counter(dict.fromkeys(CONE, 1))
    assert {task.id for task in report.tasks if task.reused is None} == CONE
    kept = {id: task for id, task in by_id(first.tasks).items() if id not in CONE}
    assert {id: by_id(report.tasks)[id].output for id in kept} == {id: task.output for id, task in kept.items()}
    assert report.reuse is not None
    saved = sum((task.tokens for task in kept.values()), Usage())
    assert (report.reuse.runs, report.reuse.tasks, report.reuse.tokens) == ((before.id,), 16, saved)
    assert report.reuse.models == {"claude-haiku-4-5": saved}
    assert report.tokens == sum((by_id(report.tasks)[id].tokens for id in CONE), Usage())


async def test_an_unchanged_plan_pays_nothing(crew: Bench, registry: Registry) -> None:
    """Also by another name, and with other places; and what it takes over of it is told with who had paid first."""
    before = await crew.start(twenty())
    await before.report()
    crew.simulator.forget()

    second = await start_with(crew, registry, twenty(at_once=2).replace("name: twenty", "name: copy"), before)
    report = await second.report()
    third = await start_with(crew, registry, twenty(), second)

    assert (report.status, report.census.succeeded, report.tokens) == (RunStatus.COMPLETED, 20, Usage())
    assert report.output is not None
    assert {task.reused for task in (await third.report()).tasks} == {before.id}
    assert (await third.closed()).status is not None
    assert paid(crew) == {}


async def test_a_retry_pays_for_what_failed_and_was_skipped(crew: Bench) -> None:
    crew.simulator.script([{"when": {"task": "scan[a]"}, "then": FAILS}])
    before = await crew.start(twenty())
    assert (await before.report()).status is RunStatus.PARTIAL
    crew.simulator.script([])
    crew.simulator.forget()

    run = await again(crew, before.id)
    report = await run.report()

    assert run.id == f"{before.id}-r2"
    assert report.status is RunStatus.COMPLETED
    assert paid(crew) == Counter(dict.fromkeys(["scan[a]", "left", *(f"note[{n}]" for n in range(1, 5)), "last"], 1))
    manifest = await crew.client.manifest(run.id)
    assert manifest is not None
    assert (manifest["family"], manifest["retry_of"]) == (before.id, before.id)


async def test_who_did_without_an_input_is_done_again_with_it(crew: Bench) -> None:
    """What the retry brings is another input: the report of a degraded run becomes whole."""
    plan = """
defaults: {agent: hand}
tasks:
  - {id: good, prompt: Go.}
  - {id: bad, prompt: Go.}
  - {id: report, prompt: Sum up., needs: {good: optional, bad: optional}}
"""
    crew.simulator.script([{"when": {"task": "bad"}, "then": FAILS}])
    before = await crew.start(plan)
    assert (await before.report()).status is RunStatus.DEGRADED
    crew.simulator.script([])
    crew.simulator.forget()

    report = await (await again(crew, before.id)).report()

    assert (report.status, paid(crew)) == (RunStatus.COMPLETED, Counter(bad=1, report=1))


async def test_a_retry_of_one_task_pays_for_its_cone(crew: Bench) -> None:
    """What failed elsewhere stays as it ended, for nobody asked for it; a later retry without a name takes it up."""
    crew.simulator.script([{"when": {"task": "alone[y]"}, "then": FAILS}])
    before = await crew.start(twenty())
    assert (await before.report()).status is RunStatus.PARTIAL
    crew.simulator.script([])
    crew.simulator.forget()

    run = await again(crew, before.id, "odd")
    report = await run.report()

    assert paid(crew) == Counter(dict.fromkeys(CONE, 1))
    failed = by_id(report.tasks)["alone[y]"]
    assert (report.status, failed.status, failed.reused) == (RunStatus.PARTIAL, TaskStatus.FAILED, before.id)
    assert failed.error is not None
    assert (failed.error.type, failed.attempts) == ("RequestRefused", 0)
    crew.simulator.forget()
    third = await again(crew, before.id)
    assert (third.id, (await third.report()).status) == (f"{before.id}-r3", RunStatus.COMPLETED)
    assert paid(crew) == Counter({"alone[y]": 1}), "it follows the newest of the family, whichever was named"
    with pytest.raises(HeritageRefused, match="every task has succeeded"):
        await again(crew, before.id)


async def test_retries_at_the_same_moment_are_one_run(crew: Bench) -> None:
    """Those that ask for the same have the same run; whoever asks for something else meanwhile is told its name."""
    crew.simulator.script(
        [{"when": {"task": "odd", "nth": 1}, "then": FAILS}, {"when": {"task": "odd"}, "then": {"ttft": 15}}]
    )
    before = await crew.start(twenty())
    await before.report()
    crew.simulator.forget()

    runs = await asyncio.gather(*(again(crew, before.id) for _ in range(5)))
    await crew.simulator.until(lambda: crew.simulator.calls("odd") == 1)
    found = await successor(crew.client, before.id, (), {})
    with pytest.raises(HeritageRefused, match=f"by {before.id}-r2, which is still going"):
        await successor(crew.client, before.id, ("left",), {})
    with pytest.raises(HeritageRefused, match="still going"):
        await successor(crew.client, before.id, (), {"max_concurrency": 9})
    report = await runs[0].report()

    assert {run.id for run in runs} == {f"{before.id}-r2"}
    assert (found.id, found.going) == (f"{before.id}-r2", True)
    assert report.status is RunStatus.COMPLETED
    assert paid(crew) == Counter(dict.fromkeys(CONE, 1))


async def test_a_successor_that_was_written_down_and_never_started_is_started(crew: Bench) -> None:
    """Whoever asked first died in between: nothing is lost, and no second one comes into being."""
    crew.simulator.script([{"when": {"task": "odd", "nth": 1}, "then": FAILS}])
    before = await crew.start(twenty())
    await before.report()
    lost = await successor(crew.client, before.id, (), {})
    ref = await crew.store.put_artifact(lost.plan.model_dump_json().encode())
    manifest = {"run": lost.id, "name": "twenty", "plan_ref": ref, "simulated": True, "provider": None}
    submitted = {"submitted": "2026-01-01T00:00:00.000Z"}
    await crew.store.put_manifest(lost.id, {**manifest, **submitted, **lost.heritage.manifest(lost.id)})
    crew.simulator.forget()

    run = await again(crew, before.id)

    assert run.id == lost.id
    assert (await run.report()).status is RunStatus.COMPLETED
    assert paid(crew) == Counter(dict.fromkeys(CONE, 1))


async def test_a_run_that_was_terminated_is_gone_on_with(crew: Bench) -> None:
    crew.simulator.script([{"when": {"task": "odd", "nth": 1}, "then": {"ttft": 60}}])
    before = await crew.start(twenty(at_once=20))
    await before.until(lambda picture: picture.census.succeeded == 16)
    await before.handle.terminate(reason="a person pressed the button")
    await before.until(lambda picture: picture.ended)
    crew.simulator.forget()

    report = await (await again(crew, before.id, max_concurrency=3)).report()

    assert (report.status, report.concurrency.max) == (RunStatus.COMPLETED, 3)
    assert paid(crew) == Counter(dict.fromkeys(CONE, 1))


async def test_an_approval_is_not_asked_for_again(crew: Bench, registry: Registry) -> None:
    """The result is kept, and the note with it; a task that is done again asks again."""
    plan = """
defaults: {agent: hand}
tasks:
  - {id: draft, prompt: Write.}
  - {id: send, prompt: Send., needs: [draft], approval: {ask: Shall we?}}
  - {id: count, prompt: Count., needs: [send]}
"""
    before = await crew.start(plan)
    await before.until(lambda picture: picture.tasks["send"].status is TaskStatus.WAITING)
    await crew.client.approve(before.id, ["send"], by="ann", note="Be kind.")
    await before.report()
    crew.simulator.forget()

    run = await start_with(crew, registry, plan.replace("Count.", "Count all."), before)
    report = await run.report()
    redone = await again(crew, before.id, "send")
    asked = await redone.until(lambda picture: picture.tasks["send"].status is TaskStatus.WAITING)
    await crew.client.reject(redone.id, ["send"], by="ann")
    await redone.report()

    assert (report.status, paid(crew)) == (RunStatus.COMPLETED, Counter(count=1))
    decision = by_id(report.tasks)["send"].approval
    assert decision is not None
    assert (decision.by, decision.note) == ("ann", "Be kind.")
    assert "Be kind." in await crew.client.brief(await crew.client.picture(run.id), "send")
    assert asked.tasks["draft"].reused == before.id


def blob(bench: Bench, ref: str | None) -> Path:
    assert ref is not None
    digest = ref.removeprefix("sha256:")
    return Path(bench.store.location) / "artifacts" / digest[:2] / digest


@pytest.mark.parametrize("harm", ["lost", "changed"])
async def test_a_result_that_is_lost_or_was_changed_is_done_again(crew: Bench, registry: Registry, harm: str) -> None:
    """And what was made from it; also when the same answer comes again, which mends the store."""
    crew.simulator.script([{"when": {"task": "odd"}, "then": {"answer": "The same words."}}])
    before = await crew.start(twenty())
    file = blob(crew, by_id((await before.report()).tasks)["odd"].output_ref)
    if harm == "lost":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-1] + b"!")
    crew.simulator.forget()

    run = await start_with(crew, registry, twenty(), before)
    report = await run.report()

    assert (report.status, paid(crew)) == (RunStatus.COMPLETED, Counter(dict.fromkeys(CONE, 1)))
    assert by_id(report.tasks)["odd"].output == "The same words."


async def test_what_is_kept_survives_continue_as_new(crew: Bench, registry: Registry) -> None:
    before = await crew.start(twenty())
    await before.report()
    crew.simulator.forget()

    run = await start_with(crew, registry, twenty("Look at even things."), before, continue_after=1)
    report = await run.report()

    assert len(await run.chain()) > 2
    assert (report.status, paid(crew)) == (RunStatus.COMPLETED, Counter(dict.fromkeys(CONE, 1)))
    assert report.reuse is not None
    assert report.reuse.tasks == 16


async def test_a_run_that_is_going_gives_what_it_has(crew: Bench, registry: Registry) -> None:
    crew.simulator.script([{"when": {"task": "odd", "nth": 1}, "then": {"ttft": 60}}])
    before = await crew.start(twenty(at_once=20))
    await before.until(lambda picture: picture.census.succeeded == 16)
    crew.simulator.forget()

    report = await (await start_with(crew, registry, twenty(), before)).report()
    await crew.client.cancel(before.id)

    assert (report.status, paid(crew)) == (RunStatus.COMPLETED, Counter(dict.fromkeys(CONE, 1)))
    assert (await before.closed()).status is not None


async def test_simulated_answers_never_pass_for_real_ones(crew: Bench) -> None:
    before = await crew.start("tasks: [{id: a, agent: hand, prompt: Go.}]")
    await before.report()
    picture = await crew.client.picture(before.id)

    with pytest.raises(HeritageRefused, match="was simulated and this run is live"):
        await reused(crew.client, picture.plan, picture, simulated=False)


def test_ten_thousand_results_travel_in_one_payload() -> None:
    """Each with a hash, figures and the run that paid: no two alike, as chance makes them."""
    planned = wide_plan(10_000, max_concurrency=500)
    kept = {
        task.id: Kept(
            run="a-rather-long-name-0101-120000-abcd",
            ref=f"sha256:{secrets.token_hex(32)}",
            bytes=secrets.randbelow(100_000),
            tokens=Usage(input=secrets.randbelow(50_000), output=secrets.randbelow(4_000)),
        )
        for task in planned.plan.tasks
    }
    outline = outline_of(planned.plan)

    size = encoded_size(RunInput(name="wide", plan_ref="sha256:0", simulated=True, outline=outline, kept=kept))

    assert size < PAYLOAD_LIMIT


async def test_ten_thousand_results_are_taken_over(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one step, however long a busy machine takes for it."""
    monkeypatch.setenv("TEMPORAL_DEBUG", "1")  # the worker's own limit of 2 s
    planned = wide_plan(10_000, max_concurrency=500)
    kept = {
        task.id: Kept(run="before", ref=f"sha256:{secrets.token_hex(32)}", bytes=1) for task in planned.plan.tasks[1:]
    }

    id = await bench.client.submit(
        planned, id=None, simulated=True, queue=bench.queue, heritage=Heritage(kept=kept, reuses="before")
    )
    async with bench.worker():
        async for picture in bench.client.watch(id):
            end = picture

    assert (end.status, end.census.succeeded, end.reused) == (RunStatus.COMPLETED, 10_000, 9_999)
    assert bench.simulator.calls() == 1


def test_the_ids_of_a_family_stay_ids() -> None:
    assert successor_id("night", 2) == "night-r2"
    long = "x" * 200
    assert len(successor_id(long, 999)) <= 200
    assert successor_id(long, 2) != successor_id(long[:-1] + "y", 2)
