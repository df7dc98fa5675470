"""Watching a run: what it costs Temporal, how it looks on a terminal and off one, how it is left."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from time import monotonic
from typing import Any

from conftest import Bench
from home import ROOT, STARTER, Home
from rich.cells import cell_len
from temporalio.client import Client, Interceptor, OutboundInterceptor
from test_starter import TWO_ENDS, fails, plan, slow

from client import RunClient
from domain.events import Event
from domain.models import RunStatus
from store import Store, StoreUnavailable
from terminal.lines import watch_lines

CHAIN = "tasks: [{id: a, agent: hand, prompt: A.}, {id: b, agent: hand, prompt: B., needs: [a]}]"
HOLD = {"when": {"task": "a", "nth": 1}, "then": {"ttft": 6}}
FOR_EVER = {"when": {"task": "a"}, "then": {"ttft": 3600}}


# --- what it costs ---


class Counted(Interceptor):
    """Counts whatever a client asks of Temporal, by the name of the question."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
        asked = self.asked

        class Counting(OutboundInterceptor):
            def __getattribute__(self, name: str) -> Any:
                if not name.startswith("_") and name != "next":
                    asked[name] += 1
                return super().__getattribute__(name)

        return Counting(next)


def counting(temporal: Client) -> tuple[Client, Counter[str]]:
    counted = Counted()
    return Client(**{**temporal.config(), "interceptors": [counted]}), counted.asked  # type: ignore[arg-type]


async def test_a_watcher_makes_no_query_and_few_descriptions(crew: Bench) -> None:
    """However much happens: 30 tasks pass while it watches. A query would cost a worker, a description the server."""
    crew.simulator.script([{"when": {"task": "last", "nth": 1}, "then": {"ttft": 6}}])
    tasks = "".join(f"\n  - {{id: t{n}, agent: hand, prompt: Go.}}" for n in range(30))
    run = await crew.start(f"tasks:{tasks}\n  - {{id: last, agent: hand, prompt: Go.}}")
    client, asked = counting(crew.temporal)
    start = monotonic()

    looks = [picture.last async for picture in RunClient(client, crew.store).watch(run.id)]

    assert set(asked) == {"describe_workflow"}
    assert asked["describe_workflow"] <= 1 + (monotonic() - start) / 4  # every five seconds, give or take one
    assert len(looks) > asked["describe_workflow"]


async def test_the_counter_counts(crew: Bench) -> None:
    """The test above means something: who looks once does ask the supervisor."""
    crew.simulator.script([FOR_EVER])
    run = await crew.start(CHAIN)
    client, asked = counting(crew.temporal)

    await RunClient(client, crew.store).picture(run.id)

    assert asked["query_workflow"] == 1
    await run.handle.terminate()


async def test_a_run_that_is_ended_from_outside_ends_for_its_watchers(crew: Bench) -> None:
    crew.simulator.script([FOR_EVER])
    run = await crew.start(CHAIN)
    seen: list[RunStatus] = []

    async for picture in crew.client.watch(run.id):
        if not seen:
            await crew.simulator.until(lambda: crew.simulator.calls("a") == 1)
            await run.handle.terminate()
        seen.append(picture.status)

    assert seen[-1] is RunStatus.CANCELLED


@dataclass(frozen=True)
class AwayAtFirst(Store):
    """A store that does not answer the first two questions for events."""

    refused: list[str] = field(default_factory=list)

    async def events(self, run: str, after: int = 0) -> AsyncIterator[Event]:
        if len(self.refused) < 2:
            self.refused.append(run)
            raise StoreUnavailable("away")
        async for event in super().events(run, after):
            yield event


async def test_a_store_that_is_away_for_a_moment_ends_no_watch(crew: Bench) -> None:
    run = await crew.start(CHAIN)
    client = RunClient(crew.temporal, AwayAtFirst(crew.store.objects, crew.store.location))

    told = [(picture.ended, client.silent) async for picture in client.watch(run.id)]

    assert told[:2] == [(False, "The store does not answer.")] * 2
    ended, silent = told[-1]
    assert ended
    assert "The store" not in (silent or "")


async def test_lines_tell_every_change_and_the_end(crew: Bench) -> None:
    crew.simulator.script([HOLD, {"when": {"task": "b"}, "then": {"fault": "invalid_request"}}])
    run = await crew.start(CHAIN)

    documents = [document async for document in watch_lines(crew.client, run.id)]

    assert list(documents[0]) == [
        *("schema", "run", "name", "status", "simulated", "provider", "census", "started", "finished", "duration_s"),
        *("cost", "tokens", "attention", "tasks"),
    ]
    assert {document["schema"] for document in documents} == {"nightcrew.watch/1"}
    steps = {task["progress"]["step"] for document in documents for task in document["tasks"] if task["progress"]}
    assert steps & {"calling", "answering"}
    assert documents[-1]["status"] == "FAILED"
    assert documents[-1]["finished"] is not None
    assert [(task["id"], task["status"]) for task in documents[-1]["tasks"]] == [("b", "FAILED")]
    assert all(first != second for first, second in pairwise(documents))


# --- on a terminal ---


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, *words: str, size: tuple[int, int] = (100, 30), **environment: str) -> None:
        self._master, slave = pty.openpty()
        self._set_size(slave, size)
        # A size that the environment names, as that of a test runner does, would go before that of the terminal.
        given = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES"}}
        self.process = subprocess.Popen(
            [*STARTER, *words],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=ROOT,
            env={**given, "TERM": "xterm-256color", **environment},
            start_new_session=True,
        )
        os.close(slave)
        self._written = ""
        self._news = threading.Condition()
        threading.Thread(target=self._listen, daemon=True).start()

    @property
    def written(self) -> str:
        with self._news:
            return self._written

    def until(self, pattern: str, after: int = 0) -> str:
        """All that was written, once the pattern is in what came after so many characters."""
        with self._news:
            assert self._news.wait_for(lambda: re.search(pattern, self._written[after:]), timeout=120), self._written
            return self._written

    def resize(self, width: int, height: int) -> None:
        self._set_size(self._master, (width, height))
        self.process.send_signal(signal.SIGWINCH)

    def ended(self) -> int:
        return self.process.wait(timeout=120)

    def _set_size(self, terminal: int, size: tuple[int, int]) -> None:
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))

    def _listen(self) -> None:
        while True:
            try:
                came = os.read(self._master, 65536)
            except OSError:  # nobody has the terminal any more
                came = b""
            with self._news:
                self._written += came.decode(errors="replace")
                self._news.notify_all()
            if not came:
                os.close(self._master)
                return


@contextmanager
def on_a_terminal(*words: str, **options: Any) -> Iterator[Terminal]:
    terminal = Terminal(*words, **options)
    try:
        yield terminal
    finally:
        terminal.process.kill()
        terminal.process.wait()


def started(home: Home, tmp_path: Path, text: str, id: str) -> str:
    """A run that goes on by itself."""
    done = home("run", plan(tmp_path, text), "--id", id, "--timeout", "1s", "--json")
    assert done.returncode == 8, done.stderr
    return id


ENTER, LEAVE = "\x1b[?1049h", "\x1b[?25h\x1b[?1049l"


def test_the_view_is_taken_away_before_the_report(home: Home, tmp_path: Path) -> None:
    home.script({"when": {"task": "bad", "nth": 1}, "then": {"ttft": 10}}, ttft=0, tokens_per_second=0)
    with on_a_terminal("--home", str(home.folder), "run", plan(tmp_path, TWO_ENDS), "--id", "seen") as terminal:
        assert terminal.ended() == 0
        written = terminal.until("open seen")

    before, _, rest = written.partition(ENTER)
    view, _, report = rest.partition(LEAVE)
    assert "seen" not in before
    assert "1 at work" in view
    assert "calling" in view
    assert "COMPLETED" in report
    assert "\x1b[?1049" not in report


def test_an_interrupt_leaves_the_terminal_clean(home: Home, tmp_path: Path) -> None:
    home.script(slow("bad"), ttft=0, tokens_per_second=0)
    run = started(home, tmp_path, TWO_ENDS, "interrupted")
    with on_a_terminal("--home", str(home.folder), "watch", run) as terminal:
        terminal.until("1 at work")
        terminal.process.send_signal(signal.SIGINT)
        terminal.until("press Ctrl-C again")
        assert terminal.ended() == 130
        written = terminal.until("The run goes on")

    assert written.count(ENTER) == written.count(LEAVE) == 1
    assert written.partition(LEAVE)[2].lstrip().startswith("The run goes on")
    assert home("cancel", run).returncode == 0


def test_a_watcher_that_is_told_to_end_leaves_the_terminal_clean(home: Home, tmp_path: Path) -> None:
    home.script(slow("bad"), ttft=0, tokens_per_second=0)
    run = started(home, tmp_path, TWO_ENDS, "terminated")
    with on_a_terminal("--home", str(home.folder), "watch", run) as terminal:
        terminal.until("1 at work")
        terminal.process.terminate()
        assert terminal.ended() == 130
        assert terminal.until("The run goes on").count(LEAVE) == 1
    assert home("cancel", run).returncode == 0


def test_a_terminal_of_another_size_is_painted_anew(home: Home, tmp_path: Path) -> None:
    home.script(slow("bad"), ttft=0, tokens_per_second=0)
    run = started(home, tmp_path, TWO_ENDS, "resized")
    with on_a_terminal("--home", str(home.folder), "watch", run) as terminal:
        shown = len(terminal.until("1 at work"))
        terminal.resize(40, 10)
        frame = terminal.until(r"\x1b\[2J.*1 at work.*bad", after=shown)[shown:]
        terminal.process.terminate()
        terminal.ended()

    rows = re.split(r"\x1b\[(\d+);1H", frame.partition("\x1b[2J")[2])
    # What was read may end in the middle of a code.
    lines = {
        int(row): re.sub(r"\x1b(\[[0-9;?]*[A-Za-z]?)?", "", line)
        for row, line in zip(rows[1::2], rows[2::2], strict=True)
    }
    assert max(lines) <= 10
    assert [line for line in lines.values() if cell_len(line) > 40] == []
    assert home("cancel", run).returncode == 0


def test_a_dumb_terminal_gets_lines(home: Home, tmp_path: Path) -> None:
    with on_a_terminal("--home", str(home.folder), "run", plan(tmp_path, TWO_ENDS), TERM="dumb") as terminal:
        assert terminal.ended() == 0
        written = terminal.until("open ")

    assert "succeeded 2 (SIMULATED)" in written
    assert "\x1b[" not in written


def test_colours_are_left_out_where_they_are_not_wanted(home: Home, tmp_path: Path) -> None:
    with on_a_terminal("--home", str(home.folder), "run", plan(tmp_path, TWO_ENDS), NO_COLOR="1") as terminal:
        assert terminal.ended() == 0
        written = terminal.until("open ")

    assert not re.search(r"\x1b\[[0-9;]*\b[349][0-7]\b[0-9;]*m", written)


# --- off a terminal ---


def test_lines_tell_what_changed_and_why_tasks_failed(home: Home, tmp_path: Path) -> None:
    home.script(fails("bad"), ttft=0, tokens_per_second=0)
    text = TWO_ENDS + "  - {id: after, agent: writer, prompt: Later., needs: [bad]}\n"

    done = home("run", plan(tmp_path, text), "--id", "in-lines", "--json")

    lines = [line for line in done.stderr.splitlines() if line.startswith("in-lines ")]
    assert sum("bad FAILED: the provider calls the request invalid" in line for line in lines) == 1
    assert sum("after SKIPPED: needs 'bad', which ended FAILED" in line for line in lines) == 1
    assert lines[-1] == "in-lines PARTIAL: total 3, succeeded 1, failed 1, skipped 1 (SIMULATED)"
    assert len(lines) == len(set(lines))
    assert "\x1b" not in done.stderr


def test_watch_as_json_is_lines_and_an_exit_code(home: Home, tmp_path: Path) -> None:
    text = TWO_ENDS.replace("attempts: 1", "attempts: 1, approval: true")
    assert home("submit", plan(tmp_path, text), "--id", "as-lines").returncode == 0
    run = "as-lines"

    watching = home.begin("watch", run, "--json")
    assert watching.stdout is not None
    documents = [json.loads(watching.stdout.readline())]
    while [task["id"] for task in documents[-1]["tasks"]] != ["bad"]:
        documents.append(json.loads(watching.stdout.readline()))
    assert home("approve", run, "bad").returncode == 0
    rest, _ = watching.communicate(timeout=120)

    documents += [json.loads(line) for line in rest.splitlines()]
    assert (documents[-1]["status"], watching.returncode) == ("COMPLETED", 0)
    assert all(document["run"] == run for document in documents)


# --- words ---


def test_one_task_is_told_line_by_line(home: Home, tmp_path: Path) -> None:
    home.script(fails("bad"), ttft=0, tokens_per_second=0)
    text = TWO_ENDS + "  - {id: after, agent: writer, prompt: Later., needs: {bad: optional, good: require}}\n"
    run = json.loads(home("run", plan(tmp_path, text), "--json").stdout)["run"]

    bad, after = home("status", run, "bad").stdout, home("status", run, "after").stdout

    facts = dict(line.split(maxsplit=1) for line in bad.partition("\n\n")[0].splitlines())
    assert (facts["task"], facts["state"], facts["agent"]) == ("bad", "FAILED", "writer@1")
    assert facts["attempts"].startswith("1 of 1")
    assert facts["error"].startswith("RequestRefused: the provider calls the request invalid")
    inputs = [line.split(maxsplit=3) for line in after.splitlines() if line.startswith("input ")]
    assert [(task, state) for _, task, state, _ in inputs] == [("bad", "FAILED"), ("good", "SUCCEEDED")]
    assert inputs[0][3].startswith("missing: the provider calls the request invalid")
    assert "Later." in after
    assert "{'" not in bad + after


def test_events_are_told_in_words_and_an_unknown_type_is_refused(home: Home, tmp_path: Path) -> None:
    home.script(fails("bad"), ttft=0, tokens_per_second=0)
    run = json.loads(home("run", plan(tmp_path, TWO_ENDS), "--json").stdout)["run"]

    told = home("events", run).stdout
    ends = home("events", run, "--type", "task.failed").stdout.splitlines()
    refused = home("events", run, "--type", "task.faild")

    assert "{'" not in told
    assert "2 tasks, 4 at once" in told
    assert len(ends) == 1
    assert "FAILED, RequestRefused: the provider calls the request invalid" in ends[0]
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "did you mean 'task.failed'?" in refused.stderr
    assert "run.submitted, run.started" in refused.stderr
