r"""Placeholders in prompts, payloads, questions: `{{ TASK }}`, `{{ TASK.field }}`, `{{ item }}`, `{{ params.NAME }}`.

`\{{` is a literal `{{`. A text is read once into pieces and then filled in once per item. What is filled in is never
read again, so an item or a parameter that looks like a placeholder stays what it is: text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Literal

from pydantic import JsonValue

from domain.answer_schema import Schema, fields
from domain.answer_schema import field as schema_field
from domain.models import Placement
from domain.problems import Suggestions, did_you_mean, quoted, shorten

_TOKEN = re.compile(r"\\\{\{|\{\{(?P<inside>[^{}]*)\}\}|\{\{")
_ALLOWED = r"allowed: {{ TASK }}, {{ TASK.field }}, {{ item }}, {{ params.NAME }}; write \{{ for a literal {{"


MAX_BYTES = 1_000_000
"""How large a prompt or a payload may be."""

Where = Literal["a prompt", "a payload", "a question", "a parameter", "a path"]
"""Where a text stands. Results can be placed in prompts only."""


class Item:
    """The place where the item goes."""


ITEM = Item()
Piece = str | Placement | Item
Complain = Callable[[int, str, str | None], None]
"""Called with the number of the `{{` that is wrong (from 0), what is wrong, and a hint."""


@dataclass
class Scope:
    """What placeholders of one task may name.

    `tasks` is a lookup from a name to ids, and gives nothing for an unknown name. `needed` is nothing when the needs
    could not be read: then a placed task is not complained of.
    """

    params: Mapping[str, str]
    has_item: bool = False
    tasks: Callable[[str], tuple[str, ...] | None] = lambda _: None
    broken: AbstractSet[str] = frozenset()
    needed: AbstractSet[str] | None = frozenset()
    schema: Callable[[str], Schema | None] = lambda _: None
    """What the answer of a task must be, by its id."""
    suggest: Suggestions = field(default_factory=lambda: Suggestions(()))
    used: set[str] = field(default_factory=set)


def read(text: str, scope: Scope, complain: Complain, *, where: Where = "a prompt") -> list[Piece]:
    """The pieces of a text, with parameters filled in. Every placeholder that is wrong is complained of."""
    if "{{" not in text:
        return [text]
    pieces: list[Piece] = []
    end = 0
    for number, token in enumerate(_TOKEN.finditer(text)):
        pieces.append(text[end : token.start()])
        end = token.end()
        inside = token["inside"]
        if token[0].startswith("\\"):
            pieces.append("{{")
        elif inside is None:
            complain(number, "'{{' does not begin a placeholder", _ALLOWED)
        else:
            found = _meaning(inside.strip(), scope, where)
            if isinstance(found, _Wrong):
                complain(number, found.message, found.hint)
            else:
                pieces.append(found)
    return [*pieces, text[end:]]


@dataclass(frozen=True)
class _Wrong:
    message: str
    hint: str | None = None


def _meaning(name: str, scope: Scope, where: Where) -> Piece | _Wrong:
    shown = f"'{{{{ {shorten(name)} }}}}'" if name.isprintable() else quoted(f"{{{{ {name} }}}}")
    if name == "item":
        scope.used.add(name)
        why = "cannot stand in a path" if where == "a path" else "stands in a task without for_each"
        return ITEM if scope.has_item else _Wrong(f"{shown} {why}")
    if name.startswith("params."):
        scope.used.add(name)
        value = scope.params.get(name.removeprefix("params."))
        hint = did_you_mean(name, [f"params.{declared}" for declared in scope.params]) if value is None else None
        return value if value is not None else _Wrong(f"{shown} is not declared in params", hint)
    return _result(name, shown, scope, where)


def _result(name: str, shown: str, scope: Scope, where: Where) -> Piece | _Wrong:
    """The place of a result, or of a field of one."""
    task, path = _parted(name, scope)
    ids = scope.tasks(task)
    if ids is None:
        return _not_a_task(name, shown, scope)
    if where != "a prompt":
        return _Wrong(f"{shown} cannot stand in {where}: a task's result can be placed in prompts only")
    if scope.needed is not None and not all(id in scope.needed for id in ids):
        return _Wrong(f"{shown} is placed but not in needs", f"add {quoted(task)} to needs")
    if path and (wrong := _without_field(shown, task, path, scope)) is not None:
        return wrong
    return Placement(name=task, tasks=ids, field=path)


def _parted(name: str, scope: Scope) -> tuple[str, tuple[str, ...]]:
    """The task that a name begins with, and the way to a field of its result. Ids may have dots, too."""
    if scope.tasks(name) is not None:
        return name, ()
    parts = name.split(".")[:100]
    for count in range(len(parts) - 1, 0, -1):
        head = ".".join(parts[:count])
        if scope.tasks(head) is not None or head in scope.broken:
            return head, tuple(parts[count:])
    return name, ()


def _without_field(shown: str, task: str, path: tuple[str, ...], scope: Scope) -> _Wrong | None:
    """Why a result has no such field, if it has none: that is known from its schema, before anything is asked."""
    for id in scope.tasks(task) or ():
        schema = scope.schema(id)
        if schema is None:
            hint = f"give {quoted(task)} a schema, or place its whole result"
            return _Wrong(f"{shown}: {quoted(task)} has no schema, so its result has no fields", hint)
        for count, name in enumerate(path):
            if schema_field(schema, path[: count + 1]) is None:
                known = fields(schema, path[:count])
                hint = did_you_mean(name, known) or f"there are: {', '.join(known) or 'none'}"
                return _Wrong(f"{shown}: the schema of {quoted(task)} has no field {quoted(name)} there", hint)
    return None


def _not_a_task(name: str, shown: str, scope: Scope) -> Piece | _Wrong:
    task, _ = _parted(name, scope)
    if {task, task.partition("[")[0]} & scope.broken:
        return ""  # that task has its own complaints
    return _Wrong(f"{shown} names no task of this plan", scope.suggest.hint(name) or _ALLOWED)


def size(pieces: list[Piece], item: str) -> int:
    """How many bytes the filled-in text will have, or characters when these alone are too many.

    Measured before it is built: a short text can name a long parameter a hundred thousand times.
    """
    texts = [piece if isinstance(piece, str) else item for piece in pieces if not isinstance(piece, Placement)]
    characters = sum(map(len, texts))
    return characters if characters > MAX_BYTES else sum(len(text.encode("utf-8")) for text in texts)


def characters(pieces: list[Piece], item: str) -> int:
    """How many characters the filled-in text will have, where no results are placed."""
    return sum(len(piece) if isinstance(piece, str) else len(item) for piece in pieces)


def fill_in(pieces: list[Piece], item: str) -> tuple[str | Placement, ...]:
    """The text with its item, as runs of text between placements."""
    runs: list[str | Placement] = []
    texts: list[str] = []
    for piece in pieces:
        if isinstance(piece, Placement):
            runs.extend(("".join(texts), piece))
            texts = []
        else:
            texts.append(piece if isinstance(piece, str) else item)
    runs.append("".join(texts))
    return tuple(run for run in runs if run)


def left_open(pieces: list[Piece], item: Placement) -> tuple[str | Placement, ...]:
    """The text with a place for an item that nobody knows yet."""
    return fill_in([item if isinstance(piece, Item) else piece for piece in pieces], "")


def around_items(pieces: list[Piece]) -> list[str]:
    """The texts between which an item stands that nobody knows yet."""
    texts = [""]
    for piece in pieces:
        if isinstance(piece, Item):
            texts.append("")
        elif isinstance(piece, str):
            texts[-1] += piece
    return texts


def left_open_values(value: JsonValue, scope: Scope, key: str) -> JsonValue:
    """A payload, already checked, with parameters in its texts; one with an item is a mapping with this key."""
    if isinstance(value, str):
        pieces: list[JsonValue] = [*around_items(read(value, scope, lambda *_: None, where="a payload"))]
        return {key: pieces} if len(pieces) > 1 else pieces[0]
    if isinstance(value, list):
        return [left_open_values(child, scope, key) for child in value]
    if isinstance(value, dict):
        return {name: left_open_values(child, scope, key) for name, child in value.items()}
    return value


def fill_in_values(value: JsonValue, scope: Scope, item: str) -> JsonValue:
    """A payload, already checked, with item and parameters in its texts. Keys stay as they are."""
    if isinstance(value, str):
        return "".join(str(run) for run in fill_in(read(value, scope, lambda *_: None, where="a payload"), item))
    if isinstance(value, list):
        return [fill_in_values(child, scope, item) for child in value]
    if isinstance(value, dict):
        return {key: fill_in_values(child, scope, item) for key, child in value.items()}
    return value


def size_of_values(value: JsonValue, scope: Scope, item: str) -> int:
    """How large the texts of a filled-in payload will be, measured as `size` does."""
    if isinstance(value, str):
        return size(read(value, scope, lambda *_: None, where="a payload"), item)
    if isinstance(value, list):
        return sum(size_of_values(child, scope, item) for child in value)
    if isinstance(value, dict):
        return sum(len(key) + size_of_values(child, scope, item) for key, child in value.items())
    return 0
