"""Which value is in effect: of the task, else the defaults, else the plan itself, else the agent, else built in."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from domain.forms import Filled
from domain.grammar import DefaultsForm
from domain.models import Agent
from domain.planning.drafts import Draft

BUILT_IN: Mapping[str, Any] = {
    "priority": "normal",
    "timeout": timedelta(seconds=30),
    "attempts": 4,
    "max_tokens": 1024,
    "latency": "normal",
}


class Effective:
    """The values of drafts, over the defaults of their plan. No defaults: what is written there cannot be read."""

    def __init__(self, defaults: Filled[DefaultsForm] | None, plan: Mapping[str, Any] | None = None) -> None:
        self.defaults = defaults
        self._plan = plan or {}

    def given(self, draft: Draft, key: str) -> tuple[Filled[Any], str] | None:
        """Who gives a key, the task or the defaults."""
        for filled, source in ((draft.filled, "task"), (self.defaults, "defaults")):
            if filled is not None and getattr(filled.form, key) is not None:
                return filled, source
            if filled is not None and key.rstrip("_") in filled.wrong:
                return None
        return None

    def value(self, draft: Draft, agent: Agent | None, key: str) -> tuple[Any, str | None]:
        """The value in effect and its source; no source when nobody says anything."""
        given = self.given(draft, key)
        if given is not None:
            return getattr(given[0].form, key), given[1]
        if self._plan.get(key) is not None:
            return self._plan[key], "plan"
        if (own := getattr(agent, key, None)) is not None:
            return own, "agent"
        return BUILT_IN.get(key), "built in" if key in BUILT_IN else None

    def is_known(self, draft: Draft, key: str) -> bool:
        """Whether what is written under the key could be read, by whoever would give it."""
        if getattr(draft.filled.form, key) is not None:
            return True
        return key not in draft.filled.wrong and self.defaults is not None and key not in self.defaults.wrong
