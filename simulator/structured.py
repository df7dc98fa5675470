"""Answers by a schema: a plausible value of the shape that is asked for, made up from the prompt and its randomness.

Whoever knows more of what a schema is for answers by its title (`BY_TITLE`).
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Mapping
from typing import Any

from simulator import changes, planning
from simulator.prompt import Prompt
from simulator.prose import phrases_of, sentence_of
from simulator.script import Then

Schema = Mapping[str, Any]
Answerer = Callable[[Prompt, Then, random.Random], Any]

FEW, MANY = 3, 5
"""Items of a list when nobody says how many."""

_BOUNDS = re.compile(r"(?:^|\n\n)(\{[^\n]*\})\Z")
_DATES = {"date": "2026-03-14", "date-time": "2026-03-14T09:26:53Z", "email": "simulated@example.com"}
_UUID = "00000000-0000-4000-8000-000000000000"


def by_schema(prompt: Prompt, then: Then, chance: random.Random) -> str:
    """The answer to a prompt that asks for one by a schema, as JSON."""
    schema = prompt.schema or {}
    if then.violates:
        return json.dumps({"simulated": "this is not what the schema asks for"})
    answerer = BY_TITLE.get(str(schema.get("title")))
    value = answerer(prompt, then, chance) if answerer is not None else _Maker(prompt, then, chance).made(schema)
    return json.dumps(value, ensure_ascii=False)


def reviewed(prompt: Prompt, then: Then, chance: random.Random) -> Any:
    """The word of a reviewer: it accepts, unless it is told not to."""
    why = sentence_of(prompt, chance)
    return {"accept": then.accepts, "why": f"[Simulated review] {why}"}


BY_TITLE: dict[str, Answerer] = {
    changes.TITLE: changes.changed,
    planning.TITLE: planning.proposed,
    "nightcrew.review": reviewed,
}
"""Who answers by a schema of this title."""


class _Maker:
    """Makes up values of one answer."""

    def __init__(self, prompt: Prompt, then: Then, chance: random.Random) -> None:
        self._defs: Schema = (prompt.schema or {}).get("$defs", {})
        self._then, self._chance = then, chance
        self._prompt, self._phrases = prompt, phrases_of(prompt)

    def made(self, schema: Schema, name: str = "answer", number: int | None = None) -> Any:
        """A value of this shape; `number` is its place in a list."""
        if "$ref" in schema:
            return self.made(self._defs[schema["$ref"].removeprefix("#/$defs/")], name, number)
        if "anyOf" in schema:
            return self.made(schema["anyOf"][0], name, number)
        if "const" in schema or "enum" in schema:
            values = schema.get("enum", [schema.get("const")])
            return values[(number or 0) % len(values)]
        kind = schema["type"][0] if isinstance(schema["type"], list) else schema["type"]
        if kind in ("object", "array"):
            return self._whole(schema, kind, name, number)
        return self._single({**schema, **_told(schema)}, kind, name, number)

    def _whole(self, schema: Schema, kind: str, name: str, number: int | None) -> Any:
        if kind == "object":
            return {key: self.made(part, key, number) for key, part in schema.get("properties", {}).items()}
        count = self._count({**schema, **_told(schema)})
        return [self.made(schema["items"], name, at) for at in range(count)]

    def _single(self, bounds: Schema, kind: str, name: str, number: int | None) -> Any:
        if kind in ("integer", "number"):
            return self._number(bounds, whole=kind == "integer")
        if kind in ("boolean", "null"):
            return True if kind == "boolean" else None
        return self._text(bounds, name, number)

    def _count(self, bounds: Schema) -> int:
        if self._then.items is not None:
            return self._then.items
        count = self._chance.randint(FEW, MANY)
        return max(int(bounds.get("minItems", 0)), min(count, int(bounds.get("maxItems", count))))

    def _number(self, bounds: Schema, *, whole: bool) -> float:
        step = bounds.get("multipleOf", 1)
        low = bounds.get("minimum", bounds.get("exclusiveMinimum", 0) + ("exclusiveMinimum" in bounds) * step)
        high = bounds.get("maximum", bounds.get("exclusiveMaximum", low + 10 * step + step) - step)
        number = -(-low // step) * step
        most = max(0, int((high - number) // step))
        number += self._chance.randint(0, min(most, 10)) * step
        return int(number) if whole else number

    def _text(self, bounds: Schema, name: str, number: int | None) -> str:
        if (kind := bounds.get("format")) is not None:
            return _UUID[: -len(str(number or 0))] + str(number or 0) if kind == "uuid" else _DATES.get(kind, "")
        if number is None:
            text = f"Simulated {name}: {sentence_of(self._prompt, self._chance)}"
        else:
            text = f"{self._phrases[number % len(self._phrases)]} {number + 1}"
        return text.ljust(bounds.get("minLength", 0), ".")[: bounds.get("maxLength")]


def _told(schema: Schema) -> Schema:
    """Bounds that providers do not take in a schema stand at the end of its description, as JSON."""
    found = _BOUNDS.search(str(schema.get("description", "")))
    try:
        told = json.loads(found.group(1)) if found else {}
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}
