"""Tasks of a run by the words of a person: an id, or the name of a fan-out or of a plan inside for all its tasks."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from domain.picture import Picture
from domain.problems import did_you_mean
from terminal.outcome import Exit, Refusal, ended

NAMED = 5
"""Items of a fan-out that a sentence names."""


def tasks_named(picture: Picture, words: Iterable[str]) -> list[str]:
    """The tasks that are meant, each once, in the order of the words."""
    found: dict[str, None] = {}
    for word in words:
        items = [word] if word in picture.tasks else items_of(word, picture.tasks)
        if not items:
            raise unknown_task(picture.run, word, picture.tasks)
        found |= dict.fromkeys(items)
    return list(found)


def items_of(name: str, known: Iterable[str]) -> list[str]:
    """The tasks of a fan-out, or of a plan inside the plan."""
    return [id for id in known if id.startswith((f"{name}[", f"{name}/"))]


def unknown_task(run: str, word: str, known: Collection[str]) -> Refusal:
    """The refusal of a word that names no single task, with what was probably meant."""
    group, hint = items_of(word, known), did_you_mean(word, known)
    more = f" and {len(group) - NAMED} more" if len(group) > NAMED else ""
    remedy = f" {ended(hint[0].upper() + hint[1:])}" if hint else ""
    remedy = f" It stands for {', '.join(group[:NAMED])}{more}." if group else remedy
    return Refusal(f"The run {run} has no task {word!r}.{remedy}", code="unknown_task", exit=Exit.WRONG)
