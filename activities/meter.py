"""The meter: who may call now. It grants everything until the quota of the account is known and shared."""

from __future__ import annotations

from typing import Protocol

from domain.briefing import Brief


class Meter(Protocol):
    """What the door asks before a call."""

    async def draw(self, run: str, brief: Brief) -> None:
        """Wait until this call may be made."""
        ...


class OpenMeter:
    """Grants every call at once."""

    async def draw(self, run: str, brief: Brief) -> None:
        """Nothing to wait for."""
