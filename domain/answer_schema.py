"""What the schema of an answer may say, and the part of it that a provider can be asked for.

A provider answers by a schema of a small kind: objects that name their properties, no bounds, no patterns, nothing that
contains itself. Our own check knows more, and what it cannot know either is refused where it is written. So no word of
a schema is without effect, and none makes a worker stand still: there are no patterns, and a schema with every
reference put in its place stays small.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from pydantic import JsonValue

Schema = Mapping[str, JsonValue]
Path = tuple[str | int, ...]

MOST_BYTES = 20_000
"""Of a schema as JSON: it is sent with every request of its task."""

MOST_PARTS = 2_000
"""Schemas within a schema, each counted wherever a reference puts it: what a check may have to look at."""

DEEPEST = 30
"""Steps to the innermost schema; a plan file cannot be nested much deeper."""

ROOT_TYPE = "object"
REFERENCE = "#/$defs/"
TOLD = frozenset({"title", "description", "$comment", "default", "examples", "$schema"})
"""Words for people and models: nothing is checked by them."""

SHAPES = ("type", "enum", "const", "anyOf", "oneOf", "$ref")
"""One of them says what a value is."""

SENT = frozenset({*SHAPES, "title", "description", "properties", "required", "items", "format", "$defs"})
"""What a provider understands. All else is told to the model in words, and checked when it has answered."""

AS_IT_IS = ("type", "enum", "const", "title", "required", "format")

BOUNDS = frozenset(
    {
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        *("minLength", "maxLength", "minItems", "maxItems", "uniqueItems"),
    }
)
FORMATS = ("date", "date-time", "email", "uuid")
KNOWN = SENT | TOLD | BOUNDS | {"additionalProperties"}


class Wrong(NamedTuple):
    """A mistake in a schema: where, what, and what to do about it."""

    path: Path
    message: str
    hint: str | None = None


def mistakes(schema: Schema) -> list[Wrong]:
    """What is wrong with the schema of an answer, beyond what JSON Schema itself says of schemas."""
    if len(json.dumps(schema, ensure_ascii=False).encode()) > MOST_BYTES:
        return [Wrong((), f"is larger than {MOST_BYTES:,} bytes", "ask for less in one answer")]
    found: list[Wrong] = []
    if schema.get("type") != ROOT_TYPE:
        hint = "for a list write {type: object, properties: {items: {type: array, ...}}, required: [items]}"
        found.append(Wrong((), "must be of type object: providers answer by no other schema", hint))
    for path, part in _parts(schema, ()):
        found += _mistakes_of(path, part)
    defined = schema.get("$defs")
    names = frozenset(defined if isinstance(defined, dict) else ())
    for path, part in _parts(schema, ()):
        if isinstance(part, dict) and isinstance(target := part.get("$ref"), str):
            found += _mistakes_of_reference(path, target, names)
    if not found and _size(schema, schema, ()) > MOST_PARTS:
        message = f"has more than {MOST_PARTS:,} parts with every $ref in its place, or contains itself"
        found.append(Wrong((), message, "ask for less in one answer"))
    return found


def reduced(schema: Schema) -> dict[str, JsonValue]:
    """The part of a schema that a provider can be asked for; the rest stands in the descriptions, for the model."""
    if "$ref" in schema:
        return _with_defs({"$ref": schema["$ref"]}, schema)
    sent: dict[str, JsonValue] = {key: schema[key] for key in AS_IT_IS if key in schema}
    rest = {key: value for key, value in schema.items() if key in BOUNDS}
    choices = schema.get("anyOf", schema.get("oneOf"))
    if isinstance(choices, list):
        sent["anyOf"] = [_reduced(choice) for choice in choices]
    if isinstance(properties := schema.get("properties"), dict):
        sent["properties"] = {name: _reduced(part) for name, part in properties.items()}
        sent["additionalProperties"] = False
    if "items" in schema:
        sent["items"] = _reduced(schema["items"])
    if rest.get("minItems") in (0, 1):
        sent["minItems"] = rest.pop("minItems")
    told = [str(schema["description"])] if "description" in schema else []
    if rest:
        told.append(json.dumps(rest, sort_keys=True))
    if told:
        sent["description"] = "\n\n".join(told)
    return _with_defs(sent, schema)


def field(schema: Schema, names: tuple[str, ...]) -> Schema | None:
    """The schema of a field of the answer; nothing when there is none of this name."""
    part: Schema | None = schema
    for name in names:
        properties = _followed(schema, part).get("properties") if part is not None else None
        found = properties.get(name) if isinstance(properties, dict) else None
        part = found if isinstance(found, dict) else None
    return part


def fields(schema: Schema, names: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The names of the fields below these."""
    part = field(schema, names)
    properties = _followed(schema, part).get("properties") if part is not None else None
    return tuple(properties) if isinstance(properties, dict) else ()


def _with_defs(sent: dict[str, JsonValue], schema: Schema) -> dict[str, JsonValue]:
    if isinstance(defined := schema.get("$defs"), dict):
        sent["$defs"] = {name: _reduced(part) for name, part in defined.items()}
    return sent


def _reduced(part: JsonValue) -> JsonValue:
    return reduced(part) if isinstance(part, dict) else part


def _mistakes_of(path: Path, part: JsonValue) -> Iterator[Wrong]:
    if not isinstance(part, dict):
        yield Wrong(path, "must be a mapping: a schema")
        return
    if len(path) > DEEPEST:
        yield Wrong((), "is nested too deeply", "give a part of it a name in $defs")
        return
    for key in sorted(part.keys() - KNOWN):
        yield Wrong((*path, key), f"has {key!r}, which the schema of an answer cannot have", f"known: {_known()}")
    if not any(key in part for key in SHAPES):
        yield Wrong(path, "does not say what it is", f"give it one of {', '.join(SHAPES)}")
    types = part.get("type")
    if (types == "object" or "properties" in part) and not part.get("properties"):
        yield Wrong(path, "is an object without properties", "name them: providers answer with no others")
    if types == "array" and "items" not in part:
        yield Wrong(path, "is an array without items", "say what its items are")
    if part.get("additionalProperties", False) is not False:
        yield Wrong((*path, "additionalProperties"), "can only be false: providers answer with no others")
    if "format" in part and part["format"] not in FORMATS:
        yield Wrong((*path, "format"), f"must be one of {', '.join(FORMATS)}")
    if isinstance(values := part.get("enum"), list) and any(isinstance(value, dict | list) for value in values):
        yield Wrong((*path, "enum"), "can have texts, numbers, true, false and null only")


def _mistakes_of_reference(path: Path, target: str, names: frozenset[str]) -> Iterator[Wrong]:
    name = target.removeprefix(REFERENCE)
    if not target.startswith(REFERENCE) or "/" in name:
        yield Wrong((*path, "$ref"), f"must be {REFERENCE}NAME: nothing is fetched from elsewhere")
    elif name not in names:
        yield Wrong((*path, "$ref"), f"refers to {name!r}, which is not in $defs")


def _known() -> str:
    return ", ".join(sorted(KNOWN - TOLD))


def _parts(schema: JsonValue | Schema, path: Path) -> Iterator[tuple[Path, JsonValue]]:
    """Every schema in a schema, where it stands."""
    yield path, schema  # type: ignore[misc]  # a mapping is JSON, too
    if not isinstance(schema, Mapping) or len(path) > DEEPEST:
        return
    for key in ("properties", "$defs"):
        if isinstance(within := schema.get(key), dict):
            for name, part in within.items():
                yield from _parts(part, (*path, key, name))
    for key in ("anyOf", "oneOf"):
        if isinstance(choices := schema.get(key), list):
            for at, part in enumerate(choices):
                yield from _parts(part, (*path, key, at))
    if "items" in schema:
        yield from _parts(schema["items"], (*path, "items"))


def _size(root: Schema, part: JsonValue | Schema, above: tuple[str, ...]) -> int:
    """How many schemas a check may look at; more than allowed where one contains itself, or all that is allowed."""
    if not isinstance(part, Mapping):
        return 1
    if isinstance(target := part.get("$ref"), str):
        if target in above:
            return MOST_PARTS + 1
        return 1 + _size(root, _followed(root, part), (*above, target))
    size = 1
    for path, within in _parts(part, ()):
        if path and "$defs" not in path[:1] and _is_direct(path):
            size += _size(root, within, above)
            if size > MOST_PARTS:
                break
    return size


def _is_direct(path: Path) -> bool:
    return len(path) == (1 if path[0] == "items" else 2)


def _followed(root: Schema, part: Schema) -> Schema:
    """What a reference refers to, or the schema itself."""
    for _ in range(MOST_PARTS):
        target = part.get("$ref")
        if not isinstance(target, str):
            return part
        defined = root.get("$defs")
        found = defined.get(target.removeprefix(REFERENCE)) if isinstance(defined, dict) else None
        if not isinstance(found, dict):
            return {}
        part = found
    return {}
