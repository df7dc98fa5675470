"""The rights of an agent, those of its roles among them: for a table, and as they are written."""

from __future__ import annotations

from domain.models import Agent
from domain.prices import money
from domain.rights import Right


def rights_document(agent: Agent) -> dict[str, list[str] | str] | None:
    """What it may do, by kind; None when nobody wrote any rights down. A kind that is not there is not granted."""
    rights = agent.granted
    if rights is None:
        return None
    found: dict[str, list[str] | str] = {
        right.value: list(rights.of(right)) for right in Right if right is not Right.BUDGET and rights.of(right)
    }
    return found | ({Right.BUDGET.value: money(rights.budget_usd)} if rights.budget_usd is not None else {})


def rights_words(agent: Agent) -> str:
    """The same on one line; nothing when nobody wrote any down. Money is among the limits of an agent."""
    if agent.granted is None:
        return ""
    own = [
        pattern for right in Right if agent.rights and right is not Right.BUDGET for pattern in agent.rights.of(right)
    ]
    return ", ".join((*own, *(f"role {role.name}" for role in agent.roles))) or "none"
