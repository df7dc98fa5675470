"""The list of runs: with and without a server, of runs in every state, right after a submit."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from conftest import Bench, eventually
from test_right_door import CountingStore

from catalog import run_list
from client import RunClient
from domain.catalog import RunEntry
from domain.events import timestamp
from domain.models import RunStatus, Usage
from entries import step_key
from reader import RunReader

ONE = "tasks: [{id: only, agent: hand, prompt: Go.}]"
TWO = "tasks: [{id: good, agent: hand, prompt: Go.}, {id: bad, agent: hand, prompt: Go., attempts: 1}]"


async def listed(reader: RunReader, since: timedelta | None = timedelta(hours=24)) -> dict[str, RunEntry]:
    return {entry.run: entry for entry in await run_list(reader, since=since)}


async def has_status(reader: RunReader, run: str, status: RunStatus) -> bool:
    """Whether a run is listed so: Temporal is asked, and who gets no answer in time shows what is known."""
    return (await listed(reader))[run].status is status


async def test_a_list_tells_how_every_run_ended(crew: Bench) -> None:
    crew.simulator.script([{"when": {"task": "bad"}, "then": {"fault": "invalid_request"}}])
    good, bad = await crew.start(ONE, id="good"), await crew.start(TWO, id="bad")
    await good.report()
    await bad.closed()
    await good.closed()

    runs = await listed(crew.client)

    assert [(run, entry.status) for run, entry in runs.items()] == [
        ("good", RunStatus.COMPLETED),
        ("bad", RunStatus.PARTIAL),
    ]
    assert [found.do for found in runs["bad"].attention] == ["status bad bad"]
    assert runs["good"].attention == ()
    assert (await bad.report()).census == runs["bad"].census
    assert runs == await listed(RunClient(None, crew.store)), "without a server the same"


async def test_an_open_run_is_listed_right_after_its_submit_and_while_it_goes(crew: Bench) -> None:
    """Temporal's own list lags behind: it is not asked."""
    crew.simulator.script([{"when": {"task": "only"}, "then": {"ttft": 60}}])
    run = await crew.start(ONE)
    assert (await listed(crew.client))[run.id].status is RunStatus.RUNNING

    async def is_at_work() -> bool:
        census = (await listed(crew.client))[run.id].census
        return census is not None and census.running == 1

    await eventually(is_at_work)
    await run.handle.terminate()

    await eventually(lambda: has_status(crew.client, run.id, RunStatus.CANCELLED))


async def test_of_a_run_that_was_terminated_a_list_reads_what_was_cut_and_no_more(crew: Bench) -> None:
    """It is looked at anew every time, and may have made tens of thousands of calls. What it has cost is whole."""
    crew.simulator.script(
        [
            {"when": {"task": "hang"}, "then": {"ttft": 3600}},
            {"when": {"task": "bad"}, "then": {"fault": "invalid_request"}},
        ]
    )
    run = await crew.start("""
max_concurrency: 7
defaults: {agent: hand, timeout: 10m}
tasks:
  - {id: quick, for_each: [1, 2, 3, 4, 5], prompt: Go.}
  - {id: hang, prompt: Hang.}
  - {id: bad, prompt: Go., attempts: 1}
""")
    await run.until(lambda picture: (picture.census.succeeded, picture.census.failed) == (5, 1))
    await crew.simulator.until(lambda: crew.simulator.calls("hang") == 1)
    await run.handle.terminate()
    await crew.simulator.until(lambda: crew.simulator.in_flight == 0)
    await run.ended_children()
    entry, counting = None, CountingStore(crew.store)

    while entry is None or entry.status is not RunStatus.CANCELLED:  # a server that is too slow says nothing of its end
        counting = CountingStore(crew.store)
        entry = (await listed(RunReader(crew.temporal, counting)))[run.id]

    assert {key.rpartition("/")[0].rpartition("/")[0] for key in counting.read} == {step_key(run.id, "hang", 1)}
    assert len(counting.read) == len(set(counting.read))
    accounts = await crew.client.books.accounts(run.id, ["hang", *(f"quick[{number}]" for number in range(1, 6))])
    calls = [call for account in accounts.values() for call in account.calls]
    (share,) = entry.agents
    assert len(calls) == 6
    assert share.tokens == sum((call.usage for call in calls), Usage())
    unsettled = (await run.until(lambda picture: picture.ended)).unsettled
    assert unsettled == sum((call.unsettled for call in calls), Usage()) != Usage()


async def test_a_submit_that_is_on_its_way_is_no_failure(bench: Bench) -> None:
    """It is written down before Temporal hears of it; what died in between is told as such later."""
    run = await bench.start(ONE)
    manifest = await bench.store.manifest(run.id)
    assert manifest is not None
    for name, age in (("young", 1), ("old", 3600)):
        submitted = timestamp(datetime.now(UTC) - timedelta(seconds=age))
        await bench.store.put_manifest(name, {**manifest, "run": name, "submitted": submitted})

    await eventually(lambda: has_status(bench.client, "old", RunStatus.FAILED))
    assert (await listed(bench.client))["young"].status is RunStatus.RUNNING
    await run.handle.terminate()


async def test_old_runs_are_left_out_unless_they_are_asked_for_or_open(crew: Bench) -> None:
    run = await crew.start(ONE, id="now")
    await run.closed()
    manifest, end = await crew.store.manifest("now"), await crew.store.end("now")
    assert manifest is not None
    assert end is not None
    long_ago = timestamp(datetime.now(UTC) - timedelta(days=3))
    await crew.store.put_manifest("old", {**manifest, "run": "old", "submitted": long_ago})
    await crew.store.put_end("old", {**end, "run": "old", "started": long_ago, "finished": long_ago})

    assert list(await listed(crew.client)) == ["now"]
    assert list(await listed(crew.client, since=None)) == ["old", "now"]
