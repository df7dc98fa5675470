"""What may be written in a plan and in agents.yaml: the keys, their types and their limits."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, JsonValue, Tag

from domain import durations

RESERVED_IDS = frozenset({"item", "params"})
LONGEST_TIMEOUT = timedelta(hours=24)

_ID = re.compile(r"[^\W_][\w.-]*")
_NAME = re.compile(r"[^\W_][\w-]*")


class Odd(str):
    """A plain text that YAML 1.1 reads as something else: fine in a payload, ambiguous where a text is required."""

    __slots__ = ("reading",)
    reading: str


class Mistake(ValueError):
    """Why a value is refused, and what to do about it."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


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


def _duration(value: Any) -> timedelta:
    length = durations.duration(value) if isinstance(value, str) else durations.duration("")
    if length > LONGEST_TIMEOUT:
        raise Mistake("must be at most 24h")
    return length


def item_text(value: Any) -> Any:
    """The text of an item: a text, or a whole number as it is written."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return _unambiguous(value)


def item_label(text: str) -> str:
    """The text, if it may stand between the brackets of a task's id."""
    if not text or text != text.strip() or not text.isprintable() or set(text) & set("[]{}"):
        raise Mistake("must be printable, not empty, without []{} and without space around it")
    if len(text) > 100:
        raise Mistake("must be at most 100 characters long")
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
    shapes = {"a list": list, "a mapping": dict, "a text": str}
    return next((name for name, kind in shapes.items() if isinstance(value, kind)), None)


def _one_of(message: str) -> Discriminator:
    return Discriminator(_shape, custom_error_type="shape", custom_error_message=message)


Text = Annotated[str, BeforeValidator(_unambiguous)]
Label = Annotated[Text, Field(max_length=100), _matching(_ID, "letters, digits, '-', '_' and '.'")]
Id = Annotated[Label, AfterValidator(_not_reserved)]
Name = Annotated[Text, Field(max_length=100), _matching(_NAME, "letters, digits, '-' and '_'")]
Prose = Annotated[Text, AfterValidator(_not_blank)]
Item = Annotated[str, BeforeValidator(item_text), AfterValidator(item_label)]
Duration = Annotated[timedelta, BeforeValidator(_duration)]
Capabilities = Annotated[list[Label], BeforeValidator(_as_list), Field(min_length=1)]
Concurrency = Annotated[int, Field(ge=1, le=500)]
Attempts = Annotated[int, Field(ge=1, le=4)]
MaxTokens = Annotated[int, Field(ge=1, le=200_000)]
PolicyName = Literal["require", "tolerate", "optional"]


class Form(BaseModel):
    """Keys as somebody wrote them. `later` are those of a later version; what is in those `elsewhere` is read apart."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)
    later: ClassVar[frozenset[str]] = frozenset()
    elsewhere: ClassVar[frozenset[str]] = frozenset()


class FilesForm(Form):
    """`for_each: {files: PATTERN}`: one task per file."""

    later: ClassVar[frozenset[str]] = frozenset({"from"})
    files: Prose


class EdgeForm(Form):
    """`needs: {ID: {policy: ...}}`."""

    later: ClassVar[frozenset[str]] = frozenset({"pass"})
    policy: PolicyName = "tolerate"


class ParamForm(Form):
    """`params: {NAME: {default: TEXT}}`."""

    default: Text | None = None


Edge = Annotated[
    Annotated[PolicyName, Tag("a text")] | Annotated[EdgeForm, Tag("a mapping")],
    _one_of("must be require, tolerate or optional"),
]
Needs = Annotated[
    Annotated[list[Text], Tag("a list")] | Annotated[dict[str, Edge], Tag("a mapping")],
    _one_of("must be a list of ids, or a mapping of ids to policies"),
]
ForEach = Annotated[
    Annotated[list[Item], Tag("a list")] | Annotated[FilesForm, Tag("a mapping")],
    _one_of("must be a list of items, or {files: PATTERN}"),
]


class DefaultsForm(Form):
    """The keys of a task that may also stand in `defaults`."""

    later: ClassVar[frozenset[str]] = frozenset(
        {"approval", "deadline", "latency", "merge", "mode", "plan", "priority", "quorum", "replan", "review", "schema"}
        | {"budget_usd", "on_budget", "time_limit", "workspace"}
    )
    agent: Text | None = None
    capability: Capabilities | None = None
    type: Label | None = None
    prompt_file: Prose | None = None
    files: list[Prose] | None = None
    payload: Annotated[dict[str, JsonValue], BeforeValidator(_plain)] | None = None
    timeout: Duration | None = None
    attempts: Attempts | None = None
    max_tokens: MaxTokens | None = None


class TaskForm(DefaultsForm):
    """One entry of `tasks`."""

    id: Id
    for_each: ForEach | None = None
    prompt: Prose | None = None
    needs: Needs | None = None


class AgentForm(Form):
    """One entry of `agents`."""

    later: ClassVar[frozenset[str]] = frozenset({"latency", "rights", "tools", "workspace"})
    name: Label
    version: Annotated[Text, Field(min_length=1, max_length=50)]
    capabilities: list[Label] | None = None
    model: Annotated[Text, Field(min_length=1, max_length=100)]
    max_concurrency: Concurrency | None = None
    timeout: Duration | None = None
    attempts: Attempts | None = None
    max_tokens: MaxTokens | None = None
    instructions: Annotated[Prose, Field(max_length=100_000)]


class PlanForm(Form):
    """The top of a plan. Tasks, agents and defaults are checked one by one, each on its own."""

    later: ClassVar[frozenset[str]] = frozenset({"budget_usd", "deadline", "mode", "on_budget"})
    elsewhere: ClassVar[frozenset[str]] = frozenset({"agents", "defaults", "tasks"})
    name: Name | None = None
    max_concurrency: Concurrency | None = None
    params: dict[Name, ParamForm] | None = None
    agents: list[Any] | None = None
    defaults: dict[str, Any] | None = None
    tasks: list[Any] | None = None


class RegistryForm(Form):
    """The top of agents.yaml."""

    elsewhere: ClassVar[frozenset[str]] = frozenset({"agents"})
    agents: list[Any]
