"""Siblings with a common beginning, on the real server: the provider's own bill has one write, and reads."""

from __future__ import annotations

from pathlib import Path

from conftest import Bench
from pydantic import JsonValue

from activities.claude import request_of
from domain.briefing import Brief
from domain.models import RunStatus
from domain.waits import Wait

TWELVE = ", ".join(str(number) for number in range(12))
FILES = f"""
max_concurrency: 12
tasks:
  - {{id: part, for_each: [{TWELVE}], agent: hand, files: [guide.md], prompt: "Look at {{{{ item }}}}."}}
"""
RESULTS = f"""
max_concurrency: 12
tasks:
  - {{id: source, agent: hand, prompt: Tell., max_tokens: 8000}}
  - {{id: part, for_each: [{TWELVE}], agent: hand, needs: {{source: {{pass: full}}}}, prompt: "Look: {{{{ item }}}}."}}
"""
LONG = "A line of the guide that everybody reads.\n" * 500
"""About 5,000 tokens: the model of the bench keeps 4,096 and more."""


def cached(bench: Bench) -> list[tuple[bool, bool]]:
    """Who wrote and who read, among the siblings that were answered."""
    paid = [entry.billed for entry in bench.simulator.log if entry.task != "source" and entry.stop_reason]
    return sorted(((bill.cache_write > 0, bill.cache_read > 0) for bill in paid), reverse=True)


async def test_twelve_siblings_write_their_files_once(crew: Bench, tmp_path: Path) -> None:
    (tmp_path / "guide.md").write_text(LONG)
    crew.simulator.script([], ttft=0.3)

    report = await (await crew.start(FILES)).report()

    assert report.status is RunStatus.COMPLETED
    assert cached(crew) == [(True, False)] + 11 * [(False, True)]
    written, read = report.tokens.cache_write, report.tokens.cache_read
    assert read == 11 * written > 11 * 4096


async def test_twelve_siblings_write_the_result_that_they_need_once(crew: Bench) -> None:
    crew.simulator.script([{"when": {"task": "source"}, "then": {"answer": LONG}}], ttft=0.3)

    report = await (await crew.start(RESULTS)).report()

    assert report.status is RunStatus.COMPLETED
    assert cached(crew) == [(True, False)] + 11 * [(False, True)]


async def test_when_the_first_call_fails_another_one_writes(crew: Bench, tmp_path: Path) -> None:
    """It had not begun to answer. Its task comes again, and reads."""
    (tmp_path / "guide.md").write_text(LONG)
    crew.simulator.script([{"when": {"nth": 1}, "then": {"fault": "overloaded"}}], ttft=0.3)

    report = await (await crew.start(FILES)).report()

    assert report.status is RunStatus.COMPLETED
    assert cached(crew) == [(True, False)] + 11 * [(False, True)]


async def test_who_waits_for_a_sibling_says_so(crew: Bench, tmp_path: Path) -> None:
    """Nobody but the first has called."""
    (tmp_path / "guide.md").write_text(LONG)
    crew.simulator.script([{"when": {"nth": 1}, "then": {"ttft": 18}}])
    run = await crew.start(FILES)
    waits: list[Wait] = []

    while len(waits) < 11:
        waits = [task.wait for task in (await crew.client.report(await run.until(lambda _: True))).tasks if task.wait]

    assert {wait.reason for wait in waits} == {"cache"}
    assert {wait.what for wait in waits} != {None}
    assert crew.simulator.calls() == 1
    await run.handle.cancel()
    await run.closed()


async def test_short_documents_are_neither_marked_nor_waited_for(crew: Bench, tmp_path: Path) -> None:
    (tmp_path / "guide.md").write_text(LONG[:1000])
    crew.simulator.script([], ttft=30)
    run = await crew.start(FILES)

    await crew.simulator.until(lambda: crew.simulator.calls() == 12)

    assert "cache_control" not in str(crew.simulator.requests)
    await run.handle.cancel()
    await run.closed()


def test_a_mark_stands_at_the_end_of_what_is_shared() -> None:

    blocks: tuple[dict[str, JsonValue], ...] = tuple({"type": "text", "text": name} for name in "abc")
    brief = Brief(model="m", max_tokens=1, system="s", content=blocks)

    marked = request_of(brief.model_copy(update={"first": (2, 1)}))
    of_the_agent = request_of(brief.model_copy(update={"first": ()}))

    mark = {"cache_control": {"type": "ephemeral"}}
    assert marked["messages"] == [{"role": "user", "content": [blocks[2], blocks[1] | mark, blocks[0]]}]
    assert of_the_agent["system"] == [{"type": "text", "text": "s"} | mark]
    assert request_of(brief)["system"] == "s"
    assert request_of(brief)["messages"] == [{"role": "user", "content": list(blocks)}]
