"""How many tokens a brief can be at most, from sizes alone: workflow code cannot read the texts.

No token is shorter than a byte, so bytes are a bound; what the provider puts around a block of its own is allowed for.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from pydantic import JsonValue

from domain.asking_again import most_bytes
from domain.briefing import INPUTS_LIMIT, REASON_LIMIT, Brief, brief_for
from domain.cutting import NOTE_BYTES
from domain.models import Input, Placement, Plan, Task, TaskStatus
from domain.reviewing import review_brief
from domain.summarizing import most_read, summary_brief

BLOCK = 64
"""Tokens that the provider may put around a block of a message, or around the message."""

SCHEMA = 1_000
"""Tokens that the provider may put around the schema of an answer."""

LABEL = 300
"""Bytes around one input beside its name: where it is from, its marks, and the note of a cut."""

LONGEST_LETTER = 6
"""Bytes that a character takes at most where it is written as JSON."""


def weight(brief: Brief) -> int:
    """The tokens that a brief can be at most."""
    texts = [brief.system, *(text for block in brief.content for text in _texts(block))]
    texts += [turn.text for turn in brief.turns]
    blocks = BLOCK * (len(brief.content) + len(brief.turns) + 1)
    return sum(len(text.encode()) for text in texts) + blocks + schema_weight(brief.schema_)


def schema_weight(schema: Mapping[str, JsonValue] | None) -> int:
    """What a schema can weigh at most: the provider explains it to the model in words of its own."""
    return SCHEMA + 2 * len(json.dumps(schema).encode()) if schema else 0


def fixed_weight(plan: Plan, task: Task) -> int:
    """What a task's brief weighs before anything is put into it: no file, no result, no note."""
    nothing = tuple(Input(task=need.task, status=TaskStatus.SKIPPED, why="") for need in task.told_of)
    files = NOTE_BYTES * len(task.files)  # each of them may be cut, and says so
    return weight(brief_for(plan, task, nothing, {file.ref: "" for file in task.files})) + files


def aside_weight(plan: Plan, task: Task) -> int:
    """What the request for a summary of a task's result can weigh; nothing where none is wanted."""
    return weight(summary_brief(plan, task, "")) + most_read(task) + LABEL if task.summarise else 0


def review_weight(plan: Plan, task: Task) -> int:
    """What the request for a review of a task's answer can weigh; nothing where nobody reviews."""
    return weight(review_brief(plan, task, "")) + most_bytes(task) + LABEL if task.review is not None else 0


def files_weight(task: Task) -> int:
    """What the files of a task weigh, before they are cut."""
    return sum(file.size for file in task.files)


def repeats(task: Task) -> dict[str, int]:
    """How often a result stands in the prompt, of those that stand there more than once."""
    places = [name for part in task.prompt if isinstance(part, Placement) for name in part.tasks]
    return {name: count for name in dict.fromkeys(places) if (count := places.count(name)) > 1}


def heaviest(
    *, fixed: int, files: int, inputs: Iterable[tuple[Input, int]], repeated: Mapping[str, int], note: str | None
) -> int:
    """What a brief can weigh at most with these inputs, each with the bytes of its text."""
    given, labels = files, 0
    for input, size in inputs:
        places = repeated.get(input.task, 1)
        given += size * places
        labels += (LABEL + 2 * len(input.task.encode()) + BLOCK) * places
        labels += min(len(input.why or ""), REASON_LIMIT) * LONGEST_LETTER
    noted = LABEL + len(note.encode()) if note else 0
    return fixed + min(given, INPUTS_LIMIT) + labels + noted


def _texts(block: Mapping[str, object]) -> Iterable[str]:
    match block:
        case {"type": "document", "title": str(title), "context": str(context), "source": {"data": str(data)}}:
            return title, context, data
        case {"text": str(text)}:
            return (text,)
    return ()
