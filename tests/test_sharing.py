"""What siblings share: who has what in common, and how briefs that begin alike are made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.briefing import INPUTS_LIMIT, Brief, brief_for
from domain.models import Agent, File, Input, Need, Placement, Plan, Task, TaskStatus, ref_of
from domain.sharing import is_kept, minimum, of_file, of_task, with_shares

AGENTS = tuple(
    Agent(name=name, version="1", model="claude-sonnet-4-5", instructions=f"You are {name}.") for name in ("ant", "bee")
)
LONG = "word " * 1000
"""Bytes enough for a prefix that is kept."""


def task(id: str, *, files: tuple[str, ...] = (), needs: tuple[str, ...] = (), agent: str = "ant") -> Task:
    return Task(
        id=id,
        agent=agent,
        prompt=(f"Do {id}.",),
        files=tuple(File(path=path, ref=ref_of((path + LONG).encode()), size=len(path + LONG)) for path in files),
        needs=tuple(Need(task=need) for need in needs),
        timeout=timedelta(seconds=30),
        attempts=4,
        max_tokens=300,
    )


def shares(*tasks: Task) -> dict[str, tuple[str, ...] | None]:
    return {task.id: task.shares for task in with_shares(tasks)}


def brief(task: Task, *, texts: Mapping[str, str] | None = None) -> Brief:
    """The brief of a task whose needs have all succeeded."""
    plan = Plan(name="siblings", max_concurrency=4, agents=AGENTS, tasks=(task,))
    results = {need.task: (texts or {}).get(need.task, need.task + LONG) for need in task.needs}
    inputs = tuple(
        Input(task=id, status=TaskStatus.SUCCEEDED, ref=ref_of(text.encode())) for id, text in results.items()
    )
    known = {ref_of(text.encode()): text for text in results.values()}
    known |= {file.ref: file.path + LONG for file in task.files}
    return brief_for(plan, task, inputs, known)


def test_siblings_share_the_documents_that_all_of_them_have() -> None:
    """As a fan-out over files does, with more files for all: those go first, and its own file follows."""
    common = ("guide.md", "style.md")

    found = shares(*(task(f"t{number}", files=(f"{number}.py", *common)) for number in range(3)))

    assert set(found.values()) == {(of_file("guide.md"), of_file("style.md"))}


def test_results_of_other_tasks_are_shared_as_files_are() -> None:
    assert set(shares(*(task(id, needs=("scan", "outline")) for id in "ab")).values()) == {
        (of_task("scan"), of_task("outline"))
    }


def test_agents_share_nothing_with_each_other() -> None:
    """Another agent has another system prompt, and with that another beginning."""
    found = shares(task("a", files=("x",)), task("b", files=("x",), agent="bee"))

    assert found == {"a": None, "b": None}


def test_who_is_alone_with_its_beginning_shares_nothing() -> None:
    """A mark would cost a quarter more for a part that nobody reads."""
    two = ("x", "y")

    found = shares(task("a", files=two), task("b", files=two), task("c", files=("x",)))

    assert found == {"a": (of_file("x"), of_file("y")), "b": (of_file("x"), of_file("y")), "c": None}


def test_a_result_that_stands_in_the_prompt_is_no_document() -> None:
    placed = Placement(name="scan", tasks=("scan",))
    tasks = [task(id, needs=("scan",)).model_copy(update={"prompt": (placed,)}) for id in "ab"]

    assert set(shares(*tasks).values()) == {()}


def test_briefs_of_siblings_begin_alike_and_say_the_same_as_before() -> None:
    """The ledger knows both by the same hash: the order changes what a call costs, and not what it asks."""
    plain = [task(f"t{number}", files=(f"{number}.py", "guide.md"), needs=("scan",)) for number in range(2)]

    briefs = [brief(task) for task in with_shares(plain)]

    assert briefs[0].shared == briefs[1].shared
    assert [block["title"] for block in briefs[0].shared] == ["guide.md", "scan"]
    assert briefs[0].prefix == briefs[1].prefix is not None
    assert [each.hash for each in briefs] == [brief(task).hash for task in plain]
    assert sorted(map(str, (*briefs[0].shared, *briefs[0].own))) == sorted(map(str, briefs[0].content))
    assert all(brief(task).prefix is None for task in plain)


def test_what_is_too_short_to_be_kept_is_not_marked() -> None:
    first, _ = with_shares([task(id, needs=("scan",)) for id in "ab"])

    assert brief(first, texts={"scan": "x" * 4000}).prefix is not None
    assert brief(first, texts={"scan": "x" * 2000}).first is None


def test_a_brief_that_was_cut_to_fit_is_not_marked() -> None:
    """How much of each document is left depends on the others, so siblings do not begin alike."""
    first, _ = with_shares([task(id, needs=("scan", id + id)) for id in "ab"])

    assert brief(first, texts={"scan": "x" * INPUTS_LIMIT, "aa": "y"}).prefix is None


def test_a_long_word_of_the_agent_is_shared_by_itself() -> None:
    agent = AGENTS[0].model_copy(update={"instructions": "x" * 5000})
    tasks = with_shares([task("a"), task("b")])
    plan = Plan(name="siblings", max_concurrency=4, agents=(agent,), tasks=tasks)

    first, second = (brief_for(plan, each, (), {}) for each in tasks)

    assert (first.first, first.shared) == ((), ())
    assert first.prefix == second.prefix is not None


@pytest.mark.parametrize(
    ("model", "tokens"),
    [
        ("claude-haiku-4-5", 4096),
        ("claude-opus-4-5-20251101", 4096),
        ("claude-opus-4-1", 1024),
        ("claude-sonnet-5-5", 1024),
        ("claude-opus-5", 512),
        ("claude-3-5-haiku-20241022", 2048),
        ("somebody-elses", 4096),
    ],
)
def test_the_shortest_prefix_depends_on_the_model(model: str, tokens: int) -> None:
    assert minimum(model) == tokens
    assert is_kept(model, 4 * tokens)
    assert not is_kept(model, 4 * tokens - 1)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["ant", "bee"]),
            st.lists(st.sampled_from("uvwxyz"), unique=True),
            st.lists(st.sampled_from("klmn"), unique=True),
        ),
        max_size=12,
    )
)
def test_whatever_the_plan_siblings_begin_alike(written: list[tuple[str, list[str], list[str]]]) -> None:
    """Nobody is alone with what it shares, all who share the same begin alike, and no brief changes its hash."""
    plain = [
        task(f"t{number}", agent=agent, files=tuple(files), needs=tuple(needs))
        for number, (agent, files, needs) in enumerate(written)
    ]

    tasks = with_shares(plain)

    groups = Counter((task.agent, task.shares) for task in tasks if task.shares is not None)
    assert all(count > 1 for count in groups.values())
    prefixes: dict[object, set[str | None]] = {}
    for each, before in zip(tasks, plain, strict=True):
        told = brief(each)
        assert told.hash == brief(before).hash
        assert each.model_copy(update={"shares": None}) == before
        if each.shares is not None:
            prefixes.setdefault((each.agent, each.shares), set()).add(told.prefix)
            assert len(told.shared) == len(each.shares)
    assert all(len(found) == 1 for found in prefixes.values())
