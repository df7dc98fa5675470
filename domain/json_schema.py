"""JSON Schema as the library checks it: whether a schema is one, and what in a value is not as it says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import date, datetime
from typing import NoReturn
from uuid import UUID

from jsonschema import Draft202012Validator, FormatChecker, SchemaError, ValidationError
from jsonschema.exceptions import relevance
from pydantic import JsonValue

from domain.answer_schema import Path, Schema

MOST_TOLD = 5
"""Mistakes of an answer that are told at once: whoever repairs it needs no more."""

MOST_CHARACTERS = 300
"""Of one of them: it may quote what was answered."""

_FORMATS = FormatChecker(formats=())


@_FORMATS.checks("date", raises=ValueError)
def _is_date(value: object) -> bool:
    return not isinstance(value, str) or bool(date.fromisoformat(value))


@_FORMATS.checks("date-time", raises=ValueError)
def _is_time(value: object) -> bool:
    return not isinstance(value, str) or datetime.fromisoformat(value).tzinfo is not None


@_FORMATS.checks("email")
def _is_email(value: object) -> bool:
    return not isinstance(value, str) or "@" in value.strip("@")


@_FORMATS.checks("uuid", raises=ValueError)
def _is_uuid(value: object) -> bool:
    return not isinstance(value, str) or bool(UUID(value))


class NotJsonError(ValueError):
    """A text that is not one JSON document."""


def mistake_of_schema(schema: Schema) -> tuple[Path, str] | None:
    """Where a schema is none, and why."""
    try:
        Draft202012Validator.check_schema(dict(schema))
    except SchemaError as error:
        return tuple(error.absolute_path), _short(error.message)
    return None


def value_of(text: str) -> JsonValue:
    """The value that a text is as JSON: with nothing around it, and no number that is none."""

    def refuse(word: str) -> NoReturn:
        raise ValueError(f"{word} is no JSON number")

    try:
        value: JsonValue = json.loads(text, parse_constant=refuse)
        json.dumps(value, ensure_ascii=False).encode()  # half a character is no text
    except (ValueError, RecursionError) as error:
        raise NotJsonError(_short(str(error))) from None
    return value


def violations(value: JsonValue, schema: Schema) -> Iterator[str]:
    """What in a value is not as the schema says, the weightiest first: place and reason in one line each."""
    found = _errors(value, schema)
    for error in found[:MOST_TOLD]:
        yield _short(f"{_place(error)}: {error.message}")
    if len(found) > MOST_TOLD:
        yield f"and {len(found) - MOST_TOLD} more"


def weightiest(value: JsonValue, schema: Schema) -> str | None:
    """Where a value is least as the schema says, and by which of its words. Nothing of the value is in it."""
    found = _errors(value, schema)
    return f"{_place(found[0])}: {found[0].validator}" if found else None


def _errors(value: JsonValue, schema: Schema) -> list[ValidationError]:
    validator = Draft202012Validator(dict(schema), format_checker=_FORMATS)
    return sorted(validator.iter_errors(value), key=relevance, reverse=True)


def _place(error: ValidationError) -> str:
    """The way to a part of a value. All names on it are those of the schema, which knows no others."""
    steps = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.absolute_path)
    return steps.lstrip(".") or "the whole"


def _short(message: str) -> str:
    line = " ".join(message.split())
    return line if len(line) <= MOST_CHARACTERS else f"{line[: MOST_CHARACTERS - 3]}..."
