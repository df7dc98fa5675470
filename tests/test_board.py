"""The board: what is at work right now, told through the store."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import datetime, timedelta
from typing import Any

import pytest
from conftest import Bench, eventually
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import START, Voyage, answered, outline, outlines, plan_of
from told import ToldRun

from boards import Boards
from domain.board import SILENT_AFTER, Live, Note, Page, latest
from domain.models import Parked, RunStatus, TaskStatus, Usage
from domain.picture import Picture
from domain.progress import Census, Outline
from store import Store, StoreUnavailable

ONE = "tasks: [{id: only, agent: hand, prompt: A secret prompt.}]"
SECOND = timedelta(seconds=1)


def note(task: str = "a", attempt: int = 1, at: datetime = START, **more: Any) -> Note:
    return Note(task=task, attempt=attempt, started=at, since=at, **{"step": "calling", **more})


class Told(ToldRun):
    """A run of one task by hand: its events and what workers say."""

    def __init__(self, outline: Outline) -> None:
        super().__init__(outline)
        self.launch()

    def hear(self, *notes: Note, omitted: int = 0) -> None:
        self.picture.hear([Page(at=self.now, notes=notes, omitted=omitted)])

    def task(self, id: str = "a") -> dict[str, Any]:
        document = self.picture.report({}, now=self.now).document()
        return next(task for task in document["tasks"] if task["id"] == id)


# --- what the events say, counted by moves ---


@settings(max_examples=120, deadline=None)
@given(outlines(), st.data())
def test_what_is_kept_by_moves_is_what_a_count_of_everything_gives(outline: Outline, data: st.DataObject) -> None:
    """Census, status, tokens and the tasks of each state, at every moment of any run, however it ends."""
    picture = Picture("run", plan_of(outline), simulated=True)
    moments = list(Voyage(outline, data.draw).moments())
    for moment in moments[: data.draw(st.integers(1, len(moments)))]:
        picture.add(moment.step.events)
        _check_against_a_recount(picture)

    if not picture.ended:
        picture.close_from_outside(RunStatus.CANCELLED, moments[-1].now, "terminated")
        _check_against_a_recount(picture)


def _check_against_a_recount(picture: Picture) -> None:
    counts = Counter(task.status for task in picture.tasks.values())
    assert picture.census == Census(
        total=len(picture.tasks), **{status.value.lower(): count for status, count in counts.items()}
    )
    assert picture.tokens == sum((task.tokens for task in picture.tasks.values()), Usage())
    assert picture.unsettled == sum((task.unsettled for task in picture.tasks.values()), Usage())
    for status in TaskStatus:
        assert set(picture.of(status)) == {id for id, task in picture.tasks.items() if task.status is status}
    if not picture.ended and not picture.paused:
        could_start = any(not picture.is_walled(id) for id in picture.of(TaskStatus.READY))
        waits = (
            counts[TaskStatus.WAITING] + counts[TaskStatus.READY] and not counts[TaskStatus.RUNNING] and not could_start
        )
        assert picture.status is (RunStatus.WAITING if waits else RunStatus.RUNNING)


# --- many words about one task ---


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3), st.integers(0, 3)), min_size=1))
def test_the_latest_attempt_wins_in_whatever_order_the_pages_are_read(words: list[tuple[int, int, int]]) -> None:
    pages = [
        Page(at=START + heard * SECOND, notes=(note(attempt=attempt, at=START + started * SECOND),))
        for started, attempt, heard in words
    ]

    found = latest(pages)["a"]

    assert (found.note.started, found.note.attempt, found.heard) == max(
        (START + started * SECOND, attempt, START + heard * SECOND) for started, attempt, heard in words
    )
    assert found == latest(reversed(pages))["a"]


def test_an_attempt_after_a_reset_wins_though_its_count_is_lower() -> None:
    """The button in the Web UI starts the count again."""
    pages = [Page(at=START, notes=(note(attempt=3),)), Page(at=START, notes=(note(attempt=1, at=START + SECOND),))]

    assert latest(pages)["a"].note.attempt == 1


def test_a_worker_that_says_nothing_is_silent_but_in_a_backoff_nobody_has_to_speak() -> None:
    late = START + SILENT_AFTER + SECOND
    due = START + 20 * SECOND

    assert Live(note=note(), heard=START).silent(late)
    assert not Live(note=note(), heard=START).silent(START + SILENT_AFTER)
    assert not Live(note=note(until=due), heard=START).silent(late)
    assert Live(note=note(until=due), heard=START).silent(due + SILENT_AFTER + SECOND)


# --- in the picture ---


def test_a_task_at_work_tells_attempt_tokens_and_step() -> None:
    told = Told(outline({"a": {}}))
    told.hear(note(attempt=2, step="answering", output=30))

    task = told.task()

    assert (task["status"], task["attempts"], task["tokens"]["output"]) == ("RUNNING", 2, 30)
    stamp = "2026-01-01T00:00:00.000Z"
    assert task["progress"] == {"step": "answering", "since": stamp, "heard": stamp}
    assert task["wait"] is None
    assert told.picture.tokens == Usage(output=30)


def test_a_task_in_backoff_says_why_and_until_when() -> None:
    told = Told(outline({"a": {}}))
    told.hear(note(step="backoff", what="Overloaded: full", until=START + 9 * SECOND))

    assert told.task()["wait"] == {
        "for": "backoff",
        "what": "Overloaded: full",
        "since": "2026-01-01T00:00:00.000Z",
        "until": "2026-01-01T00:00:09.000Z",
    }


def test_a_word_is_kept_until_a_later_one_comes_or_the_task_is_over() -> None:
    told = Told(outline({"a": {}}))
    told.hear(note(output=30))
    told.hear()
    assert told.task()["tokens"]["output"] == 30

    told.result("a", answered())

    assert (told.task()["tokens"]["output"], told.task()["progress"]) == (2, None)
    told.hear(note(output=40))  # the page is a moment behind the events
    assert told.picture.tokens == Usage(input=1, output=2)


def test_only_what_is_said_since_the_last_start_counts() -> None:
    """After a wall the task starts again, and the page of its first worker may still lie there."""
    told = Told(outline({"a": {}}))
    told.hear(note(attempt=3, output=30))
    told.result("a", Parked(why="wall", what="full", until=told.now))
    told.now += 5 * SECOND
    told.take(told.course.wake(told.progress, told.now))
    told.launch()

    told.hear(note(attempt=3, output=30))
    assert told.task()["progress"] is None

    told.hear(note(attempt=1, at=told.now, output=1))
    assert (told.task()["attempts"], told.task()["tokens"]["output"]) == (1, 1)


def test_a_lost_worker_is_told_and_so_is_a_task_that_nobody_took() -> None:
    told = Told(outline({"a": {}, "b": {}}))
    told.hear(note("a"))
    told.now += SILENT_AFTER + SECOND

    assert told.task("a")["wait"]["for"] == told.task("b")["wait"]["for"] == "worker"
    assert told.task("a")["wait"]["since"] == "2026-01-01T00:00:00.000Z"

    told.hear(note("a"), omitted=1)  # a page that has no room for all says nothing by its silence
    assert told.task("b")["wait"] is None


# --- written by the door ---


async def pages(bench: Bench, run: str) -> list[Page]:
    found = [await bench.store.page(path) for path in await bench.store.list_pages(run)]
    return [Page.model_validate_json(content) for content in found if content]


async def test_a_call_under_way_is_on_the_board_and_gone_when_it_is_over(crew: Bench) -> None:
    """With the tokens heard so far, and without a word of prompt or answer."""
    slow = {"ttft": 0, "answer": "word " * 200, "tokens_per_second": 20}
    crew.simulator.script([{"when": {"task": "only"}, "then": slow}])
    run = await crew.start(ONE)

    picture = await run.until(lambda picture: picture.tokens.output > 0)

    live = picture.tasks["only"].live
    assert live is not None
    assert (live.note.attempt, live.note.step) == (1, "answering")
    (path,) = await crew.store.list_pages(run.id)
    content = await crew.store.page(path)
    assert content is not None
    assert b"secret" not in content
    assert b"word" not in content
    await run.report()
    await eventually(lambda: _no_pages(crew, run.id))


async def _no_pages(bench: Bench, run: str) -> bool:
    return not await bench.store.list_pages(run)


async def test_between_two_attempts_the_board_says_what_went_wrong_and_when_it_goes_on(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("activities.attempts.random.uniform", lambda *_: 1.5)  # never so short that nobody sees it
    bench.simulator.script([{"when": {"task": "only", "nth": 1}, "then": {"fault": "overloaded"}}])
    async with bench.worker(backoff=timedelta(seconds=6)):
        run = await bench.start(ONE)

        picture = await run.until(
            lambda picture: (live := picture.tasks["only"].live) is not None and live.note.step == "backoff"
        )

        task = (await bench.client.report(picture)).tasks[0]
        assert (task.status, task.attempts) == (TaskStatus.RUNNING, 1)
        assert task.wait is not None
        assert (task.wait.reason, task.wait.until is not None) == ("backoff", True)
        assert "Overloaded" in str(task.wait.what)
        report = await run.report()
    assert (report.status, report.tasks[0].attempts) == (RunStatus.COMPLETED, 2)
    assert report.tasks[0].progress is None


async def test_a_store_that_takes_no_page_harms_no_call(crew: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = asyncio.Event()

    async def full(store: Store, run: str, worker: str, page: bytes) -> None:
        tried.set()
        raise StoreUnavailable("no room")

    monkeypatch.setattr(Store, "put_page", full)
    crew.simulator.script([{"when": {"task": "only"}, "then": {"ttft": 6}}])
    run = await crew.start(ONE)

    await tried.wait()

    assert (await run.report()).status is RunStatus.COMPLETED


async def test_a_worker_that_stops_takes_its_pages_down(bench: Bench) -> None:
    bench.simulator.script([{"when": {"task": "only", "nth": 1}, "then": {"fault": "hang_before_headers"}}])
    async with bench.worker(grace=timedelta(milliseconds=100)):
        run = await bench.start(ONE)
        await eventually(lambda: _has_pages(bench, run.id))

    assert await pages(bench, run.id) == []


async def _has_pages(bench: Bench, run: str) -> bool:
    return bool(await bench.store.list_pages(run))


async def test_a_page_holds_a_bounded_number_of_notes(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """And says how many it left out."""
    monkeypatch.setattr("activities.board.MOST", 3)
    bench.simulator.script([{"then": {"fault": "hang_before_headers"}}])
    plan = "max_concurrency: 5\ntasks: [{id: t, for_each: [a, b, c, d, e], agent: hand, prompt: Go.}]"
    async with bench.worker():
        run = await bench.start(plan)
        await bench.simulator.until(lambda: bench.simulator.in_flight == 5)
        while not (found := await pages(bench, run.id)) or found[0].omitted < 2:
            await asyncio.sleep(0.05)

        assert (len(found), len(found[0].notes), found[0].omitted) == (1, 3, 2)
        await run.handle.cancel()
        await run.closed()


# --- read by whoever looks ---


async def test_a_page_that_does_not_change_is_read_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(outline({"a": {}}))
    boards, reads, read = Boards(bench.store), [], Store.page

    async def counted(store: Store, path: str) -> bytes | None:
        reads.append(path)
        return await read(store, path)

    monkeypatch.setattr(Store, "page", counted)
    await bench.store.put_page("run", "w1", Page(at=START, notes=(note(output=1),)).model_dump_json().encode())

    await boards.tell(told.picture)
    await boards.tell(told.picture)
    assert (len(reads), told.picture.tokens.output) == (1, 1)

    later = Page(at=START + SECOND, notes=(note(output=22),))
    await bench.store.put_page("run", "w1", later.model_dump_json(by_alias=True).encode())
    await boards.tell(told.picture)
    assert (len(reads), told.picture.tokens.output) == (2, 22)


@pytest.mark.parametrize("content", [b"", b"{", b'{"schema": "nightcrew.board/9"}', b"\xff"])
async def test_a_page_that_cannot_be_read_is_not_there(bench: Bench, content: bytes) -> None:
    told = Told(outline({"a": {}}))
    await bench.store.put_page("run", "w1", content)

    await Boards(bench.store).tell(told.picture)

    assert told.picture.tasks["a"].live is None


async def test_a_store_that_is_away_leaves_the_picture_as_it_was(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(store: Store, run: str) -> dict[str, str]:
        raise StoreUnavailable("away")

    monkeypatch.setattr(Store, "list_pages", away)
    told = Told(outline({"a": {}}))

    await Boards(bench.store).tell(told.picture)

    assert told.picture.tasks["a"].live is None
