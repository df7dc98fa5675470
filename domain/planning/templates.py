r"""Placeholders in prompts, payloads and questions: `{{ TASK }}`, `{{ item }}`, `{{ params.NAME }}`.

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

from domain.models import Placement
from domain.problems import Suggestions, did_you_mean, quoted, shorten

_TOKEN = re.compile(r"\\\{\{|\{\{(?P<inside>[^{}]*)\}\}|\{\{")
_ALLOWED = r"allowed: {{ TASK }}, {{ item }}, {{ params.NAME }}; write \{{ for a literal {{"


MAX_BYTES = 1_000_000
"""How large a prompt or a payload may be."""

Where = Literal["a prompt", "a payload", "a question"]
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
        return ITEM if scope.has_item else _Wrong(f"{shown} stands in a task without for_each")
    if name.startswith("params."):
        scope.used.add(name)
        value = scope.params.get(name.removeprefix("params."))
        hint = did_you_mean(name, [f"params.{declared}" for declared in scope.params]) if value is None else None
        return value if value is not None else _Wrong(f"{shown} is not declared in params", hint)
    ids = scope.tasks(name)
    if ids is None:
        return _not_a_task(name, shown, scope)
    if where != "a prompt":
        return _Wrong(f"{shown} cannot stand in {where}: a task's result can be placed in prompts only")
    if scope.needed is not None and not all(id in scope.needed for id in ids):
        return _Wrong(f"{shown} is placed but not in needs", f"add {quoted(name)} to needs")
    return Placement(name=name, tasks=ids)


def _not_a_task(name: str, shown: str, scope: Scope) -> Piece | _Wrong:
    base = name.partition("[")[0]
    if base in scope.broken:
        return ""  # that task has its own complaints
    parts = name.split(".")[:100]
    heads = (".".join(parts[:count]) for count in range(len(parts) - 1, 0, -1))
    if any(scope.tasks(head) is not None or head in scope.broken for head in heads):
        return _Wrong(f"{shown}: a field of a result is not supported yet", "place the whole result")
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
