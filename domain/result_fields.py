"""A field of a result that has a schema, as text: what stands in a prompt where `{{ TASK.field }}` is written."""

from __future__ import annotations

import json
from collections.abc import Sequence

from pydantic import JsonValue

from domain.cutting import shorten

ABSENT = "(the result has no such field)"


def field_text(result: str, path: Sequence[str]) -> str:
    """The text of a field: a text as it is, anything else as JSON. Never longer than the result that it is of."""
    try:
        value: JsonValue = json.loads(result)
    except (ValueError, RecursionError):
        return result  # no answer by a schema: of a plan that is only looked at, what stands for one
    for name in path:
        if not isinstance(value, dict) or name not in value:
            return ABSENT
        value = value[name]
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return shorten(text, len(result.encode()))
