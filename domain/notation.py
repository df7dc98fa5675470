"""How single values are written in a plan and in agents.yaml: texts, ids, numbers, durations, and their limits."""

from __future__ import annotations

import re
import unicodedata
from datetime import timedelta
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, JsonValue, WithJsonSchema

from domain import deadlines, durations
from domain.models import Deadline
from domain.problems import Mistake, did_you_mean
from domain.regions import REGION, checked
from domain.rights import SCOPES

RESERVED_IDS = frozenset({"item", "params"})
LONGEST_TIMEOUT = timedelta(hours=24)
LONGEST_WAIT = timedelta(days=14)
MAX_QUESTION = 500
MOST_DOLLARS = 1_000_000

_ID = re.compile(r"[^\W_][\w.-]*")
_NAME = re.compile(r"[^\W_][\w-]*")


class Odd(str):
    """A plain text that YAML 1.1 reads as something else: fine in a payload, ambiguous where a text is required."""

    __slots__ = ("reading",)
    reading: str


def _unambiguous(value: Any) -> Any:
    if isinstance(value, Odd):
        raise Mistake(f"must be a text, but {value} can be read as {value.reading}", "write it in quotes")
    return value


def _matching(pattern: re.Pattern[str], allowed: str) -> AfterValidator:
    def check(text: str) -> str:
        if not pattern.fullmatch(text):
            raise Mistake(f"must be {allowed}, and start with a letter or digit")
        return text

    return AfterValidator(check)


def _not_reserved(text: str) -> str:
    if text.casefold() in RESERVED_IDS:
        raise Mistake("is a reserved word", "choose another id")
    return text


def _not_blank(text: str) -> str:
    if not text.strip():
        raise Mistake("must not be empty")
    return text


def _on_one_line(text: str) -> str:
    if not text.isprintable():
        raise Mistake("must be one line of printable characters")
    return text


def _at_most(longest: timedelta, shown: str) -> BeforeValidator:
    def check(value: Any) -> timedelta:
        length = durations.duration(value if isinstance(value, str) else "")
        if length > longest:
            raise Mistake(f"must be at most {shown}")
        return length

    return BeforeValidator(check)


def _deadline(value: Any) -> Deadline:
    """What YAML 1.1 takes for a date need not be quoted here: a time is what it is either way."""
    return deadlines.deadline(value if isinstance(value, str) else "")


def _dollars(value: Any) -> Decimal:
    """An amount of money, exactly as it is written: a number of YAML is read by its digits, never as a float."""
    try:
        amount = Decimal(str(value)) if isinstance(value, int | float | str) and not isinstance(value, bool) else None
    except InvalidOperation:
        amount = None
    if amount is None or not amount.is_finite():
        raise Mistake("must be an amount in US dollars", "such as 0.50")
    if not 0 < amount <= MOST_DOLLARS:
        raise Mistake(f"must be more than 0 and at most {MOST_DOLLARS:,}")
    return amount


def _not_nothing(value: Any) -> Any:
    if value is None:
        raise Mistake("is empty", "give it a value, or remove the key")
    return value


def item_text(value: Any) -> Any:
    """The text of an item: a text, or a whole number as it is written."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return _unambiguous(value)


def same(name: str) -> str:
    """What two names have in common that people cannot tell apart, or file systems cannot."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def item_label(text: str) -> str:
    """The text, if it may stand between the brackets of a task's id."""
    if not text or text != text.strip() or not text.isprintable() or set(text) & set("[]{}"):
        raise Mistake("must be printable, not empty, without []{} and without space around it")
    if len(text) > 100:
        raise Mistake("must be at most 100 characters long")
    return text


def _pattern(text: str) -> str:
    if not text.strip() or text != text.strip() or not text.isprintable():
        raise Mistake("must be printable, not empty, and without space around it")
    return text


def _scope(text: str) -> str:
    if not text.startswith(SCOPES) or text in SCOPES:
        first, last = ", ".join(f"'{scope}PATTERN'" for scope in SCOPES[:-1]), SCOPES[-1]
        hint = did_you_mean(f"{text.partition(':')[0]}:", SCOPES) if ":" in text else f"such as 'files:{text}'"
        raise Mistake(f"must be {first} or '{last}PATTERN'", hint)
    return text


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _plain(value: Any) -> Any:
    if isinstance(value, Odd):
        return str(value)
    if isinstance(value, dict):
        return {key: _plain(child) for key, child in value.items()}
    return [_plain(child) for child in value] if isinstance(value, list) else value


def _shape(value: Any) -> str | None:
    shapes = {"a list": list, "a mapping": dict, "a text": str, "true or false": bool}
    return next((name for name, kind in shapes.items() if isinstance(value, kind)), None)


def one_of(message: str, keys: tuple[str, ...] = ()) -> Discriminator:
    """The choice among types that are told apart by their shape; they are tagged with its name.

    A mapping with one of these keys has a type of its own.
    """

    def shape(value: Any) -> str | None:
        key = next((key for key in keys if key in value), None) if isinstance(value, dict) else None
        return f"a mapping with {key!r}" if key is not None else _shape(value)

    return Discriminator(shape, custom_error_type="shape", custom_error_message=message)


Text = Annotated[str, BeforeValidator(_unambiguous)]
Label = Annotated[Text, Field(max_length=100), _matching(_ID, "letters, digits, '-', '_' and '.'")]
Id = Annotated[Label, AfterValidator(_not_reserved)]
Name = Annotated[Text, Field(max_length=100), _matching(_NAME, "letters, digits, '-' and '_'")]
RegionName = Annotated[
    Text, AfterValidator(checked), WithJsonSchema({"type": "string", "pattern": f"^{REGION.pattern}$"})
]
Prose = Annotated[Text, AfterValidator(_not_blank)]
Line = Annotated[Prose, AfterValidator(_on_one_line)]
"""What stands in a line of ours, such as the heading of a brief: it cannot begin another one."""
Question = Annotated[Prose, Field(max_length=MAX_QUESTION)]
Item = Annotated[
    str, BeforeValidator(item_text), AfterValidator(item_label), WithJsonSchema({"type": ["string", "integer"]})
]
Timeout = Annotated[timedelta, _at_most(LONGEST_TIMEOUT, "24h")]
LongDuration = Annotated[timedelta, _at_most(LONGEST_WAIT, "14d")]
DeadlineText = Annotated[
    Deadline,
    BeforeValidator(_deadline),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": f"^({durations.PATTERN}|{deadlines.TIME}{deadlines.OFFSET})$",
            "examples": ["6h", "2026-12-01T08:00:00Z"],
        }
    ),
]
NotNothing = BeforeValidator(_not_nothing)
"""For keys of a mapping within a form: those of the form itself are looked at when it is filled in."""
Capabilities = Annotated[
    list[Label],
    BeforeValidator(_as_list),
    Field(min_length=1),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}),
]
Dollars = Annotated[
    Decimal,
    BeforeValidator(_dollars),
    WithJsonSchema({"type": "number", "exclusiveMinimum": 0, "maximum": MOST_DOLLARS}),
]
Pattern = Annotated[Text, Field(min_length=1, max_length=200), AfterValidator(_pattern)]
"""Of names that a right grants; `*` stands for any text."""
Scope = Annotated[
    Pattern,
    AfterValidator(_scope),
    WithJsonSchema({"type": "string", "pattern": f"^({'|'.join(SCOPES)}).", "maxLength": 200}),
]
Concurrency = Annotated[int, Field(ge=1, le=500)]
Attempts = Annotated[int, Field(ge=1, le=4)]
Tries = Annotated[int, Field(ge=1, le=3)]
MaxTokens = Annotated[int, Field(ge=1, le=200_000)]
Quorum = Annotated[int, Field(ge=1, le=10_000)]
Payload = Annotated[dict[str, JsonValue], BeforeValidator(_plain)]
PolicyName = Literal["require", "tolerate", "optional"]
FormName = Literal["full", "summary"]
ItemName = Literal["item", "number"]
PriorityName = Literal["low", "normal", "high"]
PaceName = Literal["window", "waves"]
OnBudget = Literal["stop", "wait"]
LatencyName = Literal["normal", "relaxed"]
Expiry = Literal["reject", "approve"]
