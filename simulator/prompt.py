"""A request body, read: what is asked of whom, and how large it is."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError

from simulator.caching import MOST_MARKS, Boundary, boundaries

CHARACTERS_PER_TOKEN = 4
_TASK = re.compile(r"Task:[ \t]*(\S.*?)[ \t]*(?:\n|$)")
_PLAN = re.compile(r"Task:[^\n]*\nPlan:[ \t]*(\S.*?)[ \t]*(?:\n|$)")

Text = Annotated[str, Field(min_length=1)]


def count_tokens(text: str) -> int:
    """A local estimate, the same one wherever tokens are counted."""
    return math.ceil(len(text) / CHARACTERS_PER_TOKEN)


class InvalidRequestError(Exception):
    """The body is not a request that the Messages API would take."""


class _Mark(BaseModel):
    """The end of a prefix that shall be kept in the prompt cache."""

    type: Literal["ephemeral"]
    ttl: Literal["5m", "1h"] = "5m"


class _Markable(BaseModel):
    """What may carry a mark. It is no part of what the model reads."""

    cache_control: _Mark | None = Field(default=None, exclude=True)


class _TextBlock(_Markable):
    type: Literal["text"]
    text: Text


class _TextSource(BaseModel):
    type: Literal["text"]
    media_type: Literal["text/plain"]
    data: Text


class _DocumentBlock(_Markable):
    type: Literal["document"]
    source: _TextSource
    title: str | None = None
    context: str | None = None


class _OtherBlock(_Markable):
    """Images, tool calls and their results: taken and counted, not understood."""

    model_config = ConfigDict(extra="allow")

    type: str


def _kind(block: object) -> str:
    kind = block.get("type") if isinstance(block, dict) else getattr(block, "type", None)
    return kind if kind in ("text", "document") else "other"


_Block = Annotated[
    Annotated[_TextBlock, Tag("text")]
    | Annotated[_DocumentBlock, Tag("document")]
    | Annotated[_OtherBlock, Tag("other")],
    Discriminator(_kind),
]


class _Tool(_Markable):
    model_config = ConfigDict(extra="allow")


class _Message(BaseModel):
    role: Literal["user", "assistant"]
    content: Text | Annotated[list[_Block], Field(min_length=1)]

    def blocks(self) -> list[_Block]:
        return [_TextBlock(type="text", text=self.content)] if isinstance(self.content, str) else self.content


class _Metadata(BaseModel):
    user_id: str | None = None


class _Format(BaseModel):
    type: Literal["json_schema"]
    schema_: dict[str, Any] = Field(alias="schema")


class _OutputConfig(BaseModel):
    format: _Format | None = None


class _CountBody(_Markable):
    model: Text
    messages: Annotated[list[_Message], Field(min_length=1)]
    system: str | list[_TextBlock] = ""
    tools: list[_Tool] = []
    output_config: _OutputConfig | None = None

    @property
    def schema_(self) -> dict[str, Any] | None:
        """What the answer must be."""
        asked = self.output_config.format if self.output_config is not None else None
        return asked.schema_ if asked is not None else None


class _Body(_CountBody):
    max_tokens: Annotated[int, Field(ge=1)]
    stream: bool = False
    metadata: _Metadata = _Metadata()


@dataclass(frozen=True)
class Prompt:
    """What the stand-in needs to know of a request."""

    model: str
    max_tokens: int
    stream: bool
    user: str | None
    task: str | None
    plan: str | None
    system: str
    texts: tuple[str, ...]
    titles: tuple[str, ...]
    documents: tuple[str, ...]
    content: str
    hash: str
    size: int
    tokens: int
    prefix: tuple[Boundary, ...] = ()
    schema: dict[str, Any] | None = None
    """What the answer must be."""


def read_prompt(document: object, *, counting: bool = False) -> Prompt:
    """The prompt in a decoded body; `counting` reads a body of count_tokens, which has no max_tokens."""
    try:
        asked = _CountBody.model_validate(document)
        body = None if counting else _Body.model_validate(document)
    except ValidationError as error:
        raise InvalidRequestError(_first_problem(error)) from error
    system = asked.system if isinstance(asked.system, str) else "\n".join(block.text for block in asked.system)
    blocks = [block for message in asked.messages if message.role == "user" for block in message.blocks()]
    texts = tuple(block.text for block in blocks if isinstance(block, _TextBlock))
    if asked.schema_ is not None and (why := _unfit(asked.schema_)) is not None:
        raise InvalidRequestError(f"output_config.format.schema: {why}")
    everything = [
        *([json.dumps(asked.schema_)] if asked.schema_ is not None else []),
        *(tool.model_dump_json() for tool in asked.tools),
        system,
        *(part for message in asked.messages for block in message.blocks() for part in _parts(block)),
    ]
    prefix = _prefix(asked)
    task, plan = (pattern.match(texts[0]) if texts else None for pattern in (_TASK, _PLAN))
    return Prompt(
        model=asked.model,
        max_tokens=body.max_tokens if body else 0,
        stream=body.stream if body else False,
        user=body.metadata.user_id if body else None,
        task=task.group(1) if task else None,
        plan=plan.group(1) if plan else None,
        system=system,
        texts=texts,
        titles=tuple(block.title for block in blocks if isinstance(block, _DocumentBlock) and block.title),
        documents=tuple(_digest(block.source.data) for block in blocks if isinstance(block, _DocumentBlock)),
        content="\n".join(part for block in blocks for part in _parts(block)),
        hash=_hash(asked),
        size=sum(len(part.encode()) for part in everything),
        tokens=max(1, count_tokens("".join(everything))),
        prefix=prefix,
        schema=asked.schema_,
    )


def _hash(asked: _CountBody) -> str:
    """Of what the model would read, so the same prompt is known again whatever the order of its JSON keys."""
    said = asked.model_dump(mode="json", include={"system", "messages"})
    by = [json.dumps(asked.schema_, sort_keys=True)] if asked.schema_ is not None else []
    return _digest("\n".join([json.dumps(said, sort_keys=True), *by]))


_UNKNOWN = {
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength"),
    *("maxItems", "uniqueItems", "pattern", "oneOf", "not", "patternProperties"),
}


def _unfit(schema: Any) -> str | None:
    """Why the provider would not answer by a schema: it knows a part of JSON Schema alone."""
    if not isinstance(schema, dict):
        return "a schema must be an object"
    if found := sorted(_UNKNOWN & schema.keys()):
        return f"{found[0]!r} is not supported"
    if schema.get("type") == "object" and schema.get("additionalProperties") is not False:
        return "For 'object' type, 'additionalProperties' must be explicitly set to false"
    named = [*schema.get("properties", {}).values(), *schema.get("$defs", {}).values(), *schema.get("anyOf", [])]
    below = [*named, *([schema["items"]] if "items" in schema else [])]
    return next((why for part in below if (why := _unfit(part)) is not None), None)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _prefix(asked: _CountBody) -> tuple[Boundary, ...]:
    """Where a prefix of this request may end, in the order in which the model reads: tools, system, messages."""
    system = [_TextBlock(type="text", text=asked.system)] if asked.system and isinstance(asked.system, str) else []
    said: list[tuple[str, _Markable, str]] = [
        *(("tool", tool, tool.model_dump_json()) for tool in asked.tools),
        *(("system", block, block.text) for block in system or asked.system if isinstance(block, _TextBlock)),
        *((message.role, block, "".join(_parts(block))) for message in asked.messages for block in message.blocks()),
    ]
    ttls = [block.cache_control.ttl if block.cache_control else None for _, block, _ in said]
    if asked.cache_control is not None:
        ttls[-1] = ttls[-1] or asked.cache_control.ttl
    if sum(ttl is not None for ttl in ttls) > MOST_MARKS:
        raise InvalidRequestError(f"A maximum of {MOST_MARKS} blocks with cache_control may be provided.")
    sizes = itertools.accumulate(len(text) for _, _, text in said)
    tokens = (math.ceil(size / CHARACTERS_PER_TOKEN) for size in sizes)
    identities = (f"{where}:{block.model_dump_json()}" for where, block, _ in said)
    return boundaries(asked.model, zip(identities, tokens, ttls, strict=True))


def _parts(block: _Block) -> Iterator[str]:
    match block:
        case _TextBlock():
            yield block.text
        case _DocumentBlock():
            yield from (part for part in (block.title, block.context, block.source.data) if part)
        case _OtherBlock():
            yield block.model_dump_json()


def _first_problem(error: ValidationError) -> str:
    """The deepest complaint: of a union's arms, the one that understood most of the body."""
    problem = max(error.errors(include_url=False, include_input=False), key=lambda problem: len(problem["loc"]))
    place = ".".join(str(part) for part in problem["loc"] if not str(part).startswith(("_", "list[", "constrained")))
    return f"{place or 'body'}: {problem['msg']}"
