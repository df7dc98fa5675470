"""What many large results leave in Temporal: references and counts, however much text there was."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from conftest import Bench, Run
from test_sizes import MOON, payloads_in, size_of

from domain.models import RunStatus
from payloads import inflated

EVENTS, BYTES, PAYLOAD = 10_240, 10_000_000, 256 * 1024
"""From so many events, or bytes of one history or of one payload on the server warns: a run stays below."""

ANSWER = MOON * 50_000
"""Two hundred kilobytes."""

SECTIONS = 9


@dataclass(frozen=True)
class Sizes:
    """The largest history of the supervisor's chain; the largest payload, as it travels and before it is packed."""

    histories: int
    events: int
    bytes: int
    packed: int
    unpacked: int


async def sizes_of(run: Run) -> Sizes:
    histories = [list((await each.fetch_history()).events) for each in await run.chain()]
    payloads = [payload for history in histories for event in history for payload in payloads_in(event)]
    return Sizes(
        histories=len(histories),
        events=max(len(history) for history in histories),
        bytes=max(size_of(history) for history in histories),
        packed=max(payload.ByteSize() for payload in payloads),
        unpacked=max(inflated(payload).ByteSize() for payload in payloads),
    )


async def sizes_after(crew: Bench, tasks: int, *, continue_after: int | None = None) -> Sizes:
    """Do so many tasks with large answers: most side by side, some that need all of those, one that needs these."""
    crew.simulator.script([{"then": {"answer": ANSWER}}])
    parts = tasks - SECTIONS - 1
    run = await crew.start(
        f"""
max_concurrency: 25
defaults: {{agent: hand, timeout: 120s, max_tokens: 20000}}
tasks:
  - {{id: part, for_each: [{", ".join(map(str, range(parts)))}], prompt: "Write {{{{ item }}}}."}}
  - {{id: section, for_each: [{", ".join(map(str, range(SECTIONS)))}], prompt: "Join {{{{ item }}}}.", needs: [part]}}
  - {{id: book, prompt: Join all., needs: [section]}}
""",
        continue_after=continue_after,
    )

    report = await run.report()

    assert report.status is RunStatus.COMPLETED
    assert report.census.total == crew.simulator.calls() == tasks
    assert await crew.client.text(report.tasks[0].output_ref or "") == ANSWER
    return await sizes_of(run)


@pytest.mark.parametrize("continue_after", [None, 20])
async def test_large_results_leave_little_in_the_history(crew: Bench, continue_after: int | None) -> None:
    """Sixty of them leave their part of what five hundred may: it grows with the tasks, and with nothing else."""
    sizes = await sizes_after(crew, 60, continue_after=continue_after)

    assert (sizes.histories > 1) is (continue_after is not None)
    assert sizes.events < EVENTS * 60 / 500
    assert sizes.bytes < BYTES * 60 / 500
    assert sizes.unpacked < PAYLOAD


@pytest.mark.soak
@pytest.mark.timeout(1800)
async def test_five_hundred_large_results_stay_below_every_limit(crew: Bench) -> None:
    """A hundred megabytes of answers go by reference: what travels stays small, whatever it was before it is packed."""
    sizes = await sizes_after(crew, 500)

    assert sizes.events < EVENTS
    assert sizes.bytes < BYTES
    assert sizes.packed < PAYLOAD
    print(sizes)  # noqa: T201  what `make soak` is run for
