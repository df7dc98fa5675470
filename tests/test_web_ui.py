"""What the stock Web UI of Temporal gets to see of a run: asked for as the page does, without any code of ours."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from conftest import Bench, Run, answer_to, eventually, was_interrupted
from temporalio.api.common.v1 import Payload, WorkflowExecution
from temporalio.api.enums.v1 import EventType as HistoryEvent
from temporalio.api.enums.v1 import WorkflowTaskFailedCause
from temporalio.api.history.v1 import HistoryEvent as Recorded
from temporalio.api.query.v1 import WorkflowQuery
from temporalio.api.sdk.v1 import UserMetadata
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionRequest, QueryWorkflowRequest
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError

import temporal_server
from attributes import ATTRIBUTES, PLAN, STATUS
from domain.course import Course
from domain.details import details_of
from domain.leaflet import task_details, task_summary
from domain.models import Policy, RunStatus, TaskStatus
from domain.progress import Ended, Outline, OutlineTask, Progress, Waiting
from domain.registry import Registry
from domain.step import Step
from embedded import down, up, web_ui_url
from payloads import COMPRESS_FROM
from runtime import Settings, connect, load_settings
from simulator.server import Simulator

WALL = {"fault": "rate_limit", "retry_after": 36000}
HANG = {"fault": "hang_before_headers"}
FAR = 'agents: [{name: far, version: "1", model: claude-sonnet-5-5, instructions: Do it.}]'
"""An agent on another model: a wall before it stops nobody else."""

MANY = ", ".join(f"item-{number} of a long list of pages to read" for number in range(60))
WIDE = f"""
max_concurrency: 61
defaults: {{agent: hand, timeout: 60s}}
tasks:
  - {{id: done, prompt: Go.}}
  - {{id: hang, for_each: [{MANY}], prompt: Hang.}}
  - {{id: join, prompt: Gather., needs: {{hang: optional}}}}
"""


def text_of(payload: Payload) -> str:
    """A text as the Web UI reads it: JSON, and nothing else."""
    assert payload.metadata["encoding"] == b"json/plain"
    text = json.loads(payload.data)
    assert isinstance(text, str)
    return text


async def metadata_of(client: Client, id: str) -> UserMetadata:
    """Summary and details, as `describe` gives them."""
    described = await client.workflow_service.describe_workflow_execution(
        DescribeWorkflowExecutionRequest(namespace=client.namespace, execution=WorkflowExecution(workflow_id=id))
    )
    return described.execution_config.user_metadata


async def current_payload(client: Client, id: str) -> Payload:
    """The answer to the query that the page sends for current details, as it comes over the wire."""
    answer = await client.workflow_service.query_workflow(
        QueryWorkflowRequest(
            namespace=client.namespace,
            execution=WorkflowExecution(workflow_id=id),
            query=WorkflowQuery(query_type="__temporal_workflow_metadata"),
        )
    )
    (payload,) = answer.query_result.payloads
    return payload


async def current_details(client: Client, id: str) -> str:
    payload = await current_payload(client, id)
    assert payload.metadata["encoding"] == b"json/protobuf"
    return str(json.loads(payload.data).get("currentDetails", ""))


async def until_shown(run: Run, words: str) -> str:
    """The current details as soon as they have these words."""

    async def shown() -> bool:
        return words in await current_details(run.temporal, run.id)

    await eventually(shown)
    return await current_details(run.temporal, run.id)


async def attributes_in(run: Run) -> dict[str, Any]:
    found = (await run.handle.describe()).typed_search_attributes
    return {pair.key.name: pair.value for pair in found if pair.key.name in ATTRIBUTES}


async def until_listed(run: Run, query: str) -> None:
    """Wait until Temporal's list has the run under this query: it may be a moment behind."""

    async def listed() -> bool:
        return [found.id async for found in run.temporal.list_workflows(query)] == [run.id]

    await eventually(listed)


async def agreed_end(run: Run) -> str:
    """How the run ended: the same in report, memo, search attribute, on the page and in the list."""
    closed = await run.closed()
    report = await run.report()
    status = report.status.value
    assert await attributes_in(run) == {STATUS: status, PLAN: "test"}
    assert await closed.memo_value("status") == status
    assert f"**{status}** · SIMULATED" in await current_details(run.temporal, run.id)
    await until_listed(run, f"{STATUS} = '{status}' AND WorkflowId = '{run.id}'")
    return status


# What can be read


async def test_texts_of_a_run_are_plain_json(crew: Bench) -> None:
    """However long they are: the page has no codec of ours. The input, which nobody reads there, is compressed."""
    crew.simulator.script([{"when": {"contains": "Hang."}, "then": HANG}])
    run = await crew.start(WIDE)
    await crew.simulator.until(lambda: crew.simulator.in_flight == 60)
    await until_shown(run, "1 of 62 tasks ended")
    await until_shown(run, "- and 30 more")

    metadata = await metadata_of(crew.temporal, run.id)
    current = await current_payload(crew.temporal, run.id)
    child = await metadata_of(crew.temporal, f"{run.id}/hang[item-7 of a long list of pages to read]")

    assert text_of(metadata.summary) == "SIMULATED: test, 62 tasks"
    assert f"`./starter.py watch {run.id}`" in text_of(metadata.details)
    assert "- 1: `done`, `hang` (60)" in text_of(metadata.details)
    assert len(current.data) > COMPRESS_FROM
    assert text_of(child.summary) == "hand does hang[item-7 of a long list of pages to read]"
    assert "Task `hang[item-7 of a long list of pages to read]` of the run" in text_of(child.details)
    (first, *_) = (await run.handle.fetch_history()).events
    assert [
        payload.metadata["encoding"] for payload in first.workflow_execution_started_event_attributes.input.payloads
    ] == [b"binary/zlib"]
    plain = Client(crew.temporal.service_client)  # as somebody else's program would ask
    answer = await plain.get_workflow_handle(run.id).query("__temporal_workflow_metadata")
    assert "- `hang[item-28 of a long list of pages to read]` by `hand`, since " in answer.current_details
    assert "- and 30 more" in answer.current_details
    await run.client.cancel(run.id)
    await run.closed()


async def test_long_static_details_are_plain_json(bench: Bench) -> None:
    """A plan of many layers has details above the size from which payloads are compressed."""
    names = [f"step-{number}-{'x' * 70}" for number in range(40)]
    tasks = [f"{{id: {name}, prompt: Go., needs: [{need}]}}" for need, name in pairwise(names)]
    run = await bench.start(f"defaults: {{agent: hand}}\ntasks: [{{id: {names[0]}, prompt: Go.}}, {', '.join(tasks)}]")

    details = (await metadata_of(bench.temporal, run.id)).details

    assert len(details.data) > COMPRESS_FROM
    assert "- and 10 more" in text_of(details)
    await run.handle.terminate()


async def test_a_task_tells_what_it_does_and_how_it_ended(crew: Bench) -> None:
    crew.simulator.script(
        [{"when": {"task": "bad"}, "then": {"stop_reason": "refusal"}}, {"when": {"task": "hang"}, "then": HANG}]
    )
    run = await crew.start("""
defaults: {agent: hand, timeout: 60s}
tasks: [{id: good, prompt: Go.}, {id: bad, prompt: Go.}, {id: hang, prompt: Go.}]
""")
    await crew.simulator.until(lambda: crew.simulator.calls("hang") == 1)
    await until_shown(run, "2 of 3 tasks ended")

    good, bad, hang = [await current_details(crew.temporal, f"{run.id}/{task}") for task in ("good", "bad", "hang")]

    assert "**SUCCEEDED** · at " in good
    assert "**FAILED** · at " in bad
    assert "**RUNNING** · `hand` is at work since " in hang
    await run.client.cancel(run.id)
    await run.closed()
    assert "**CANCELLED** · at " in await current_details(crew.temporal, f"{run.id}/hang")


async def test_every_step_in_the_timeline_has_words(crew: Bench) -> None:
    """Activities and children name agent and task, timers say what for."""
    crew.simulator.script([{"when": {"task": "wall", "nth": 1}, "then": {"fault": "rate_limit", "retry_after": 6}}])
    run = await crew.start("""
defaults: {agent: hand}
tasks: [{id: wall, prompt: Go.}, {id: quick, prompt: Go.}, {id: last, prompt: Go., needs: [wall]}]
""")
    await run.closed()

    supervisor = await words_of(crew, run.id)
    task = await words_of(crew, f"{run.id}/wall")

    assert {"hand does wall", "hand does quick", "hand does last", "the report"} <= supervisor
    assert any(words.startswith("events 1 to ") for words in supervisor)
    assert {"until the next events are written", "until the first wait of a task ends"} <= supervisor
    assert task == {"hand does wall"}


STEPS = {
    HistoryEvent.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED,
    HistoryEvent.EVENT_TYPE_TIMER_STARTED,
    HistoryEvent.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_INITIATED,
}


async def words_of(bench: Bench, id: str) -> set[str]:
    """The summary of every activity, timer and child."""
    history = await bench.temporal.get_workflow_handle(id).fetch_history()
    return {text_of(event.user_metadata.summary) for event in history.events if event.event_type in STEPS}


async def test_the_longest_names_run(crew: Bench) -> None:
    """Ids as long as a plan may have them, four bytes a letter: summaries are cut to what Temporal takes."""
    letter = "\N{DESERET CAPITAL LETTER LONG I}"
    run = await crew.start(f"tasks: [{{id: {letter * 100}, for_each: ['{letter * 100}'], agent: hand, prompt: Go.}}]")

    assert await agreed_end(run) == RunStatus.COMPLETED
    assert max(len(words.encode()) for words in await words_of(crew, run.id)) <= 300


class Tags(HTMLParser):
    """The tags of a page, and its text."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


async def rendered(settings: Settings, text: str) -> Tags:
    """The text as the Web UI renders it: it sends it to its own server, and shows the page that comes back."""
    address = f"{web_ui_url(settings.home)}/render?content={urllib.parse.quote(text)}&theme=light"

    def fetch() -> str:
        with urllib.request.urlopen(address, timeout=20) as answer:
            return str(answer.read().decode())

    page = Tags()
    page.feed(await asyncio.to_thread(fetch))
    return page


FRAME = {"html", "head", "title", "base", "meta", "style", "body", "main"}
OURS = {*FRAME, "p", "strong", "em", "code", "ul", "li", "br"}
NASTY = [
    "<b>bold</b>",
    "<img src=http://evil.example/i.png>",
    "<script>alert(1)</script>",
    "<!-- comment",
    "[link](http://evil.example)",
    "![image](http://evil.example/i.png)",
    "http://evil.example/",
    "mailto:someone@evil.example",
    "`</code><a href=http://evil.example>out</a>",
    "``` [a](http://evil.example)",
    "\\` [a](http://evil.example)",
    "[a]: http://evil.example",
    "| a | b |",
    "---|---",
    "$$x$$ $y$",
    "# heading",
    "&lt;b&gt; &#60;b&#62;",
    "a\n\n# b\n\n[a](http://evil.example)",
]


async def test_the_page_shows_names_and_messages_as_text(temporal: Client, settings: Settings) -> None:
    """The page renders HTML as it comes: nothing of what a plan or a provider wrote may reach it as such."""
    ids = [f"t[{text}]" for text in NASTY]
    tasks = tuple(
        OutlineTask(
            id=id, agent=text, needs=dict.fromkeys(ids, Policy.OPTIONAL), timeout=timedelta(seconds=1), attempts=1
        )
        for id, text in zip(ids, NASTY, strict=True)
    )
    course = Course(Outline(max_concurrency=1, tasks=tasks))
    start = datetime(2026, 1, 1, tzinfo=UTC)
    pages = [
        details_of(course, progress, start, run="run-1", simulated=True, continued=True, bug=bug)
        for progress, bug in [
            (Progress(active=dict.fromkeys(ids, start)), None),
            (Progress(active={ids[0]: start}), "".join(NASTY)),
            (
                Progress(
                    parked={
                        id: Waiting(why="wall", what=text, since=start) for id, text in zip(ids, NASTY, strict=True)
                    }
                ),
                None,
            ),
            (
                Progress(
                    ended={id: Ended(status=TaskStatus.FAILED, why=text) for id, text in zip(ids, NASTY, strict=True)}
                ),
                None,
            ),
        ]
    ]
    pages += [task_details("run-1", task, simulated=True) for task in tasks]
    pages += [task_summary(text, id) for id, text in zip(ids, NASTY, strict=True)]

    shown = [await rendered(settings, text) for text in pages]

    assert {tag for page in shown for tag in page.tags} <= OURS
    for text in NASTY:
        if "`" not in text and "\n" not in text:
            assert f"t[{text}]" in shown[0].text


async def test_the_renderer_does_not_help_us(temporal: Client, settings: Settings) -> None:
    """What the test above relies on: without our code spans the page would have links, images and tags."""
    assert {"b", "img", "script", "a"} <= (await rendered(settings, "\n\n".join(NASTY))).tags


# What can be filtered


async def test_the_search_attributes_follow_the_run(crew: Bench) -> None:
    """RUNNING from the start, WAITING before a wall, PAUSED, and CANCELLED at the end."""
    crew.simulator.script([{"when": {"task": "wall"}, "then": WALL}])
    run = await crew.start("defaults: {agent: hand}\ntasks: [{id: wall, prompt: Go.}]")
    (start, *_) = await history_of(run)
    begun_with = start.workflow_execution_started_event_attributes.search_attributes.indexed_fields
    assert {name: json.loads(begun_with[name].data) for name in ATTRIBUTES if name in begun_with} == {
        STATUS: "RUNNING",
        PLAN: "test",
    }

    await until_listed(run, f"{STATUS} = 'WAITING' AND {PLAN} = 'test' AND WorkflowId = '{run.id}'")
    await run.client.pause(run.id, by="a test")
    await until_listed(run, f"{STATUS} = 'PAUSED' AND WorkflowId = '{run.id}'")
    await run.client.resume(run.id, by="a test")
    await until_listed(run, f"{STATUS} = 'WAITING' AND WorkflowId = '{run.id}'")
    await run.client.cancel(run.id)

    assert await agreed_end(run) == RunStatus.CANCELLED


@pytest.mark.parametrize(
    ("refused", "status"),
    [
        ([], RunStatus.COMPLETED),
        (["a"], RunStatus.DEGRADED),
        (["c"], RunStatus.PARTIAL),
        (["b", "c"], RunStatus.FAILED),
    ],
)
async def test_every_end_is_the_same_everywhere(crew: Bench, refused: list[str], status: RunStatus) -> None:
    crew.simulator.script([{"when": {"task": task}, "then": {"stop_reason": "refusal"}} for task in refused])
    run = await crew.start("""
defaults: {agent: hand}
tasks: [{id: a, prompt: Go.}, {id: b, prompt: Go., needs: {a: optional}}, {id: c, prompt: Go.}]
""")

    assert await agreed_end(run) == status


async def test_a_bug_of_ours_is_the_same_everywhere(crew: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def launch(self: Course, progress: Progress, now: datetime, unconfirmed: int | None = None) -> Step:
        raise KeyError("launch <b>")

    monkeypatch.setattr(Course, "launch", launch)
    run = await crew.start("tasks: [{id: a, agent: hand, prompt: Go.}]")

    assert await agreed_end(run) == RunStatus.FAILED
    assert "A mistake in Nightcrew itself ends this run: `KeyError" in await current_details(crew.temporal, run.id)


async def test_what_a_run_shows_goes_through_continue_as_new(crew: Bench) -> None:
    """The next history begins with what the last one ended with, and the page still says how to steer."""
    crew.simulator.script(
        [{"when": {"task": "wall"}, "then": WALL}, {"when": {"contains": "Hang."}, "then": HANG}], ttft=0.1
    )
    run = await crew.start(
        f"""
{FAR}
max_concurrency: 4
defaults: {{agent: hand, timeout: 60s}}
tasks:
  - {{id: wall, agent: far, prompt: Go.}}
  - {{id: quick, for_each: [1, 2, 3, 4, 5, 6], prompt: Go.}}
  - {{id: hang, prompt: Hang., needs: [quick]}}
""",
        continue_after=2,
    )
    await crew.simulator.until(lambda: crew.simulator.calls("hang") == 1)
    await until_shown(run, "`hang` by `hand`")
    page = await until_shown(run, "**Waiting (1)**\n- `wall` by `far`")

    assert len(await run.chain()) >= 2
    assert await attributes_in(run) == {STATUS: "RUNNING", PLAN: "test"}
    assert "*Request Cancellation* is `cancel`" in page
    assert "`hang` by `hand`" in page
    await until_memo(run, "RUNNING", succeeded=6, waiting=1, running=1)
    await run.client.cancel(run.id)
    assert await agreed_end(run) == RunStatus.CANCELLED


async def until_memo(run: Run, status: str, **census: int) -> None:
    """Wait until the memo, which lists of runs show, says this."""

    async def told() -> bool:
        memo = await (await run.handle.describe()).memo()
        return memo.get("status") == status and census.items() <= memo.get("census", {}).items()

    await eventually(told)


async def history_of(run: Run) -> list[Recorded]:
    return list((await run.handle.fetch_history()).events)


async def test_a_run_at_rest_shows_its_last_state(crew: Bench) -> None:
    """Nothing happens for hours: list and page must not be of a moment before. No timer runs for it."""
    last = {"when": {"task": "quick[5]"}, "then": {"ttft": 3.5}}  # when it ends, the wall has long been met
    crew.simulator.script([{"when": {"contains": "Wall."}, "then": WALL}, last], ttft=0.2)
    run = await crew.start(f"""
{FAR}
max_concurrency: 3
defaults: {{agent: hand}}
tasks:
  - {{id: quick, for_each: [1, 2, 3, 4, 5], prompt: Go.}}
  - {{id: wall, agent: far, prompt: Wall.}}
  - {{id: behind, agent: far, prompt: Go., needs: [quick]}}
""")

    await until_memo(run, "WAITING", succeeded=5, waiting=1, ready=1)
    page = await until_shown(run, "**WAITING** · SIMULATED · 5 of 7 tasks ended")

    assert "Nothing is at work until " in page
    assert "**At work" not in page

    async def sleeps() -> bool:  # a timer that was set for events may still have to ring
        started = HistoryEvent.EVENT_TYPE_TIMER_STARTED
        *_, last = [event for event in await history_of(run) if event.event_type == started]
        return text_of(last.user_metadata.summary) == "until the first wait of a task ends"

    await eventually(sleeps)
    kinds = Counter(event.event_type for event in await history_of(run))
    batches = kinds[HistoryEvent.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED]
    assert kinds[HistoryEvent.EVENT_TYPE_TIMER_FIRED] <= batches
    await run.client.cancel(run.id)
    await run.closed()


# What can be done


async def test_a_run_can_be_steered_from_the_page(crew: Bench) -> None:
    """*Send an Update* takes the name and JSON as docs/web-ui.md says, without any code of ours."""
    crew.simulator.script([{"when": {"task": "wall"}, "then": WALL}])
    run = await crew.start("tasks: [{id: wall, agent: hand, prompt: Go.}]")
    page = Client(crew.temporal.service_client).get_workflow_handle(run.id)
    await until_shown(run, "**WAITING**")

    await answer_to(page, "pause", {"by": "somebody"})
    await until_shown(run, f"Nothing new starts; 0 tasks at work may finish. `./starter.py resume {run.id}` goes on.")
    await answer_to(page, "resume", {"by": "somebody"})
    await until_shown(run, "**WAITING**")
    await page.cancel()

    assert await agreed_end(run) == RunStatus.CANCELLED


async def test_the_filters_of_the_docs_are_understood(temporal: Client) -> None:
    text = (Path(__file__).parent.parent / "docs" / "web-ui.md").read_text("utf-8")
    queries = re.findall(r"^\| `([^`]+\"[^`]*)` \|", text, re.MULTILINE)
    assert len(queries) >= 5

    for query in queries:
        _ = [found async for found in temporal.list_workflows(query, limit=1)]


# A server that knows nothing of us


@asynccontextmanager
async def bare_server(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Client]:
    """A real server without our search attributes."""
    options = [
        word
        for before, word in pairwise(("", *temporal_server.SERVER_OPTIONS))
        if "--search-attribute" not in {before, word}
    ]
    monkeypatch.setattr(temporal_server, "SERVER_OPTIONS", options)
    settings = load_settings(folder / "home")
    await up(settings, worker=False, simulator=False)
    try:
        yield await connect(settings)
    finally:
        await down(settings)


async def test_runs_work_on_a_server_without_the_attributes(
    simulator: Simulator, registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither is the submit refused nor does the run stall: it is told not to use them, also after continue-as-new."""
    simulator.script([{"when": {"task": "wall", "nth": 1}, "then": {"fault": "rate_limit", "retry_after": 2}}])
    async with bare_server(tmp_path, monkeypatch) as client:
        with pytest.raises(RPCError, match=STATUS):
            await anext(client.list_workflows(f"{STATUS} = 'RUNNING'"))
        bench = Bench(client, simulator, registry, tmp_path)
        async with bench.worker():
            run = await bench.start(
                """
defaults: {agent: hand}
tasks: [{id: wall, prompt: Go.}, {id: quick, for_each: [1, 2, 3], prompt: Go.}, {id: end, prompt: Go., needs: [wall]}]
""",
                continue_after=2,
            )
            again = await bench.start("tasks: [{id: a, agent: hand, prompt: Go.}]", id="again")
            closed = await run.closed()
            chain = await run.chain()
            assert len(chain) >= 2
            events = [event for handle in chain for event in (await handle.fetch_history()).events]

            assert (await run.report()).status is RunStatus.COMPLETED
            assert (await again.report()).status is RunStatus.COMPLETED
            assert closed.status is WorkflowExecutionStatus.COMPLETED
            assert await attributes_in(run) == {}
            assert await closed.memo_value("status") == RunStatus.COMPLETED
            upserts = [event.upsert_workflow_search_attributes_event_attributes for event in events]
            named = {name for upsert in upserts for name in upsert.search_attributes.indexed_fields}
            assert named == {"TemporalChangeVersion"}, "the patch's own, which every server has"
            failures = [event for event in events if failed_task(event) and not was_interrupted(event)]
            causes = {event.workflow_task_failed_event_attributes.cause for event in failures}
            assert causes <= {WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_COMMAND}

            await create_as_the_docs_say(client)
            later = await bench.start("tasks: [{id: a, agent: hand, prompt: Go.}]", id="later")
            assert await agreed_end(later) == RunStatus.COMPLETED


def failed_task(event: Recorded) -> bool:
    return event.event_type == HistoryEvent.EVENT_TYPE_WORKFLOW_TASK_FAILED


async def create_as_the_docs_say(client: Client) -> None:
    """Run the command of docs/web-ui.md, and wait until the server has taken it in."""
    text = (Path(__file__).parent.parent / "docs" / "web-ui.md").read_text("utf-8")
    _, *words = shlex.split(
        re.findall(r"^temporal operator (?:.*\\\n)*.*$", text, re.MULTILINE)[0].replace("\\\n", " ")
    )
    address = client.service_client.config.target_host
    process = await asyncio.create_subprocess_exec(temporal_server.temporal_binary(), *words, "--address", address)
    assert await process.wait() == 0

    async def known() -> bool:
        try:
            return [found async for found in client.list_workflows(f"{STATUS} = 'X' AND {PLAN} = 'Y'")] == []
        except RPCError:
            return False

    await eventually(known)


async def test_a_mistake_in_the_page_does_not_concern_the_run(crew: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> str:
        raise KeyError("page")

    monkeypatch.setattr("domain.details._counts", broken)
    run = await crew.start("tasks: [{id: a, agent: hand, prompt: Go.}, {id: b, agent: hand, prompt: Go., needs: [a]}]")

    assert (await run.report()).status is RunStatus.COMPLETED
    assert (await run.closed()).status is WorkflowExecutionStatus.COMPLETED
