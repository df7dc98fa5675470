"""Lists that tasks are to make for fan-outs: what the answer of such a task must be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from domain.planning.drafts import Draft

Schema = dict[str, JsonValue]


def schema_of_list(fans: Sequence[Draft]) -> Schema:
    """The schema of an answer that is a list of texts, no longer than each of these fan-outs takes."""
    most = min((fan.awaits.most for fan in fans if fan.awaits is not None), default=0)
    items: Schema = {"type": "array", "items": {"type": "string", "minLength": 1}, "maxItems": most}
    return {"type": "object", "properties": {"items": items}, "required": ["items"], "additionalProperties": False}


def has_list(schema: Mapping[str, JsonValue]) -> bool:
    """Whether an answer by this schema has one list to fan out over: `items`, or the only list that there is."""
    properties = schema.get("properties")
    found = properties if isinstance(properties, dict) else {}
    lists = [name for name, part in found.items() if isinstance(part, dict) and part.get("type") == "array"]
    return "items" in lists or len(lists) == 1
