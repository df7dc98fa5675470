"""What siblings share: the beginning of their briefs, which the provider reads once and keeps for the others.

A provider keeps the prefix of a prompt when it is long enough and its end is marked: the first call pays a quarter more
for that part, every other one a tenth. So the documents that siblings have in common go first, in the same order, and
what belongs to one task alone follows. Who has what in common is decided with the plan, and never changes after that.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from domain.models import Form, Placement, Task

BYTES_PER_TOKEN = 4
"""Of text. A little too few tokens are counted: a prefix that is too short would be marked in vain."""

MINIMUM: tuple[tuple[str, int], ...] = (
    (r"claude-(opus-4-[56]|haiku-4-5)\b", 4096),
    (r"claude-(opus-4-7|3-haiku|3-5-haiku)\b", 2048),
    (r"claude-(sonnet|opus-4|3-7-sonnet|3-5-sonnet|3-opus)\b", 1024),
    (r"claude-(opus|fable|mythos)-5\b", 512),
)
UNKNOWN = 4096
"""Tokens of the shortest prefix that the provider keeps, by the model's name; of a model that we do not know, the most
that any other asks for. Read in November 2026."""


def minimum(model: str) -> int:
    """Tokens that a prefix must have to be kept for this model."""
    return next((tokens for pattern, tokens in MINIMUM if re.match(pattern, model)), UNKNOWN)


def is_kept(model: str, size: int) -> bool:
    """Whether the provider would keep a prefix of so many bytes."""
    return size // BYTES_PER_TOKEN >= minimum(model)


def of_file(path: str) -> str:
    """What a file is called where documents of both kinds stand side by side."""
    return f"file {path}"


def of_task(id: str) -> str:
    """What the result of a task is called there."""
    return f"task {id}"


def with_shares(tasks: Sequence[Task]) -> tuple[Task, ...]:
    """The tasks of a plan, each told which of its documents go first.

    For each agent the documents are ordered by how many of its tasks have them. Tasks whose longest common beginning is
    the same are siblings; one that is alone with its beginning shares nothing.
    """
    counts = Counter((task.agent, name) for task in tasks for name in _documents(task))
    places = {key: place for place, (key, _) in enumerate(counts.most_common())}
    ways = [sorted(_documents(task), key=lambda name: places[task.agent, name]) for task in tasks]
    passed = _Ways()
    for task, way in zip(tasks, ways, strict=True):
        passed.walk(task.agent, way)
    common = [passed.in_company(task.agent, way) for task, way in zip(tasks, ways, strict=True)]
    siblings = Counter(end for end, _ in common)
    return tuple(
        task.model_copy(update={"shares": tuple(way[:depth])}) if siblings[end] > 1 else task
        for task, way, (end, depth) in zip(tasks, ways, common, strict=True)
    )


class _Ways:
    """The orders of documents as a tree, and how many tasks pass each of its nodes."""

    def __init__(self) -> None:
        self._nodes: dict[tuple[int | str, str], int] = {}
        self._passed: Counter[int | str] = Counter()

    def walk(self, agent: str, way: Iterable[str]) -> None:
        """One more task."""
        node: int | str = agent
        for name in way:
            node = self._nodes.setdefault((node, name), len(self._nodes))
            self._passed[node] += 1

    def in_company(self, agent: str, way: Iterable[str]) -> tuple[int | str, int]:
        """How far somebody else goes along, and where that ends."""
        node: int | str = agent
        depth = 0
        for name in way:
            following = self._nodes[node, name]
            if self._passed[following] < 2:
                break
            node, depth = following, depth + 1
        return node, depth


def _documents(task: Task) -> list[str]:
    """The documents that a task may have in its brief: a result that stands in its prompt is none, nor one by name."""
    placed = {name for part in task.prompt if isinstance(part, Placement) for name in part.tasks}
    needs = (of_task(need.task) for need in task.told_of if need.task not in placed and need.form is not Form.NAME)
    return [*(of_file(file.path) for file in task.files), *needs]
