"""Answers that a run never heard of, because it was ended from outside just then: only its ledger has them.

Whoever takes over its results gets them, too, as ends like all others. An answer counts when it is the one that the
door would find for this very step and request, and when nothing more was to be asked before the task could end with it.
In doubt the task is done again.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace

from books import AT_ONCE, Line
from domain.briefing import Brief
from domain.checks import complaint
from domain.models import Plan, Task, TaskStatus
from domain.past import past_of
from domain.picture import Picture
from domain.prices import cost_of_calls
from domain.reuse import Kept, Past
from domain.summaries import is_its_own, parted
from entries import step_key
from reader import RunReader
from store import StoreError

WHOLE = frozenset({"end_turn", "stop_sequence"})
"""How an answer has stopped that is neither cut nor refused."""


async def past_with_unheard(reader: RunReader, run: Picture) -> dict[str, Past]:
    """What a run has come to, with the answers of which it could not tell. One that has told its end knows them all."""
    past = past_of(run)
    if not run.ended or run.settled:
        return past
    places = asyncio.Semaphore(AT_ONCE)

    async def answered(id: str) -> Past | None:
        async with places:
            with suppress(StoreError):  # what is damaged is done again
                return await _answered(reader, run, id, past[id])
        return None

    cut = [id for id, found in past.items() if found.kept.status is TaskStatus.CANCELLED and _may_end(run.planned[id])]
    ends = await asyncio.gather(*map(answered, cut))
    return past | {id: end for id, end in zip(cut, ends, strict=True) if end is not None}


def _may_end(task: Task) -> bool:
    """Whether a task can end with what its agent says alone: without a reviewer, and without another plan."""
    return task.review is None and task.grows is None


async def _answered(reader: RunReader, run: Picture, id: str, past: Past) -> Past | None:
    """A task that was cut off, as it would have ended with the answer that the ledger has; None when there is none."""
    brief = await reader.request(run, id)
    line = await _line(reader, run, id, brief)
    if line is None or line.answer is None or line.answer.stop_reason not in WHOLE:
        return None
    told = _told(run.plan, run.planned[id], brief, await reader.text(line.answer.text_ref))
    if told is None:
        return None
    text, summary = told
    end = Kept(
        run=run.run,
        ref=await reader.keep(text),
        bytes=len(text.encode()),
        summary_ref=await reader.keep(summary) if summary is not None else None,
        summary_bytes=len(summary.encode()) if summary is not None else 0,
        tokens=line.spent.usage,
        usd=cost_of_calls(run.plan.prices.models, [line.spent]) if run.plan.prices is not None else None,
        approval=past.kept.approval,
    )
    return replace(past, kept=end)


async def _line(reader: RunReader, run: Picture, id: str, brief: Brief) -> Line | None:
    """The request that was answered, of those that asked just this in the step that the task was in."""
    place = f"{step_key(run.run, id, run.tasks[id].step)}/{brief.hash.removeprefix('sha256:')}"
    calls = await reader.books.of_calls(await reader.books.names(place))
    return next((line for lines in calls.values() for line in lines if line.is_answered), None)


def _told(plan: Plan, task: Task, brief: Brief, answer: str) -> tuple[str, str | None] | None:
    """An answer and its summary; None when a check does not let it pass, or a summary was still to be made of it."""
    said = parted(answer, brief.closing)
    if complaint(plan, task, said.text) is not None:
        return None
    if not task.summarise:
        return said.text, None
    summary = said.text if is_its_own(said.text) else said.summary
    return None if summary is None else (said.text, summary)
