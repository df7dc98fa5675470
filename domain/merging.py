"""Merging in levels: what one brief cannot hold is merged in groups first, then the groups.

Each group is a task like any other, `ID/merge-LEVEL-NUMBER`, by the same agent and for the same assignment. The task
itself gets the texts of the groups, and its sources by name: so its edges, its quorum and what it is told of missing
inputs are what they were. Why it is done with the plan: docs/decisions/0044-merging-in-levels.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from domain.briefing import INPUTS_LIMIT
from domain.models import File, Form, Merged, Need, Policy, Task
from domain.summaries import SUMMARY_BYTES
from domain.weighing import LABEL

BYTES_A_TOKEN = 6
"""Of an answer, at most: long plain words have so many. Who reckons with more makes levels that nobody needs; should an
answer be longer all the same, its brief is cut to fit as any other is."""

MOST_TOKENS = 8_192
"""Of a merged text: eight of them fit a brief with their labels, so every level is much smaller than the one before."""

GROUP = "/merge-"
"""What follows the id of a task in those of its groups, before level and number. No id that is written has a slash."""

STRICTNESS = (Policy.OPTIONAL, Policy.TOLERATE, Policy.REQUIRE)

ASSIGNMENT = (
    "Merge the inputs into one text for the assignment below, in at most {words} words. Another agent carries it out "
    "later, from this text and others like it, and sees none of these inputs: keep what bears on the assignment, with "
    "its figures, reservations and contradictions, and leave out the rest. Do not carry it out yourself. The "
    "assignment:\n\n"
)


@dataclass(frozen=True)
class Piece:
    """One thing to be merged, and the bytes that it takes in a brief at most."""

    of: File | Need
    size: int
    sources: tuple[str, ...]

    @property
    def policy(self) -> Policy:
        """What it means that it is missing. A file never is, so a text that it is in must be there."""
        return self.of.policy if isinstance(self.of, Need) else Policy.REQUIRE


def with_levels(tasks: Sequence[Task], over: Collection[str] = ()) -> tuple[Task, ...]:
    """The tasks of a plan, with the groups of those that merge more than one brief holds. Doing it again adds none.

    Who needs a fan-out over a list that is not there yet is laid out when it is; `over` are those that stay as they
    are.
    """
    by_id = {task.id: task for task in tasks}
    open = {task.id for task in tasks if task.each is not None and task.id not in over}
    return tuple(
        each
        for task in tasks
        for each in ((task,) if open.intersection((task.id, *_needed(task))) else _levels(task, by_id))
    )


def without_levels(tasks: Sequence[Task]) -> tuple[Task, ...]:
    """The same tasks as they were before. With the levels made anew, what has not changed comes out the same."""
    merging = {task.id: task for task in tasks if task.merged and not _is_group(task)}
    first: dict[str, list[Task]] = {id: [] for id in merging}
    groups: set[str] = set()
    for task in tasks:
        whole, level, _ = task.id.rpartition(GROUP)
        if level and whole in merging:
            groups.add(task.id)
            first[whole] += [] if task.merged else [task]
    return tuple(
        _gathered(task, first[task.id]) if task.id in merging else task for task in tasks if task.id not in groups
    )


def _gathered(task: Task, groups: Sequence[Task]) -> Task:
    """A task with its own inputs, of which its groups know the forms, and the files."""
    forms = {need.task: need.form for group in groups for need in group.needs}
    needs = tuple(
        need.model_copy(update={"form": forms[need.task]})
        for need in task.needs
        if need.form is Form.NAME and need.task in forms
    )
    files = tuple(file for group in groups for file in group.files)
    return task.model_copy(update={"needs": (*needs, *_waits(task)), "files": files, "merged": ()})


def _is_group(task: Task) -> bool:
    return GROUP in task.id


def _needed(task: Task) -> tuple[str, ...]:
    """What a task merges, if it does."""
    return tuple(need.task for need in task.needs) if task.merge else ()


def _levels(task: Task, tasks: Mapping[str, Task]) -> Iterator[Task]:
    """The groups of a task, the first level first, and then the task itself."""
    pieces = _pieces(task, tasks) if task.merge else []
    if task.merged or len(pieces) < 2 or _size(pieces) <= INPUTS_LIMIT:
        yield task
        return
    level = 0
    while _size(pieces) > INPUTS_LIMIT:
        level += 1
        made = [_group(task, f"{task.id}{GROUP}{level}-{n}", each) for n, each in enumerate(_grouped(pieces), 1)]
        yield from (group for group, _ in made)
        pieces = [piece for _, piece in made]
    by_name = (need.model_copy(update={"form": Form.NAME}) for need in task.told_of)
    update = {"needs": (*by_name, *_needs(pieces), *_waits(task)), "files": (), "merged": _merged(pieces)}
    yield task.model_copy(update=update)


def _pieces(task: Task, tasks: Mapping[str, Task]) -> list[Piece]:
    """What a task takes, in the order of its brief."""
    files = [Piece(file, file.size + _label(file.path), (file.path,)) for file in task.files]
    read = (need for need in task.told_of if need.form is not Form.NAME)
    needs = [Piece(need, _passed(need, tasks[need.task]) + _label(need.task), (need.task,)) for need in read]
    return [*files, *needs]


def _passed(need: Need, task: Task) -> int:
    """Bytes of a result that come down an edge, at most."""
    return SUMMARY_BYTES if need.form is Form.SUMMARY else min(task.max_tokens * BYTES_A_TOKEN, INPUTS_LIMIT)


def _label(name: str) -> int:
    return LABEL + 2 * len(name.encode())


def _size(pieces: Sequence[Piece]) -> int:
    return sum(piece.size for piece in pieces)


def _grouped(pieces: Sequence[Piece]) -> list[list[Piece]]:
    """As few groups as fit, each as large as the others: a last one of a single input would be paid for little."""
    fewest = len(_split(pieces, INPUTS_LIMIT))
    least, most = 1, INPUTS_LIMIT
    while least < most:
        middle = (least + most) // 2
        least, most = (least, middle) if len(_split(pieces, middle)) <= fewest else (middle + 1, most)
    return _split(pieces, least)


def _split(pieces: Sequence[Piece], most: int) -> list[list[Piece]]:
    """The pieces in order, in groups of at most so many bytes; what is larger alone is a group of its own."""
    groups: list[list[Piece]] = []
    size = 0
    for piece in pieces:
        if not groups or size + piece.size > most:
            groups.append([])
            size = 0
        groups[-1].append(piece)
        size += piece.size
    return groups


def _group(task: Task, id: str, pieces: Sequence[Piece]) -> tuple[Task, Piece]:
    """The task that merges a group, and what it hands on.

    Its edges are those of the task itself. Where such an edge skips the group it skips the task, too, so nothing is
    paid for a merge that nobody will make. What is asked of the task alone (approval, quorum, schema) it has not.
    """
    tokens = min(task.max_tokens, MOST_TOKENS)
    words = ASSIGNMENT.format(words=max(20, tokens // 2))
    group = Task(
        id=id,
        agent=task.agent,
        asked=task.asked,
        type=task.type,
        prompt=(words, *task.prompt),
        item=task.item,
        files=tuple(piece.of for piece in pieces if isinstance(piece.of, File)),
        payload=task.payload,
        needs=(*_needs(pieces), *_waits(task)),
        priority=task.priority,
        deadline=task.deadline,
        timeout=task.timeout,
        time_limit=task.time_limit,
        attempts=task.attempts,
        max_tokens=tokens,
        budget=task.budget,
        part=task.part,
        merge=True,
        merged=_merged(pieces),
        latency=task.latency,
    )
    strictest = max((piece.policy for piece in pieces), key=STRICTNESS.index)
    sources = tuple(name for piece in pieces for name in piece.sources)
    return group, Piece(Need(task=id, policy=strictest), tokens * BYTES_A_TOKEN + _label(id), sources)


def _waits(task: Task) -> tuple[Need, ...]:
    """What a task waits for and is told nothing of: whatever is done for it waits for that, too."""
    return tuple(need for need in task.needs if need.form is Form.ORDER)


def _needs(pieces: Sequence[Piece]) -> tuple[Need, ...]:
    return tuple(piece.of for piece in pieces if isinstance(piece.of, Need))


def _merged(pieces: Sequence[Piece]) -> tuple[Merged, ...]:
    """Those of the pieces that are merged texts themselves."""
    return tuple(
        Merged(task=piece.of.task, sources=piece.sources)
        for piece in pieces
        if isinstance(piece.of, Need) and piece.sources != (piece.of.task,)
    )
