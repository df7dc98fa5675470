"""A text becomes a valid plan, or every mistake in it is told with its place."""

# ruff: noqa: E501  (a table of mistakes reads best with one mistake per line)

from __future__ import annotations

import fnmatch
import json
from collections.abc import Mapping
from datetime import timedelta

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from domain import durations
from domain.models import File, Placement, Plan, Policy, Task, ref_of
from domain.planning import FolderError, Invalid, Planned, building, plan_from_text
from domain.planning.drafts import same
from domain.registry import registry_from_text

REGISTRY = registry_from_text(
    """
agents:
  - {name: researcher, version: "1", capabilities: [research], model: m, instructions: Find.}
  - {name: writer, version: "2", capabilities: [writing, research], model: m, timeout: 60s, max_tokens: 99, instructions: Write.}
  - {name: idle, version: "1", model: m, instructions: Rest.}
""",
    file="agents.yaml",
)


class DictFolder:
    """A folder that is a dict."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self.files = files

    def read(self, path: str) -> bytes:
        return self.files[path]

    def match(self, pattern: str) -> list[str]:
        if pattern.startswith("/"):
            raise FolderError(f"{pattern!r} must be relative")
        return sorted(path for path in self.files if fnmatch.fnmatchcase(path, pattern))


FILES = {
    "notes/a.md": b"A",
    "notes/b.md": "Bé".encode(),
    "ask.md": b"Ask {{ first }}.",
    "raw.bin": b"\xff",
    "nul": b"\0",
}


def planned(
    text: str,
    *,
    file: str = "dir/my plan.yaml",
    files: Mapping[str, bytes] = FILES,
    params: Mapping[str, str] | None = None,
    max_concurrency: int | None = None,
) -> Planned:
    return plan_from_text(
        text, file=file, registry=REGISTRY, folder=DictFolder(files), params=params, max_concurrency=max_concurrency
    )


def mistakes(text: str, *, files: Mapping[str, bytes] = FILES, params: Mapping[str, str] | None = None) -> list[str]:
    with pytest.raises(Invalid) as caught:
        planned(text, files=files, params=params, file="p")
    return [str(problem) for problem in caught.value.problems]


def tasks(text: str, *, files: Mapping[str, bytes] = FILES, params: Mapping[str, str] | None = None) -> dict[str, Task]:
    return {task.id: task for task in planned(text, files=files, params=params).plan.tasks}


# ---------------------------------------------------------------- what a plan becomes


def test_the_smallest_plan() -> None:
    result = planned("tasks: [{id: only, agent: researcher, prompt: Hello.}]")

    assert result.plan.name == "my-plan"
    assert result.plan.max_concurrency == 4
    assert [agent.label for agent in result.plan.agents] == ["researcher@1"]
    assert result.plan.tasks == (
        Task(
            id="only",
            agent="researcher",
            prompt=("Hello.",),
            timeout=timedelta(seconds=30),
            attempts=4,
            max_tokens=1024,
        ),
    )
    assert result.contents == {}
    assert result.warnings == ()


EFFECTIVE = """
name: effective
max_concurrency: 7
defaults: {timeout: 5m, agent: writer, type: x.y, payload: {a: 1}, prompt_file: ask.md, files: [notes/*.md]}
tasks:
  - {id: first, attempts: 2, prompt: Go.}
  - {id: second, agent: idle, timeout: 1d, type: own, payload: {}, files: [], needs: [first]}
"""


def test_values_come_from_task_then_defaults_then_agent_then_built_in() -> None:
    result = planned(EFFECTIVE)

    first, second = result.plan.tasks
    assert (first.agent, first.timeout, first.attempts, first.max_tokens) == ("writer", timedelta(minutes=5), 2, 99)
    assert (first.type, first.payload, [file.path for file in first.files]) == (
        "x.y",
        {"a": 1},
        ["notes/a.md", "notes/b.md"],
    )
    assert (second.agent, second.timeout, second.attempts, second.max_tokens) == ("idle", timedelta(days=1), 4, 1024)
    assert (second.type, second.payload, second.files) == ("own", {}, ())
    assert second.prompt == ("Ask ", Placement(name="first", tasks=("first",)), ".")
    assert result.sources["first"] == {
        "agent": "defaults", "type": "defaults", "prompt": "task", "files": "defaults", "payload": "defaults",
        "timeout": "defaults", "attempts": "task", "max_tokens": "agent", "priority": "built in",
        "latency": "built in",
    }  # fmt: skip
    assert result.sources["second"] == {
        "agent": "task", "type": "task", "prompt": "defaults", "files": "task", "payload": "task",
        "timeout": "task", "attempts": "built in", "max_tokens": "built in", "priority": "built in",
        "latency": "built in",
    }  # fmt: skip
    assert (result.plan.name, result.plan.max_concurrency) == ("effective", 7)
    assert planned(EFFECTIVE, max_concurrency=9).plan.max_concurrency == 9
    assert [agent.name for agent in result.plan.agents] == ["writer", "idle"]


def test_files_are_kept_by_the_hash_of_their_content() -> None:
    result = planned("tasks: [{id: a, agent: idle, prompt: x, files: [notes/b.md, 'notes/*']}]")

    ref = ref_of("Bé".encode())
    assert result.plan.tasks[0].files[0] == File(path="notes/b.md", ref=ref, size=3)
    assert [file.path for file in result.plan.tasks[0].files] == ["notes/b.md", "notes/a.md"]
    assert result.contents == {ref: "Bé".encode(), ref_of(b"A"): b"A"}


FAN_OUT = r"""
params: {lang: {default: en}, tone: {}}
tasks:
  - id: scan
    for_each: [claude, "open ai", 3]
    capability: research
    prompt: "What is {{ item }} in {{params.lang}}, {{ params.tone }}? \\{{ item }}"
    payload: {product: "{{ item }}", list: [1, 2.5, yes, null, "{{ params.lang }}-{{ item }}"]}
  - id: report
    capability: [writing, research]
    needs: {scan: optional, "scan[claude]": {policy: require}}
    prompt: |
      Compare {{ scan }} with {{ scan[claude] }}
"""


def test_a_fan_out_is_one_task_per_item() -> None:
    found = tasks(FAN_OUT, params={"tone": "{{ scan }} {{ item }}"})

    assert list(found) == ["scan[claude]", "scan[open ai]", "scan[3]", "report"]
    # What is filled in is text, even when it looks like a placeholder; neighbours are one run.
    assert found["scan[open ai]"].prompt == ("What is open ai in en, {{ scan }} {{ item }}? {{ item }}",)
    assert found["scan[3]"].payload == {"product": "3", "list": [1, 2.5, "yes", None, "en-3"]}
    assert found["report"].agent == "writer"
    assert [(need.task, need.policy) for need in found["report"].needs] == [
        ("scan[claude]", Policy.REQUIRE),
        ("scan[open ai]", Policy.OPTIONAL),
        ("scan[3]", Policy.OPTIONAL),
    ]
    assert found["report"].prompt == (
        "Compare ",
        Placement(name="scan", tasks=("scan[claude]", "scan[open ai]", "scan[3]")),
        " with ",
        Placement(name="scan[claude]", tasks=("scan[claude]",)),
        "\n",
    )


def test_an_item_that_looks_like_a_placeholder_cannot_be_written() -> None:
    """Items are labels; braces are refused there, and parameters show that filling in is not repeated."""
    assert "without []{}" in mistakes("tasks: [{id: a, agent: idle, prompt: x, for_each: ['{{ item }}']}]")[0]


def test_the_precise_need_wins_in_either_order() -> None:
    text = "tasks: [{id: s, agent: idle, prompt: '{{ item }}', for_each: [a, b]}, {id: r, agent: idle, prompt: x, needs: %s}]"

    for needs in ('{s: optional, "s[a]": require}', '{"s[a]": require, s: optional}'):
        found = tasks(text % needs)["r"].needs
        assert [(need.task, need.policy) for need in found] == [("s[a]", "require"), ("s[b]", "optional")]


def test_a_fan_out_over_files_attaches_each_file() -> None:
    found = tasks(
        "tasks: [{id: read, for_each: {files: notes/*.md}, agent: idle, prompt: 'See {{ item }}.', files: [notes/a.md]}]"
    )

    assert list(found) == ["read[notes/a.md]", "read[notes/b.md]"]
    assert found["read[notes/b.md]"].prompt == ("See notes/b.md.",)
    assert [file.path for file in found["read[notes/b.md]"].files] == ["notes/b.md", "notes/a.md"]
    assert [file.path for file in found["read[notes/a.md]"].files] == ["notes/a.md"]


def test_needs_may_come_in_any_form_and_tolerate_by_default() -> None:
    text = "tasks: [{id: r, agent: idle, prompt: x, needs: %s}, {id: a, agent: idle, prompt: x}, {id: b.c, agent: idle, prompt: x}]"

    def policies(needs: str) -> list[tuple[str, str]]:
        return [(need.task, need.policy.value) for need in tasks(text % needs)["r"].needs]

    assert policies("[b.c, a]") == [("b.c", "tolerate"), ("a", "tolerate")]
    assert policies("{a: require, b.c: {}}") == [("a", "require"), ("b.c", "tolerate")]
    assert policies("{a: {policy: optional}}") == [("a", "optional")]


def test_an_id_with_a_dot_is_placed_like_any_other() -> None:
    found = tasks("tasks: [{id: a.b, agent: idle, prompt: x}, {id: c, agent: idle, prompt: '{{ a.b }}', needs: [a.b]}]")

    assert found["c"].prompt == (Placement(name="a.b", tasks=("a.b",)),)


def test_agents_of_the_plan_win_over_the_registry() -> None:
    text = """
agents:
  - {name: writer, version: "own", capabilities: [writing], model: m, instructions: Mine.}
  - {name: spare, version: "1", model: m, instructions: Unused.}
tasks: [{id: a, capability: writing, prompt: x}, {id: b, agent: researcher, prompt: x}]
"""
    result = planned(text)

    assert [agent.label for agent in result.plan.agents] == ["writer@own", "researcher@1"]
    assert [str(warning) for warning in result.warnings] == [
        "dir/my plan.yaml:4:12: the agent 'spare' of this plan is not used"
    ]


def test_what_is_probably_not_meant_is_a_warning() -> None:
    result = planned(
        "params: {p: {default: x}}\ntasks: [{id: a, agent: idle, prompt: same, for_each: [x, y]}]\n", file="p"
    )

    assert [str(warning) for warning in result.warnings] == [
        "p:1:13: the parameter 'p' is not used",
        "p:2:54: task 'a': every item gets the same prompt (place {{ item }})",
    ]


@pytest.mark.parametrize(
    ("file", "name"),
    [("-", "plan"), ("a/b c.d.yaml", "b-c-d"), ("x", "x"), ("..", "plan"), (".yaml", "yaml"), ("계획.yaml", "계획"), ("C:\\p\\q.yml", "q")],
)  # fmt: skip
def test_a_plan_without_a_name_is_called_after_its_file(file: str, name: str) -> None:
    assert planned("tasks: [{id: a, agent: idle, prompt: x}]", file=file).plan.name == name


def test_a_prompt_file_with_windows_line_ends_and_byte_order_mark() -> None:
    found = tasks("tasks: [{id: a, agent: idle, prompt_file: w.md}]", files={"w.md": "\ufeffa\r\nb".encode()})

    assert found["a"].prompt == ("a\nb",)


def test_the_same_plan_as_json() -> None:
    data = yaml.safe_load(EFFECTIVE)

    assert planned(json.dumps(data)).plan == planned(EFFECTIVE).plan


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30s", 30), ("5m", 300), ("2h", 7200), ("1d", 86400), ("1m30s", 90), ("0.5s", 0.5), ("1h0m1s", 3601)],
)
def test_durations_as_people_write_them(text: str, seconds: float) -> None:
    assert durations.duration(text) == timedelta(seconds=seconds)
    assert durations.duration(durations.written(timedelta(seconds=seconds))) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "30", "s", "1s1m", "-1s", "1 s", "1.5m", "1w", "٣s", "1e3s", "0s", "0m0s"])
def test_other_texts_are_no_durations(text: str) -> None:
    with pytest.raises(ValueError, match="must be"):
        durations.duration(text)


# ---------------------------------------------------------------- mistakes

TASK_MISTAKES = [
    ("id: 5", "3:9", "'id' must be a text, not the number 5", "write it in quotes"),
    ("id: yes", "3:9", "can be read as true or false", "write it in quotes"),
    ("id: 0123", "3:9", "can be read as a number", "write it in quotes"),
    ("id: 2024-01-01", "3:9", "can be read as a date", "write it in quotes"),
    ("id: null", "3:9", "'id' is empty", ""),
    ("id: a b", "3:9", "letters, digits", ""),
    ("id: -a", "3:9", "start with a letter or digit", ""),
    ("id: ../../x", "3:9", "letters, digits", ""),
    ("id: ''", "3:9", "letters, digits", ""),
    (f"id: {'a' * 101}", "3:9", "at most 100 characters", ""),
    ("id: item", "3:9", "reserved", "another id"),
    ("id: Params", "3:9", "reserved", "another id"),
    ("id: first", "3:9", "the id 'first' is in line 2 and again in line 3", ""),
    ("id: FIRST", "3:9", "in line 2 and again in line 3", "differs from 'first' only in case"),
    ("agent: writr", "3:12", "unknown agent 'writr'", "did you mean 'writer'?"),
    ("agent: zzz", "3:12", "unknown agent 'zzz'", "known: researcher, writer, idle"),
    ("agent: [a]", "3:12", "'agent' must be a text, not a list", ""),
    ("agent:", "3:11", "'agent' is empty", "remove the key"),
    ("agent: on", "3:12", "must be a text", "write it in quotes"),
    ("capability: research", "3:17", "give 'agent' or 'capability', not both", ""),
    ("type: a b", "3:11", "letters, digits", ""),
    ("prompt: ''", "3:13", "'prompt' must not be empty", ""),
    ("prompt: 5", "3:13", "'prompt' must be a text, not the number 5", "write it in quotes"),
    ("prompt: {a: b}", "3:13", "must be a text, not a mapping", ""),
    ("prompt: 'a {{ b }} c'", "3:16", "'{{ b }}' names no task", "allowed"),
    ("prompt: 'a {{ frst }} c'", "3:16", "'{{ frst }}' names no task", "did you mean 'first'?"),
    ("prompt: a {{ first }}", "3:15", "placed but not in needs", "add 'first' to needs"),
    ("prompt: a {{ first.title }}", "3:15", "placed but not in needs", "add 'first' to needs"),
    ("prompt: a {{ item }}", "3:15", "without for_each", ""),
    ("prompt: a {{ item.x }}", "3:15", "names no task", ""),
    ("prompt: a {{ params.lng }}", "3:15", "not declared", "did you mean 'params.lang'?"),
    ("prompt: a {{", "3:15", "'{{' does not begin", r"write \{{"),
    ("prompt: a {{ }} b", "3:15", "names no task", "allowed"),
    ("prompt: a {{ {first} }} b", "3:15", "'{{' does not begin", "allowed"),
    ("prompt: a {{ first | upper }} b", "3:15", "names no task", ""),
    ("prompt_file: ask.md", "3:18", "give 'prompt' or 'prompt_file', not both", ""),
    ("files: notes/a.md", "3:12", "'files' must be a list", ""),
    ("files: [notes/a.md, nope/*]", "3:25", "'nope/*' matches no file", ""),
    ("files: [/etc/passwd]", "3:13", "must be relative", ""),
    ("files: [raw.bin]", "3:13", "not UTF-8", ""),
    ("files: [nul]", "3:13", "NUL", ""),
    ("files: [large]", "3:13", "larger than 5 MB", ""),
    ("payload: [a]", "3:14", "'payload' must be a mapping, not a list", ""),
    ("payload: {a: [x, '{{ item }}']}", "3:23", "without for_each", ""),
    ("payload: {a: '{{ first }}'}", "3:19", "cannot stand in a payload", ""),
    ("payload: {a: '{{ other }}'}", "3:19", "names no task", ""),
    ("payload: {'{{ item }}': 1}", "3:15", "a key of a payload", ""),
    ("timeout: 30", "3:14", "must be a duration", ""),
    ("timeout: 25h", "3:14", "at most 24h", ""),
    ("timeout: 0s", "3:14", "longer than 0s", ""),
    ("timeout: 12:30:00", "3:14", "must be a duration", ""),
    ("attempts: 0", "3:15", "'attempts' must be at least 1, not the number 0", ""),
    ("attempts: 5", "3:15", "'attempts' must be at most 4, not the number 5", ""),
    ("attempts: '4'", "3:15", "must be a whole number, not the text '4'", ""),
    ("attempts: 010", "3:15", "must be a whole number, not the text '010'", ""),
    ("attempts: true", "3:15", "must be a whole number, not true", ""),
    ("attempts: 1.0", "3:15", "must be a whole number", ""),
    ("max_tokens: 200001", "3:17", "at most 200,000", ""),
    ("max_tokens: .nan", "3:17", "not a finite number", ""),
    ("needs: first", "3:12", "must be a list of ids, or a mapping", ""),
    ("needs: [frist]", "3:13", "needs 'frist', which is no task", "did you mean 'first'?"),
    ("needs: [First]", "3:13", "needs 'First', which is no task", "did you mean 'first'?"),
    ("needs: [first, first]", "3:20", "needs 'first' twice", ""),
    ("needs: [1]", "3:13", "'needs[0]' must be a text", "write it in quotes"),
    ("needs: {1: require}", "3:13", "a key must be a text", "write it in quotes"),
    ("needs: {first: requir}", "3:20", "must be require, tolerate or optional, not the text 'requir'", "'require'"),
    ("needs: {first: [require]}", "3:20", "must be require, tolerate or optional", ""),
    ("needs: {first: {policy: x}}", "3:29", "must be require, tolerate or optional", ""),
    ("needs: {first: {pass: whole}}", "3:27", "'needs.first.pass' must be full or summary, not the text 'whole'", ""),
    ("needs: {first: {pass: }}", "3:27", "is empty", "give it a value, or remove the key"),
    ("needs: {first: {form: full}}", "3:21", "unknown key 'form'", "known: pass, policy"),
    ("needs: {first: {polcy: x}}", "3:21", "unknown key 'polcy'", "did you mean 'policy'?"),
    ("needs: ['first[x]']", "3:13", "no task of this plan", ""),
    ("needs: [second]", "3:13", "needs itself: second -> second", ""),
    ("for_each: []", "3:15", "'for_each' must not be empty", ""),
    ("for_each: a", "3:15", "must be a list of items, {files: PATTERN}, {param: NAME} or {from: TASK}", ""),
    ("for_each: [[a]]", "3:16", "'for_each[0]' must be a text", ""),
    ("for_each: [no]", "3:16", "can be read as true or false", "write it in quotes"),
    ("for_each: [1.5]", "3:16", "must be a text, not the number 1.5", "write it in quotes"),
    ("for_each: [true]", "3:16", "must be a text", "write it in quotes"),
    ("for_each: [a, A]", "3:19", "the item 'A' is in line 3 and again in line 3", ""),
    ("for_each: ['a]b']", "3:16", "without []{}", ""),
    ("for_each: [' a']", "3:16", "without space around", ""),
    ("for_each: ['a\u202eb']", "3:16", "printable", ""),
    (f"for_each: [{'a' * 101}]", "3:16", "at most 100", ""),
    ("for_each: {from: nobody}", "3:22", "needs 'nobody', which is no task of this plan", ""),
    ("for_each: {from: first, max: 0}", "3:34", "'for_each.max' must be at least 1", ""),
    ("for_each: {files: nope/*}", "3:23", "'nope/*' matches no file", ""),
    ("for_each: {files: 'https://example.org/a'}", "3:23", "'https://example.org/a' is an address", ""),
    ("for_each: {files: raw.bin}", "3:23", "not UTF-8", ""),
    ("for_each: {fils: x}", "3:16", "unknown key 'fils'", "did you mean 'files'?"),
    ("promt: x", "3:5", "unknown key 'promt' in a task", "did you mean 'prompt'?"),
    ("schema: x", "3:13", "'schema' must be a mapping", ""),
    ("review: x", "3:13", "'review' must be a mapping", ""),
    ("review: {by: writr}", "3:18", "unknown agent 'writr'", "did you mean 'writer'?"),
    ("review: {by: writer, tries: 4}", "3:33", "must be at most 3", ""),
    ("review: {by: writer, trys: 1}", "3:26", "unknown key 'trys' in 'review'", "did you mean 'tries'?"),
    ("review: {tries: 1}", "3:13", "'by' is missing in 'review'", ""),
    ("on_budget: wait", "3:5", "'on_budget' cannot stand in a task", "write it at the top of the plan"),
    ("workspace: x", "3:5", "'workspace' is not supported yet", ""),
]  # fmt: skip


@pytest.mark.parametrize(
    ("line", "place", "words", "hint"), TASK_MISTAKES, ids=[line[:40] for line, *_ in TASK_MISTAKES]
)
def test_a_mistake_in_a_task_is_told_with_its_place(line: str, place: str, words: str, hint: str) -> None:
    """One wrong line in an otherwise right task gives one problem: no cascade."""
    keys = {"id": "second", "agent": "writer", "prompt": "x"}
    others = "".join(f"    {key}: {value}\n" for key, value in keys.items() if key != line.partition(":")[0])
    text = f"tasks:\n  - {{id: first, agent: idle, prompt: x}}\n  - {line}\n{others}params: {{lang: {{default: en}}}}\n"

    with pytest.raises(Invalid) as caught:
        planned(text, files={**FILES, "large": b"x" * 5_000_001})

    (problem,) = caught.value.problems
    assert f"{problem.line}:{problem.column}" == place
    assert words in problem.message
    assert hint in (problem.hint or "")
    assert "\n" not in str(problem)


@pytest.mark.parametrize(
    "text",
    [
        "tasks: [{id: a, agent: idle, prompt: x, review: {by: writr, tries: 4}}]\n",
        "tasks: [{id: a, agent: idle, prompt: x, review: {by: writr, trys: 1}}]\n",
        "tasks: [{id: a, agent: idle, prompt: x}]\ndefaults: {review: {by: writr, tries: 4}}\n",
    ],
)
def test_a_reviewer_is_looked_up_though_something_beside_its_name_is_wrong(text: str) -> None:
    name, _ = mistakes(text)

    assert "unknown agent 'writr' (did you mean 'writer'?)" in name


@pytest.mark.parametrize(
    "key",
    [
        "needs: [nobody, 5]",
        "needs: {nobody: tolerate, first: never}",
        "needs: {nobody: {pass: all}}",
        "for_each: {from: nobody, max: 0}",
    ],
)
def test_a_need_is_looked_up_though_something_beside_its_name_is_wrong(key: str) -> None:
    found = mistakes(f"tasks: [{{id: first, agent: idle, prompt: x}}, {{id: a, agent: idle, prompt: x, {key}}}]\n")

    assert ["'nobody', which is no task of this plan" in each for each in found] == [True, False]


GOOD = "tasks: [{id: a, agent: idle, prompt: x}]\n"
PLAN_MISTAKES = [
    ("", ["p:1:1: the file is empty"]),
    ("just text", ["p:1:1: the plan must be a mapping, not the text 'just text'"]),
    ("name: x\n", ["p:1:1: the plan has no tasks"]),
    ("tasks: []\n", ["p:1:8: the plan has no tasks"]),
    ("tasks: []\nmode: x\n", ["p:1:8: the plan has no tasks", "p:2:7: 'mode' must be window or waves, not the text 'x'"]),
    ("tasks:\n", ["p:1:7: 'tasks' is empty (give it a value, or remove the key)"]),
    ("tasks: {a: b}\n", ["p:1:8: 'tasks' must be a list, not a mapping"]),
    ("tasks: [5]\n", ["p:1:9: a task must be a mapping, not the number 5"]),
    ("tasks: [{agent: idle, prompt: x}]\n", ["p:1:9: 'id' is missing in a task"]),
    (
        "tasks: [{id: a}]\n",
        [
            "p:1:9: task 'a': 'agent' or 'capability' is missing",
            "p:1:9: task 'a': 'prompt' or 'prompt_file' is missing",
        ],
    ),
    (GOOD + "name: a b\n", ["p:2:7: 'name' must be letters, digits, '-' and '_', and start with a letter or digit"]),
    (GOOD + "max_concurrency: 501\n", ["p:2:18: 'max_concurrency' must be at most 500, not the number 501"]),
    (GOOD + "max_concurency: 5\n", ["p:2:1: unknown key 'max_concurency' in the plan (did you mean 'max_concurrency'?)"]),
    (GOOD + "budget_usd: much\n", ["p:2:13: 'budget_usd' must be an amount in US dollars (such as 0.50)"]),
    (GOOD + "budget_usd: true\n", ["p:2:13: 'budget_usd' must be an amount in US dollars (such as 0.50)"]),
    (GOOD + "budget_usd: 0\n", ["p:2:13: 'budget_usd' must be more than 0 and at most 1,000,000"]),
    (GOOD + "budget_usd: -1\n", ["p:2:13: 'budget_usd' must be more than 0 and at most 1,000,000"]),
    (GOOD + "on_budget: x\n", ["p:2:12: 'on_budget' must be stop or wait, not the text 'x'"]),
    (GOOD + "defaults: {promt_file: x}\n", ["p:2:12: unknown key 'promt_file' in defaults (did you mean 'prompt_file'?)"]),
    *[
        (f"{GOOD}defaults: {{{key}: x}}\n", [f"p:2:12: '{key}' cannot stand in defaults (write it in each task)"])
        for key in ("id", "needs", "prompt", "for_each", "quorum")
    ],
    (GOOD + "defaults: {mode: waves}\n", ["p:2:12: 'mode' cannot stand in defaults (write it at the top of the plan)"]),
    (GOOD + "timeout: 30s\n", ["p:2:1: 'timeout' cannot stand at the top of the plan (write it in defaults)"]),
    (GOOD + "quorum: 1\n", ["p:2:1: 'quorum' cannot stand at the top of the plan (write it in a task)"]),
    (GOOD + "defaults: [x]\n", ["p:2:11: 'defaults' must be a mapping, not a list"]),
    (
        GOOD + "defaults: {agent: idle, capability: research}\n",
        ["p:2:37: give 'agent' or 'capability', not both"],
    ),
    (
        "defaults: {agent: nobody}\ntasks: [{id: a, prompt: x}, {id: b, prompt: x}]\n",
        ["p:1:19: unknown agent 'nobody' (known: researcher, writer, idle)"],
    ),
    (
        "tasks: [{id: a, capability: [writing, analysis], prompt: x}, {id: b, capability: [wrting], prompt: x}]\n",
        [
            "p:1:29: task 'a': no agent is capable of 'writing' and 'analysis'",
            "p:1:82: task 'b': no agent is capable of 'wrting' (did you mean 'writing'?)",
        ],
    ),
    ("tasks: [{id: a, capability: [], prompt: x}]\n", ["p:1:29: task 'a': 'capability' must not be empty"]),
    (GOOD + "params: {a b: {}}\n", ["p:2:10: 'params.a b' must be letters, digits, '-' and '_', and start with a letter or digit"]),
    (GOOD + "params: {a: {default: 5}}\n", ["p:2:23: 'params.a.default' must be a text, not the number 5 (write it in quotes)"]),
    (GOOD + "params: {a: en}\n", ["p:2:13: 'params.a' must be a mapping, not the text 'en'"]),
    (GOOD + "params: {a: {}}\n", ["p:2:10: the parameter 'a' has no value and no default (--param a=VALUE)"]),
    (
        GOOD + "agents: [{name: own, version: 1, model: m, instructions: x}]\n",
        ["p:2:31: 'version' must be a text, not the number 1 (write it in quotes)"],
    ),
    (
        "agents: [{name: own}]\ntasks: [{id: a, agent: own, prompt: x}]\n",
        [
            "p:1:10: 'version' is missing in an agent",
            "p:1:10: 'model' is missing in an agent",
            "p:1:10: 'instructions' is missing in an agent",
        ],
    ),
    (
        "tasks:\n  - {id: a, agent: idle, prompt_file: none.md}\n  - {id: b, agent: idle, prompt_file: notes/*}\n",
        [
            "p:2:39: task 'a': 'prompt_file': 'none.md' matches no file",
            "p:3:39: task 'b': 'prompt_file': 'notes/*' matches more than one file",
        ],
    ),
    (
        "tasks:\n  - {id: a, agent: idle, prompt_file: 'HTTPS://x.org'}\n",
        [
            "p:2:39: task 'a': 'prompt_file': 'HTTPS://x.org' is an address, and no file in the plan's folder",
        ],
    ),
    (
        "tasks:\n  - {id: a, agent: idle, prompt: x, needs: [b]}\n  - {id: b, agent: idle, prompt: x, needs: [a]}\n",
        ["p:2:45: task 'a': the needs form a cycle: a -> b -> a"],
    ),
    (
        "tasks:\n  - {id: a, agent: idle, prompt: x, for_each: [1, 2], needs: ['b[2]']}\n  - {id: b, agent: idle, prompt: x, for_each: [1, 2], needs: {a: optional}}\n",
        ["p:2:63: task 'a': the needs form a cycle: a -> b -> a"],
    ),
    (
        "tasks:\n  - {id: b, agent: idle, prompt: x, bad: 1, for_each: [1], needs: [c]}\n  - {id: c, agent: 5, prompt: '{{ b }} {{ b[1] }}', needs: [b]}\n",
        [
            "p:2:37: task 'b': unknown key 'bad' in a task (known: agent, approval, attempts, ",
            "p:2:68: task 'b': the needs form a cycle: b -> c -> b",
            "p:3:20: task 'c': 'agent' must be a text, not the number 5 (write it in quotes)",
        ],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), PLAN_MISTAKES, ids=[text[:40] for text, _ in PLAN_MISTAKES])
def test_a_mistake_in_a_plan_is_told_with_its_place(text: str, expected: list[str]) -> None:
    found = mistakes(text)

    assert len(found) == len(expected)
    for problem, words in zip(found, expected, strict=True):
        assert problem.startswith(words)


EVERYTHING = """\
nam: x
budget_usd: .nan
max_concurrency: 0
defaults: {prompt: hi, timeout: 30, agent: yes}
tasks:
  - {id: 0123, agent: writer, prompt: x}
  - id: scan
    agent: writr
    prompt: "{{ foo }} {{ params.lng }}"
    neds: [y]
  - id: Scan
    agent: writer
    prompt: a
    prompt_file: b
    needs: [scn, Scan, report]
    attempts: 9
    attempts: 3
  - &anchor
    id: report
    capability: [wrting]
    payload: {a: "{{ scan }} {{ item }}"}
    files: [nope/*]
    needs: {scan: requir}
    prompt: |
      foo
         bar {{ scan.field }}
  - *anchor
  - [x]
"""


def test_every_mistake_is_told_at_once_in_order() -> None:
    assert [problem.split(" (")[0].removeprefix("p:") for problem in mistakes(EVERYTHING)] == [
        "1:1: unknown key 'nam' in the plan",
        "2:13: '.nan' is not a finite number",
        "3:18: 'max_concurrency' must be at least 1, not the number 0",
        "4:12: 'prompt' cannot stand in defaults",
        "4:33: 'timeout' must be a duration such as 30s, 5m, 1m30s, 2h or 1d",
        "4:44: 'agent' must be a text, but yes can be read as true or false",
        "6:10: task '0123': 'id' must be a text, but 0123 can be read as a number",
        "8:12: task 'scan': unknown agent 'writr'",
        "9:14: task 'scan': '{{ foo }}' names no task of this plan",
        "9:24: task 'scan': '{{ params.lng }}' is not declared in params",
        "10:5: task 'scan': unknown key 'neds' in a task",
        "11:9: task 'Scan': the id 'Scan' is in line 7 and again in line 11",
        "14:18: task 'Scan': give 'prompt' or 'prompt_file', not both",
        "15:13: task 'Scan': needs 'scn', which is no task of this plan",
        "15:18: task 'Scan': the task needs itself: Scan -> Scan",
        "16:15: task 'Scan': 'attempts' must be at most 4, not the number 9",
        "17:5: the key 'attempts' is in line 16 and again in line 17",
        "18:5: the anchor '&anchor' is not allowed",
        "20:17: task 'report': no agent is capable of 'wrting'",
        "21:19: task 'report': '{{ scan }}' cannot stand in a payload: a task's result can be placed in prompts only",
        "21:30: task 'report': '{{ item }}' stands in a task without for_each",
        "22:13: task 'report': 'files': 'nope/*' matches no file",
        "23:19: task 'report': 'needs.scan' must be require, tolerate or optional, not the text 'requir'",
        "26:14: task 'report': '{{ scan.field }}': 'scan' has no schema, so its result has no fields",
        "27:5: the alias '*anchor' is not allowed",
        "28:5: a task must be a mapping, not a list",
    ]


def test_a_mistake_in_a_prompt_file_has_the_place_in_that_file() -> None:
    found = mistakes("tasks: [{id: a, agent: idle, prompt_file: x.md}]", files={"x.md": b"one\r\n  two {{ nope }}\n"})

    assert found[0].startswith("x.md:2:7: task 'a': '{{ nope }}' names no task")


@pytest.mark.parametrize(
    ("content", "words"), [(b"\xff", "not UTF-8"), (b"a\x1bb", "U+001B in line 1, column 2"), (b" \n", "is empty")]
)
def test_a_prompt_file_must_be_a_text(content: bytes, words: str) -> None:
    (found,) = mistakes("tasks: [{id: a, agent: idle, prompt_file: x.md}]", files={"x.md": content})

    assert found.startswith("p:1:43: task 'a': 'prompt_file': 'x.md'")
    assert words in found


def test_parameters_that_are_given_must_be_declared_and_readable() -> None:
    text = GOOD + "params: {lang: {default: en}}\n"

    assert mistakes(text, params={"lng": "ko"}) == [
        "p:2:9: the plan declares no parameter 'lng' (did you mean 'lang'?)"
    ]
    assert mistakes(GOOD + "params: 5\n", params={"x": "y"}) == ["p:2:9: 'params' must be a mapping, not the number 5"]
    assert mistakes(GOOD, params={"x": "y"}) == ["p:1:1: the plan declares no parameter 'x' (declared: none)"]
    assert "control characters" in mistakes(text, params={"lang": "\x1b"})[0]
    assert "control characters" in mistakes(text, params={"lang": "\ud800"})[0]


@pytest.mark.parametrize("number", [0, 501, -1])
def test_the_concurrency_that_is_given_has_the_same_limits(number: int) -> None:
    with pytest.raises(Invalid, match="between 1 and 500"):
        planned(GOOD, max_concurrency=number)


def test_independent_cycles_are_all_told_once() -> None:
    needs = {"a": "b", "b": "c", "c": "a", "x": "y", "y": "x", "free": "a"}
    lines = [f"  - {{id: {id}, agent: idle, prompt: x, needs: [{need}]}}\n" for id, need in needs.items()]

    assert [problem.partition("cycle: ")[2] for problem in mistakes("tasks:\n" + "".join(lines))] == [
        "a -> b -> c -> a",
        "x -> y -> x",
    ]


# ---------------------------------------------------------------- size


def chain(length: int, first: str = "") -> str:
    lines = [
        f"  - {{id: t{i}, agent: idle, prompt: x, needs: [{f't{i - 1}' if i else first}]}}\n" for i in range(length)
    ]
    return "tasks:\n" + "".join(reversed(lines))


def test_a_chain_of_ten_thousand_tasks_is_a_plan() -> None:
    result = planned(chain(10_000))

    assert len(result.plan.tasks) == 10_000
    assert result.plan.tasks[0].needs[0].task == "t9998"


def test_a_cycle_of_ten_thousand_tasks_is_told_in_one_line() -> None:
    (found,) = mistakes(chain(10_000, first="t9999"))

    assert found.startswith("p:2:49: task 't9999': the needs form a cycle: t9999 -> t9998 -> ")
    assert found.endswith(" -> t0 -> t9999")
    assert len(found) < 400


def items(count: int) -> str:
    return f"[{','.join(map(str, range(count)))}]"


def test_more_than_ten_thousand_tasks_are_refused() -> None:
    assert mistakes(chain(10_001))[0].startswith("p:10002:5: the plan has 10,001 tasks")
    text = f"tasks: [{{id: a, agent: idle, prompt: x}}, {{id: b, agent: idle, prompt: x, for_each: {items(10_000)}}}]"
    assert mistakes(text) == ["p:1:84: task 'b': the plan has 10,001 tasks; at most 10,000 are possible"]


def test_needs_between_large_fan_outs_are_counted_before_they_are_made() -> None:
    text = f"""tasks:
  - {{id: a, agent: idle, prompt: x, for_each: {items(1_000)}}}
  - {{id: b, agent: idle, prompt: x, for_each: {items(1_000)}, needs: [a]}}
"""
    assert "more than 100,000 needs" in mistakes(text)[0]


def test_what_grows_when_it_is_filled_in_is_measured_first() -> None:
    """A parameter of 100 kB placed 1,000 times would be 100 MB, for each of 1,000 items."""
    text = """
params: {p: {}}
tasks: [{id: a, agent: idle, for_each: %s, %s}]
"""
    params = {"p": "x" * 100_000}

    (prompt,) = mistakes(text % (items(1_000), f"prompt: '{'{{ params.p }}' * 1_000}'"), params=params)
    (payload,) = mistakes(
        text % (items(1_000), f"prompt: x, payload: {{k: '{'{{ params.p }}' * 1_000}'}}"), params=params
    )

    assert "task 'a[0]': the prompt is larger than 1 MB" in prompt
    assert "task 'a[0]': the payload is larger than 1 MB" in payload


def test_the_prompts_of_a_plan_have_a_limit_in_all() -> None:
    text = f"tasks: [{{id: a, agent: idle, prompt: '{'x' * 600_000}', for_each: {items(100)}}}]"

    assert (
        "task 'a[83]': the prompts, payloads and schemas of the plan are larger than 50 MB in all" in mistakes(text)[0]
    )


def test_a_prompt_of_a_million_bytes_is_the_largest() -> None:
    assert tasks(f"tasks: [{{id: a, agent: idle, prompt: '{'x' * 1_000_000}'}}]")
    assert "larger than 1 MB" in mistakes(f"tasks: [{{id: a, agent: idle, prompt: '{'é' * 500_001}'}}]")[0]


def test_the_files_of_a_plan_have_a_limit_in_all() -> None:
    files = {f"f{i:02}": b"x" * 5_000_000 for i in range(11)}

    (found,) = mistakes("tasks: [{id: a, agent: idle, prompt: x, files: ['f*']}]", files=files)

    assert "larger than 50 MB in all" in found


def test_files_are_counted_once_per_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "MAX_ATTACHMENTS", 3)
    text = "tasks: [{id: a, agent: idle, prompt: '{{ item }}', for_each: [x, y], files: ['notes/*']}]"

    assert "task 'a[y]': the tasks of the plan have more than 3 files" in mistakes(text)[0]


# ---------------------------------------------------------------- any plan, any text

LETTERS = st.characters(categories=["Lu", "Ll", "Nd"])
IDS = st.builds("".join, st.tuples(LETTERS, st.text(LETTERS | st.sampled_from("-_."), max_size=12)))
PROMPTS = st.text(st.characters(exclude_categories=["Cs", "Cc", "Cn"]) | st.sampled_from("\n\t{}\\"), min_size=1)


@st.composite
def graphs(draw: st.DrawFn) -> dict[str, dict[str, str]]:
    ids = draw(
        st.lists(IDS.filter(lambda name: same(name) not in ("item", "params")), min_size=1, max_size=8, unique_by=same)
    )
    policies = st.sampled_from(["require", "tolerate", "optional"])
    return {
        id: draw(st.dictionaries(st.sampled_from(ids[:index]), policies)) if index else {}
        for index, id in enumerate(ids)
    }


@given(graphs(), st.data())
@settings(max_examples=150, deadline=None)
def test_every_document_of_a_graph_without_cycles_is_a_plan(
    graph: dict[str, dict[str, str]], data: st.DataObject
) -> None:
    prompts = {id: data.draw(PROMPTS.filter(lambda text: text.strip())) for id in graph}
    order = data.draw(st.permutations(list(graph)))
    written = [
        {
            "id": id,
            "agent": "idle",
            "prompt": prompts[id].replace("{{", "\\{{") + ":" + "".join(f"{{{{ {need} }}}}" for need in graph[id]),
            "needs": graph[id] if data.draw(st.booleans()) else {need: {"policy": p} for need, p in graph[id].items()},
        }
        for id in order
    ]
    text = data.draw(
        st.sampled_from([json.dumps({"tasks": written}), yaml.safe_dump({"tasks": written}, default_style='"')])
    )

    plan = planned(text).plan

    assert [task.id for task in plan.tasks] == order
    for task in plan.tasks:
        assert {need.task: need.policy.value for need in task.needs} == graph[task.id]
        assert task.prompt[0] == prompts[task.id] + ":"
        assert [run.tasks for run in task.prompt[1:] if isinstance(run, Placement)] == [
            (need,) for need in graph[task.id]
        ]


SNIPPETS = st.sampled_from(
    [
        "{{", "}}", "{{ item }}", "{{ scan }}", "&a ", "*a", "!!x ", "- ", ": ", "\n", "\t", "[", "]", "{", "}", "'", '"', "|\n",
        "yes", "0123", ".nan", "null", "~", "id: ", "needs: [", "for_each: ", "\x00", "\ud800", "\ufeff", "<<: ", "? ", "---\n",
        "files: ['**']", "prompt_file: ask.md\n", "#", "agents: [{name: x}]\n", "defaults: {agent: idle}\n",
    ]
)  # fmt: skip
EDITS = st.lists(
    st.tuples(st.integers(0, 2_000), st.integers(0, 30), SNIPPETS | st.text(max_size=5)), min_size=1, max_size=6
)


@given(st.sampled_from([FAN_OUT, EFFECTIVE, EVERYTHING]), EDITS)
@settings(max_examples=500, deadline=None)
def test_any_change_of_a_plan_gives_a_plan_or_its_mistakes(text: str, edits: list[tuple[int, int, str]]) -> None:
    for start, length, new in edits:
        at = start % (len(text) + 1)
        text = text[:at] + new + text[at + length :]

    try:
        result = planned(text, params={"tone": "dry"} if "tone" in text else None)
    except Invalid as invalid:
        problems = invalid.problems
    else:
        check_plan(result.plan)
        return

    places = [(problem.line, problem.column) for problem in problems if problem.file != "ask.md"]
    assert places == sorted(places)
    assert len(set(map(str, problems))) == len(problems) > 0
    assert all("\n" not in str(problem) for problem in problems)


def check_plan(plan: Plan) -> None:
    ids = [task.id for task in plan.tasks]
    assert len(set(ids)) == len(ids) > 0
    assert {need.task for task in plan.tasks for need in task.needs} <= set(ids)
    assert {task.agent for task in plan.tasks} == {agent.name for agent in plan.agents}


@given(st.text())
@settings(max_examples=200, deadline=None)
def test_no_text_does_anything_but_fail_clearly(text: str) -> None:
    with pytest.raises(Invalid):
        planned(text)
