"""What an agent may do: models, tools, data, regions, money. What is not granted is refused.

Nothing here is decided by a model. Rights stand in agents.yaml, are copied into a run with its agents, and are looked
at before every call; what the register has taken away since does not count any more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from decimal import Decimal
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from domain.values import Value

Unsaid = Field(exclude_if=lambda value: not value)
ANYTHING = "*"
SCOPES = ("files:", "results:", "urls:")
"""What data is named by: a path in the plan's folder, the agent that made a result, an address."""


class Right(StrEnum):
    """The kinds of rights, by the keys they are written under."""

    MODELS = "models"
    TOOLS = "tools"
    DATA = "data"
    REGIONS = "regions"
    BUDGET = "budget_usd"


class Rights(Value):
    """What is granted, as patterns: `*` stands for any text. What no pattern matches is refused."""

    models: Annotated[tuple[str, ...], Unsaid] = ()
    tools: Annotated[tuple[str, ...], Unsaid] = ()
    data: Annotated[tuple[str, ...], Unsaid] = ()
    """`files:PATTERN` (paths in a plan's folder), `results:PATTERN` (of agents by name), `urls:PATTERN`."""
    regions: Annotated[tuple[str, ...], Unsaid] = ()
    budget_usd: Annotated[Decimal | None, Unsaid] = None
    """US dollars that all tasks of the agent may spend together in a run and its retries. None: nothing."""

    def of(self, right: Right) -> tuple[str, ...]:
        """The patterns of one kind. Money has no patterns: it is there or not."""
        if right is Right.BUDGET:
            return (ANYTHING,) if self.budget_usd else ()
        found: tuple[str, ...] = getattr(self, right.value)
        return found

    def grants(self, right: Right, what: str) -> bool:
        """Whether this very thing is granted."""
        return any(matches(pattern, what) for pattern in self.of(right))

    def __or__(self, other: Rights) -> Rights:
        """What either of them grants; of money the larger sum."""
        budgets = [budget for budget in (self.budget_usd, other.budget_usd) if budget is not None]
        joined = {right: _joined(self.of(right), other.of(right)) for right in Right if right is not Right.BUDGET}
        return Rights(
            **{right.value: patterns for right, patterns in joined.items()}, budget_usd=max(budgets, default=None)
        )


class Role(Value):
    """Rights under a name, for several agents."""

    name: str
    rights: Rights


def matches(pattern: str, what: str) -> bool:
    """Whether a pattern stands for this very text. `*` is any text, everything else is itself.

    Brackets and question marks are no signs here: they stand in names of files and in addresses, and a withdrawal that
    did not match the name it was copied from would withdraw nothing.
    """
    first, *rest = pattern.split(ANYTHING)
    if not rest:
        return what == pattern
    *middle, last = rest
    if not (what.startswith(first) and what.endswith(last) and len(what) >= len(first) + len(last)):
        return False
    at, end = len(first), len(what) - len(last)
    for part in middle:
        found = what.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True


def granted(own: Rights | None, roles: Collection[Role], *, but: Collection[str] = ()) -> Rights | None:
    """What an agent's own rights and its roles grant together; None when nobody wrote down any.

    Roles that were taken away (`but`) grant nothing. An agent that has none left has no rights then, and not those of
    an agent for which nobody ever wrote any down.
    """
    if own is None and not roles:
        return None
    found = own or Rights()
    for role in roles:
        if role.name not in but:
            found |= role.rights
    return found


def _joined(first: Iterable[str], second: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*first, *second)))
