"""The live view: it fits every terminal, leaves nothing out unsaid, and tells what waits and why."""

from __future__ import annotations

import io
import unicodedata
from datetime import timedelta
from itertools import islice
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import REF, START, Voyage, answered, failed, outline, outlines, plan_of
from rich.cells import cell_len
from rich.console import Console
from told import ToldRun

from domain.board import SILENT_AFTER, Note, Page
from domain.events import Event, EventType, timestamp
from domain.models import GOING_RUN, Parked, Policy, RunStatus, TaskStatus
from domain.picture import Picture
from domain.progress import Outline
from domain.requests import Requests
from domain.steering import Steering
from terminal.live import LiveView, live_view, shared
from terminal.outcome import Exit, exit_for
from terminal.screen import LiveScreen
from terminal.show import LISTED, listed, show_report
from terminal.signs import RUN_SIGNS, STYLES
from terminal.text import cut, one_line, short, wrapped

SECOND = timedelta(seconds=1)
ROW = set("●◷✗○·↻")
REQUIRE = Policy.REQUIRE


class Told(ToldRun):
    """A run by hand, and how it looks."""

    def __init__(self, needs: dict[str, dict[str, Policy]], **options: Any) -> None:
        super().__init__(outline(needs, **options), "the-run")
        self.launch()

    def hear(self, *notes: Note) -> None:
        self.picture.hear([Page(at=self.now, notes=notes)])

    def lines(self, width: int = 100, height: int = 30, **more: Any) -> list[str]:
        return [line.plain for line in LiveView(self.picture, self.now, **more).lines(width, height)]

    def line(self, id: str, width: int = 100, height: int = 30) -> str:
        return next(
            line for line in self.lines(width, height) if line[:1] in ROW and line[2:].split("  ")[0].strip() == id
        )


def note(task: str, **more: Any) -> Note:
    return Note(task=task, started=START, since=START, **{"step": "calling", "attempt": 1, **more})


# --- it fits ---


LETTERS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
SENTENCES = st.sampled_from([None, "No worker is running in this home; `./starter.py --home /tmp/a/b up` starts one."])


@settings(max_examples=80, deadline=None)
@given(outlines(max_tasks=6), st.data(), LETTERS, st.integers(8, 160), st.integers(1, 50))
def test_a_frame_of_any_run_fits_any_terminal(
    outline: Outline, data: st.DataObject, letters: str, width: int, height: int
) -> None:
    """Whatever its tasks are called: not a cell too wide, not a line too many, no control character."""
    voyage = Voyage(renamed(outline, letters), data.draw, turns=20)
    picture = Picture("a-run-with-a-name", plan_of(renamed(outline, letters)), simulated=data.draw(st.booleans()))
    for moment in islice(voyage.moments(), data.draw(st.integers(1, 20))):
        picture.add(moment.step.events)
    notes = [note(id, output=1234, until=moment.now + SECOND) for id in picture.of(TaskStatus.RUNNING)]
    picture.hear([Page(at=moment.now, notes=tuple(notes))])
    view = LiveView(picture, moment.now, trouble=data.draw(SENTENCES), notice=data.draw(SENTENCES))

    lines = view.lines(width, height)

    assert len(lines) <= height
    assert all(line.cell_len <= width for line in lines)
    assert not {unicodedata.category(letter) for line in lines for letter in line.plain} & {"Cc", "Cf", "Zl", "Zp"}


@pytest.mark.parametrize("width", range(4, 40))
def test_the_narrowest_terminals_are_not_overrun(width: int) -> None:
    told = Told({"a-task-with-a-name": {}, "日本語のタスク": {}, "c": {"a-task-with-a-name": REQUIRE}})
    told.hear(note("a-task-with-a-name", step="backoff", what="Overloaded: full", until=START + SECOND))

    assert all(cell_len(line) <= width for line in told.lines(width, 30))


def renamed(outline: Outline, letters: str) -> Outline:
    """The same plan with other names."""
    tasks = [
        task.model_copy(
            update={
                "id": f"{task.id}{letters}",
                "needs": {f"{id}{letters}": policy for id, policy in task.needs.items()},
            }
        )
        for task in outline.tasks
    ]
    return outline.model_copy(update={"tasks": tuple(tasks)})


@given(st.lists(st.integers(0, 60), min_size=1, max_size=5), st.integers(-3, 60))
def test_lines_are_shared_without_waste(counts: list[int], room: int) -> None:
    places = shared(counts, room)

    assert all(0 <= place <= count for place, count in zip(places, counts, strict=True))
    assert sum(places) == min(max(room, 0), sum(counts))
    assert all(place or not count or room < len(counts) for place, count in zip(places, counts, strict=True))


@given(st.text(), st.integers(1, 40), st.integers(1, 5))
def test_text_is_fitted_by_cells(text: str, width: int, most: int) -> None:
    assert cell_len(one_line(text, width)) <= width
    assert len(wrapped(text, max(width, 2), most)) <= most
    assert all(cell_len(line) <= max(width, 2) for line in wrapped(text, max(width, 2), most))


def test_what_is_cut_is_marked() -> None:
    assert cut("日本語", 5) == "日本…"
    assert cut("plain", 5) == "plain"


@pytest.mark.parametrize(
    ("seconds", "words"), [(-1, "0s"), (59.9, "59s"), (125, "2m05s"), (3725, "1h02m"), (190_000, "2d04h")]
)
def test_durations_take_few_cells(seconds: float, words: str) -> None:
    assert short(seconds) == words


# --- what it says ---


def test_a_task_at_work_has_a_line_with_all_that_is_known() -> None:
    told = Told({"a": {}, "b": {"a": REQUIRE}})
    told.hear(note("a", attempt=2, step="answering", output=1234))
    told.now += 65 * SECOND
    told.hear(note("a", attempt=2, step="answering", output=1234))

    assert told.line("a").split() == ["●", "a", "answering", "ant", "2/4", "1,234", "1m05s"]
    assert told.line("b").split("  ")[-1] == "waits for a"
    assert told.lines()[0].startswith("the-run  RUNNING  SIMULATED ")
    assert told.lines()[0].endswith("1 min 05 s")
    assert told.lines()[1].endswith("0 of 2 tasks ended")
    assert told.lines()[2] == "1 at work  1 pending  0 tokens in, 1,234 out"


def test_a_narrow_terminal_says_it_shorter() -> None:
    told = Told({"a": {}})
    told.hear(note("a", attempt=2, step="answering", output=30))

    assert told.line("a", 40, 10).split() == ["●", "a", "answering", "ant", "2/4", "30", "0s"]
    told.hear(note("a", attempt=3, at=START, step="backoff", what="Overloaded: full", until=START + 9 * SECOND))
    assert "tries again in 9s" in told.line("a", 40, 10)


def test_between_attempts_it_says_why_and_when() -> None:
    told = Told({"a": {}})
    told.hear(note("a", step="backoff", what="Overloaded: full", until=START + 9 * SECOND))
    here = (START + 9 * SECOND).astimezone().strftime("%H:%M:%S")

    assert f"tries again in 9s ({here}): Overloaded: full" in told.line("a")
    assert told.line("a").startswith("↻")


def test_a_lost_worker_is_told_in_the_line_of_its_task() -> None:
    told = Told({"a": {}})
    told.hear(note("a"))
    told.now += SILENT_AFTER + 5 * SECOND

    assert "no word" in told.line("a")
    assert "there is no word from its worker for 20s" in told.line("a")


def test_what_failed_says_why_and_what_was_skipped_is_counted() -> None:
    told = Told({"a": {}, **{f"b{n}": {"a": REQUIRE} for n in range(3)}})
    told.result("a", failed())

    assert told.line("a").endswith("it broke")
    assert any(line.startswith("↷ 3 skipped; b2: needs 'a', which ended FAILED") for line in told.lines())


def test_a_pause_and_a_wait_are_explained_in_a_sentence() -> None:
    told = Told({"a": {}, "b": {}}, max_concurrency=1)
    told.take(Requests(told.course.chart).pause(told.progress, Steering(by="someone"), told.now))
    assert "Paused: nothing new starts, 1 task at work may finish. The command `resume` goes on." in told.lines()
    assert told.line("b").endswith("waits until the run is resumed")

    waits = Told({"a": {}})
    waits.result("a", Parked(why="wall", what="the account's rate limit is reached", until=START + 90 * SECOND))
    sentence = " ".join(waits.lines())
    assert "Nothing is at work: 1 task waits; the first: goes on in 1m30s" in sentence
    assert "the account's rate limit is reached." in sentence


def test_trouble_and_notices_are_inside_the_view() -> None:
    told = Told({"a": {}})

    lines = told.lines(trouble="No worker is running.", notice="Detaching.")

    assert "No worker is running." in lines
    assert lines[-1] == "Detaching."
    assert "Detaching." in told.lines(40, 5, notice="Detaching.")


def test_a_large_run_is_folded_and_adds_up() -> None:
    """5,000 tasks in 30 lines: every task is in a line of its own or counted in one."""
    needs: dict[str, dict[str, Policy]] = {f"t{n}": {} for n in range(400)}
    needs |= {f"u{n}": {f"t{n % 400}": REQUIRE} for n in range(4600)}
    told = Told(needs, max_concurrency=50)
    for n in range(100):
        told.result(f"t{n}", failed() if n % 4 == 0 else answered())
        told.launch()

    lines = told.lines()

    assert len(lines) == 30
    shown = [line for line in lines if line[:1] in {"●", "✗"}]
    counted = [int(line.split()[1].replace(",", "")) for line in lines if line[:1] in set("…○·↷✓")]
    assert len(shown) + sum(counted) == 5000
    assert [line for line in lines if line.startswith("…")] == ["… 41 more at work", "… 17 more failed"]
    assert any(line.startswith("✓ 75 succeeded, the last: t99, t98, t97") for line in lines)
    assert lines[1].endswith(" of 5,000 tasks ended")


def test_in_a_crowd_those_in_trouble_are_seen() -> None:
    told = Told({f"t{n}": {} for n in range(60)}, max_concurrency=60)
    told.hear(*(note(f"t{n}", step="backoff" if n == 50 else "calling") for n in range(60)))

    assert told.line("t50").startswith("↻")


def test_the_bar_is_full_only_at_the_end() -> None:
    told = Told({f"t{n}": {} for n in range(200)}, max_concurrency=200)
    for n in range(199):
        told.result(f"t{n}", answered())
    assert "╍" in told.lines()[1]

    told.result("t199", failed())

    bar = LiveView(told.picture, told.now).lines(100, 30)[1]
    assert set(bar.plain.split()[0]) == {"━"}
    assert any(span.style == "red" for span in bar.spans)


def test_the_view_is_a_picture_for_the_docs_too() -> None:
    told = Told({"a": {}})
    console = Console(record=True, width=80, file=io.StringIO())

    console.print(live_view(told.picture, told.now))

    assert "1 at work" in console.export_text()


# --- on the screen ---


class Terminal(io.StringIO):
    """What a terminal shows of what was written on it: enough of one to see that frames do not mix."""

    def __init__(self, width: int, height: int) -> None:
        super().__init__()
        self.width, self.height = width, height

    def isatty(self) -> bool:
        return True


def screen_of(width: int = 60, height: int = 12) -> tuple[LiveScreen, Terminal]:
    terminal = Terminal(width, height)
    console = Console(file=terminal, force_terminal=True, width=width, height=height, color_system=None)
    return LiveScreen(console), terminal


def test_the_screen_is_left_as_it_was_and_painted_only_where_it_changed() -> None:
    told = Told({"a": {}, "b": {}})
    screen, terminal = screen_of()
    with screen:
        screen.look(told.picture, None)
        first = terminal.getvalue()
        screen.tick()
        again = terminal.getvalue()[len(first) :]
        screen.say("Detaching.")
        full = terminal.getvalue()[len(first) + len(again) :]
    end = terminal.getvalue()[len(first) + len(again) + len(full) :]

    assert first.startswith("\x1b[?1049h")
    assert "the-run" in first
    assert "2 at work" not in again
    assert "Detaching." in full
    assert end.endswith("\x1b[?25h\x1b[?1049l")


def test_a_screen_that_never_showed_anything_writes_nothing() -> None:
    screen, terminal = screen_of()

    with screen:
        screen.tick()
        screen.say("Detaching.")

    assert terminal.getvalue() == ""


# --- the report ---


def report_text(told: Told, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width)
    show_report(console, told.picture.report({}, told.now), hints=[])
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_a_report_of_a_large_run_lists_what_a_person_should_see_and_says_what_the_others_are() -> None:
    needs: dict[str, dict[str, Policy]] = {f"t{n}": {} for n in range(300)}
    told = Told(needs | {"end": {"t299": REQUIRE}}, max_concurrency=300)
    for n in range(150):
        told.result(f"t{n}", answered())
    told.result("t299", failed())

    shown = {task.id for task in listed(told.picture.report({}, told.now))}

    assert len(shown) == LISTED
    assert "t299" in shown
    assert "t0" not in shown
    assert "and 201 more tasks: 50 at work, 1 skipped, 150 succeeded; --json shows all" in report_text(told)


def test_names_are_whole_on_a_usual_terminal_also_beside_long_waits() -> None:
    names: dict[str, dict[str, Policy]] = {f"chapter-of-the-handbook-{n}": {} for n in range(6)}
    told = Told(names | {"end": dict.fromkeys(names, REQUIRE)}, max_concurrency=2)

    text = report_text(told, width=80)

    assert all(name in text for name in names)


def test_a_report_of_a_large_run_that_went_well_shows_some() -> None:
    told = Told({f"t{n}": {} for n in range(150)}, max_concurrency=200)
    for n in range(150):
        told.result(f"t{n}", answered())

    assert "and 138 more tasks: 138 succeeded; --json shows all" in report_text(told)


def test_reasons_of_many_failures_are_counted() -> None:
    told = Told({f"t{n}": {} for n in range(25)})
    for n in range(25):
        told.result(f"t{n}", failed())

    text = report_text(told)

    assert text.count("it broke") == 20
    assert "and 5 more tasks that failed or were skipped" in text


def asked(told: Told) -> None:
    """Let a task of the run wait for approval."""
    event: dict[str, Any] = {"for": "approval", "what": "Shall we?", "until": timestamp(START + 3600 * SECOND)}
    for type, data in (EventType.APPROVAL_NEEDED, {}), (EventType.TASK_WAITING, event):
        told.picture.add([Event(number=told.picture.last + 1, type=type, time=told.now, task="a", data=data)])


def test_a_question_is_told_with_the_command_that_answers_it() -> None:
    told = Told({"a": {}, "b": {"a": REQUIRE}})
    asked(told)

    assert "waits for approval, expires in 1h00m" in told.line("a", 140)
    assert "For you: ./starter.py approve the-run a" in told.lines()
    text = report_text(told, 140)
    assert "approval  a: Shall we?" in text
    assert "./starter.py approve the-run a" in text


def test_tasks_behind_a_wall_say_so_together() -> None:
    told = Told({f"t{n}": {} for n in range(60)}, max_concurrency=1)
    told.result("t0", Parked(why="wall", what="too many", wall="spend", until=START + 90 * SECOND))

    here = (START + 90 * SECOND).astimezone().strftime("%H:%M:%S")
    assert any(line.startswith(f"○ 59 ready, they wait until {here}: too many") for line in told.lines())
    assert any("Nothing is at work: 60 tasks wait; the first: goes on in 1m30s" in line for line in told.lines())
    assert any("raise the spend limit at the provider, then retry the-run" in line for line in told.lines())


def test_a_failed_task_with_a_part_of_an_answer_says_that_it_is_kept() -> None:
    told = Told({"a": {}, "b": {"a": REQUIRE}, "c": {"b": REQUIRE}})
    told.result("a", failed().model_copy(update={"output_ref": REF, "output_bytes": 5}))

    text = report_text(told)

    assert "a: it broke; what there is of its answer is kept" in text
    assert "c: needs 'b', which ended SKIPPED (because of a)" in text


@pytest.mark.parametrize("status", list(RunStatus))
def test_every_state_of_a_run_has_a_sign_and_a_colour(status: RunStatus) -> None:
    assert cell_len(RUN_SIGNS[status]) == 1
    assert status.value in STYLES


def test_every_end_of_a_run_has_its_exit_code() -> None:
    codes = {status: exit_for(status) for status in RunStatus}

    assert {status for status, code in codes.items() if code is Exit.NOT_FINISHED} == GOING_RUN
    assert codes[RunStatus.DEADLINE_PASSED] == 7
